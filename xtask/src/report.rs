//! Counting tests over all suites.

use std::time::Duration;

/// How many tests of a suite passed and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
}

impl Counts {
    /// Adds the counts of a line such as `test result: ok. 3 passed; 0 failed; ...`, which closes every test file under
    /// `cargo test` and under wasm-bindgen's test runner alike. Other lines count nothing.
    pub fn add_line(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        let number_before = |word: &str| {
            let (before, _) = counts.split_once(word)?;
            before.trim_end().rsplit(' ').next()?.parse::<u64>().ok()
        };
        self.passed += number_before(" passed").unwrap_or(0);
        self.failed += number_before(" failed").unwrap_or(0);
    }

    /// The counts in the JSON report of Playwright. A flaky test counts as failed.
    pub fn from_playwright(report: &serde_json::Value) -> Self {
        let count = |name: &str| report["stats"][name].as_u64().unwrap_or(0);
        Self {
            passed: count("expected"),
            failed: count("unexpected") + count("flaky"),
        }
    }
}

/// What became of one step of `cargo xtask test`.
struct Step {
    name: &'static str,
    counts: Option<Counts>,
    error: Option<String>,
    took: Duration,
}

/// What became of all steps.
#[derive(Default)]
pub struct Report {
    steps: Vec<Step>,
}

impl Report {
    /// Notes a check that has no tests to count, such as a lint.
    pub fn check(&mut self, name: &'static str, result: anyhow::Result<()>, took: Duration) {
        let error = result.err().map(|error| format!("{error:#}"));
        self.steps.push(Step {
            name,
            counts: None,
            error,
            took,
        });
    }

    /// Notes a suite of tests. One that ran no test has failed.
    pub fn suite(
        &mut self,
        name: &'static str,
        counts: Counts,
        result: anyhow::Result<()>,
        took: Duration,
    ) {
        let error = match result {
            Err(error) => Some(format!("{error:#}")),
            Ok(()) if counts == Counts::default() => Some("no test was run".to_string()),
            Ok(()) => None,
        };
        self.steps.push(Step {
            name,
            counts: Some(counts),
            error,
            took,
        });
    }

    /// The sum over all suites. A step that broke without a failed test of its own (a lint, a build error) counts as one failure,
    /// so that the sum never says that all is well when it is not.
    pub fn total(&self) -> Counts {
        self.steps.iter().fold(Counts::default(), |sum, step| {
            let counts = step.counts.unwrap_or_default();
            let failed = counts.failed.max(u64::from(step.error.is_some()));
            Counts {
                passed: sum.passed + counts.passed,
                failed: sum.failed + failed,
            }
        })
    }

    /// Prints one line per step, what went wrong, and the sum as the last line.
    pub fn print(&self) {
        println!();
        for step in &self.steps {
            let outcome = match step.counts {
                Some(counts) => format!("{} passed, {} failed", counts.passed, counts.failed),
                None if step.error.is_none() => "ok".to_string(),
                None => "failed".to_string(),
            };
            println!("{:14} {:>5} s  {outcome}", step.name, step.took.as_secs());
        }
        for (step, error) in self
            .steps
            .iter()
            .filter_map(|step| Some((step, step.error.as_ref()?)))
        {
            println!("{}: {error}", step.name);
        }
        let total = self.total();
        println!("{} passed, {} failed", total.passed, total.failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64) -> Counts {
        Counts { passed, failed }
    }

    #[test]
    fn sums_the_closing_lines_of_test_files() {
        let mut sum = Counts::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test sampling::ties ... FAILED",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: ok. 4 passed; 0 failed; 0 ignored; 0 filtered out; finished in 1.27s",
        ] {
            sum.add_line(line);
        }
        assert_eq!(sum, counts(17, 2));
    }

    #[test]
    fn reads_the_report_of_playwright() {
        let report = serde_json::json!({ "stats": { "expected": 5, "unexpected": 1, "flaky": 2, "skipped": 3 } });
        assert_eq!(Counts::from_playwright(&report), counts(5, 3));
        assert_eq!(
            Counts::from_playwright(&serde_json::Value::Null),
            Counts::default()
        );
    }

    #[test]
    fn a_step_that_breaks_counts_as_a_failure_once() {
        let mut report = Report::default();
        report.check("lint", Err(anyhow::anyhow!("a warning")), Duration::ZERO);
        report.check("docs", Ok(()), Duration::ZERO);
        report.suite(
            "failing",
            counts(4, 2),
            Err(anyhow::anyhow!("exit status 1")),
            Duration::ZERO,
        );
        report.suite("empty", counts(0, 0), Ok(()), Duration::ZERO);
        report.suite("good", counts(7, 0), Ok(()), Duration::ZERO);
        assert_eq!(report.total(), counts(11, 4));
    }
}

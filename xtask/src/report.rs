//! What became of the tests of all suites: how many passed, which took longest, and what failed.

use std::time::{Duration, Instant};

/// How many of the slowest tests are listed.
const SLOWEST: usize = 10;

/// How many tests of a suite passed and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
}

/// The tests of a suite that ran.
#[derive(Default)]
pub struct Tests {
    /// How many there were.
    counts: Counts,
    /// Each test that was named, and how long it took.
    timed: Vec<(String, Duration)>,
    /// When the test that runs now began.
    began: Option<Instant>,
}

impl Tests {
    /// Takes in a line of output under `cargo test` and under wasm-bindgen's test runner alike, where one test runs at a time.
    /// `running 3 tests` begins a test file, `test name ... ok` ends a test, and `test result: ok. 3 passed; 0 failed; ...`
    /// ends the file. Other lines say nothing.
    pub fn add_line(&mut self, line: &str, now: Instant) {
        if let Some((_, counts)) = line.split_once("test result: ") {
            let number_before = |word: &str| {
                let (before, _) = counts.split_once(word)?;
                before.trim_end().rsplit(' ').next()?.parse::<u64>().ok()
            };
            self.counts.passed += number_before(" passed").unwrap_or(0);
            self.counts.failed += number_before(" failed").unwrap_or(0);
        } else if line.starts_with("running ") {
            self.began = Some(now);
        } else if let Some((name, _)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
        {
            let began = self.began.replace(now).unwrap_or(now);
            self.timed.push((name.to_string(), now - began));
        }
    }

    /// Reads the JSON report of Playwright. A flaky test counts as failed.
    pub fn from_playwright(report: &serde_json::Value) -> Self {
        let count = |name: &str| report["stats"][name].as_u64().unwrap_or(0);
        let mut tests = Self {
            counts: Counts {
                passed: count("expected"),
                failed: count("unexpected") + count("flaky"),
            },
            ..Self::default()
        };
        for file in list(&report["suites"]) {
            tests.add_playwright(file);
        }
        tests
    }

    /// The tests of a file or of a group in it.
    fn add_playwright(&mut self, suite: &serde_json::Value) {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
        for spec in list(&suite["specs"]) {
            let results = list(&spec["tests"])
                .iter()
                .flat_map(|test| list(&test["results"]));
            let ms = results
                .filter_map(|result| result["duration"].as_u64())
                .sum();
            let name = format!("{}: {}", text(&spec["file"]), text(&spec["title"]));
            self.timed.push((name, Duration::from_millis(ms)));
        }
        for group in list(&suite["suites"]) {
            self.add_playwright(group);
        }
    }
}

fn list(value: &serde_json::Value) -> &[serde_json::Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// What became of one step of `cargo xtask test`.
struct Step {
    name: &'static str,
    tests: Option<Tests>,
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
            tests: None,
            error,
            took,
        });
    }

    /// Notes a suite of tests. One that ran no test has failed.
    pub fn suite(
        &mut self,
        name: &'static str,
        tests: Tests,
        result: anyhow::Result<()>,
        took: Duration,
    ) {
        let error = match result {
            Err(error) => Some(format!("{error:#}")),
            Ok(()) if tests.counts == Counts::default() => Some("no test was run".to_string()),
            Ok(()) => None,
        };
        self.steps.push(Step {
            name,
            tests: Some(tests),
            error,
            took,
        });
    }

    /// The sum over all suites. A step that broke without a failed test of its own (a lint, a build error) counts as one failure,
    /// so that the sum never says that all is well when it is not.
    pub fn total(&self) -> Counts {
        self.steps.iter().fold(Counts::default(), |sum, step| {
            let counts = step
                .tests
                .as_ref()
                .map(|tests| tests.counts)
                .unwrap_or_default();
            let failed = counts.failed.max(u64::from(step.error.is_some()));
            Counts {
                passed: sum.passed + counts.passed,
                failed: sum.failed + failed,
            }
        })
    }

    /// Prints the slowest tests, one line per step with its minutes, what went wrong, and the sum as the last line.
    pub fn print(&self) {
        println!("\nThe slowest tests:");
        for (suite, test, took) in self.slowest() {
            println!("{:>7.1} s  {suite}: {test}", took.as_secs_f64());
        }
        println!();
        for step in &self.steps {
            let outcome = match &step.tests {
                Some(tests) => format!(
                    "{} passed, {} failed",
                    tests.counts.passed, tests.counts.failed
                ),
                None if step.error.is_none() => "ok".to_string(),
                None => "failed".to_string(),
            };
            println!(
                "{:14} {:>5.1} min  {outcome}",
                step.name,
                minutes(step.took)
            );
        }
        let took = self.steps.iter().map(|step| step.took).sum();
        println!("{:14} {:>5.1} min", "in all", minutes(took));
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

    fn slowest(&self) -> Vec<(&str, &str, Duration)> {
        let mut all: Vec<_> = self
            .steps
            .iter()
            .filter_map(|step| Some((step.name, step.tests.as_ref()?)))
            .flat_map(|(suite, tests)| {
                let timed = tests.timed.iter();
                timed.map(move |(test, took)| (suite, test.as_str(), *took))
            })
            .collect();
        all.sort_by_key(|(.., took)| std::cmp::Reverse(*took));
        all.truncate(SLOWEST);
        all
    }
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64) -> Counts {
        Counts { passed, failed }
    }

    /// A suite of which only the counts are known.
    fn tests(passed: u64, failed: u64) -> Tests {
        Tests {
            counts: counts(passed, failed),
            ..Tests::default()
        }
    }

    #[test]
    fn reads_test_files_line_by_line() {
        let mut read = Tests::default();
        let begin = Instant::now();
        for (second, line) in [
            (1, "     Running tests/engine.rs"),
            (2, "running 3 tests"),
            (5, "test sampling::ties ... FAILED"),
            (6, "test a case with spaces ... ok"),
            (6, "what a test printed"),
            (
                7,
                "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 5.01s",
            ),
            (20, "running 1 test"),
            (22, "test slow ... ok"),
            (
                22,
                "test result: ok. 4 passed; 0 failed; 0 ignored; 0 filtered out; finished in 1.27s",
            ),
        ] {
            read.add_line(line, begin + Duration::from_secs(second));
        }
        assert_eq!(read.counts, counts(14, 2));
        let seconds = read
            .timed
            .iter()
            .map(|(name, took)| (name.as_str(), took.as_secs()));
        assert_eq!(
            seconds.collect::<Vec<_>>(),
            [
                ("sampling::ties", 3),
                ("a case with spaces", 1),
                ("slow", 2)
            ]
        );
    }

    #[test]
    fn reads_the_report_of_playwright() {
        let spec = |title: &str, ms: &[u64]| {
            let results: Vec<_> = ms
                .iter()
                .map(|ms| serde_json::json!({ "duration": ms }))
                .collect();
            serde_json::json!({ "title": title, "file": "a.spec.js", "tests": [{ "results": results }] })
        };
        let report = serde_json::json!({
            "stats": { "expected": 5, "unexpected": 1, "flaky": 2, "skipped": 3 },
            "suites": [{ "specs": [spec("one", &[30, 40])], "suites": [{ "specs": [spec("two", &[9])] }] }],
        });
        let read = Tests::from_playwright(&report);
        assert_eq!(read.counts, counts(5, 3));
        let ms = read
            .timed
            .iter()
            .map(|(name, took)| (name.as_str(), took.as_millis()));
        assert_eq!(
            ms.collect::<Vec<_>>(),
            [("a.spec.js: one", 70), ("a.spec.js: two", 9)]
        );
        assert_eq!(
            Tests::from_playwright(&serde_json::Value::Null).counts,
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
            tests(4, 2),
            Err(anyhow::anyhow!("exit status 1")),
            Duration::ZERO,
        );
        report.suite("empty", tests(0, 0), Ok(()), Duration::ZERO);
        report.suite("good", tests(7, 0), Ok(()), Duration::ZERO);
        assert_eq!(report.total(), counts(11, 4));
    }

    #[test]
    fn the_slowest_of_all_suites_come_first() {
        let mut report = Report::default();
        for (suite, seconds) in [("native", 1..9), ("page", 5..12)] {
            let timed = seconds
                .map(|n| (n.to_string(), Duration::from_secs(n)))
                .collect();
            let tests = Tests {
                counts: counts(1, 0),
                timed,
                began: None,
            };
            report.suite(suite, tests, Ok(()), Duration::ZERO);
        }
        let slowest = report.slowest();
        assert_eq!(slowest.len(), SLOWEST);
        assert_eq!(slowest[0], ("page", "11", Duration::from_secs(11)));
        assert_eq!(slowest[3], ("native", "8", Duration::from_secs(8)));
    }
}

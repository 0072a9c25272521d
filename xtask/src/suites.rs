//! `cargo xtask test`: every check, the cheap ones first, and the number of tests that passed and failed as the last line.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::report::{Report, Tests};
use crate::{hosts, process, root, serve, site, tools};

/// The page tests open the site below this path: a URL that is not relative fails there.
const BASE: &str = "/course/demo/";

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Options {
    /// Run one group only
    #[arg(long, value_enum)]
    only: Option<Group>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Group {
    /// Format, lints, docs and tests on this machine's Vulkan adapter
    Native,
    /// Lints and tests of the library inside a browser
    Wasm,
    /// Tests of the page, driven as a reader would
    Page,
    /// Those tests of the page that load from servers which do what hosts really do
    Hosts,
}

/// Runs the checks. All of them run even after a failure; an error is returned if anything failed.
pub fn run(options: &Options) -> Result<()> {
    let wanted = |group| match options.only {
        Some(only) => only == group,
        // They are among the tests of the page.
        None => group != Group::Hosts,
    };
    // What is missing is found and installed before anything slow starts.
    tools::wasm_target()?;
    if wanted(Group::Native) {
        tools::vulkan()?;
    }
    if wanted(Group::Wasm) {
        tools::driver(&tools::browser()?)?;
    }
    if wanted(Group::Page) || wanted(Group::Hosts) {
        tools::browser()?;
        tools::page_packages(&root().join("tests/page"))?;
    }
    let mut report = Report::default();
    if wanted(Group::Native) {
        native(&mut report);
    }
    if wanted(Group::Wasm) {
        wasm(&mut report);
    }
    if wanted(Group::Page) {
        suite(&mut report, "page tests", |tests| page(tests, &[]));
    }
    if wanted(Group::Hosts) {
        suite(&mut report, "host tests", |tests| {
            page(tests, &["hosts.spec.js", "models.spec.js"])
        });
    }
    report.print();
    if report.total().failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// The native lints see the library with its test hooks, the ones for wasm32 without.
fn native(report: &mut Report) {
    check(
        report,
        "format",
        &mut process::cargo(&["fmt", "--all", "--check"]),
    );
    let mut clippy = process::cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        "gpt2-webgpu/test-hooks",
    ]);
    check(report, "clippy", clippy.args(["--", "--deny", "warnings"]));
    let mut docs = process::cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--features",
        "gpt2-webgpu/test-hooks",
    ]);
    check(report, "docs", docs.env("RUSTDOCFLAGS", "--deny warnings"));
    suite(report, "native tests", |tests| {
        // The cases that take time share a device and wait for each other: one at a time, and each has a time of its own.
        let mut command = process::cargo(&["test", "--no-fail-fast", "--features", "test-hooks"]);
        run_tests(command.args(["--", "--test-threads", "1"]), tests)
    });
    // Apart from the others, so that what cargo has built to run this program is used again.
    suite(report, "xtask tests", |tests| {
        let mut command = process::cargo(&["test", "--package", "xtask"]);
        run_tests(command.args(["--", "--test-threads", "1"]), tests)
    });
}

/// The tests are those that run natively as well, the ones with test hooks among them.
fn wasm(report: &mut Report) {
    let mut clippy =
        process::cargo(&["clippy", "--target", tools::WASM_TARGET, "--lib", "--tests"]);
    check(
        report,
        "clippy (wasm)",
        clippy.args(["--", "--deny", "warnings"]),
    );
    suite(report, "wasm tests", |tests| {
        let tools = tools::browser_tools()?;
        let mut command = Command::new(tools.join("wasm-pack"));
        command
            .args(["test", "--headless", "--chrome"])
            .args(["--", "--features", "test-hooks"])
            .env("PATH", process::search_path(Some(&tools)))
            .current_dir(root());
        run_tests(&mut command, tests)
    });
}

/// The site with test hooks, in the profile that is shipped, in a folder of its own; `specs` are the files to run, all if none is named.
fn page(tests: &mut Tests, specs: &[&str]) -> Result<()> {
    let out = root().join("target/test-site");
    site::build(&site::Options {
        features: vec!["test-hooks".to_string()],
        out: Some(out.clone()),
    })?;
    let url = serve::in_background(out, BASE)?;
    let folder = root().join("tests/page");
    let report = folder.join("output/report.json");
    // A report of an earlier run must not be taken for this one's.
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut command = Command::new("node");
    command
        .args(["node_modules/@playwright/test/cli.js", "test"])
        .args(specs)
        .current_dir(&folder);
    command
        .env("SITE_URL", url)
        .env("HOSTS_URL", hosts::in_background(hosts::models(None))?)
        .env("CHROMIUM", tools::browser()?);
    let result = process::run(&mut command);
    *tests = read_report(&report)?;
    result.with_context(|| {
        format!(
            "what the failed tests left (a screenshot, the console, the requests to the imitated hosts) lies in {}",
            folder.join("output/results").display()
        )
    })
}

fn read_report(file: &Path) -> Result<Tests> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("the page tests left no report in {}", file.display()))?;
    let report: serde_json::Value = serde_json::from_str(&text)?;
    if !report["stats"].is_object() {
        bail!("{} is not a report of Playwright", file.display());
    }
    Ok(Tests::from_playwright(&report))
}

fn check(report: &mut Report, name: &'static str, command: &mut Command) {
    let start = Instant::now();
    let result = process::run(command);
    report.check(name, result, start.elapsed());
}

fn suite(report: &mut Report, name: &'static str, run: impl FnOnce(&mut Tests) -> Result<()>) {
    let start = Instant::now();
    let mut tests = Tests::default();
    let result = run(&mut tests);
    report.suite(name, tests, result, start.elapsed());
}

/// Runs tests that tell their outcome line by line.
fn run_tests(command: &mut Command, tests: &mut Tests) -> Result<()> {
    process::run_reading(command, |line| tests.add_line(line, Instant::now()))
}

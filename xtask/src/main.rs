//! The commands of this repository, run as `cargo xtask COMMAND`: the one place that knows tools and how to get them.

mod hosts;
mod process;
mod report;
mod serve;
mod site;
mod suites;
mod tools;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Build, serve and test the page.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the whole static site (into dist/)
    Build(site::Options),
    /// Build the site and serve it on this machine
    Serve(serve::Options),
    /// Imitate the hosts of models, for the page tests
    Hosts(hosts::Options),
    /// Run every check: format, lints, docs, native tests, browser tests, page tests
    Test(suites::Options),
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Build(options) => site::build(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Hosts(options) => hosts::run(&options),
        Command::Test(options) => suites::run(&options),
    }
}

/// The folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}

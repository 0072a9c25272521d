//! Running other programs.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// `cargo`, the one that runs this program, started in the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::root());
    command
}

/// Shows what is run and runs it; an error says which command failed and how.
pub fn run(command: &mut Command) -> Result<()> {
    show(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", name(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", line(command));
    }
    Ok(())
}

/// As [`run`], but hands every line of the standard output to `each` while passing it on at once.
pub fn run_reading(command: &mut Command, mut each: impl FnMut(&str)) -> Result<()> {
    show(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", name(command)))?;
    let output = BufReader::new(child.stdout.take().expect("the output is piped"));
    let mut terminal = std::io::stdout();
    for bytes in output.split(b'\n') {
        let bytes = bytes?;
        terminal.write_all(&bytes)?;
        terminal.write_all(b"\n")?;
        terminal.flush()?;
        each(&String::from_utf8_lossy(&bytes));
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} failed ({status})", line(command));
    }
    Ok(())
}

/// Runs a command of cargo and returns the files that it says it has built, the programs and libraries.
pub fn built(cargo: &mut Command) -> Result<Vec<PathBuf>> {
    cargo.args(["--message-format", "json-render-diagnostics"]);
    show(cargo);
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", name(cargo)))?;
    if !output.status.success() {
        bail!("{} failed ({})", line(cargo), output.status);
    }
    let files = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["filenames"].as_array().cloned())
        .flatten()
        .filter_map(|file| Some(PathBuf::from(file.as_str()?)))
        .collect();
    Ok(files)
}

/// What `program arguments...` prints, trimmed; `None` if it cannot be started or fails.
pub fn output(program: impl AsRef<Path>, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program.as_ref())
        .args(arguments)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    output.status.success().then_some(text)
}

/// Where a program lies on the search path.
pub fn find(program: &str) -> Option<PathBuf> {
    let file = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    std::env::split_paths(&search_path(None))
        .map(|folder| folder.join(&file))
        .find(|path| path.is_file())
}

/// `PATH` with cargo's own program folder in front, so that what cargo installed is found even where a shell does not look, and
/// before it the folder `first`.
pub fn search_path(first: Option<&Path>) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let bin = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
        .map(|home| home.join("bin"));
    let folders = first.map(Path::to_path_buf).into_iter().chain(bin);
    std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap_or(path)
}

fn show(command: &Command) {
    println!("\n$ {}", line(command));
}

fn name(command: &Command) -> String {
    Path::new(command.get_program())
        .file_stem()
        .unwrap_or(command.get_program())
        .to_string_lossy()
        .into_owned()
}

fn line(command: &Command) -> String {
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(name(command))
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

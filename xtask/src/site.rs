//! `cargo xtask build`: the static site, complete in one folder, with relative URLs only.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::{Compression, write::GzEncoder};
use wasm_bindgen_cli_support::Bindgen;

use crate::{process, root, tools};

/// The folder of the site that the generated bindings go to.
const BINDINGS: &str = "www/pkg";
/// Name of the generated module.
const MODULE: &str = "gpt2_webgpu";

/// Options of `cargo xtask build`.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Features of the crate to switch on, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub features: Vec<String>,
    /// Folder to write to [default: dist]
    #[arg(long)]
    pub out: Option<PathBuf>,
}

impl Options {
    /// The folder that the site goes to.
    pub fn folder(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| root().join("dist"))
    }
}

/// Builds the site and prints what it weighs.
pub fn build(options: &Options) -> Result<()> {
    tools::wasm_target()?;
    let wasm = compile(&options.features)?;
    let out = options.folder();
    clear(&out)?;
    bind(&wasm, &out.join(BINDINGS))?;
    let root = root();
    for file in ["index.html", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root.join(file), out.join(file))
            .with_context(|| format!("cannot copy {file} into {}", out.display()))?;
    }
    // The page links to the Rust files and shaders that do what it shows.
    for folder in ["www", "src", "shaders"] {
        copy_folder(&root.join(folder), &out.join(folder))?;
    }
    compress_models(&out.join("www/models"))?;
    weigh(&out)
}

/// Compiles the library for the browser and returns the path of the .wasm file, as cargo names it.
fn compile(features: &[String]) -> Result<PathBuf> {
    let mut command = process::cargo(&[
        "build",
        "--lib",
        "--target",
        tools::WASM_TARGET,
        "--profile",
        "web",
    ]);
    if !features.is_empty() {
        command.arg("--features").arg(features.join(","));
    }
    process::built(&mut command)?
        .into_iter()
        .rfind(|file| {
            file.file_name()
                .is_some_and(|name| name == format!("{MODULE}.wasm").as_str())
        })
        .context("cargo named no .wasm file among what it built")
}

/// Empties the folder, but only one that is new or that an earlier build left.
fn clear(out: &Path) -> Result<()> {
    let used = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if used && !out.join(BINDINGS).is_dir() {
        bail!(
            "{} holds files that are not from an earlier build; empty it first or name another folder with --out",
            out.display()
        );
    }
    if used {
        fs::remove_dir_all(out).with_context(|| format!("cannot empty {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))
}

/// Writes the bindings. The library that does so is pinned to the version of `wasm-bindgen` in the lock file, since the two must match.
fn bind(wasm: &Path, out: &Path) -> Result<()> {
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(wasm)
        .out_name(MODULE)
        .typescript(false)
        .remove_producers_section(true);
    bindgen.web(true)?;
    bindgen
        .generate(out)
        .context("cannot generate the bindings")
}

/// Copies all that lies in `from`, but for bindings that someone generated there.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path() == root().join(BINDINGS) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Puts a gzip copy beside the large files of each bundled model, for hosts that do not compress what they send.
fn compress_models(models: &Path) -> Result<()> {
    let Ok(folders) = fs::read_dir(models) else {
        return Ok(());
    };
    for folder in folders {
        let folder = folder?.path();
        for name in ["model.safetensors", "tokenizer.json"] {
            let source = folder.join(name);
            if source.is_file() {
                let target = File::create(folder.join(format!("{name}.gz")))?;
                compress(&source, target)?;
            }
        }
    }
    Ok(())
}

fn compress<W: io::Write>(source: &Path, target: W) -> Result<W> {
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut File::open(source)?, &mut encoder)?;
    Ok(encoder.finish()?)
}

/// Prints the size of every file, and of the program as a host that compresses would send it.
fn weigh(out: &Path) -> Result<()> {
    let mut files = Vec::new();
    list(out, &mut files)?;
    files.sort();
    println!("\n{}", out.display());
    for (file, bytes) in &files {
        println!(
            "{:>12}  {}",
            group(*bytes),
            file.strip_prefix(out)?.display()
        );
    }
    let wasm = out.join(BINDINGS).join(format!("{MODULE}_bg.wasm"));
    let zipped = compress(&wasm, Vec::new())?.len() as u64;
    let total = files.iter().map(|(_, bytes)| bytes).sum();
    println!(
        "{:>12}  bytes in all; the program is {} bytes when gzipped",
        group(total),
        group(zipped)
    );
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push((entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(())
}

/// A number with a comma after every three digits.
fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_digits() {
        assert_eq!(group(0), "0");
        assert_eq!(group(999), "999");
        assert_eq!(group(1000), "1,000");
        assert_eq!(group(1234567), "1,234,567");
    }

    #[test]
    fn a_folder_of_someone_else_is_not_emptied() {
        let folder = std::env::temp_dir().join(format!("gpt2-webgpu-clear-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("thesis.txt"), "years of work").unwrap();
        assert!(clear(&folder).is_err());
        assert!(folder.join("thesis.txt").is_file());
        fs::create_dir_all(folder.join(BINDINGS)).unwrap();
        clear(&folder).unwrap();
        assert!(!folder.join("thesis.txt").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}

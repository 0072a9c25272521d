//! The programs that the commands need: where they are, and how they get there.
//!
//! On Debian and Ubuntu what is missing is installed; elsewhere the error names each missing program and how to get it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{process, root};

/// The target that the browser runs.
pub const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Adds the wasm32 target to the toolchain where it is missing.
pub fn wasm_target() -> Result<()> {
    let sysroot = process::output("rustc", &["--print", "sysroot"])
        .context("rustc is not on the search path")?;
    if Path::new(&sysroot)
        .join("lib/rustlib")
        .join(WASM_TARGET)
        .is_dir()
    {
        return Ok(());
    }
    if process::find("rustup").is_none() {
        bail!(
            "the Rust toolchain in {sysroot} lacks the target {WASM_TARGET}, and there is no rustup to add it: \
             install rustup from https://rustup.rs, or the package of your system that holds this target"
        );
    }
    process::run(
        Command::new("rustup")
            .args(["target", "add", WASM_TARGET])
            .current_dir(root()),
    )
}

/// A Vulkan driver for the native tests: any real one, else Mesa's software adapter. Only Linux lacks one at times.
pub fn vulkan() -> Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let folders = [
        "/usr/share/vulkan/icd.d",
        "/usr/local/share/vulkan/icd.d",
        "/etc/vulkan/icd.d",
    ];
    let driver = || {
        std::env::var_os("VK_DRIVER_FILES").is_some()
            || folders
                .iter()
                .any(|folder| fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some()))
    };
    let loader = || {
        process::output("/sbin/ldconfig", &["-p"])
            .is_none_or(|list| list.contains("libvulkan.so.1"))
    };
    if driver() && loader() {
        return Ok(());
    }
    install(
        &["mesa-vulkan-drivers", "libvulkan1"],
        "a Vulkan driver (Mesa's lavapipe will do) and the Vulkan loader",
    )
}

/// A browser of the Chromium family.
pub fn browser() -> Result<PathBuf> {
    let names = [
        "chromium",
        "google-chrome",
        "google-chrome-stable",
        "chromium-browser",
    ];
    let applications = [
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe",
    ];
    let installed = || {
        let on_path = names.iter().filter_map(|name| process::find(name));
        on_path
            .chain(applications.map(PathBuf::from))
            .find(|path| path.is_file())
    };
    if installed().is_none() {
        install(
            &[debian_or_ubuntu("chromium", "chromium-browser")],
            "Chromium or Google Chrome",
        )?;
    }
    installed().context("no Chromium is on the search path, even after installing it")
}

/// The browser and the ChromeDriver for the tests in wasm. Two that do not belong together fail with an error that names no cause,
/// so their versions are compared first.
pub fn driver(browser: &Path) -> Result<()> {
    if process::find("chromedriver").is_none() {
        let package = debian_or_ubuntu("chromium-driver", "chromium-chromedriver");
        install(
            &[package],
            "ChromeDriver of your browser's version (https://googlechromelabs.github.io/chrome-for-testing)",
        )?;
    }
    let driver = process::find("chromedriver")
        .context("no ChromeDriver is on the search path, even after installing it")?;
    let driver_version =
        process::output(&driver, &["--version"]).context("chromedriver --version failed")?;
    // Chrome for Windows opens a window instead of printing its version.
    let Some(browser_version) = (!cfg!(windows))
        .then(|| process::output(browser, &["--version"]))
        .flatten()
    else {
        return Ok(());
    };
    if major(&browser_version) != major(&driver_version) {
        bail!(
            "the browser and its driver do not belong together: {} is {browser_version}, {} is {driver_version}; \
             install the ChromeDriver of the browser's version",
            browser.display(),
            driver.display()
        );
    }
    println!("{browser_version}; {driver_version}");
    Ok(())
}

/// The first number in what a browser or driver prints as its version.
fn major(version: &str) -> Option<u32> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .find_map(|digits| digits.parse().ok())
}

/// wasm-pack and the programs that it starts, in the versions of the lock file. Returns the folder that holds them.
pub fn browser_tools() -> Result<PathBuf> {
    let built = process::built(&mut process::cargo(&[
        "build",
        "--package",
        "browser-tools",
    ]))?;
    let folder = built
        .iter()
        .find(|file| file.file_stem().is_some_and(|name| name == "wasm-pack"))
        .and_then(|file| file.parent());
    Ok(folder
        .context("cargo named no wasm-pack among what it built")?
        .to_path_buf())
}

/// Node and npm for the page tests, and the packages that their lock file names.
pub fn page_packages(folder: &Path) -> Result<()> {
    if process::find("node").is_none() || process::find(NPM).is_none() {
        install(&["nodejs", "npm"], "Node.js 20 or newer with npm")?;
    }
    let changed = |file: &str| {
        fs::metadata(folder.join(file))
            .and_then(|data| data.modified())
            .ok()
    };
    let installed = changed("node_modules/.package-lock.json");
    if installed.is_some() && installed >= changed("package-lock.json") {
        return Ok(());
    }
    let mut command = Command::new(NPM);
    // The system's browser is used.
    command
        .arg("ci")
        .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
        .current_dir(folder);
    process::run(&mut command)
}

const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };

/// Installs packages on Debian and Ubuntu; elsewhere says that `what` is needed.
fn install(packages: &[&str], what: &str) -> Result<()> {
    let missing = || format!("missing: {what}. Install it and run this command again");
    if process::find("apt-get").is_none() {
        bail!("{}", missing());
    }
    let root = process::output("id", &["-u"]).is_some_and(|id| id == "0");
    if !root && process::find("sudo").is_none() {
        bail!(
            "{} (as root: apt-get install {})",
            missing(),
            packages.join(" ")
        );
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new(if root { "apt-get" } else { "sudo" });
        if !root {
            command.arg("apt-get");
        }
        process::run(
            command
                .args(arguments)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    };
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat())
        .with_context(missing)
}

/// The name of a package that differs between the two.
fn debian_or_ubuntu(debian: &'static str, ubuntu: &'static str) -> &'static str {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if release.lines().any(|line| line == "ID=ubuntu") {
        ubuntu
    } else {
        debian
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_browser_and_driver() {
        assert_eq!(
            major("Chromium 156.0.8078.114 built on Debian GNU/Linux 12 (bookworm)"),
            Some(156)
        );
        assert_eq!(
            major("ChromeDriver 155.0.1 (ea19f9737303a76e07b53c6a1eec43355aca3b1d-refs)"),
            Some(155)
        );
        assert_eq!(major(""), None);
    }
}

//! `cargo xtask serve`: the built site on this machine's own address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::{HeaderValue, header};
use tokio::net::TcpListener;
use tower_http::services::ServeDir;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::{process, site};

/// Port tried first.
const PORT: u16 = 8080;
/// How many ports after it are tried when it is taken.
const TRIES: u16 = 100;

/// Options of `cargo xtask serve`.
#[derive(clap::Args)]
pub struct Options {
    /// Port to listen on; the next free one is taken if it is in use
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Open the page in the default browser
    #[arg(long)]
    open: bool,
}

/// Builds the site, serves it and returns only on an error.
pub fn run(options: &Options) -> Result<()> {
    let built = site::Options::default();
    site::build(&built)?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = listen(options.port).await?;
        let url = format!("http://{}/", listener.local_addr()?);
        println!(
            "\nServing {} at\n\n    {url}\n\nStop it with Ctrl-C.",
            built.folder().display()
        );
        if options.open {
            open(&url)?;
        }
        serve(listener, &built.folder(), "/").await
    })
}

/// Serves `folder` under the path `base` (which begins and ends with a slash) from a thread of its own, as long as the program runs.
/// Returns the URL of the base.
pub fn in_background(folder: PathBuf, base: &'static str) -> Result<String> {
    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(listen(0))?;
    let url = format!("http://{}{base}", listener.local_addr()?);
    std::thread::spawn(move || runtime.block_on(serve(listener, &folder, base)));
    Ok(url)
}

/// Listens on `port`, or the first free one after it; 0 is any free port.
async fn listen(port: u16) -> Result<TcpListener> {
    let mut last = Ok(());
    for port in port..=port.saturating_add(TRIES) {
        match TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Err(error),
        }
    }
    last.with_context(|| {
        format!(
            "no port from {port} to {} can be listened on",
            port.saturating_add(TRIES)
        )
    })?;
    unreachable!("at least one port was tried")
}

/// Files with their MIME types and byte ranges. Nothing is cached, so that a reload always shows the last build.
async fn serve(listener: TcpListener, folder: &Path, base: &str) -> Result<()> {
    let files = ServeDir::new(folder);
    let router = match base {
        "/" => Router::new().fallback_service(files),
        _ => Router::new().nest_service(base, files),
    };
    let no_store = HeaderValue::from_static("no-store");
    let router = router.layer(SetResponseHeaderLayer::overriding(
        header::CACHE_CONTROL,
        no_store,
    ));
    Ok(axum::serve(listener, router).await?)
}

fn open(url: &str) -> Result<()> {
    let mut command = if cfg!(target_os = "windows") {
        let mut command = Command::new("cmd");
        command.args(["/C", "start"]);
        command
    } else {
        Command::new(if cfg!(target_os = "macos") {
            "open"
        } else {
            "xdg-open"
        })
    };
    process::run(command.arg(url))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// The status line, the headers in lower case, and the body of a request for `path`.
    fn get(url: &str, path: &str, header: &str) -> (String, String, Vec<u8>) {
        let address = url.trim_start_matches("http://").split('/').next().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\n{header}Connection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|part| part == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let (status, headers) = head.split_once("\r\n").unwrap();
        (
            status.to_string(),
            headers.to_string(),
            answer[end + 4..].to_vec(),
        )
    }

    fn site(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("gpt2-webgpu-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (file, bytes) in [
            ("index.html", &b"<!doctype html>"[..]),
            ("a.js", b"export {};"),
            ("a.css", b"a {}"),
            ("a.json", b"{}"),
            ("a.wasm", b"\0asm"),
            ("a.safetensors", b"0123456789"),
            ("a.safetensors.gz", b"\x1f\x8b"),
        ] {
            std::fs::write(folder.join(file), bytes).unwrap();
        }
        folder
    }

    #[test]
    fn types_ranges_and_no_caching() {
        let folder = site("types");
        let url = in_background(folder.clone(), "/course/demo/").unwrap();
        for (file, mime) in [
            ("", "text/html"),
            ("a.js", "text/javascript"),
            ("a.css", "text/css"),
            ("a.json", "application/json"),
            ("a.wasm", "application/wasm"),
            ("a.safetensors", "application/octet-stream"),
            ("a.safetensors.gz", "application/gzip"),
        ] {
            let (status, headers, _) = get(
                &url,
                &format!("/course/demo/{file}"),
                "Accept-Encoding: gzip\r\n",
            );
            assert!(status.contains("200"), "{file}: {status}");
            assert!(
                headers.contains(&format!("content-type: {mime}")),
                "{file}: {headers}"
            );
            assert!(
                headers.contains("cache-control: no-store"),
                "{file}: {headers}"
            );
            assert!(!headers.contains("content-encoding"), "{file}: {headers}");
        }
        let (status, headers, body) =
            get(&url, "/course/demo/a.safetensors", "Range: bytes=2-4\r\n");
        assert!(status.contains("206"), "{status}");
        assert!(headers.contains("content-range: bytes 2-4/10"), "{headers}");
        assert_eq!(body, b"234");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn nothing_outside_the_folder_is_served() {
        let folder = site("outside");
        let url = in_background(folder.clone(), "/demo/").unwrap();
        for path in [
            "/index.html",
            "/demo/../a.js",
            "/demo/%2e%2e/Cargo.toml",
            "/demo/missing.js",
        ] {
            let (status, ..) = get(&url, path, "");
            assert!(status.contains("404"), "{path}: {status}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_taken_port_gives_the_next_free_one() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let first = listen(0).await.unwrap();
            let taken = first.local_addr().unwrap().port();
            let second = listen(taken).await.unwrap();
            assert!(second.local_addr().unwrap().port() > taken);
        });
    }
}

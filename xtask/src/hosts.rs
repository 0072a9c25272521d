//! A server that imitates what hosts of models really do, for the tests of loading: `http://.../BEHAVIOUR/NAME/ID/resolve/main/FILE`.
//!
//! NAME is anything; what a behaviour remembers (such as how often it was asked) it remembers for one name. `/log/NAME` gives
//! the requests that were made with it: `[{method, path, range, status, bytes}]`.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

/// Size of the file that `synthetic/blob` has: a little more than two parts of the page's download cache.
const BLOB_BYTES: usize = (20 << 20) + 12_345;
/// Bytes written at once, and by a slow host each [`DRIP`].
const PIECE: usize = 256 << 10;
const DRIP: Duration = Duration::from_millis(40);

/// Starts the server on two ports, which are two origins to a browser. Returns the URL of the first.
pub fn in_background(models: Vec<(&'static str, PathBuf)>) -> Result<String> {
    let listeners = [listener()?, listener()?];
    let origins = [origin(&listeners[0])?, origin(&listeners[1])?];
    let host = Arc::new(Host {
        models,
        other: origins[1].clone(),
        seen: Mutex::default(),
        log: Mutex::default(),
    });
    for listener in listeners {
        let host = host.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let host = host.clone();
                // A page that goes away in the middle is no fault.
                thread::spawn(move || host.answer(stream).ok());
            }
        });
    }
    let [first, _] = origins;
    Ok(first)
}

fn listener() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

fn origin(listener: &TcpListener) -> io::Result<String> {
    Ok(format!("http://{}", listener.local_addr()?))
}

struct Host {
    /// Owner and folder: the id `OWNER/MODEL` is the folder MODEL in it.
    models: Vec<(&'static str, PathBuf)>,
    /// The second origin.
    other: String,
    /// How often a path was asked for.
    seen: Mutex<HashMap<String, usize>>,
    log: Mutex<HashMap<String, Vec<Value>>>,
}

/// One answer, sent as it is described.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Break the connection after this many bytes of the body.
    cut: Option<usize>,
    chunked: bool,
    pace: Duration,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer {
            status,
            headers: vec![("Content-Type", "application/octet-stream".into())],
            body: body.into(),
            cut: None,
            chunked: false,
            pace: Duration::ZERO,
        }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }
}

impl Host {
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let Some((method, path, range)) = read_request(&stream)? else {
            return Ok(());
        };
        let mut parts = path.trim_start_matches('/').splitn(3, '/');
        let behaviour = parts.next().unwrap_or_default();
        let name = parts.next().unwrap_or_default();
        let file = parts.next().unwrap_or_default();
        let mut answer = if behaviour == "log" {
            let log = lock(&self.log).get(name).cloned().unwrap_or_default();
            Answer::new(200, json!(log).to_string())
        } else if method == "OPTIONS" {
            Answer::new(204, "")
        } else {
            self.behave(behaviour, name, file, range)
        };
        if behaviour != "no-cors" {
            answer = answer
                .with("Access-Control-Allow-Origin", "*")
                .with("Access-Control-Allow-Headers", "Range")
                .with(
                    "Access-Control-Expose-Headers",
                    "ETag, Content-Range, Retry-After",
                );
        }
        if method == "HEAD" {
            answer.body.clear();
        }
        let sent = send(&mut stream, &answer);
        if behaviour != "log" {
            lock(&self.log).entry(name.into()).or_default().push(json!({
                "method": method, "path": file, "range": range.map(|(from, to)| json!([from, to])), "status": answer.status,
                "bytes": *sent.as_ref().unwrap_or(&0),
            }));
        }
        sent.map(|_| ())
    }

    fn behave(
        &self,
        behaviour: &str,
        name: &str,
        file: &str,
        range: Option<(usize, Option<usize>)>,
    ) -> Answer {
        let times = {
            let mut seen = lock(&self.seen);
            let times = seen
                .entry(format!("{behaviour}/{name}/{file}"))
                .or_default();
            *times += 1;
            *times
        };
        let page = "<!DOCTYPE html><title>Not the file</title><p>Sign in or try again.";
        match (behaviour, times) {
            ("missing", _) => return Answer::new(404, page),
            ("gated", _) => return Answer::new(401, "Access to this model is restricted."),
            ("forbidden", _) => return Answer::new(403, "Forbidden"),
            ("busy", ..=2) => {
                return Answer::new(429, "Too many requests").with("Retry-After", "1");
            }
            ("closed", _) => {
                return Answer::new(429, "Too many requests").with("Retry-After", "3600");
            }
            ("faulty", ..=2) => return Answer::new(503, "Try again"),
            ("down", _) => return Answer::new(500, "Out of order"),
            ("page", _) => return Answer::new(200, page).with("Content-Type", "text/html"),
            ("lfs", _) => {
                return Answer::new(
                    200,
                    "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
                );
            }
            ("redirect", _) => {
                return Answer::new(302, "")
                    .with("Location", format!("{}/plain/{name}/{file}", self.other));
            }
            _ => {}
        }
        let Some(mut bytes) = self.read(file) else {
            return Answer::new(404, "No such file");
        };
        let changed = behaviour == "changing" && times > 1;
        if changed {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        let whole = bytes.len();
        let ranged = !matches!(behaviour, "no-range" | "break-no-range" | "gzip");
        let mut answer = match range.filter(|_| ranged) {
            Some((from, _)) if from >= whole => Answer::new(416, ""),
            Some((from, to)) => {
                let to = to.map_or(whole, |to| (to + 1).min(whole));
                let content = format!("bytes {from}-{}/{whole}", to - 1);
                let answer = Answer::new(206, &bytes[from..to]);
                match behaviour {
                    "no-content-range" => answer,
                    _ => answer.with("Content-Range", content),
                }
            }
            None => Answer::new(200, bytes),
        };
        answer = answer.with("ETag", if changed { "\"2\"" } else { "\"1\"" });
        let half = answer.body.len() / 2;
        match (behaviour, times) {
            ("no-length", _) => answer.chunked = true,
            ("gzip", _) => {
                let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
                // Writing to memory does not fail.
                let _ = packed.write_all(&answer.body);
                answer.body = packed.finish().unwrap_or_default();
                answer = answer.with("Content-Encoding", "gzip");
            }
            ("mime", _) => answer = answer.with("Content-Type", "text/html"),
            ("drip", _) => answer.pace = DRIP,
            // Sends half and breaks; asked again, half of the rest and so on.
            ("break", ..=3) | ("break-no-range" | "changing", 1) => answer.cut = Some(half),
            ("cut", _) => answer.cut = Some(0),
            ("cut-half", 1) => answer.cut = Some(half),
            ("cut-half", ..=4) => answer.cut = Some(0),
            _ => {}
        }
        answer
    }

    /// The bytes of `OWNER/MODEL/resolve/main/FILE`.
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let path = path.split('?').next()?;
        let parts: Vec<&str> = path.split('/').collect();
        let [owner, model, "resolve", _, file] = parts[..] else {
            return None;
        };
        if (owner, model) == ("synthetic", "blob") {
            return (file == "model.safetensors").then(blob);
        }
        if parts.contains(&"..") {
            return None;
        }
        let (_, folder) = self.models.iter().find(|(name, _)| *name == owner)?;
        std::fs::read(Path::new(folder).join(model).join(file)).ok()
    }
}

/// Bytes that repeat nowhere near a part's length.
fn blob() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..BLOB_BYTES).map(|_| next()).collect()
}

/// Method, path and range; nothing if the connection is closed at once.
type Request = Option<(String, String, Option<(usize, Option<usize>)>)>;

fn read_request(stream: &TcpStream) -> io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let Some(first) = lines.next().transpose()? else {
        return Ok(None);
    };
    let mut range = None;
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((_, value)) = line
            .split_once(':')
            .filter(|(name, _)| name.eq_ignore_ascii_case("range"))
        {
            range = value
                .trim()
                .strip_prefix("bytes=")
                .and_then(|range| range.split_once('-'))
                .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok())));
        }
    }
    let mut words = first.split(' ').map(str::to_owned);
    Ok(words
        .next()
        .zip(words.next())
        .map(|(method, path)| (method, path, range)))
}

/// Writes the answer; returns how many bytes of its body were sent.
fn send(stream: &mut TcpStream, answer: &Answer) -> io::Result<usize> {
    let mut head = format!(
        "HTTP/1.1 {} Imitated\r\nConnection: close\r\nCache-Control: no-store\r\n",
        answer.status
    );
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &match answer.chunked {
        true => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
        false => format!("Content-Length: {}\r\n\r\n", answer.body.len()),
    };
    stream.write_all(head.as_bytes())?;
    let end = answer.cut.unwrap_or(answer.body.len());
    let mut sent = 0;
    for piece in answer.body[..end].chunks(PIECE) {
        if answer.chunked {
            write!(stream, "{:x}\r\n", piece.len())?;
        }
        stream.write_all(piece)?;
        if answer.chunked {
            stream.write_all(b"\r\n")?;
        }
        sent += piece.len();
        thread::sleep(answer.pace);
    }
    if answer.chunked {
        stream.write_all(b"0\r\n\r\n")?;
    }
    stream.flush()?;
    Ok(sent)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Options of `cargo xtask hosts`.
#[derive(clap::Args)]
pub struct Options {
    /// A folder of models more, served as `made/MODEL`
    #[arg(long)]
    made: Option<PathBuf>,
}

/// Serves until it is stopped.
pub fn run(options: &Options) -> Result<()> {
    println!("{}", in_background(models(options.made.clone()))?);
    loop {
        thread::park();
    }
}

/// The models that the tests load: `fixtures/MODEL`, and `made/MODEL` from a folder of generated ones.
pub fn models(made: Option<PathBuf>) -> Vec<(&'static str, PathBuf)> {
    let mut models = vec![("fixtures", crate::root().join("tests/fixtures/models"))];
    models.extend(made.map(|folder| ("made", folder)));
    models
}

//! A server that imitates what hosts of models really do, for the tests of loading: `http://.../BEHAVIOUR/NAME/ID/resolve/main/FILE`.
//!
//! NAME is anything; what a behaviour remembers (such as how often it was asked) it remembers for one name. `/log/NAME` gives
//! the requests that were made with it, in the order in which they came: `[{name, method, path, range, status, bytes}]`, and `/log`
//! those of all names. A request is listed before the first byte of its answer leaves; `bytes` are those of the body so far.

mod http;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor, SeekFrom};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use anyhow::Result;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use http::{Answer, Range, Source, Then, read_request, send};

/// Size of the file that `synthetic/blob` has: a little more than two parts of the page's download cache.
const BLOB_BYTES: usize = (20 << 20) + 12_345;
/// Bytes that repeat nowhere near a part's length.
static BLOB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..BLOB_BYTES).map(|_| next()).collect()
});

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
    log: Mutex<Vec<Row>>,
}

/// A request in the log.
struct Row {
    name: String,
    about: Value,
    /// Bytes of the body of its answer that were sent so far.
    bytes: Arc<AtomicU64>,
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
            Answer::new(200, json!(self.logged(name)).to_string())
        } else if method == "OPTIONS" {
            Answer::new(204, "")
        } else {
            self.behave(behaviour, name, file, range)?
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
            (answer.bytes, answer.cut) = (0, None);
        }
        let sent = Arc::new(AtomicU64::new(0));
        if behaviour != "log" {
            let range = range.map(|(from, to)| json!([from, to]));
            lock(&self.log).push(Row {
                name: name.into(),
                about: json!({ "name": name, "method": method, "path": file, "range": range, "status": answer.status }),
                bytes: sent.clone(),
            });
        }
        send(&mut stream, answer, &sent)
    }

    /// The requests that were made with a name, or all of them if it is empty.
    fn logged(&self, name: &str) -> Vec<Value> {
        let wanted = |row: &&Row| name.is_empty() || row.name == name;
        let with_bytes = |row: &Row| {
            let mut about = row.about.clone();
            about["bytes"] = row.bytes.load(Ordering::SeqCst).into();
            about
        };
        let log = lock(&self.log);
        log.iter().filter(wanted).map(with_bytes).collect()
    }

    fn behave(
        &self,
        behaviour: &str,
        name: &str,
        file: &str,
        range: Option<Range>,
    ) -> io::Result<Answer> {
        let times = {
            let mut seen = lock(&self.seen);
            let times = seen
                .entry(format!("{behaviour}/{name}/{file}"))
                .or_default();
            *times += 1;
            *times
        };
        let page = "<!DOCTYPE html><title>Not the file</title><p>Sign in or try again.";
        let instead = match (behaviour, times) {
            ("missing", _) => Some(Answer::new(404, page)),
            ("gated", _) => Some(Answer::new(401, "Access to this model is restricted.")),
            ("forbidden", _) => Some(Answer::new(403, "Forbidden")),
            ("busy", ..=2) => Some(Answer::new(429, "Too many requests").with("Retry-After", "1")),
            ("closed", _) => {
                Some(Answer::new(429, "Too many requests").with("Retry-After", "3600"))
            }
            ("faulty", ..=2) => Some(Answer::new(503, "Try again")),
            ("down", _) => Some(Answer::new(500, "Out of order")),
            ("page", _) => Some(Answer::new(200, page).with("Content-Type", "text/html")),
            ("lfs", _) => Some(Answer::new(
                200,
                "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            )),
            ("redirect", _) => Some(
                Answer::new(302, "")
                    .with("Location", format!("{}/plain/{name}/{file}", self.other)),
            ),
            _ => None,
        };
        if let Some(answer) = instead {
            return Ok(answer);
        }
        let Some(mut body) = self.find(file) else {
            return Ok(Answer::new(404, "No such file"));
        };
        let weights = file.ends_with(".safetensors");
        let changed = match behaviour {
            "changing" => weights && times > 1,
            // Other versions of the same bytes.
            "renewed" => times > 1,
            _ => false,
        };
        if behaviour == "changing" && changed {
            let mut bytes = Vec::new();
            body.read_to_end(&mut bytes)?;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            body = Box::new(Cursor::new(bytes));
        }
        let whole = body.seek(SeekFrom::End(0))?;
        let ranged = !matches!(behaviour, "no-range" | "break-no-range" | "gzip");
        let mut answer = match range.filter(|_| ranged) {
            Some((from, _)) if from >= whole => Answer::new(416, ""),
            Some((from, to)) => {
                let to = to.map_or(whole, |to| (to + 1).min(whole));
                let content = format!("bytes {from}-{}/{whole}", to - 1);
                body.seek(SeekFrom::Start(from))?;
                let answer = Answer::reading(206, body, to - from);
                match behaviour {
                    "no-content-range" => answer,
                    _ => answer.with("Content-Range", content),
                }
            }
            None => {
                body.rewind()?;
                Answer::reading(200, body, whole)
            }
        };
        answer = answer.with("ETag", if changed { "\"2\"" } else { "\"1\"" });
        let half = answer.bytes / 2;
        match (behaviour, times) {
            ("no-length", _) => answer.chunked = true,
            ("gzip", _) => {
                // What matters is that the browser unpacks it, not how small it was.
                let mut packed = GzEncoder::new(Vec::new(), Compression::none());
                io::copy(&mut answer.body, &mut packed)?;
                answer.set_body(packed.finish()?);
                answer = answer.with("Content-Encoding", "gzip");
            }
            ("mime", _) => answer = answer.with("Content-Type", "text/html"),
            ("stall", _) => (answer.cut, answer.then) = (Some(half), Then::Stall),
            // Sends half and breaks; asked again, half of the rest and so on.
            ("break", ..=3) | ("break-no-range", 1) => answer.cut = Some(half),
            ("changing", 1) if weights => answer.cut = Some(half),
            ("cut", _) => answer.cut = Some(0),
            ("cut-half", 1) => answer.cut = Some(half),
            ("cut-half", ..=4) => answer.cut = Some(0),
            _ => {}
        }
        Ok(answer)
    }

    /// The file `OWNER/MODEL/resolve/main/FILE`.
    fn find(&self, path: &str) -> Option<Box<dyn Source>> {
        let path = path.split('?').next()?;
        let parts: Vec<&str> = path.split('/').collect();
        let [owner, model, "resolve", _, file] = parts[..] else {
            return None;
        };
        if (owner, model) == ("synthetic", "blob") {
            let blob: &'static [u8] = &BLOB;
            return (file == "model.safetensors").then(|| Box::new(Cursor::new(blob)) as _);
        }
        if parts.contains(&"..") {
            return None;
        }
        let (_, folder) = self.models.iter().find(|(name, _)| *name == owner)?;
        let file = File::open(Path::new(folder).join(model).join(file)).ok()?;
        Some(Box::new(file))
    }
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

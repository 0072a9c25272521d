//! As much of HTTP as an imitated host needs: a request read, and an answer sent with the faults that it describes.

use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes written at once.
const PIECE: usize = 256 << 10;

/// What a body is read from: memory, or a file that need not fit in it.
pub trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

/// What follows a body that is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The connection breaks.
    Break,
    /// Nothing, until the page goes away.
    Stall,
}

/// One answer, sent as it is described.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    /// Read from where it stands, for `bytes` bytes.
    pub body: Box<dyn Source>,
    pub bytes: u64,
    /// Send no more than this many bytes of the body, and then do what `then` says.
    pub cut: Option<u64>,
    pub then: Then,
    pub chunked: bool,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        let mut answer = Answer::reading(status, Box::new(io::empty()), 0);
        answer.set_body(body.into());
        answer
    }

    pub fn reading(status: u16, body: Box<dyn Source>, bytes: u64) -> Answer {
        Answer {
            status,
            headers: vec![("Content-Type", "application/octet-stream".into())],
            body,
            bytes,
            cut: None,
            then: Then::Break,
            chunked: false,
        }
    }

    pub fn set_body(&mut self, body: Vec<u8>) {
        self.bytes = body.len() as u64;
        self.body = Box::new(Cursor::new(body));
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }
}

/// The first byte that is asked for, and the last if one is named.
pub type Range = (u64, Option<u64>);

/// Method, path and range; nothing if the connection is closed at once.
pub type Request = Option<(String, String, Option<Range>)>;

pub fn read_request(stream: &TcpStream) -> io::Result<Request> {
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

/// Writes the answer. `sent` counts the bytes of its body, each before it leaves: whoever has received one finds it counted.
pub fn send(stream: &mut TcpStream, answer: Answer, sent: &AtomicU64) -> io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {} Imitated\r\nConnection: close\r\nCache-Control: no-store\r\n",
        answer.status
    );
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &match answer.chunked {
        true => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
        false => format!("Content-Length: {}\r\n\r\n", answer.bytes),
    };
    stream.write_all(head.as_bytes())?;
    let mut body = answer.body.take(answer.cut.unwrap_or(answer.bytes));
    let mut piece = vec![0; PIECE];
    loop {
        let read = body.read(&mut piece)?;
        if read == 0 {
            break;
        }
        sent.fetch_add(read as u64, Ordering::SeqCst);
        if answer.chunked {
            write!(stream, "{read:x}\r\n")?;
        }
        stream.write_all(&piece[..read])?;
        if answer.chunked {
            stream.write_all(b"\r\n")?;
        }
    }
    if answer.cut.is_some() && answer.then == Then::Stall {
        stream.flush()?;
        // Comes back when the page has closed the connection.
        stream.read_exact(&mut [0])?;
    }
    if answer.chunked {
        stream.write_all(b"0\r\n\r\n")?;
    }
    stream.flush()
}

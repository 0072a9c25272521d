//! The streaming loader: bytes of a checkpoint in, in pieces of any size, weights in GPU memory out.
//!
//! Nothing larger than a header and one block of rows (64 rows of a matrix, 256 of `wte`) is ever held: a few megabytes
//! with GPT-2 XL.

use super::dtype::Dtype;
use super::header::{Entry, Header, LENGTH_BYTES, MAX_HEADER_BYTES, bad, check_file_size};
use super::impostor;
use super::inventory::{Inventory, Wanted};
use super::layout::Layout;
use super::target::Upload;
use super::tie::Tie;
use super::transfer::{Transfer, Workspace};
use crate::config::Config;
use crate::error::{Error, Result};

/// What a finished load has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadReport {
    /// Names of tensors in the files that are no part of the model, sorted.
    pub ignored: Vec<String>,
    /// Whether the head is `wte`. If not, it is what was written to [`Target::LmHead`](super::Target::LmHead).
    pub tied: bool,
    /// What the reader should know about these files.
    pub warnings: Vec<String>,
}

/// Reads the files of one checkpoint, one after the other, in any order.
pub struct Loader {
    layout: Layout,
    inventory: Inventory,
    work: Workspace,
    file: Option<File>,
    tie: Tie,
}

struct File {
    name: String,
    bytes: Option<u64>,
    received: u64,
    stage: Stage,
}

enum Stage {
    /// The length of the header and its first character.
    Start(Vec<u8>),
    /// The first bytes of a file that is no safetensors file.
    Foreign(Vec<u8>),
    /// The JSON of the header, as far as it has come.
    Header { length: usize, json: Vec<u8> },
    /// The tensors.
    Data {
        /// Bytes of the whole file, as the header describes it.
        file_bytes: u64,
        /// The tensors to come, the next one last: length in bytes, and what is wanted of it.
        steps: Vec<(u64, Option<Wanted>)>,
        current: Step,
    },
}

enum Step {
    /// This many bytes are not wanted.
    Skip(u64),
    Load(Box<Transfer>),
}

impl Loader {
    /// A loader for the files of a model of this shape, whose matrices are to be stored as `dtype`.
    pub fn new(config: &Config, dtype: Dtype) -> Loader {
        Loader {
            layout: Layout::new(config, dtype),
            inventory: Inventory::new(config),
            work: Workspace::default(),
            file: None,
            tie: Tie::default(),
        }
    }

    /// Begins a file. Messages call it `name`; `bytes` is its size, if that is known.
    ///
    /// # Errors
    /// [`Error::Internal`] if the file before was not ended.
    pub fn begin_file(&mut self, name: &str, bytes: Option<u64>) -> Result<()> {
        if let Some(file) = &self.file {
            return Err(Error::Internal(format!(
                "begin_file({name:?}) was called before end_file() of {:?}.",
                file.name
            )));
        }
        self.file = Some(File {
            name: name.to_owned(),
            bytes,
            received: 0,
            stage: Stage::Start(Vec::new()),
        });
        Ok(())
    }

    /// Takes the next bytes of the file and writes what they complete to `upload`.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] (or [`Error::Http`] for a web page) as soon as the bytes show that this is not a whole,
    /// sound file of this model, and whatever `upload` says. The load has failed then.
    pub fn push(&mut self, mut chunk: &[u8], upload: &mut dyn Upload) -> Result<()> {
        // Taken out, so that nothing can be pushed after an error.
        let mut file = self.file.take().ok_or_else(not_begun)?;
        file.received += chunk.len() as u64;
        while !chunk.is_empty() {
            chunk = match &mut file.stage {
                Stage::Start(start) => {
                    let rest = take(start, chunk, LENGTH_BYTES + 1);
                    if start.len() == LENGTH_BYTES + 1 {
                        file.stage = open(&file.name, std::mem::take(start), file.bytes)?;
                    }
                    rest
                }
                Stage::Foreign(start) => {
                    let rest = take(start, chunk, impostor::PREFIX_BYTES);
                    if start.len() == impostor::PREFIX_BYTES {
                        return Err(impostor::explain(&file.name, start));
                    }
                    rest
                }
                Stage::Header { length, json } => {
                    let rest = take(json, chunk, *length);
                    if json.len() == *length {
                        let header = Header::parse(&file.name, json, file.bytes)?;
                        let wanted = self.inventory.add(&file.name, &header)?;
                        let bytes = header.entries.iter().map(Entry::bytes);
                        file.stage = Stage::Data {
                            file_bytes: (LENGTH_BYTES + *length) as u64 + header.data_bytes,
                            steps: bytes.zip(wanted).rev().collect(),
                            current: Step::Skip(0),
                        };
                    }
                    rest
                }
                Stage::Data {
                    file_bytes,
                    steps,
                    current,
                } => match current {
                    Step::Skip(0) => {
                        *current = match steps.pop() {
                            Some((bytes, None)) => Step::Skip(bytes),
                            Some((_, Some(wanted))) => Step::Load(Box::new(Transfer::new(
                                &self.layout,
                                &file.name,
                                wanted,
                            ))),
                            None => return Err(goes_on(&file.name, *file_bytes)),
                        };
                        chunk
                    }
                    Step::Skip(left) => {
                        let skipped = (chunk.len() as u64).min(*left);
                        *left -= skipped;
                        &chunk[skipped as usize..]
                    }
                    Step::Load(transfer) => {
                        let rest = transfer.feed(chunk, &mut self.work, upload)?;
                        if transfer.is_done() {
                            self.tie.note(transfer);
                            *current = Step::Skip(0);
                        }
                        rest
                    }
                },
            };
        }
        self.file = Some(file);
        Ok(())
    }

    /// Ends a file: all its bytes were pushed.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] (or [`Error::Http`] for a web page) if it ended too early or is something else.
    pub fn end_file(&mut self) -> Result<()> {
        let file = self.file.take().ok_or_else(not_begun)?;
        match file.stage {
            Stage::Start(start) | Stage::Foreign(start) => {
                Err(impostor::explain(&file.name, &start))
            }
            Stage::Header { length, .. } => Err(bad(
                &file.name,
                format!(
                    "is cut short: it has {} bytes, and its header alone has {length}. Download it again",
                    file.received
                ),
            )),
            Stage::Data { file_bytes, .. } => {
                check_file_size(&file.name, file_bytes, file.received)
            }
        }
    }

    /// Ends the load: all files were ended.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] if a tensor of the model did not come.
    pub fn finish(self) -> Result<LoadReport> {
        if let Some(file) = &self.file {
            return Err(Error::Internal(format!(
                "finish() was called before end_file() of {:?}.",
                file.name
            )));
        }
        let (tied, warnings) = self.tie.judge(self.layout.config())?;
        let ignored = self.inventory.finish()?;
        Ok(LoadReport {
            ignored,
            tied,
            warnings,
        })
    }
}

/// Moves bytes from the front of `chunk` to `held` until that has `wanted`, and returns the rest.
fn take<'a>(held: &mut Vec<u8>, chunk: &'a [u8], wanted: usize) -> &'a [u8] {
    let (bytes, rest) = chunk.split_at(chunk.len().min(wanted - held.len()));
    held.extend_from_slice(bytes);
    rest
}

/// The stage after the first nine bytes of a file.
fn open(name: &str, start: Vec<u8>, file_bytes: Option<u64>) -> Result<Stage> {
    let length = start
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    // The shortest JSON object is "{}".
    if start.ends_with(b"{") && (2..=MAX_HEADER_BYTES).contains(&length) {
        Header::check_length(name, length, file_bytes)?;
        return Ok(Stage::Header {
            length: length as usize,
            json: start[LENGTH_BYTES..].to_vec(),
        });
    }
    Ok(Stage::Foreign(start))
}

fn not_begun() -> Error {
    Error::Internal(
        "No file is begun: the load failed before, or begin_file() was not called.".into(),
    )
}

fn goes_on(name: &str, file_bytes: u64) -> Error {
    bad(
        name,
        format!(
            "goes on after the {file_bytes} bytes that its header describes; it is damaged. Download it again"
        ),
    )
}

//! Text to ids and back: Hugging Face's `tokenizers` crate, wrapped so that nothing happens to a text unseen.
//!
//! * What is typed is what is encoded: no space is put before the first word, no token is added around the text, nothing
//!   is truncated or padded, whatever `tokenizer.json` says about that.
//! * The text of a special token inside a prompt (`<|endoftext|>`) becomes that special token, with [`Token::special`]
//!   set, so that a reader sees it.
//! * Decoding joins the bytes of the ids and nothing else: no clean-up of spaces. Bytes that are not UTF-8 become
//!   U+FFFD, exactly as [`String::from_utf8_lossy`] does it.
//! * An id that the tokenizer does not have (a model may have more rows than its tokenizer has tokens) has no bytes.

mod file;

use std::collections::HashSet;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{Encoding, TokenizerImpl};

use crate::error::{Error, Result};

/// The longest text that is encoded in one call, in bytes of UTF-8. The longest context is far shorter; the limit keeps a
/// pasted file from filling the memory of the page.
pub const MAX_TEXT_BYTES: usize = 4 << 20;

/// One token of a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Token {
    /// The id.
    pub id: u32,
    /// The part of the text it covers; several tokens that share one character all show that character.
    pub text: String,
    /// The bytes it stands for.
    pub bytes: Vec<u8>,
    /// Start of its span in the text, in UTF-16 units.
    pub start: usize,
    /// End of its span in the text, in UTF-16 units.
    pub end: usize,
    /// Whether it is a special token.
    pub special: bool,
}

/// The crate's pipeline; the last two stages are ours, so what fills their places is never called.
type Pipeline = TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, ByteLevel, ByteLevel>;

/// A byte-level BPE tokenizer, as GPT-2 has it.
pub struct Tokenizer {
    pipeline: Pipeline,
    bytes: ByteTable,
    special: HashSet<u32>,
    /// Bytes that no token of the vocabulary stands for alone; empty for every complete vocabulary.
    missing: Vec<u8>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Merges may be strings (`"a b"`) or pairs (`["a", "b"]`).
    ///
    /// # Errors
    /// [`Error::BadTokenizer`] naming what is wrong: broken JSON, another file in its place (`config.json`, a Git LFS
    /// pointer, a web page), another kind of tokenizer than byte-level BPE, a vocabulary or merges that contradict
    /// themselves.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        file::from_json(json)
    }

    /// Reads the older pair of files, `vocab.json` and `merges.txt`; `<|endoftext|>` is special if the vocabulary has it.
    ///
    /// # Errors
    /// [`Error::BadTokenizer`], as [`Tokenizer::from_json`].
    pub fn from_vocab_and_merges(vocab_json: &[u8], merges_txt: &[u8]) -> Result<Self> {
        file::from_vocab_and_merges(vocab_json, merges_txt)
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`] beyond [`MAX_TEXT_BYTES`]; [`Error::BadTokenizer`] if the vocabulary is incomplete and
    /// the text needs a byte that it lacks.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.check(text)?;
        let encoding = self.pipeline.encode_fast(text, false);
        Ok(encoding.map_err(pipeline_failed)?.get_ids().to_vec())
    }

    /// The tokens of a text: ids with what they cover in it.
    ///
    /// Spans never leave the text and never cut a character: tokens that share a character share its span.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn tokens(&self, text: &str) -> Result<Vec<Token>> {
        self.check(text)?;
        let encoding: Encoding = self.pipeline.encode(text, false).map_err(pipeline_failed)?;
        let (mut starts, mut ends) = (Utf16Cursor::new(text), Utf16Cursor::new(text));
        let ids_and_spans = encoding.get_ids().iter().zip(encoding.get_offsets());
        let tokens = ids_and_spans.map(|(&id, &(start, end))| {
            let start = text.floor_char_boundary(start);
            let end = text.ceil_char_boundary(end).max(start);
            Token {
                id,
                text: text[start..end].to_owned(),
                bytes: self.bytes_of(id),
                start: starts.units_before(start),
                end: ends.units_before(end),
                special: self.special.contains(&id),
            }
        });
        Ok(tokens.collect())
    }

    /// Tokens for ids that came without a text: each one's own text, one after the other.
    pub fn describe(&self, ids: &[u32]) -> Vec<Token> {
        let mut end = 0;
        let token = |&id: &u32| {
            let text = self.text_of(id);
            let start = end;
            end += text.encode_utf16().count();
            Token {
                id,
                bytes: self.bytes_of(id),
                start,
                end,
                special: self.is_special(id),
                text,
            }
        };
        ids.iter().map(token).collect()
    }

    /// The text of ids. Special tokens are written out, or left out with `skip_special_tokens`.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> String {
        let shown = |id: &&u32| !(skip_special_tokens && self.special.contains(id));
        let bytes: Vec<u8> = ids
            .iter()
            .filter(shown)
            .flat_map(|&id| self.bytes.get(id))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ids are below this number: the highest id + 1.
    pub fn vocab_size(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that an id stands for; none for an id that this tokenizer does not have.
    pub fn bytes_of(&self, id: u32) -> Vec<u8> {
        self.bytes.get(id).to_vec()
    }

    /// The text of one id on its own; part of a character shows as U+FFFD.
    pub fn text_of(&self, id: u32) -> String {
        String::from_utf8_lossy(self.bytes.get(id)).into_owned()
    }

    /// Whether an id is a special token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// A lower bound for the number of ids of a text, without encoding it: its bytes over those of the longest token.
    ///
    /// A text that is refused by this bound costs no time, however long it is.
    pub fn at_least(&self, text: &str) -> usize {
        text.len().div_ceil(self.bytes.longest().max(1))
    }

    fn check(&self, text: &str) -> Result<()> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(Error::PromptTooLong(format!(
                "The text has {} bytes; at most {MAX_TEXT_BYTES} are encoded at once. Shorten it.",
                text.len()
            )));
        }
        if let Some(at) = text.bytes().position(|byte| self.missing.contains(&byte)) {
            let start = text.floor_char_boundary(at);
            let character = text[start..].chars().next().unwrap_or_default();
            return Err(Error::BadTokenizer(format!(
                "The tokenizer cannot write {character:?}: its vocabulary has no token for the byte 0x{:02X}. \
                 Leave the character out, or load a tokenizer that has all 256 bytes.",
                text.as_bytes()[at]
            )));
        }
        Ok(())
    }
}

fn pipeline_failed(error: tokenizers::Error) -> Error {
    Error::BadTokenizer(format!(
        "The text could not be encoded: {error}. Try another text or another tokenizer."
    ))
}

/// The bytes of every id, back to back: a list of lists would be fifty thousand allocations.
struct ByteTable {
    data: Vec<u8>,
    /// Where the bytes of each id begin in `data`, and the end of the last.
    starts: Vec<usize>,
}

impl ByteTable {
    /// From the bytes of ids 0, 1, 2, ...; empty for an id that is not used.
    fn new<'a>(tokens: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut table = ByteTable {
            data: Vec::new(),
            starts: vec![0],
        };
        for bytes in tokens {
            table.data.extend_from_slice(bytes);
            table.starts.push(table.data.len());
        }
        table
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn get(&self, id: u32) -> &[u8] {
        match self.starts.get(id as usize..) {
            Some(&[start, end, ..]) => &self.data[start..end],
            _ => &[],
        }
    }

    fn longest(&self) -> usize {
        self.starts
            .windows(2)
            .map(|span| span[1] - span[0])
            .max()
            .unwrap_or(0)
    }
}

/// Turns byte offsets that mostly grow into UTF-16 offsets, going through the text once.
struct Utf16Cursor<'t> {
    text: &'t str,
    byte: usize,
    units: usize,
}

impl<'t> Utf16Cursor<'t> {
    fn new(text: &'t str) -> Self {
        Utf16Cursor {
            text,
            byte: 0,
            units: 0,
        }
    }

    /// UTF-16 units before `byte`, which is at a character boundary.
    fn units_before(&mut self, byte: usize) -> usize {
        if byte < self.byte {
            *self = Utf16Cursor::new(self.text);
        }
        self.units += self.text[self.byte..byte]
            .chars()
            .map(char::len_utf16)
            .sum::<usize>();
        self.byte = byte;
        self.units
    }
}

/// What one id adds to a streamed text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    /// The bytes of this id.
    pub bytes: Vec<u8>,
    /// The text that is complete with this id; may be empty.
    pub text: String,
    /// Bytes that are held back until the character they begin is complete: at most 3.
    pub pending_bytes: Vec<u8>,
}

/// Decodes ids one by one: every character appears in the step that completes it, and what has been shown never changes.
///
/// All texts of [`Detokenizer::push`] and then [`Detokenizer::finish`] together are [`Tokenizer::decode`] of all ids.
pub struct Detokenizer {
    tokenizer: Rc<Tokenizer>,
    skip_special_tokens: bool,
    pending: Vec<u8>,
}

impl Detokenizer {
    /// A detokenizer at the start of a text.
    pub fn new(tokenizer: Rc<Tokenizer>, skip_special_tokens: bool) -> Self {
        Detokenizer {
            tokenizer,
            skip_special_tokens,
            pending: Vec::new(),
        }
    }

    /// Takes the next id. Never fails: bytes that can no longer become a character give U+FFFD.
    pub fn push(&mut self, id: u32) -> Piece {
        let bytes = self.tokenizer.bytes_of(id);
        if !(self.skip_special_tokens && self.tokenizer.is_special(id)) {
            self.pending.extend_from_slice(&bytes);
        }
        let complete = self.pending.len() - unfinished(&self.pending);
        let rest = self.pending.split_off(complete);
        let text =
            String::from_utf8_lossy(&std::mem::replace(&mut self.pending, rest)).into_owned();
        Piece {
            bytes,
            text,
            pending_bytes: self.pending.clone(),
        }
    }

    /// Ends the text: what is still held back, as U+FFFD. Afterwards a new text may begin.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// How many bytes at the end begin a character that later bytes can still complete.
fn unfinished(bytes: &[u8]) -> usize {
    bytes.utf8_chunks().last().map_or(0, |chunk| {
        // Only an incomplete character has no error length: an invalid one is known to be wrong already.
        let invalid = chunk.invalid();
        match std::str::from_utf8(invalid) {
            Err(error) if error.error_len().is_none() => invalid.len(),
            _ => 0,
        }
    })
}

//! Reads a tokenizer's files, and refuses what the `tokenizers` crate would panic on or quietly change.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{self, DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokenizers::models::bpe::{BpeBuilder, Vocab};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, TokenizerImpl};

use super::{ByteTable, Tokenizer};
use crate::error::{Error, Result};

/// Ids are below this, because tables have a place for every id up to the highest one (GPT-2 has 50,257 ids).
const MAX_VOCAB: u32 = 1 << 22;

/// GPT-2's one special token, which `vocab.json` does not mark as such.
const END_OF_TEXT: &str = "<|endoftext|>";

/// As much of a JSON file as tells which file it is.
#[derive(Deserialize)]
struct Header {
    model: Option<ModelHeader>,
    /// Only a config.json has this.
    model_type: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ModelHeader {
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// The part of `tokenizer.json` that decides ids: truncation, padding, post-processor and decoder are not read, because
/// [`super`] says what happens instead.
#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

#[derive(Deserialize)]
struct Model {
    vocab: Vocab,
    merges: Vec<Merge>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    ignore_merges: bool,
}

/// Two tokens that become one; older files write `"a b"`, newer ones `["a", "b"]`.
struct Merge(String, String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a merge: \"a b\" or [\"a\", \"b\"]")
            }

            fn visit_str<E: de::Error>(self, line: &str) -> std::result::Result<Merge, E> {
                merge_from_line(line)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(line), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut pair: A,
            ) -> std::result::Result<Merge, A::Error> {
                match (
                    pair.next_element()?,
                    pair.next_element()?,
                    pair.next_element::<IgnoredAny>()?,
                ) {
                    (Some(left), Some(right), None) => Ok(Merge(left, right)),
                    _ => Err(de::Error::custom("a merge has not exactly two tokens")),
                }
            }
        }
        deserializer.deserialize_any(Form)
    }
}

fn merge_from_line(line: &str) -> Option<Merge> {
    let (left, right) = line.split_once(' ')?;
    let whole = !left.is_empty() && !right.is_empty() && !right.contains(' ');
    whole.then(|| Merge(left.to_owned(), right.to_owned()))
}

pub(super) fn from_json(json: &[u8]) -> Result<Tokenizer> {
    let header: Header = parse("tokenizer.json", json)?;
    match header.model {
        None if header.model_type.is_some() => {
            return Err(bad(
                "tokenizer.json",
                "this is a config.json; give the tokenizer.json of the same folder",
            ));
        }
        None => {
            return Err(bad(
                "tokenizer.json",
                "it has no \"model\"; give the tokenizer.json of a GPT-2 folder",
            ));
        }
        // Files of the first versions do not name the kind.
        Some(ModelHeader { kind: Some(kind) }) if kind != "BPE" => {
            let why = format!(
                "its model is {kind}, GPT-2 needs BPE; give the tokenizer.json of a GPT-2 folder"
            );
            return Err(bad("tokenizer.json", &why));
        }
        Some(_) => {}
    }

    let file: TokenizerFile = parse("tokenizer.json", json)?;
    let affixes = [
        &file.model.continuing_subword_prefix,
        &file.model.end_of_word_suffix,
    ];
    if affixes.into_iter().flatten().any(|affix| !affix.is_empty()) {
        return Err(bad(
            "tokenizer.json",
            "it marks parts of words with a prefix or suffix, which byte-level BPE does not; give a GPT-2 tokenizer",
        ));
    }
    let normalizer: Option<NormalizerWrapper> = part("normalizer", file.normalizer)?;
    let pre_tokenizer: Option<PreTokenizerWrapper> = part("pre_tokenizer", file.pre_tokenizer)?;
    let pre_tokenizer = pre_tokenizer
        .and_then(byte_level_without_prefix_space)
        .ok_or_else(|| {
            bad(
                "tokenizer.json",
                "its pre_tokenizer has no ByteLevel, which GPT-2's has; give a GPT-2 tokenizer",
            )
        })?;
    Parts {
        file: "tokenizer.json",
        vocab: file.model.vocab,
        merges: file.model.merges,
        ignore_merges: file.model.ignore_merges,
        added: file.added_tokens,
        normalizer,
        pre_tokenizer,
    }
    .build()
}

pub(super) fn from_vocab_and_merges(vocab_json: &[u8], merges_txt: &[u8]) -> Result<Tokenizer> {
    let vocab: Vocab = parse("vocab.json", vocab_json)?;
    let lines = text("merges.txt", merges_txt)?.lines().enumerate();
    // Only the first line is a comment: later ones may be merges that begin with #.
    let comment = |number: usize, line: &str| number == 0 && line.starts_with("#version");
    let merges = lines.filter(|(number, line)| !line.is_empty() && !comment(*number, line));
    let merges = merges.map(|(number, line)| {
        merge_from_line(line).ok_or_else(|| {
            let why = format!(
                "line {} is {line:?}, not two tokens with a space between; download it again",
                number + 1
            );
            bad("merges.txt", &why)
        })
    });
    let added = vocab.get(END_OF_TEXT).map(|&id| Added {
        id,
        token: AddedToken::from(END_OF_TEXT, true),
    });
    Parts {
        file: "vocab.json",
        merges: merges.collect::<Result<_>>()?,
        vocab,
        ignore_merges: false,
        added: added.into_iter().collect(),
        normalizer: None,
        pre_tokenizer: ByteLevel::new(false, true, true).into(),
    }
    .build()
}

/// What both kinds of file come down to.
struct Parts {
    file: &'static str,
    vocab: Vocab,
    merges: Vec<Merge>,
    ignore_merges: bool,
    added: Vec<Added>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: PreTokenizerWrapper,
}

impl Parts {
    fn build(mut self) -> Result<Tokenizer> {
        self.check_merges()?;
        let byte_of = byte_alphabet();
        let missing = byte_of
            .iter()
            .filter(|(letter, _)| !self.vocab.contains_key(letter.to_string().as_str()));
        let missing = missing.map(|(_, &byte)| byte).collect();

        // The crate numbers added tokens itself, unless the vocabulary has them: so it gets them with the file's ids.
        for Added { id, token } in &self.added {
            let known = *self.vocab.entry(token.content.clone()).or_insert(*id);
            if known != *id {
                let why = format!(
                    "the token {:?} has two ids, {known} in the vocabulary and {id} in added_tokens; save the tokenizer again",
                    token.content
                );
                return Err(bad(self.file, &why));
            }
        }
        let bytes = self.byte_table(&byte_of)?;
        let special = self
            .added
            .iter()
            .filter(|added| added.token.special)
            .map(|added| added.id)
            .collect();

        let merges = self
            .merges
            .into_iter()
            .map(|Merge(left, right)| (left, right))
            .collect::<Vec<_>>();
        let bpe = BpeBuilder::new()
            .vocab_and_merges(self.vocab, merges)
            .ignore_merges(self.ignore_merges)
            .build();
        let failed =
            |error: tokenizers::Error| bad(self.file, &format!("{error}; download it again"));
        let mut pipeline = TokenizerImpl::new(bpe.map_err(failed)?);
        pipeline.with_normalizer(self.normalizer).map_err(failed)?;
        pipeline.with_pre_tokenizer(Some(self.pre_tokenizer));
        pipeline
            .add_tokens(self.added.into_iter().map(|added| added.token))
            .map_err(failed)?;
        Ok(Tokenizer {
            pipeline,
            bytes,
            special,
            missing,
        })
    }

    /// Every merge makes a token of the vocabulary from two tokens of it: the crate panics on some that do not.
    fn check_merges(&self) -> Result<()> {
        for (number, Merge(left, right)) in self.merges.iter().enumerate() {
            for token in [left, right, &format!("{left}{right}")] {
                if !self.vocab.contains_key(token) {
                    let why = format!(
                        "merge {} ({left:?}, {right:?}) needs the token {token:?}, which the vocabulary lacks; download it again",
                        number + 1
                    );
                    return Err(bad(self.file, &why));
                }
            }
        }
        Ok(())
    }

    /// The bytes of every id. A vocabulary writes each byte as one letter; an added token is written as it is.
    fn byte_table(&self, byte_of: &HashMap<char, u8>) -> Result<ByteTable> {
        let highest = self.vocab.values().max();
        let Some(&highest) = highest else {
            return Err(bad(self.file, "its vocabulary is empty; download it again"));
        };
        if highest >= MAX_VOCAB {
            return Err(bad(
                self.file,
                &format!(
                    "it has the id {highest}; ids are read up to {}",
                    MAX_VOCAB - 1
                ),
            ));
        }
        let literal: HashSet<&str> = self
            .added
            .iter()
            .map(|added| added.token.content.as_str())
            .collect();
        let mut table: Vec<Option<Vec<u8>>> = vec![None; highest as usize + 1];
        for (token, &id) in &self.vocab {
            let letters: Option<Vec<u8>> = token
                .chars()
                .map(|letter| byte_of.get(&letter).copied())
                .collect();
            let bytes = letters
                .filter(|_| !literal.contains(token.as_str()))
                .unwrap_or_else(|| token.as_bytes().to_vec());
            if table[id as usize].replace(bytes).is_some() {
                return Err(bad(
                    self.file,
                    &format!("two tokens have the id {id}, one is {token:?}; download it again"),
                ));
            }
        }
        Ok(ByteTable::new(
            table
                .iter()
                .map(|bytes| bytes.as_deref().unwrap_or_default()),
        ))
    }
}

/// The pre-tokenizer without its space before the first word, or `None` if it does not work on bytes.
fn byte_level_without_prefix_space(
    pre_tokenizer: PreTokenizerWrapper,
) -> Option<PreTokenizerWrapper> {
    match pre_tokenizer {
        PreTokenizerWrapper::ByteLevel(byte_level) => {
            Some(byte_level.add_prefix_space(false).into())
        }
        PreTokenizerWrapper::Sequence(mut sequence) => {
            let mut found = false;
            for step in sequence.as_mut() {
                if let PreTokenizerWrapper::ByteLevel(byte_level) = step {
                    *byte_level = byte_level.add_prefix_space(false);
                    found = true;
                }
            }
            found.then_some(sequence.into())
        }
        _ => None,
    }
}

/// GPT-2's letters for the 256 bytes: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards, in
/// order. (`bytes_to_unicode` in OpenAI's encoder.py.)
fn byte_alphabet() -> HashMap<char, u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=255).filter(|byte| !printable(byte)).zip('\u{100}'..);
    (0..=255)
        .filter(printable)
        .map(|byte| (char::from(byte), byte))
        .chain(others.map(|(byte, letter)| (letter, byte)))
        .collect()
}

fn part<T: DeserializeOwned>(name: &str, value: Value) -> Result<Option<T>> {
    serde_json::from_value(value).map_err(|error| {
        bad("tokenizer.json", &format!("its {name} is of a kind that this project cannot read ({error}); give a GPT-2 tokenizer"))
    })
}

fn parse<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T> {
    let text = text(file, bytes)?;
    serde_json::from_str(text).map_err(|error| bad(file, &format!("{error}; download it again")))
}

/// The file as text, unless it is recognisably another file.
fn text<'b>(file: &str, bytes: &'b [u8]) -> Result<&'b str> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| bad(file, &format!("it is not text: {error}; download it again")))?
        .trim_start_matches('\u{feff}');
    match text.trim_start() {
        "" => Err(bad(file, "the file is empty; download it again")),
        start if start.starts_with("version https://git-lfs") => Err(bad(
            file,
            "it is a Git LFS pointer, not the file; run `git lfs pull` where it comes from",
        )),
        start if start.starts_with('<') => Err(bad(
            file,
            "it is a web page, not the file; check the address",
        )),
        _ => Ok(text),
    }
}

fn bad(file: &str, why: &str) -> Error {
    Error::BadTokenizer(format!("{file} cannot be used: {why}."))
}

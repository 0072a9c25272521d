//! Which tensors of the model have come, from which file, and whether they are what config.json says.

use std::collections::BTreeMap;

use super::decode::Source;
use super::header::{Entry, Header, bad};
use super::names::{Known, PREFIX, Tensor, recognise};
use crate::config::{Config, quoted};
use crate::error::{Error, Result};

/// A tensor of a file that goes to the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name, as the file has it.
    pub name: String,
    /// Which tensor of the model it is.
    pub tensor: Tensor,
    /// Where it goes: to its own place, or to that of `wte` for a head that stands in for it.
    pub into: Tensor,
    /// The type of its values.
    pub source: Source,
}

/// The tensors seen so far, over all files of a checkpoint.
#[derive(Debug)]
pub struct Inventory {
    config: Config,
    /// The file of each tensor.
    seen: BTreeMap<Tensor, String>,
    /// Whether names have the prefix, and the name that showed it.
    prefixed: Option<(bool, String)>,
    /// Names that are no part of the model.
    ignored: Vec<String>,
}

impl Inventory {
    /// Nothing seen of a model of this shape.
    pub fn new(config: &Config) -> Inventory {
        Inventory {
            config: config.clone(),
            seen: BTreeMap::new(),
            prefixed: None,
            ignored: Vec::new(),
        }
    }

    /// What to do with each tensor of a file, in the order of its bytes: `None` to skip it.
    ///
    /// Hugging Face ties in both directions: where the config ties the head and there is no `wte`, `lm_head` fills it.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] for a tensor that came before, has another shape than config.json says or values that are
    /// not f32, f16 or bf16, and for names of which some have the prefix and some do not.
    pub fn add(&mut self, file: &str, header: &Header) -> Result<Vec<Option<Wanted>>> {
        let mut wanted = Vec::with_capacity(header.entries.len());
        for entry in &header.entries {
            wanted.push(self.add_entry(file, entry)?);
        }
        if self.config.tie_word_embeddings && !self.has(Tensor::Wte) {
            for wanted in wanted.iter_mut().flatten() {
                if wanted.tensor == Tensor::LmHead {
                    wanted.into = Tensor::Wte;
                }
            }
        }
        Ok(wanted)
    }

    /// Whether a file had `tensor`.
    pub fn has(&self, tensor: Tensor) -> bool {
        self.seen.contains_key(&tensor)
    }

    /// Checks that every tensor has come, and returns the names that were no part of the model.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] naming the first tensor that is missing.
    pub fn finish(mut self) -> Result<Vec<String>> {
        let tied = self.config.tie_word_embeddings;
        let have = |tensor| {
            self.has(tensor) || (tied && tensor == Tensor::Wte && self.has(Tensor::LmHead))
        };
        let mut missing = Tensor::required(&self.config).filter(|tensor| !have(*tensor));
        let Some(first) = missing.next() else {
            self.ignored.sort();
            return Ok(self.ignored);
        };
        let others = match missing.count() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let hint = match (first, self.ignored.first()) {
            (Tensor::LmHead, _) => {
                "config.json sets tie_word_embeddings to false, which needs a head of its own"
                    .to_owned()
            }
            (_, Some(name)) if self.seen.is_empty() => {
                format!(
                    "it has other names, such as {}, so it is not a GPT-2 as Hugging Face saves it",
                    quoted(name)
                )
            }
            _ => "it does not fit config.json, or some of its files were not given".to_owned(),
        };
        Err(Error::BadCheckpoint(format!(
            "The checkpoint has no tensor {:?}{others}: {hint}. Use the checkpoint and the config.json that were saved together.",
            first.name()
        )))
    }

    fn add_entry(&mut self, file: &str, entry: &Entry) -> Result<Option<Wanted>> {
        let Some((known, prefixed)) = recognise(&entry.name, self.config.n_layer) else {
            self.ignored.push(entry.name.clone());
            return Ok(None);
        };
        if let Some(prefixed) = prefixed {
            self.check_prefix(file, entry, prefixed)?;
        }
        let Known::Tensor(tensor) = known else {
            return Ok(None);
        };
        if let Some(before) = self.seen.insert(tensor, file.to_owned()) {
            return Err(bad(
                file,
                format!(
                    "has tensor {:?}, which {before} has too; give each file of one checkpoint once",
                    entry.name
                ),
            ));
        }
        let expected = tensor.shape(&self.config);
        if !entry
            .shape
            .iter()
            .copied()
            .eq(expected.iter().map(|n| *n as u64))
        {
            return Err(wrong_shape(file, entry, &expected));
        }
        let source = Source::from_name(&entry.dtype).ok_or_else(|| {
            bad(
                file,
                format!(
                    "has tensor {:?} with values of type {}; weights have to be F32, F16 or BF16. Save the model in one of these",
                    entry.name,
                    quoted(&entry.dtype)
                ),
            )
        })?;
        Ok(Some(Wanted {
            name: entry.name.clone(),
            tensor,
            into: tensor,
            source,
        }))
    }

    fn check_prefix(&mut self, file: &str, entry: &Entry, prefixed: bool) -> Result<()> {
        match &self.prefixed {
            Some((before, name)) if *before != prefixed => Err(bad(
                file,
                format!(
                    "has tensor {:?}, but another one is {name:?}: some names begin with {PREFIX:?} and some do not, so it is unclear which belong to the model. Save it once more with save_pretrained",
                    entry.name
                ),
            )),
            Some(_) => Ok(()),
            None => {
                self.prefixed = Some((prefixed, entry.name.clone()));
                Ok(())
            }
        }
    }
}

fn wrong_shape(file: &str, entry: &Entry, expected: &[usize]) -> Error {
    let transposed = expected.len() == 2
        && entry
            .shape
            .iter()
            .rev()
            .copied()
            .eq(expected.iter().map(|n| *n as u64));
    let hint = if transposed {
        ". It looks transposed: GPT-2 stores its linear layers in x out"
    } else {
        ". Use the checkpoint and the config.json that were saved together"
    };
    // A shape of a hostile file may be of any length.
    let shown = &entry.shape[..entry.shape.len().min(8)];
    bad(
        file,
        format!(
            "has tensor {:?} with shape {shown:?}, but config.json makes it {expected:?}{hint}",
            entry.name
        ),
    )
}

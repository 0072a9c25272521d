//! The ids that a benchmark must produce, from the plain-Rust reference on the same rounded weights.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::Ran;
use crate::checkpoint::Dtype;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::reference::{Cache, Weights, forward};

/// How far a logit of the GPU may be from the reference's, absolute and as a part of the logit: the bound of the tests.
const ABSOLUTE: f32 = 5e-3;
const RELATIVE: f32 = 1e-3;

/// How ids compare with the reference's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Agreement {
    /// Ids compared, all equal.
    pub equal: usize,
    /// Ids that were not compared, because one before them differed where the reference's two best logits are closer than
    /// rounding.
    pub after_a_tie: usize,
}

/// What follows each prompt.
pub struct Expected(BTreeMap<usize, Vec<Choice>>);

/// The best id, and by how much.
struct Choice {
    id: u32,
    tied: bool,
}

impl Expected {
    /// Runs the reference over the longest prompt, stopping at every length to see what follows: one id for each of
    /// `prompts`, `new_tokens` for each of `caches`.
    pub fn new(
        model: &Model,
        folder: &Path,
        ids: &[u32],
        prompts: &[usize],
        caches: &[usize],
        new_tokens: usize,
    ) -> Result<Self> {
        let config = model.config();
        let file = folder.join("model.safetensors");
        let bytes = std::fs::read(&file).map_err(|e| {
            Error::Network(format!(
                "{} could not be read: {e}. A benchmark needs a model in one file.",
                file.display()
            ))
        })?;
        let mut weights = Weights::from_safetensors(config, &[&bytes])?;
        drop(bytes);
        let mut cache = Cache::new(config);
        if model.dtype() != Dtype::Fp32 {
            weights = weights.rounded(config, model.dtype())?;
            cache = Cache::half(config);
        }
        let mut lengths: Vec<usize> = prompts.iter().chain(caches).copied().collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut expected = BTreeMap::new();
        let mut done = 0;
        for length in lengths {
            let mut logits = forward(config, &weights, &ids[done..length], &mut cache)?;
            done = length;
            let count = if caches.contains(&length) {
                new_tokens
            } else {
                1
            };
            let mut branch = cache.clone();
            let mut choices = vec![Choice::new(&logits)];
            while choices.len() < count {
                let id = choices[choices.len() - 1].id;
                logits = forward(config, &weights, &[id], &mut branch)?;
                choices.push(Choice::new(&logits));
            }
            expected.insert(length, choices);
        }
        Ok(Self(expected))
    }

    /// Compares the runs from a prompt of this length.
    ///
    /// # Errors
    /// [`Error::Internal`] if they differ.
    pub fn compare(&self, length: usize, runs: &[Ran]) -> Result<Agreement> {
        let choices = self.0.get(&length).map_or(&[][..], Vec::as_slice);
        let mut agreement = Agreement {
            equal: 0,
            after_a_tie: 0,
        };
        for run in runs {
            let same = run
                .ids
                .iter()
                .zip(choices)
                .take_while(|(id, choice)| **id == choice.id)
                .count();
            agreement.equal += same;
            match (run.ids.get(same), choices.get(same)) {
                (None, _) => {}
                (Some(_), Some(choice)) if choice.tied => {
                    agreement.after_a_tie += run.ids.len() - same;
                }
                (Some(id), expected) => {
                    return Err(Error::Internal(format!(
                        "After a prompt of {length} ids, new id {same} is {id}, and the reference says {:?}: the times \
                         are worth nothing. Please report this with the adapter's name.",
                        expected.map(|choice| choice.id)
                    )));
                }
            }
        }
        Ok(agreement)
    }
}

impl Choice {
    fn new(logits: &[f32]) -> Self {
        let best = |besides: Option<usize>| {
            let ids = (0..logits.len()).filter(|id| Some(*id) != besides);
            ids.fold(0, |best, id| {
                let better = logits[id] > logits[best] || Some(best) == besides;
                if better { id } else { best }
            })
        };
        let first = best(None);
        let margin = logits[first] - logits[best(Some(first))];
        Self {
            id: first as u32,
            tied: margin < 2.0 * (ABSOLUTE + RELATIVE * logits[first].abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_knows_how_close_the_second_is() {
        let clear = Choice::new(&[0.5, 3.0, 1.0]);
        assert_eq!((clear.id, clear.tied), (1, false));
        let close = Choice::new(&[2.999, 3.0, 1.0]);
        assert_eq!((close.id, close.tied), (1, true));
        let first = Choice::new(&[3.0, 2.0]);
        assert_eq!((first.id, first.tied), (0, false));
    }
}

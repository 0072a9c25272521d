//! Whether the head is `wte`, decided as Hugging Face does.
//!
//! `tie_word_embeddings` says that `lm_head.weight` and `wte.weight` are one tensor. A file then has either of them, and
//! one that has both is believed: if their values differ, they are not tied.

use super::header::bad;
use super::names::Tensor;
use super::transfer::Transfer;
use crate::config::Config;
use crate::error::Result;

/// What has been seen of `wte` and `lm_head`.
#[derive(Debug, Default)]
pub struct Tie {
    /// Fingerprint of `wte`.
    wte: Option<u64>,
    /// Fingerprint of `lm_head`, and whether it went to the place of `wte`.
    lm_head: Option<(u64, bool)>,
}

impl Tie {
    /// Takes note of a tensor that has come.
    pub fn note(&mut self, transfer: &Transfer) {
        let wanted = transfer.wanted();
        match wanted.tensor {
            Tensor::Wte => self.wte = Some(transfer.fingerprint()),
            Tensor::LmHead => {
                self.lm_head = Some((transfer.fingerprint(), wanted.into == Tensor::Wte))
            }
            _ => {}
        }
    }

    /// Whether the head is `wte`, and what the reader should know about it.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`](crate::error::Error::BadCheckpoint) if a head that is not `wte` came in a file before
    /// that of `wte`, took its place, and is lost.
    pub fn judge(&self, config: &Config) -> Result<(bool, Vec<String>)> {
        if !config.tie_word_embeddings {
            return Ok((false, Vec::new()));
        }
        match (self.wte, self.lm_head) {
            (Some(wte), Some((lm_head, lost))) if wte != lm_head => {
                if lost {
                    return Err(bad(
                        "The checkpoint",
                        "has an lm_head.weight that differs from wte.weight, and config.json ties them. Set tie_word_embeddings to false in config.json",
                    ));
                }
                let warning = "lm_head.weight differs from wte.weight although config.json ties them; both are used, as in transformers.";
                Ok((false, vec![warning.into()]))
            }
            _ => Ok((true, Vec::new())),
        }
    }
}

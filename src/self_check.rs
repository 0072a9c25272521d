//! Is what this GPU computes right? A wrong driver, kernel or byte should be said, not shown as a story.
//!
//! Four checks, each of which tells what it compared:
//!
//! 1. every weight buffer holds the bytes that were written to it;
//! 2. greedy ids with the cache are those without it;
//! 3. the logits of a short prompt are those of the plain-Rust [`reference`](mod@crate::reference), computed layer by layer
//!    from weights that are read back in pieces, so that neither memory nor the page's patience is strained;
//! 4. OpenAI's weights give the ids and logits that others have published for them.

mod forward;
mod official;

use std::rc::Rc;

use serde::Serialize;

use crate::checkpoint::{Dtype, Layout, Region, Target, Tensor};
use crate::error::{Error, Result};
use crate::generator::{Generator, Prompt};
use crate::gpu::ReadbackRing;
use crate::model::Model;
use crate::sampling::Options;
use crate::trace::EventKind;

/// Bytes read back at once: a few milliseconds of work for the CPU.
const PIECE_BYTES: usize = 2 << 20;

/// The reference is left out beyond this many weights: it would take longer than a reader waits.
const MOST_WEIGHTS: u64 = 500_000_000;

/// Ids of the check's prompt, and ids generated after it.
const PROMPT_IDS: usize = 4;
const NEW_IDS: usize = 6;

/// The result of all checks.
#[derive(Debug, Clone, Serialize)]
pub struct SelfCheck {
    /// Whether every check that was made passed.
    pub ok: bool,
    /// The largest difference to the reference's logits; absent where it was left out.
    pub max_logit_diff: Option<f32>,
    /// One after the other.
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What it is about.
    pub name: &'static str,
    /// Whether it passed.
    pub ok: bool,
    /// What was compared, with the numbers.
    pub detail: String,
}

/// Runs all checks on a model that nobody uses meanwhile. `name` is the id that it was loaded by, for what is published
/// about it. The cache is empty afterwards.
///
/// # Errors
/// [`Error::Busy`] while a generation runs, or the device's fault.
pub async fn self_check(model: &Rc<Model>, name: &str) -> Result<SelfCheck> {
    let checker = Checker::new(model);
    let mut checks = vec![checker.weights().await?, checker.cached().await?];
    let (check, max_logit_diff) = checker.reference().await?;
    checks.extend(check);
    for published in official::of(name) {
        checks.extend(checker.published(published).await?);
    }
    model.forget();
    Ok(SelfCheck {
        ok: checks.iter().all(|check| check.ok),
        max_logit_diff,
        checks,
    })
}

/// How far logits may be off: both computed in f32 and with exactly the same weights, only the order of the sums differs;
/// with a cache in f16, a key or value may also be rounded the other way.
fn tolerance(dtype: Dtype, logit: f32) -> f32 {
    match dtype {
        Dtype::Fp32 => 2e-3 + 1e-4 * logit.abs(),
        Dtype::Fp16 | Dtype::Q8 => 5e-3 + 1e-3 * logit.abs(),
    }
}

struct Checker<'a> {
    model: &'a Rc<Model>,
    layout: &'a Layout,
    ring: ReadbackRing,
}

impl<'a> Checker<'a> {
    fn new(model: &'a Rc<Model>) -> Self {
        Checker {
            model,
            layout: model.weights().layout(),
            ring: ReadbackRing::new(model.gpu(), "self check", 1, PIECE_BYTES as u64, false),
        }
    }

    /// The sum of each buffer as it is, compared with the sum of what was written.
    async fn weights(&self) -> Result<Check> {
        let mut wrong = Vec::new();
        let mut bytes = 0;
        for (target, written) in self.model.weights().sums() {
            let (mut sum, length) = (0_u32, self.layout.bytes(target));
            for offset in (0..length).step_by(PIECE_BYTES) {
                let region = Region {
                    target,
                    offset,
                    bytes: (length - offset).min(PIECE_BYTES as u64) as usize,
                };
                sum = sum.wrapping_add(weighted_sum(offset, &self.read(region).await?));
            }
            bytes += length;
            if sum != written {
                wrong.push(format!("{target:?}"));
            }
        }
        Ok(Check {
            name: "weights",
            ok: wrong.is_empty(),
            detail: match &wrong[..] {
                [] => format!("{bytes} bytes on the GPU are those that were loaded"),
                [first, ..] => format!(
                    "{} weight buffers, such as {first}, are not what was loaded",
                    wrong.len()
                ),
            },
        })
    }

    /// Greedy ids with and without the cache.
    async fn cached(&self) -> Result<Check> {
        let prompt = self.prompt();
        let room = self.model.config().n_positions + 1 - prompt.len();
        let count = NEW_IDS.min(room);
        let cached = self.greedy(&prompt, count, true).await?;
        let uncached = self.greedy(&prompt, count, false).await?;
        Ok(Check {
            name: "cache",
            ok: cached == uncached,
            detail: format!("with the cache {cached:?}, without it {uncached:?}"),
        })
    }

    /// The logits of a short prompt on the GPU and in plain Rust.
    async fn reference(&self) -> Result<(Option<Check>, Option<f32>)> {
        let weights: u64 = Tensor::checkpoint_bytes(self.model.config()) / 4;
        if weights > MOST_WEIGHTS {
            return Ok((None, None));
        }
        let prompt = self.prompt();
        self.greedy(&prompt, 1, true).await?;
        let gpu = self.model.logits().await?;
        let cpu = self.forward(&prompt).await?;
        let mut ok = gpu.len() == cpu.len();
        let mut largest = 0.0_f32;
        for (gpu, cpu) in gpu.iter().zip(&cpu) {
            let difference = (gpu - cpu).abs();
            // Written so that NaN fails.
            ok &= difference <= tolerance(self.model.dtype(), *cpu);
            largest = if difference.is_nan() {
                f32::MAX
            } else {
                largest.max(difference)
            };
        }
        let check = Check {
            name: "reference",
            ok,
            detail: format!(
                "largest logit difference {largest:.1e} over {} ids after {prompt:?}",
                cpu.len()
            ),
        };
        Ok((Some(check), Some(largest)))
    }

    /// What others have published about these weights.
    async fn published(&self, published: &official::Published) -> Result<Option<Check>> {
        let dtype = self.model.dtype();
        let prompt = published.prompt;
        Ok(Some(match published.then {
            official::Then::Ids(of, ids) if of == dtype => {
                let got = self.greedy(prompt, ids.len(), true).await?;
                Check {
                    name: "published ids",
                    ok: got == ids,
                    detail: format!(
                        "after {prompt:?} came {got:?}, published are {ids:?} ({})",
                        published.source
                    ),
                }
            }
            official::Then::Logits(logits) if dtype == Dtype::Fp32 => {
                self.greedy(prompt, 1, true).await?;
                let got = self.model.logits().await?;
                let off = |(id, logit): &(u32, f32)| {
                    (got.get(*id as usize).unwrap_or(&f32::NAN) - logit).abs()
                };
                let largest = logits.iter().map(off).fold(0.0, f32::max);
                Check {
                    name: "published logits",
                    // They are published with 3 digits behind the point.
                    ok: logits
                        .iter()
                        .all(|each| off(each) <= tolerance(dtype, each.1) + 5e-4),
                    detail: format!(
                        "largest difference {largest:.1e} in {} logits after {prompt:?} ({})",
                        logits.len(),
                        published.source
                    ),
                }
            }
            _ => return Ok(None),
        }))
    }

    /// A few different ids, the same for every model of the same vocabulary.
    fn prompt(&self) -> Vec<u32> {
        let vocabulary = self.model.pickable();
        let count = PROMPT_IDS.min(self.model.config().n_positions);
        (0..count)
            .map(|i| ((464 + 1789 * i) % vocabulary) as u32)
            .collect()
    }

    async fn greedy(&self, prompt: &[u32], count: usize, use_cache: bool) -> Result<Vec<u32>> {
        let options = Options {
            use_cache,
            max_in_flight: 1,
            ..Options::greedy(count)
        };
        let generator = Generator::new(self.model, Prompt::Ids(prompt.to_vec()), options)?;
        let mut ids = Vec::new();
        while let Some(event) = generator.next().await {
            match event.kind {
                EventKind::Prefilled { step } | EventKind::Decoded { step, .. } => {
                    ids.push(step.token_id)
                }
                EventKind::Error { message, .. } => {
                    self.model.gpu().check()?;
                    return Err(Error::Internal(message));
                }
                _ => {}
            }
        }
        Ok(ids)
    }
}

/// A sum over 32-bit words in which every place counts differently and a word of zeros for nothing, so that buffers can be
/// written in any order and need not be filled.
pub(crate) fn weighted_sum(offset: u64, bytes: &[u8]) -> u32 {
    let first = (offset / 4) as u32;
    let (words, _) = bytes.as_chunks::<4>();
    let place = |i: usize| (first.wrapping_add(i as u32)).wrapping_mul(0x9e37_79b1) | 1;
    words.iter().enumerate().fold(0_u32, |sum, (i, word)| {
        sum.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(place(i)))
    })
}

/// Which targets a sum is kept of: those that the model still has.
pub(crate) fn is_head(target: Target) -> bool {
    matches!(target, Target::LmHead | Target::LmHeadScales)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_the_order_and_see_every_bit() {
        let bytes: Vec<u8> = (0..64_u8)
            .map(|i| i.wrapping_mul(7).wrapping_add(3))
            .collect();
        let whole = weighted_sum(0, &bytes);
        let parts = weighted_sum(40, &bytes[40..]).wrapping_add(weighted_sum(0, &bytes[..40]));
        assert_eq!(whole, parts);
        assert_eq!(weighted_sum(128, &[0; 64]), 0);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(weighted_sum(0, &changed), whole, "bit {bit}");
        }
        let mut swapped = bytes.clone();
        swapped.rotate_left(4);
        assert_ne!(weighted_sum(0, &swapped), whole);
    }
}

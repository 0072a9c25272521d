//! How the next id is picked: the options of `generate`, and the twin in plain Rust of the kernel `pick.wgsl`.
//!
//! The processors run in Hugging Face's order (`LogitsProcessorList` of transformers): repetition penalty, temperature,
//! top-k, top-p. Where ids have equal logits, top-k keeps all that equal the k-th, as transformers does, and top-p keeps
//! the group in which the sum is reached whole. Argmax takes the lowest of equal ids.
//!
//! Sampling is Gumbel-argmax: each kept id gets `logit / temperature + noise`, and the largest wins, which draws from the
//! softmax without computing it (Gumbel, 1954). The noise is a hash of (seed, position, id): there is no generator state to
//! keep or to rewind, and the same seed repeats the same text.

mod options;

use std::cmp::Reverse;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};

pub use options::{OptionValue, Options};

use crate::trace::RemovedBy;

/// The most candidates one step can list.
pub const MAX_TOP_LOGITS: usize = 40;

/// Bytes of a record before its candidates: id, kept, rest, position.
pub const RECORD_HEADER_BYTES: usize = 16;

/// u32 words of one candidate in a record: id and what removed it, raw logit, probability.
const CANDIDATE_WORDS: usize = 3;

/// Stands for "no candidate" where a vocabulary has fewer ids than the list has places.
const NO_CANDIDATE: u32 = u32::MAX;

/// Temperatures and penalties are moved into this range, so that products and quotients with logits stay finite in f32.
/// Beyond it nothing changes any more: 1e-30 already picks the largest logit, 1e30 already ignores the logits.
const FINITE: (f64, f64) = (1e-30, 1e30);

/// What the pick kernel needs to know about a run: the uniform `sampling`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct SamplingUniform {
    /// 1: draw; 0: take the largest.
    pub do_sample: u32,
    /// Ids to keep; 0 keeps all.
    pub top_k: u32,
    /// Probability to keep; 1 keeps all.
    pub top_p: f32,
    /// Divides the logits, above 0.
    pub temperature: f32,
    /// Divides positive and multiplies negative logits of ids that are already in the sequence; above 0.
    pub repetition_penalty: f32,
    /// Low 32 bits of the seed.
    pub seed_lo: u32,
    /// High bits of the seed.
    pub seed_hi: u32,
    /// Ids that may be picked are below this.
    pub n_vocab: u32,
    /// Candidates to list, at most [`MAX_TOP_LOGITS`].
    pub top_logits: u32,
    /// Fills the struct up to 48 bytes.
    pub pad: [u32; 3],
}

impl SamplingUniform {
    /// The uniform of a run. Without `do_sample` temperature, top_k and top_p have no effect, as in transformers.
    pub fn new(options: &Options, seed: u64, n_vocab: usize) -> Self {
        let draw = options.do_sample;
        SamplingUniform {
            do_sample: u32::from(draw),
            top_k: if draw { options.top_k } else { 0 },
            top_p: if draw { options.top_p } else { 1.0 },
            temperature: if draw { options.temperature } else { 1.0 },
            repetition_penalty: options.repetition_penalty,
            seed_lo: seed as u32,
            seed_hi: (seed >> 32) as u32,
            n_vocab: n_vocab.min(NO_CANDIDATE as usize) as u32,
            top_logits: options.top_logits,
            pad: [0; 3],
        }
    }
}

/// What one pick found.
#[derive(Debug, Clone, PartialEq)]
pub struct Picked {
    /// The id.
    pub id: u32,
    /// Ids that remained after top-k and top-p.
    pub kept: u32,
    /// Probability of all kept ids that are not listed: listed + rest = 1.
    pub rest: f32,
    /// The best ids, ranked after the penalty, equal ones by id; `top_logits` many, or all if there are fewer.
    pub candidates: Vec<PickedCandidate>,
}

/// One ranked id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PickedCandidate {
    /// The id.
    pub id: u32,
    /// The model's raw logit.
    pub logit: f32,
    /// Probability after all processors; 0 if removed.
    pub probability: f32,
    /// The processor that removed it, if one did.
    pub removed_by: Option<RemovedBy>,
}

impl Picked {
    /// Reads what the kernel wrote: `[id, kept, rest, position]`, then per candidate
    /// `[id | removed << 30, raw logit, probability]` with removed 0 for kept, 1 for top-k, 2 for top-p.
    ///
    /// A record that is cut short gives fewer candidates, never an error.
    pub fn from_record(bytes: &[u8]) -> Self {
        let mut words = bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let mut next = || words.next().unwrap_or_default();
        let (id, kept, rest) = (next(), next(), f32::from_bits(next()));
        next();
        let words: Vec<u32> = words.collect();
        let listed = words
            .chunks_exact(CANDIDATE_WORDS)
            .take_while(|candidate| candidate[0] != NO_CANDIDATE);
        let candidates = listed.map(|candidate| PickedCandidate {
            id: candidate[0] & 0x3FFF_FFFF,
            logit: f32::from_bits(candidate[1]),
            probability: f32::from_bits(candidate[2]),
            removed_by: match candidate[0] >> 30 {
                1 => Some(RemovedBy::TopK),
                2 => Some(RemovedBy::TopP),
                _ => None,
            },
        });
        Picked {
            id,
            kept,
            rest,
            candidates: candidates.collect(),
        }
    }
}

/// The twin of the kernel: picks the id that follows `tokens`, given the model's logits for it.
///
/// `logits` has V values, of which the first `sampling.n_vocab` count.
pub fn pick(logits: &[f32], tokens: &[u32], sampling: &SamplingUniform) -> Picked {
    let processed = Processed::new(logits, tokens, sampling);
    Picked {
        id: processed.pick(tokens.len() as u32),
        kept: processed.kept as u32,
        rest: processed.rest(),
        candidates: processed.candidates(),
    }
}

/// Logits that went through the processors.
pub struct Processed<'a> {
    logits: &'a [f32],
    sampling: &'a SamplingUniform,
    /// Logits after the repetition penalty.
    scores: Vec<f32>,
    /// All ids, the best first, equal ones by id.
    ranked: Vec<u32>,
    /// The first so many of `ranked` remain after top-k.
    after_top_k: usize,
    /// The first so many of `ranked` remain after top-p as well.
    kept: usize,
}

impl<'a> Processed<'a> {
    /// Runs the processors.
    pub fn new(logits: &'a [f32], tokens: &[u32], sampling: &'a SamplingUniform) -> Self {
        let logits = &logits[..logits.len().min(sampling.n_vocab as usize)];
        let scores = penalised(logits, tokens, sampling.repetition_penalty);
        let mut ranked: Vec<u32> = (0..scores.len() as u32).collect();
        ranked.sort_unstable_by_key(|&id| (Reverse(sort_key(scores[id as usize])), id));
        let everything = ranked.len();
        let mut processed = Processed {
            logits,
            sampling,
            scores,
            ranked,
            after_top_k: everything,
            kept: everything,
        };

        let top_k = sampling.top_k as usize;
        if (1..everything).contains(&top_k) {
            processed.after_top_k = processed.whole_group(top_k);
        }
        processed.kept = processed.after_top_k;
        if sampling.top_p < 1.0 {
            let enough = f64::from(sampling.top_p) * processed.mass(0..processed.after_top_k);
            let mut mass = 0.0;
            let reached = processed.ranked[..processed.after_top_k]
                .iter()
                .position(|&id| {
                    mass += processed.weight(id);
                    mass >= enough
                });
            processed.kept = reached.map_or(processed.after_top_k, |last| {
                processed.whole_group(last + 1)
            });
        }
        processed
    }

    /// The first `count` ranked ids and all that equal the last of them.
    fn whole_group(&self, count: usize) -> usize {
        let key = |id: u32| sort_key(self.scores[id as usize]);
        let last = key(self.ranked[count - 1]);
        self.ranked.partition_point(|&id| key(id) >= last)
    }

    /// log(probability) up to a constant: 0 for the best id. It is cut off far below what any noise can make up for, so that
    /// nothing overflows however small the temperature is.
    fn log_weight(&self, id: u32) -> f32 {
        let temperature = self.sampling.temperature;
        let below_best = self.scores[self.ranked[0] as usize] - self.scores[id as usize];
        -below_best.min(1000.0 * temperature) / temperature
    }

    fn weight(&self, id: u32) -> f64 {
        f64::from(self.log_weight(id).exp())
    }

    /// The sum of the weights of some ranks.
    fn mass(&self, ranks: Range<usize>) -> f64 {
        self.ranked[ranks]
            .iter()
            .fold(0.0, |sum, &id| sum + self.weight(id))
    }

    /// Draws from what is kept, or takes the best. The same position always gives the same id. Without any logits it is 0.
    pub fn pick(&self, position: u32) -> u32 {
        let best = self.ranked.first().copied().unwrap_or_default();
        if self.sampling.do_sample == 0 {
            return best;
        }
        let noise = Noise::new(self.sampling.seed_lo, self.sampling.seed_hi, position);
        let noisy = |id: u32| sort_key(self.log_weight(id) + noise.gumbel(id));
        let kept = self.ranked[..self.kept].iter().copied();
        kept.max_by_key(|&id| (noisy(id), Reverse(id)))
            .unwrap_or(best)
    }

    fn listed(&self) -> usize {
        self.ranked.len().min(self.sampling.top_logits as usize)
    }

    /// The best `top_logits` ids.
    pub fn candidates(&self) -> Vec<PickedCandidate> {
        let total = self.mass(0..self.kept);
        let candidate = |(rank, &id): (usize, &u32)| PickedCandidate {
            id,
            logit: self.logits[id as usize],
            probability: if rank < self.kept {
                (self.weight(id) / total) as f32
            } else {
                0.0
            },
            removed_by: match rank {
                rank if rank >= self.after_top_k => Some(RemovedBy::TopK),
                rank if rank >= self.kept => Some(RemovedBy::TopP),
                _ => None,
            },
        };
        self.ranked[..self.listed()]
            .iter()
            .enumerate()
            .map(candidate)
            .collect()
    }

    /// The probability of the kept ids that are not among the candidates.
    pub fn rest(&self) -> f32 {
        (self.mass(self.listed().min(self.kept)..self.kept) / self.mass(0..self.kept)) as f32
    }
}

/// The repetition penalty of CTRL (Keskar et al., 2019): ids that are in the sequence become less likely, whatever the
/// sign of their logit, and no more so for being there often.
fn penalised(logits: &[f32], tokens: &[u32], penalty: f32) -> Vec<f32> {
    let mut scores = logits.to_vec();
    for &id in tokens {
        if let Some(&logit) = logits.get(id as usize) {
            scores[id as usize] = if logit < 0.0 {
                logit * penalty
            } else {
                logit / penalty
            };
        }
    }
    scores
}

/// A u32 that orders like the f32: -0 and 0 are equal.
fn sort_key(value: f32) -> u32 {
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 0x8000_0000
    }
}

/// Noise for every id at one position of one run.
struct Noise {
    key: u32,
}

impl Noise {
    fn new(seed_lo: u32, seed_hi: u32, position: u32) -> Self {
        Noise {
            key: mix(mix(mix(position) ^ seed_lo) ^ seed_hi),
        }
    }

    /// Standard Gumbel noise, -log(-log(u)) with u uniform in (0, 1).
    ///
    /// It is computed as -log(e) with e = -log(1 - v), v = 1 - u: the largest noise, which decides, comes from the smallest
    /// v, and there both v (32 bits) and the series for e are precise, while log near 1 is not (WGSL allows 2^-21).
    fn gumbel(&self, id: u32) -> f32 {
        let hash = mix(mix(id ^ self.key).wrapping_add(self.key));
        let v = ((hash as f32 + 0.5) / 4_294_967_296.0).min(0.999_999_94);
        let e = if v < 0.0625 {
            v * (1.0 + v * (1.0 / 2.0 + v * (1.0 / 3.0 + v * (1.0 / 4.0 + v * (1.0 / 5.0)))))
        } else {
            -(1.0 - v).ln()
        };
        -e.ln()
    }
}

/// A bijection of u32 in which each input bit changes each output bit with a chance of one half: two rounds of
/// multiply and xor-shift (constants of Chris Wellons' "lowbias32", found by search).
fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7FEB_352D);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

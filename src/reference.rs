//! GPT-2 in plain Rust, to be read first: what the shaders do, without a GPU.
//!
//! [`forward`] is the whole model. It runs T new positions on top of the P that are in the [`Cache`], so the same code
//! is prefill (T = the prompt, P = 0) and decode (T = 1). Every step is a small function over f32 slices in row-major
//! order, and each of them is what the kernel of the same name is compared with.
//!
//! Axis letters: T rows in this pass, P cached positions, L layers, H heads, D head size, C = H * D, F = inner size,
//! V vocabulary. All weights have the names and the shapes of the checkpoint; nothing is padded.

mod weights;

use half::f16;

pub use weights::{Attention, Block, LayerNorm, Linear, Mlp, Weights};

use crate::config::{Activation, Config};
use crate::error::{Error, Result};

/// The keys and values of one layer, position after position: `past_key_values[layer]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerCache {
    /// `[P, C]`
    pub keys: Vec<f32>,
    /// `[P, C]`
    pub values: Vec<f32>,
    /// Whether both are rounded to f16, as a cache of half the size holds them.
    pub half: bool,
}

impl LayerCache {
    /// Appends the key and the value of one position, `[C]` each.
    pub fn push(&mut self, key: &[f32], value: &[f32]) {
        let half = self.half;
        let stored = |x: &f32| if half { f16::from_f32(*x).to_f32() } else { *x };
        self.keys.extend(key.iter().map(stored));
        self.values.extend(value.iter().map(stored));
    }
}

/// `past_key_values`: what attention needs of all earlier positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// One per layer.
    pub layers: Vec<LayerCache>,
    /// P: positions held.
    pub len: usize,
}

impl Cache {
    /// An empty cache for a model of this shape.
    pub fn new(config: &Config) -> Cache {
        Cache {
            layers: vec![LayerCache::default(); config.n_layer],
            len: 0,
        }
    }

    /// An empty cache that rounds keys and values to f16.
    pub fn half(config: &Config) -> Cache {
        let mut cache = Cache::new(config);
        cache.layers.iter_mut().for_each(|layer| layer.half = true);
        cache
    }
}

/// Runs `ids` (T of them) after the positions in `cache`, adds theirs to it, and returns the logits `[V]` of the last one.
///
/// # Errors
/// [`Error::BadOption`] for no ids or an id outside the vocabulary, [`Error::PromptTooLong`] where P + T exceeds
/// `n_positions`. The cache is unchanged then.
pub fn forward(
    config: &Config,
    weights: &Weights,
    ids: &[u32],
    cache: &mut Cache,
) -> Result<Vec<f32>> {
    check_ids(config, ids, cache.len)?;
    let mut x = embed(weights, config.n_embd, ids, cache.len); // [T, C]
    for (layer, (weights, cache)) in weights.h.iter().zip(&mut cache.layers).enumerate() {
        block(config, layer, weights, &mut x, cache); // [T, C] -> [T, C]
    }
    cache.len += ids.len();
    let last = &x[x.len() - config.n_embd..]; // [C]: only the last row predicts a new token
    Ok(head(config, weights, last)) // [C] -> [V]
}

/// One block on x `[T, C]`: each half reads the residual stream through a layer norm and adds what it found.
pub fn block(
    config: &Config,
    layer: usize,
    weights: &Block,
    x: &mut [f32],
    cache: &mut LayerCache,
) {
    let normed = layer_norm(x, &weights.ln_1, config.layer_norm_epsilon); // [T, C]
    let qkv = linear(&normed, &weights.attn.c_attn); // [T, 3C]
    let q = split_qkv(&qkv, config.n_embd, cache); // [T, C]; k and v go to the cache
    let (h, d, scale) = (config.n_head, config.head_size(), config.score_scale(layer));
    let mixed = attention(&q, cache, h, d, scale); // [T, C]
    add(x, &linear(&mixed, &weights.attn.c_proj)); // [T, C]

    let normed = layer_norm(x, &weights.ln_2, config.layer_norm_epsilon); // [T, C]
    let mut inner = linear(&normed, &weights.mlp.c_fc); // [T, F]
    for x in &mut inner {
        *x = activation(config.activation_function, *x);
    }
    add(x, &linear(&inner, &weights.mlp.c_proj)); // [T, C]
}

/// Ids at positions past.. -> x `[T, C]`: the row of the token plus the row of the position.
pub fn embed(weights: &Weights, c: usize, ids: &[u32], past: usize) -> Vec<f32> {
    let mut x = weights.wpe[past * c..(past + ids.len()) * c].to_vec(); // [T, C]
    for (row, id) in x.chunks_exact_mut(c).zip(ids) {
        add(row, &weights.wte[*id as usize * c..][..c]);
    }
    x
}

/// x `[T, C]` -> `[T, C]`: each row gets mean 0 and variance 1, then weight and bias.
pub fn layer_norm(x: &[f32], ln: &LayerNorm, epsilon: f32) -> Vec<f32> {
    let c = ln.weight.len();
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(c) {
        let mean = row.iter().sum::<f32>() / c as f32;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / c as f32;
        let scale = 1.0 / (variance + epsilon).sqrt();
        for ((x, weight), bias) in row.iter().zip(&ln.weight).zip(&ln.bias) {
            out.push((x - mean) * scale * weight + bias);
        }
    }
    out
}

/// x `[T, K]` -> y `[T, N]` = x · weight + bias.
///
/// Row k of the weights is added to the outputs, times `x[k]`: both are contiguous. Eight rows of x share one reading
/// of the weights, which are far larger than the caches of a CPU.
pub fn linear(x: &[f32], layer: &Linear) -> Vec<f32> {
    const ROWS: usize = 8;
    let n = layer.bias.len();
    let k = layer.weight.len() / n;
    let mut y = layer.bias.repeat(x.len() / k); // [T, N]
    for (x, y) in x.chunks(ROWS * k).zip(y.chunks_mut(ROWS * n)) {
        for (k_index, weight) in layer.weight.chunks_exact(n).enumerate() {
            for (x, y) in x.chunks_exact(k).zip(y.chunks_exact_mut(n)) {
                let scale = x[k_index];
                for (y, w) in y.iter_mut().zip(weight) {
                    *y += scale * w;
                }
            }
        }
    }
    y
}

/// qkv `[T, 3C]` -> q `[T, C]`; appends k `[T, C]` and v `[T, C]` to the layer's cache.
pub fn split_qkv(qkv: &[f32], c: usize, cache: &mut LayerCache) -> Vec<f32> {
    let mut q = Vec::with_capacity(qkv.len() / 3);
    for row in qkv.chunks_exact(3 * c) {
        q.extend_from_slice(&row[..c]);
        cache.push(&row[c..2 * c], &row[2 * c..]);
    }
    q
}

/// q `[T, C]` on a cache of P + T positions -> `[T, C]`: per head, the mean of the values, weighted by how well each key
/// fits the query.
///
/// The row of position p sees positions 0..=p. That is the causal mask: later ones are never looked at.
pub fn attention(q: &[f32], cache: &LayerCache, n_head: usize, d: usize, scale: f32) -> Vec<f32> {
    let c = n_head * d;
    let past = (cache.keys.len() - q.len()) / c; // P
    let mut out = vec![0.0; q.len()]; // [T, C]
    for (t, (q, out)) in q.chunks_exact(c).zip(out.chunks_exact_mut(c)).enumerate() {
        let seen = (past + t + 1) * c;
        for head in 0..n_head {
            let columns = head * d..(head + 1) * d;
            let q = &q[columns.clone()]; // [D]
            let weights = attention_weights(q, &cache.keys[..seen], c, columns.start, scale);
            let out = &mut out[columns.clone()]; // [D]
            for (weight, value) in weights.iter().zip(cache.values.chunks_exact(c)) {
                for (out, v) in out.iter_mut().zip(&value[columns.clone()]) {
                    *out += weight * v;
                }
            }
        }
    }
    out
}

/// q `[D]` of one head and keys `[P, C]` -> `[P]`: how much each position counts; the sum is 1.
pub fn attention_weights(
    q: &[f32],
    keys: &[f32],
    c: usize,
    first_column: usize,
    scale: f32,
) -> Vec<f32> {
    let mut scores: Vec<f32> = keys
        .chunks_exact(c)
        .map(|key| dot(q, &key[first_column..][..q.len()]) * scale)
        .collect();
    softmax(&mut scores);
    scores
}

/// x `[C]` -> logits `[V]`: the last layer norm, then one dot product with each row of the head.
pub fn head(config: &Config, weights: &Weights, x: &[f32]) -> Vec<f32> {
    let normed = layer_norm(x, &weights.ln_f, config.layer_norm_epsilon); // [C]
    let rows = weights.lm_head.as_ref().unwrap_or(&weights.wte); // [V, C]
    rows.chunks_exact(config.n_embd)
        .map(|row| dot(&normed, row))
        .collect()
}

/// Turns scores into weights that are positive and sum to 1, in place. The maximum is taken off first, so that `exp`
/// cannot overflow.
pub fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(-1e30, f32::max);
    scores.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|x| *x /= sum);
}

/// One value through the MLP's activation.
pub fn activation(kind: Activation, x: f32) -> f32 {
    match kind {
        Activation::GeluErf => gelu_erf(x),
        Activation::GeluClipped => gelu_erf(x).clamp(-10.0, 10.0),
        Activation::GeluTanh => {
            const SQRT_2_OVER_PI: f32 = 0.797_884_6;
            0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)).tanh())
        }
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Relu => x.max(0.0),
        Activation::Silu => x * sigmoid(x),
        Activation::Tanh => x.tanh(),
    }
}

fn gelu_erf(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(f64::from(x) / std::f64::consts::SQRT_2) as f32)
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function by its series 2/sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (1*3*...*(2n+1)).
///
/// All terms have one sign, so nothing cancels: as exact as f64 where it matters. Beyond 6 the result is 1 to 16 digits.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// x += y, value by value: the residual connection.
pub fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// The sum of products. Eight partial sums, because a single one could not use the CPU's vector registers.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a8
        .remainder()
        .iter()
        .zip(b8.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    rest + sums.iter().sum::<f32>()
}

fn check_ids(config: &Config, ids: &[u32], past: usize) -> Result<()> {
    if ids.is_empty() {
        return Err(Error::BadOption(
            "input_ids is empty: give at least one id.".into(),
        ));
    }
    if let Some(id) = ids.iter().find(|id| **id as usize >= config.vocab_size) {
        return Err(Error::BadOption(format!(
            "input_ids has the id {id}, but the model's vocabulary ends at {}.",
            config.vocab_size - 1
        )));
    }
    if past + ids.len() > config.n_positions {
        return Err(Error::PromptTooLong(format!(
            "{} ids after {past} positions do not fit into the model's {} positions.",
            ids.len(),
            config.n_positions
        )));
    }
    Ok(())
}

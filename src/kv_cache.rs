//! `past_key_values`: keys and values of every position so far, in GPU buffers allocated once, and the ids they came from.
//! The only place that knows the position.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::checkpoint::{Dtype, Layout};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, MemoryClass, Tensor};

/// W: how many of the last positions keep their query, so that the attention of the last delivered token can be shown even
/// after steps ahead of it were dropped. More than the most steps in flight.
pub const QUERY_RING: usize = 16;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrValue {
    /// K.
    Key,
    /// V.
    Value,
}

/// Keys and values of all layers, and where the run stands.
pub struct KvCache {
    gpu: Rc<Gpu>,
    /// Per layer `[2, n_positions, A]`: K, then V.
    layers: Vec<Tensor>,
    /// Per layer `[W, A]`: queries, slot = position mod W.
    queries: Vec<Tensor>,
    /// `[n_positions + 1]`: every id of the run, prompt first; `pick` appends.
    tokens: Tensor,
    /// `State` of shaders/common.wgsl.
    state: Tensor,
    half: bool,
    a: usize,
    n_positions: usize,
    /// The ids of the run that the CPU has seen.
    ids: RefCell<Vec<u32>>,
    /// Positions whose keys and values are in the cache, as far as the CPU has seen.
    len: Cell<usize>,
    /// Positions that the submitted steps will have cached.
    submitted: Cell<usize>,
}

impl KvCache {
    /// Allocates the cache for all positions of the model.
    ///
    /// # Errors
    /// [`Error::Limit`] if one layer's share is larger than the adapter binds.
    pub fn new(gpu: &Rc<Gpu>, layout: &Layout) -> Result<Self> {
        let config = layout.config();
        let half = layout.dtype() != Dtype::Fp32;
        let value_bytes = if half { 2 } else { 4 };
        let layer_bytes = (2 * config.n_positions * layout.a * value_bytes) as u64;
        let per_layer = |what: &str, bytes: u64| {
            (0..config.n_layer)
                .map(|layer| {
                    Tensor::new(
                        gpu,
                        &format!("h.{layer} {what}"),
                        bytes,
                        MemoryClass::KvCache,
                    )
                })
                .collect::<Result<Vec<_>>>()
        };
        Ok(Self {
            layers: per_layer("keys and values", layer_bytes)?,
            queries: per_layer("queries", (QUERY_RING * layout.a * 4) as u64)?,
            tokens: Tensor::new(
                gpu,
                "tokens",
                (config.n_positions as u64 + 1) * 4,
                MemoryClass::KvCache,
            )?,
            state: Tensor::new(gpu, "state", 32, MemoryClass::KvCache)?,
            gpu: gpu.clone(),
            half,
            a: layout.a,
            n_positions: config.n_positions,
            ids: RefCell::default(),
            len: Cell::new(0),
            submitted: Cell::new(0),
        })
    }

    /// `get_seq_length()`: cached positions.
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Positions that there is room for.
    pub fn capacity(&self) -> usize {
        self.n_positions
    }

    /// Whether keys and values are stored as f16.
    pub fn is_half(&self) -> bool {
        self.half
    }

    /// Bytes that one position takes in all layers, K and V.
    pub fn position_bytes(&self) -> usize {
        self.layers.len() * 2 * self.a * if self.half { 2 } else { 4 }
    }

    pub(crate) fn layer(&self, layer: usize) -> &Tensor {
        &self.layers[layer]
    }

    pub(crate) fn queries(&self, layer: usize) -> &Tensor {
        &self.queries[layer]
    }

    pub(crate) fn tokens(&self) -> &Tensor {
        &self.tokens
    }

    pub(crate) fn state(&self) -> &Tensor {
        &self.state
    }

    /// Begins a run: uploads the ids of the prompt and keeps what the cache shares with it.
    ///
    /// Returns how many leading positions need no computation: the common prefix if `reuse` is on, but never the last id,
    /// whose logits are wanted.
    ///
    /// # Errors
    /// [`Error::Internal`] if the prompt does not fit, which the caller checks first.
    pub fn begin(&self, prompt: &[u32], reuse: bool) -> Result<usize> {
        let common = if reuse {
            let ids = self.ids.borrow();
            let cached = &ids[..self.len().min(ids.len())];
            let common = cached
                .iter()
                .zip(prompt)
                .take_while(|(a, b)| a == b)
                .count();
            common.min(prompt.len() - 1)
        } else {
            0
        };
        *self.ids.borrow_mut() = prompt.to_vec();
        self.len.set(common);
        self.submitted.set(common);
        self.gpu
            .write(&self.tokens, 0, bytemuck::cast_slice(prompt))?;
        Ok(common)
    }

    /// Tells the GPU where the next pass stands: its first row at `past`, with `rows` rows.
    pub(crate) fn seek(&self, past: usize, rows: usize) -> Result<()> {
        self.submitted.set(past);
        let state = [past as u32, rows as u32, 0, 0, 0, 0, 0, 0];
        self.gpu.write(&self.state, 0, bytemuck::cast_slice(&state))
    }

    /// Notes that a pass of `rows` rows was submitted; returns the position of its first row.
    pub(crate) fn submit(&self, rows: usize) -> usize {
        let past = self.submitted.get();
        self.submitted.set(past + rows);
        past
    }

    /// Notes that the pass which cached everything below `len` has arrived, with the id it picked, if it picked one.
    pub(crate) fn arrived(&self, len: usize, picked: Option<u32>) {
        self.len.set(len);
        if let Some(id) = picked {
            let mut ids = self.ids.borrow_mut();
            ids.truncate(len);
            ids.push(id);
        }
    }

    /// Forgets everything; the buffers stay. Also the end of a run without a cache, which used them as scratch.
    pub fn clear(&self) {
        self.ids.borrow_mut().clear();
        self.len.set(0);
        self.submitted.set(0);
    }

    /// Where the A values of K or V at `position` lie in a layer's tensor: offset and length in bytes.
    ///
    /// # Errors
    /// [`Error::BadOption`] if nothing is cached there.
    pub(crate) fn row(
        &self,
        layer: usize,
        which: KeyOrValue,
        position: usize,
    ) -> Result<(u64, u64)> {
        if layer >= self.layers.len() {
            return Err(Error::BadOption(format!(
                "layer is {layer}, but this model has layers 0 to {}.",
                self.layers.len() - 1
            )));
        }
        if position >= self.len() {
            return Err(Error::BadOption(format!(
                "position is {position}, but {} positions are cached. Generate first, with use_cache on.",
                self.len()
            )));
        }
        let bytes = (self.a * if self.half { 2 } else { 4 }) as u64;
        let row = position
            + if which == KeyOrValue::Value {
                self.n_positions
            } else {
                0
            };
        Ok((row as u64 * bytes, bytes))
    }

    /// A values as read back, as f32, without the padding of the heads: C values.
    pub(crate) fn unpack(&self, bytes: &[u8], head_size: usize) -> Vec<f32> {
        let padded = head_size.next_multiple_of(4);
        let values: Vec<f32> = if self.half {
            bytes
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect()
        } else {
            bytemuck::pod_collect_to_vec(bytes)
        };
        values
            .chunks_exact(padded)
            .flat_map(|head| head[..head_size].iter().copied())
            .collect()
    }
}

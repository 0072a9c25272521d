//! GPT-2 on the GPU: the two plans, which read like a textbook forward pass, and the passes that replay them.

mod plan;
mod weights;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use web_time::Instant;

pub use plan::Tuning;
pub use weights::{PARTS, Table, Weights};

use crate::checkpoint::{Dtype, Layout, LoadReport, Target};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::generator::Interrupter;
use crate::gpu::{Arrival, Gpu, Lease, ReadbackRing, Region, TIMESTAMP_BYTES, Tensor};
use crate::kernel::Op;
use crate::kv_cache::{KeyOrValue, KvCache};
use crate::sampling::{Options, Picked, RECORD_HEADER_BYTES, SamplingUniform};
use crate::tokenizer::Tokenizer;

/// The most rows in one prefill chunk.
pub const MAX_CHUNK: usize = 512;

/// The least rows in one prefill chunk: one tile of the matrix kernels.
pub const MIN_CHUNK: usize = 8;

/// How long one prefill chunk should take, milliseconds: short enough to be interrupted, and for every driver's watchdog.
const CHUNK_MS: f64 = 100.0;

/// The most steps in flight, and the slots beyond them for maps that were abandoned and have not completed.
pub const MAX_IN_FLIGHT: usize = 8;

/// A model that is ready to run.
pub struct Model {
    gpu: Rc<Gpu>,
    config: Config,
    weights: Weights,
    cache: KvCache,
    tokenizer: Option<Rc<Tokenizer>>,
    tuning: Tuning,
    activations: plan::Activations,
    prefill: Vec<Op>,
    decode: Vec<Op>,
    head: Vec<Op>,
    steps: ReadbackRing,
    cells: ReadbackRing,
    chunk_rows: Cell<usize>,
    /// The run that has the model now.
    running: RefCell<Option<Interrupter>>,
    disposed: Cell<bool>,
    /// Whether the cache belongs to the last run; a run without a cache used it as scratch.
    scratch: Cell<bool>,
    warnings: Vec<String>,
}

/// A pass on its way: what it computes, and its result when it arrives.
pub struct Pass {
    /// The result.
    pub arrival: Arrival,
    /// When it was submitted.
    pub submitted_at: Instant,
    /// Position of its first row.
    pub past: usize,
    /// Rows (T).
    pub rows: usize,
    /// Submits it took.
    pub chunks: usize,
    /// Bytes of its answer, timestamps not counted.
    pub record_bytes: usize,
}

/// What a pass answered.
pub struct Outcome {
    /// The id it picked with its candidates; `None` for a chunk that is not the last.
    pub picked: Option<Picked>,
    /// By the GPU's clock, if it has one and timed all of it.
    pub gpu_ms: Option<f64>,
}

impl Model {
    /// Makes the plans for weights that are on the GPU already, and warms every pipeline with one step.
    ///
    /// # Errors
    /// [`Error::BadTokenizer`] if the tokenizer has ids that the model has no row for; [`Error::Limit`],
    /// [`Error::OutOfMemory`] or [`Error::Internal`] from the GPU.
    pub async fn new(
        gpu: Rc<Gpu>,
        mut weights: Weights,
        report: &LoadReport,
        tokenizer: Option<Rc<Tokenizer>>,
        tuning: Option<Tuning>,
    ) -> Result<Rc<Self>> {
        let config = weights.layout().config().clone();
        if report.tied {
            weights.tie();
        }
        let mut warnings = report.warnings.clone();
        if let Some(tokenizer) = &tokenizer {
            let (ids, rows) = (tokenizer.vocab_size(), config.vocab_size);
            if ids > rows {
                return Err(Error::BadTokenizer(format!(
                    "The tokenizer has ids up to {}, but the model's wte has {rows} rows. Use the tokenizer that \
                     belongs to this model.",
                    ids - 1
                )));
            }
            if ids < rows {
                warnings.push(format!(
                    "The model has {rows} rows, the tokenizer {ids} ids: ids {ids} to {} are never picked.",
                    rows - 1
                ));
            }
        }
        let tuning = tuning.unwrap_or_else(|| Tuning::for_device(gpu.info()));
        let (cache, activations) = gpu
            .allocating(|| {
                Ok((
                    KvCache::new(&gpu, weights.layout())?,
                    plan::Activations::new(&gpu, weights.layout(), tuning)?,
                ))
            })
            .await?;
        let plans = plan::record(&gpu, &weights, &cache, &activations, tuning)?;
        let slots = 2 * MAX_IN_FLIGHT;
        let model = Rc::new(Self {
            steps: ReadbackRing::new(
                &gpu,
                "step results",
                slots,
                activations.record.bytes() + TIMESTAMP_BYTES,
                true,
            ),
            cells: ReadbackRing::new(
                &gpu,
                "cells",
                4,
                plan::cell_bytes(weights.layout(), &cache),
                false,
            ),
            gpu,
            config,
            weights,
            cache,
            tokenizer,
            tuning,
            activations,
            prefill: plans.prefill,
            decode: plans.decode,
            head: plans.head,
            chunk_rows: Cell::new(MIN_CHUNK),
            running: RefCell::default(),
            disposed: Cell::new(false),
            scratch: Cell::new(false),
            warnings,
        });
        model.warm_up().await?;
        Ok(model)
    }

    /// One prefill chunk and one decode step, so that every pipeline is compiled, and the rate for the first chunk known.
    async fn warm_up(&self) -> Result<()> {
        let rows = MIN_CHUNK.min(self.config.n_positions - 1).max(1);
        let options = Options::greedy(1);
        for _ in 0..2 {
            let start = Instant::now();
            self.begin(&vec![0; rows], &options, 0)?;
            self.prefill(0, rows, true)
                .await?
                .await_outcome(self)
                .await?;
            self.learn_rate(rows, start.elapsed().as_secs_f64() * 1e3);
        }
        if self.config.n_positions > rows {
            self.decode().await?.await_outcome(self).await?;
        }
        self.cache.clear();
        self.gpu.check()
    }

    /// The device.
    pub fn gpu(&self) -> &Rc<Gpu> {
        &self.gpu
    }

    /// Its config.json.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How its matrices are stored.
    pub fn dtype(&self) -> Dtype {
        self.weights.layout().dtype()
    }

    /// Its weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Its cache.
    pub fn past_key_values(&self) -> &KvCache {
        &self.cache
    }

    /// Its tokenizer, if its folder has one.
    pub fn tokenizer(&self) -> Option<&Rc<Tokenizer>> {
        self.tokenizer.as_ref()
    }

    /// What was found while loading and is worth knowing.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// How its kernels are cut.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// The kernels of one decode step, in order.
    pub fn decode_kernels(&self) -> Vec<&'static str> {
        self.decode.iter().chain(&self.head).map(Op::name).collect()
    }

    /// The kernels of one prefill chunk, in order; the last chunk has the head and the pick behind them.
    pub fn prefill_kernels(&self) -> Vec<&'static str> {
        self.prefill.iter().map(Op::name).collect()
    }

    /// Claims the model for one run.
    ///
    /// # Errors
    /// [`Error::Busy`] while another run has it, [`Error::Disposed`] after [`Model::dispose`], or the device's fault.
    pub(crate) fn claim(&self, run: Interrupter) -> Result<()> {
        self.check()?;
        let mut running = self.running.borrow_mut();
        if running.is_some() {
            return Err(Error::Busy(
                "A generation is already running on this model. Stop it or wait for its end."
                    .into(),
            ));
        }
        *running = Some(run);
        Ok(())
    }

    pub(crate) fn release(&self) {
        *self.running.borrow_mut() = None;
    }

    /// Fails if the model was disposed or its device has a fault.
    pub(crate) fn check(&self) -> Result<()> {
        if self.disposed.get() {
            return Err(Error::Disposed(
                "This model was disposed. Load it again to use it.".into(),
            ));
        }
        self.gpu.check()
    }

    /// Gives all GPU memory back. A running generation ends with [`Error::Disposed`].
    pub fn dispose(&self) {
        self.disposed.set(true);
        if let Some(run) = &*self.running.borrow() {
            run.interrupt();
        }
        self.gpu.destroy();
    }

    /// Uploads the prompt and the sampling options; returns how many leading positions are reused from the cache.
    pub(crate) fn begin(&self, prompt: &[u32], options: &Options, seed: u64) -> Result<usize> {
        let uniform = SamplingUniform::new(options, seed, self.pickable());
        self.gpu
            .write(&self.activations.sampling, 0, bytemuck::bytes_of(&uniform))?;
        self.activations.listed.set(options.top_logits as usize);
        let reuse = options.reuse && options.use_cache && !self.scratch.get();
        self.scratch.set(!options.use_cache);
        self.cache.begin(prompt, reuse)
    }

    /// How many ids, from 0 on, may be picked: those that have a text.
    pub(crate) fn pickable(&self) -> usize {
        match &self.tokenizer {
            Some(tokenizer) => tokenizer.vocab_size().min(self.config.vocab_size),
            None => self.config.vocab_size,
        }
    }

    /// Empties the cache.
    pub(crate) fn forget(&self) {
        self.cache.clear();
    }

    /// Rows for the next prefill chunk.
    pub(crate) fn chunk_rows(&self) -> usize {
        #[cfg(feature = "test-hooks")]
        if let Some(rows) = self.gpu.hooks.chunk_rows() {
            return rows;
        }
        self.chunk_rows.get()
    }

    /// Sizes the next chunk from how long `rows` rows took.
    pub(crate) fn learn_rate(&self, rows: usize, ms: f64) {
        let fitting = (rows as f64 * CHUNK_MS / ms.max(0.01)) as usize;
        // A model may have fewer positions than the least chunk; no prompt is longer than that.
        let most = self.activations.rows.max(MIN_CHUNK);
        let chunk = fitting.clamp(MIN_CHUNK, most);
        self.chunk_rows.set(chunk / MIN_CHUNK * MIN_CHUNK);
    }

    /// Submits one prefill chunk: `rows` rows from position `past`; with `pick`, the head and the pick follow.
    ///
    /// # Errors
    /// The device's fault.
    pub(crate) async fn prefill(&self, past: usize, rows: usize, pick: bool) -> Result<Pass> {
        let lease = self.steps.lease().await?;
        self.cache.seek(past, rows)?;
        let plans: &[&[Op]] = if pick {
            &[&self.prefill, &self.head]
        } else {
            &[&self.prefill]
        };
        Ok(self.submit(plans, rows, pick, 1, lease))
    }

    /// Submits one decode step behind whatever was submitted last: its input is the id that the GPU picked.
    ///
    /// # Errors
    /// The device's fault.
    pub(crate) async fn decode(&self) -> Result<Pass> {
        let lease = self.steps.lease().await?;
        Ok(self.submit(&[&self.decode, &self.head], 1, true, 1, lease))
    }

    /// Submits one step without a cache: all `rows` positions again, in chunks.
    ///
    /// # Errors
    /// The device's fault.
    pub(crate) async fn recompute(&self, rows: usize) -> Result<Pass> {
        let lease = self.steps.lease().await?;
        let mut past = 0;
        let mut chunks = 1;
        while rows - past > self.chunk_rows() {
            let chunk = self.chunk_rows();
            self.cache.seek(past, chunk)?;
            self.gpu.replay(&[&self.prefill], chunk as u32, None, &[]);
            past += chunk;
            chunks += 1;
        }
        self.cache.seek(past, rows - past)?;
        let mut pass = self.submit(
            &[&self.prefill, &self.head],
            rows - past,
            true,
            chunks,
            lease,
        );
        (pass.past, pass.rows) = (0, rows);
        Ok(pass)
    }

    /// Puts the GPU back to where the CPU is, after steps in flight were dropped.
    pub(crate) fn rewind(&self) -> Result<()> {
        self.cache.seek(self.cache.len(), 1)
    }

    fn submit(
        &self,
        plans: &[&[Op]],
        rows: usize,
        pick: bool,
        chunks: usize,
        lease: Lease,
    ) -> Pass {
        let record_bytes = if pick {
            self.activations.record_bytes()
        } else {
            4
        };
        let region = Region {
            tensor: &self.activations.record,
            offset: 0,
            bytes: record_bytes as u64,
        };
        let submitted_at = Instant::now();
        self.gpu.replay(plans, rows as u32, Some(&lease), &[region]);
        let past = self.cache.submit(rows);
        let timed = if self.gpu.has_timestamps() {
            TIMESTAMP_BYTES
        } else {
            0
        };
        Pass {
            arrival: lease.map(record_bytes as u64 + timed),
            submitted_at,
            past,
            rows,
            chunks,
            record_bytes,
        }
    }

    /// Floating point operations of a pass, counted from the shapes (a multiply-add is two): the matrices for every row,
    /// attention over all positions each row sees, the head once.
    pub fn flops(&self, past: usize, rows: usize) -> f64 {
        let [l, c, f, v, t, p] = [
            self.config.n_layer,
            self.config.n_embd,
            self.config.n_inner,
            self.config.vocab_size,
            rows,
            past,
        ]
        .map(|n| n as f64);
        let matrices = 2.0 * t * (4.0 * c * c + 2.0 * c * f);
        let seen = t * p + t * (t + 1.0) / 2.0;
        l * (matrices + 4.0 * c * seen) + 2.0 * c * v
    }

    /// Bytes of weights and cache that a pass must move, counted from the shapes: every weight once, the embeddings of its
    /// rows, the cached positions read, its own written.
    pub fn bytes(&self, past: usize, rows: usize) -> f64 {
        let layout: &Layout = self.weights.layout();
        let table = (layout.tiles() * (layout.tile_bytes() + 4 * layout.tile_scales())) as f64;
        let once: u64 = layout
            .targets()
            .iter()
            .filter(|t| {
                matches!(
                    t,
                    Target::Matrix { .. } | Target::Params { .. } | Target::FinalParams
                )
            })
            .map(|t| layout.bytes(*t))
            .sum();
        let embeddings = (rows * layout.c_p * (layout.dtype().value_bytes() + 4)) as f64;
        let cached = (self.cache.position_bytes() * (past + 2 * rows)) as f64;
        once as f64 + table + embeddings + cached
    }

    /// Positions whose attention can be read: only of a run with a cache.
    fn readable(&self) -> Result<()> {
        self.check()?;
        if self.cache.is_empty() {
            return Err(Error::BadOption(
                "Nothing is cached. Generate first, with use_cache on.".into(),
            ));
        }
        Ok(())
    }

    /// The key or value of one position in one layer, as it lies in the cache: C values.
    ///
    /// # Errors
    /// [`Error::BadOption`] if there is no such layer or nothing is cached at that position.
    pub async fn read_kv(
        &self,
        layer: usize,
        which: KeyOrValue,
        position: usize,
    ) -> Result<Vec<f32>> {
        self.readable()?;
        let (offset, bytes) = self.cache.row(layer, which, position)?;
        let row = self.read(self.cache.layer(layer), offset, bytes).await?;
        Ok(self.cache.unpack(&row, self.config.head_size()))
    }

    /// Attention weights of the last cached position in one layer and head, over all cached positions: P values that sum to 1.
    ///
    /// The scores are computed on the CPU from the query and the keys that the GPU left behind.
    ///
    /// # Errors
    /// [`Error::BadOption`] if there is no such layer or head, or nothing is cached.
    pub async fn attention(&self, layer: usize, head: usize) -> Result<Vec<f32>> {
        self.readable()?;
        if head >= self.config.n_head {
            return Err(Error::BadOption(format!(
                "head is {head}, but this model has heads 0 to {}.",
                self.config.n_head - 1
            )));
        }
        let last = self.cache.len() - 1;
        let (_, row_bytes) = self.cache.row(layer, KeyOrValue::Key, last)?;
        let (a, d_p) = (self.weights.layout().a, self.weights.layout().d_p);
        let slot = (last % crate::kv_cache::QUERY_RING * a * 4) as u64;
        let q: Vec<f32> = bytemuck::pod_collect_to_vec(
            &self
                .read(self.cache.queries(layer), slot, (a * 4) as u64)
                .await?,
        );
        let keys = self
            .read(self.cache.layer(layer), 0, row_bytes * (last as u64 + 1))
            .await?;
        let d = self.config.head_size();
        let q = &q[head * d_p..head * d_p + d];
        let scale = self.config.score_scale(layer);
        let scores: Vec<f32> = keys
            .chunks_exact(row_bytes as usize)
            .map(|row| {
                let k = self.cache.unpack(row, d);
                let k = &k[head * d..(head + 1) * d];
                q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>() * scale
            })
            .collect();
        let maximum = scores.iter().copied().fold(f32::MIN, f32::max);
        let exponentials: Vec<f32> = scores.iter().map(|s| (s - maximum).exp()).collect();
        let sum: f32 = exponentials.iter().sum();
        Ok(exponentials.iter().map(|e| e / sum).collect())
    }

    /// The raw logits of the last row of the last pass: V values. For checks; a run never reads them.
    ///
    /// # Errors
    /// The device's fault.
    pub async fn logits(&self) -> Result<Vec<f32>> {
        let bytes = (self.config.vocab_size * 4) as u64;
        let bytes = self.read(&self.activations.logits, 0, bytes).await?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    /// Bytes of a tensor, through the preallocated cells, piece by piece.
    pub(crate) async fn read(&self, tensor: &Tensor, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        self.read_through(&self.cells, tensor, offset, bytes).await
    }

    /// Bytes of a tensor through the slots of `ring`, piece by piece.
    pub(crate) async fn read_through(
        &self,
        ring: &ReadbackRing,
        tensor: &Tensor,
        offset: u64,
        bytes: u64,
    ) -> Result<Vec<u8>> {
        let piece = ring.slot_bytes();
        let mut all = Vec::with_capacity(bytes as usize);
        while (all.len() as u64) < bytes {
            let at = all.len() as u64;
            let length = piece.min(bytes - at);
            let lease = ring.lease().await?;
            let region = Region {
                tensor,
                offset: offset + at,
                bytes: length,
            };
            self.gpu.replay(&[], 0, Some(&lease), &[region]);
            all.extend(lease.map(length).await?);
        }
        Ok(all)
    }
}

impl Pass {
    /// What the bytes of the arrival say.
    pub(crate) fn outcome(&self, model: &Model, bytes: &[u8]) -> Outcome {
        let (record, timestamps) = bytes.split_at(self.record_bytes.min(bytes.len()));
        Outcome {
            picked: (record.len() >= RECORD_HEADER_BYTES).then(|| Picked::from_record(record)),
            // Only the last submit of a pass is timed: with several, the time of the whole is not known.
            gpu_ms: model.gpu.gpu_ms(timestamps).filter(|_| self.chunks == 1),
        }
    }

    async fn await_outcome(mut self, model: &Model) -> Result<Outcome> {
        let bytes = (&mut self.arrival).await?;
        Ok(self.outcome(model, &bytes))
    }
}

impl plan::Activations {
    fn record_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + 12 * self.listed.get()
    }
}

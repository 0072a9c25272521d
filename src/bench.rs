//! `gpt2 bench`: what the model reaches, beside what the adapter can do, measured in one run.
//!
//! Every row is the median of repeated runs with their spread, and carries a check of its ids: a GPU that skips work is fast.

mod expected;
mod growth;
mod plot;
mod report;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use report::Report;

use crate::checkpoint::make::{Shape, write_folder};
use crate::checkpoint::{Dtype, LoadReport};
use crate::error::{Error, Result};
use crate::from_pretrained::{LoadOptions, from_pretrained};
use crate::generator::{Generator, Prompt};
use crate::gpu::{DeviceInfo, GpuOptions};
use crate::model::{Model, Tuning};
use crate::roofline::{self, Effort, Roofline};
use crate::sampling::Options as SamplingOptions;
use crate::trace::{EventKind, Step, Timings};
use expected::{Agreement, Expected};

/// New ids in a run that measures decode: one from prefill, the others from decode.
const NEW_TOKENS: usize = 17;

/// A row has at least so many runs, and more, up to the most, until it has taken this long.
const RUNS: usize = 3;
const MOST_RUNS: usize = 9;
const ROW_TIME: Duration = Duration::from_millis(1500);

/// The part of the read ceiling that decode in fp32 must reach on a software adapter.
const SOFTWARE_BAR: f64 = 0.4;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// A folder with a model, or a shape to make one of.
    pub source: Source,
    /// The dtypes, one after the other.
    pub dtypes: Vec<Dtype>,
    /// How to cut the kernels; by the device if absent.
    pub tuning: Option<Tuning>,
    /// Ask the adapter for WebGPU's default limits only.
    pub default_limits: bool,
    /// A folder for plots of how the costs grow, which take a minute more; none without it.
    pub plots: Option<PathBuf>,
}

/// The model to measure.
#[derive(Debug, Clone)]
pub enum Source {
    /// A folder with a checkpoint.
    Folder(PathBuf),
    /// A checkpoint of this shape, made from this seed in a temporary folder.
    Shape(Shape, u64),
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// How the matrices are stored.
    pub dtype: &'static str,
    /// `prefill` or `decode`.
    pub stage: &'static str,
    /// Ids of the prompt, or positions in the cache when decoding began.
    pub length: usize,
    /// Median milliseconds: of a whole prefill (the time to the first token), or of one decode step.
    pub ms: f64,
    /// The fastest and the slowest.
    pub spread_ms: [f64; 2],
    /// Measurements that the median is of.
    pub samples: usize,
    /// Ids a second.
    pub tokens_per_s: f64,
    /// Floating point operations a second (prefill) or bytes a second (decode), 10⁹, counted from the shapes.
    pub rate: f64,
    /// That rate as a part of the ceiling measured in the same run.
    pub of_ceiling: f64,
    /// (bytes / read ceiling + dispatches · empty dispatch) / measured: what is left when the dispatches are not the kernels'
    /// fault. Decode only.
    pub of_ceiling_and_dispatches: Option<f64>,
    /// How the ids compare with those of the plain-Rust reference.
    pub ids: Agreement,
}

/// Measures.
///
/// # Errors
/// Wrong ids, any error of the GPU, or a model that cannot be loaded.
pub async fn run(options: &Options) -> Result<Report> {
    let made;
    let (folder, name) = match &options.source {
        Source::Folder(folder) => (folder.as_path(), folder.display().to_string()),
        Source::Shape(shape, seed) => {
            made = Temporary::new(&format!("{shape:?}-{seed}"));
            write_folder(&shape.config_json(), *seed, &made.0)?;
            (made.0.as_path(), format!("{shape:?}, seed {seed}"))
        }
    };
    let mut report: Option<Report> = None;
    for dtype in &options.dtypes {
        let started = Instant::now();
        let (model, _) = load(folder, *dtype, options).await?;
        let load_ms = started.elapsed().as_secs_f64() * 1e3;
        let ceilings = match &report {
            Some(report) => report.ceilings,
            None => roofline::measure(model.gpu(), Effort::LONG).await?,
        };
        let rows = measure(&model, folder, &ceilings).await?;
        let report = report.get_or_insert_with(|| Report::new(&name, &model, ceilings));
        report.add(load_ms, rows);
        model.dispose();
    }
    let mut report = report
        .ok_or_else(|| Error::BadOption("No dtype was given to measure; name one.".into()))?;
    if let Some(plots) = &options.plots {
        report.growth = Some(growth::measure(folder, options, plots).await?);
    }
    Ok(report)
}

async fn load(folder: &Path, dtype: Dtype, options: &Options) -> Result<(Rc<Model>, LoadReport)> {
    let options = LoadOptions {
        dtype: Some(dtype),
        gpu: GpuOptions {
            default_limits: options.default_limits,
        },
        tuning: options.tuning,
    };
    from_pretrained(folder, options).await
}

/// Lengths of prompts and of caches: all of them for a model with few weights or on a GPU, else the shortest.
fn lengths(model: &Model) -> ([&'static [usize]; 2], usize) {
    let large = model.weights().layout().total_bytes() > 100 << 20;
    if large && model.gpu().info().is_fallback {
        ([&[8], &[16]], 16)
    } else {
        ([&[8, 64, 512], &[16, 256, 960]], 960)
    }
}

/// All rows of one dtype.
async fn measure(model: &Rc<Model>, folder: &Path, ceilings: &Roofline) -> Result<Vec<Row>> {
    let config = model.config();
    let ([prompts, caches], longest) = lengths(model);
    let fits = |new: usize| move |n: &&usize| **n + new <= config.n_positions + 1;
    let prompts: Vec<usize> = prompts.iter().filter(fits(1)).copied().collect();
    let caches: Vec<usize> = caches.iter().filter(fits(NEW_TOKENS)).copied().collect();
    let ids = prompt(longest, config.vocab_size);
    let expected = Expected::new(model, folder, &ids, &prompts, &caches, NEW_TOKENS)?;

    let mut rows = Vec::new();
    for length in prompts {
        let runs = repeat(model, &ids[..length], 1, false).await?;
        let ids = expected.compare(length, &runs)?;
        let first: Vec<f64> = runs.iter().map(|r| r.timings.ttft_ms).collect();
        let row = Row::new(model, "prefill", length, &first, ids);
        let flops = runs[0].steps[0].flops;
        rows.push(row.prefill(flops, ceilings));
    }
    let dispatches = model.decode_kernels().len() as f64;
    for length in caches {
        let runs = repeat(model, &ids[..length], NEW_TOKENS, true).await?;
        let ids = expected.compare(length, &runs)?;
        let steps: Vec<f64> = runs
            .iter()
            .flat_map(|r| &r.timings.decode_ms)
            .copied()
            .collect();
        let row = Row::new(model, "decode", length, &steps, ids);
        let bytes = runs[0].steps[NEW_TOKENS / 2].bytes;
        rows.push(row.decode(bytes, dispatches, ceilings));
    }
    model.gpu().check()?;
    Ok(rows)
}

impl Row {
    fn new(model: &Model, stage: &'static str, length: usize, ms: &[f64], ids: Agreement) -> Self {
        let (low, high) = (quantile(ms, 0.0), quantile(ms, 1.0));
        Self {
            dtype: model.dtype().name(),
            stage,
            length,
            ms: quantile(ms, 0.5),
            spread_ms: [low, high],
            samples: ms.len(),
            tokens_per_s: 0.0,
            rate: 0.0,
            of_ceiling: 0.0,
            of_ceiling_and_dispatches: None,
            ids,
        }
    }

    fn prefill(mut self, flops: f64, ceilings: &Roofline) -> Self {
        self.tokens_per_s = self.length as f64 / self.ms * 1e3;
        self.rate = flops / self.ms / 1e6;
        self.of_ceiling = self.rate / ceilings.fma_gflops;
        self
    }

    fn decode(mut self, bytes: f64, dispatches: f64, ceilings: &Roofline) -> Self {
        self.tokens_per_s = 1e3 / self.ms;
        self.rate = bytes / self.ms / 1e6;
        self.of_ceiling = self.rate / ceilings.read_gbps;
        let least = bytes / ceilings.read_gbps / 1e6 + dispatches * ceilings.dispatch_us / 1e3;
        self.of_ceiling_and_dispatches = Some(least / self.ms);
        self
    }

    /// Whether it misses the bar that this project set itself; only rows that have one can.
    pub fn misses_bar(&self, device: &DeviceInfo) -> bool {
        device.is_fallback
            && self.stage == "decode"
            && self.dtype == Dtype::Fp32.name()
            && self.of_ceiling < SOFTWARE_BAR
    }
}

/// A finished run.
struct Ran {
    ids: Vec<u32>,
    steps: Vec<Step>,
    timings: Timings,
}

/// Runs until the row has enough samples. With `reuse`, only the first run prefills the whole prompt.
async fn repeat(
    model: &Rc<Model>,
    ids: &[u32],
    new_tokens: usize,
    reuse: bool,
) -> Result<Vec<Ran>> {
    let started = Instant::now();
    let mut runs = Vec::new();
    while runs.len() < RUNS || (runs.len() < MOST_RUNS && started.elapsed() < ROW_TIME) {
        let options = SamplingOptions {
            reuse,
            ..SamplingOptions::greedy(new_tokens)
        };
        runs.push(generate(model, ids, options).await?);
    }
    Ok(runs)
}

async fn generate(model: &Rc<Model>, ids: &[u32], options: SamplingOptions) -> Result<Ran> {
    let generator = Generator::new(model, Prompt::Ids(ids.to_vec()), options)?;
    let (mut new, mut steps, mut timings) = (Vec::new(), Vec::new(), Timings::default());
    while let Some(event) = generator.next().await {
        match event.kind {
            EventKind::Prefilled { step } | EventKind::Decoded { step, .. } => {
                new.push(step.token_id);
                steps.push(step);
            }
            EventKind::Done { timings: took, .. } => timings = took,
            EventKind::Error { message, .. } => return Err(Error::Internal(message)),
            _ => {}
        }
    }
    model.gpu().check()?;
    Ok(Ran {
        ids: new,
        steps,
        timings,
    })
}

/// Ids for prompts, each length the beginning of the longer ones; scattered over the vocabulary, so that each reads a row of
/// its own.
fn prompt(length: usize, vocab_size: usize) -> Vec<u32> {
    (0..length)
        .map(|i| (i * 7919 + 13) % vocab_size)
        .map(|id| id as u32)
        .collect()
}

/// The value below which a share of the samples lies.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[((n - 1) as f64 * share).round() as usize],
    }
}

/// A folder that is removed when it is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let name = format!("gpt2-bench-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What a full disk left behind is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let samples = [3.0, 1.0, 2.0, 10.0, 4.0];
        assert_eq!(quantile(&samples, 0.5), 3.0);
        assert_eq!(quantile(&samples, 0.0), 1.0);
        assert_eq!(quantile(&samples, 1.0), 10.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn prompts_are_prefixes_of_each_other() {
        let long = prompt(960, 8_192);
        assert_eq!(prompt(64, 8_192), long[..64]);
        assert!(long.iter().all(|id| *id < 8_192));
    }
}

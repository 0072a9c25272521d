//! How the costs grow: a decode step with the cache, a step without one with the length, a load with the bytes.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::plot::{Plot, fit};
use super::{Options, SamplingOptions, Temporary, generate, load, prompt, quantile};
use crate::checkpoint::Dtype;
use crate::checkpoint::make::{Shape, write_folder};
use crate::error::{Error, Result};

/// The cache at the first step of the series.
const START: usize = 16;

/// Steps whose median is one point.
const WINDOW: usize = 32;

/// Lengths for steps without a cache, and steps at each.
const UNCACHED: [usize; 5] = [16, 64, 128, 256, 512];
const UNCACHED_STEPS: usize = 4;

/// Numbers of layers of the checkpoints that are loaded, and loads of each.
const LAYERS: [usize; 5] = [1, 8, 16, 24, 32];
const LOADS: usize = 3;

/// Three series and the straight line through each.
#[derive(Debug, Clone, Serialize)]
pub struct Growth {
    /// Milliseconds of a decode step by cached positions.
    pub cached: Series,
    /// Milliseconds of a step without a cache by ids.
    pub uncached: Series,
    /// Milliseconds of a load by 10⁶ bytes of the file.
    pub load: Series,
}

/// Points, the line through them, and how well it fits.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    /// The points.
    pub points: Vec<[f64; 2]>,
    /// The line's value at 0, and its slope.
    pub line: [f64; 2],
    /// The share of the variance that the line explains (R²).
    pub fit: f64,
}

impl Series {
    fn new(points: Vec<[f64; 2]>) -> Self {
        let (line, fit) = fit(&points);
        Self { points, line, fit }
    }
}

/// Measures the three in fp32 and writes a plot of each into `plots`.
pub async fn measure(folder: &Path, options: &Options, plots: &Path) -> Result<Growth> {
    let (model, _) = load(folder, Dtype::Fp32, options).await?;
    let config = model.config();
    let device = model.gpu().info();
    let adapter = match device.is_fallback {
        true => format!("{}, a software adapter", device.description),
        false => device.description.clone(),
    };

    let ids = prompt(UNCACHED[UNCACHED.len() - 1], config.vocab_size);
    let room = config.n_positions - START;
    let run = generate(&model, &ids[..START], SamplingOptions::greedy(room)).await?;
    let cached = run
        .timings
        .decode_ms
        .chunks_exact(WINDOW)
        .enumerate()
        .map(|(i, ms)| [(START + i * WINDOW + WINDOW / 2) as f64, quantile(ms, 0.5)])
        .collect();

    let mut uncached = Vec::new();
    for length in UNCACHED
        .into_iter()
        .filter(|n| n + UNCACHED_STEPS <= config.n_positions)
    {
        let options = SamplingOptions {
            use_cache: false,
            ..SamplingOptions::greedy(UNCACHED_STEPS)
        };
        let run = generate(&model, &ids[..length], options).await?;
        uncached.push([length as f64, quantile(&run.timings.decode_ms, 0.5)]);
    }
    model.dispose();

    let growth = Growth {
        cached: Series::new(cached),
        uncached: Series::new(uncached),
        load: Series::new(loads(options).await?),
    };
    for (file, title, x, y, series, line) in [
        (
            "decode-by-cache.svg",
            "A decode step",
            "cached positions",
            "ms",
            &growth.cached,
            true,
        ),
        (
            "decode-without-cache.svg",
            "A step with use_cache: false",
            "ids so far",
            "ms",
            &growth.uncached,
            false,
        ),
        (
            "load-by-bytes.svg",
            "from_pretrained",
            "10⁶ bytes of the checkpoint",
            "ms",
            &growth.load,
            true,
        ),
    ] {
        let plot = Plot {
            title: &format!("{title} ({adapter})"),
            x,
            y,
            points: &series.points,
            line: line.then_some(series.line),
        };
        write(plots, file, &plot.svg())?;
    }
    Ok(growth)
}

/// Loads checkpoints that differ in their number of layers.
async fn loads(options: &Options) -> Result<Vec<[f64; 2]>> {
    let mut points = Vec::new();
    for layers in LAYERS {
        let folder = Temporary::new(&format!("{layers}-layers"));
        write_folder(&Shape::Mini.config_with_layers(layers), 1, &folder.0)?;
        let bytes = std::fs::metadata(folder.0.join("model.safetensors"))
            .map_err(|e| Error::Internal(format!("The checkpoint just made is gone: {e}.")))?
            .len();
        let mut ms = Vec::new();
        for _ in 0..LOADS {
            let started = Instant::now();
            let (model, _) = load(&folder.0, Dtype::Fp32, options).await?;
            ms.push(started.elapsed().as_secs_f64() * 1e3);
            model.dispose();
        }
        points.push([bytes as f64 / 1e6, quantile(&ms, 0.0)]);
    }
    Ok(points)
}

fn write(folder: &Path, file: &str, text: &str) -> Result<()> {
    let path = folder.join(file);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|e| Error::Internal(format!("{} could not be written: {e}.", path.display())))
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (what, x, series) in [
            ("a decode step", "cached position", &self.cached),
            ("a step without a cache", "id", &self.uncached),
            ("a load", "10⁶ bytes", &self.load),
        ] {
            let [at_0, slope] = series.line;
            writeln!(
                f,
                "{what}: {at_0:.2} ms and {slope:.4} ms for each {x} (R² {:.3})",
                series.fit
            )?;
        }
        Ok(())
    }
}

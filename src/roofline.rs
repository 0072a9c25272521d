//! The adapter's own ceilings: how fast it reads memory, multiplies and adds, and starts one kernel after another. What the
//! model reaches is put beside them.

use std::rc::Rc;

use serde::Serialize;
use web_time::Instant;

use crate::error::Result;
use crate::generator::Interrupter;
use crate::gpu::{Gpu, MemoryClass, ReadbackRing, Region, Tensor};
use crate::kernel::{FMA_CEILING, Grid, Kernel, Op, READ_CEILING};
use crate::model::Model;

/// What a device can do, measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Roofline {
    /// Memory read by a kernel that only adds up, 10⁹ bytes a second.
    pub read_gbps: f64,
    /// f32 multiply-adds from registers, 10⁹ operations a second; a multiply-add is two.
    pub fma_gflops: f64,
    /// One dispatch that does nothing but waits for the one before it, in the same pass, microseconds.
    pub dispatch_us: f64,
}

/// How long to measure.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// A measurement is repeated inside one pass until the pass takes this long, milliseconds.
    pub pass_ms: f64,
    /// Passes of that length; the fastest counts, since nothing makes a device faster than it is.
    pub passes: usize,
}

impl Effort {
    /// About 150 ms in all: for the page, which has a reader who waits.
    pub const SHORT: Self = Self {
        pass_ms: 15.0,
        passes: 2,
    };
    /// About two seconds: for benchmarks.
    pub const LONG: Self = Self {
        pass_ms: 100.0,
        passes: 5,
    };
}

impl Model {
    /// Measures the device in about 150 ms (a second on a slow software adapter). The model is busy meanwhile.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::error::Error::Busy) while a run has the model,
    /// [`Error::Disposed`](crate::error::Error::Disposed), or the device's fault.
    pub async fn roofline(&self) -> Result<Roofline> {
        self.claim(Interrupter::default())?;
        let _claimed = Claimed(self);
        measure(self.gpu(), Effort::SHORT).await
    }
}

/// Gives the model back, also when the measurement is abandoned.
struct Claimed<'a>(&'a Model);

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Threads in a workgroup of both kernels.
const GROUP: u32 = 64;

/// Bytes read per lap. More than the caches of most GPUs, and what every adapter binds; on a processor less, since a lap
/// takes long there.
const READ_BYTES: u64 = 128 << 20;
const READ_BYTES_SOFTWARE: u64 = 32 << 20;

/// Loads a thread makes in a lap of the read kernel: enough groups to fill a GPU, and long runs for a processor.
const READ_STEPS: u64 = 32;
const READ_STEPS_SOFTWARE: u64 = 512;

/// Threads of the multiply-add kernel: enough to fill a GPU, and few milliseconds on a processor.
const FMA_THREADS: u32 = 1 << 20;
const FMA_THREADS_SOFTWARE: u32 = 1 << 10;
const FMA_ROUNDS: u32 = 64;

/// Multiply-adds of one thread and round of the kernel.
const FMA_PER_ROUND: u32 = 64;

/// Laps in one pass at most: a pass stays far from every driver's watchdog and within the grid's limits.
const MOST_LAPS: u32 = 1 << 12;

/// Dispatches of the measurement of one dispatch: as many as a decode step has.
const EMPTY_DISPATCHES: u32 = 64;

/// Measures a device. All buffers are freed at the end.
///
/// # Errors
/// [`Error::Limit`](crate::error::Error::Limit) or the device's fault.
pub async fn measure(gpu: &Rc<Gpu>, effort: Effort) -> Result<Roofline> {
    let software = gpu.info().is_fallback;
    let (bytes, steps, threads) = if software {
        (
            READ_BYTES_SOFTWARE,
            READ_STEPS_SOFTWARE,
            FMA_THREADS_SOFTWARE,
        )
    } else {
        (READ_BYTES, READ_STEPS, FMA_THREADS)
    };
    let groups = (bytes / (16 * u64::from(GROUP) * steps)) as u32;
    let (data, numbers, sums) = gpu
        .allocating(|| {
            let tensor = |name, bytes| Tensor::new(gpu, name, bytes, MemoryClass::Activations);
            Ok((
                tensor("read ceiling", bytes)?,
                tensor("multiply-add ceiling", u64::from(threads) * 16)?,
                tensor("read ceiling sums", u64::from(groups * GROUP) * 4)?,
            ))
        })
        .await?;
    let read = [Kernel::new(gpu, READ_CEILING, &[("STEPS", steps as f64)])
        .op(&[&data, &sums], Grid::fixed(groups, 1).rows(1, 1))?];
    let rounds = |rounds: u32| Kernel::new(gpu, FMA_CEILING, &[("ROUNDS", f64::from(rounds))]);
    let fma = [rounds(FMA_ROUNDS).op(&[&numbers], Grid::fixed(threads / GROUP, 1))?];
    let once = rounds(1);
    let empty = [once.op(&[&numbers], Grid::fixed(1, 1))?];

    let mut stopwatch = Stopwatch {
        gpu,
        ring: ReadbackRing::new(gpu, "roofline", 1, 16, false),
        watched: &numbers,
        idle: 0.0,
    };
    if !software {
        // A GPU may store what is all zeros compressed.
        let groups = (bytes / 16) as u32 / GROUP;
        let fill = [once.op(&[&data], Grid::fixed(groups / 4, 4))?];
        stopwatch.pass(&[&fill], 1).await?;
    }
    stopwatch.idle = stopwatch.fastest(3, &[], 1).await?;
    let read_lap = stopwatch
        .lap(effort, |laps| (vec![&read[..]], laps))
        .await?;
    let fma_lap = stopwatch
        .lap(effort, |laps| (vec![&fma[..]; laps as usize], 1))
        .await?;
    let plans = vec![&empty[..]; EMPTY_DISPATCHES as usize];
    stopwatch.pass(&plans, 1).await?;
    let dispatches = stopwatch.fastest(effort.passes, &plans, 1).await?;
    gpu.check()?;
    Ok(Roofline {
        read_gbps: bytes as f64 / read_lap / 1e9,
        fma_gflops: 2.0 * f64::from(FMA_PER_ROUND * FMA_ROUNDS) * f64::from(threads)
            / fma_lap
            / 1e9,
        dispatch_us: dispatches / f64::from(EMPTY_DISPATCHES) * 1e6,
    })
}

/// Times passes by the wall clock, from the submit to the arrival of a read-back behind it.
struct Stopwatch<'a> {
    gpu: &'a Rc<Gpu>,
    ring: ReadbackRing,
    /// Read back a few bytes of, which says that the pass is done.
    watched: &'a Tensor,
    /// Seconds of a submit without a pass, which every measurement is relieved of.
    idle: f64,
}

impl Stopwatch<'_> {
    /// Seconds of one pass over `plans` for `rows` rows.
    async fn pass(&self, plans: &[&[Op]], rows: u32) -> Result<f64> {
        let lease = self.ring.lease().await?;
        let region = Region {
            tensor: self.watched,
            offset: 0,
            bytes: 16,
        };
        let start = Instant::now();
        self.gpu.replay(plans, rows, Some(&lease), &[region]);
        lease.map(16).await?;
        let seconds = start.elapsed().as_secs_f64();
        // On a busy machine the submit without a pass may have been the slower one.
        Ok((seconds - self.idle).max(seconds / 2.0))
    }

    /// Seconds of the fastest of some passes.
    async fn fastest(&self, passes: usize, plans: &[&[Op]], rows: u32) -> Result<f64> {
        let mut fastest = f64::INFINITY;
        for _ in 0..passes {
            fastest = fastest.min(self.pass(plans, rows).await?);
        }
        Ok(fastest)
    }

    /// Seconds of one lap, in passes of as many laps as `effort` asks for; `plan` says how to run that many.
    async fn lap<'o>(
        &self,
        effort: Effort,
        plan: impl Fn(u32) -> (Vec<&'o [Op]>, u32),
    ) -> Result<f64> {
        let mut laps = 1;
        loop {
            let (plans, rows) = plan(laps);
            let seconds = self.pass(&plans, rows).await?;
            if seconds * 1e3 >= effort.pass_ms || laps >= MOST_LAPS {
                let seconds = self.fastest(effort.passes, &plans, rows).await?;
                return Ok(seconds / f64::from(laps));
            }
            laps *= 2;
        }
    }
}

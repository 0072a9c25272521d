//! The GPU: device, limits, memory, writes, submits and read-backs. Every call to `wgpu` is made here or in
//! [`crate::kernel`], so that the counters count everything.

mod adapter;
mod counters;
mod readback;
mod tensor;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

pub use adapter::DeviceInfo;
pub use counters::{Counters, Memory, MemoryClass};
pub use readback::{Arrival, Lease, ReadbackRing};
pub use tensor::Tensor;

use crate::error::{Error, Result};
use crate::kernel::{Compiled, EMBED, Op};

/// How to ask for a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct GpuOptions {
    /// Ask for WebGPU's default limits only, even where the adapter can do more.
    pub default_limits: bool,
}

/// A device and what it has been asked to do so far.
pub struct Gpu {
    pub(crate) device: wgpu::Device,
    queue: wgpu::Queue,
    info: DeviceInfo,
    faults: Arc<Faults>,
    timestamps: Option<Timestamps>,
    counters: RefCell<Counters>,
    memory: RefCell<Memory>,
    submissions: Cell<Option<wgpu::SubmissionIndex>>,
    pub(crate) compiled: Compiled,
    #[cfg(feature = "test-hooks")]
    pub(crate) hooks: crate::test_hooks::Hooks,
}

/// The first error that the device reported outside any call, and whether the device is gone.
#[derive(Default)]
struct Faults {
    first: Mutex<Option<Error>>,
}

impl Faults {
    fn record(&self, error: Error) {
        let mut first = self.first.lock().unwrap_or_else(|e| e.into_inner());
        // A lost device explains everything around it; a disposed one was meant to go.
        let explains =
            matches!(error, Error::DeviceLost(_)) && !matches!(*first, Some(Error::Disposed(_)));
        if first.is_none() || explains {
            *first = Some(error);
        }
    }
}

/// Pass-boundary timestamps: two for each read-back slot.
struct Timestamps {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    nanoseconds_per_tick: f32,
}

/// Read-back slots that can carry timestamps.
const TIMED_SLOTS: u32 = 32;

/// Bytes that a timed replay adds to its read-back: two 64-bit timestamps.
pub const TIMESTAMP_BYTES: u64 = 16;

/// A region that a replay copies to its read-back.
pub struct Region<'a> {
    /// Where it lies.
    pub tensor: &'a Tensor,
    /// First byte, a multiple of 4.
    pub offset: u64,
    /// Length in bytes, a multiple of 4.
    pub bytes: u64,
}

impl Gpu {
    /// Asks for the strongest adapter and a device with all the limits it has.
    ///
    /// # Errors
    /// [`Error::NoWebgpu`], [`Error::InsecureContext`] or [`Error::NoAdapter`], each with what to do.
    pub async fn request(options: GpuOptions) -> Result<Rc<Self>> {
        let adapter = adapter::request().await?;
        let features = adapter.features() & wgpu::Features::TIMESTAMP_QUERY;
        #[cfg(feature = "test-hooks")]
        let features = if crate::test_hooks::features_hidden() {
            wgpu::Features::empty()
        } else {
            features
        };
        let limits = if options.default_limits {
            wgpu::Limits::defaults()
        } else {
            adapter.limits()
        };
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                label: Some("gpt2-webgpu"),
                required_features: features,
                required_limits: limits,
                ..Default::default()
            })
            .await
            .map_err(|e| {
                Error::NoAdapter(format!(
                    "The graphics adapter was found, but gave no device: {e}. Close other tabs that use the GPU, \
                     update the graphics driver or the browser, and try again."
                ))
            })?;
        let faults = Arc::new(Faults::default());
        adapter::watch_errors(&device, &faults);
        let lost = faults.clone();
        device.set_device_lost_callback(move |reason, message| {
            lost.record(Error::DeviceLost(format!(
                "The GPU device was lost ({reason:?}: {message}). Restart the model: its weights are loaded anew."
            )));
        });
        let info = DeviceInfo::new(&adapter, &device);
        let timestamps = features.contains(wgpu::Features::TIMESTAMP_QUERY).then(|| {
            let queries = device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("pass timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * TIMED_SLOTS,
            });
            let resolved = device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("resolved timestamps"),
                size: TIMESTAMP_BYTES,
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            });
            Timestamps {
                queries,
                resolved,
                nanoseconds_per_tick: queue.get_timestamp_period(),
            }
        });
        Ok(Rc::new(Self {
            device,
            queue,
            info,
            faults,
            timestamps,
            counters: RefCell::default(),
            memory: RefCell::default(),
            submissions: Cell::new(None),
            compiled: Compiled::default(),
            #[cfg(feature = "test-hooks")]
            hooks: Default::default(),
        }))
    }

    /// What the browser or the driver says about the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The limits of the device.
    pub fn limits(&self) -> wgpu::Limits {
        self.device.limits()
    }

    /// Whether passes are timed by the GPU's own clock.
    pub fn has_timestamps(&self) -> bool {
        self.timestamps.is_some()
    }

    /// Everything counted since the device was made.
    pub fn counters(&self) -> Counters {
        self.counters.borrow().clone()
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Counters)) {
        count(&mut self.counters.borrow_mut());
    }

    /// Whether a map that has completed may be seen; a test can delay all of them.
    fn shows_maps(&self) -> bool {
        #[cfg(feature = "test-hooks")]
        return !self.hooks.holds_maps();
        #[cfg(not(feature = "test-hooks"))]
        true
    }

    /// Live bytes by class.
    pub fn memory(&self) -> Memory {
        // Destroying a device frees all its buffers, whoever still has a handle to one.
        if matches!(self.check(), Err(Error::Disposed(_))) {
            return Memory::default();
        }
        self.memory.borrow().clone()
    }

    pub(crate) fn account(&self, account: impl FnOnce(&mut Memory)) {
        account(&mut self.memory.borrow_mut());
    }

    /// Fails if the device is lost or reported an error that no call caught.
    ///
    /// # Errors
    /// The first such error: [`Error::DeviceLost`], [`Error::OutOfMemory`] or [`Error::Internal`].
    pub fn check(&self) -> Result<()> {
        match &*self.faults.first.lock().unwrap_or_else(|e| e.into_inner()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// For a read-back that failed: its device is gone, even where it has not said so yet.
    fn gone(&self) -> Error {
        let lost = Error::DeviceLost(
            "The GPU gave no result back: its device is gone. Restart the model: its weights are loaded anew."
                .into(),
        );
        self.faults.record(lost.clone());
        self.check().err().unwrap_or(lost)
    }

    /// Runs `allocate` and waits until the GPU has said whether it had the memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if it had not, or whatever `allocate` returns.
    pub async fn allocating<T>(&self, allocate: impl FnOnce() -> Result<T>) -> Result<T> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let value = allocate();
        if scope.pop().await.is_some() {
            let total = self.memory().total as f64 / (1u64 << 20) as f64;
            drop(value);
            return Err(Error::OutOfMemory(format!(
                "The GPU has no room for this model: {total:.0} MiB were asked for. Close other programs that use \
                 the GPU, or choose a smaller model or dtype."
            )));
        }
        value
    }

    /// Writes `bytes` at `offset` of a tensor; ordered before all later replays.
    ///
    /// # Errors
    /// [`Error::Internal`] if the range is not inside the tensor or not a multiple of 4.
    pub fn write(&self, tensor: &Tensor, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        if !offset.is_multiple_of(4) || !bytes.len().is_multiple_of(4) || end > tensor.bytes() {
            return Err(Error::Internal(format!(
                "A write of bytes {offset}..{end} does not fit '{}' of {} bytes. Please report this.",
                tensor.name(),
                tensor.bytes()
            )));
        }
        self.queue.write_buffer(tensor.buffer(), offset, bytes);
        self.count(|c| c.bytes_uploaded += bytes.len() as u64);
        Ok(())
    }

    /// Records `plans`, one after the other, into one compute pass for `rows` rows (T), copies `regions` into the leased
    /// read-back slot, and submits: one pass, one submit.
    pub fn replay(&self, plans: &[&[Op]], rows: u32, lease: Option<&Lease>, regions: &[Region]) {
        let mut encoder = self
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        let timed = self
            .timestamps
            .as_ref()
            .zip(lease.filter(|l| l.is_timed()))
            .map(|(timestamps, lease)| (timestamps, 2 * lease.slot() as u32));
        let (mut dispatches, mut counted_rows) = (0, 0);
        if plans.iter().any(|p| !p.is_empty()) {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: timed.map(|(t, first)| wgpu::ComputePassTimestampWrites {
                    query_set: &t.queries,
                    beginning_of_pass_write_index: Some(first),
                    end_of_pass_write_index: Some(first + 1),
                }),
            });
            for op in plans.iter().copied().flatten() {
                #[cfg(feature = "test-hooks")]
                if self.hooks.skips(op.name()) {
                    continue;
                }
                op.record(&mut pass, rows);
                dispatches += 1;
                if op.name() == EMBED.name {
                    counted_rows += u64::from(op.groups(rows)[1]);
                }
            }
            drop(pass);
            self.count(|c| c.passes += 1);
        }
        if let Some(lease) = lease {
            let mut at = 0;
            for region in regions {
                encoder.copy_buffer_to_buffer(
                    region.tensor.buffer(),
                    region.offset,
                    lease.buffer(),
                    at,
                    region.bytes,
                );
                at += region.bytes;
            }
            if let Some((t, first)) = timed {
                encoder.resolve_query_set(&t.queries, first..first + 2, &t.resolved, 0);
                encoder.copy_buffer_to_buffer(&t.resolved, 0, lease.buffer(), at, TIMESTAMP_BYTES);
            }
        }
        let index = self.queue.submit([encoder.finish()]);
        self.submissions.set(Some(index));
        self.count(|c| {
            c.submits += 1;
            c.dispatches += dispatches;
            c.rows += counted_rows;
        });
    }

    /// Milliseconds between the two timestamps at the end of a timed read-back.
    pub fn gpu_ms(&self, timestamps: &[u8]) -> Option<f64> {
        let period = self.timestamps.as_ref()?.nanoseconds_per_tick;
        let ticks: Vec<u64> = timestamps
            .chunks_exact(8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
            .collect();
        let [begin, end] = ticks[..] else { return None };
        Some(end.checked_sub(begin)? as f64 * f64::from(period) / 1e6)
    }

    /// Lets the driver make progress; natively nothing arrives without it, on the web the browser does it.
    fn poll(&self) {
        #[cfg(not(target_arch = "wasm32"))]
        {
            let index = self.submissions.take();
            self.submissions.set(index.clone());
            let waited = self.device.poll(wgpu::PollType::Wait {
                submission_index: index,
                timeout: Some(std::time::Duration::from_millis(2)),
            });
            // A lost device never accepted its last submit and refuses to wait for it: then only ask what has happened.
            if waited.is_err() {
                let _ = self.device.poll(wgpu::PollType::Poll);
            }
        }
    }

    /// Destroys the device and all its memory; every later call answers [`Error::Disposed`].
    pub fn destroy(&self) {
        self.faults.record(Error::Disposed(
            "This model was disposed. Load it again to use it.".into(),
        ));
        self.device.destroy();
    }
}

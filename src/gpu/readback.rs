//! A ring of buffers through which the CPU sees results, one or more steps late, without the GPU waiting for it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

use super::{Gpu, MemoryClass, TIMED_SLOTS, Tensor};
use crate::error::Result;

/// Slots that a submit copies into and the CPU maps.
pub struct ReadbackRing {
    gpu: Rc<Gpu>,
    slots: Vec<Rc<Slot>>,
    next: Cell<usize>,
}

struct Slot {
    index: usize,
    timed: bool,
    tensor: Tensor,
    mapping: Arc<Mapping>,
    /// Leased, or mapped for somebody who still waits for it.
    held: Cell<bool>,
}

/// The state of a slot's map; its callback may run on another thread.
struct Mapping {
    state: AtomicU8,
    waker: AtomicWaker,
}

const IDLE: u8 = 0;
const PENDING: u8 = 1;
const MAPPED: u8 = 2;
const FAILED: u8 = 3;

impl Mapping {
    fn seen(&self, gpu: &Gpu) -> u8 {
        match self.state.load(Ordering::Acquire) {
            MAPPED if !gpu.shows_maps() => PENDING,
            state => state,
        }
    }
}

impl ReadbackRing {
    /// Allocates `count` slots of `bytes` each. `timed` slots carry the timestamps of their pass behind the data.
    pub fn new(gpu: &Rc<Gpu>, name: &str, count: usize, bytes: u64, timed: bool) -> Self {
        let slots = (0..count)
            .map(|index| {
                Rc::new(Slot {
                    index,
                    timed: timed && index < TIMED_SLOTS as usize,
                    tensor: Tensor::with_usage(
                        gpu,
                        name,
                        bytes,
                        MemoryClass::Readback,
                        wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    ),
                    mapping: Arc::new(Mapping {
                        state: AtomicU8::new(IDLE),
                        waker: AtomicWaker::new(),
                    }),
                    held: Cell::new(false),
                })
            })
            .collect();
        Self {
            gpu: gpu.clone(),
            slots,
            next: Cell::new(0),
        }
    }

    /// Bytes of one slot.
    pub fn slot_bytes(&self) -> u64 {
        self.slots[0].tensor.bytes()
    }

    /// Takes a free slot, waiting for one if the maps of abandoned read-backs have not completed yet.
    ///
    /// # Errors
    /// The device's fault, if it has one.
    pub async fn lease(&self) -> Result<Lease> {
        std::future::poll_fn(|cx| {
            if let Err(e) = self.gpu.check() {
                return Poll::Ready(Err(e));
            }
            for i in 0..self.slots.len() {
                let index = (self.next.get() + i) % self.slots.len();
                let slot = &self.slots[index];
                if slot.reclaim(&self.gpu) {
                    slot.held.set(true);
                    self.next.set(index + 1);
                    return Poll::Ready(Ok(Lease {
                        gpu: self.gpu.clone(),
                        slot: slot.clone(),
                    }));
                }
            }
            for slot in &self.slots {
                slot.mapping.waker.register(cx.waker());
            }
            drive(&self.gpu, cx);
            Poll::Pending
        })
        .await
    }
}

/// Natively a pending future must poll the device itself; in the browser the map's callback wakes it.
fn drive(gpu: &Gpu, cx: &Context) {
    #[cfg(feature = "test-hooks")]
    gpu.hooks.wait(cx.waker());
    gpu.poll();
    if cfg!(not(target_arch = "wasm32")) {
        cx.waker().wake_by_ref();
    }
}

impl Slot {
    /// Whether the slot is free, after unmapping it if an abandoned map has completed.
    fn reclaim(&self, gpu: &Gpu) -> bool {
        if self.held.get() {
            return false;
        }
        match self.mapping.seen(gpu) {
            IDLE => true,
            MAPPED => {
                self.tensor.buffer().unmap();
                self.mapping.state.store(IDLE, Ordering::Release);
                true
            }
            _ => false,
        }
    }
}

/// A slot to copy into.
pub struct Lease {
    gpu: Rc<Gpu>,
    slot: Rc<Slot>,
}

impl Lease {
    pub(super) fn slot(&self) -> usize {
        self.slot.index
    }

    pub(super) fn is_timed(&self) -> bool {
        self.slot.timed
    }

    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        self.slot.tensor.buffer()
    }

    /// Asks for the first `bytes` of the slot, to arrive when the GPU has done the submits made so far.
    pub fn map(self, bytes: u64) -> Arrival {
        let mapping = self.slot.mapping.clone();
        mapping.state.store(PENDING, Ordering::Release);
        let callback = mapping.clone();
        self.slot
            .tensor
            .buffer()
            .map_async(wgpu::MapMode::Read, 0..bytes, move |result| {
                let state = if result.is_ok() { MAPPED } else { FAILED };
                callback.state.store(state, Ordering::Release);
                callback.waker.wake();
            });
        Arrival {
            gpu: self.gpu.clone(),
            slot: self.slot.clone(),
            bytes,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A lease that became an arrival is still held by it.
        if self.slot.mapping.state.load(Ordering::Acquire) == IDLE {
            self.slot.held.set(false);
        }
    }
}

/// Bytes on their way to the CPU. Dropping it gives the slot back once its map has completed.
pub struct Arrival {
    gpu: Rc<Gpu>,
    slot: Rc<Slot>,
    bytes: u64,
}

impl Future for Arrival {
    type Output = Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context) -> Poll<Self::Output> {
        if let Err(e) = self.gpu.check() {
            return Poll::Ready(Err(e));
        }
        let mapping = &self.slot.mapping;
        mapping.waker.register(cx.waker());
        if mapping.seen(&self.gpu) == PENDING {
            drive(&self.gpu, cx);
        }
        match mapping.seen(&self.gpu) {
            PENDING => Poll::Pending,
            MAPPED => {
                let bytes = self
                    .slot
                    .tensor
                    .buffer()
                    .get_mapped_range(0..self.bytes)
                    .map(|view| view.to_vec())
                    .map_err(|_| self.gpu.gone());
                self.slot.tensor.buffer().unmap();
                mapping.state.store(IDLE, Ordering::Release);
                self.gpu.count(|c| c.bytes_read_back += self.bytes);
                Poll::Ready(bytes)
            }
            _ => Poll::Ready(Err(self.gpu.gone())),
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.slot.held.set(false);
    }
}

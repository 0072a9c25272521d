//! What the device was asked to do, counted where it is asked.

use serde::Serialize;

/// Counts since the device was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Command buffers submitted.
    pub submits: u64,
    /// Compute passes recorded.
    pub passes: u64,
    /// Kernels dispatched.
    pub dispatches: u64,
    /// Buffers created.
    pub buffers_created: u64,
    /// Bind groups created.
    pub bind_groups_created: u64,
    /// Pipelines created.
    pub pipelines_created: u64,
    /// Bytes mapped and read by the CPU.
    pub bytes_read_back: u64,
    /// Bytes written by the CPU.
    pub bytes_uploaded: u64,
    /// Rows pushed through the model's layers.
    pub rows: u64,
    /// The most steps that were in flight at once.
    pub max_in_flight: u64,
}

/// What a piece of GPU memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryClass {
    /// The checkpoint.
    Weights,
    /// Keys and values.
    KvCache,
    /// Everything between two kernels.
    Activations,
    /// Buffers that the CPU maps.
    Readback,
}

/// Live bytes by class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The checkpoint.
    pub weights: u64,
    /// Keys and values.
    pub kv_cache: u64,
    /// Everything between two kernels.
    pub activations: u64,
    /// Buffers that the CPU maps.
    pub readback: u64,
    /// The sum.
    pub total: u64,
}

impl Memory {
    fn class(&mut self, class: MemoryClass) -> &mut u64 {
        match class {
            MemoryClass::Weights => &mut self.weights,
            MemoryClass::KvCache => &mut self.kv_cache,
            MemoryClass::Activations => &mut self.activations,
            MemoryClass::Readback => &mut self.readback,
        }
    }

    pub(super) fn add(&mut self, class: MemoryClass, bytes: u64) {
        *self.class(class) += bytes;
        self.total += bytes;
    }

    pub(super) fn remove(&mut self, class: MemoryClass, bytes: u64) {
        *self.class(class) -= bytes;
        self.total -= bytes;
    }
}

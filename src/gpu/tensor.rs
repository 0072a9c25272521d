//! A piece of GPU memory with a name.

use std::rc::Rc;

use super::{Gpu, MemoryClass};
use crate::error::{Error, Result};

/// A buffer on the GPU. Its memory is given back when it is dropped: on the web, dropping a handle alone frees nothing.
pub struct Tensor {
    gpu: Rc<Gpu>,
    buffer: wgpu::Buffer,
    name: String,
    bytes: u64,
    class: MemoryClass,
}

impl Tensor {
    /// Allocates `bytes` (rounded up to a multiple of 16, at least 16), filled with zeros, to be bound as storage or uniform.
    ///
    /// # Errors
    /// [`Error::Limit`] if the adapter cannot bind a buffer of this size.
    pub fn new(gpu: &Rc<Gpu>, name: &str, bytes: u64, class: MemoryClass) -> Result<Self> {
        let limits = gpu.limits();
        let most = limits
            .max_buffer_size
            .min(limits.max_storage_buffer_binding_size);
        if bytes > most {
            return Err(Error::Limit(format!(
                "'{name}' needs a buffer of {bytes} bytes, and this adapter binds at most {most}. \
                 Choose a smaller model or dtype, or another adapter."
            )));
        }
        let mut usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        if bytes <= limits.max_uniform_buffer_binding_size {
            usage |= wgpu::BufferUsages::UNIFORM;
        }
        Ok(Self::with_usage(gpu, name, bytes, class, usage))
    }

    pub(super) fn with_usage(
        gpu: &Rc<Gpu>,
        name: &str,
        bytes: u64,
        class: MemoryClass,
        usage: wgpu::BufferUsages,
    ) -> Self {
        let bytes = bytes.max(16).next_multiple_of(16);
        let buffer = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(name),
            size: bytes,
            usage,
            mapped_at_creation: false,
        });
        gpu.count(|c| c.buffers_created += 1);
        gpu.account(|m| m.add(class, bytes));
        Self {
            gpu: gpu.clone(),
            buffer,
            name: name.to_owned(),
            bytes,
            class,
        }
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.buffer.destroy();
        self.gpu.account(|m| m.remove(self.class, self.bytes));
    }
}

//! Weights in plain memory, laid out as on the GPU: what the loader wrote, and the values it stands for.

use std::collections::BTreeMap;

use super::decode::Source;
use super::inventory::Wanted;
use super::layout::Layout;
use super::names::Tensor;
use super::place::{Place, Region};
use super::target::{Target, Upload};
use super::transfer::{Transfer, Workspace};
use crate::error::Result;

/// Buffers in plain memory, each as long as what was written to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    buffers: BTreeMap<Target, Vec<u8>>,
}

impl Memory {
    /// Everything written to `target`; empty if nothing was.
    pub fn bytes(&self, target: Target) -> &[u8] {
        self.buffers.get(&target).map_or(&[], Vec::as_slice)
    }

    /// The targets that were written to.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.buffers.keys().copied()
    }

    /// The values of a tensor that was written whole, in the shape and order of a checkpoint.
    pub fn tensor(&self, layout: &Layout, tensor: Tensor) -> Vec<f32> {
        let place = Place::new(layout, tensor);
        let all = 0..place.blocks();
        let scales = place
            .scales(all.clone())
            .map_or(&[][..], |region| self.read(region));
        place.unpack(all.clone(), self.read(place.data(all)), scales)
    }

    fn read(&self, region: Region) -> &[u8] {
        &self.bytes(region.target)[region.offset as usize..][..region.bytes]
    }
}

impl Upload for Memory {
    fn write(&mut self, target: Target, offset: u64, bytes: &[u8]) -> Result<()> {
        let buffer = self.buffers.entry(target).or_default();
        let start = offset as usize;
        buffer.resize(buffer.len().max(start + bytes.len()), 0);
        buffer[start..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// What `values` of `tensor` (in the shape and order of a checkpoint) become when they are stored in this layout's dtype.
///
/// # Errors
/// [`Error::BadCheckpoint`](crate::error::Error::BadCheckpoint) for a value that cannot be stored.
pub fn round_tensor(layout: &Layout, tensor: Tensor, values: &[f32]) -> Result<Vec<f32>> {
    let wanted = Wanted {
        name: tensor.name(),
        tensor,
        into: tensor,
        source: Source::F32,
    };
    let mut transfer = Transfer::new(layout, "The model", wanted);
    let (mut work, mut memory) = (Workspace::default(), Memory::default());
    let mut bytes = bytemuck::cast_slice(values);
    while !transfer.is_done() && !bytes.is_empty() {
        bytes = transfer.feed(bytes, &mut work, &mut memory)?;
    }
    Ok(memory.tensor(layout, tensor))
}

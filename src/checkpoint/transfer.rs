//! One tensor on its way from the file to GPU memory, block by block.

use super::decode::F16_OVERFLOW;
use super::dtype::Dtype;
use super::header::bad;
use super::inventory::Wanted;
use super::layout::Layout;
use super::names::Tensor;
use super::pack::Packer;
use super::place::Place;
use super::target::Upload;
use crate::error::{Error, Result};

/// The memory that all transfers share, one after the other.
#[derive(Debug, Default)]
pub struct Workspace {
    /// The bytes of a block as far as they have come; empty while whole blocks lie in the pieces that arrive.
    pending: Vec<u8>,
    /// The values of a block, padded.
    values: Vec<f32>,
    packer: Packer,
}

/// A tensor of a file that is being loaded.
#[derive(Debug)]
pub struct Transfer {
    file: String,
    wanted: Wanted,
    place: Place,
    /// The block that comes next.
    block: usize,
    fingerprint: u64,
}

impl Transfer {
    /// `wanted` of `file`, of which no byte has come yet.
    pub fn new(layout: &Layout, file: &str, wanted: Wanted) -> Transfer {
        Transfer {
            file: file.to_owned(),
            place: Place::new(layout, wanted.into),
            wanted,
            block: 0,
            fingerprint: 0,
        }
    }

    /// The tensor.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Whether all its bytes have come.
    pub fn is_done(&self) -> bool {
        self.block == self.place.blocks()
    }

    /// A hash of the values of `wte` or `lm_head`, for telling whether the two are equal.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Takes bytes up to the end of a block, writes the block if it is whole, and returns the bytes that are left.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] for a value that is not finite or that fp16 cannot hold, and what the upload says.
    pub fn feed<'a>(
        &mut self,
        chunk: &'a [u8],
        work: &mut Workspace,
        upload: &mut dyn Upload,
    ) -> Result<&'a [u8]> {
        let needed = self.place.source_rows(self.block..self.block + 1).len() * self.row_bytes();
        if work.pending.is_empty() && chunk.len() >= needed {
            let (bytes, rest) = chunk.split_at(needed);
            self.write_block(bytes, &mut work.values, &mut work.packer, upload)?;
            return Ok(rest);
        }
        let (bytes, rest) = chunk.split_at(chunk.len().min(needed - work.pending.len()));
        work.pending.extend_from_slice(bytes);
        if work.pending.len() == needed {
            self.write_block(&work.pending, &mut work.values, &mut work.packer, upload)?;
            work.pending.clear();
        }
        Ok(rest)
    }

    fn row_bytes(&self) -> usize {
        self.place.columns().source_len() * self.wanted.source.value_bytes()
    }

    fn write_block(
        &mut self,
        bytes: &[u8],
        values: &mut Vec<f32>,
        packer: &mut Packer,
        upload: &mut dyn Upload,
    ) -> Result<()> {
        let block = self.block..self.block + 1;
        values.resize(self.place.block_len(self.block), 0.0);
        if self.place.rows().is_padded() || self.place.columns().is_padded() {
            values.fill(0.0);
        }
        let largest = self.decode(bytes, values);
        let smallest_bad = match self.place.dtype() {
            Dtype::Fp16 => F16_OVERFLOW,
            Dtype::Fp32 | Dtype::Q8 => f32::INFINITY,
        };
        if largest >= smallest_bad.to_bits() {
            return Err(self.out_of_range(values, smallest_bad));
        }
        if matches!(self.wanted.tensor, Tensor::Wte | Tensor::LmHead) {
            self.fingerprint = fingerprint(self.fingerprint, values);
        }
        let packed = self.place.pack(values, packer);
        let data = self.place.data(block.clone());
        upload.write(data.target, data.offset, packed.data)?;
        if let Some(scales) = self.place.scales(block) {
            upload.write(
                scales.target,
                scales.offset,
                bytemuck::cast_slice(packed.scales),
            )?;
        }
        self.block += 1;
        Ok(())
    }

    /// Decodes the rows of a block to where they lie among its padded values, and returns the bits of the largest
    /// magnitude.
    fn decode(&self, bytes: &[u8], values: &mut [f32]) -> u32 {
        let Wanted { source, .. } = self.wanted;
        let columns = self.place.columns();
        let rows = self.place.source_rows(self.block..self.block + 1);
        let mut largest = 0;
        for (row, bytes) in rows.zip(bytes.chunks_exact(self.row_bytes())) {
            let row = &mut values[self.place.row_start(row)..][..columns.padded_len()];
            let pieces = row.chunks_exact_mut(columns.padded);
            for (piece, bytes) in
                pieces.zip(bytes.chunks_exact(columns.size * source.value_bytes()))
            {
                largest = largest.max(source.decode(bytes, &mut piece[..columns.size]));
            }
        }
        largest
    }

    /// The error for a block in which some magnitude is `smallest_bad` or more.
    fn out_of_range(&self, values: &[f32], smallest_bad: f32) -> Error {
        let columns = self.place.columns();
        for row in self.place.source_rows(self.block..self.block + 1) {
            let start = self.place.row_start(row);
            for column in 0..columns.source_len() {
                let value = values[start + columns.padded_index(column)];
                // Written so that NaN is found as well.
                if value.abs() < smallest_bad {
                    continue;
                }
                let advice = if value.is_finite() {
                    "more than fp16 can hold (65504). Load the model with dtype fp32"
                } else {
                    "not a number that a model can compute with. The file is damaged, or the training that made it diverged: use another checkpoint"
                };
                return bad(
                    &self.file,
                    format!(
                        "has {value} in tensor {:?} at row {row}, column {column}, which is {advice}",
                        self.wanted.name
                    ),
                );
            }
        }
        bad(
            &self.file,
            format!("has a value out of range in tensor {:?}", self.wanted.name),
        )
    }
}

/// Goes on with a hash (FNV-1a over pairs of values) of which `hash` is the result so far.
fn fingerprint(hash: u64, values: &[f32]) -> u64 {
    values.chunks_exact(2).fold(hash, |hash, pair| {
        let bits = u64::from(pair[0].to_bits()) << 32 | u64::from(pair[1].to_bits());
        (hash ^ bits).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

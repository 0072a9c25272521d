//! One tensor's place in GPU memory, and the blocks of rows in which it travels there.

use std::ops::Range;

use super::axis::Axis;
use super::dtype::{Dtype, SCALE_ROWS};
use super::layout::{Layout, TILE_ROWS};
use super::names::Tensor;
use super::pack::{self, Packed, Packer};
use super::target::{Param, Target};

/// How a tensor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Row-major f32 in every dtype.
    Floats,
    /// A matrix, packed as the dtype says.
    Matrix,
    /// Tiles of rows, each packed as the matrix of its transpose.
    Tiles,
}

/// A stretch of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The logical buffer.
    pub target: Target,
    /// Bytes from its start.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// Where one tensor lies in GPU memory.
///
/// It is cut into blocks of rows that can be packed, written, read and unpacked on their own: 64 rows (the rows that
/// share their q8 scales) or one tile.
#[derive(Debug, Clone)]
pub struct Place {
    dtype: Dtype,
    form: Form,
    rows: Axis,
    columns: Axis,
    data: (Target, u64),
    scales: (Target, u64),
}

impl Place {
    /// The place of `tensor`.
    pub fn new(layout: &Layout, tensor: Tensor) -> Place {
        let row = layout.embedding_axis();
        let vector = |target, param| {
            let at = (target, 4 * layout.param(param) as u64);
            (
                Form::Floats,
                [Axis::unpadded(1), layout.param_axis(param)],
                at,
                at,
            )
        };
        let tiles = |data, scales| {
            let rows = Axis {
                padded: layout.tiles() * TILE_ROWS,
                ..Axis::unpadded(layout.config().vocab_size)
            };
            (Form::Tiles, [rows, row], (data, 0), (scales, 0))
        };
        let (form, [rows, columns], data, scales) = match tensor {
            Tensor::Wte => tiles(Target::Wte, Target::WteScales),
            Tensor::LmHead => tiles(Target::LmHead, Target::LmHeadScales),
            Tensor::Wpe => {
                let at = (Target::Wpe, 0);
                (
                    Form::Floats,
                    [Axis::unpadded(layout.config().n_positions), row],
                    at,
                    at,
                )
            }
            Tensor::Matrix { layer, matrix } => {
                let scales = 4 * layout.param(Param::Scales(matrix)) as u64;
                (
                    Form::Matrix,
                    layout.axes(matrix),
                    (Target::Matrix { layer, matrix }, 0),
                    (Target::Params { layer }, scales),
                )
            }
            Tensor::Param { layer, param } => vector(Target::Params { layer }, param),
            Tensor::LnFWeight => vector(Target::FinalParams, Param::LnFWeight),
            Tensor::LnFBias => vector(Target::FinalParams, Param::LnFBias),
        };
        let dtype = if form == Form::Floats {
            Dtype::Fp32
        } else {
            layout.dtype()
        };
        Place {
            dtype,
            form,
            rows,
            columns,
            data,
            scales,
        }
    }

    /// How its values are stored.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The in or row axis.
    pub fn rows(&self) -> Axis {
        self.rows
    }

    /// The out or column axis.
    pub fn columns(&self) -> Axis {
        self.columns
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.rows.padded_len().div_ceil(self.block_rows())
    }

    /// The rows of the checkpoint that `blocks` hold.
    pub fn source_rows(&self, blocks: Range<usize>) -> Range<usize> {
        self.rows.source_range(self.padded_rows(blocks))
    }

    /// Where the values of `blocks` lie.
    pub fn data(&self, blocks: Range<usize>) -> Region {
        let rows = self.padded_rows(blocks);
        let row_bytes = self.columns.padded_len() * self.dtype.value_bytes();
        let (target, base) = self.data;
        Region {
            target,
            offset: base + rows.start as u64 * row_bytes as u64,
            bytes: rows.len() * row_bytes,
        }
    }

    /// Where the q8 scales of `blocks` lie; `None` if its values have no scales.
    pub fn scales(&self, blocks: Range<usize>) -> Option<Region> {
        let per_block = match (self.dtype, self.form) {
            (Dtype::Q8, Form::Matrix) => self.columns.padded_len(),
            (Dtype::Q8, Form::Tiles) => self.columns.padded_len().div_ceil(SCALE_ROWS) * TILE_ROWS,
            _ => return None,
        };
        let (target, base) = self.scales;
        Some(Region {
            target,
            offset: base + 4 * (blocks.start as u64 * per_block as u64),
            bytes: 4 * blocks.len() * per_block,
        })
    }

    /// f32 values of block `block`, padding included.
    pub fn block_len(&self, block: usize) -> usize {
        self.padded_rows(block..block + 1).len() * self.columns.padded_len()
    }

    /// Where row `row` of the checkpoint begins in its block of padded values.
    pub fn row_start(&self, row: usize) -> usize {
        self.rows.padded_index(row) % self.block_rows() * self.columns.padded_len()
    }

    /// Packs the padded, row-major values of one block.
    pub fn pack<'a>(&self, values: &'a [f32], packer: &'a mut Packer) -> Packed<'a> {
        match self.form {
            Form::Floats | Form::Matrix => {
                packer.pack(self.dtype, values, self.columns.padded_len())
            }
            Form::Tiles => packer.pack_transposed(self.dtype, values, TILE_ROWS),
        }
    }

    /// The values of the checkpoint's rows `source_rows(blocks)`, row-major and without padding, from what
    /// [`Place::data`] and [`Place::scales`] hold; `scales` is empty if there are none.
    pub fn unpack(&self, blocks: Range<usize>, data: &[u8], scales: &[u8]) -> Vec<f32> {
        let (scales, _) = scales.as_chunks();
        let scales: Vec<f32> = scales
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let mut values =
            Vec::with_capacity(self.source_rows(blocks.clone()).len() * self.columns.source_len());
        let scales_per_block = scales.len() / blocks.len().max(1);
        let first = self.data(blocks.clone()).offset;
        for (i, block) in blocks.enumerate() {
            let region = self.data(block..block + 1);
            let data = &data[(region.offset - first) as usize..][..region.bytes];
            let scales = &scales[i * scales_per_block..][..scales_per_block];
            let padded = match self.form {
                Form::Floats | Form::Matrix => {
                    pack::unpack(self.dtype, data, scales, self.columns.padded_len())
                }
                Form::Tiles => {
                    let tile = pack::unpack(self.dtype, data, scales, TILE_ROWS);
                    let mut rows = vec![0.0; tile.len()];
                    pack::transpose(&tile, tile.len() / TILE_ROWS, &mut rows);
                    rows
                }
            };
            for row in self.source_rows(block..block + 1) {
                let row = &padded[self.row_start(row)..][..self.columns.padded_len()];
                for piece in row.chunks_exact(self.columns.padded) {
                    values.extend_from_slice(&piece[..self.columns.size]);
                }
            }
        }
        values
    }

    fn block_rows(&self) -> usize {
        match self.form {
            Form::Tiles => TILE_ROWS,
            Form::Floats | Form::Matrix => SCALE_ROWS,
        }
    }

    fn padded_rows(&self, blocks: Range<usize>) -> Range<usize> {
        let end = self.rows.padded_len();
        let rows = self.block_rows();
        (blocks.start * rows).min(end)..(blocks.end * rows).min(end)
    }
}

//! The checkpoint in GPU buffers, laid out as [`Layout`] says.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::checkpoint::{Layout, Matrix, Target, Upload};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, MemoryClass, Tensor};
use crate::self_check::{is_head, weighted_sum};

/// The most buffers that a table of rows (`wte`, `lm_head`) is split into; every kernel that reads one binds this many.
pub const PARTS: usize = 3;

/// A table of rows, split at tile boundaries into as many buffers as the adapter's binding limit asks for.
pub struct Table {
    parts: Vec<Tensor>,
    tiles_per_part: usize,
    tile_bytes: usize,
    /// The q8 scales; a stub in other dtypes.
    pub scales: Tensor,
}

impl Table {
    fn allocate(gpu: &Rc<Gpu>, layout: &Layout, name: &str, scales: Target) -> Result<Self> {
        let limits = gpu.limits();
        let most = limits
            .max_storage_buffer_binding_size
            .min(limits.max_buffer_size);
        let tile_bytes = layout.tile_bytes();
        let tiles = layout.tiles();
        let fitting = (most / tile_bytes as u64) as usize;
        if fitting * PARTS < tiles {
            return Err(Error::Limit(format!(
                "'{name}' has {} bytes, and this adapter binds at most {most} bytes in each of {PARTS} buffers. \
                 Choose a smaller model or dtype.",
                tiles * tile_bytes
            )));
        }
        let tiles_per_part = fitting.min(tiles);
        let parts = (0..tiles)
            .step_by(tiles_per_part)
            .map(|first| {
                let count = tiles_per_part.min(tiles - first);
                Tensor::new(gpu, name, (count * tile_bytes) as u64, MemoryClass::Weights)
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            parts,
            tiles_per_part,
            tile_bytes,
            scales: Tensor::new(gpu, name, layout.bytes(scales), MemoryClass::Weights)?,
        })
    }

    /// The parts as bindings; where there are fewer than [`PARTS`], the first one stands in, unread.
    pub fn bindings(&self) -> [&Tensor; PARTS] {
        std::array::from_fn(|i| self.parts.get(i).unwrap_or(&self.parts[0]))
    }

    /// `vec4<u32>` in a whole part, by which the kernels find the part of an index.
    pub fn part_vec4s(&self) -> f64 {
        (self.tiles_per_part * self.tile_bytes / 16) as f64
    }

    /// The part that holds byte `offset` of the table, and the offset in it.
    fn locate(&self, offset: u64) -> (&Tensor, u64) {
        let part_bytes = (self.tiles_per_part * self.tile_bytes) as u64;
        (
            &self.parts[(offset / part_bytes) as usize],
            offset % part_bytes,
        )
    }
}

/// All weights of a model.
pub struct Weights {
    gpu: Rc<Gpu>,
    layout: Layout,
    /// The token embedding.
    pub wte: Table,
    /// A head of its own, allocated when the first of it comes: some files have one although config.json ties it.
    pub lm_head: Option<Table>,
    /// The position embedding.
    pub wpe: Tensor,
    /// Four matrices per layer, in the order of [`Matrix::ALL`].
    matrices: Vec<[Tensor; 4]>,
    /// Norms, biases and scales per layer.
    params: Vec<Tensor>,
    /// ln_f.
    pub final_params: Tensor,
    /// A sum of what was written to each target, by which damage can be found later.
    sums: BTreeMap<Target, u32>,
}

impl Weights {
    /// Allocates every buffer of the layout, filled with zeros.
    ///
    /// # Errors
    /// [`Error::Limit`] if a tensor is larger than the adapter binds.
    pub fn allocate(gpu: &Rc<Gpu>, layout: &Layout) -> Result<Self> {
        let tensor =
            |name: &str, target| Tensor::new(gpu, name, layout.bytes(target), MemoryClass::Weights);
        let layers = 0..layout.config().n_layer;
        let matrices = layers
            .clone()
            .map(|layer| {
                let [a, b, c, d] = Matrix::ALL.map(|matrix| {
                    tensor(
                        &format!("h.{layer}.{matrix:?}"),
                        Target::Matrix { layer, matrix },
                    )
                });
                Ok([a?, b?, c?, d?])
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            wte: Table::allocate(gpu, layout, "wte", Target::WteScales)?,
            lm_head: None,
            wpe: tensor("wpe", Target::Wpe)?,
            matrices,
            params: layers
                .map(|layer| tensor(&format!("h.{layer} params"), Target::Params { layer }))
                .collect::<Result<_>>()?,
            final_params: tensor("ln_f", Target::FinalParams)?,
            sums: BTreeMap::new(),
            gpu: gpu.clone(),
            layout: layout.clone(),
        })
    }

    /// Makes `wte` the head, and frees a head that turned out to be the same.
    pub(crate) fn tie(&mut self) {
        self.lm_head = None;
        self.sums.retain(|target, _| !is_head(*target));
    }

    /// The sum of what was written to each target.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (Target, u32)> {
        self.sums.iter().map(|(target, sum)| (*target, *sum))
    }

    /// Sizes and offsets.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A matrix of a layer.
    pub fn matrix(&self, layer: usize, matrix: Matrix) -> &Tensor {
        &self.matrices[layer][matrix as usize]
    }

    /// The norms, biases and scales of a layer.
    pub fn params(&self, layer: usize) -> &Tensor {
        &self.params[layer]
    }

    /// The head: `lm_head`, or `wte` where the config ties them.
    pub fn head(&self) -> &Table {
        self.lm_head.as_ref().unwrap_or(&self.wte)
    }

    /// The tensor that holds byte `offset` of `target`, and the offset in it.
    ///
    /// # Errors
    /// [`Error::Internal`] if this model has no such tensor.
    pub fn locate(&self, target: Target, offset: u64) -> Result<(&Tensor, u64)> {
        let missing =
            || Error::Internal(format!("This model has no {target:?}. Please report this."));
        Ok(match target {
            Target::Matrix { layer, matrix } => (self.matrix(layer, matrix), offset),
            Target::Params { layer } => (self.params(layer), offset),
            Target::FinalParams => (&self.final_params, offset),
            Target::Wte => self.wte.locate(offset),
            Target::WteScales => (&self.wte.scales, offset),
            Target::LmHead => self.lm_head.as_ref().ok_or_else(missing)?.locate(offset),
            Target::LmHeadScales => (&self.lm_head.as_ref().ok_or_else(missing)?.scales, offset),
            Target::Wpe => (&self.wpe, offset),
        })
    }
}

impl Upload for Weights {
    fn write(&mut self, target: Target, offset: u64, bytes: &[u8]) -> Result<()> {
        if matches!(target, Target::LmHead | Target::LmHeadScales) && self.lm_head.is_none() {
            let head = Table::allocate(&self.gpu, &self.layout, "lm_head", Target::LmHeadScales)?;
            self.lm_head = Some(head);
        }
        let sum = self.sums.entry(target).or_default();
        *sum = sum.wrapping_add(weighted_sum(offset, bytes));
        let (tensor, offset) = self.locate(target, offset)?;
        self.gpu.write(tensor, offset, bytes)
    }
}

//! The logical buffers that hold the weights, and what is in them.

use crate::error::Result;

/// A weight matrix of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Matrix {
    /// `attn.c_attn.weight` `[C, 3C]`, stored `[Cp, 3A]`: queries, keys, values.
    CAttn,
    /// `attn.c_proj.weight` `[C, C]`, stored `[A, Cp]`.
    AttnProj,
    /// `mlp.c_fc.weight` `[C, F]`, stored `[Cp, Fp]`.
    CFc,
    /// `mlp.c_proj.weight` `[F, C]`, stored `[Fp, Cp]`.
    MlpProj,
}

impl Matrix {
    /// The matrices of a block, in the order of the forward pass.
    pub const ALL: [Matrix; 4] = [
        Matrix::CAttn,
        Matrix::AttnProj,
        Matrix::CFc,
        Matrix::MlpProj,
    ];
}

/// A vector in a params buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Param {
    /// `ln_1.weight` `[Cp]`.
    Ln1Weight,
    /// `ln_1.bias` `[Cp]`.
    Ln1Bias,
    /// `attn.c_attn.bias` `[3A]`.
    CAttnBias,
    /// `attn.c_proj.bias` `[Cp]`.
    AttnProjBias,
    /// `ln_2.weight` `[Cp]`.
    Ln2Weight,
    /// `ln_2.bias` `[Cp]`.
    Ln2Bias,
    /// `mlp.c_fc.bias` `[Fp]`.
    CFcBias,
    /// `mlp.c_proj.bias` `[Cp]`.
    MlpProjBias,
    /// The scales of a matrix `[K, N]`: `[ceil(K / 64), N]` with q8, nothing otherwise.
    Scales(Matrix),
    /// `ln_f.weight` `[Cp]`, in the final params.
    LnFWeight,
    /// `ln_f.bias` `[Cp]`, in the final params.
    LnFBias,
}

impl Param {
    /// A block's params in the order in which its buffer holds them.
    pub const LAYER: [Param; 12] = [
        Param::Ln1Weight,
        Param::Ln1Bias,
        Param::CAttnBias,
        Param::AttnProjBias,
        Param::Ln2Weight,
        Param::Ln2Bias,
        Param::CFcBias,
        Param::MlpProjBias,
        Param::Scales(Matrix::CAttn),
        Param::Scales(Matrix::AttnProj),
        Param::Scales(Matrix::CFc),
        Param::Scales(Matrix::MlpProj),
    ];

    /// The final params in the order in which their buffer holds them.
    pub const FINAL: [Param; 2] = [Param::LnFWeight, Param::LnFBias];
}

/// A logical buffer of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A matrix of a block.
    Matrix {
        /// The block, from 0.
        layer: usize,
        /// Which of its matrices.
        matrix: Matrix,
    },
    /// The params of a block: layer norms, biases and scales.
    Params {
        /// The block, from 0.
        layer: usize,
    },
    /// The params of the last layer norm.
    FinalParams,
    /// The token embedding, in tiles.
    Wte,
    /// The scales of the token embedding; empty unless q8.
    WteScales,
    /// A head of its own, in tiles.
    LmHead,
    /// The scales of the head; empty unless q8.
    LmHeadScales,
    /// The position embedding.
    Wpe,
}

/// Where converted bytes go: GPU buffers, or memory in tests.
pub trait Upload {
    /// Takes `bytes` for `target`, `offset` bytes from its start. Both the offset and the length are multiples of 4, and
    /// a write to [`Target::Wte`] or [`Target::LmHead`] never crosses a tile.
    ///
    /// # Errors
    /// Whatever keeps the bytes from getting there; loading ends with that error.
    fn write(&mut self, target: Target, offset: u64, bytes: &[u8]) -> Result<()>;
}

//! Where every weight lies in GPU memory.
//!
//! Kernels read weights as `array<vec4<u32>>`, four neighbouring columns at a time, so every axis is padded with zeros to
//! a multiple of 4: `Cp`, `Fp`, and each attention head on its own (`Dp`), which makes the attention width `A = H * Dp`.
//!
//! * **Matrix** `[K, N]` (Hugging Face's Conv1D: in x out): one `vec4<u32>` holds columns `n..n+4` of `KR` rows, row by
//!   row, and lies at index `(k / KR) * (N / 4) + n / 4`. `KR` is 1 for fp32 (a plain row-major matrix), 2 for fp16
//!   (pairs for `unpack2x16float`), 4 for q8 (one row per word, low byte first).
//! * **Rows** `[V, C]` (`wte`, `lm_head`): tiles of 256 rows, each stored as the matrix `[Cp, 256]` of its transpose, so
//!   that the head reads it like any other matrix. V is padded to whole tiles.
//! * **q8**: `value = scale * int8` with one f32 scale per 64 rows of K and column, `scale[(k / 64) * N + n]`.
//! * **wpe** `[n_positions, Cp]`, biases, layer norms and scales are f32 in every dtype.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::config::Config;
use crate::error::{Error, Result};

/// Rows of `wte` and `lm_head` in one tile.
pub const TILE_ROWS: usize = 256;

/// Rows of the in axis that share one q8 scale per column.
pub const SCALE_ROWS: usize = 64;

/// How the matrices are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    Fp32,
    /// 16-bit floats.
    Fp16,
    /// 8-bit integers with a scale per 64 values.
    Q8,
}

impl Dtype {
    /// Every dtype, largest first.
    pub const ALL: [Dtype; 3] = [Dtype::Fp32, Dtype::Fp16, Dtype::Q8];

    /// KR: rows of the in axis in one `vec4<u32>`.
    pub const fn kr(self) -> usize {
        match self {
            Dtype::Fp32 => 1,
            Dtype::Fp16 => 2,
            Dtype::Q8 => 4,
        }
    }

    /// Bytes of one value in a matrix, q8 scales not counted.
    pub const fn value_bytes(self) -> usize {
        4 / self.kr()
    }

    /// The name of this dtype in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Fp32 => "fp32",
            Dtype::Fp16 => "fp16",
            Dtype::Q8 => "q8",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(name: &str) -> Result<Dtype> {
        Dtype::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| {
                Error::BadOption(format!(
                    "dtype {name:?} is unknown; choose fp32, fp16 or q8."
                ))
            })
    }
}

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

/// An axis made of `count` pieces of `size` values, each padded with zeros to `padded` values in GPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Number of pieces: 1, or the heads.
    pub count: usize,
    /// Values of a piece in the checkpoint.
    pub size: usize,
    /// Values of a piece in GPU memory, a multiple of 4.
    pub padded: usize,
}

impl Axis {
    fn pieces(count: usize, size: usize) -> Axis {
        Axis {
            count,
            size,
            padded: pad4(size),
        }
    }

    /// Values in the checkpoint.
    pub fn len(self) -> usize {
        self.count * self.size
    }

    /// Whether the axis holds nothing.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Values in GPU memory.
    pub fn padded_len(self) -> usize {
        self.count * self.padded
    }

    /// Where value `i` of the checkpoint lies in GPU memory.
    pub fn padded_index(self, i: usize) -> usize {
        i / self.size * self.padded + i % self.size
    }
}

/// `n` rounded up to a multiple of 4.
pub const fn pad4(n: usize) -> usize {
    n.next_multiple_of(4)
}

/// Every size and offset of a model's weights in GPU memory.
#[derive(Debug, Clone)]
pub struct Layout {
    config: Config,
    dtype: Dtype,
    /// Cp: width of the residual stream, padded.
    pub c_p: usize,
    /// Dp: head size, padded.
    pub d_p: usize,
    /// A = H * Dp: attention width.
    pub a: usize,
    /// Fp: inner width of the MLP, padded.
    pub f_p: usize,
}

impl Layout {
    /// The layout of a model of this shape with its matrices stored as `dtype`.
    pub fn new(config: &Config, dtype: Dtype) -> Layout {
        let d_p = pad4(config.head_size());
        Layout {
            dtype,
            c_p: pad4(config.n_embd),
            d_p,
            a: config.n_head * d_p,
            f_p: pad4(config.n_inner),
            config: config.clone(),
        }
    }

    /// The shape it was made for.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How the matrices are stored.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// KR: rows of the in axis in one `vec4<u32>`.
    pub fn kr(&self) -> usize {
        self.dtype.kr()
    }

    /// The in and out axes (K, N) of a matrix.
    pub fn axes(&self, matrix: Matrix) -> [Axis; 2] {
        let c = Axis::pieces(1, self.config.n_embd);
        let f = Axis::pieces(1, self.config.n_inner);
        match matrix {
            Matrix::CAttn => [c, self.heads(3)],
            Matrix::AttnProj => [self.heads(1), c],
            Matrix::CFc => [c, f],
            Matrix::MlpProj => [f, c],
        }
    }

    /// The axis of a layer norm or bias, or of one row of a matrix's scales.
    pub fn param_axis(&self, param: Param) -> Axis {
        match param {
            Param::CAttnBias => self.axes(Matrix::CAttn)[1],
            Param::CFcBias => self.axes(Matrix::CFc)[1],
            Param::Scales(matrix) => self.axes(matrix)[1],
            _ => self.embedding_axis(),
        }
    }

    /// The axis of the residual stream: a row of `wte`, `wpe` and `lm_head`.
    pub fn embedding_axis(&self) -> Axis {
        Axis::pieces(1, self.config.n_embd)
    }

    /// Where `param` begins in its buffer, in f32 values; the same in every block.
    pub fn param(&self, param: Param) -> usize {
        let buffer: &[Param] = if Param::FINAL.contains(&param) {
            &Param::FINAL
        } else {
            &Param::LAYER
        };
        buffer
            .iter()
            .take_while(|before| **before != param)
            .map(|before| self.param_len(*before))
            .sum()
    }

    /// f32 values of `param`, padding included.
    pub fn param_len(&self, param: Param) -> usize {
        let width = self.param_axis(param).padded_len();
        match param {
            Param::Scales(_) if self.dtype != Dtype::Q8 => 0,
            Param::Scales(matrix) => self.axes(matrix)[0].padded_len().div_ceil(SCALE_ROWS) * width,
            _ => width,
        }
    }

    /// Tiles of `wte` (and of `lm_head`).
    pub fn tiles(&self) -> usize {
        self.config.vocab_size.div_ceil(TILE_ROWS)
    }

    /// Bytes of one tile.
    pub fn tile_bytes(&self) -> usize {
        self.c_p * TILE_ROWS * self.dtype.value_bytes()
    }

    /// f32 scales of one tile; 0 unless q8.
    pub fn tile_scales(&self) -> usize {
        if self.dtype == Dtype::Q8 {
            self.c_p.div_ceil(SCALE_ROWS) * TILE_ROWS
        } else {
            0
        }
    }

    /// Bytes of a target, padding included. The head's are those of a head of its own even where the config ties it.
    pub fn bytes(&self, target: Target) -> u64 {
        let floats = |n: usize| n as u64 * 4;
        match target {
            Target::Matrix { matrix, .. } => {
                let [k, n] = self.axes(matrix).map(|axis| axis.padded_len() as u64);
                k * n * self.dtype.value_bytes() as u64
            }
            Target::Params { .. } => Param::LAYER
                .iter()
                .map(|param| floats(self.param_len(*param)))
                .sum(),
            Target::FinalParams => Param::FINAL
                .iter()
                .map(|param| floats(self.param_len(*param)))
                .sum(),
            Target::Wte | Target::LmHead => self.tiles() as u64 * self.tile_bytes() as u64,
            Target::WteScales | Target::LmHeadScales => {
                self.tiles() as u64 * floats(self.tile_scales())
            }
            Target::Wpe => self.config.n_positions as u64 * floats(self.c_p),
        }
    }

    /// Every target of this model that holds something, in the order of the forward pass. The head is among them unless
    /// the config ties it to `wte`.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = vec![Target::Wte, Target::WteScales, Target::Wpe];
        for layer in 0..self.config.n_layer {
            targets.push(Target::Params { layer });
            targets.extend(Matrix::ALL.map(|matrix| Target::Matrix { layer, matrix }));
        }
        targets.push(Target::FinalParams);
        if !self.config.tie_word_embeddings {
            targets.extend([Target::LmHead, Target::LmHeadScales]);
        }
        targets.retain(|target| self.bytes(*target) > 0);
        targets
    }

    /// Bytes of all targets together.
    pub fn total_bytes(&self) -> u64 {
        self.targets()
            .into_iter()
            .map(|target| self.bytes(target))
            .sum()
    }

    fn heads(&self, sections: usize) -> Axis {
        Axis::pieces(sections * self.config.n_head, self.config.head_size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C = 45 in 3 heads of 15, an inner width of 50, 257 rows.
    fn odd(dtype: Dtype) -> Layout {
        let text = r#"{"n_layer": 2, "n_head": 3, "n_embd": 45, "n_inner": 50, "n_positions": 7, "vocab_size": 257}"#;
        Layout::new(&Config::from_json(text).unwrap(), dtype)
    }

    #[test]
    fn every_axis_is_padded_to_a_multiple_of_four() {
        let layout = odd(Dtype::Fp32);
        assert_eq!(
            (layout.c_p, layout.d_p, layout.a, layout.f_p),
            (48, 16, 48, 52)
        );
        assert_eq!(layout.axes(Matrix::CAttn).map(Axis::padded_len), [48, 144]);
        assert_eq!(layout.axes(Matrix::AttnProj).map(Axis::len), [45, 45]);
        // Value 5 of head 1 of the keys.
        assert_eq!(
            layout.axes(Matrix::CAttn)[1].padded_index(45 + 15 + 5),
            layout.a + layout.d_p + 5
        );
    }

    #[test]
    fn params_follow_each_other_without_gaps() {
        for dtype in Dtype::ALL {
            let layout = odd(dtype);
            let mut end = 0;
            for param in Param::LAYER {
                assert_eq!(layout.param(param), end, "{param:?} {dtype}");
                end += layout.param_len(param);
            }
            assert_eq!(layout.bytes(Target::Params { layer: 1 }), 4 * end as u64);
            assert_eq!(layout.param(Param::LnFBias), 48);
        }
        assert_eq!(odd(Dtype::Q8).param_len(Param::Scales(Matrix::CAttn)), 144);
        assert_eq!(odd(Dtype::Fp16).param_len(Param::Scales(Matrix::CAttn)), 0);
    }

    #[test]
    fn sizes_in_bytes() {
        for (dtype, value) in [(Dtype::Fp32, 4), (Dtype::Fp16, 2), (Dtype::Q8, 1)] {
            let layout = odd(dtype);
            assert_eq!(layout.tiles(), 2);
            assert_eq!(layout.bytes(Target::Wte), 2 * 256 * 48 * value);
            assert_eq!(
                layout.bytes(Target::Matrix {
                    layer: 0,
                    matrix: Matrix::MlpProj
                }),
                52 * 48 * value
            );
            assert_eq!(layout.bytes(Target::Wpe), 7 * 48 * 4);
        }
        assert_eq!(odd(Dtype::Q8).bytes(Target::WteScales), 2 * 256 * 4);
        assert!(!odd(Dtype::Fp16).targets().contains(&Target::WteScales));
        assert!(!odd(Dtype::Fp16).targets().contains(&Target::LmHead));
    }

    #[test]
    fn dtypes_by_name() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        assert_eq!("int4".parse::<Dtype>().unwrap_err().code(), "bad-option");
    }
}

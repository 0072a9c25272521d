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

use super::axis::{Axis, pad4};
use super::dtype::{Dtype, SCALE_ROWS};
use super::target::{Matrix, Param, Target};
use crate::config::Config;

/// Rows of `wte` and `lm_head` in one tile.
pub const TILE_ROWS: usize = 256;

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
        assert_eq!(
            layout.axes(Matrix::AttnProj).map(Axis::source_len),
            [45, 45]
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
}

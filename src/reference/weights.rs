//! The weights of a GPT-2 with the names and the shapes of the checkpoint, from wherever they are.

use half::{bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::checkpoint::{Dtype, Layout, Matrix, Param, Tensor, round_tensor};
use crate::config::Config;
use crate::error::{Error, Result};

/// A fully connected layer as GPT-2 stores it (`Conv1D`): `weight [K, N]`, in by out, and `bias [N]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// `[K, N]`
    pub weight: Vec<f32>,
    /// `[N]`
    pub bias: Vec<f32>,
}

/// The two learned vectors of a layer norm.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm {
    /// `[C]`
    pub weight: Vec<f32>,
    /// `[C]`
    pub bias: Vec<f32>,
}

/// `attn`: query, key and value in one matrix, and the projection back.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// `[C, 3C]`: the columns of q, then k, then v; within each, head h has columns h*D..(h+1)*D.
    pub c_attn: Linear,
    /// `[C, C]`
    pub c_proj: Linear,
}

/// `mlp`: widen, apply the activation, narrow.
#[derive(Debug, Clone, PartialEq)]
pub struct Mlp {
    /// `[C, F]`
    pub c_fc: Linear,
    /// `[F, C]`
    pub c_proj: Linear,
}

/// `h.i`: one of the L blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Before attention.
    pub ln_1: LayerNorm,
    /// Looks at earlier positions.
    pub attn: Attention,
    /// Before the MLP.
    pub ln_2: LayerNorm,
    /// Works on each position alone.
    pub mlp: Mlp,
}

/// Everything a checkpoint holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// `[V, C]`: one row per token id.
    pub wte: Vec<f32>,
    /// `[n_positions, C]`: one row per position.
    pub wpe: Vec<f32>,
    /// The L blocks.
    pub h: Vec<Block>,
    /// After the last block.
    pub ln_f: LayerNorm,
    /// `[V, C]`; `None` where the head is `wte` itself.
    pub lm_head: Option<Vec<f32>>,
}

impl Block {
    /// Block `layer`, asking `values` for one tensor after the other.
    ///
    /// # Errors
    /// The first that `values` gives.
    pub fn read(layer: usize, values: &mut dyn FnMut(Tensor) -> Result<Vec<f32>>) -> Result<Block> {
        let mut linear = |matrix, bias| {
            Ok(Linear {
                weight: values(Tensor::Matrix { layer, matrix })?,
                bias: values(Tensor::Param { layer, param: bias })?,
            })
        };
        let attn = Attention {
            c_attn: linear(Matrix::CAttn, Param::CAttnBias)?,
            c_proj: linear(Matrix::AttnProj, Param::AttnProjBias)?,
        };
        let mlp = Mlp {
            c_fc: linear(Matrix::CFc, Param::CFcBias)?,
            c_proj: linear(Matrix::MlpProj, Param::MlpProjBias)?,
        };
        let mut vector = |param| values(Tensor::Param { layer, param });
        Ok(Block {
            ln_1: LayerNorm {
                weight: vector(Param::Ln1Weight)?,
                bias: vector(Param::Ln1Bias)?,
            },
            attn,
            ln_2: LayerNorm {
                weight: vector(Param::Ln2Weight)?,
                bias: vector(Param::Ln2Bias)?,
            },
            mlp,
        })
    }
}

impl Weights {
    /// The weights of a model of this shape, asking `values` for one tensor after the other, in the shape of the
    /// checkpoint ([`Tensor::shape`]). With `tied`, the head is `wte`.
    ///
    /// # Errors
    /// The first that `values` gives.
    pub fn read(
        config: &Config,
        tied: bool,
        values: &mut dyn FnMut(Tensor) -> Result<Vec<f32>>,
    ) -> Result<Weights> {
        Ok(Weights {
            wte: values(Tensor::Wte)?,
            wpe: values(Tensor::Wpe)?,
            h: (0..config.n_layer)
                .map(|layer| Block::read(layer, values))
                .collect::<Result<_>>()?,
            ln_f: LayerNorm {
                weight: values(Tensor::LnFWeight)?,
                bias: values(Tensor::LnFBias)?,
            },
            lm_head: match tied {
                true => None,
                false => Some(values(Tensor::LmHead)?),
            },
        })
    }

    /// Reads a checkpoint from the bytes of its safetensors files: one, or all shards in any order.
    ///
    /// Names may have the `transformer.` prefix; f32, f16 and bf16 are converted; other tensors are left alone. A head
    /// that differs from `wte` is used even if the config ties the two, as transformers does. This is not the loader of
    /// [`crate::checkpoint`] on purpose: the tests compare the two.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] for a broken file and for a tensor that is missing or of another shape or dtype.
    pub fn from_safetensors(config: &Config, files: &[&[u8]]) -> Result<Weights> {
        let files: Vec<SafeTensors> = files
            .iter()
            .map(|bytes| SafeTensors::deserialize(bytes))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| {
                Error::BadCheckpoint(format!("The safetensors file cannot be read: {error}."))
            })?;
        let find = |name: &str| files.iter().find_map(|file| file.tensor(name).ok());
        let mut values = |tensor: Tensor| {
            let (name, shape) = (tensor.name(), tensor.shape(config));
            let view = find(&name).or_else(|| find(&format!("transformer.{name}")));
            let view = view.ok_or_else(|| bad(tensor, "is missing"))?;
            if view.shape() != shape {
                let (is, expected) = (view.shape(), shape);
                return Err(bad(
                    tensor,
                    &format!("has shape {is:?}; config.json says {expected:?}"),
                ));
            }
            floats(&view).ok_or_else(|| {
                bad(
                    tensor,
                    &format!("has dtype {}; F32, F16 and BF16 can be read", view.dtype()),
                )
            })
        };
        let mut weights = Weights::read(config, config.tie_word_embeddings, &mut values)?;
        if weights.lm_head.is_none() && find("lm_head.weight").is_some() {
            weights.lm_head = Some(values(Tensor::LmHead)?).filter(|head| *head != weights.wte);
        }
        Ok(weights)
    }

    /// The values of one tensor; `None` for a block or a kind of tensor that the weights do not have. A head that is
    /// tied is `wte`.
    pub fn values(&self, tensor: Tensor) -> Option<&[f32]> {
        Some(match tensor {
            Tensor::Wte => &self.wte,
            Tensor::Wpe => &self.wpe,
            Tensor::LnFWeight => &self.ln_f.weight,
            Tensor::LnFBias => &self.ln_f.bias,
            Tensor::LmHead => self.lm_head.as_ref().unwrap_or(&self.wte),
            Tensor::Matrix { layer, matrix } => {
                let block = self.h.get(layer)?;
                match matrix {
                    Matrix::CAttn => &block.attn.c_attn.weight,
                    Matrix::AttnProj => &block.attn.c_proj.weight,
                    Matrix::CFc => &block.mlp.c_fc.weight,
                    Matrix::MlpProj => &block.mlp.c_proj.weight,
                }
            }
            Tensor::Param { layer, param } => {
                let block = self.h.get(layer)?;
                match param {
                    Param::Ln1Weight => &block.ln_1.weight,
                    Param::Ln1Bias => &block.ln_1.bias,
                    Param::CAttnBias => &block.attn.c_attn.bias,
                    Param::AttnProjBias => &block.attn.c_proj.bias,
                    Param::Ln2Weight => &block.ln_2.weight,
                    Param::Ln2Bias => &block.ln_2.bias,
                    Param::CFcBias => &block.mlp.c_fc.bias,
                    Param::MlpProjBias => &block.mlp.c_proj.bias,
                    _ => return None,
                }
            }
        })
    }

    /// These weights as a GPU has them that stores matrices as `dtype`.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] for a value that `dtype` cannot store, and where the weights do not have this shape.
    pub fn rounded(&self, config: &Config, dtype: Dtype) -> Result<Weights> {
        let layout = Layout::new(config, dtype);
        Weights::read(config, self.lm_head.is_none(), &mut |tensor| {
            let count = tensor.shape(config).iter().product::<usize>();
            let values = self.values(tensor).filter(|values| values.len() == count);
            let values =
                values.ok_or_else(|| bad(tensor, "does not have the shape of the config"))?;
            round_tensor(&layout, tensor, values)
        })
    }
}

fn bad(tensor: Tensor, what: &str) -> Error {
    Error::BadCheckpoint(format!("Tensor {} {what}.", tensor.name()))
}

/// The values of a tensor in a file as f32; `None` for a dtype that is no float of 16 or 32 bits.
fn floats(view: &TensorView) -> Option<Vec<f32>> {
    let (pairs, _) = view.data().as_chunks();
    Some(match view.dtype() {
        safetensors::Dtype::F32 => {
            let (quads, _) = view.data().as_chunks();
            quads
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect()
        }
        safetensors::Dtype::F16 => pairs
            .iter()
            .map(|bytes| f16::from_le_bytes(*bytes).to_f32())
            .collect(),
        safetensors::Dtype::BF16 => pairs
            .iter()
            .map(|bytes| bf16::from_le_bytes(*bytes).to_f32())
            .collect(),
        _ => return None,
    })
}

//! The weights of a GPT-2 with the names and the shapes of the checkpoint, read from safetensors files.

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use crate::config::Config;
use crate::error::{Error, Result};

/// A fully connected layer as GPT-2 stores it (`Conv1D`): `weight [K, N]`, in by out, and `bias [N]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// [K, N]
    pub weight: Vec<f32>,
    /// [N]
    pub bias: Vec<f32>,
}

/// The two learned vectors of a layer norm.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm {
    /// [C]
    pub weight: Vec<f32>,
    /// [C]
    pub bias: Vec<f32>,
}

/// `attn`: query, key and value in one matrix, and the projection back.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// [C, 3C]: the columns of q, then k, then v; within each, head h has columns h*D..(h+1)*D.
    pub c_attn: Linear,
    /// [C, C]
    pub c_proj: Linear,
}

/// `mlp`: widen, apply the activation, narrow.
#[derive(Debug, Clone, PartialEq)]
pub struct Mlp {
    /// [C, F]
    pub c_fc: Linear,
    /// [F, C]
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
    /// [V, C]: one row per token id.
    pub wte: Vec<f32>,
    /// [n_positions, C]: one row per position.
    pub wpe: Vec<f32>,
    /// The L blocks.
    pub h: Vec<Block>,
    /// After the last block.
    pub ln_f: LayerNorm,
    /// [V, C]; `None` where the head is `wte` itself.
    pub lm_head: Option<Vec<f32>>,
}

impl Weights {
    /// Reads the tensors of a checkpoint from the bytes of its safetensors files: one, or all shards in any order.
    ///
    /// Names may have the `transformer.` prefix; f32, f16 and bf16 are converted; other tensors are left alone.
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
        let (c, f) = (config.n_embd, config.n_inner);
        let read = |name: String, shape: &[usize]| tensor(&files, &name, shape);
        let layer_norm = |name: String| {
            Ok(LayerNorm {
                weight: read(format!("{name}.weight"), &[c])?,
                bias: read(format!("{name}.bias"), &[c])?,
            })
        };
        let linear = |name: String, k: usize, n: usize| {
            Ok(Linear {
                weight: read(format!("{name}.weight"), &[k, n])?,
                bias: read(format!("{name}.bias"), &[n])?,
            })
        };
        let block = |i: usize| {
            Ok(Block {
                ln_1: layer_norm(format!("h.{i}.ln_1"))?,
                attn: Attention {
                    c_attn: linear(format!("h.{i}.attn.c_attn"), c, 3 * c)?,
                    c_proj: linear(format!("h.{i}.attn.c_proj"), c, c)?,
                },
                ln_2: layer_norm(format!("h.{i}.ln_2"))?,
                mlp: Mlp {
                    c_fc: linear(format!("h.{i}.mlp.c_fc"), c, f)?,
                    c_proj: linear(format!("h.{i}.mlp.c_proj"), f, c)?,
                },
            })
        };
        Ok(Weights {
            wte: read("wte.weight".into(), &[config.vocab_size, c])?,
            wpe: read("wpe.weight".into(), &[config.n_positions, c])?,
            h: (0..config.n_layer).map(block).collect::<Result<_>>()?,
            ln_f: layer_norm("ln_f".into())?,
            lm_head: match config.tie_word_embeddings {
                true => None,
                false => Some(read("lm_head.weight".into(), &[config.vocab_size, c])?),
            },
        })
    }
}

/// The values of one tensor as f32, wherever it is.
fn tensor(files: &[SafeTensors], name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    let bad = |what: String| Error::BadCheckpoint(format!("Tensor {name} {what}."));
    let view = files
        .iter()
        .find_map(|file| {
            file.tensor(name)
                .or_else(|_| file.tensor(&format!("transformer.{name}")))
                .ok()
        })
        .ok_or_else(|| bad("is missing".into()))?;
    if view.shape() != shape {
        return Err(bad(format!(
            "has shape {:?}; config.json says {shape:?}",
            view.shape()
        )));
    }
    match view.dtype() {
        Dtype::F32 => Ok(view
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()),
        Dtype::F16 => Ok(view
            .data()
            .chunks_exact(2)
            .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect()),
        Dtype::BF16 => Ok(view
            .data()
            .chunks_exact(2)
            .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect()),
        other => Err(bad(format!(
            "has dtype {other:?}; F32, F16 and BF16 can be read"
        ))),
    }
}

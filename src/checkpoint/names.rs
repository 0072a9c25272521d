//! The tensors of a GPT-2 under the names that Hugging Face gives them.

use super::target::{Matrix, Param};
use crate::config::Config;

/// The prefix of every tensor but the head in files saved from `GPT2LMHeadModel`; files of `GPT2Model` have none.
pub const PREFIX: &str = "transformer.";

const MATRICES: [(Matrix, &str); 4] = [
    (Matrix::CAttn, "attn.c_attn.weight"),
    (Matrix::AttnProj, "attn.c_proj.weight"),
    (Matrix::CFc, "mlp.c_fc.weight"),
    (Matrix::MlpProj, "mlp.c_proj.weight"),
];

const PARAMS: [(Param, &str); 8] = [
    (Param::Ln1Weight, "ln_1.weight"),
    (Param::Ln1Bias, "ln_1.bias"),
    (Param::CAttnBias, "attn.c_attn.bias"),
    (Param::AttnProjBias, "attn.c_proj.bias"),
    (Param::Ln2Weight, "ln_2.weight"),
    (Param::Ln2Bias, "ln_2.bias"),
    (Param::CFcBias, "mlp.c_fc.bias"),
    (Param::MlpProjBias, "mlp.c_proj.bias"),
];

/// One tensor of a GPT-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tensor {
    /// `wte.weight` `[V, C]`.
    Wte,
    /// `wpe.weight` `[n_positions, C]`.
    Wpe,
    /// `h.{layer}.*.weight` of a linear layer, in x out.
    Matrix {
        /// The block, from 0.
        layer: usize,
        /// Which of its matrices.
        matrix: Matrix,
    },
    /// A layer norm or bias of a block.
    Param {
        /// The block, from 0.
        layer: usize,
        /// Which of its vectors; never [`Param::Scales`], which no checkpoint holds.
        param: Param,
    },
    /// `ln_f.weight` `[C]`.
    LnFWeight,
    /// `ln_f.bias` `[C]`.
    LnFBias,
    /// `lm_head.weight` `[V, C]`.
    LmHead,
}

/// What a name in a file stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// A tensor of the model.
    Tensor(Tensor),
    /// `attn.bias` or `attn.masked_bias`: a causal mask that old versions saved along. It is no weight.
    Mask,
}

impl Tensor {
    /// Every tensor that a checkpoint of this shape must have, in the order of the forward pass. The head is among them
    /// unless the config ties it to `wte`.
    pub fn required(config: &Config) -> impl Iterator<Item = Tensor> {
        let blocks = (0..config.n_layer).flat_map(|layer| {
            let params = PARAMS.map(|(param, _)| Tensor::Param { layer, param });
            let matrices = MATRICES.map(|(matrix, _)| Tensor::Matrix { layer, matrix });
            params.into_iter().chain(matrices)
        });
        let head = (!config.tie_word_embeddings).then_some(Tensor::LmHead);
        [Tensor::Wte, Tensor::Wpe]
            .into_iter()
            .chain(blocks)
            .chain([Tensor::LnFWeight, Tensor::LnFBias])
            .chain(head)
    }

    /// The name, without the prefix `transformer.`.
    pub fn name(self) -> String {
        match self {
            Tensor::Wte => "wte.weight".into(),
            Tensor::Wpe => "wpe.weight".into(),
            Tensor::LnFWeight => "ln_f.weight".into(),
            Tensor::LnFBias => "ln_f.bias".into(),
            Tensor::LmHead => "lm_head.weight".into(),
            Tensor::Matrix { layer, matrix } => block_name(layer, &MATRICES, matrix),
            Tensor::Param { layer, param } => block_name(layer, &PARAMS, param),
        }
    }

    /// Bytes of a checkpoint of this shape in f32, its header not counted.
    pub fn checkpoint_bytes(config: &Config) -> u64 {
        let values = |tensor: Tensor| {
            tensor
                .shape(config)
                .iter()
                .map(|n| *n as u64)
                .product::<u64>()
        };
        Tensor::required(config)
            .map(|tensor| 4 * values(tensor))
            .sum()
    }

    /// The shape in a checkpoint.
    pub fn shape(self, config: &Config) -> Vec<usize> {
        let (c, f) = (config.n_embd, config.n_inner);
        match self {
            Tensor::Wte | Tensor::LmHead => vec![config.vocab_size, c],
            Tensor::Wpe => vec![config.n_positions, c],
            Tensor::Matrix { matrix, .. } => match matrix {
                Matrix::CAttn => vec![c, 3 * c],
                Matrix::AttnProj => vec![c, c],
                Matrix::CFc => vec![c, f],
                Matrix::MlpProj => vec![f, c],
            },
            Tensor::Param { param, .. } => match param {
                Param::CAttnBias => vec![3 * c],
                Param::CFcBias => vec![f],
                _ => vec![c],
            },
            Tensor::LnFWeight | Tensor::LnFBias => vec![c],
        }
    }
}

/// What `name` stands for in a model of `n_layer` blocks, and whether it has the prefix; `None` for a tensor that is no
/// part of the model. The head has no prefix in either form, so it says nothing about it.
pub fn recognise(name: &str, n_layer: usize) -> Option<(Known, Option<bool>)> {
    if name == "lm_head.weight" {
        return Some((Known::Tensor(Tensor::LmHead), None));
    }
    let (name, prefixed) = match name.strip_prefix(PREFIX) {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    let known = match name {
        "wte.weight" => Known::Tensor(Tensor::Wte),
        "wpe.weight" => Known::Tensor(Tensor::Wpe),
        "ln_f.weight" => Known::Tensor(Tensor::LnFWeight),
        "ln_f.bias" => Known::Tensor(Tensor::LnFBias),
        _ => recognise_in_block(name, n_layer)?,
    };
    Some((known, Some(prefixed)))
}

fn recognise_in_block(name: &str, n_layer: usize) -> Option<Known> {
    let (index, rest) = name.strip_prefix("h.")?.split_once('.')?;
    let layer: usize = index.parse().ok()?;
    // "01" and "+1" parse as well, but name no block.
    if layer >= n_layer || layer.to_string() != index {
        return None;
    }
    if matches!(rest, "attn.bias" | "attn.masked_bias") {
        return Some(Known::Mask);
    }
    let matrix = MATRICES.iter().find(|(_, name)| *name == rest);
    let param = PARAMS.iter().find(|(_, name)| *name == rest);
    let tensor = match (matrix, param) {
        (Some((matrix, _)), _) => Tensor::Matrix {
            layer,
            matrix: *matrix,
        },
        (_, Some((param, _))) => Tensor::Param {
            layer,
            param: *param,
        },
        _ => return None,
    };
    Some(Known::Tensor(tensor))
}

fn block_name<K: PartialEq>(layer: usize, names: &[(K, &str)], key: K) -> String {
    let name = names.iter().find(|(known, _)| *known == key);
    format!("h.{layer}.{}", name.map_or("scales", |(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_required_tensor_is_recognised_by_its_name() {
        let text = r#"{"n_layer": 12, "n_head": 2, "n_embd": 8, "n_positions": 7, "vocab_size": 9, "tie_word_embeddings": false}"#;
        let config = Config::from_json(text).unwrap();
        let tensors: Vec<Tensor> = Tensor::required(&config).collect();
        assert_eq!(tensors.len(), 2 + 12 * 12 + 2 + 1);
        for tensor in tensors {
            let name = tensor.name();
            let prefixed = (tensor != Tensor::LmHead).then_some(false);
            assert_eq!(
                recognise(&name, 12),
                Some((Known::Tensor(tensor), prefixed))
            );
            if tensor != Tensor::LmHead {
                let name = format!("{PREFIX}{name}");
                assert_eq!(
                    recognise(&name, 12),
                    Some((Known::Tensor(tensor), Some(true)))
                );
            }
        }
    }

    #[test]
    fn masks_and_strangers() {
        assert_eq!(
            recognise("h.1.attn.bias", 2),
            Some((Known::Mask, Some(false)))
        );
        assert_eq!(
            recognise("transformer.h.0.attn.masked_bias", 2),
            Some((Known::Mask, Some(true)))
        );
        for name in [
            "h.2.attn.bias",
            "h.01.ln_1.weight",
            "h.+1.ln_1.weight",
            "h..ln_1.weight",
            "h.1",
            "score.weight",
            "transformer.lm_head.weight",
            "transformer.transformer.wte.weight",
            "",
        ] {
            assert_eq!(recognise(name, 2), None, "{name}");
        }
    }
}

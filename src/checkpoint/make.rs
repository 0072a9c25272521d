//! Seeded random checkpoints of a given shape: for benchmarks, which need the sizes of a real model but not its sense.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::names::{PREFIX, Tensor};
use crate::config::Config;
use crate::error::{Error, Result};

/// Standard deviation of the values, GPT-2's own `initializer_range`.
const STD: f32 = 0.02;

/// A shape that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// 4 blocks, 4 heads of 64, 8,192 rows: 22 MB of f32.
    Mini,
    /// The smallest GPT-2 that OpenAI published: 498 MB of f32.
    Gpt2,
}

impl FromStr for Shape {
    type Err = Error;

    fn from_str(name: &str) -> Result<Shape> {
        match name {
            "mini" => Ok(Shape::Mini),
            "124m" => Ok(Shape::Gpt2),
            _ => Err(Error::BadOption(format!(
                "shape {name:?} is unknown; choose mini or 124m."
            ))),
        }
    }
}

impl Shape {
    /// The text of the shape's `config.json`. No id ends a text, so that a benchmark runs as long as it is told to.
    pub fn config_json(self) -> String {
        self.config_with_layers(match self {
            Shape::Mini => 4,
            Shape::Gpt2 => 12,
        })
    }

    /// The same with another number of layers, which makes a checkpoint of another size.
    pub fn config_with_layers(self, n_layer: usize) -> String {
        let (n_head, n_embd, vocab_size) = match self {
            Shape::Mini => (4, 256, 8_192),
            Shape::Gpt2 => (12, 768, 50_257),
        };
        let config = json!({
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu_new",
            "n_layer": n_layer,
            "n_head": n_head,
            "n_embd": n_embd,
            "n_positions": 1024,
            "vocab_size": vocab_size,
            "layer_norm_epsilon": 1e-5,
            "bos_token_id": 0,
            "eos_token_id": null,
            "torch_dtype": "float32",
        });
        format!("{config:#}\n")
    }
}

/// Writes a `model.safetensors` of this shape with f32 values drawn from `seed`: about normal, with mean 1 for the
/// weights of layer norms and 0 for everything else. The same seed gives the same bytes on every machine.
///
/// # Errors
/// Whatever writing to `out` gives.
pub fn write_safetensors(config: &Config, seed: u64, out: &mut impl Write) -> io::Result<()> {
    let mut tensors: Vec<(String, Tensor)> = Tensor::required(config)
        .map(|tensor| (full_name(tensor), tensor))
        .collect();
    tensors.sort();

    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut offset = 0;
    for (name, tensor) in &tensors {
        let begin = offset;
        offset += 4 * values(config, *tensor);
        let entry =
            json!({"dtype": "F32", "shape": tensor.shape(config), "data_offsets": [begin, offset]});
        header.insert(name.clone(), entry);
    }
    let mut header = Value::Object(header).to_string();
    // Spaces, so that the values are aligned.
    header.extend(std::iter::repeat_n(
        ' ',
        header.len().next_multiple_of(8) - header.len(),
    ));
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;

    let mut random = Random(seed);
    let mut chunk = Vec::with_capacity(1 << 14);
    for (name, tensor) in &tensors {
        let mean = if is_norm_weight(name) { 1.0 } else { 0.0 };
        let mut left = values(config, *tensor);
        while left > 0 {
            let count = left.min(1 << 14);
            left -= count;
            chunk.clear();
            chunk.extend((0..count).map(|_| mean + STD * random.normal()));
            out.write_all(bytemuck::cast_slice(&chunk))?;
        }
    }
    Ok(())
}

/// Writes a checkpoint into `folder`, which is made if it is missing: `config.json` as given, and a `model.safetensors` of
/// its shape. There is no tokenizer.
///
/// # Errors
/// [`Error::BadConfig`], or [`Error::Internal`] for a file that cannot be written.
pub fn write_folder(config_json: &str, seed: u64, folder: &Path) -> Result<()> {
    let config = Config::from_json(config_json)?;
    let write = || {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("config.json"), config_json)?;
        let mut file = BufWriter::new(File::create(folder.join("model.safetensors"))?);
        write_safetensors(&config, seed, &mut file)?;
        file.flush()
    };
    write().map_err(|e| {
        Error::Internal(format!(
            "The checkpoint could not be written to {}: {e}. Name a folder with room for it.",
            folder.display()
        ))
    })
}

fn full_name(tensor: Tensor) -> String {
    match tensor {
        Tensor::LmHead => tensor.name(),
        _ => format!("{PREFIX}{}", tensor.name()),
    }
}

fn is_norm_weight(name: &str) -> bool {
    ["ln_1.weight", "ln_2.weight", "ln_f.weight"]
        .iter()
        .any(|end| name.ends_with(end))
}

fn values(config: &Config, tensor: Tensor) -> u64 {
    tensor.shape(config).iter().map(|n| *n as u64).product()
}

/// SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// About normal, mean 0 and standard deviation 1: the sum of four uniform 16-bit numbers, which no machine rounds
    /// differently.
    fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: i32 = (0..4).map(|i| (bits >> (16 * i)) as u16 as i32).sum();
        // Four times the variance of a uniform number of 0..65536 is 65536^2 / 3.
        const INVERSE_STD: f32 = 1.732_050_8 / 65_536.0;
        (sum - 2 * 65_535) as f32 * INVERSE_STD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(seed: u64) -> Vec<u8> {
        let text = r#"{"n_layer": 2, "n_head": 2, "n_embd": 8, "n_positions": 9, "vocab_size": 5}"#;
        let mut out = Vec::new();
        write_safetensors(&Config::from_json(text).unwrap(), seed, &mut out).unwrap();
        out
    }

    #[test]
    fn the_file_is_a_safetensors_file_with_every_tensor() {
        let file = written(1);
        let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
        assert_eq!(tensors.len(), 2 + 2 * 12 + 2);
        assert_eq!(
            tensors
                .tensor("transformer.h.1.attn.c_attn.weight")
                .unwrap()
                .shape(),
            [8, 24]
        );
        let norm = tensors.tensor("transformer.ln_f.weight").unwrap();
        let (values, _) = norm.data().as_chunks();
        let mut values = values.iter().map(|bytes| f32::from_le_bytes(*bytes));
        assert!(values.all(|value| (value - 1.0).abs() < 0.1));
    }

    #[test]
    fn the_seed_decides_every_byte() {
        assert_eq!(written(7), written(7));
        assert_ne!(written(7), written(8));
    }

    #[test]
    fn values_are_about_normal() {
        let mut random = Random(3);
        let values: Vec<f64> = (0..100_000).map(|_| f64::from(random.normal())).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(
            mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02,
            "{mean} {variance}"
        );
    }

    #[test]
    fn shapes_are_valid_configs() {
        for (name, parameters) in [("mini", 5_500_000), ("124m", 124_439_808)] {
            let config = Config::from_json(&name.parse::<Shape>().unwrap().config_json()).unwrap();
            let total: u64 = Tensor::required(&config)
                .map(|tensor| values(&config, tensor))
                .sum();
            assert!(total.abs_diff(parameters) < 100_000, "{name}: {total}");
            assert!(config.eos_token_id.is_empty());
        }
        assert_eq!("1t".parse::<Shape>().unwrap_err().code(), "bad-option");
    }
}

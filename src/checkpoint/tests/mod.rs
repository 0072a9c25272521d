//! The loader on whole checkpoints, made with the `safetensors` crate.

mod header;
mod refused;
mod right;

use half::{bf16, f16};
use safetensors::Dtype as Stored;
use safetensors::tensor::TensorView;

use super::*;
use crate::config::Config;
use crate::error::{Error, Result};

/// One tensor of a file: name, type, shape, bytes.
type Entry = (String, Stored, Vec<usize>, Vec<u8>);

/// C = 45 in 3 heads of 15, an inner width of 50, 257 rows: nothing is a multiple of 4.
fn odd() -> Config {
    config(
        r#"{"n_layer": 2, "n_head": 3, "n_embd": 45, "n_inner": 50, "n_positions": 7, "vocab_size": 257}"#,
    )
}

/// C = 60 in 5 heads of 12, with a head of its own and more rows of the in axis than share a scale.
fn untied() -> Config {
    config(
        r#"{"n_layer": 1, "n_head": 5, "n_embd": 60, "n_inner": 131, "n_positions": 70, "vocab_size": 5,
            "tie_word_embeddings": false}"#,
    )
}

fn config(text: &str) -> Config {
    Config::from_json(text).unwrap()
}

/// A value for each place in each tensor, about normal, all different enough to tell a transposition.
fn values(config: &Config, tensor: Tensor) -> Vec<f32> {
    let seed: usize = tensor.name().bytes().map(usize::from).sum();
    let count: usize = tensor.shape(config).iter().product();
    (0..count)
        .map(|i| ((i * 7919 + seed * 104_729) % 20_011) as f32 / 10_000.0 - 1.0)
        .collect()
}

fn encode(dtype: Stored, values: &[f32]) -> Vec<u8> {
    match dtype {
        Stored::F16 => values
            .iter()
            .flat_map(|v| f16::from_f32(*v).to_le_bytes())
            .collect(),
        Stored::BF16 => values
            .iter()
            .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
            .collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

fn entry(config: &Config, tensor: Tensor, prefix: &str, dtype: Stored) -> Entry {
    let prefix = if tensor == Tensor::LmHead { "" } else { prefix };
    let bytes = encode(dtype, &values(config, tensor));
    (
        format!("{prefix}{}", tensor.name()),
        dtype,
        tensor.shape(config),
        bytes,
    )
}

fn entries(config: &Config, prefix: &str, dtype: Stored) -> Vec<Entry> {
    Tensor::required(config)
        .map(|tensor| entry(config, tensor, prefix, dtype))
        .collect()
}

fn file(entries: &[Entry]) -> Vec<u8> {
    let views = entries.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

/// Checks what the contract of [`Upload`] promises.
struct Checked<'a>(&'a Layout, Memory);

impl Upload for Checked<'_> {
    fn write(&mut self, target: Target, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(offset.is_multiple_of(4) && bytes.len().is_multiple_of(4) && !bytes.is_empty());
        assert!(
            offset + bytes.len() as u64 <= self.0.bytes(target),
            "{target:?} at {offset}"
        );
        if matches!(target, Target::Wte | Target::LmHead) {
            let tile = |byte: u64| byte / self.0.tile_bytes() as u64;
            assert_eq!(tile(offset), tile(offset + bytes.len() as u64 - 1));
        }
        self.1.write(target, offset, bytes)
    }
}

fn load(
    config: &Config,
    dtype: Dtype,
    files: &[&[u8]],
    chunk: usize,
) -> Result<(LoadReport, Memory)> {
    let layout = Layout::new(config, dtype);
    let mut upload = Checked(&layout, Memory::default());
    let mut loader = Loader::new(config, dtype);
    for (i, file) in files.iter().enumerate() {
        loader.begin_file(&format!("{i}.safetensors"), None)?;
        for chunk in file.chunks(chunk) {
            loader.push(chunk, &mut upload)?;
        }
        loader.end_file()?;
    }
    Ok((loader.finish()?, upload.1))
}

fn load_one(config: &Config, entries: &[Entry]) -> Result<(LoadReport, Memory)> {
    load(config, Dtype::Fp32, &[&file(entries)], 1 << 20)
}

/// The message of a load that has to fail as a bad checkpoint.
fn refusal<T>(result: Result<T>) -> String {
    match result {
        Err(Error::BadCheckpoint(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the load succeeded"),
    }
}

//! Small random models of any shape, with the reference beside them.

use std::rc::Rc;

use gpt2_webgpu::checkpoint::{Dtype, Layout, Loader, Memory, Tensor};
use gpt2_webgpu::config::Config;
use gpt2_webgpu::gpu::Gpu;
use gpt2_webgpu::model::Model;
use gpt2_webgpu::reference::{Cache, Weights, forward};
use gpt2_webgpu::tokenizer::Tokenizer;
use safetensors::tensor::{Dtype as Stored, TensorView};
use serde_json::{Value, json};

use super::pick::mixed;
use super::run::{Load, load};

/// A model that a test has made up.
pub struct Made {
    pub json: String,
    pub config: Config,
    pub weights: Weights,
    /// Its model.safetensors.
    pub file: Vec<u8>,
}

/// Value `i` of a random sequence: about normal, mean 0, standard deviation 1.
pub fn normal(seed: u32, i: usize) -> f32 {
    let uniform = |part: u32| mixed(mixed(seed ^ part << 28) ^ i as u32) as f32 / 4_294_967_296.0;
    (uniform(0) + uniform(1) + uniform(2) + uniform(3) - 2.0) * 1.732
}

/// `count` of them, times `scale`.
pub fn normals(seed: u32, count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|i| scale * normal(seed, i)).collect()
}

impl Made {
    /// A model with `sizes` in its config.json; what is not given is a model of two layers that fits nowhere evenly.
    pub fn new(sizes: Value) -> Made {
        Made::edited(sizes, |_, _| {})
    }

    /// The same, after `edit` has seen every tensor.
    pub fn edited(sizes: Value, mut edit: impl FnMut(Tensor, &mut Vec<f32>)) -> Made {
        let mut json = json!({
            "model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 45, "n_inner": 50, "n_positions": 64,
            "vocab_size": 257, "bos_token_id": 0, "eos_token_id": null
        });
        for (name, value) in sizes.as_object().unwrap() {
            json[name] = value.clone();
        }
        let json = json.to_string();
        let config = Config::from_json(&json).unwrap();
        let tensors: Vec<(Tensor, Vec<f32>)> = Tensor::required(&config)
            .zip(1..)
            .map(|(tensor, seed)| {
                let shape = tensor.shape(&config);
                let mut values = normals(seed, shape.iter().product(), 0.25);
                let name = tensor.name();
                if name.contains("ln_") && name.ends_with("weight") {
                    values.iter_mut().for_each(|value| *value += 1.0);
                }
                edit(tensor, &mut values);
                (tensor, values)
            })
            .collect();
        let views = tensors.iter().map(|(tensor, values)| {
            let bytes = bytemuck::cast_slice(values);
            (
                tensor.name(),
                TensorView::new(Stored::F32, tensor.shape(&config), bytes).unwrap(),
            )
        });
        let file = safetensors::serialize(views, None).unwrap();
        let weights = Weights::from_safetensors(&config, &[&file]).unwrap();
        Made {
            json,
            config,
            weights,
            file,
        }
    }

    /// On the GPU.
    pub async fn load(&self, gpu: &Rc<Gpu>, options: Load) -> Rc<Model> {
        load(
            gpu,
            &self.json,
            &[("model.safetensors", &self.file)],
            options,
        )
        .await
        .unwrap_or_else(|e| panic!("{}: {e}", self.json))
    }

    /// The weights as the GPU stores them, byte for byte.
    pub fn laid_out(&self, dtype: Dtype) -> (Layout, Memory) {
        let mut memory = Memory::default();
        let mut loader = Loader::new(&self.config, dtype);
        loader.begin_file("made", None).unwrap();
        loader.push(&self.file, &mut memory).unwrap();
        loader.end_file().unwrap();
        loader.finish().unwrap();
        (Layout::new(&self.config, dtype), memory)
    }

    /// The reference's weights and its empty cache, rounded as a GPU rounds them that stores matrices as `dtype`.
    pub fn reference(&self, dtype: Dtype) -> Reference {
        rounded(&self.config, &self.weights, dtype)
    }
}

/// A run of the plain-Rust reference.
pub struct Reference {
    pub config: Config,
    pub weights: Weights,
    pub cache: Cache,
}

/// Weights and cache as a GPU has them that stores matrices as `dtype`.
pub fn rounded(config: &Config, weights: &Weights, dtype: Dtype) -> Reference {
    Reference {
        config: config.clone(),
        weights: weights.rounded(config, dtype).unwrap(),
        cache: match dtype {
            Dtype::Fp32 => Cache::new(config),
            _ => Cache::half(config),
        },
    }
}

impl Reference {
    /// The logits after `ids`, which follow those before.
    pub fn feed(&mut self, ids: &[u32]) -> Vec<f32> {
        forward(&self.config, &self.weights, ids, &mut self.cache).unwrap()
    }
}

/// `count` ids below `vocab`.
pub fn ids(seed: u32, count: usize, vocab: usize) -> Vec<u32> {
    (0..count as u32)
        .map(|i| mixed(mixed(seed) ^ i) % vocab as u32)
        .collect()
}

/// The largest of the logits, the lowest id if there are several.
pub fn argmax(logits: &[f32]) -> u32 {
    let best = (0..logits.len())
        .rev()
        .max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    best.unwrap() as u32
}

/// A byte-level tokenizer of 259 ids: 0 to 255 are letters in the order of GPT-2's alphabet, `th`, ` th`, end of text.
pub fn small_tokenizer() -> Rc<Tokenizer> {
    let alphabet = (b'!'..=b'~')
        .chain(0xA1..=0xAC)
        .chain(0xAE..=0xFF)
        .map(char::from);
    let letters = alphabet.chain('\u{100}'..='\u{143}').map(String::from);
    let tokens = letters.chain(["th", "Ġth", "<|endoftext|>"].map(String::from));
    let vocab: serde_json::Map<_, _> = tokens
        .zip(0..)
        .map(|(token, id)| (token, json!(id)))
        .collect();
    let file = json!({
        "version": "1.0",
        "added_tokens": [{
            "id": 258, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": true, "special": true
        }],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["t", "h"], ["Ġ", "th"]]}
    });
    Rc::new(Tokenizer::from_json(file.to_string().as_bytes()).unwrap())
}

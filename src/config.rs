//! The shape of a model, read from `config.json` as Hugging Face's `GPT2Config` defines it.
//!
//! The file comes from anywhere, so everything in it is checked here: after [`Config::from_json`] every size is
//! positive and bounded, `n_head` divides `n_embd`, and no tensor of the model has more than [`MAX_TENSOR_VALUES`]
//! values, so that sizes in bytes can be computed without overflow on a 32-bit machine as well.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The most values that one tensor, or the keys and values of one layer, may have: 2 GiB of f32.
pub const MAX_TENSOR_VALUES: u64 = 1 << 29;

/// The function between the two matrices of the MLP: one variant per formula.
///
/// transformers has several names for some of them (its table is `ACT2FN`); [`Activation::from_name`] maps every one.
/// The scalar formulas are in [`crate::reference::activation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * 0.5 * (1 + erf(x / sqrt(2)))`.
    GeluErf,
    /// `GeluErf` clipped to -10..=10.
    GeluClipped,
    /// `x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`: OpenAI's GPT-2.
    GeluTanh,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(x)`.
    Silu,
    /// `tanh(x)`.
    Tanh,
}

/// Every name of transformers' `ACT2FN` that is a GELU, relu, silu or tanh, with its formula.
const ACTIVATIONS: [(&str, Activation); 13] = [
    ("gelu_new", Activation::GeluTanh),
    ("gelu", Activation::GeluErf),
    ("gelu_python", Activation::GeluErf),
    ("gelu_10", Activation::GeluClipped),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("gelu_accurate", Activation::GeluTanh),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("tanh", Activation::Tanh),
];

impl Activation {
    /// The formula that transformers means by `name`, with the name itself, or `None` for one that is not offered.
    pub fn from_name(name: &str) -> Option<(&'static str, Activation)> {
        ACTIVATIONS.into_iter().find(|(known, _)| *known == name)
    }
}

/// What a GPT-2 checkpoint is made of. Field names are Hugging Face's.
///
/// Serialises to the same names as `config.json` (`n_inner` resolved, `activation_function` as it was written).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    /// L: number of blocks.
    pub n_layer: usize,
    /// H: attention heads per block.
    pub n_head: usize,
    /// C: width of the residual stream, H * D.
    pub n_embd: usize,
    /// F: width between the two matrices of the MLP; 4 * C where the file says nothing.
    pub n_inner: usize,
    /// Rows of `wpe`: the most positions one sequence can have.
    pub n_positions: usize,
    /// V: rows of `wte`.
    pub vocab_size: usize,
    /// The formula of the MLP's activation.
    #[serde(skip)]
    pub activation_function: Activation,
    /// The name by which the file asked for [`Config::activation_function`].
    #[serde(rename = "activation_function")]
    pub activation_name: &'static str,
    /// Added to the variance in every layer norm.
    pub layer_norm_epsilon: f32,
    /// Whether scores are divided by sqrt(D).
    pub scale_attn_weights: bool,
    /// Whether the scores of layer i (from 0) are divided by i + 1 as well.
    pub scale_attn_by_inverse_layer_idx: bool,
    /// Whether scores are computed in f32 with the scale inside the product. Here all scores are, so it changes nothing.
    pub reorder_and_upcast_attn: bool,
    /// Whether the head is `wte` itself; otherwise the checkpoint has `lm_head.weight`.
    pub tie_word_embeddings: bool,
    /// The id that an empty prompt starts from.
    pub bos_token_id: Option<u32>,
    /// The ids that end a text; empty for none.
    pub eos_token_id: Vec<u32>,
}

impl Config {
    /// Reads and checks the text of a `config.json`.
    ///
    /// The five sizes (`n_layer`, `n_head`, `n_embd`, `n_positions`, `vocab_size`) must be there; every other key has
    /// Hugging Face's default, and unknown keys are ignored.
    ///
    /// # Errors
    /// [`Error::NotAGpt2`] for the config of another kind of model, [`Error::BadConfig`] for everything else: broken
    /// JSON, a page or a Git LFS pointer instead of the file, a value missing or out of range.
    pub fn from_json(text: &str) -> Result<Config> {
        let keys = parse(text)?;
        refuse_other_models(&keys)?;
        refuse_unsupported(&keys)?;

        let n_embd = size(&keys, "n_embd", 16_384)?;
        let name = match keys.get("activation_function") {
            None | Some(Value::Null) => "gelu_new",
            Some(Value::String(name)) => name,
            Some(other) => {
                return Err(wrong(
                    "activation_function",
                    other,
                    "a name such as \"gelu_new\"",
                ));
            }
        };
        let (activation_name, activation_function) =
            Activation::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
                bad(format!(
                    "activation_function {} is not supported; supported are {}",
                    quoted(name),
                    known.join(", ")
                ))
            })?;
        let config = Config {
            n_layer: size(&keys, "n_layer", 256)?,
            n_head: size(&keys, "n_head", n_embd)?,
            n_embd,
            n_inner: match keys.get("n_inner") {
                None | Some(Value::Null) => 4 * n_embd,
                Some(_) => size(&keys, "n_inner", 131_072)?,
            },
            n_positions: size(&keys, "n_positions", 131_072)?,
            vocab_size: size(&keys, "vocab_size", 1 << 20)?,
            activation_function,
            activation_name,
            layer_norm_epsilon: epsilon(&keys)?,
            scale_attn_weights: flag(&keys, "scale_attn_weights", true)?,
            scale_attn_by_inverse_layer_idx: flag(&keys, "scale_attn_by_inverse_layer_idx", false)?,
            reorder_and_upcast_attn: flag(&keys, "reorder_and_upcast_attn", false)?,
            tie_word_embeddings: flag(&keys, "tie_word_embeddings", true)?,
            bos_token_id: ids(&keys, "bos_token_id")?.first().copied(),
            eos_token_id: ids(&keys, "eos_token_id")?,
        };
        config.check_products()?;
        Ok(config)
    }

    /// D: columns per head.
    pub fn head_size(&self) -> usize {
        self.n_embd / self.n_head
    }

    /// The factor on q·k in `layer` (from 0), before the softmax.
    pub fn score_scale(&self, layer: usize) -> f32 {
        let mut scale = 1.0;
        if self.scale_attn_weights {
            scale /= (self.head_size() as f64).sqrt();
        }
        if self.scale_attn_by_inverse_layer_idx {
            scale /= (layer + 1) as f64;
        }
        scale as f32
    }

    /// Checks what two sizes have to do with each other. The limits hold with every head padded to a multiple of 4.
    fn check_products(&self) -> Result<()> {
        if !self.n_embd.is_multiple_of(self.n_head) {
            return Err(bad(format!(
                "n_head {} does not divide n_embd {}: every head needs the same whole number of columns",
                self.n_head, self.n_embd
            )));
        }
        let [c, f, positions, v] =
            [self.n_embd, self.n_inner, self.n_positions, self.vocab_size].map(|n| n as u64);
        let attention = self.n_head as u64 * (self.head_size() as u64).next_multiple_of(4);
        for (what, values) in [
            ("wte (vocab_size * n_embd)", v * c),
            ("wpe (n_positions * n_embd)", positions * c),
            ("c_attn (n_embd * 3 * n_embd)", c * 3 * attention),
            ("c_fc (n_embd * n_inner)", c * f),
            (
                "the KV cache of a layer (2 * n_positions * n_embd)",
                2 * positions * attention,
            ),
        ] {
            if values > MAX_TENSOR_VALUES {
                return Err(bad(format!(
                    "{what} would have {values} values, more than the {MAX_TENSOR_VALUES} that are supported; use a smaller model"
                )));
            }
        }
        Ok(())
    }
}

/// The keys of a JSON object, with the usual impostors recognised.
fn parse(text: &str) -> Result<Map<String, Value>> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(bad("the file is empty; download it again".into()));
    }
    if text.starts_with('<') {
        return Err(bad(
            "the file is a web page, not JSON; check the address: it has to give the file itself"
                .into(),
        ));
    }
    if text.starts_with("version https://git-lfs") {
        return Err(bad("the file is a Git LFS pointer, not the file itself; run `git lfs pull` in its repository".into()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(keys)) => Ok(keys),
        Ok(other) => Err(bad(format!(
            "the file holds {}, not an object; it has to be a model's config.json",
            shown(&other)
        ))),
        Err(error) if error.is_eof() => Err(bad(format!(
            "the JSON ends too early, after {} bytes; download the file again",
            text.len()
        ))),
        Err(error) => Err(bad(format!(
            "the JSON is broken ({error}); download the file again"
        ))),
    }
}

/// Refuses the config of another kind of model by its own name for itself.
fn refuse_other_models(keys: &Map<String, Value>) -> Result<()> {
    let kind = match (keys.get("model_type"), keys.get("architectures")) {
        (Some(Value::String(kind)), _) if kind == "gpt2" => return Ok(()),
        (Some(Value::String(kind)), _) => kind,
        // Early GPT-2 files have no model_type.
        (_, Some(Value::Array(names))) => match names.first() {
            Some(Value::String(name)) if !name.starts_with("GPT2") => name,
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(Error::NotAGpt2(format!(
        "config.json describes a {} model; only models with model_type \"gpt2\" can run here, such as openai-community/gpt2",
        quoted(kind)
    )))
}

/// Refuses the settings that change what the weights mean and that are not implemented.
fn refuse_unsupported(keys: &Map<String, Value>) -> Result<()> {
    for key in ["add_cross_attention", "is_encoder_decoder"] {
        if flag(keys, key, false)? {
            return Err(bad(format!(
                "{key} is true: models that read from an encoder are not supported"
            )));
        }
    }
    for (key, advice) in [
        (
            "quantization_config",
            "use the checkpoint with plain f32, f16 or bf16 weights",
        ),
        ("pruned_heads", "use the checkpoint that has all its heads"),
    ] {
        let empty = match keys.get(key) {
            None | Some(Value::Null) => true,
            Some(Value::Object(entries)) => entries.is_empty(),
            Some(_) => false,
        };
        if !empty {
            return Err(bad(format!(
                "{key} is set, which is not supported; {advice}"
            )));
        }
    }
    Ok(())
}

/// The names that newer models use for some sizes; transformers reads them for GPT-2 as well.
const ALIASES: [(&str, &str); 4] = [
    ("n_layer", "num_hidden_layers"),
    ("n_head", "num_attention_heads"),
    ("n_embd", "hidden_size"),
    ("n_positions", "max_position_embeddings"),
];

/// A required whole number in 1..=`max`.
fn size(keys: &Map<String, Value>, key: &str, max: usize) -> Result<usize> {
    let alias = ALIASES.iter().find(|(name, _)| *name == key);
    let value = keys
        .get(key)
        .or_else(|| keys.get(alias?.1))
        .ok_or_else(|| {
            bad(format!(
                "{key} is missing; is this the config.json of a GPT-2?"
            ))
        })?;
    let number = value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok());
    match number {
        Some(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(wrong(
            key,
            value,
            &format!("a whole number from 1 to {max}"),
        )),
    }
}

/// true or false; `default` where the file says nothing.
fn flag(keys: &Map<String, Value>, key: &str, default: bool) -> Result<bool> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(wrong(key, other, "true or false")),
    }
}

/// `layer_norm_epsilon`. The lower limit keeps 1 / sqrt(variance + epsilon) finite for a constant row, in f32.
fn epsilon(keys: &Map<String, Value>) -> Result<f32> {
    let value = match keys.get("layer_norm_epsilon") {
        None | Some(Value::Null) => return Ok(1e-5),
        Some(value) => value,
    };
    match value.as_f64() {
        Some(number) if (1e-20..=1.0).contains(&number) => Ok(number as f32),
        _ => Err(wrong(
            "layer_norm_epsilon",
            value,
            "a number from 1e-20 to 1",
        )),
    }
}

/// Token ids as a number, a list or null; 50256 where the key is absent, as in Hugging Face's `GPT2Config`.
///
/// A negative id means "none" in some files. An id beyond the vocabulary is kept: it can never be generated, and
/// fine-tuned models with a cut vocabulary have one.
fn ids(keys: &Map<String, Value>, key: &str) -> Result<Vec<u32>> {
    let values = match keys.get(key) {
        None => return Ok(vec![50_256]),
        Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
    };
    let mut ids = Vec::with_capacity(values.len());
    for value in values {
        match value.as_i64() {
            Some(id) if id < 0 => {}
            Some(id) if id <= i64::from(u32::MAX) => ids.push(id as u32),
            _ => return Err(wrong(key, value, "a token id, a list of them, or null")),
        }
    }
    Ok(ids)
}

fn bad(what: String) -> Error {
    Error::BadConfig(format!("config.json: {what}."))
}

fn wrong(key: &str, value: &Value, expected: &str) -> Error {
    bad(format!(
        "{key} is {}; it has to be {expected}",
        shown(value)
    ))
}

/// `text` in quotes, cut to a length that a message can hold.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// A JSON value as a message shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        simple => simple.to_string(),
    }
}

#[cfg(test)]
mod tests;

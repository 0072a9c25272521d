//! The options of `generate`, checked: every value is honoured, refused by name, or reported in the warnings.

use super::{FINITE, MAX_TOP_LOGITS};
use crate::config::Config;
use crate::error::{Error, Result};

/// The most steps in flight.
const MAX_IN_FLIGHT: f64 = 8.0;

/// Seeds are integers that a JavaScript number holds exactly.
const MAX_SEED: f64 = 9_007_199_254_740_991.0;

/// Every option, for the message about one that is not.
const NAMES: [&str; 14] = [
    "max_new_tokens",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "seed",
    "eos_token_id",
    "stop_strings",
    "use_cache",
    "past_key_values",
    "top_logits",
    "attention_mask",
    "max_in_flight",
];

/// Options that change something only with `do_sample: true`.
const ONLY_WHEN_SAMPLING: [&str; 4] = ["temperature", "top_k", "top_p", "seed"];

/// Options of transformers' `generate` that this project does not have.
const OF_TRANSFORMERS: [&str; 36] = [
    "assistant_model",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "constraints",
    "decoder_start_token_id",
    "diversity_penalty",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "generation_config",
    "guidance_scale",
    "length_penalty",
    "logits_processor",
    "max_length",
    "max_time",
    "min_length",
    "min_new_tokens",
    "min_p",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "return_dict_in_generate",
    "typical_p",
];

/// The value of an option as it comes from JavaScript or the command line.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any number, NaN and infinities included.
    Number(f64),
    /// A string.
    Text(String),
    /// A list of numbers; the empty list may stand for a list of strings as well.
    List(Vec<f64>),
    /// A list of strings.
    TextList(Vec<String>),
    /// Anything else, by its JavaScript type.
    Other(&'static str),
}

impl std::fmt::Display for OptionValue {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            OptionValue::Null => f.write_str("null"),
            OptionValue::Bool(value) => write!(f, "{value}"),
            // Debug writes 1e300 and 1e-30 short, Display writes all the zeros.
            OptionValue::Number(value) if value.fract() != 0.0 || value.abs() >= 1e21 => {
                write!(f, "{value:?}")
            }
            OptionValue::Number(value) => write!(f, "{value}"),
            OptionValue::Text(value) if value.is_empty() => f.write_str("empty"),
            OptionValue::Text(value) => write!(f, "the text {value:?}"),
            OptionValue::List(values) => write!(f, "a list of {} numbers", values.len()),
            OptionValue::TextList(values) => write!(f, "a list of {} texts", values.len()),
            OptionValue::Other(kind) => write!(f, "of type {kind}"),
        }
    }
}

/// What `generate` does. Names and defaults are transformers', as far as it has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// New ids at most, at least 1; default 20.
    pub max_new_tokens: usize,
    /// Draw from the distribution instead of taking the largest; default false.
    pub do_sample: bool,
    /// Divides the logits; above 0, default 1.
    pub temperature: f32,
    /// How many of the best ids to keep; 0 for all, default 50.
    pub top_k: u32,
    /// The share of probability to keep, 0 to 1; default 1. The best id always stays.
    pub top_p: f32,
    /// Above 1 makes ids that were there less likely; above 0, default 1.
    pub repetition_penalty: f32,
    /// The seed; `None` asks for a new one.
    pub seed: Option<u64>,
    /// Ids that end the text; default the checkpoint's.
    pub eos_token_id: Vec<u32>,
    /// Texts that end the text, themselves included.
    pub stop_strings: Vec<String>,
    /// Feed only the newest id and read keys and values from the cache; default true.
    pub use_cache: bool,
    /// Candidates to list per step, 0 to 40; default 0.
    pub top_logits: u32,
    /// Start behind the part of the prompt that is still in the cache (`past_key_values: "reuse"`); default false.
    pub reuse: bool,
    /// Steps submitted ahead of the reader, 1 to 8; default 4.
    pub max_in_flight: usize,
    /// What was accepted but has no effect.
    pub warnings: Vec<String>,
}

impl Options {
    /// The defaults, with no end id: `max_new_tokens` steps of argmax.
    pub fn greedy(max_new_tokens: usize) -> Self {
        Options {
            max_new_tokens,
            do_sample: false,
            temperature: 1.0,
            top_k: 50,
            top_p: 1.0,
            repetition_penalty: 1.0,
            seed: None,
            eos_token_id: Vec::new(),
            stop_strings: Vec::new(),
            use_cache: true,
            top_logits: 0,
            reuse: false,
            max_in_flight: 4,
            warnings: Vec::new(),
        }
    }

    /// Checks the options of a call; those that are not given have their defaults. The prompt itself is not one of them.
    ///
    /// `null` means "none", where there is such a thing: no end ids, a new seed, no stop strings, an empty cache, no mask.
    ///
    /// # Errors
    /// [`Error::BadOption`] naming the option, its value, the allowed range and what to do.
    pub fn from_entries(
        entries: impl IntoIterator<Item = (String, OptionValue)>,
        config: &Config,
    ) -> Result<Self> {
        let mut options = Options {
            eos_token_id: config.eos_token_id.clone(),
            ..Options::greedy(20)
        };
        let mut without_effect = Vec::new();
        for (name, value) in entries {
            options.set(&name, &value, config)?;
            if ONLY_WHEN_SAMPLING.contains(&name.as_str()) && value != OptionValue::Null {
                without_effect.push(name);
            }
        }
        if !options.do_sample {
            options.warnings.extend(without_effect.into_iter().map(|name| {
                format!("{name} has no effect with do_sample: false, which always takes the most likely id.")
            }));
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &OptionValue, config: &Config) -> Result<()> {
        let given = Given { name, value };
        match name {
            "max_new_tokens" => {
                self.max_new_tokens = given.integer(1.0, f64::from(u32::MAX))? as usize
            }
            "do_sample" => self.do_sample = given.bool()?,
            "temperature" => {
                self.temperature =
                    given.positive("use do_sample: false to always take the most likely id")?
            }
            "top_k" => self.top_k = given.integer(0.0, f64::from(u32::MAX))? as u32,
            "top_p" => self.top_p = given.number(0.0, 1.0)? as f32,
            "repetition_penalty" => {
                self.repetition_penalty = given.positive("use 1 for no penalty")?
            }
            "seed" => self.seed = given.seed()?,
            "eos_token_id" => self.eos_token_id = given.ids(config.vocab_size)?,
            "stop_strings" => self.stop_strings = given.texts()?,
            "use_cache" => self.use_cache = given.bool()?,
            "past_key_values" => self.reuse = given.reuse()?,
            "top_logits" => self.top_logits = given.integer(0.0, MAX_TOP_LOGITS as f64)? as u32,
            "attention_mask" => given.all_ones()?,
            "max_in_flight" => self.max_in_flight = given.integer(1.0, MAX_IN_FLIGHT)? as usize,
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

/// One option as it was given.
struct Given<'a> {
    name: &'a str,
    value: &'a OptionValue,
}

impl Given<'_> {
    /// The error for a value that is not `allowed`, with what to do about it.
    fn refuse(&self, allowed: &str, hint: &str) -> Error {
        let Given { name, value } = self;
        Error::BadOption(format!("{name} is {value}; it must be {allowed}: {hint}."))
    }

    fn bool(&self) -> Result<bool> {
        match self.value {
            OptionValue::Bool(value) => Ok(*value),
            _ => Err(self.refuse(
                "true or false",
                "correct it, or leave it out for the default",
            )),
        }
    }

    fn number(&self, from: f64, to: f64) -> Result<f64> {
        match self.value {
            OptionValue::Number(value) if (from..=to).contains(value) => Ok(*value),
            _ => Err(self.refuse(
                &format!("a number from {from} to {to}"),
                "correct it, or leave it out for the default",
            )),
        }
    }

    fn integer(&self, from: f64, to: f64) -> Result<f64> {
        match self.value {
            OptionValue::Number(value) if (from..=to).contains(value) && value.fract() == 0.0 => {
                Ok(*value)
            }
            _ => {
                let allowed = format!("a whole number from {from} to {to}");
                Err(self.refuse(&allowed, "correct it, or leave it out for the default"))
            }
        }
    }

    fn positive(&self, hint: &str) -> Result<f32> {
        match self.value {
            OptionValue::Number(value) if value.is_finite() && *value > 0.0 => {
                Ok(value.clamp(FINITE.0, FINITE.1) as f32)
            }
            _ => Err(self.refuse("a number above 0", hint)),
        }
    }

    fn seed(&self) -> Result<Option<u64>> {
        match self.value {
            OptionValue::Null => Ok(None),
            _ => self.integer(0.0, MAX_SEED).map(|seed| Some(seed as u64)),
        }
    }

    fn ids(&self, vocab_size: usize) -> Result<Vec<u32>> {
        let ids: &[f64] = match self.value {
            OptionValue::Null => &[],
            OptionValue::Number(id) => std::slice::from_ref(id),
            OptionValue::List(ids) => ids,
            _ => return Err(self.refuse("an id, a list of ids or null", "use null for no end id")),
        };
        let id = |&id: &f64| {
            let one = Given {
                name: self.name,
                value: &OptionValue::Number(id),
            };
            one.integer(0.0, vocab_size as f64 - 1.0)
                .map(|id| id as u32)
        };
        ids.iter().map(id).collect()
    }

    fn texts(&self) -> Result<Vec<String>> {
        let texts = match self.value {
            OptionValue::Null => Vec::new(),
            OptionValue::List(none) if none.is_empty() => Vec::new(),
            OptionValue::Text(text) => vec![text.clone()],
            OptionValue::TextList(texts) => texts.clone(),
            _ => return Err(self.refuse("a text or a list of texts", "leave it out for none")),
        };
        if texts.iter().any(String::is_empty) {
            let why = format!(
                "{} has an empty text, which every text contains: take it out.",
                self.name
            );
            return Err(Error::BadOption(why));
        }
        Ok(texts)
    }

    fn reuse(&self) -> Result<bool> {
        match self.value {
            OptionValue::Null => Ok(false),
            OptionValue::Text(text) if text == "reuse" => Ok(true),
            _ => Err(self.refuse(
                "\"reuse\" or null",
                "the model keeps its own cache; it cannot be passed in",
            )),
        }
    }

    fn all_ones(&self) -> Result<()> {
        match self.value {
            OptionValue::Null => Ok(()),
            OptionValue::List(mask) if mask.iter().all(|&one| one == 1.0) => Ok(()),
            _ => Err(self.refuse(
                "a list of ones",
                "there is no padding here; leave the padded ids and the mask out",
            )),
        }
    }
}

/// The error for a name that is no option: what it is elsewhere, or what was probably meant.
fn unknown(name: &str) -> Error {
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let message = if let Some(meant) = NAMES.iter().find(|known| plain(known) == plain(name)) {
        format!("{name} is not an option; write {meant}.")
    } else if OF_TRANSFORMERS.contains(&name) {
        format!(
            "{name} is an option of transformers that this project does not have; leave it out."
        )
    } else {
        format!(
            "{name} is not an option; the options are {}.",
            NAMES.join(", ")
        )
    };
    Error::BadOption(message)
}

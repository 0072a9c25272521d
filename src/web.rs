//! What JavaScript sees, through `www/gpt2.js`: each export converts and forwards, and nothing else.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use js_sys::{Float32Array, Object, Reflect};
use serde::Serialize;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

use crate::checkpoint::{Dtype, Layout, Loader, ShardIndex, Tensor};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::generator::{Generator, Interrupter, Prompt};
use crate::gpu::{Gpu, GpuOptions};
use crate::kv_cache::KeyOrValue;
use crate::model::{self, Weights};
use crate::sampling::{OptionValue, Options};
use crate::self_check;
use crate::tokenizer;

/// Errors cross as JavaScript `Error` objects with a `code`.
impl From<Error> for JsValue {
    fn from(error: Error) -> Self {
        let js = js_sys::Error::new(&error.to_string());
        // Setting a property of a fresh object cannot fail.
        let _ = Reflect::set(&js, &"code".into(), &error.code().into());
        js.into()
    }
}

/// Plain objects and JavaScript numbers, as `JSON.parse` would give.
fn plain<T: Serialize>(value: &T) -> Result<JsValue> {
    value
        .serialize(&serde_wasm_bindgen::Serializer::json_compatible())
        .map_err(|e| {
            Error::Internal(format!(
                "A value could not be handed to the page: {e}. Please report this."
            ))
        })
}

/// Panics reach the console with their message.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
}

/// The files of a `model.safetensors.index.json`, in order.
///
/// # Errors
/// `bad-checkpoint` if it is not one.
#[wasm_bindgen]
pub fn shard_files(index_json: &str) -> Result<Vec<String>> {
    Ok(ShardIndex::from_json(index_json)?.files().to_vec())
}

/// What the dtype `auto` stands for: by the bytes of the checkpoint, or what its shape says if they are not known.
///
/// # Errors
/// `bad-config`, `not-a-gpt2`.
#[wasm_bindgen]
pub fn auto_dtype(config_json: &str, checkpoint_bytes: Option<f64>) -> Result<String> {
    let config = Config::from_json(config_json)?;
    let bytes = checkpoint_bytes.map_or_else(|| Tensor::checkpoint_bytes(&config), |b| b as u64);
    Ok(Dtype::auto(bytes).to_string())
}

/// The next smaller dtype, if there is one.
///
/// # Errors
/// `bad-option` for an unknown dtype.
#[wasm_bindgen]
pub fn smaller_dtype(dtype: &str) -> Result<Option<String>> {
    let dtype: Dtype = dtype.parse()?;
    Ok(dtype.smaller().map(|dtype| dtype.to_string()))
}

/// A tokenizer.
#[wasm_bindgen]
pub struct Tokenizer(Rc<tokenizer::Tokenizer>);

#[wasm_bindgen]
impl Tokenizer {
    /// Reads `tokenizer.json`.
    ///
    /// # Errors
    /// `bad-tokenizer`.
    pub fn from_json(bytes: &[u8]) -> Result<Tokenizer> {
        Ok(Self(Rc::new(tokenizer::Tokenizer::from_json(bytes)?)))
    }

    /// Reads `vocab.json` and `merges.txt`.
    ///
    /// # Errors
    /// `bad-tokenizer`.
    pub fn from_vocab_and_merges(vocab_json: &[u8], merges_txt: &[u8]) -> Result<Tokenizer> {
        Ok(Self(Rc::new(tokenizer::Tokenizer::from_vocab_and_merges(
            vocab_json, merges_txt,
        )?)))
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// `prompt-too-long`, `bad-tokenizer`.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.0.encode(text)
    }

    /// The text of ids.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> String {
        self.0.decode(ids, skip_special_tokens)
    }

    /// The tokens of a text with their bytes and spans.
    ///
    /// # Errors
    /// `prompt-too-long`, `bad-tokenizer`.
    pub fn tokens(&self, text: &str) -> Result<JsValue> {
        plain(&self.0.tokens(text)?)
    }

    /// The least number of ids that a text can have, known without encoding it.
    pub fn at_least(&self, text: &str) -> usize {
        self.0.at_least(text)
    }

    /// Highest id + 1.
    #[wasm_bindgen(getter)]
    pub fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }
}

/// A checkpoint on its way to the GPU.
#[wasm_bindgen]
pub struct ModelLoader {
    gpu: Rc<Gpu>,
    loading: RefCell<Option<(Loader, Weights)>>,
    tokenizer: RefCell<Option<Rc<tokenizer::Tokenizer>>>,
    /// Whether the memory belongs to a [`Model`] now.
    finished: Cell<bool>,
}

#[wasm_bindgen]
impl ModelLoader {
    /// Asks for a device and allocates the weights.
    ///
    /// # Errors
    /// `bad-config`, `not-a-gpt2`, `bad-option`, `no-webgpu`, `insecure-context`, `no-adapter`, `limit`, `out-of-memory`.
    pub async fn create(
        config_json: String,
        dtype: String,
        options: JsValue,
    ) -> Result<ModelLoader> {
        let config = Config::from_json(&config_json)?;
        let dtype = dtype.parse()?;
        let default_limits =
            Reflect::get(&options, &"default_limits".into()).is_ok_and(|v| v.is_truthy());
        let gpu = Gpu::request(GpuOptions { default_limits }).await?;
        let layout = Layout::new(&config, dtype);
        let weights = gpu.allocating(|| Weights::allocate(&gpu, &layout)).await;
        // What was allocated before the failure goes with the device.
        let weights = weights.inspect_err(|_| gpu.destroy())?;
        Ok(Self {
            loading: RefCell::new(Some((Loader::new(&config, dtype), weights))),
            tokenizer: RefCell::default(),
            finished: Cell::new(false),
            gpu,
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut Loader, &mut Weights) -> Result<T>) -> Result<T> {
        self.gpu.check()?;
        match &mut *self.loading.borrow_mut() {
            Some((loader, weights)) => f(loader, weights),
            None => Err(Error::Aborted(
                "This load was cancelled or is finished.".into(),
            )),
        }
    }

    /// The next file begins; `length` in bytes, if it is known.
    ///
    /// # Errors
    /// `bad-checkpoint`, `aborted`.
    pub fn begin_file(&self, name: &str, length: Option<f64>) -> Result<()> {
        self.with(|loader, _| loader.begin_file(name, length.map(|n| n as u64)))
    }

    /// Its next bytes.
    ///
    /// # Errors
    /// `bad-checkpoint`, `device-lost`, `out-of-memory`, `aborted`.
    pub fn push(&self, bytes: &[u8]) -> Result<()> {
        self.with(|loader, weights| loader.push(bytes, weights))
    }

    /// It is over.
    ///
    /// # Errors
    /// `bad-checkpoint` if bytes are missing, `aborted`.
    pub fn end_file(&self) -> Result<()> {
        self.with(|loader, _| loader.end_file())
    }

    /// Gives the model its tokenizer.
    pub fn use_tokenizer(&self, tokenizer: &Tokenizer) {
        *self.tokenizer.borrow_mut() = Some(tokenizer.0.clone());
    }

    /// All files are there: makes the model.
    ///
    /// # Errors
    /// `bad-checkpoint` if a tensor is missing, `bad-tokenizer`, `aborted`, or the device's fault.
    pub async fn finish(&self) -> Result<Model> {
        let (loader, weights) = self
            .loading
            .borrow_mut()
            .take()
            .ok_or_else(|| Error::Aborted("This load was cancelled or is finished.".into()))?;
        let report = loader.finish()?;
        let tokenizer = self.tokenizer.borrow().clone();
        let model = model::Model::new(self.gpu.clone(), weights, &report, tokenizer, None).await?;
        self.finished.set(true);
        Ok(Model {
            model,
            ignored: report.ignored,
        })
    }

    /// Cancels and frees the GPU memory, unless it belongs to a finished model. A call of `finish` that still waits ends.
    pub fn abort(&self) {
        if !self.finished.get() {
            self.loading.borrow_mut().take();
            self.gpu.destroy();
        }
    }

    /// Live bytes by class.
    ///
    /// # Errors
    /// `internal`.
    pub fn memory(&self) -> Result<JsValue> {
        plain(&self.gpu.memory())
    }
}

/// A model that is ready.
#[wasm_bindgen]
pub struct Model {
    model: Rc<model::Model>,
    ignored: Vec<String>,
}

#[wasm_bindgen]
impl Model {
    /// config.json with its defaults filled in.
    ///
    /// # Errors
    /// `internal`.
    #[wasm_bindgen(getter)]
    pub fn config(&self) -> Result<JsValue> {
        plain(self.model.config())
    }

    /// What the browser says about the device.
    ///
    /// # Errors
    /// `internal`.
    #[wasm_bindgen(getter)]
    pub fn device_info(&self) -> Result<JsValue> {
        plain(self.model.gpu().info())
    }

    /// How the matrices are stored.
    #[wasm_bindgen(getter)]
    pub fn dtype(&self) -> String {
        self.model.dtype().to_string()
    }

    /// Tensors of the checkpoint that a GPT-2 does not have; they were not loaded.
    #[wasm_bindgen(getter)]
    pub fn ignored(&self) -> Vec<String> {
        self.ignored.clone()
    }

    /// Counts since the load.
    ///
    /// # Errors
    /// `internal`.
    pub fn counters(&self) -> Result<JsValue> {
        plain(&self.model.gpu().counters())
    }

    /// Live bytes by class.
    ///
    /// # Errors
    /// `internal`.
    pub fn memory(&self) -> Result<JsValue> {
        plain(&self.model.gpu().memory())
    }

    /// Cached positions.
    pub fn get_seq_length(&self) -> usize {
        self.model.past_key_values().len()
    }

    /// Bytes of one cached position, all layers, K and V.
    pub fn position_bytes(&self) -> usize {
        self.model.past_key_values().position_bytes()
    }

    /// Starts a run.
    ///
    /// # Errors
    /// `bad-option`, `busy`, `disposed`, or the device's fault.
    pub fn stream(&self, options: &Object) -> Result<Run> {
        let mut prompt = None;
        let mut entries = Vec::new();
        for entry in Object::entries(options).iter() {
            let entry: js_sys::Array = entry.unchecked_into();
            let name = entry.get(0).as_string().unwrap_or_default();
            let value = entry.get(1);
            if value.is_undefined() {
                continue;
            }
            let given = match name.as_str() {
                "prompt" => Some(Prompt::Text(value.as_string().ok_or_else(|| {
                    Error::BadOption(format!(
                        "prompt is {}; it must be a string.",
                        kind_of(&value)
                    ))
                })?)),
                "input_ids" => Some(Prompt::Ids(ids(&value)?)),
                _ => {
                    entries.push((name, option_value(&value)));
                    None
                }
            };
            if given.is_some() && std::mem::replace(&mut prompt, given).is_some() {
                return Err(Error::BadOption(
                    "Both prompt and input_ids were given; give one.".into(),
                ));
            }
        }
        let prompt = prompt.ok_or_else(|| {
            Error::BadOption("Neither prompt nor input_ids was given; give one.".into())
        })?;
        let options = Options::from_entries(entries, self.model.config())?;
        let generator = Rc::new(Generator::new(&self.model, prompt, options)?);
        let run = Run {
            interrupter: generator.interrupter(),
            generator,
            started: Cell::new(false),
        };
        Ok(run)
    }

    /// One key or value of the cache: C numbers.
    ///
    /// # Errors
    /// `bad-option` if nothing is cached there.
    pub async fn read_kv(&self, layer: f64, which: String, position: f64) -> Result<Float32Array> {
        let which = match which.as_str() {
            "key" => KeyOrValue::Key,
            "value" => KeyOrValue::Value,
            other => {
                return Err(Error::BadOption(format!(
                    "read_kv was asked for {other:?}; it reads \"key\" or \"value\"."
                )));
            }
        };
        let model = self.model.clone();
        let row = model
            .read_kv(index("layer", layer)?, which, index("position", position)?)
            .await?;
        Ok(Float32Array::from(&row[..]))
    }

    /// Attention weights of the last position in one head, over all cached positions.
    ///
    /// # Errors
    /// `bad-option` if there is no such head or nothing is cached.
    pub async fn attention(&self, layer: f64, head: f64) -> Result<Float32Array> {
        let model = self.model.clone();
        let weights = model
            .attention(index("layer", layer)?, index("head", head)?)
            .await?;
        Ok(Float32Array::from(&weights[..]))
    }

    /// Compares this GPU with the plain-Rust reference and with what is published about the model of the id `name`.
    ///
    /// # Errors
    /// `busy`, `disposed`, or the device's fault.
    pub async fn self_check(&self, name: String) -> Result<JsValue> {
        let model = self.model.clone();
        plain(&self_check::self_check(&model, &name).await?)
    }

    /// Measures the device: `{ read_gbps, fma_gflops, dispatch_us }`.
    ///
    /// # Errors
    /// `busy`, `disposed`, or the device's fault.
    pub async fn roofline(&self) -> Result<JsValue> {
        let model = self.model.clone();
        plain(&model.roofline().await?)
    }

    /// Ends a running generation and frees the GPU memory.
    pub fn dispose(&self) {
        self.model.dispose();
    }
}

/// A run, pulled event by event.
#[wasm_bindgen]
pub struct Run {
    generator: Rc<Generator>,
    interrupter: Interrupter,
    started: Cell<bool>,
}

#[wasm_bindgen]
impl Run {
    /// The next event, or `undefined` after the last.
    ///
    /// # Errors
    /// `internal`.
    pub async fn next(&self) -> Result<JsValue> {
        if !self.started.replace(true) {
            self.pump();
        }
        let generator = self.generator.clone();
        match generator.next().await {
            Some(event) => plain(&event),
            None => Ok(JsValue::UNDEFINED),
        }
    }

    /// Lets arrivals, not the consumer, drive the submits.
    fn pump(&self) {
        let generator = self.generator.clone();
        spawn_local(async move { generator.pump().await });
    }

    /// Ends the run with what it has delivered, at once.
    pub fn interrupt(&self) {
        self.interrupter.interrupt();
    }

    /// Steps in flight at most.
    #[wasm_bindgen(getter)]
    pub fn max_in_flight(&self) -> usize {
        self.generator.max_in_flight()
    }

    /// Changes it; 1 means step by step.
    ///
    /// # Errors
    /// `bad-option` outside 1 to 8.
    #[wasm_bindgen(setter)]
    pub fn set_max_in_flight(&self, steps: f64) -> Result<()> {
        self.generator
            .set_max_in_flight(index("max_in_flight", steps)?)?;
        if self.started.get() {
            self.pump();
        }
        Ok(())
    }
}

/// A JavaScript number as an index.
fn index(name: &str, value: f64) -> Result<usize> {
    if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        Ok(value as usize)
    } else {
        Err(Error::BadOption(format!(
            "{name} is {value}; it must be a whole number, 0 or more."
        )))
    }
}

fn ids(value: &JsValue) -> Result<Vec<u32>> {
    if let Ok(bytes) = value.clone().dyn_into::<js_sys::Uint32Array>() {
        return Ok(bytes.to_vec());
    }
    let bad = || {
        Error::BadOption(format!(
            "input_ids is {}; it must be a list of ids.",
            kind_of(value)
        ))
    };
    if !js_sys::Array::is_array(value) {
        return Err(bad());
    }
    js_sys::Array::from(value)
        .iter()
        .map(|id| index("input_ids", id.as_f64().unwrap_or(f64::NAN)).map(|id| id as u32))
        .collect()
}

/// A JavaScript value as an option; what it means is decided where options are checked.
fn option_value(value: &JsValue) -> OptionValue {
    if value.is_null() {
        return OptionValue::Null;
    }
    if let Some(flag) = value.as_bool() {
        return OptionValue::Bool(flag);
    }
    if let Some(number) = value.as_f64() {
        return OptionValue::Number(number);
    }
    if let Some(text) = value.as_string() {
        return OptionValue::Text(text);
    }
    if js_sys::Array::is_array(value) {
        let items: Vec<JsValue> = js_sys::Array::from(value).iter().collect();
        if let Some(numbers) = items
            .iter()
            .map(JsValue::as_f64)
            .collect::<Option<Vec<_>>>()
        {
            return OptionValue::List(numbers);
        }
        if let Some(texts) = items
            .iter()
            .map(JsValue::as_string)
            .collect::<Option<Vec<_>>>()
        {
            return OptionValue::TextList(texts);
        }
    }
    OptionValue::Other(kind_of(value))
}

/// What a value is, for messages.
fn kind_of(value: &JsValue) -> &'static str {
    if value.is_null() {
        "null"
    } else if value.is_undefined() {
        "undefined"
    } else if value.as_bool().is_some() {
        "a boolean"
    } else if value.as_f64().is_some() {
        "a number"
    } else if value.is_string() {
        "a string"
    } else if js_sys::Array::is_array(value) {
        "a list"
    } else if value.is_function() {
        "a function"
    } else if value.is_bigint() {
        "a bigint"
    } else {
        "an object"
    }
}

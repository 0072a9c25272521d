//! Loading a fixture and running it to its end.

use std::cell::RefCell;
use std::rc::Rc;

use gpt2_webgpu::checkpoint::{Dtype, Layout, Loader};
use gpt2_webgpu::config::Config;
use gpt2_webgpu::error::Result;
use gpt2_webgpu::generator::{Generator, Prompt};
use gpt2_webgpu::gpu::{Gpu, GpuOptions};
use gpt2_webgpu::model::{Model, Tuning, Weights};
use gpt2_webgpu::sampling::Options;
use gpt2_webgpu::tokenizer::Tokenizer;
use gpt2_webgpu::trace::{Event, EventKind, FinishReason, Step};

use super::fixtures::Fixture;

thread_local! {
    static SHARED: RefCell<Option<Rc<Gpu>>> = const { RefCell::new(None) };
}

/// A device that no other case has, for those that break it or count all that is on it: tests fail without one, they never
/// skip.
pub async fn own_gpu() -> Rc<Gpu> {
    Gpu::request(GpuOptions::default())
        .await
        .expect("a graphics adapter")
}

/// The device that cases share, as long as it is sound: it keeps what it has compiled, and compiling takes most of the time
/// of a case. Counters are compared before and after, never from zero.
pub async fn gpu() -> Rc<Gpu> {
    let shared = SHARED.take().filter(|gpu| gpu.check().is_ok());
    let gpu = match shared {
        Some(gpu) => gpu,
        None => own_gpu().await,
    };
    // A case that failed half-way may have left a fault behind.
    #[cfg(feature = "test-hooks")]
    {
        gpu.hold_maps(false);
        gpu.skip_kernel(None);
    }
    SHARED.replace(Some(gpu.clone()));
    gpu
}

/// What a case may vary in loading.
#[derive(Default)]
pub struct Load {
    pub dtype: Option<Dtype>,
    pub tuning: Option<Tuning>,
    pub tokenizer: Option<Rc<Tokenizer>>,
}

/// A model from a config and its files.
pub async fn load(
    gpu: &Rc<Gpu>,
    config: &str,
    files: &[(&str, &[u8])],
    options: Load,
) -> Result<Rc<Model>> {
    let config = Config::from_json(config)?;
    let dtype = options.dtype.unwrap_or(Dtype::Fp32);
    let layout = Layout::new(&config, dtype);
    let mut weights = gpu.allocating(|| Weights::allocate(gpu, &layout)).await?;
    let mut loader = Loader::new(&config, dtype);
    for (name, bytes) in files {
        loader.begin_file(name, Some(bytes.len() as u64))?;
        loader.push(bytes, &mut weights)?;
        loader.end_file()?;
    }
    let report = loader.finish()?;
    Model::new(
        gpu.clone(),
        weights,
        &report,
        options.tokenizer,
        options.tuning,
    )
    .await
}

/// A fixture, loaded.
pub async fn load_fixture(gpu: &Rc<Gpu>, fixture: &Fixture, options: Load) -> Rc<Model> {
    load(gpu, fixture.config, fixture.files, options)
        .await
        .unwrap_or_else(|e| panic!("{}: {e}", fixture.name))
}

/// A finished run.
#[derive(Debug)]
pub struct Ran {
    pub events: Vec<Event>,
    pub new_tokens: Vec<u32>,
    pub steps: Vec<Step>,
    pub text: String,
    pub finish_reason: Option<FinishReason>,
    pub error: Option<(String, String)>,
}

/// Pulls a run to its end.
pub async fn drain(generator: &Generator) -> Ran {
    let mut ran = Ran {
        events: Vec::new(),
        new_tokens: Vec::new(),
        steps: Vec::new(),
        text: String::new(),
        finish_reason: None,
        error: None,
    };
    while let Some(event) = generator.next().await {
        match &event.kind {
            EventKind::Prefilled { step } | EventKind::Decoded { step, .. } => {
                ran.new_tokens.push(step.token_id);
                ran.steps.push(step.clone());
            }
            EventKind::Text { text, .. } => ran.text.push_str(text),
            EventKind::Done { finish_reason, .. } => ran.finish_reason = Some(*finish_reason),
            EventKind::Error { code, message } => ran.error = Some((code.clone(), message.clone())),
            _ => {}
        }
        ran.events.push(event);
    }
    ran
}

/// Runs ids with options.
pub async fn generate(model: &Rc<Model>, ids: &[u32], options: Options) -> Ran {
    let generator =
        Generator::new(model, Prompt::Ids(ids.to_vec()), options).expect("a free model");
    drain(&generator).await
}

//! `from_pretrained` for folders on this machine; in the browser `www/gpt2.js` does the same with URLs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::checkpoint::{Dtype, Layout, LoadReport, Loader, ShardIndex};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, GpuOptions};
use crate::model::{Model, Tuning, Weights};
use crate::tokenizer::Tokenizer;

/// Bytes read from a file at once.
const CHUNK: usize = 4 << 20;

/// How to load.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// How to store the matrices; by the size of the checkpoint if absent, and one dtype lower if the GPU has no room.
    pub dtype: Option<Dtype>,
    /// How to ask for the device.
    pub gpu: GpuOptions,
    /// How to cut the kernels; by the device if absent.
    pub tuning: Option<Tuning>,
}

/// Loads the model in `folder`: `config.json`, `model.safetensors` (or its shards), and a tokenizer if there is one.
///
/// # Errors
/// [`Error::Network`] for a file that cannot be read, else what the file, the tokenizer or the GPU says.
pub async fn from_pretrained(
    folder: &Path,
    options: LoadOptions,
) -> Result<(Rc<Model>, LoadReport)> {
    let config = Config::from_json(&text(&folder.join("config.json"))?)?;
    let tokenizer = tokenizer(folder)?.map(Rc::new);
    let files = weight_files(folder)?;
    if let Some(dtype) = options.dtype {
        return load(&config, &files, tokenizer, dtype, options).await;
    }
    let bytes = files.iter().map(|path| length(path)).sum::<Result<u64>>()?;
    let dtype = Dtype::auto(bytes);
    let loaded = load(&config, &files, tokenizer.clone(), dtype, options).await;
    match (loaded, dtype.smaller()) {
        (Err(Error::OutOfMemory(_)), Some(smaller)) => {
            let (model, mut report) = load(&config, &files, tokenizer, smaller, options).await?;
            report.warnings.push(format!(
                "The GPU had no room for this model in {dtype}, so it was loaded in {smaller}."
            ));
            Ok((model, report))
        }
        (loaded, _) => loaded,
    }
}

async fn load(
    config: &Config,
    files: &[PathBuf],
    tokenizer: Option<Rc<Tokenizer>>,
    dtype: Dtype,
    options: LoadOptions,
) -> Result<(Rc<Model>, LoadReport)> {
    let gpu = Gpu::request(options.gpu).await?;
    let layout = Layout::new(config, dtype);
    let mut weights = gpu.allocating(|| Weights::allocate(&gpu, &layout)).await?;
    let mut loader = Loader::new(config, dtype);
    for path in files {
        let mut file = File::open(path).map_err(|e| unreadable(path, &e))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        loader.begin_file(&name, Some(length(path)?))?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = file.read(&mut chunk).map_err(|e| unreadable(path, &e))?;
            if read == 0 {
                break;
            }
            loader.push(&chunk[..read], &mut weights)?;
        }
        loader.end_file()?;
    }
    let report = loader.finish()?;
    let model = Model::new(gpu, weights, &report, tokenizer, options.tuning).await?;
    Ok((model, report))
}

fn length(path: &Path) -> Result<u64> {
    let about = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    Ok(about.len())
}

/// The tokenizer in `folder`: `tokenizer.json`, or `vocab.json` with `merges.txt`, or none.
///
/// # Errors
/// [`Error::BadTokenizer`] if it is broken.
pub fn tokenizer(folder: &Path) -> Result<Option<Tokenizer>> {
    let path = folder.join("tokenizer.json");
    if path.exists() {
        return Tokenizer::from_json(&bytes(&path)?).map(Some);
    }
    let (vocab, merges) = (folder.join("vocab.json"), folder.join("merges.txt"));
    if vocab.exists() && merges.exists() {
        return Tokenizer::from_vocab_and_merges(&bytes(&vocab)?, &bytes(&merges)?).map(Some);
    }
    Ok(None)
}

/// The files that hold the weights.
fn weight_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let single = folder.join("model.safetensors");
    if single.exists() {
        return Ok(vec![single]);
    }
    let index = folder.join("model.safetensors.index.json");
    if index.exists() {
        let index = ShardIndex::from_json(&text(&index)?)?;
        return Ok(index.files().iter().map(|name| folder.join(name)).collect());
    }
    let pickle = folder.join("pytorch_model.bin").exists();
    Err(Error::BadCheckpoint(format!(
        "{} has no model.safetensors{}.",
        folder.display(),
        if pickle {
            ", only pytorch_model.bin, which is not read. Save the model again in Python: \
             model.save_pretrained(folder, safe_serialization=True)"
        } else {
            " and no model.safetensors.index.json. Name a folder that holds a Hugging Face GPT-2"
        }
    )))
}

/// The folder that `model` names: a path, or a hub id looked up in Hugging Face's local cache.
///
/// # Errors
/// [`Error::Network`] if it is neither.
pub fn resolve(model: &str) -> Result<PathBuf> {
    let path = PathBuf::from(model);
    if path.is_dir() {
        return Ok(path);
    }
    let cached = hub_cache().join(format!("models--{}", model.replace('/', "--")));
    let revision = std::fs::read_to_string(cached.join("refs/main"));
    if let Ok(revision) = revision {
        let snapshot = cached.join("snapshots").join(revision.trim());
        if snapshot.is_dir() {
            return Ok(snapshot);
        }
    }
    Err(Error::Network(format!(
        "{model} is no folder, and Hugging Face's local cache has nothing at {}. Download it first: \
         hf download {model}",
        cached.display()
    )))
}

/// Where `huggingface_hub` keeps its downloads.
fn hub_cache() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HF_HOME").map(|home| home.join("hub")))
        .unwrap_or_else(|| {
            variable("HOME")
                .or_else(|| variable("USERPROFILE"))
                .unwrap_or_default()
                .join(".cache/huggingface/hub")
        })
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| unreadable(path, &e))
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| unreadable(path, &e))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Network(format!(
        "{} could not be read: {error}. Name a folder that holds config.json and model.safetensors.",
        path.display()
    ))
}

//! GPT-2 on the reader's own GPU: what happens inside Hugging Face's `model.generate()`.
//!
//! The modules in the order in which data flows through them:
//!
//! 1. [`config`] reads `config.json`, the shape of the model;
//! 2. [`tokenizer`] turns text into ids, and ids back into text;
//! 3. [`checkpoint`] reads `model.safetensors` while it arrives and lays the weights out for the kernels;
//! 4. [`gpu`] is the device: memory, submits, read-backs; [`kernel`] turns a WGSL file into an op;
//! 5. [`kv_cache`] is `past_key_values`; [`model`] has the prefill plan and the decode plan;
//! 6. [`sampling`] has the options of `generate` and the twin of the kernel that picks the next id;
//! 7. [`generator`] is the loop: tokenize, prefill, decode, detokenize; [`trace`] is what it tells about itself;
//! 8. [`roofline`] measures what the device can do, and natively `bench` what the model reaches of it;
//! 9. [`reference`](mod@reference) is the same model in plain Rust, with which every kernel is compared, and with
//!    which [`mod@self_check`] compares the reader's own GPU.
#![warn(missing_docs)]

#[cfg(not(target_arch = "wasm32"))]
pub mod bench;
pub mod checkpoint;
pub mod config;
pub mod error;
#[cfg(not(target_arch = "wasm32"))]
pub mod from_pretrained;
pub mod generator;
pub mod gpu;
pub mod kernel;
pub mod kv_cache;
pub mod model;
pub mod reference;
pub mod roofline;
pub mod sampling;
pub mod self_check;
#[cfg(feature = "test-hooks")]
pub mod test_hooks;
pub mod tokenizer;
pub mod trace;
#[cfg(target_arch = "wasm32")]
pub mod web;

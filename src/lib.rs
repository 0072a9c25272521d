//! GPT-2 on the reader's own GPU.
#![warn(missing_docs)]

pub mod checkpoint;
pub mod config;
pub mod error;
pub mod sampling;
pub mod tokenizer;
pub mod trace;

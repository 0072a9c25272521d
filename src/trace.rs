//! Events: what a run did, in one JSON format that is emitted live, written to a file and replayed by the page.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tokenizer::Token;

/// The version of the trace file format that this crate writes and reads.
pub const TRACE_VERSION: u32 = 1;

/// One event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds since the call.
    pub t: f64,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened; `type` in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    /// The prompt became ids.
    Tokenized {
        /// The tokens of the prompt, in order.
        tokens: Vec<Token>,
        /// Time of the tokenizer on the CPU, milliseconds.
        ms: f64,
    },
    /// The prompt is about to go through the model.
    PrefillStarted {
        /// Ids in the prompt.
        input_len: usize,
        /// Positions whose keys and values were still in the cache and are not computed again.
        reused: usize,
    },
    /// A chunk of the prompt went through the model.
    PrefillProgress {
        /// Prompt rows that are in the cache now (reused rows included).
        rows_done: usize,
        /// Ids in the prompt.
        input_len: usize,
    },
    /// The whole prompt went through the model and the first new token was picked.
    Prefilled {
        /// What the step computed.
        #[serde(flatten)]
        step: Step,
    },
    /// One decode step: one id in, one id out.
    Decoded {
        /// Index of the new token: 1 for the first decoded one (0 came from prefill).
        index: usize,
        /// The id that went in.
        input_id: u32,
        /// What the step computed.
        #[serde(flatten)]
        step: Step,
    },
    /// One new id went through the detokenizer.
    Text {
        /// Index of the new token, from 0.
        index: usize,
        /// The id.
        token_id: u32,
        /// The bytes this id stands for.
        bytes: Vec<u8>,
        /// Text that became complete with this id; may be empty.
        text: String,
        /// Bytes held back until the character they begin is complete.
        pending_bytes: Vec<u8>,
        /// Time of the detokenizer on the CPU, milliseconds.
        ms: f64,
    },
    /// The run ended by itself or was interrupted.
    Done {
        /// Why it ended.
        finish_reason: FinishReason,
        /// The measured times of the stages.
        timings: Timings,
        /// The seed that was used.
        seed: u64,
        /// What was accepted but had no effect, and the like.
        warnings: Vec<String>,
    },
    /// The run failed.
    Error {
        /// A stable code, see [`Error::code`].
        code: String,
        /// What happened and what to do.
        message: String,
    },
}

/// What one forward pass computed and cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The id that was picked.
    pub token_id: u32,
    /// Wall clock, milliseconds: from the later of the submit and the previous arrival to this arrival.
    pub ms: f64,
    /// Time of the pass by the GPU's clock, milliseconds; absent without `timestamp-query`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu_ms: Option<f64>,
    /// Positions in the cache after the step.
    pub past_len: usize,
    /// Submits that the rows were split into.
    pub chunks: usize,
    /// Rows pushed through the layers in this step (T).
    pub rows: usize,
    /// Positions written to the cache: from, to (to excluded).
    pub kv_written: [usize; 2],
    /// Cached positions that attention read, the step's own included.
    pub kv_read: usize,
    /// Floating point operations, counted from the shapes (a multiply-add is two).
    pub flops: f64,
    /// Bytes of weights and cache that the step must read and write, counted from the shapes.
    pub bytes: f64,
    /// The best candidates, ranked; as many as `top_logits` asked for.
    pub candidates: Vec<Candidate>,
    /// Ids that remained after top-k and top-p.
    pub kept: usize,
    /// Probability of all kept ids that are not listed: listed + rest = 1.
    pub rest: f64,
}

/// One id that could have been picked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The id.
    pub id: u32,
    /// Its text, on its own (lossy for part of a character); empty without a tokenizer.
    pub text: String,
    /// The model's raw logit.
    pub logit: f32,
    /// Probability after all processors; 0 if removed.
    pub probability: f32,
    /// The processor that removed it, if one did.
    pub removed_by: Option<RemovedBy>,
}

/// A processor that removes ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovedBy {
    /// Below the k-th logit.
    TopK,
    /// Outside the nucleus.
    TopP,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// An end id was picked.
    Eos,
    /// `max_new_tokens` were made.
    Length,
    /// A stop string appeared.
    Stop,
    /// The model has no more positions.
    Context,
    /// The caller interrupted.
    Interrupted,
}

/// The measured times of the stages, milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// The tokenizer.
    pub tokenize_ms: f64,
    /// Prefill: all its chunks.
    pub prefill_ms: f64,
    /// Each decode step.
    pub decode_ms: Vec<f64>,
    /// The detokenizer, all steps.
    pub detokenize_ms: f64,
    /// Time to first token: tokenize + prefill, without the time a caller spent between pulls.
    pub ttft_ms: f64,
    /// The same by the GPU's clock, if it has one.
    pub gpu: Option<GpuTimings>,
}

/// Times by the GPU's own clock, milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuTimings {
    /// Prefill: all its chunks.
    pub prefill_ms: f64,
    /// Each decode step.
    pub decode_ms: Vec<f64>,
}

/// A whole run in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Format version, [`TRACE_VERSION`].
    pub version: u32,
    /// When the run was made, ISO 8601.
    #[serde(default)]
    pub created: String,
    /// The model's name.
    #[serde(default)]
    pub model: String,
    /// Its config.json.
    #[serde(default)]
    pub config: serde_json::Value,
    /// The device it ran on.
    #[serde(default)]
    pub device: serde_json::Value,
    /// The options of the call.
    #[serde(default)]
    pub options: serde_json::Value,
    /// What happened.
    pub events: Vec<Event>,
}

impl Trace {
    /// Reads a trace file; unknown fields are ignored, unknown versions refused.
    ///
    /// # Errors
    /// [`Error::BadTrace`] if the text is not a trace or its version is not [`TRACE_VERSION`].
    pub fn from_json(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let bad = |e: serde_json::Error| {
            Error::BadTrace(format!(
                "This file is not a trace: {e}. Choose a JSON file that this page saved."
            ))
        };
        let Version { version } = serde_json::from_str(text).map_err(bad)?;
        if version != TRACE_VERSION {
            return Err(Error::BadTrace(format!(
                "The trace has version {version}; this page reads version {TRACE_VERSION}. Record the run again."
            )));
        }
        serde_json::from_str(text).map_err(bad)
    }
}

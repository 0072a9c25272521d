//! One error type for the whole crate: what happened, with the numbers, and what to do about it.

/// Everything that can go wrong, one variant per stable code.
///
/// The message in each variant is a whole sentence for the reader; [`Error::code`] is for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The browser has no WebGPU API.
    #[error("{0}")]
    NoWebgpu(String),
    /// The page is not in a secure context (https or localhost), so the browser hides WebGPU.
    #[error("{0}")]
    InsecureContext(String),
    /// There is an API, but no adapter answered.
    #[error("{0}")]
    NoAdapter(String),
    /// The device was lost while it was in use.
    #[error("{0}")]
    DeviceLost(String),
    /// The GPU could not give the memory.
    #[error("{0}")]
    OutOfMemory(String),
    /// A limit of this adapter is too small for this model.
    #[error("{0}")]
    Limit(String),
    /// The network failed before an answer came.
    #[error("{0}")]
    Network(String),
    /// The server answered with an error status, or with something else than the file.
    #[error("{0}")]
    Http(String),
    /// The other site does not allow this page to read the file.
    #[error("{0}")]
    Cors(String),
    /// The files belong to another kind of model.
    #[error("{0}")]
    NotAGpt2(String),
    /// config.json is broken or asks for something that GPT-2 does not have.
    #[error("{0}")]
    BadConfig(String),
    /// The weights are broken, incomplete or do not fit config.json.
    #[error("{0}")]
    BadCheckpoint(String),
    /// The tokenizer is broken, missing or does not fit the model.
    #[error("{0}")]
    BadTokenizer(String),
    /// An option of a call is out of range or unknown.
    #[error("{0}")]
    BadOption(String),
    /// The prompt has more ids than the model has positions.
    #[error("{0}")]
    PromptTooLong(String),
    /// A trace file is broken or of an unknown version.
    #[error("{0}")]
    BadTrace(String),
    /// A generation is already running on this model.
    #[error("{0}")]
    Busy(String),
    /// The model was disposed.
    #[error("{0}")]
    Disposed(String),
    /// The caller cancelled.
    #[error("{0}")]
    Aborted(String),
    /// A fault of this program; the message is for a bug report.
    #[error("{0}")]
    Internal(String),
}

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The stable code of this error, as JavaScript sees it in `error.code`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::NoWebgpu(_) => "no-webgpu",
            Error::InsecureContext(_) => "insecure-context",
            Error::NoAdapter(_) => "no-adapter",
            Error::DeviceLost(_) => "device-lost",
            Error::OutOfMemory(_) => "out-of-memory",
            Error::Limit(_) => "limit",
            Error::Network(_) => "network",
            Error::Http(_) => "http",
            Error::Cors(_) => "cors",
            Error::NotAGpt2(_) => "not-a-gpt2",
            Error::BadConfig(_) => "bad-config",
            Error::BadCheckpoint(_) => "bad-checkpoint",
            Error::BadTokenizer(_) => "bad-tokenizer",
            Error::BadOption(_) => "bad-option",
            Error::PromptTooLong(_) => "prompt-too-long",
            Error::BadTrace(_) => "bad-trace",
            Error::Busy(_) => "busy",
            Error::Disposed(_) => "disposed",
            Error::Aborted(_) => "aborted",
            Error::Internal(_) => "internal",
        }
    }
}

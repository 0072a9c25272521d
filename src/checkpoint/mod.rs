//! Weights: from a checkpoint's bytes, as they arrive, to GPU memory.

pub mod layout;

pub use layout::{Axis, Dtype, Layout, Matrix, Param, Target, Upload, pad4};

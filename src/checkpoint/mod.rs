//! Weights: from a checkpoint's bytes, as they arrive, to GPU memory.
//!
//! [`Loader`] is fed the files as they come. A file passes `header` (what lies where), `inventory` (is it what
//! config.json says), `transfer` (block by block), `decode` (to f32) and `pack` (to words), and leaves through
//! [`Upload`]. [`layout`] defines the words, which the kernels read; [`Place`] turns them back into plain values.

mod axis;
mod decode;
mod dtype;
mod header;
mod impostor;
mod inventory;
pub mod layout;
mod loader;
pub mod make;
mod memory;
mod names;
mod pack;
mod place;
mod shards;
mod target;
#[cfg(test)]
mod tests;
mod tie;
mod transfer;

pub use axis::{Axis, pad4};
pub use dtype::{Dtype, SCALE_ROWS};
pub use layout::{Layout, TILE_ROWS};
pub use loader::{LoadReport, Loader};
pub use memory::{Memory, round_tensor};
pub use names::Tensor;
pub use pack::{Packed, Packer};
pub use place::{Place, Region};
pub use shards::ShardIndex;
pub use target::{Matrix, Param, Target, Upload};

// Shared by every kernel; appended after it, so that error lines point into the kernel's own file.

// Where the run stands. Written by `pick` (as storage) and by the host at a start; every other kernel reads it as uniform.
struct State {
  past: u32, // P: positions in the cache before this pass = position of row 0
  rows: u32, // T: rows in this pass
  pad2: u32,
  pad3: u32,
  pad4: u32,
  pad5: u32,
  pad6: u32,
  pad7: u32,
}

// What is masked away. Finite, because WGSL may assume that no infinity occurs.
const MASKED: f32 = -1e30;

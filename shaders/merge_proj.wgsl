// x[t] += merge(parts[t]) · attn.c_proj + bias, where merge puts the split softmax together again: Σ e^(mₛ - m) oₛ / Σ e^(mₛ - m) lₛ
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> parts: array<f32>;               // [T, SPLITS, A + 2·H]
@group(0) @binding(2) var<storage, read> params: array<vec4<f32>>;        // this layer's vectors
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;             // [A, C]
@group(0) @binding(4) var<storage, read_write> x: array<vec4<f32>>;       // [T, C]: the residual stream

override A4: u32;               // A / 4
override D: u32;                // padded head size
override STRIDE: u32;           // A + 2·H, rounded up to 4
override SPLITS: u32 = 1u;
override N4: u32;               // ceil(C / 4)
override MATRIX_BIAS: u32;      // offsets in params, in vec4
override SCALE: u32;

fn weight(i: u32) -> vec4<u32> { return w[i]; }
fn scale(i: u32) -> vec4<f32> { return params[SCALE + i]; }

fn input(row: u32, k4: u32) -> vec4<f32> {
  let head = 4u * k4 / D;
  var maximum = MASKED;
  for (var s = 0u; s < SPLITS; s++) {
    maximum = max(maximum, parts[(row * SPLITS + s) * STRIDE + 4u * A4 + 2u * head]);
  }
  var o = vec4<f32>(0.0);
  var sum = 0.0;
  for (var s = 0u; s < SPLITS; s++) {
    let base = (row * SPLITS + s) * STRIDE;
    let share = exp(parts[base + 4u * A4 + 2u * head] - maximum);
    let i = base + 4u * k4;
    o += share * vec4<f32>(parts[i], parts[i + 1u], parts[i + 2u], parts[i + 3u]);
    sum += share * parts[base + 4u * A4 + 2u * head + 1u];
  }
  return o / sum;
}

fn output(row: u32, n4: u32, y: vec4<f32>) {
  x[row * N4 + n4] += y + params[MATRIX_BIAS + n4];
}

@compute @workgroup_size(COLS, KSPLIT)
fn merge_proj(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  linear(group, lane, A4, N4);
}

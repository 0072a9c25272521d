// h[t] = activation(ln_2(x[t]) · c_fc + bias)
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;             // [T, C]; in prefill `ln` has normed it
@group(0) @binding(2) var<storage, read> params: array<vec4<f32>>;        // this layer's vectors
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;             // [C, F]
@group(0) @binding(4) var<storage, read_write> h: array<vec4<f32>>;       // [T, F]

override N4: u32;               // ceil(F / 4)
override MATRIX_BIAS: u32;      // offsets in params, in vec4
override SCALE: u32;

fn weight(i: u32) -> vec4<u32> { return w[i]; }
fn scale(i: u32) -> vec4<f32> { return params[SCALE + i]; }

fn input(row: u32, k4: u32) -> vec4<f32> {
  if (ONE_ROW) { return normed(row, k4); }
  return raw(row, k4);
}

fn output(row: u32, n4: u32, y: vec4<f32>) {
  let value = y + params[MATRIX_BIAS + n4];
  h[row * N4 + n4] = vec4<f32>(activation(value.x), activation(value.y), activation(value.z), activation(value.w));
}

@compute @workgroup_size(COLS, KSPLIT)
fn ln_fc(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  if (ONE_ROW) { row_statistics(0u, lane.y * COLS + lane.x); }
  linear(group, lane, (C + 3u) / 4u, N4);
}

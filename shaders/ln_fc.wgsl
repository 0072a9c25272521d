// h[t] = activation(ln_2(x[t]) · c_fc + bias)
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;             // [T, C]; already normed when NORM is off
@group(0) @binding(2) var<storage, read> params: array<vec4<f32>>;        // this layer's vectors
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;             // [C, F]
@group(0) @binding(4) var<storage, read_write> h: array<vec4<f32>>;       // [T, F]

override NORM: bool = true;     // decode: norm here; prefill: `ln` has done it once a row
override N4: u32;               // ceil(F / 4)
override WEIGHT: u32;           // offsets in params, in vec4
override BIAS: u32;
override MATRIX_BIAS: u32;
override SCALE: u32;

fn raw(row: u32, k4: u32) -> vec4<f32> { return x[row * ((C + 3u) / 4u) + k4]; }
fn weight(i: u32) -> vec4<u32> { return w[i]; }
fn scale(i: u32) -> vec4<f32> { return params[SCALE + i]; }

fn input(row: u32, k4: u32) -> vec4<f32> {
  if (NORM) {
    return (raw(row, k4) - mean) * inverse_std * params[WEIGHT + k4] + params[BIAS + k4];
  }
  return raw(row, k4);
}

fn output(row: u32, n4: u32, y: vec4<f32>) {
  let value = y + params[MATRIX_BIAS + n4];
  h[row * N4 + n4] = vec4<f32>(activation(value.x), activation(value.y), activation(value.z), activation(value.w));
}

@compute @workgroup_size(COLS, KSPLIT)
fn ln_fc(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  let n4 = group.x * COLS + lane.x;
  let column = min(n4, N4 - 1u);
  let k_count = 4u * ((C + 3u) / 4u);
  if (NORM) {
    row_statistics(0u);
    let y = columns(0u, k_count, column, N4, column, N4, lane.x, lane.y);
    if (n4 < N4 && lane.y == 0u) { output(0u, n4, y); }
  } else if (n4 < N4) {
    let row = 8u * group.y;
    let y = tile(row, state.rows - 1u, k_count, column, N4, column, N4);
    for (var r = 0u; r < 8u && row + r < state.rows; r++) { output(row + r, n4, y.r[r]); }
  }
}

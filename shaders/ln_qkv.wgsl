// q | k | v = ln_1(x) · c_attn + bias;  k and v go straight into the cache at position P + t
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;             // [T, C]; already normed when NORM is off
@group(0) @binding(2) var<storage, read> params: array<vec4<f32>>;        // this layer's vectors
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;             // [C, 3·A]
@group(0) @binding(4) var<storage, read_write> q: array<vec4<f32>>;       // [T, A]
@group(0) @binding(5) var<storage, read_write> kv: array<vec2<u32>>;      // [2, n_positions, A]: this layer's K, then V
@group(0) @binding(6) var<storage, read_write> q_ring: array<vec4<f32>>;  // [W, A]: q of the last W positions

override NORM: bool = true;     // decode: norm here; prefill: `ln` has done it once a row
override A4: u32;               // A / 4, the attention width H·D with padded heads
override POSITIONS: u32;        // n_positions
override RING: u32;             // W
override KV_F16: bool = false;  // the cache holds f16 pairs (one vec2 for four values) or f32 (two)
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

fn store_kv(i: u32, value: vec4<f32>) {
  if (KV_F16) {
    kv[i] = vec2<u32>(pack2x16float(value.xy), pack2x16float(value.zw));
  } else {
    kv[2u * i] = bitcast<vec2<u32>>(value.xy);
    kv[2u * i + 1u] = bitcast<vec2<u32>>(value.zw);
  }
}

fn output(row: u32, n4: u32, y: vec4<f32>) {
  let value = y + params[MATRIX_BIAS + n4];
  let position = state.past + row;
  if (n4 < A4) {
    q[row * A4 + n4] = value;
    if (row + 1u == state.rows) {
      q_ring[(position % RING) * A4 + n4] = value;
    }
  } else {
    let which = n4 / A4 - 1u; // 0: K, 1: V
    store_kv((which * POSITIONS + position) * A4 + n4 % A4, value);
  }
}

@compute @workgroup_size(COLS, KSPLIT)
fn ln_qkv(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  let n4 = group.x * COLS + lane.x;
  let column = min(n4, 3u * A4 - 1u);
  let k_count = 4u * ((C + 3u) / 4u);
  if (NORM) {
    row_statistics(0u);
    let y = columns(0u, k_count, column, 3u * A4, column, 3u * A4, lane.x, lane.y);
    if (n4 < 3u * A4 && lane.y == 0u) { output(0u, n4, y); }
  } else if (n4 < 3u * A4) {
    let row = 8u * group.y;
    let y = tile(row, state.rows - 1u, k_count, column, 3u * A4, column, 3u * A4);
    for (var r = 0u; r < 8u && row + r < state.rows; r++) { output(row + r, n4, y.r[r]); }
  }
}

// q | k | v = ln_1(x) · c_attn + bias;  k and v go straight into the cache at position P + t
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;             // [T, C]; in prefill `ln` has normed it
@group(0) @binding(2) var<storage, read> params: array<vec4<f32>>;        // this layer's vectors
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;             // [C, 3·A]
@group(0) @binding(4) var<storage, read_write> q: array<vec4<f32>>;       // [T, A]
@group(0) @binding(5) var<storage, read_write> kv: array<vec2<u32>>;      // [2, n_positions, A]: this layer's K, then V
@group(0) @binding(6) var<storage, read_write> q_ring: array<vec4<f32>>;  // [W, A]: q of the last W positions

override A4: u32;               // A / 4, the attention width H·D with padded heads
override POSITIONS: u32;        // n_positions
override RING: u32;             // W
override KV_F16: bool = false;  // the cache holds f16 pairs (one vec2 for four values) or f32 (two)
override MATRIX_BIAS: u32;      // offsets in params, in vec4
override SCALE: u32;

fn weight(i: u32) -> vec4<u32> { return w[i]; }
fn scale(i: u32) -> vec4<f32> { return params[SCALE + i]; }

fn input(row: u32, k4: u32) -> vec4<f32> {
  if (ONE_ROW) { return normed(row, k4); }
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
  if (ONE_ROW) { row_statistics(0u, lane.y * COLS + lane.x); }
  linear(group, lane, (C + 3u) / 4u, 3u * A4);
}

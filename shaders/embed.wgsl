// x[t] = wte[tokens[P + t]] + wpe[P + t]
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;          // [n_positions + 1]
@group(0) @binding(2) var<storage, read> wte0: array<vec4<u32>>;      // [V, C] in tiles of 256 rows: the first tiles
@group(0) @binding(3) var<storage, read> wte1: array<vec4<u32>>;      // the next
@group(0) @binding(4) var<storage, read> wte2: array<vec4<u32>>;      // the last
@group(0) @binding(5) var<storage, read> scales: array<f32>;          // [tiles, ceil(C / 64), 256], int8 only
@group(0) @binding(6) var<storage, read> wpe: array<vec4<f32>>;       // [n_positions, C]
@group(0) @binding(7) var<storage, read_write> x: array<vec4<f32>>;   // [T, C]

override DTYPE: u32 = 0u;
override C4: u32;               // ceil(C / 4)
override PART_VEC4S: u32;       // vec4<u32> in a part of wte

fn weight(i: u32) -> vec4<u32> {
  let part = i / PART_VEC4S;
  let j = i - part * PART_VEC4S;
  if (part == 0u) { return wte0[j]; }
  if (part == 1u) { return wte1[j]; }
  return wte2[j];
}

// wte[id, k]
fn embedding(id: u32, k: u32) -> f32 {
  let tile = id / 256u;
  let lane = (id % 256u) / 4u;
  let c = id % 4u;
  if (DTYPE == 0u) {
    return bitcast<f32>(weight((tile * C4 * 4u + k) * 64u + lane)[c]);
  }
  if (DTYPE == 1u) {
    let words = weight((tile * C4 * 2u + k / 2u) * 64u + lane);
    return unpack2x16float(words[2u * (k % 2u) + c / 2u])[c % 2u];
  }
  let word = weight((tile * C4 + k / 4u) * 64u + lane)[k % 4u];
  let value = bitcast<i32>(word << (24u - 8u * c)) >> 24u;
  return scales[(tile * ((C4 + 15u) / 16u) + k / 64u) * 256u + id % 256u] * f32(value);
}

@compute @workgroup_size(64)
fn embed(@builtin(global_invocation_id) at: vec3<u32>) {
  let k4 = at.x;
  let row = at.y;
  if (k4 >= C4) { return; }
  let position = state.past + row;
  let id = tokens[position];
  let k = 4u * k4;
  let e = vec4<f32>(embedding(id, k), embedding(id, k + 1u), embedding(id, k + 2u), embedding(id, k + 3u));
  x[row * C4 + k4] = e + wpe[position * C4 + k4];
}

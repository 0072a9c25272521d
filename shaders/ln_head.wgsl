// logits = ln_f(x[T - 1]) · lm_headᵀ: the last row only, since only it says what comes next
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;               // [T, C]
@group(0) @binding(2) var<storage, read> params: array<vec4<f32>>;          // ln_f
@group(0) @binding(3) var<storage, read> head0: array<vec4<u32>>;           // [V, C] in tiles of 256 rows: the first tiles
@group(0) @binding(4) var<storage, read> head1: array<vec4<u32>>;           // the next
@group(0) @binding(5) var<storage, read> head2: array<vec4<u32>>;           // the last
@group(0) @binding(6) var<storage, read> scales: array<vec4<f32>>;          // [tiles, ceil(C / 64), 256], int8 only
@group(0) @binding(7) var<storage, read_write> logits: array<vec4<f32>>;    // [V], rounded up to whole tiles

override PART_VEC4S: u32;       // vec4<u32> in a part of the head

fn weight(i: u32) -> vec4<u32> {
  let part = i / PART_VEC4S;
  let j = i - part * PART_VEC4S;
  if (part == 0u) { return head0[j]; }
  if (part == 1u) { return head1[j]; }
  return head2[j];
}

fn scale(i: u32) -> vec4<f32> { return scales[i]; }

fn input(row: u32, k4: u32) -> vec4<f32> { return normed(row, k4); }

fn output(row: u32, n4: u32, y: vec4<f32>) { logits[n4] = y; }

@compute @workgroup_size(COLS, KSPLIT)
fn ln_head(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  let row = state.rows - 1u;
  let n4 = group.x * COLS + lane.x;
  let tile_index = n4 / 64u;
  let blocks = (C + 3u) / 4u;
  // A tile holds `4 · blocks` rows of K, one to four of them in a vec4<u32>.
  let rows_per_vec4 = select(select(4u, 2u, DTYPE == 1u), 1u, DTYPE == 0u);
  let base = tile_index * (4u * blocks / rows_per_vec4) * 64u + n4 % 64u;
  let scale_base = tile_index * ((blocks + 15u) / 16u) * 64u + n4 % 64u;
  row_statistics(row, lane.y * COLS + lane.x);
  let y = columns(row, blocks, base, 64u, scale_base, 64u, lane.x, lane.y);
  if (lane.y == 0u) { output(row, n4, y); }
}

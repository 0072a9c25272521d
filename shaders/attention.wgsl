// o[t, h] = softmax over p <= P + t of (q[t, h] · k[p, h] · scale) times v[p, h]; split over p into SPLITS parts with their maximum and sum
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;               // [T, A]
@group(0) @binding(2) var<storage, read> kv: array<vec2<u32>>;              // [2, n_positions, A]
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;           // [T, SPLITS, A + 2·H]: o not yet divided | maximum, sum per head

override A4: u32;               // A / 4
override D: u32;                // padded head size
override STRIDE: u32;           // A + 2·H, rounded up to 4
override POSITIONS: u32;        // n_positions
override SPLITS: u32 = 1u;      // workgroups that share one (row, head), each every SPLITS-th tile of 64 positions
override SCALE: f32;            // 1 / sqrt(D), unless config.json says otherwise
override KV_F16: bool = false;

var<workgroup> scores: array<f32, 64>;   // of the tile's positions, then their exponentials
var<workgroup> o: array<f32, D>;         // the running sum; value d belongs to thread d % 64 alone

fn load_kv(i: u32) -> vec4<f32> {
  if (KV_F16) {
    let words = kv[i];
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
  }
  return bitcast<vec4<f32>>(vec4<u32>(kv[2u * i], kv[2u * i + 1u]));
}

@compute @workgroup_size(64)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let split = group.x;
  let head = group.y;
  let row = group.z;
  let length = state.past + row + 1u; // causal: position P + t sees itself and what came before
  var maximum = MASKED;
  var sum = 0.0;
  for (var d = lane; d < D; d += 64u) { o[d] = 0.0; }
  for (var first = 64u * split; first < length; first += 64u * SPLITS) {
    // One position a thread: its score.
    let p = first + lane;
    var score = MASKED;
    if (p < length) {
      var dot4 = vec4<f32>(0.0);
      for (var d4 = 0u; d4 < D / 4u; d4++) {
        dot4 += q[row * A4 + head * (D / 4u) + d4] * load_kv(p * A4 + head * (D / 4u) + d4);
      }
      score = (dot4.x + dot4.y + dot4.z + dot4.w) * SCALE;
    }
    workgroupBarrier(); // the last tile's scores have been read
    scores[lane] = score;
    workgroupBarrier();
    // Every thread alike: the new maximum and sum, so that no reduction is needed.
    let count = min(64u, length - first);
    var tile_maximum = maximum;
    for (var i = 0u; i < count; i++) { tile_maximum = max(tile_maximum, scores[i]); }
    let shrink = exp(maximum - tile_maximum);
    maximum = tile_maximum;
    sum *= shrink;
    for (var i = 0u; i < count; i++) { sum += exp(scores[i] - maximum); }
    // One value of the head a thread.
    for (var d = lane; d < D; d += 64u) {
      var value = o[d] * shrink;
      for (var i = 0u; i < count; i++) {
        value += exp(scores[i] - maximum) * load_v(first + i, head, d);
      }
      o[d] = value;
    }
  }
  let base = (row * SPLITS + split) * STRIDE;
  for (var d = lane; d < D; d += 64u) { parts[base + head * D + d] = o[d]; }
  if (lane == 0u) {
    parts[base + 4u * A4 + 2u * head] = maximum;
    parts[base + 4u * A4 + 2u * head + 1u] = sum;
  }
}

// v[p, head, d]
fn load_v(p: u32, head: u32, d: u32) -> f32 {
  let i = (POSITIONS + p) * A4 + head * (D / 4u) + d / 4u;
  if (KV_F16) {
    return unpack2x16float(kv[i][(d % 4u) / 2u])[d % 2u];
  }
  return bitcast<f32>(kv[2u * i + (d % 4u) / 2u][d % 2u]);
}

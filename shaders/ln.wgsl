// y[t] = (x[t] - mean) / sqrt(variance + EPSILON) * weight + bias      (prefill: once a row; decode does it inside the next kernel)
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;             // [T, C]
@group(0) @binding(1) var<storage, read> params: array<vec4<f32>>;        // this layer's vectors
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;       // [T, C]

@compute @workgroup_size(64)
fn ln(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  let blocks = (C + 3u) / 4u;
  row_statistics(row, lane);
  for (var k4 = lane; k4 < blocks; k4 += 64u) {
    y[row * blocks + k4] = normed(row, k4);
  }
}

// x[i] = a · x[i] + b, 4 · ROUNDS times on 16 numbers that do not wait for each other: nothing but arithmetic sets the pace
@group(0) @binding(0) var<storage, read_write> x: array<vec4<f32>>;     // one vec4 for each thread

override ROUNDS: u32;           // 4 · 16 multiply-adds each

const A: f32 = 0.999;
const B: f32 = 0.5;

@compute @workgroup_size(64)
fn fma_ceiling(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = 64u * (group.y * groups.x + group.x) + lane;
  var v0 = x[i] + f32(i);
  var v1 = v0 + 1.0;
  var v2 = v0 + 2.0;
  var v3 = v0 + 3.0;
  // Written out four times, so that the loop itself costs little. A product and a sum, as in the kernels of the model.
  for (var round = 0u; round < ROUNDS; round++) {
    v0 = A * v0 + B;
    v1 = A * v1 + B;
    v2 = A * v2 + B;
    v3 = A * v3 + B;
    v0 = A * v0 + B;
    v1 = A * v1 + B;
    v2 = A * v2 + B;
    v3 = A * v3 + B;
    v0 = A * v0 + B;
    v1 = A * v1 + B;
    v2 = A * v2 + B;
    v3 = A * v3 + B;
    v0 = A * v0 + B;
    v1 = A * v1 + B;
    v2 = A * v2 + B;
    v3 = A * v3 + B;
  }
  x[i] = v0 + v1 + v2 + v3;
}

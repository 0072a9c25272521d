// sums[g, i] = Σ over k of data[g, k, i]: reads every value once and adds it, so that nothing but memory sets the pace
@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;                // [groups, STEPS, 64]
@group(0) @binding(1) var<storage, read_write> sums: array<atomic<u32>>;        // [groups, 64]

override STEPS: u32;            // a multiple of 4

// The grid's second axis reads everything again, without a wait between the laps.
@compute @workgroup_size(64)
fn read_ceiling(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first = group.x * STEPS * 64u + lane;
  var a = vec4<u32>(0u);
  var b = vec4<u32>(0u);
  var c = vec4<u32>(0u);
  var d = vec4<u32>(0u);
  // Four loads that do not wait for each other; neighbours read neighbouring 16 bytes.
  for (var k = 0u; k < STEPS; k += 4u) {
    let i = first + 64u * k;
    a += data[i];
    b += data[i + 64u];
    c += data[i + 128u];
    d += data[i + 192u];
  }
  let sum = a + b + c + d;
  // The laps write at the same time, and all the same.
  atomicMax(&sums[64u * group.x + lane], sum.x ^ sum.y ^ sum.z ^ sum.w);
}

// Shared by the kernels that begin with a layer norm: mean and 1 / sqrt(variance + EPSILON) of one row of x[T, C].
//
// The kernel that this is appended to defines `fn raw(row: u32, k4: u32) -> vec4<f32>`, four values of the row, zero from C on.

override C: u32;            // width of the residual stream
override EPSILON: f32;      // layer_norm_epsilon

var<private> mean: f32;
var<private> inverse_std: f32;

// Each thread reads the whole row: no barrier, and the row stays in the cache for the dot product that follows.
fn row_statistics(row: u32) {
  let blocks = (C + 3u) / 4u;
  var sum = vec4<f32>(0.0);
  for (var k4 = 0u; k4 < blocks; k4++) {
    sum += raw(row, k4);
  }
  mean = (sum.x + sum.y + sum.z + sum.w) / f32(C);
  var squares = vec4<f32>(0.0);
  for (var k4 = 0u; k4 < blocks; k4++) {
    let inside = vec4<u32>(4u * k4, 4u * k4 + 1u, 4u * k4 + 2u, 4u * k4 + 3u) < vec4<u32>(C);
    let d = select(vec4<f32>(0.0), raw(row, k4) - mean, inside);
    squares += d * d;
  }
  inverse_std = inverseSqrt((squares.x + squares.y + squares.z + squares.w) / f32(C) + EPSILON);
}

// Shared by the kernels that begin with a layer norm: (x - mean) / sqrt(variance + EPSILON) * weight + bias, row by row.
//
// The kernel that this is appended to declares x[T, C], zero from C to the next multiple of 4, and params.

override C: u32;            // width of the residual stream
override EPSILON: f32;      // layer_norm_epsilon
override WEIGHT: u32;       // where the norm's weight and bias begin in params, in vec4
override BIAS: u32;

var<private> mean: f32;
var<private> inverse_std: f32;

// x[row, 4 * k4 ..]
fn raw(row: u32, k4: u32) -> vec4<f32> {
  return x[row * ((C + 3u) / 4u) + k4];
}

// The same, normed; after row_statistics(row).
fn normed(row: u32, k4: u32) -> vec4<f32> {
  return (raw(row, k4) - mean) * inverse_std * params[WEIGHT + k4] + params[BIAS + k4];
}

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

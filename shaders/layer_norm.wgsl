// Shared by the kernels that begin with a layer norm: (x - mean) / sqrt(variance + EPSILON) * weight + bias, row by row.
//
// The kernel that this is appended to declares x[T, C], zero from C to the next multiple of 4, and params.

override C: u32;            // width of the residual stream
override EPSILON: f32;      // layer_norm_epsilon
override WEIGHT: u32;       // where the norm's weight and bias begin in params, in vec4
override BIAS: u32;
override SHARE: u32 = 1u;   // threads that sum one row together, each every SHARE-th vec4; 1: each sums it alone, without a barrier

var<private> mean: f32;
var<private> inverse_std: f32;
var<workgroup> row_sums: array<f32, SHARE>;

// x[row, 4 * k4 ..]
fn raw(row: u32, k4: u32) -> vec4<f32> {
  return x[row * ((C + 3u) / 4u) + k4];
}

// The same, normed; after row_statistics(row).
fn normed(row: u32, k4: u32) -> vec4<f32> {
  return (raw(row, k4) - mean) * inverse_std * params[WEIGHT + k4] + params[BIAS + k4];
}

// The mean and the inverse standard deviation of a row, in every thread of the workgroup. Two passes, since the residual
// stream has outliers that a sum of squares would drown in.
fn row_statistics(row: u32, thread: u32) {
  let blocks = (C + 3u) / 4u;
  var sum = vec4<f32>(0.0);
  for (var k4 = thread % SHARE; k4 < blocks; k4 += SHARE) {
    sum += raw(row, k4);
  }
  mean = row_sum(sum, thread) / f32(C);
  var squares = vec4<f32>(0.0);
  for (var k4 = thread % SHARE; k4 < blocks; k4 += SHARE) {
    let inside = vec4<u32>(4u * k4, 4u * k4 + 1u, 4u * k4 + 2u, 4u * k4 + 3u) < vec4<u32>(C);
    let d = select(vec4<f32>(0.0), raw(row, k4) - mean, inside);
    squares += d * d;
  }
  inverse_std = inverseSqrt(row_sum(squares, thread) / f32(C) + EPSILON);
}

// The sum over the threads that share the row.
fn row_sum(part: vec4<f32>, thread: u32) -> f32 {
  var sum = part.x + part.y + part.z + part.w;
  if (SHARE > 1u) {
    workgroupBarrier(); // the last sums have been read
    row_sums[thread] = sum;
    workgroupBarrier();
    sum = 0.0;
    for (var i = 0u; i < SHARE; i++) { sum += row_sums[i]; }
  }
  return sum;
}

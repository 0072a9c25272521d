// Shared by every kernel with a weight matrix: y[T, N] = input[T, K] · w[K, N], on one vec4 of columns a thread.
//
// The kernel that this is appended to defines
//   fn weight(i: u32) -> vec4<u32>               the i-th vec4 of its matrix
//   fn scale(i: u32) -> vec4<f32>                the i-th vec4 of its int8 scales (read for int8 only)
//   fn input(row: u32, k4: u32) -> vec4<f32>     four neighbours along K, from 4 * k4
//   fn output(row: u32, n4: u32, y: vec4<f32>)   what becomes of four neighbours along N
// and calls `linear`.
//
// A vec4<u32> holds four columns of 1 (f32), 2 (f16) or 4 (int8) rows of K; see src/checkpoint/layout.rs.

override DTYPE: u32 = 0u;   // 0: f32, 1: f16 pairs, 2: int8 with one scale per 64 values along K
override ONE_ROW: bool = true; // decode: one row, whose K may be split; prefill: tiles of eight rows that share each weight
override COLS: u32 = 64u;   // threads over columns, four columns each: neighbours read neighbouring 16 bytes
override KSPLIT: u32 = 1u;  // threads that share one dot product, each a slice of K; 1 needs no barrier

// y[T, N] for this workgroup's columns: N is n4s vec4, K is k4s vec4.
fn linear(group: vec3<u32>, lane: vec3<u32>, k4s: u32, n4s: u32) {
  let n4 = group.x * COLS + lane.x;
  let column = min(n4, n4s - 1u); // threads past the end do the last column's work again, so that all meet at the barrier
  if (ONE_ROW) {
    let y = columns(0u, k4s, column, n4s, column, n4s, lane.x, lane.y);
    if (n4 < n4s && lane.y == 0u) { output(0u, n4, y); }
  } else if (n4 < n4s) {
    let row = 8u * group.y;
    let y = tile(row, state.rows - 1u, k4s, column, n4s, column, n4s);
    for (var r = 0u; r < 8u && row + r < state.rows; r++) { output(row + r, n4, y.r[r]); }
  }
}

// Four rows of K times four columns of N, one column of the matrix for each row of K, so that `block * input` is their product.
// `base` and `stride` are in vec4<u32>: the first vec4 of the columns, and the step from one vec4 to the next along K.
fn block(base: u32, stride: u32, scale_base: u32, scale_stride: u32, k4: u32) -> mat4x4<f32> {
  if (DTYPE == 0u) {
    let i = base + 4u * k4 * stride;
    return mat4x4<f32>(
      bitcast<vec4<f32>>(weight(i)),
      bitcast<vec4<f32>>(weight(i + stride)),
      bitcast<vec4<f32>>(weight(i + 2u * stride)),
      bitcast<vec4<f32>>(weight(i + 3u * stride)));
  }
  if (DTYPE == 1u) {
    let i = base + 2u * k4 * stride;
    let a = weight(i);
    let b = weight(i + stride);
    return mat4x4<f32>(
      vec4<f32>(unpack2x16float(a.x), unpack2x16float(a.y)),
      vec4<f32>(unpack2x16float(a.z), unpack2x16float(a.w)),
      vec4<f32>(unpack2x16float(b.x), unpack2x16float(b.y)),
      vec4<f32>(unpack2x16float(b.z), unpack2x16float(b.w)));
  }
  let words = weight(base + k4 * stride);
  let s = scale(scale_base + (k4 / 16u) * scale_stride);
  return mat4x4<f32>(s * int8x4(words.x), s * int8x4(words.y), s * int8x4(words.z), s * int8x4(words.w));
}

// The four signed bytes of a word, low byte first.
fn int8x4(word: u32) -> vec4<f32> {
  let w = bitcast<i32>(word);
  return vec4<f32>(vec4<i32>(w << 24u, w << 16u, w << 8u, w) >> vec4<u32>(24u));
}

// Partial sums of the threads that share a dot product.
var<workgroup> partial_sums: array<vec4<f32>, COLS * KSPLIT>;

// One row: this thread's slice of K, then the sum over the KSPLIT slices. Valid in lanes with slice == 0.
fn columns(row: u32, k4s: u32, base: u32, stride: u32, scale_base: u32, scale_stride: u32, lane: u32, slice: u32) -> vec4<f32> {
  let per_slice = (k4s + KSPLIT - 1u) / KSPLIT;
  let end = min(k4s, (slice + 1u) * per_slice);
  var sum = vec4<f32>(0.0);
  for (var k4 = slice * per_slice; k4 < end; k4++) {
    sum += block(base, stride, scale_base, scale_stride, k4) * input(row, k4);
  }
  if (KSPLIT > 1u) {
    partial_sums[slice * COLS + lane] = sum;
    workgroupBarrier();
    for (var s = 1u; s < KSPLIT; s++) {
      sum += partial_sums[((slice + s) % KSPLIT) * COLS + lane];
    }
  }
  return sum;
}

// Eight rows of `tile`.
struct Rows8 { r: array<vec4<f32>, 8> }

// Eight rows from `row`, the rows past `last` computed as `last` again and not to be stored: each weight is loaded once for all eight.
fn tile(row: u32, last: u32, k4s: u32, base: u32, stride: u32, scale_base: u32, scale_stride: u32) -> Rows8 {
  let r1 = min(row + 1u, last);
  let r2 = min(row + 2u, last);
  let r3 = min(row + 3u, last);
  let r4 = min(row + 4u, last);
  let r5 = min(row + 5u, last);
  let r6 = min(row + 6u, last);
  let r7 = min(row + 7u, last);
  var y0 = vec4<f32>(0.0);
  var y1 = vec4<f32>(0.0);
  var y2 = vec4<f32>(0.0);
  var y3 = vec4<f32>(0.0);
  var y4 = vec4<f32>(0.0);
  var y5 = vec4<f32>(0.0);
  var y6 = vec4<f32>(0.0);
  var y7 = vec4<f32>(0.0);
  for (var k4 = 0u; k4 < k4s; k4++) {
    let w = block(base, stride, scale_base, scale_stride, k4);
    y0 += w * input(row, k4);
    y1 += w * input(r1, k4);
    y2 += w * input(r2, k4);
    y3 += w * input(r3, k4);
    y4 += w * input(r4, k4);
    y5 += w * input(r5, k4);
    y6 += w * input(r6, k4);
    y7 += w * input(r7, k4);
  }
  return Rows8(array<vec4<f32>, 8>(y0, y1, y2, y3, y4, y5, y6, y7));
}

// x[t] += h[t] · mlp.c_proj + bias
@group(0) @binding(0) var<uniform> state: State;
@group(0) @binding(1) var<storage, read> h: array<vec4<f32>>;             // [T, F]
@group(0) @binding(2) var<storage, read> params: array<vec4<f32>>;        // this layer's vectors
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;             // [F, C]
@group(0) @binding(4) var<storage, read_write> x: array<vec4<f32>>;       // [T, C]: the residual stream

override K4: u32;               // ceil(F / 4)
override N4: u32;               // ceil(C / 4)
override MATRIX_BIAS: u32;      // offsets in params, in vec4
override SCALE: u32;

fn weight(i: u32) -> vec4<u32> { return w[i]; }
fn scale(i: u32) -> vec4<f32> { return params[SCALE + i]; }
fn input(row: u32, k4: u32) -> vec4<f32> { return h[row * K4 + k4]; }

fn output(row: u32, n4: u32, y: vec4<f32>) {
  x[row * N4 + n4] += y + params[MATRIX_BIAS + n4];
}

@compute @workgroup_size(COLS, KSPLIT)
fn proj_residual(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  linear(group, lane, K4, N4);
}

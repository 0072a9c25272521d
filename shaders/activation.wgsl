// Shared by the kernels with an activation: the function that config.json names.

override ACTIVATION: u32 = 2u; // the order of `Activation` in src/config.rs

// tanh with its argument clamped: beyond 15 it is 1 in f32, and some drivers overflow to NaN.
fn safe_tanh(v: f32) -> f32 {
  return tanh(clamp(v, -15.0, 15.0));
}

// Abramowitz and Stegun 7.1.26: at most 1.5e-7 from erf.
fn erf(v: f32) -> f32 {
  let t = 1.0 / (1.0 + 0.3275911 * abs(v));
  let p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return sign(v) * (1.0 - p * exp(-min(v * v, 80.0)));
}

// 1 / (1 + e^-v), without an overflow of the exponential.
fn sigmoid(v: f32) -> f32 {
  return 1.0 / (1.0 + exp(-clamp(v, -80.0, 80.0)));
}

fn activation(v: f32) -> f32 {
  switch (ACTIVATION) {
    case 0u: { return 0.5 * v * (1.0 + erf(v * 0.7071067811865476)); }                                    // gelu
    case 1u: { return clamp(0.5 * v * (1.0 + erf(v * 0.7071067811865476)), -10.0, 10.0); }                // gelu_10
    case 2u: { return 0.5 * v * (1.0 + safe_tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))); }     // gelu_new
    case 3u: { return v * sigmoid(1.702 * v); }                                                           // quick_gelu
    case 4u: { return max(v, 0.0); }                                                                      // relu
    case 5u: { return v * sigmoid(v); }                                                                   // silu
    default: { return safe_tanh(v); }                                                                     // tanh
  }
}

//! The reference with weights, keys and values rounded as a GPU with less memory stores them: what fp16 and q8 are
//! compared with.
#![cfg(not(target_arch = "wasm32"))]

mod fixtures;

use fixtures::{FIXTURES, check_close, fixture};
use gpt2_webgpu::checkpoint::{Dtype, Tensor};
use gpt2_webgpu::reference::{Cache, forward};
use half::f16;

/// Matrices are rounded, everything else is kept; and what is rounded is kept when it is rounded again.
#[test]
fn rounded_weights_are_what_a_gpu_holds() {
    for fixture in FIXTURES {
        let (config, weights) = fixture.load();
        assert_eq!(
            weights.rounded(&config, Dtype::Fp32).unwrap(),
            weights,
            "{}",
            fixture.name
        );
        for dtype in [Dtype::Fp16, Dtype::Q8] {
            let rounded = weights.rounded(&config, dtype).unwrap();
            assert_eq!(
                rounded.rounded(&config, dtype).unwrap(),
                rounded,
                "{} {dtype}",
                fixture.name
            );
            for tensor in Tensor::required(&config) {
                let (before, after) = (
                    weights.values(tensor).unwrap(),
                    rounded.values(tensor).unwrap(),
                );
                let what = format!("{} {dtype} {}", fixture.name, tensor.name());
                let stored = matches!(tensor, Tensor::Wte | Tensor::LmHead | Tensor::Matrix { .. });
                if !stored {
                    assert_eq!(after, before, "{what}");
                } else if dtype == Dtype::Fp16 {
                    let halves: Vec<f32> =
                        before.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
                    assert_eq!(after, halves, "{what}");
                } else {
                    let largest = before.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
                    check_close(&what, after, before, largest / 253.9, 0.0);
                }
            }
        }
    }
}

/// 64 rows of the in axis share a scale, counted with each head of 15 padded to 16: rows 0..60 of attn.c_proj.
#[test]
fn q8_scales_are_shared_by_64_rows() {
    let (config, mut weights) = fixture("c60_n_inner70").load();
    let fill = |weights: &mut Vec<f32>, rows: usize| {
        weights.fill(1e-3);
        weights[..rows * 60].fill(1.0);
    };
    fill(&mut weights.h[0].attn.c_proj.weight, 59); // all 60 rows in one group
    fill(&mut weights.h[0].mlp.c_proj.weight, 64); // rows 64..70 in the next
    let rounded = weights.rounded(&config, Dtype::Q8).unwrap();
    assert!(
        rounded.h[0].attn.c_proj.weight[59 * 60..]
            .iter()
            .all(|x| *x == 0.0)
    );
    check_close(
        "the second group",
        &rounded.h[0].mlp.c_proj.weight[64 * 60..],
        &[1e-3; 360],
        0.0,
        1e-6,
    );
}

#[test]
fn a_half_cache_holds_f16_values() {
    for fixture in FIXTURES
        .iter()
        .filter(|fixture| fixture.name != "last_position")
    {
        let (config, weights) = fixture.load();
        let expected = fixture.expected();
        let ids = [expected.input_ids, expected.new_tokens].concat();
        let (mut prefilled, mut decoded) = (Cache::half(&config), Cache::half(&config));
        let whole = forward(&config, &weights, &ids, &mut prefilled).unwrap();
        let mut last = Vec::new();
        for id in &ids {
            last = forward(&config, &weights, &[*id], &mut decoded).unwrap();
        }
        check_close(
            &format!("{}: decode against prefill", fixture.name),
            &last,
            &whole,
            5e-3,
            1e-3,
        );
        for layer in &prefilled.layers {
            let stored = layer.keys.iter().chain(&layer.values);
            assert!(stored.clone().all(|x| f16::from_f32(*x).to_f32() == *x));
            assert_eq!(stored.count(), 2 * ids.len() * config.n_embd);
        }
        let full = forward(&config, &weights, &ids, &mut Cache::new(&config)).unwrap();
        assert_ne!(full, whole, "{}", fixture.name);
    }
}

//! The plain-Rust reference against Hugging Face's transformers, on every fixture.
#![cfg(not(target_arch = "wasm32"))]

mod fixtures;

use bytemuck::Zeroable;
use fixtures::{FIXTURES, check_close, check_logits, fixture};
use gpt2_webgpu::config::{Activation, Config};
use gpt2_webgpu::reference::{Cache, Weights, activation, forward};
use gpt2_webgpu::sampling::{SamplingUniform, pick};

/// The id of the highest score after the repetition penalty; of equal ones the lowest.
fn greedy(logits: &[f32], seen: &[u32], repetition_penalty: f32) -> u32 {
    let sampling = SamplingUniform {
        top_p: 1.0,
        temperature: 1.0,
        repetition_penalty,
        n_vocab: logits.len() as u32,
        ..SamplingUniform::zeroed()
    };
    pick(logits, seen, &sampling).id
}

fn argmax(logits: &[f32]) -> u32 {
    greedy(logits, &[], 1.0)
}

/// Prefill, then one id at a time: the new ids, and the logits of each step.
fn generate(
    config: &Config,
    weights: &Weights,
    input_ids: &[u32],
    new: usize,
    penalty: f32,
) -> (Vec<u32>, Vec<Vec<f32>>) {
    let mut cache = Cache::new(config);
    let mut ids = input_ids.to_vec();
    let mut steps = vec![forward(config, weights, input_ids, &mut cache).unwrap()];
    loop {
        let logits = steps.last().unwrap();
        let id = greedy(logits, &ids, penalty);
        ids.push(id);
        if steps.len() == new || config.eos_token_id.contains(&id) {
            return (ids.split_off(input_ids.len()), steps);
        }
        steps.push(forward(config, weights, &[id], &mut cache).unwrap());
    }
}

#[test]
fn logits_and_greedy_ids_are_hugging_faces() {
    for fixture in FIXTURES {
        let (config, weights) = fixture.load();
        let expected = fixture.expected();
        let (new_tokens, steps) = generate(
            &config,
            &weights,
            &expected.input_ids,
            expected.max_new_tokens,
            expected.repetition_penalty,
        );
        check_logits(fixture.name, &steps[0], &expected.logits);
        assert_eq!(new_tokens, expected.new_tokens, "{}", fixture.name);
        for (i, (logits, top5)) in steps.iter().zip(&expected.top5).enumerate() {
            let (ids, top): (Vec<u32>, Vec<f32>) = top5.iter().copied().unzip();
            let ours: Vec<f32> = ids.iter().map(|id| logits[*id as usize]).collect();
            check_logits(
                &format!("{} step {i}, ids {ids:?}", fixture.name),
                &ours,
                &top,
            );
        }
        let largest = steps[0]
            .iter()
            .zip(&expected.logits)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        println!(
            "{}: largest difference {largest:e}, margin {}",
            fixture.name, expected.min_margin
        );
        let reason = if config
            .eos_token_id
            .contains(&new_tokens[new_tokens.len() - 1])
        {
            "eos"
        } else {
            "length"
        };
        assert_eq!(reason, expected.finish_reason, "{}", fixture.name);
    }
}

#[test]
fn cached_equals_uncached_wherever_the_cut_is() {
    for fixture in FIXTURES
        .iter()
        .filter(|fixture| fixture.name != "last_position")
    {
        let (config, weights) = fixture.load();
        let expected = fixture.expected();
        let ids = [expected.input_ids, expected.new_tokens].concat();
        let whole = forward(&config, &weights, &ids, &mut Cache::new(&config)).unwrap();
        for k in 1..ids.len() {
            let mut cache = Cache::new(&config);
            let mut last = forward(&config, &weights, &ids[..k], &mut cache).unwrap();
            for id in &ids[k..] {
                last = forward(&config, &weights, &[*id], &mut cache).unwrap();
            }
            assert_eq!(cache.len, ids.len());
            let what = format!("{}: prefill {k} + decode x {}", fixture.name, ids.len() - k);
            check_close(&what, &last, &whole, 1e-4, 0.0);
            assert_eq!(argmax(&last), argmax(&whole), "{what}");
        }
    }
}

#[test]
fn long_prompts_may_be_cut_into_chunks() {
    let (config, weights) = fixture("last_position").load();
    let ids = fixture("last_position").expected().input_ids;
    let whole = forward(&config, &weights, &ids, &mut Cache::new(&config)).unwrap();
    for chunk in [1, 63, 64, 65, 999] {
        let mut cache = Cache::new(&config);
        let mut last = Vec::new();
        for ids in ids.chunks(chunk) {
            last = forward(&config, &weights, ids, &mut cache).unwrap();
        }
        check_close(&format!("chunks of {chunk}"), &last, &whole, 1e-4, 0.0);
        assert_eq!(argmax(&last), argmax(&whole), "chunks of {chunk}");
    }
}

type Change = fn(&mut Config);

/// A fixture proves a setting only if another value of it gives another answer.
#[test]
fn every_setting_of_a_fixture_matters() {
    use Activation::{GeluErf, GeluTanh};
    let changes: [(&str, Change); 11] = [
        ("gelu", |config| config.activation_function = GeluTanh),
        ("gelu_new", |config| config.activation_function = GeluErf),
        ("relu", |config| config.activation_function = GeluTanh),
        ("silu", |config| config.activation_function = GeluTanh),
        ("tanh", |config| config.activation_function = GeluTanh),
        ("quick_gelu", |config| config.activation_function = GeluTanh),
        ("epsilon", |config| config.layer_norm_epsilon = 1e-5),
        ("inverse_layer_idx", |config| {
            config.scale_attn_by_inverse_layer_idx = false
        }),
        ("reorder_and_upcast", |config| {
            config.scale_attn_by_inverse_layer_idx = false
        }),
        ("unscaled", |config| config.scale_attn_weights = true),
        ("small", |config| config.scale_attn_weights = false),
    ];
    for (name, change) in changes {
        let (mut config, weights) = fixture(name).load();
        let expected = fixture(name).expected();
        change(&mut config);
        let logits = forward(
            &config,
            &weights,
            &expected.input_ids,
            &mut Cache::new(&config),
        )
        .unwrap();
        let largest = logits
            .iter()
            .zip(&expected.logits)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        println!("{name}: the other value changes the logits by {largest}");
        assert!(
            largest > 5e-3,
            "{name}: the other value changes the logits by {largest} only"
        );
    }
    let (config, mut weights) = fixture("untied").load();
    weights.lm_head = None;
    let expected = fixture("untied").expected();
    let logits = forward(
        &config,
        &weights,
        &expected.input_ids,
        &mut Cache::new(&config),
    )
    .unwrap();
    assert_ne!(argmax(&logits), expected.new_tokens[0]);
    let (config, weights) = fixture("repetition_penalty").load();
    let expected = fixture("repetition_penalty").expected();
    let (plain, _) = generate(
        &config,
        &weights,
        &expected.input_ids,
        expected.max_new_tokens,
        1.0,
    );
    assert_ne!(plain, expected.new_tokens);
}

#[test]
fn ids_that_do_not_fit_are_refused_and_change_nothing() {
    let (config, weights) = fixture("vocab5").load();
    let mut cache = Cache::new(&config);
    forward(&config, &weights, &[0; 31], &mut cache).unwrap();
    let before = cache.clone();
    for (ids, code, words) in [
        (&[][..], "bad-option", "empty"),
        (&[1, 5][..], "bad-option", "the id 5"),
        (&[1, 2][..], "prompt-too-long", "32 positions"),
    ] {
        let error = forward(&config, &weights, ids, &mut cache).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(cache, before);
    forward(&config, &weights, &[4], &mut cache).unwrap();
    assert_eq!(cache.len, config.n_positions);
}

#[test]
fn checkpoints_that_do_not_fit_are_refused_by_tensor() {
    let small = fixture("small");
    let (config, _) = small.load();
    for (change, words) in [
        (
            (|config| config.n_layer = 3) as Change,
            "h.2.attn.c_attn.weight is missing",
        ),
        (
            |config| config.n_inner = 90,
            "h.0.mlp.c_fc.weight has shape [45, 180]; config.json says [45, 90]",
        ),
        (
            |config| config.vocab_size = 256,
            "wte.weight has shape [257, 45]",
        ),
        (
            |config| config.tie_word_embeddings = false,
            "lm_head.weight is missing",
        ),
    ] {
        let mut config = config.clone();
        change(&mut config);
        let error = Weights::from_safetensors(&config, &small.bytes()).unwrap_err();
        assert_eq!(error.code(), "bad-checkpoint");
        assert!(error.to_string().contains(words), "{error}");
    }
    let cut = small.files[0].1;
    for bytes in [&cut[..0], &cut[..7], &cut[..100], &cut[..cut.len() - 1]] {
        assert_eq!(
            Weights::from_safetensors(&config, &[bytes])
                .unwrap_err()
                .code(),
            "bad-checkpoint"
        );
    }
}

/// The values are transformers' `ACT2FN[name]` in f64, rounded to f32.
#[test]
fn activations_are_hugging_faces() {
    const X: [f32; 8] = [-12.0, -3.0, -1.0, -0.1, 0.0, 0.5, 2.5, 12.0];
    #[rustfmt::skip]
    let expected = [
        (Activation::GeluErf, [0.0, -0.004049694, -0.15865526, -0.04601722, 0.0, 0.34573123, 2.4844759, 12.0]),
        (Activation::GeluClipped, [0.0, -0.004049694, -0.15865526, -0.04601722, 0.0, 0.34573123, 2.4844759, 10.0]),
        (Activation::GeluTanh, [0.0, -0.003637392, -0.15880801, -0.04601725, 0.0, 0.345714, 2.4849157, 12.0]),
        (Activation::QuickGelu, [-1.6186418e-08, -0.01807131, -0.15420423, -0.04575524, 0.0, 0.35038844, 2.4650137, 12.0]),
        (Activation::Relu, [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 2.5, 12.0]),
        (Activation::Silu, [-7.3730094e-05, -0.14227761, -0.26894143, -0.04750208, 0.0, 0.31122968, 2.3103545, 11.999927]),
        (Activation::Tanh, [-1.0, -0.9950548, -0.7615942, -0.099667996, 0.0, 0.46211717, 0.9866143, 1.0]),
    ];
    for (kind, values) in expected {
        let got = X.map(|x| activation(kind, x));
        check_close(&format!("{kind:?}"), &got, &values, 3e-7, 1e-7);
    }
}

//! What must hold of `past_key_values`, whatever was generated before.

use gpt2_webgpu::checkpoint::Dtype;
use gpt2_webgpu::kv_cache::KeyOrValue;
use gpt2_webgpu::reference::{Cache, attention_weights, block, embed, layer_norm, linear};
use gpt2_webgpu::sampling::Options;
use gpt2_webgpu::trace::EventKind;
use serde_json::json;

use super::fixtures::check_close;
use super::made::{Made, argmax, ids};
use super::run::{Load, Ran, generate, gpu};

/// On both sides of a tile of 64 positions, in a vocabulary of five: the argmax is over the last row alone.
pub async fn prefill_and_decode_agree_at_every_length() {
    let gpu = gpu().await;
    let made = Made::new(json!({"n_positions": 80, "vocab_size": 5}));
    let model = made.load(&gpu, Load::default()).await;
    for n in [1, 2, 3, 63, 64, 65] {
        let prompt = ids(n as u32, n, 5);
        let ran = generate(&model, &prompt, Options::greedy(6)).await;
        assert_eq!(ran.new_tokens.len(), 6, "{:?}", ran.error);
        let decoded = model.logits().await.unwrap();
        assert_eq!(model.past_key_values().len(), n + 5);

        let all = [&prompt[..], &ran.new_tokens[..5]].concat();
        let whole = generate(&model, &all, Options::greedy(1)).await;
        let prefilled = model.logits().await.unwrap();
        check_close(&format!("cut at {n}"), &decoded, &prefilled, 1e-4, 0.0);
        assert_eq!(ran.new_tokens[5], whole.new_tokens[0], "cut at {n}");

        let mut reference = made.reference(Dtype::Fp32);
        let mut logits = reference.feed(&prompt);
        for id in &ran.new_tokens {
            assert_eq!(*id, argmax(&logits), "{n}");
            logits = reference.feed(&[*id]);
        }
    }
}

/// Twelve heads times 592 rows of 64 threads are more workgroups than one axis of a grid may have.
pub async fn a_long_prompt_on_twelve_heads_is_the_twins() {
    let gpu = gpu().await;
    let sizes = json!({"n_layer": 1, "n_head": 12, "n_embd": 24, "n_inner": 8, "n_positions": 1024, "vocab_size": 40});
    let made = Made::new(sizes);
    let model = made.load(&gpu, Load::default()).await;
    for n in [591, 592, 1024] {
        let prompt = ids(5, n, 40);
        let ran = generate(&model, &prompt, Options::greedy(1)).await;
        assert_eq!(ran.error, None);
        let want = made.reference(Dtype::Fp32).feed(&prompt);
        check_close(
            &format!("{n} rows"),
            &model.logits().await.unwrap(),
            &want,
            2e-3,
            1e-4,
        );
    }
}

pub async fn a_second_prompt_is_not_influenced_by_the_first() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let (a, b) = (ids(1, 30, 257), ids(2, 7, 257));
    let alone = {
        let model = made.load(&gpu, Load::default()).await;
        generate(&model, &b, Options::greedy(20)).await
    };
    let model = made.load(&gpu, Load::default()).await;
    generate(&model, &a, Options::greedy(20)).await;
    let uploaded = gpu.counters().bytes_uploaded;
    let second = generate(&model, &b, Options::greedy(20)).await;
    assert_eq!(second.new_tokens, alone.new_tokens);
    // Ids, options and the state; no weights.
    assert!(gpu.counters().bytes_uploaded - uploaded < 1000);
}

fn reused(ran: &Ran) -> usize {
    let started = ran.events.iter().find_map(|event| match event.kind {
        EventKind::PrefillStarted { reused, .. } => Some(reused),
        _ => None,
    });
    started.expect("a run that was prefilled")
}

pub async fn reuse_starts_behind_what_prompts_share() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let reuse = Options {
        reuse: true,
        ..Options::greedy(5)
    };
    let prompt = ids(1, 12, 257);
    let first = generate(&model, &prompt, reuse.clone()).await;
    assert_eq!(reused(&first), 0);
    // Twelve of the prompt and four that were fed; the fifth was only picked.
    let said = [&prompt[..], &first.new_tokens].concat();
    let mut longer = said.clone();
    longer.extend(ids(3, 9, 257));
    let mut fork = said[..14].to_vec();
    fork.push((said[14] + 1) % 257);
    fork.push(7);
    let different = ids(4, 6, 257);
    // Prompt, and the positions that the run before it left behind for it.
    let cases = [
        (&prompt, 11),
        (&longer, 16),
        (&fork, 14),
        (&said[..3].to_vec(), 2),
        (&different, 0),
    ];
    for (index, (prompt, shared)) in cases.into_iter().enumerate() {
        if index > 0 {
            generate(&model, &said[..12], Options::greedy(5)).await;
        }
        let rows = gpu.counters().rows;
        let one = Options {
            max_new_tokens: 1,
            ..reuse.clone()
        };
        let ran = generate(&model, prompt, one).await;
        assert_eq!(reused(&ran), shared, "case {index}");
        assert_eq!(
            gpu.counters().rows - rows,
            (prompt.len() - shared) as u64,
            "case {index}"
        );
        assert_eq!(
            ran.steps[0].kv_written,
            [shared, prompt.len()],
            "case {index}"
        );
        let again = model.logits().await.unwrap();
        generate(&model, prompt, Options::greedy(1)).await;
        let fresh = model.logits().await.unwrap();
        check_close(&format!("case {index}"), &again, &fresh, 1e-4, 0.0);
    }

    // A run without a cache uses it as scratch: nothing is left to reuse, and such a run reuses nothing itself.
    generate(&model, &prompt, Options::greedy(2)).await;
    let uncached = Options {
        use_cache: false,
        ..reuse.clone()
    };
    assert_eq!(reused(&generate(&model, &prompt, uncached).await), 0);
    assert_eq!(reused(&generate(&model, &prompt, reuse).await), 0);
}

pub async fn keys_values_and_attention_are_the_references() {
    let gpu = gpu().await;
    let made = Made::new(json!({"scale_attn_by_inverse_layer_idx": true}));
    let (config, c, d) = (&made.config, made.config.n_embd, made.config.head_size());
    let prompt = ids(8, 20, 257);
    for dtype in Dtype::ALL {
        let load = Load {
            dtype: Some(dtype),
            ..Load::default()
        };
        let model = made.load(&gpu, load).await;
        let error = model.read_kv(0, KeyOrValue::Key, 0).await.unwrap_err();
        assert_eq!(error.code(), "bad-option", "nothing is cached");
        assert_eq!(
            model.attention(0, 0).await.unwrap_err().code(),
            "bad-option"
        );

        // Reading while steps are in flight is part of the deal, but here all is at rest.
        let ran = generate(&model, &prompt, Options::greedy(9)).await;
        let fed = [&prompt[..], &ran.new_tokens[..8]].concat();
        assert_eq!(model.past_key_values().len(), fed.len());
        let reference = made.reference(dtype);
        let mut cache: Cache = reference.cache;
        let mut x = embed(&reference.weights, c, &fed, 0);
        for (layer, weights) in reference.weights.h.iter().enumerate() {
            let normed = layer_norm(&x, &weights.ln_1, config.layer_norm_epsilon);
            let qkv = linear(&normed, &weights.attn.c_attn);
            let q = &qkv[(fed.len() - 1) * 3 * c..][..c];
            block(config, layer, weights, &mut x, &mut cache.layers[layer]);
            let cached = &cache.layers[layer];
            let (absolute, relative) = if dtype == Dtype::Fp32 {
                (1e-4, 1e-4)
            } else {
                (5e-3, 2e-3)
            };
            for position in [0, 1, 19, 20, fed.len() - 1] {
                for (which, want) in [
                    (KeyOrValue::Key, &cached.keys),
                    (KeyOrValue::Value, &cached.values),
                ] {
                    let got = model.read_kv(layer, which, position).await.unwrap();
                    let what = format!("{dtype} {which:?} of layer {layer}, position {position}");
                    check_close(&what, &got, &want[position * c..][..c], absolute, relative);
                }
            }
            for head in 0..config.n_head {
                let got = model.attention(layer, head).await.unwrap();
                let sum: f32 = got.iter().sum();
                assert!((sum - 1.0).abs() < 1e-5, "{dtype} {layer} {head}: {sum}");
                let q = &q[head * d..][..d];
                let scale = config.score_scale(layer);
                let want = attention_weights(q, &cached.keys, c, head * d, scale);
                check_close(
                    &format!("{dtype} attention {layer} {head}"),
                    &got,
                    &want,
                    absolute,
                    relative,
                );
            }
        }
        for (layer, position) in [(2, 0), (0, fed.len()), (0, usize::MAX)] {
            let error = model
                .read_kv(layer, KeyOrValue::Value, position)
                .await
                .unwrap_err();
            assert_eq!(error.code(), "bad-option", "{error}");
        }
        for (layer, head) in [(2, 0), (0, 3)] {
            let error = model.attention(layer, head).await.unwrap_err();
            assert_eq!(error.code(), "bad-option", "{error}");
        }
    }
}

/// The query of the last delivered id survives the steps ahead of it that were dropped.
pub async fn attention_after_a_stop_is_that_of_the_last_delivered_id() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let prompt = ids(8, 20, 257);
    let model = made.load(&gpu, Load::default()).await;
    let all = generate(&model, &prompt, Options::greedy(12))
        .await
        .new_tokens;
    let first = |id: u32| all.iter().position(|other| *other == id).unwrap();
    // An id that comes in the middle for the first time ends the text, with eight steps submitted beyond it.
    let end = (3..all.len())
        .find(|i| first(all[*i]) == *i)
        .expect("an id that is new");
    let options = Options {
        eos_token_id: vec![all[end]],
        max_in_flight: 8,
        ..Options::greedy(40)
    };
    let ran = generate(&model, &prompt, options).await;
    assert_eq!(ran.new_tokens, all[..=end]);
    let (stopped, key) = (
        model.attention(1, 2).await.unwrap(),
        model
            .read_kv(1, KeyOrValue::Key, 20 + end - 1)
            .await
            .unwrap(),
    );
    generate(&model, &prompt, Options::greedy(end + 1)).await;
    assert_eq!(model.attention(1, 2).await.unwrap(), stopped);
    assert_eq!(
        model
            .read_kv(1, KeyOrValue::Key, 20 + end - 1)
            .await
            .unwrap(),
        key
    );
}

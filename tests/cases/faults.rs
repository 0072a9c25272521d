//! Faults put in on purpose: the engine bears them, or the checks see them.

use std::pin::pin;

use futures::FutureExt;
use gpt2_webgpu::checkpoint::{Dtype, Target};
use gpt2_webgpu::generator::{Generator, Prompt};
use gpt2_webgpu::kv_cache::KeyOrValue;
use gpt2_webgpu::sampling::Options;
use gpt2_webgpu::test_hooks::hide_features;
use gpt2_webgpu::trace::{EventKind, FinishReason};
use serde_json::json;

use super::made::{Made, ids};
use super::run::{Load, drain, generate, gpu, own_gpu};
use super::steps::{new_ids, pull};

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

/// No step waits until the one before it has come back to the CPU.
pub async fn steps_are_submitted_while_every_map_is_delayed() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let prompt = ids(1, 5, 257);
    let fresh = generate(&model, &prompt, Options::greedy(12))
        .await
        .new_tokens;
    for max_in_flight in [1, 3, 8] {
        let options = Options {
            max_in_flight,
            ..Options::greedy(12)
        };
        let generator = Generator::new(&model, Prompt::Ids(prompt.clone()), options).unwrap();
        let mut events = pull(&generator, 2).await;
        let submits = gpu.counters().submits;
        gpu.hold_maps(true);
        {
            let mut next = pin!(generator.next());
            assert!(
                next.as_mut().now_or_never().is_none(),
                "an event without a map"
            );
            // Of those in flight one has come back already: the window is filled up again by as many as that.
            let more = gpu.counters().submits - submits;
            assert_eq!(more, 1, "{max_in_flight} in flight");
            gpu.hold_maps(false);
            events.extend(next.await);
        }
        let rest = drain(&generator).await;
        assert_eq!([new_ids(&events), rest.new_tokens].concat(), fresh);
    }

    // Held from the start of decode, the whole window is submitted without a single arrival.
    let options = Options {
        max_in_flight: 4,
        ..Options::greedy(12)
    };
    let generator = Generator::new(&model, Prompt::Ids(prompt.clone()), options).unwrap();
    let mut events = pull(&generator, 1).await;
    let submits = gpu.counters().submits;
    gpu.hold_maps(true);
    {
        let mut next = pin!(generator.next());
        assert!(next.as_mut().now_or_never().is_none());
        assert_eq!(gpu.counters().submits - submits, 4);
        gpu.hold_maps(false);
        events.extend(next.await);
    }
    let rest = drain(&generator).await;
    assert_eq!([new_ids(&events), rest.new_tokens].concat(), fresh);
}

/// Again and again, until no read-back slot is free: the GPU has answered nothing yet, and still every stop is at once.
pub async fn a_stop_does_not_wait_for_the_gpu() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let prompt = ids(1, 5, 257);
    let fresh = generate(&model, &prompt, Options::greedy(12))
        .await
        .new_tokens;
    let wide = Options {
        max_in_flight: 8,
        ..Options::greedy(12)
    };
    let generator = Generator::new(&model, Prompt::Ids(prompt.clone()), wide.clone()).unwrap();
    pull(&generator, 1).await;
    gpu.hold_maps(true);
    assert!(generator.next().now_or_never().is_none());
    generator.interrupter().interrupt();
    let done = generator
        .next()
        .now_or_never()
        .expect("an end at once")
        .unwrap();
    assert!(matches!(
        done.kind,
        EventKind::Done {
            finish_reason: FinishReason::Interrupted,
            ..
        }
    ));
    for _ in 0..20 {
        let generator = Generator::new(&model, Prompt::Ids(prompt.clone()), wide.clone()).unwrap();
        while generator.next().now_or_never().is_some() {}
        generator.interrupter().interrupt();
        let ran = drain(&generator).now_or_never().expect("an end at once");
        assert_eq!(ran.finish_reason, Some(FinishReason::Interrupted));
    }
    gpu.hold_maps(false);
    assert_eq!(generate(&model, &prompt, wide).await.new_tokens, fresh);
}

/// Small chunks and large ones, with a stop between two of them.
pub async fn the_size_of_chunks_changes_nothing() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let prompt = ids(1, 50, 257);
    let mut logits = Vec::new();
    for rows in [50, 8, 7, 1, 49] {
        model.fix_chunk_rows(Some(rows));
        let before = gpu.counters();
        let ran = generate(&model, &prompt, Options::greedy(1)).await;
        let chunks = 50_usize.div_ceil(rows);
        assert_eq!(ran.steps[0].chunks, chunks);
        assert_eq!(gpu.counters().submits - before.submits, chunks as u64);
        let dispatches = gpu.counters().dispatches - before.dispatches;
        assert!(dispatches <= chunks as u64 * (7 * 2 + 3));
        logits.push(model.logits().await.unwrap());
        assert!(
            largest_difference(&logits[0], &logits[logits.len() - 1]) < 1e-4,
            "{rows} rows"
        );
        let uncached = Options {
            use_cache: false,
            ..Options::greedy(1)
        };
        generate(&model, &prompt, uncached).await;
        assert!(largest_difference(&logits[0], &model.logits().await.unwrap()) < 1e-4);
    }
    model.fix_chunk_rows(Some(8));
    let generator = Generator::new(&model, Prompt::Ids(prompt), Options::greedy(5)).unwrap();
    while !matches!(
        generator.next().await.unwrap().kind,
        EventKind::PrefillProgress { rows_done: 16, .. }
    ) {}
    let submits = gpu.counters().submits;
    generator.interrupter().interrupt();
    assert_eq!(
        drain(&generator).await.finish_reason,
        Some(FinishReason::Interrupted)
    );
    assert_eq!(
        (gpu.counters().submits, model.past_key_values().len()),
        (submits, 16)
    );
}

/// Twice: each time a new device continues with the same text.
pub async fn a_lost_device_is_one_clear_error() {
    let made = Made::new(json!({}));
    let mut texts = Vec::new();
    for pulled in [3, 1, 0] {
        let gpu = own_gpu().await;
        let model = made.load(&gpu, Load::default()).await;
        texts.push(
            generate(&model, &[5, 6], Options::greedy(10))
                .await
                .new_tokens,
        );
        let generator =
            Generator::new(&model, Prompt::Ids(vec![5, 6]), Options::greedy(30)).unwrap();
        pull(&generator, pulled).await;
        gpu.lose();
        let ran = drain(&generator).await;
        let (code, message) = ran.error.expect("an error");
        assert_eq!(code, "device-lost", "{message}");
        assert!(message.contains("Restart"), "{message}");
        let again = Generator::new(&model, Prompt::Ids(vec![5]), Options::greedy(1));
        assert_eq!(again.err().expect("a refusal").code(), "device-lost");
        assert_eq!(
            model.attention(0, 0).await.unwrap_err().code(),
            "device-lost"
        );
    }
    assert!(texts.iter().all(|text| *text == texts[0]));
}

pub async fn without_optional_features_everything_works() {
    let made = Made::new(json!({}));
    let known = gpu().await;
    let model = made.load(&known, Load::default()).await;
    let want = generate(&model, &[5, 6], Options::greedy(10)).await;
    assert_eq!(want.steps[0].gpu_ms.is_some(), known.has_timestamps());
    hide_features(true);
    let plain = own_gpu().await;
    hide_features(false);
    assert!(!plain.has_timestamps() && plain.info().features.is_empty());
    for dtype in Dtype::ALL {
        let load = Load {
            dtype: Some(dtype),
            ..Load::default()
        };
        let model = made.load(&plain, load).await;
        let ran = generate(&model, &[5, 6], Options::greedy(10)).await;
        assert_eq!(ran.new_tokens.len(), 10, "{dtype} {:?}", ran.error);
        assert!(ran.steps.iter().all(|step| step.gpu_ms.is_none()));
        if dtype == Dtype::Fp32 {
            assert_eq!(ran.new_tokens, want.new_tokens);
        }
    }
}

/// A kernel whose output is wrong, a changed weight, a changed key: each shows in the logits.
pub async fn what_is_corrupt_shows_in_the_logits() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let prompt = ids(1, 20, 257);
    let want = made.reference(Dtype::Fp32).feed(&prompt);
    generate(&model, &prompt, Options::greedy(1)).await;
    let right = model.logits().await.unwrap();
    assert!(largest_difference(&right, &want) < 2e-3);
    for kernel in [
        "embed",
        "ln",
        "ln_qkv",
        "attention",
        "merge_proj",
        "ln_fc",
        "proj_residual",
        "ln_head",
    ] {
        gpu.skip_kernel(Some(kernel));
        // Other ids first, so that what is left over is not the right answer by chance.
        generate(&model, &ids(2, 30, 257), Options::greedy(1)).await;
        generate(&model, &prompt, Options::greedy(1)).await;
        let wrong = model.logits().await.unwrap();
        assert!(
            largest_difference(&wrong, &want) > 2e-3 + 1e-4 * 30.0,
            "{kernel}"
        );
        gpu.skip_kernel(None);
    }
    generate(&model, &prompt, Options::greedy(1)).await;
    assert_eq!(model.logits().await.unwrap(), right);

    // A key that is read by a run which reuses it.
    model.change_key(1, 4, 30_f32.to_le_bytes()).unwrap();
    assert_eq!(model.read_kv(1, KeyOrValue::Key, 4).await.unwrap()[0], 30.0);
    let reuse = Options {
        reuse: true,
        ..Options::greedy(1)
    };
    generate(&model, &prompt, reuse).await;
    assert!(largest_difference(&model.logits().await.unwrap(), &right) > 1e-3);

    model
        .change_weight(Target::Wpe, 0, 100_f32.to_le_bytes())
        .unwrap();
    generate(&model, &prompt, Options::greedy(1)).await;
    assert!(largest_difference(&model.logits().await.unwrap(), &right) > 1e-3);
}

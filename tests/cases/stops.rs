//! Why a run ends, and what it refuses to begin with.

use gpt2_webgpu::generator::{Generator, Prompt};
use gpt2_webgpu::model::Model;
use gpt2_webgpu::sampling::Options;
use gpt2_webgpu::tokenizer::Token;
use gpt2_webgpu::trace::{EventKind, FinishReason};
use serde_json::json;
use std::rc::Rc;

use super::made::{Made, ids, small_tokenizer};
use super::run::{Load, Ran, drain, generate, gpu, load};

async fn prompted(model: &Rc<Model>, text: &str, options: Options) -> Ran {
    let generator =
        Generator::new(model, Prompt::Text(text.into()), options).expect("a free model");
    drain(&generator).await
}

fn with_tokenizer() -> Load {
    Load {
        tokenizer: Some(small_tokenizer()),
        ..Load::default()
    }
}

fn tokens(ran: &Ran) -> Vec<Token> {
    let tokens = ran.events.iter().find_map(|event| match &event.kind {
        EventKind::Tokenized { tokens, .. } => Some(tokens.clone()),
        _ => None,
    });
    tokens.expect("a tokenized event")
}

#[track_caller]
fn assert_refused(ran: &Ran, code: &str, words: &str) {
    let (got, message) = ran.error.clone().expect("an error");
    assert_eq!(got, code, "{message}");
    assert!(message.contains(words), "{message}");
    assert_eq!((ran.finish_reason, ran.new_tokens.len()), (None, 0));
}

pub async fn the_context_ends_a_run() {
    let gpu = gpu().await;
    let made = Made::new(json!({"n_positions": 16}));
    let model = made.load(&gpu, Load::default()).await;
    for use_cache in [true, false] {
        for (n, new, reason) in [
            (15, 2, FinishReason::Context),
            (16, 1, FinishReason::Context),
            (11, 5, FinishReason::Length),
            (12, 5, FinishReason::Length),
            (13, 4, FinishReason::Context),
        ] {
            let options = Options {
                use_cache,
                max_in_flight: 8,
                ..Options::greedy(5)
            };
            let rows = gpu.counters().rows;
            let ran = generate(&model, &ids(1, n, 257), options).await;
            assert_eq!(
                (ran.new_tokens.len(), ran.finish_reason),
                (new, Some(reason)),
                "{n}"
            );
            if use_cache {
                assert_eq!(model.past_key_values().len(), n + new - 1);
                // Nothing was submitted beyond the end.
                assert_eq!(gpu.counters().rows - rows, (n + new - 1) as u64, "{n}");
            }
        }
        let long = generate(&model, &ids(1, 17, 257), Options::greedy(5)).await;
        assert_refused(&long, "prompt-too-long", "17");
    }
}

/// Fewer positions than the least chunk of a prefill.
pub async fn models_of_few_positions_run() {
    let gpu = gpu().await;
    for n in [1, 5, 9] {
        let made = Made::new(json!({"n_layer": 1, "n_positions": n}));
        let model = made.load(&gpu, Load::default()).await;
        let ran = generate(&model, &ids(1, 1, 257), Options::greedy(20)).await;
        assert_eq!(ran.new_tokens.len(), n, "{:?}", ran.error);
        assert_eq!(ran.finish_reason, Some(FinishReason::Context));
    }
}

pub async fn end_ids_and_stop_strings_end_a_run() {
    let gpu = gpu().await;
    let made = Made::new(json!({"vocab_size": 259}));
    let model = made.load(&gpu, with_tokenizer()).await;
    let all = prompted(&model, "a th", Options::greedy(24)).await;
    assert_eq!(
        tokens(&all).iter().map(|t| t.id).collect::<Vec<_>>(),
        [64, 257]
    );
    let ids = &all.new_tokens;
    let end = (2..20)
        .find(|i| ids.iter().position(|id| *id == ids[*i]) == Some(*i))
        .unwrap();
    for max_in_flight in [1, 4, 8] {
        let options = Options {
            max_in_flight,
            ..Options::greedy(24)
        };
        let eos = Options {
            eos_token_id: vec![300, ids[end]],
            ..options.clone()
        };
        let ran = prompted(&model, "a th", eos).await;
        assert_eq!(ran.finish_reason, Some(FinishReason::Eos));
        assert_eq!(ran.new_tokens, ids[..=end]);
        assert_eq!(model.past_key_values().len(), 2 + end);

        // The last two characters of a text that nine ids complete.
        let tokenizer = model.tokenizer().unwrap();
        let text = tokenizer.decode(&ids[..9], true);
        let whole: Vec<char> = text.chars().filter(|c| *c != '\u{fffd}').collect();
        let stop: String = whole[whole.len() - 1..].iter().collect();
        let options = Options {
            stop_strings: vec!["never there".into(), stop.clone()],
            ..options
        };
        let ran = prompted(&model, "a th", options).await;
        assert_eq!(ran.finish_reason, Some(FinishReason::Stop));
        assert!(
            ran.text.ends_with(&stop) && ran.text.matches(&stop).count() == 1,
            "{:?}",
            ran.text
        );
        assert!(all.text.starts_with(&ran.text));
        assert_eq!(ran.new_tokens, ids[..ran.new_tokens.len()]);
        assert!(ran.new_tokens.len() <= 9);

        let again = prompted(&model, "a th", Options::greedy(24)).await;
        assert_eq!(
            (&again.new_tokens, &again.text),
            (ids, &all.text),
            "steps were not dropped cleanly"
        );
    }
    // The text of all events is the text of all ids.
    assert_eq!(all.text, model.tokenizer().unwrap().decode(ids, true));
}

pub async fn what_a_run_cannot_begin_with_is_refused() {
    let gpu = gpu().await;
    let made = Made::new(json!({"vocab_size": 259, "bos_token_id": 7}));
    let model = made.load(&gpu, with_tokenizer()).await;
    let fresh = generate(&model, &[1, 2], Options::greedy(3))
        .await
        .new_tokens;
    let greedy = Options::greedy(1);

    assert_refused(
        &generate(&model, &[1, 259], greedy.clone()).await,
        "bad-option",
        "259",
    );
    assert_refused(
        &generate(&model, &[u32::MAX], greedy.clone()).await,
        "bad-option",
        "4294967295",
    );
    assert_refused(
        &generate(&model, &ids(1, 65, 259), greedy.clone()).await,
        "prompt-too-long",
        "65",
    );
    assert_refused(
        &prompted(&model, &"x".repeat(65), greedy.clone()).await,
        "prompt-too-long",
        "64",
    );
    assert_refused(
        &prompted(&model, &"x".repeat(5 << 20), greedy.clone()).await,
        "prompt-too-long",
        "64",
    );

    // An empty prompt starts from bos_token_id, visibly.
    for ran in [
        prompted(&model, "", greedy.clone()).await,
        generate(&model, &[], greedy.clone()).await,
    ] {
        assert_eq!(
            tokens(&ran).iter().map(|t| t.id).collect::<Vec<_>>(),
            [7],
            "{:?}",
            ran.error
        );
        assert_eq!(ran.new_tokens.len(), 1);
    }
    for text in [" ", "\n"] {
        assert_eq!(
            prompted(&model, text, greedy.clone())
                .await
                .new_tokens
                .len(),
            1,
            "{text:?}"
        );
    }
    // The text of a special token becomes that token.
    let special = tokens(&prompted(&model, "a<|endoftext|>b", greedy.clone()).await);
    let seen: Vec<_> = special
        .iter()
        .map(|t| (t.id, t.special, t.text.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            (64, false, "a"),
            (258, true, "<|endoftext|>"),
            (65, false, "b")
        ]
    );
    // None of all that has left a trace.
    assert_eq!(
        generate(&model, &[1, 2], Options::greedy(3))
            .await
            .new_tokens,
        fresh
    );

    let plain = Made::new(json!({"bos_token_id": null}))
        .load(&gpu, Load::default())
        .await;
    assert_refused(
        &generate(&plain, &[], greedy.clone()).await,
        "bad-option",
        "bos_token_id",
    );
    assert_refused(
        &prompted(&plain, "a", greedy.clone()).await,
        "bad-tokenizer",
        "input_ids",
    );
    let stop = Options {
        stop_strings: vec!["a".into()],
        ..greedy
    };
    assert_refused(
        &generate(&plain, &[1], stop).await,
        "bad-tokenizer",
        "stop_strings",
    );
    assert_eq!(generate(&plain, &[1], Options::greedy(2)).await.text, "");
}

pub async fn a_tokenizer_larger_than_the_model_is_refused_and_a_smaller_one_masks() {
    let gpu = gpu().await;
    let small = Made::new(json!({"vocab_size": 258}));
    let before = gpu.memory();
    let files: &[(&str, &[u8])] = &[("model.safetensors", &small.file)];
    let error = load(&gpu, &small.json, files, with_tokenizer())
        .await
        .err()
        .expect("a refusal");
    assert_eq!(error.code(), "bad-tokenizer");
    assert!(error.to_string().contains("258"), "{error}");
    assert_eq!(
        gpu.memory(),
        before,
        "a load that failed has left memory behind"
    );

    // Rows beyond the tokenizer that would win every time.
    let made = Made::edited(json!({"vocab_size": 300}), |tensor, values| {
        let name = tensor.name();
        if name == "wte.weight" {
            values[259 * 45..].fill(2.0);
        }
        if name == "ln_f.bias" {
            values.fill(3.0);
        }
    });
    let unmasked = made.load(&gpu, Load::default()).await;
    assert!(
        generate(&unmasked, &[1], Options::greedy(1))
            .await
            .new_tokens[0]
            >= 259
    );
    let model = made.load(&gpu, with_tokenizer()).await;
    for do_sample in [false, true] {
        let options = Options {
            do_sample,
            top_k: 0,
            seed: Some(3),
            top_logits: 40,
            ..Options::greedy(12)
        };
        let ran = prompted(&model, "th", options).await;
        assert!(
            ran.new_tokens.iter().all(|id| *id < 259),
            "{:?}",
            ran.new_tokens
        );
        for step in &ran.steps {
            assert!(step.candidates.iter().all(|candidate| candidate.id < 259));
            let listed: f32 = step.candidates.iter().map(|c| c.probability).sum();
            assert!((listed + step.rest as f32 - 1.0).abs() < 1e-4);
        }
        let Some(EventKind::Done { warnings, .. }) = ran.events.last().map(|e| e.kind.clone())
        else {
            panic!("{:?}", ran.error);
        };
        assert!(
            warnings.iter().any(|w| w.contains("259 to 299")),
            "{warnings:?}"
        );
    }
}

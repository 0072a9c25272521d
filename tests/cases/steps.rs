//! Steps in flight, stopping, and who has the model.

use std::rc::Rc;

use gpt2_webgpu::generator::{Generator, Prompt};
use gpt2_webgpu::gpu::Memory;
use gpt2_webgpu::kv_cache::KeyOrValue;
use gpt2_webgpu::model::Model;
use gpt2_webgpu::sampling::Options;
use gpt2_webgpu::trace::{Event, EventKind, FinishReason};
use serde_json::json;

use super::made::{Made, ids};
use super::run::{Load, drain, generate, gpu, own_gpu};

fn start(model: &Rc<Model>, prompt: &[u32], options: Options) -> Generator {
    Generator::new(model, Prompt::Ids(prompt.to_vec()), options).expect("a free model")
}

/// Pulls events until `wanted` of them carried a new id and its text.
pub async fn pull(generator: &Generator, wanted: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let mut texts = 0;
    while texts < wanted {
        let event = generator.next().await.expect("a run that goes on");
        texts += usize::from(matches!(event.kind, EventKind::Text { .. }));
        events.push(event);
    }
    events
}

pub fn new_ids(events: &[Event]) -> Vec<u32> {
    let step = |event: &Event| match &event.kind {
        EventKind::Prefilled { step } | EventKind::Decoded { step, .. } => Some(step.token_id),
        _ => None,
    };
    events.iter().filter_map(step).collect()
}

fn refusal(model: &Rc<Model>) -> &'static str {
    match Generator::new(model, Prompt::Ids(vec![1]), Options::greedy(1)) {
        Ok(_) => "none",
        Err(error) => error.code(),
    }
}

pub async fn at_one_in_flight_nothing_is_submitted_before_it_is_asked_for() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let prompt = ids(1, 5, 257);
    let fresh = generate(&model, &prompt, Options::greedy(8))
        .await
        .new_tokens;
    let submits = gpu.counters().submits;
    let generator = start(
        &model,
        &prompt,
        Options {
            max_in_flight: 1,
            ..Options::greedy(8)
        },
    );
    assert_eq!(gpu.counters().submits, submits);
    let mut all = pull(&generator, 1).await;
    for done in 1..5 {
        // One for the prompt (it may come in chunks only if it is longer than the least), then one for each id.
        assert_eq!(gpu.counters().submits - submits, done, "after {done}");
        all.extend(pull(&generator, 1).await);
    }
    assert!(generator.set_max_in_flight(0).is_err() && generator.set_max_in_flight(9).is_err());
    assert_eq!(generator.max_in_flight(), 1);
    let rest = drain(&generator).await;
    assert_eq!([new_ids(&all), rest.new_tokens].concat(), fresh);
}

/// Lowered, raised and lowered again, in the middle of the run.
pub async fn the_number_in_flight_changes_nothing_but_the_number() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let prompt = ids(2, 9, 257);
    for use_cache in [true, false] {
        let sampled = Options {
            do_sample: true,
            seed: Some(7),
            use_cache,
            max_in_flight: 1,
            ..Options::greedy(24)
        };
        let fresh = generate(&model, &prompt, sampled.clone()).await.new_tokens;
        let generator = start(
            &model,
            &prompt,
            Options {
                max_in_flight: 8,
                ..sampled
            },
        );
        let mut all = Vec::new();
        for (wanted, in_flight) in [(4, 1), (3, 1), (2, 5), (5, 2), (1, 8)] {
            all.extend(pull(&generator, wanted).await);
            generator.set_max_in_flight(in_flight).unwrap();
            let submits = gpu.counters().submits;
            if in_flight == 1 {
                all.extend(pull(&generator, 1).await);
                // Without a cache a step may take several submits, but here all rows fit into one chunk or two.
                assert!(gpu.counters().submits - submits <= if use_cache { 1 } else { 5 });
            }
        }
        let rest = drain(&generator).await;
        assert_eq!(
            [new_ids(&all), rest.new_tokens].concat(),
            fresh,
            "cache {use_cache}"
        );
        assert_eq!(rest.finish_reason, Some(FinishReason::Length));
    }
}

/// After the first, before the first, twice, and by letting go of it.
pub async fn after_a_stop_the_next_run_is_as_on_a_fresh_model() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let (prompt, other) = (ids(1, 11, 257), ids(2, 4, 257));
    let fresh = generate(&model, &prompt, Options::greedy(20))
        .await
        .new_tokens;
    for stop_after in [0, 1, 3, 7] {
        for (max_in_flight, reuse) in [(4, false), (8, true), (1, false)] {
            let options = Options {
                max_in_flight,
                ..Options::greedy(20)
            };
            let generator = start(&model, &other, options);
            let shown = new_ids(&pull(&generator, stop_after).await);
            generator.interrupter().interrupt();
            generator.interrupter().interrupt();
            let rest = drain(&generator).await;
            // What had arrived before the stop may still be told.
            assert_eq!(rest.finish_reason, Some(FinishReason::Interrupted));
            assert!(rest.new_tokens.len() + shown.len() <= stop_after + 1);
            assert_eq!(generator.next().await, None);
            if stop_after > 0 {
                assert_eq!(model.past_key_values().len(), 4 + stop_after - 1);
            }
            let again = Options {
                reuse,
                ..Options::greedy(20)
            };
            let ran = generate(&model, &prompt, again).await;
            assert_eq!(
                ran.new_tokens, fresh,
                "after {stop_after}, {max_in_flight} in flight"
            );
        }
    }
    // A consumer that walks away.
    let generator = start(&model, &other, Options::greedy(20));
    pull(&generator, 2).await;
    drop(generator);
    assert_eq!(
        generate(&model, &prompt, Options::greedy(20))
            .await
            .new_tokens,
        fresh
    );
}

pub async fn a_long_prefill_is_interrupted_between_its_chunks() {
    let gpu = gpu().await;
    let made = Made::new(json!({"n_layer": 1, "n_positions": 1024}));
    let model = made.load(&gpu, Load::default()).await;
    let prompt = ids(3, 1000, 257);
    let generator = start(&model, &prompt, Options::greedy(5));
    let mut rows = 0;
    while rows == 0 {
        if let EventKind::PrefillProgress { rows_done, .. } = generator.next().await.unwrap().kind {
            rows = rows_done;
        }
    }
    assert!(rows < 1000, "1000 rows in one chunk");
    generator.interrupter().interrupt();
    let ran = drain(&generator).await;
    assert_eq!(
        (ran.finish_reason, &ran.new_tokens[..]),
        (Some(FinishReason::Interrupted), &[][..])
    );
    assert_eq!(model.past_key_values().len(), rows);
    // What the chunks left behind can be built on.
    let reused = Options {
        reuse: true,
        ..Options::greedy(5)
    };
    let again = generate(&model, &prompt, reused).await;
    assert_eq!(
        again.new_tokens,
        generate(&model, &prompt, Options::greedy(5))
            .await
            .new_tokens
    );
    let progress = again
        .events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::PrefillProgress { .. }));
    assert_eq!(progress.count(), again.steps[0].chunks);
}

pub async fn a_second_generation_is_refused_while_one_runs() {
    let gpu = gpu().await;
    let made = Made::new(json!({}));
    let model = made.load(&gpu, Load::default()).await;
    let generator = start(&model, &[1, 2], Options::greedy(3));
    assert_eq!(refusal(&model), "busy");
    pull(&generator, 1).await;
    assert_eq!(refusal(&model), "busy");
    let ran = drain(&generator).await;
    assert_eq!(ran.finish_reason, Some(FinishReason::Length));
    assert_eq!(refusal(&model), "none");
}

pub async fn disposing_ends_a_run_and_frees_everything() {
    let made = Made::new(json!({}));
    for pulled in [0, 1, 4] {
        let gpu = own_gpu().await;
        let model = made.load(&gpu, Load::default()).await;
        assert!(gpu.memory().total > 0);
        let generator = start(&model, &[1, 2, 3], Options::greedy(20));
        pull(&generator, pulled).await;
        model.dispose();
        let ran = drain(&generator).await;
        assert_eq!(ran.error.expect("an error").0, "disposed");
        assert_eq!(ran.finish_reason, None);
        assert_eq!(refusal(&model), "disposed");
        let error = model.read_kv(0, KeyOrValue::Key, 0).await.unwrap_err();
        assert_eq!(error.code(), "disposed");
        assert_eq!(gpu.memory(), Memory::default());
        model.dispose();
        drop((generator, model));
        assert_eq!(gpu.memory(), Memory::default());
    }
}

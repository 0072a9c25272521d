//! The GPU against Hugging Face and against itself.

use gpt2_webgpu::model::Tuning;
use gpt2_webgpu::sampling::Options;

use super::fixtures::{FIXTURES, Fixture, check_close, check_logits, fixture};
use super::run::{Load, generate, gpu, load_fixture};

/// The options under which a fixture's answers were made.
fn options(fixture: &Fixture) -> Options {
    let expected = fixture.expected();
    let config = gpt2_webgpu::config::Config::from_json(fixture.config).unwrap();
    Options {
        repetition_penalty: expected.repetition_penalty,
        eos_token_id: config.eos_token_id,
        top_logits: 5,
        ..Options::greedy(expected.max_new_tokens)
    }
}

pub async fn greedy_ids_and_logits_are_those_of_hugging_face() {
    let gpu = gpu().await;
    for fixture in FIXTURES {
        let expected = fixture.expected();
        let model = load_fixture(&gpu, fixture, Load::default()).await;
        let first = Options {
            max_new_tokens: 1,
            ..options(fixture)
        };
        generate(&model, &expected.input_ids, first).await;
        check_logits(
            fixture.name,
            &model.logits().await.unwrap(),
            &expected.logits,
        );

        let ran = generate(&model, &expected.input_ids, options(fixture)).await;
        assert_eq!(ran.error, None, "{}", fixture.name);
        assert_eq!(ran.new_tokens, expected.new_tokens, "{}", fixture.name);
        let reason = serde_json::to_value(ran.finish_reason.unwrap()).unwrap();
        assert_eq!(reason, expected.finish_reason, "{}", fixture.name);
        for (step, top5) in ran.steps.iter().zip(&expected.top5) {
            // Candidates are ranked after the penalty, the fixture's five by raw logit: compare those in both.
            for (id, logit) in top5 {
                if let Some(candidate) = step.candidates.iter().find(|c| c.id == *id) {
                    check_logits(fixture.name, &[candidate.logit], &[*logit]);
                }
            }
            if expected.repetition_penalty == 1.0 {
                let ids: Vec<u32> = step.candidates.iter().map(|c| c.id).collect();
                let want: Vec<u32> = top5.iter().map(|(id, _)| *id).collect();
                assert_eq!(ids, want, "{}", fixture.name);
            }
        }
        gpu.check().unwrap();
    }
}

pub async fn every_cut_of_the_kernels_gives_the_same() {
    let gpu = gpu().await;
    for (cols, ksplit, tile_cols, splits) in [
        (64, 1, 64, 1),
        (8, 16, 64, 4),
        (16, 4, 16, 3),
        (4, 32, 8, 8),
    ] {
        let tuning = Tuning {
            cols,
            ksplit,
            tile_cols,
            splits,
        };
        for name in ["small", "c60_n_inner70", "last_position", "untied"] {
            let fixture = fixture(name);
            let expected = fixture.expected();
            let load = Load {
                tuning: Some(tuning),
                ..Load::default()
            };
            let model = load_fixture(&gpu, fixture, load).await;
            let ran = generate(&model, &expected.input_ids, options(fixture)).await;
            assert_eq!(
                ran.new_tokens, expected.new_tokens,
                "{name} {tuning:?} {:?}",
                ran.error
            );
        }
    }
}

pub async fn without_a_cache_the_ids_are_the_same() {
    let gpu = gpu().await;
    for name in ["small", "head64", "inverse_layer_idx"] {
        let fixture = fixture(name);
        let expected = fixture.expected();
        let model = load_fixture(&gpu, fixture, Load::default()).await;
        let uncached = Options {
            use_cache: false,
            ..options(fixture)
        };
        let before = model.gpu().counters().rows;
        let ran = generate(&model, &expected.input_ids, uncached).await;
        assert_eq!(
            ran.new_tokens, expected.new_tokens,
            "{name} {:?}",
            ran.error
        );
        let (n, m) = (expected.input_ids.len(), ran.new_tokens.len());
        let rows: usize = (0..m).map(|i| n + i).sum();
        assert_eq!(model.gpu().counters().rows - before, rows as u64, "{name}");
        assert_eq!(model.past_key_values().len(), 0, "{name}");
        let attention = model.attention(0, 0).await;
        assert_eq!(attention.unwrap_err().code(), "bad-option", "{name}");
    }
}

pub async fn prefill_and_decode_agree_wherever_the_prompt_is_cut() {
    let gpu = gpu().await;
    let fixture = fixture("head64");
    let model = load_fixture(&gpu, fixture, Load::default()).await;
    let expected = fixture.expected();
    let mut ids = expected.input_ids.clone();
    ids.extend(&expected.new_tokens);
    let whole = |n: usize| ids[..n].to_vec();
    let n = ids.len();
    generate(&model, &whole(n), Options::greedy(1)).await;
    let reference = model.logits().await.unwrap();
    for k in 1..n {
        if k < expected.input_ids.len() {
            continue;
        }
        // Prefill k, then decode: greedy decoding walks along the very same ids.
        let ran = generate(&model, &whole(k), Options::greedy(n - k + 1)).await;
        assert_eq!(ran.new_tokens[..n - k], ids[k..], "cut at {k}");
        check_close(
            &format!("cut at {k}"),
            &model.logits().await.unwrap(),
            &reference,
            1e-4,
            0.0,
        );
    }
}

//! The bundled model says what transformers says with the same weights.
#![cfg(not(target_arch = "wasm32"))]

use std::path::Path;

use gpt2_webgpu::checkpoint::Dtype;
use gpt2_webgpu::from_pretrained::{LoadOptions, from_pretrained};
use gpt2_webgpu::generator::{Generator, Prompt};
use gpt2_webgpu::gpu::GpuOptions;
use gpt2_webgpu::sampling::Options;
use gpt2_webgpu::trace::EventKind;
use serde::Deserialize;

/// `tests/fixtures/tiny_golden.json`, written by `tools/train_tiny`.
#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    prompt: String,
    prompt_ids: Vec<u32>,
    new_ids: Vec<u32>,
    new_text: String,
}

#[test]
fn the_bundled_model_continues_as_in_transformers() {
    let golden: Golden =
        serde_json::from_str(include_str!("fixtures/tiny_golden.json")).expect("the golden file");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("www/models/tiny");
    pollster::block_on(async {
        let options = LoadOptions {
            dtype: Some(Dtype::Fp32),
            gpu: GpuOptions::default(),
            tuning: None,
        };
        let (model, report) = from_pretrained(&folder, options)
            .await
            .expect("the bundled model");
        assert!(report.tied && report.ignored.is_empty(), "{report:?}");
        for case in golden.cases {
            for use_cache in [true, false] {
                let options = Options {
                    use_cache,
                    ..Options::greedy(case.new_ids.len())
                };
                let prompt = Prompt::Text(case.prompt.clone());
                let generator = Generator::new(&model, prompt, options).expect("a free model");
                let (mut ids, mut new_ids, mut text) = (Vec::new(), Vec::new(), String::new());
                while let Some(event) = generator.next().await {
                    match event.kind {
                        EventKind::Tokenized { tokens, .. } => {
                            ids.extend(tokens.iter().map(|t| t.id))
                        }
                        EventKind::Prefilled { step } | EventKind::Decoded { step, .. } => {
                            new_ids.push(step.token_id);
                        }
                        EventKind::Text { text: piece, .. } => text += &piece,
                        EventKind::Error { message, .. } => panic!("{message}"),
                        _ => {}
                    }
                }
                assert_eq!(ids, case.prompt_ids, "{}", case.prompt);
                assert_eq!(
                    new_ids, case.new_ids,
                    "{} (use_cache {use_cache})",
                    case.prompt
                );
                assert_eq!(text, case.new_text, "{}", case.prompt);
            }
        }
    });
}

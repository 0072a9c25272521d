//! Models that are large for the device: a table that no default binding holds, and a head that no workgroup holds.
#![cfg(not(target_arch = "wasm32"))]

use std::rc::Rc;

use gpt2_webgpu::checkpoint::{Dtype, Layout, LoadReport, Param, Target, Upload};
use gpt2_webgpu::config::Config;
use gpt2_webgpu::generator::{Generator, Prompt};
use gpt2_webgpu::gpu::{Gpu, GpuOptions};
use gpt2_webgpu::model::{Model, Weights};
use gpt2_webgpu::sampling::Options;
use gpt2_webgpu::trace::EventKind;

/// A device with the default limits, and all weights zero.
async fn zeros(json: &str, dtype: Dtype) -> (Rc<Gpu>, Layout, Weights) {
    let options = GpuOptions {
        default_limits: true,
    };
    let gpu = Gpu::request(options).await.unwrap();
    let layout = Layout::new(&Config::from_json(json).unwrap(), dtype);
    let weights = gpu
        .allocating(|| Weights::allocate(&gpu, &layout))
        .await
        .unwrap();
    (gpu, layout, weights)
}

fn tied() -> LoadReport {
    LoadReport {
        ignored: Vec::new(),
        tied: true,
        warnings: Vec::new(),
    }
}

#[test]
fn the_table_of_the_124m_model_is_split_on_default_limits() {
    pollster::block_on(async {
        let json = r#"{"n_layer": 1, "n_head": 12, "n_embd": 768, "n_inner": 8, "n_positions": 8, "vocab_size": 50257}"#;
        let (gpu, layout, mut weights) = zeros(json, Dtype::Fp32).await;
        let limit = 128 << 20;
        assert!(layout.bytes(Target::Wte) > limit);
        let parts = weights.wte.bindings();
        assert!(parts.iter().all(|part| part.bytes() <= limit));
        assert!(!std::ptr::eq(parts[0], parts[1]));

        // The normed last row is all ones, and one value in the last row of the table, which lies in the last part.
        let bias = vec![1.0_f32; 768];
        let at = 4 * layout.param(Param::LnFBias) as u64;
        weights
            .write(Target::FinalParams, at, bytemuck::cast_slice(&bias))
            .unwrap();
        let (tile, lane) = (50_256 / 256, 50_256 % 256 / 4);
        let vec4 = tile * layout.c_p * 64 + lane;
        weights
            .write(Target::Wte, 16 * vec4 as u64, &1.0_f32.to_le_bytes())
            .unwrap();
        let model = Model::new(gpu.clone(), weights, &tied(), None, None)
            .await
            .unwrap();
        let prompt = Prompt::Ids(vec![0, 50_256]);
        let generator = Generator::new(&model, prompt, Options::greedy(1)).unwrap();
        let mut ids = Vec::new();
        while let Some(event) = generator.next().await {
            match event.kind {
                EventKind::Prefilled { step } | EventKind::Decoded { step, .. } => {
                    ids.push(step.token_id);
                }
                EventKind::Error { message, .. } => panic!("{message}"),
                _ => {}
            }
        }
        assert_eq!(ids, [50_256]);
        gpu.check().unwrap();
    });
}

#[test]
fn a_head_too_large_for_a_workgroup_is_refused_with_the_numbers() {
    pollster::block_on(async {
        let json = r#"{"n_layer": 1, "n_head": 1, "n_embd": 4036, "n_inner": 4, "n_positions": 2, "vocab_size": 4}"#;
        let (gpu, _, weights) = zeros(json, Dtype::Q8).await;
        let model = Model::new(gpu.clone(), weights, &tied(), None, None).await;
        let error = model.err().expect("a refusal");
        assert_eq!(error.code(), "limit");
        assert!(error.to_string().contains("16384"), "{error}");
        assert_eq!(gpu.memory().total, 0);
    });
}

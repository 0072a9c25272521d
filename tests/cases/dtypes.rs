//! fp16 and q8 against the reference on rounded weights, with keys and values rounded likewise.

use gpt2_webgpu::checkpoint::Dtype;
use gpt2_webgpu::sampling::Options;

use super::fixtures::{check_close, fixture};
use super::made::rounded;
use super::run::{Load, generate, gpu, load_fixture};

pub async fn every_dtype_agrees_with_the_reference_on_rounded_weights() {
    let gpu = gpu().await;
    for name in ["small", "c60_n_inner70", "untied"] {
        let fixture = fixture(name);
        let (config, weights) = fixture.load();
        let prompt = fixture.expected().input_ids;
        for dtype in [Dtype::Fp16, Dtype::Q8] {
            let load = Load {
                dtype: Some(dtype),
                ..Load::default()
            };
            let model = load_fixture(&gpu, fixture, load).await;
            let mut reference = rounded(&config, &weights, dtype);
            generate(&model, &prompt, Options::greedy(1)).await;
            let logits = model.logits().await.unwrap();
            let want = reference.feed(&prompt);
            check_close(
                &format!("{name} {dtype}, prefill"),
                &logits,
                &want,
                5e-3,
                1e-3,
            );

            let ran = generate(&model, &prompt, Options::greedy(6)).await;
            let logits = model.logits().await.unwrap();
            let mut want = Vec::new();
            for id in &ran.new_tokens[..ran.new_tokens.len() - 1] {
                want = reference.feed(&[*id]);
            }
            check_close(
                &format!("{name} {dtype}, decode"),
                &logits,
                &want,
                5e-3,
                1e-3,
            );
        }
        gpu.check().unwrap();
    }
}

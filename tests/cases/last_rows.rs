//! Every row of every matrix is read, also the last, which no vec4 and no tile is filled by.

use gpt2_webgpu::checkpoint::{Dtype, Memory, Tensor};
use gpt2_webgpu::model::Model;
use gpt2_webgpu::sampling::Options;
use serde_json::json;

use super::fixtures::check_close;
use super::made::{Made, ids};
use super::run::{Load, generate, gpu};

/// A large value in the last row of one matrix after the other: the logits are those of the reference with the same
/// change, and not those without. The prompt ends at the last position but one and has the last id.
pub async fn the_last_row_of_every_matrix_is_read() {
    let gpu = gpu().await;
    let sizes = json!({"n_layer": 1, "n_positions": 9, "tie_word_embeddings": false});
    let plain = Made::new(sizes.clone());
    let mut prompt = ids(4, 8, 257);
    prompt[3] = 256;
    let matrices: Vec<Tensor> = Tensor::required(&plain.config)
        .filter(|tensor| tensor.shape(&plain.config).len() == 2)
        .collect();
    assert_eq!(matrices.len(), 7);
    for dtype in Dtype::ALL {
        let (absolute, relative) = match dtype {
            Dtype::Fp32 => (2e-3, 1e-4),
            _ => (5e-3, 1e-3),
        };
        let load = Load {
            dtype: Some(dtype),
            ..Load::default()
        };
        let model = plain.load(&gpu, load).await;
        let (_, mut there) = plain.laid_out(dtype);
        let mut before = plain.reference(dtype);
        let unchanged = [before.feed(&prompt), before.feed(&[9])];
        for matrix in &matrices {
            let made = Made::edited(sizes.clone(), |tensor, values| {
                if tensor == *matrix {
                    let columns = tensor.shape(&plain.config)[1];
                    let row = values.len() - columns;
                    values[row..].fill(0.0);
                    values[row + columns / 2] = 1e3;
                }
            });
            let (_, wanted) = made.laid_out(dtype);
            rewrite(&model, &there, &wanted);
            there = wanted;
            let mut reference = made.reference(dtype);
            // Prefill of eight positions, then decode at the ninth and last.
            generate(&model, &prompt, Options::greedy(1)).await;
            let prefilled = model.logits().await.unwrap();
            let ran = generate(&model, &prompt, Options::greedy(2)).await;
            let decoded = model.logits().await.unwrap();
            let want = [
                reference.feed(&prompt),
                reference.feed(&ran.new_tokens[..1]),
            ];
            for (which, got, want) in [
                ("prefill", &prefilled, &want[0]),
                ("decode", &decoded, &want[1]),
            ] {
                let what = format!("{} {dtype} {which}", matrix.name());
                check_close(&what, got, want, absolute, relative);
            }
            let differ = |a: &[f32], b: &[f32]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 0.02);
            // Only decode comes to the last position.
            let seen = *matrix == Tensor::Wpe || differ(&prefilled, &unchanged[0]);
            assert!(seen, "{} {dtype}: the last row is not read", matrix.name());
            assert!(differ(&decoded, &unchanged[1]), "{} {dtype}", matrix.name());
        }
    }
}

/// Turns a model's weights into others: every word in which the two differ.
fn rewrite(model: &Model, from: &Memory, to: &Memory) {
    for target in to.targets() {
        let (old, new) = (from.bytes(target), to.bytes(target));
        assert_eq!(old.len(), new.len());
        for (i, (old, new)) in old.chunks_exact(4).zip(new.chunks_exact(4)).enumerate() {
            if old != new {
                let word = new.try_into().unwrap();
                model.change_weight(target, 4 * i as u64, word).unwrap();
            }
        }
    }
}

//! Damaged checkpoints on their way to the GPU: one clear error each, and no memory left behind.

use gpt2_webgpu::gpu::{Gpu, Memory};
use gpt2_webgpu::sampling::Options;
use serde_json::{Value, json};
use std::rc::Rc;

use super::made::Made;
use super::run::{Load, generate, gpu, load, own_gpu};

/// The file with another header; `spaces` behind it.
fn with_header(file: &[u8], spaces: usize, edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (length, rest) = file.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    edit(&mut header);
    let header = format!("{header}{}", " ".repeat(spaces));
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), data].concat()
}

async fn refusal(gpu: &Rc<Gpu>, config: &str, file: &[u8]) -> (&'static str, String) {
    let files: &[(&str, &[u8])] = &[("model.safetensors", file)];
    let error = load(gpu, config, files, Load::default()).await.err();
    let error = error.expect("a refusal");
    (error.code(), error.to_string())
}

pub async fn a_load_that_fails_leaves_nothing_behind() {
    let gpu = own_gpu().await;
    let made = Made::new(json!({"n_layer": 1}));
    let file = &made.file;
    let entry = |name: &'static str, key: &'static str, value: Value| {
        with_header(file, 0, move |header| header[name][key] = value)
    };
    let offsets = |name: &'static str, delta: [i64; 2]| {
        with_header(file, 0, move |header| {
            for (at, delta) in delta.into_iter().enumerate() {
                let offset = &mut header[name]["data_offsets"][at];
                *offset = json!(offset.as_i64().unwrap() + delta);
            }
        })
    };
    let missing = with_header(file, 0, |header| {
        let moved = header.as_object_mut().unwrap().remove("ln_f.bias").unwrap();
        header["unknown"] = moved;
    });
    let mut nan = file.clone();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    let long = [&(1_u64 << 20).to_le_bytes(), &file[8..]].concat();
    let goes_on = [&file[..], &[0; 4]].concat();
    // What is wrong, the file, the code, and a word of the message.
    let cases: Vec<(&str, Vec<u8>, &str, &str)> = vec![
        ("empty", vec![], "bad-checkpoint", "model.safetensors"),
        (
            "cut in its header",
            file[..100].to_vec(),
            "bad-checkpoint",
            "model.safetensors",
        ),
        (
            "cut in its data",
            file[..end - 5].to_vec(),
            "bad-checkpoint",
            "model.safetensors",
        ),
        (
            "header longer than the file",
            long,
            "bad-checkpoint",
            "model.safetensors",
        ),
        (
            "more than it describes",
            goes_on,
            "bad-checkpoint",
            "model.safetensors",
        ),
        (
            "overlap",
            offsets("ln_f.bias", [-4, -4]),
            "bad-checkpoint",
            "ln_f.bias",
        ),
        (
            "beyond the end",
            offsets("wte.weight", [1 << 20, 1 << 20]),
            "bad-checkpoint",
            "wte.weight",
        ),
        (
            "backwards",
            offsets("ln_f.bias", [0, -200]),
            "bad-checkpoint",
            "ln_f.bias",
        ),
        ("a missing tensor", missing, "bad-checkpoint", "ln_f.bias"),
        (
            "shape",
            entry("wte.weight", "shape", json!([45, 257])),
            "bad-checkpoint",
            "wte.weight",
        ),
        (
            "dtype",
            entry("wte.weight", "dtype", json!("I32")),
            "bad-checkpoint",
            "wte.weight",
        ),
        ("NaN", nan, "bad-checkpoint", "wte.weight"),
        (
            "broken JSON",
            [&[9, 0, 0, 0, 0, 0, 0, 0], &b"{\"a\": [} "[..]].concat(),
            "bad-checkpoint",
            "model.safetensors",
        ),
        (
            "pointer",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".to_vec(),
            "bad-checkpoint",
            "Git LFS",
        ),
        (
            "page",
            b"<!DOCTYPE html><html></html>".to_vec(),
            "http",
            "page",
        ),
    ];
    for (what, file, code, word) in cases {
        let (got, message) = refusal(&gpu, &made.json, &file).await;
        assert_eq!(got, code, "{what}: {message}");
        assert!(message.contains(word), "{what}: {message}");
        assert_eq!(gpu.memory(), Memory::default(), "{what}");
    }
    for (config, code) in [
        (r#"{"model_type": "bert"}"#, "not-a-gpt2"),
        ("{", "bad-config"),
        (
            &made.json.replace("\"n_head\":3", "\"n_head\":4"),
            "bad-config",
        ),
    ] {
        assert_eq!(refusal(&gpu, config, file).await.0, code);
        assert_eq!(gpu.memory(), Memory::default(), "{code}");
    }
    // The device is as good as before.
    gpu.check().unwrap();
    let model = made.load(&gpu, Load::default()).await;
    assert_eq!(
        generate(&model, &[1, 2], Options::greedy(3))
            .await
            .new_tokens
            .len(),
        3
    );
}

/// A header of any length, and masks that are no weights and take no memory.
pub async fn odd_but_valid_files_load() {
    let gpu = gpu().await;
    let made = Made::new(json!({"n_layer": 1}));
    let before = gpu.counters().bytes_uploaded;
    let (want, memory, uploaded) = {
        let model = made.load(&gpu, Load::default()).await;
        let text = generate(&model, &[1, 2], Options::greedy(8))
            .await
            .new_tokens;
        let uploaded = gpu.counters().bytes_uploaded - before;
        (text, gpu.memory(), uploaded)
    };
    for spaces in [1, 2, 3] {
        let file = with_header(&made.file, spaces, |_| {});
        let files: &[(&str, &[u8])] = &[("model.safetensors", &file)];
        let model = load(&gpu, &made.json, files, Load::default())
            .await
            .unwrap();
        assert_eq!(
            generate(&model, &[1, 2], Options::greedy(8))
                .await
                .new_tokens,
            want,
            "{spaces}"
        );
    }
    let before = gpu.counters().bytes_uploaded;
    let mut masked = with_header(&made.file, 0, |header| {
        let end = header
            .as_object()
            .unwrap()
            .values()
            .filter_map(|entry| entry["data_offsets"][1].as_u64())
            .max()
            .unwrap();
        header["h.0.attn.bias"] =
            json!({"dtype": "U8", "shape": [1, 1, 64, 64], "data_offsets": [end, end + 4096]});
        header["h.0.attn.masked_bias"] =
            json!({"dtype": "F32", "shape": [], "data_offsets": [end + 4096, end + 4100]});
    });
    masked.extend([1; 4100]);
    let files: &[(&str, &[u8])] = &[("model.safetensors", &masked)];
    let model = load(&gpu, &made.json, files, Load::default())
        .await
        .unwrap();
    assert_eq!(
        generate(&model, &[1, 2], Options::greedy(8))
            .await
            .new_tokens,
        want
    );
    assert_eq!(gpu.memory(), memory);
    assert_eq!(gpu.counters().bytes_uploaded - before, uploaded);
}

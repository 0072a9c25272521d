//! Checkpoints that load: every value is where it belongs.

use half::{bf16, f16};
use proptest::prelude::*;

use super::*;

#[test]
fn every_value_arrives_in_every_dtype() {
    for config in [odd(), untied()] {
        for dtype in Dtype::ALL {
            for stored in [Stored::F32, Stored::F16, Stored::BF16] {
                let file = file(&entries(&config, "transformer.", stored));
                let (report, memory) = load(&config, dtype, &[&file], 1 << 20).unwrap();
                let layout = Layout::new(&config, dtype);
                assert_eq!(report.tied, config.tie_word_embeddings);
                assert!(report.ignored.is_empty() && report.warnings.is_empty());
                assert!(memory.targets().eq({
                    let mut targets = layout.targets();
                    targets.sort();
                    targets
                }));
                for target in layout.targets() {
                    assert_eq!(
                        memory.bytes(target).len() as u64,
                        layout.bytes(target),
                        "{target:?}"
                    );
                }
                for tensor in Tensor::required(&config) {
                    let in_file = values(&config, tensor)
                        .into_iter()
                        .map(|value| match stored {
                            Stored::F16 => f16::from_f32(value).to_f32(),
                            Stored::BF16 => bf16::from_f32(value).to_f32(),
                            _ => value,
                        });
                    let in_file: Vec<f32> = in_file.collect();
                    let expected = round_tensor(&layout, tensor, &in_file).unwrap();
                    assert_eq!(
                        memory.tensor(&layout, tensor),
                        expected,
                        "{tensor:?} {dtype}"
                    );
                    let allowed = match dtype {
                        Dtype::Fp32 => 0.0,
                        Dtype::Fp16 => 1.0 / 2048.0,
                        Dtype::Q8 => 0.502 / 127.0,
                    };
                    for (value, expected) in in_file.iter().zip(&expected) {
                        assert!(
                            (value - expected).abs() <= allowed,
                            "{tensor:?}: {value} became {expected}"
                        );
                    }
                }
            }
        }
    }
}

/// The words at a few places, worked out by hand from the definition in `layout`.
#[test]
fn words_lie_where_the_kernels_look_for_them() {
    let config = odd();
    let file = file(&entries(&config, "", Stored::F32));
    let (_, memory) = load(&config, Dtype::Fp32, &[&file], 1 << 20).unwrap();
    let float = |target, index: usize| {
        f32::from_le_bytes(memory.bytes(target)[4 * index..][..4].try_into().unwrap())
    };

    // c_attn: row 44, value 5 of head 1 of the keys; N = 3A = 144.
    let matrix = Tensor::Matrix {
        layer: 1,
        matrix: Matrix::CAttn,
    };
    let target = Target::Matrix {
        layer: 1,
        matrix: Matrix::CAttn,
    };
    assert_eq!(
        float(target, 44 * 144 + 48 + 16 + 5),
        values(&config, matrix)[44 * 135 + 45 + 15 + 5]
    );
    // The padding after head 1 of the keys.
    assert_eq!(float(target, 44 * 144 + 48 + 16 + 15), 0.0);

    // attn.c_proj: its in axis is padded per head; value 14 of head 2 is row 2 * 16 + 14 of N = 48.
    let matrix = Tensor::Matrix {
        layer: 0,
        matrix: Matrix::AttnProj,
    };
    let target = Target::Matrix {
        layer: 0,
        matrix: Matrix::AttnProj,
    };
    assert_eq!(
        float(target, (2 * 16 + 14) * 48 + 3),
        values(&config, matrix)[44 * 45 + 3]
    );

    // wte: row 256 is the first one of tile 1, value 7 of it is word (tile * Cp + 7) * 256 + 0.
    assert_eq!(
        float(Target::Wte, (48 + 7) * 256),
        values(&config, Tensor::Wte)[256 * 45 + 7]
    );

    // ln_2.bias follows ln_1 (2 x 48), c_attn.bias (144), c_proj.bias (48) and ln_2.weight (48).
    let param = Tensor::Param {
        layer: 1,
        param: Param::Ln2Bias,
    };
    assert_eq!(
        float(Target::Params { layer: 1 }, 336 + 44),
        values(&config, param)[44]
    );
}

#[test]
fn names_with_and_without_prefix_load_alike_and_masks_are_skipped() {
    let config = odd();
    let expected = load_one(&config, &entries(&config, "", Stored::F32)).unwrap();
    let prefixed = load_one(&config, &entries(&config, "transformer.", Stored::F32)).unwrap();
    assert!(prefixed == expected);
    let mut old = entries(&config, "transformer.", Stored::F32);
    for layer in 0..2 {
        old.push((
            format!("transformer.h.{layer}.attn.bias"),
            Stored::BOOL,
            vec![1, 1, 7, 7],
            vec![1; 49],
        ));
        let masked = encode(Stored::F32, &[-1e4]);
        old.push((
            format!("transformer.h.{layer}.attn.masked_bias"),
            Stored::F32,
            vec![],
            masked,
        ));
    }
    assert!(load_one(&config, &old).unwrap() == expected);
}

#[test]
fn types_may_be_mixed() {
    let config = odd();
    let types = [Stored::F32, Stored::F16, Stored::BF16];
    let entries: Vec<Entry> = Tensor::required(&config)
        .enumerate()
        .map(|(i, tensor)| entry(&config, tensor, "", types[i % 3]))
        .collect();
    let (_, memory) = load_one(&config, &entries).unwrap();
    let layout = Layout::new(&config, Dtype::Fp32);
    for tensor in Tensor::required(&config) {
        let pairs = memory
            .tensor(&layout, tensor)
            .into_iter()
            .zip(values(&config, tensor));
        assert!(
            pairs
                .into_iter()
                .all(|(got, value)| (got - value).abs() <= value.abs() / 256.0)
        );
    }
}

#[test]
fn shards_come_in_any_order() {
    let config = odd();
    let all = entries(&config, "", Stored::F32);
    let expected = load_one(&config, &all).unwrap();
    let shards: Vec<Vec<u8>> = all.chunks(11).map(file).collect();
    let mut files: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
    for _ in 0..files.len() {
        files.rotate_left(1);
        assert!(load(&config, Dtype::Fp32, &files, 100).unwrap() == expected);
    }
    let message = refusal(load(&config, Dtype::Fp32, &files[1..], 100));
    assert!(message.contains("has no tensor"), "{message}");
    let message = refusal(load(&config, Dtype::Fp32, &[files[0], files[0]], 100));
    assert!(message.contains("which 0.safetensors has too"), "{message}");
}

#[test]
fn tensors_that_are_no_part_of_the_model_are_listed() {
    let config = odd();
    let mut all = entries(&config, "transformer.", Stored::F32);
    let expected = load_one(&config, &all).unwrap().1;
    for name in ["v_head.weight", "transformer.h.2.ln_1.weight", "a"] {
        all.push((name.into(), Stored::I64, vec![3], vec![9; 24]));
    }
    let (report, memory) = load_one(&config, &all).unwrap();
    assert_eq!(
        report.ignored,
        ["a", "transformer.h.2.ln_1.weight", "v_head.weight"]
    );
    assert!(memory == expected);
}

#[test]
fn the_head_is_tied_as_in_transformers() {
    let tied = odd();
    let layout = Layout::new(&tied, Dtype::Fp32);
    let wte = values(&tied, Tensor::Wte);
    let without: Vec<Entry> = entries(&tied, "transformer.", Stored::F32);
    let head = |values: &[f32]| -> Entry {
        (
            "lm_head.weight".into(),
            Stored::F32,
            Tensor::LmHead.shape(&tied),
            encode(Stored::F32, values),
        )
    };

    let equal = [without.clone(), vec![head(&wte)]].concat();
    assert!(load_one(&tied, &equal).unwrap().0.tied);

    let own = values(&tied, Tensor::LmHead);
    let different = [without.clone(), vec![head(&own)]].concat();
    let (report, memory) = load_one(&tied, &different).unwrap();
    assert!(!report.tied && report.warnings.len() == 1);
    assert_eq!(memory.tensor(&layout, Tensor::LmHead), own);
    assert_eq!(memory.tensor(&layout, Tensor::Wte), wte);

    let instead: Vec<Entry> = different
        .iter()
        .filter(|entry| !entry.0.ends_with("wte.weight"))
        .cloned()
        .collect();
    let (report, memory) = load_one(&tied, &instead).unwrap();
    assert!(report.tied && memory.bytes(Target::LmHead).is_empty());
    assert_eq!(memory.tensor(&layout, Tensor::Wte), own);

    // Shards in which the head comes before wte.
    let [head_file, rest] = [file(&[head(&own)]), file(&without)];
    let message = refusal(load(&tied, Dtype::Fp32, &[&head_file, &rest], 1 << 20));
    assert!(message.contains("tie_word_embeddings"), "{message}");
    assert!(
        !load(&tied, Dtype::Fp32, &[&rest, &head_file], 1 << 20)
            .unwrap()
            .0
            .tied
    );
    let head_file = file(&[head(&wte)]);
    assert!(
        load(&tied, Dtype::Fp32, &[&head_file, &rest], 1 << 20)
            .unwrap()
            .0
            .tied
    );

    let untied = untied();
    let mut all = entries(&untied, "transformer.", Stored::F32);
    all.retain(|entry| entry.0 != "lm_head.weight");
    let message = refusal(load_one(&untied, &all));
    assert!(
        message.contains("\"lm_head.weight\": config.json sets tie_word_embeddings to false"),
        "{message}"
    );
}

#[test]
fn a_made_checkpoint_loads() {
    let config = untied();
    let mut file = Vec::new();
    make::write_safetensors(&config, 5, &mut file).unwrap();
    let (report, memory) = load(&config, Dtype::Fp32, &[&file], 4096).unwrap();
    assert!(report.ignored.is_empty() && !report.tied);
    let layout = Layout::new(&config, Dtype::Fp32);
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    for tensor in [Tensor::LmHead, Tensor::Wpe] {
        let prefix = if tensor == Tensor::Wpe {
            "transformer."
        } else {
            ""
        };
        let in_file = tensors
            .tensor(&format!("{prefix}{}", tensor.name()))
            .unwrap();
        assert_eq!(
            encode(Stored::F32, &memory.tensor(&layout, tensor)),
            in_file.data()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Where the file is cut into pieces makes no difference.
    #[test]
    fn pieces_of_any_size_give_the_same(sizes in prop::collection::vec(1usize..9000, 1..20), dtype in 0usize..3) {
        let (config, dtype) = (odd(), Dtype::ALL[dtype]);
        let file = file(&entries(&config, "", Stored::F32));
        let expected = load(&config, dtype, &[&file], usize::MAX).unwrap();
        let mut memory = Memory::default();
        let mut loader = Loader::new(&config, dtype);
        loader.begin_file("a", Some(file.len() as u64)).unwrap();
        let (mut rest, mut sizes) = (&file[..], sizes.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            loader.push(piece, &mut memory).unwrap();
            rest = after;
        }
        loader.end_file().unwrap();
        prop_assert!((loader.finish().unwrap(), memory) == expected);
    }

    /// Any shape: what was loaded is what was in the file.
    #[test]
    fn any_shape_loads(heads in 1usize..5, d in 1usize..20, f in 1usize..140, v in 1usize..600, dtype in 0usize..3) {
        let config = config(&format!(
            r#"{{"n_layer": 1, "n_head": {heads}, "n_embd": {}, "n_inner": {f}, "n_positions": 3, "vocab_size": {v}}}"#,
            heads * d
        ));
        let layout = Layout::new(&config, Dtype::ALL[dtype]);
        let file = file(&entries(&config, "", Stored::F32));
        let (_, memory) = load(&config, layout.dtype(), &[&file], 777).unwrap();
        for tensor in Tensor::required(&config) {
            let loaded = memory.tensor(&layout, tensor);
            prop_assert_eq!(loaded.len(), values(&config, tensor).len());
            for (loaded, value) in loaded.iter().zip(values(&config, tensor)) {
                prop_assert!((loaded - value).abs() <= 0.502 / 127.0, "{tensor:?}: {value} became {loaded}");
            }
        }
    }
}

#[test]
fn one_byte_at_a_time() {
    let config = odd();
    let file = file(&entries(&config, "", Stored::F16));
    let expected = load(&config, Dtype::Fp32, &[&file], usize::MAX).unwrap();
    assert!(load(&config, Dtype::Fp32, &[&file], 1).unwrap() == expected);
}

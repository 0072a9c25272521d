//! Checkpoints that are refused, each with one sentence.

use proptest::prelude::*;

use super::*;

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let config = odd();
    let all = entries(&config, "", Stored::F32);
    let with = |name: &str, change: &dyn Fn(&mut Entry)| {
        let mut all = all.clone();
        change(all.iter_mut().find(|entry| entry.0 == name).unwrap());
        refusal(load_one(&config, &all))
    };
    let cases = [
        (
            with("wpe.weight", &|e| e.0 = "wpe".into()),
            "has no tensor \"wpe.weight\"",
        ),
        (
            with("wte.weight", &|e| e.0 = "transformer.wte.weight".into()),
            "unclear which",
        ),
        (
            with("ln_f.bias", &|e| e.1 = Stored::I32),
            "\"ln_f.bias\" with values of type \"I32\"",
        ),
        (
            with("wpe.weight", &|e| e.2.reverse()),
            "\"wpe.weight\" with shape [45, 7], but config.json makes it [7, 45]",
        ),
        (
            with("h.0.mlp.c_fc.weight", &|e| e.2.reverse()),
            "looks transposed",
        ),
        (
            with("h.1.ln_1.bias", &|e| e.2 = vec![1, 45]),
            "\"h.1.ln_1.bias\" with shape [1, 45]",
        ),
    ];
    for (message, words) in cases {
        assert!(message.contains(words), "{message}");
    }
    let strangers: Vec<Entry> = all
        .iter()
        .map(|e| (format!("module.{}", e.0), e.1, e.2.clone(), e.3.clone()))
        .collect();
    let message = refusal(load_one(&config, &strangers));
    assert!(
        message.contains("\"wte.weight\" and 27 more: it has other names, such as"),
        "{message}"
    );
}

#[test]
fn values_out_of_range_are_refused_where_they_are() {
    let config = odd();
    let with = |dtype, tensor: Tensor, index: usize, stored: Stored, value: f32| {
        let mut all = entries(&config, "", Stored::F32);
        let mut changed = values(&config, tensor);
        changed[index] = value;
        let entry = all
            .iter_mut()
            .find(|entry| entry.0 == tensor.name())
            .unwrap();
        (entry.1, entry.3) = (stored, encode(stored, &changed));
        load(&config, dtype, &[&file(&all)], 1 << 20)
    };
    let matrix = Tensor::Matrix {
        layer: 1,
        matrix: Matrix::CAttn,
    };
    for (stored, value, shown) in [
        (Stored::F32, f32::NAN, "NaN"),
        (Stored::F16, f32::INFINITY, "inf"),
        (Stored::BF16, f32::NEG_INFINITY, "-inf"),
    ] {
        let message = refusal(with(Dtype::Fp32, matrix, 44 * 135 + 134, stored, value));
        let words =
            format!("has {shown} in tensor \"h.1.attn.c_attn.weight\" at row 44, column 134");
        assert!(message.contains(&words), "{message}");
    }
    let message = refusal(with(
        Dtype::Q8,
        Tensor::Wte,
        256 * 45,
        Stored::F32,
        f32::NAN,
    ));
    assert!(
        message.contains("\"wte.weight\" at row 256, column 0"),
        "{message}"
    );

    // fp16 holds less than f32; vectors stay f32.
    let message = refusal(with(Dtype::Fp16, Tensor::Wte, 0, Stored::F32, 70_000.0));
    assert!(
        message.contains("has 70000 in tensor") && message.contains("dtype fp32"),
        "{message}"
    );
    assert!(with(Dtype::Fp32, Tensor::Wte, 0, Stored::F32, 70_000.0).is_ok());
    assert!(with(Dtype::Q8, Tensor::Wte, 0, Stored::F32, 70_000.0).is_ok());
    assert!(with(Dtype::Fp16, Tensor::LnFBias, 0, Stored::F32, 70_000.0).is_ok());
}

#[test]
fn files_that_end_too_early_or_go_on_are_refused_with_both_numbers() {
    let config = odd();
    let file = file(&entries(&config, "", Stored::F32));
    let whole = file.len();
    for cut in [0, 5, 8, 9, 100, 3000, whole / 2, whole - 1] {
        let message = refusal(load(&config, Dtype::Fp32, &[&file[..cut]], 1000));
        assert!(
            message.contains("is cut short") && message.contains(&format!("has {cut} bytes")),
            "{message}"
        );
        if cut > 5000 {
            assert!(message.contains(&whole.to_string()), "{message}");
        }
    }
    let mut long = file.clone();
    long.push(0);
    let message = refusal(load(&config, Dtype::Fp32, &[&long], 1000));
    assert!(
        message.contains(&format!("goes on after the {whole} bytes")),
        "{message}"
    );
}

#[test]
fn a_known_size_tells_early() {
    let config = odd();
    let file = file(&entries(&config, "", Stored::F32));
    let push = |bytes: u64, upto: usize| {
        let mut loader = Loader::new(&config, Dtype::Fp32);
        loader.begin_file("a", Some(bytes))?;
        loader.push(&file[..upto], &mut Memory::default())
    };
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    assert!(push(file.len() as u64, header).is_ok());
    assert!(refusal(push(100, 9)).contains("the whole file has 100"));
    assert!(refusal(push(file.len() as u64 - 4, header)).contains("is cut short"));
    assert!(refusal(push(file.len() as u64 + 4, header)).contains("4 more than"));
}

#[test]
fn other_files_are_recognised_in_pieces_of_any_size() {
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 548105171\n";
    let html = b"<!DOCTYPE html>\n<html><head><title>Not found</title></head><body></body></html>";
    for chunk in [1, 7, 1000] {
        let message = refusal(load(&odd(), Dtype::Fp32, &[lfs], chunk));
        assert!(
            message.starts_with("0.safetensors is a Git LFS pointer"),
            "{message}"
        );
        assert_eq!(
            load(&odd(), Dtype::Fp32, &[html], chunk)
                .unwrap_err()
                .code(),
            "http"
        );
        for length in [0u64, 1, 1 << 40, u64::MAX] {
            let bytes = [&length.to_le_bytes()[..], b"{}{}{}"].concat();
            let message = refusal(load(&odd(), Dtype::Fp32, &[&bytes], chunk));
            assert!(
                message.contains(&format!("would have {length} bytes")),
                "{message}"
            );
        }
        // With this length gzip could be taken for a header; its ninth byte is never a brace.
        let message = refusal(load(
            &odd(),
            Dtype::Fp32,
            &[b"\x1f\x8b\x08\0\0\0\0\0\x02\x03abc"],
            chunk,
        ));
        assert!(message.contains("gzip"), "{message}");
    }
}

#[test]
fn calls_in_the_wrong_order_are_errors() {
    let config = odd();
    let memory = &mut Memory::default();
    let mut loader = Loader::new(&config, Dtype::Fp32);
    assert_eq!(loader.push(&[0], memory).unwrap_err().code(), "internal");
    assert_eq!(loader.end_file().unwrap_err().code(), "internal");
    loader.begin_file("a", None).unwrap();
    assert_eq!(loader.begin_file("b", None).unwrap_err().code(), "internal");
    // After a failure nothing goes on.
    assert_eq!(loader.push(&[b'<'; 80], memory).unwrap_err().code(), "http");
    assert_eq!(loader.push(&[0], memory).unwrap_err().code(), "internal");
    assert_eq!(loader.finish().unwrap_err().code(), "bad-checkpoint");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Damage anywhere, in the header above all, ends in an error or in a model, never in a panic.
    #[test]
    fn damaged_bytes_never_panic(
        damage in prop::collection::vec((0usize..2500, any::<u8>()), 1..4),
        cut in 0usize..400_000,
        chunk in 1usize..5000,
    ) {
        let config = untied();
        let mut file = file(&entries(&config, "", Stored::F32));
        file.truncate(cut.max(1));
        for (at, byte) in damage {
            let at = at % file.len();
            file[at] = byte;
        }
        let _ = load(&config, Dtype::Q8, &[&file], chunk);
    }
}

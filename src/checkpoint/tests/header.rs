//! The header on its own, and against the `safetensors` crate.

use proptest::prelude::*;
use safetensors::SafeTensors;
use serde_json::json;

use super::super::header::Header;
use crate::error::Result;

fn parse(json: &serde_json::Value) -> Result<Header> {
    Header::parse("a.safetensors", json.to_string().as_bytes(), None)
}

/// A header of one tensor "t".
fn one(dtype: &str, shape: &[u64], begin: u64, end: u64) -> serde_json::Value {
    json!({"t": {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}})
}

#[test]
fn tensors_come_in_the_order_of_their_bytes() {
    let header = parse(&json!({
        "__metadata__": {"format": "pt", "deep": [[{}]]},
        "b": {"dtype": "F16", "shape": [2, 3], "data_offsets": [4, 16], "more": 1},
        "c": {"dtype": "F32", "shape": [0, 7], "data_offsets": [4, 4]},
        "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
    }))
    .unwrap();
    let names: Vec<&str> = header
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names, ["a", "c", "b"]);
    assert_eq!(header.data_bytes, 16);
    assert_eq!(header.entries[2].shape, [2, 3]);
}

#[test]
fn offsets_beyond_four_gigabytes_are_valid() {
    let big = 6_400_000_000;
    let header = parse(&json!({
        "a": {"dtype": "F32", "shape": [1_600_000, 1_000], "data_offsets": [0, big]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [big, big + 4]},
    }))
    .unwrap();
    assert_eq!(header.entries[1].begin, big);
    assert_eq!(header.data_bytes, big + 4);
}

#[test]
fn a_type_that_is_not_known_can_be_skipped() {
    assert_eq!(parse(&one("F5_E9", &[3], 0, 2)).unwrap().data_bytes, 2);
}

#[test]
fn each_defect_is_one_sentence_with_its_numbers() {
    let huge = u64::MAX;
    for (header, words) in [
        (one("F32", &[2], 0, 4), "4 bytes"),
        (one("F32", &[huge, huge], 0, 4), "4 bytes"),
        (one("U8", &[huge], 0, huge), "no file has"),
        (one("F4", &[3], 0, 2), "2 bytes"),
        (one("F32", &[1], 4, 8), "leaves a gap after byte 0"),
        (one("F32", &[1], 8, 4), "ends before it begins"),
        (
            json!({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                   "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}),
            "bytes 4..8, which overlaps the tensor before it, which ends at byte 8",
        ),
        (json!([]), "broken header"),
        (json!({"t": 1}), "broken header"),
        (
            json!({"t": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}),
            "broken header",
        ),
        (
            json!({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1.5]}}),
            "broken header",
        ),
    ] {
        let error = parse(&header).unwrap_err();
        assert_eq!(error.code(), "bad-checkpoint");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().starts_with("a.safetensors "), "{error}");
    }
    let twice = r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let error = Header::parse("a", twice.as_bytes(), None).unwrap_err();
    assert!(error.to_string().contains("\"t\" comes twice"), "{error}");
}

#[test]
fn the_size_of_the_file_is_compared_with_the_header() {
    let json = one("F32", &[1], 0, 4).to_string();
    let whole = 8 + json.len() as u64 + 4;
    let parse = |bytes| Header::parse("a", json.as_bytes(), Some(bytes));
    assert!(parse(whole).is_ok());
    let short = parse(whole - 1).unwrap_err().to_string();
    assert!(
        short.contains(&format!(
            "has {} bytes, and its header describes {whole}",
            whole - 1
        )),
        "{short}"
    );
    let long = parse(whole + 3).unwrap_err().to_string();
    assert!(
        long.contains(&format!("has {} bytes, 3 more than the {whole}", whole + 3)),
        "{long}"
    );
    assert!(Header::check_length("a", 10, Some(17)).is_err());
    assert!(Header::check_length("a", 10, Some(18)).is_ok());
}

proptest! {
    /// The `safetensors` crate reads the same bytes and comes to the same verdict.
    #[test]
    fn agrees_with_the_safetensors_crate(
        tensors in prop::collection::vec((0usize..3, prop::collection::vec(0u64..4, 0..3), 0u64..60), 0..6),
        defect in 0u64..40,
        trailing in 0usize..8,
    ) {
        let (mut header, mut end) = (serde_json::Map::new(), 0);
        for (i, (dtype, shape, noise)) in tensors.iter().enumerate() {
            let (dtype, size) = [("F32", 4), ("BF16", 2), ("BOOL", 1)][*dtype];
            let begin = if *noise == defect { end + 1 } else { end };
            end = begin + size * shape.iter().product::<u64>() + u64::from(*noise == defect + 1);
            header.insert(
                // Names in another order than offsets.
                format!("{}", 7 * i % 5 + 10 * i % 3),
                json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}),
            );
        }
        let json = serde_json::Value::Object(header).to_string();
        let mut file = (json.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(json.as_bytes());
        file.resize(file.len() + end as usize, 0);
        file.resize((file.len() + 1).saturating_sub(trailing.min(2)), 0);

        let ours = Header::parse("a", json.as_bytes(), Some(file.len() as u64));
        match SafeTensors::deserialize(&file) {
            Ok(theirs) => {
                let ours = ours.unwrap();
                prop_assert_eq!(ours.entries.len(), theirs.len());
                for entry in &ours.entries {
                    let view = theirs.tensor(&entry.name).unwrap();
                    let bytes = &file[8 + json.len()..][entry.begin as usize..entry.end as usize];
                    prop_assert_eq!(view.data(), bytes);
                    prop_assert_eq!(view.dtype().to_string(), entry.dtype.clone());
                    prop_assert!(view.shape().iter().map(|n| *n as u64).eq(entry.shape.iter().copied()));
                }
            }
            Err(theirs) => prop_assert!(ours.is_err(), "{theirs:?}"),
        }
    }

    #[test]
    fn no_bytes_make_it_panic(json in "[{}\\[\\]\":,a-f0-9.-]{0,60}") {
        let _ = Header::parse("a", json.as_bytes(), Some(100));
    }
}

//! The tokenizer against texts with published ids, and what must hold for any text and any ids.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::HashSet;
use std::rc::Rc;

use gpt2_webgpu::error::Error;
use gpt2_webgpu::tokenizer::{Detokenizer, MAX_TEXT_BYTES, Token, Tokenizer};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

thread_local! {
    static GPT2: Rc<Tokenizer> = Rc::new(Tokenizer::from_json(&gpt2_file()).expect("the bundled tokenizer loads"));
}

fn gpt2() -> Rc<Tokenizer> {
    GPT2.with(Rc::clone)
}

fn gpt2_file() -> Vec<u8> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/www/models/tiny/tokenizer.json"
    );
    std::fs::read(path).expect("the bundled model has a tokenizer")
}

/// A small tokenizer.json: all 256 bytes, `th`, ` th` and the end of text.
fn small_file() -> Value {
    let alphabet = (b'!'..=b'~')
        .chain(0xA1..=0xAC)
        .chain(0xAE..=0xFF)
        .map(char::from);
    let letters = alphabet.chain('\u{100}'..='\u{143}').map(String::from);
    let tokens = letters.chain(["th", "Ġth", "<|endoftext|>"].map(String::from));
    let vocab: Value = tokens
        .zip(0..)
        .map(|(token, id)| (token, json!(id)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    json!({
        "version": "1.0",
        "added_tokens": [added("<|endoftext|>", 258, true)],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["t", "h"], ["Ġ", "th"]]}
    })
}

fn added(content: &str, id: u32, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": special})
}

fn load(file: &Value) -> Result<Tokenizer, Error> {
    Tokenizer::from_json(file.to_string().as_bytes())
}

/// The message of a file that must be refused as a bad tokenizer.
fn refusal(file: &[u8]) -> String {
    match Tokenizer::from_json(file) {
        Err(error @ Error::BadTokenizer(_)) => error.to_string(),
        Err(error) => panic!("refused with the wrong code: {error:?}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn published_ids() {
    #[derive(Deserialize)]
    struct Case {
        text: String,
        ids: Vec<u32>,
        source: String,
    }
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("fixtures/tokenization.json")).expect("fixture");
    assert!(cases.len() >= 90);
    for Case { text, ids, source } in cases {
        assert_eq!(
            gpt2().encode(&text).expect("encodes"),
            ids,
            "{text:?} from {source}"
        );
        assert_eq!(gpt2().decode(&ids, false), text, "{text:?} from {source}");
    }
}

/// Start, end, text of each token.
fn spans(text: &str) -> Vec<(usize, usize, String)> {
    let tokens = gpt2().tokens(text).expect("encodes");
    tokens
        .into_iter()
        .map(|token| (token.start, token.end, token.text))
        .collect()
}

#[test]
fn spans_are_utf16_and_shared_by_the_parts_of_a_character() {
    let arrow = (1, 3, " ⭢".to_owned());
    let rest = (2, 3, "⭢".to_owned());
    assert_eq!(
        spans("i ⭢ j 👋 k"),
        [
            (0, 1, "i".to_owned()),
            arrow,
            rest.clone(),
            rest,
            (3, 5, " j".to_owned()),
            (5, 8, " 👋".to_owned()),
            (6, 8, "👋".to_owned()),
            (8, 10, " k".to_owned()),
        ]
    );
    let bytes: Vec<Vec<u8>> = gpt2()
        .tokens(" 👋")
        .expect("encodes")
        .into_iter()
        .map(|token| token.bytes)
        .collect();
    assert_eq!(bytes, [vec![0x20, 0xF0, 0x9F, 0x91], vec![0x8B]]);
}

#[test]
fn the_text_of_a_special_token_becomes_that_token_visibly() {
    let tokens = gpt2().tokens("hello<|endoftext|>world").expect("encodes");
    let seen: Vec<(u32, bool)> = tokens
        .iter()
        .map(|token| (token.id, token.special))
        .collect();
    assert_eq!(seen, [(31373, false), (50256, true), (6894, false)]);
    assert_eq!(
        (tokens[1].start, tokens[1].end, tokens[1].text.as_str()),
        (5, 18, "<|endoftext|>")
    );
    assert_eq!(gpt2().decode(&[31373, 50256, 6894], true), "helloworld");
    assert_eq!(
        gpt2().decode(&[31373, 50256, 6894], false),
        "hello<|endoftext|>world"
    );
}

#[test]
fn what_the_file_says_about_prefixes_and_truncation_changes_nothing() {
    let mut file = small_file();
    let plain = load(&file).expect("loads");
    file["pre_tokenizer"]["add_prefix_space"] = json!(true);
    file["truncation"] =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    file["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "!"});
    let eager = load(&file).expect("loads");
    assert_eq!(
        eager.encode("the the").expect("encodes"),
        plain.encode("the the").expect("encodes")
    );
    let in_sequence = json!({"type": "Sequence", "pretokenizers": [file["pre_tokenizer"].clone()]});
    file["pre_tokenizer"] = in_sequence;
    let nested = load(&file).expect("loads");
    assert_eq!(
        nested.encode("the the").expect("encodes"),
        [256, 68, 257, 68]
    );
}

#[test]
fn merges_are_strings_or_pairs_and_the_old_files_say_the_same() {
    let mut file = small_file();
    let pairs = load(&file).expect("pairs load");
    file["model"]["merges"] = json!(["t h", "Ġ th"]);
    let strings = load(&file).expect("strings load");
    let vocab = file["model"]["vocab"].to_string();
    let old =
        Tokenizer::from_vocab_and_merges(vocab.as_bytes(), "#version: 0.2\nt h\nĠ th\n".as_bytes())
            .expect("old files load");
    for text in ["the th<|endoftext|> # x", "#version: 0.2"] {
        let expected = pairs.tokens(text).expect("encodes");
        assert_eq!(strings.tokens(text).expect("encodes"), expected);
        assert_eq!(old.tokens(text).expect("encodes"), expected);
    }
}

#[test]
fn added_tokens_leave_the_spaces_of_their_neighbours() {
    let mut file: Value = serde_json::from_slice(&gpt2_file()).expect("JSON");
    file["added_tokens"]
        .as_array_mut()
        .expect("a list")
        .push(added("dignums", 50257, false));
    let tokenizer = load(&file).expect("loads");
    let text = "my value in dignums dollars";
    assert_eq!(
        tokenizer.encode(text).expect("encodes"),
        [1820, 1988, 287, 220, 50257, 5054]
    );
    assert_eq!(
        tokenizer.decode(&[1820, 1988, 287, 220, 50257, 5054], true),
        text
    );
    assert_eq!(tokenizer.vocab_size(), 50258);
}

#[test]
fn an_added_token_keeps_the_id_and_the_letters_of_the_file() {
    let mut file = small_file();
    let tokens = [
        added("<|endoftext|>", 258, true),
        added("café", 300, false),
        added("naïve", 280, false),
    ];
    file["added_tokens"] = json!(tokens);
    let tokenizer = load(&file).expect("loads");
    assert_eq!(tokenizer.encode("naïvecafé").expect("encodes"), [280, 300]);
    assert_eq!(tokenizer.decode(&[280, 300], false), "naïvecafé");
    assert_eq!(
        (tokenizer.vocab_size(), tokenizer.bytes_of(290)),
        (301, vec![])
    );
    file["added_tokens"] = json!([added("th", 300, false)]);
    assert!(refusal(file.to_string().as_bytes()).contains("\"th\" has two ids, 256"));
}

#[test]
fn long_texts_without_a_place_to_split() {
    assert_eq!(
        gpt2().encode(&"a".repeat(100_000)).expect("encodes").len(),
        25_000
    );
    assert_eq!(
        gpt2()
            .encode(&"^".repeat(1_000_000))
            .expect("encodes")
            .len(),
        250_000
    );
    for unit in [" ", "\n", "'", "\u{3000}", "é", "👋"] {
        let text = unit.repeat(300_000 / unit.len()) + "x";
        let ids = gpt2().encode(&text).expect("encodes");
        assert_eq!(gpt2().decode(&ids, false), text);
    }
    let refused = gpt2().encode(&"a".repeat(MAX_TEXT_BYTES + 1));
    assert!(
        matches!(refused, Err(Error::PromptTooLong(message)) if message.contains("4194305 bytes"))
    );
}

#[test]
fn unknown_ids_have_no_bytes() {
    assert_eq!(gpt2().vocab_size(), 50257);
    assert_eq!(
        (gpt2().bytes_of(50257), gpt2().text_of(u32::MAX)),
        (vec![], String::new())
    );
    assert_eq!(gpt2().decode(&[31373, 50257, 995], false), "hello world");
}

#[test]
fn refusals_say_what_the_file_is() {
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1355256\n";
    assert!(refusal(lfs).contains("Git LFS"));
    assert!(refusal(b"<!DOCTYPE html><title>404</title>").contains("web page"));
    assert!(refusal(b"").contains("empty"));
    assert!(refusal(b"\xff\xfe{}").contains("not text"));
    assert!(refusal(br#"{"model_type": "gpt2", "vocab_size": 50257}"#).contains("config.json"));
    assert!(refusal(br#"{"architectures": []}"#).contains("no \"model\""));
    let broken = &gpt2_file()[..700_000];
    assert!(refusal(broken).contains("EOF"), "{}", refusal(broken));
    assert!(refusal(b"[]").contains("tokenizer.json cannot be used"));
}

#[test]
fn refusals_say_what_is_wrong_inside() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut file = small_file();
        change(&mut file);
        refusal(file.to_string().as_bytes())
    };
    let cases = [
        (
            changed(&|file| file["model"]["type"] = json!("WordPiece")),
            "WordPiece",
        ),
        (
            changed(&|file| file["model"]["merges"] = json!([1, 2])),
            "a merge: \"a b\" or",
        ),
        (
            changed(&|file| file["model"]["merges"] = json!(["t h x"])),
            "t h x",
        ),
        (
            changed(&|file| file["model"]["merges"] = json!([["t"]])),
            "exactly two tokens",
        ),
        // The crate itself panics on a merge that is longer than every token.
        (
            changed(&|file| file["model"]["merges"] = json!([["<|endoftext|>", "th"]])),
            "<|endoftext|>th",
        ),
        (
            changed(&|file| file["model"]["vocab"]["t"] = json!(7)),
            "the id 7",
        ),
        (
            changed(&|file| file["model"]["vocab"]["t"] = json!(4_000_000_000_u32)),
            "4000000000",
        ),
        (
            changed(&|file| file["model"]["vocab"] = json!({})),
            "needs the token \"t\"",
        ),
        (
            changed(&|file| file["model"]["vocab"] = json!("x")),
            "expected a map",
        ),
        (
            changed(&|file| file["model"]["end_of_word_suffix"] = json!("</w>")),
            "suffix",
        ),
        (
            changed(&|file| file["pre_tokenizer"] = json!({"type": "Whitespace"})),
            "ByteLevel",
        ),
        (
            changed(&|file| file["pre_tokenizer"] = Value::Null),
            "ByteLevel",
        ),
        (
            changed(&|file| file["normalizer"] = json!({"type": "Strange"})),
            "normalizer",
        ),
        (
            changed(&|file| file["added_tokens"] = json!([{"id": 1}])),
            "content",
        ),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{expected:?} not in: {message}");
    }
    let merges = Tokenizer::from_vocab_and_merges(b"{\"a\": 0}", b"#version: 0.2\na\n");
    assert!(
        matches!(merges, Err(Error::BadTokenizer(message)) if message.contains("line 2 is \"a\""))
    );
}

#[test]
fn a_vocabulary_without_a_byte_says_so_when_it_is_needed() {
    let mut file = small_file();
    file["model"]["vocab"]
        .as_object_mut()
        .expect("a map")
        .remove("Ã");
    let tokenizer = load(&file).expect("loads");
    assert_eq!(tokenizer.encode("th").expect("encodes"), [256]);
    let refused = tokenizer.encode("é");
    assert!(
        matches!(refused, Err(Error::BadTokenizer(message)) if message.contains("'é'") && message.contains("0xC3"))
    );
}

#[test]
fn a_streamed_character_waits_for_its_last_byte() {
    let mut stream = Detokenizer::new(gpt2(), false);
    let pieces = [31373, 50169, 233].map(|id| stream.push(id));
    assert_eq!(
        pieces.each_ref().map(|piece| piece.text.as_str()),
        ["hello", " ", "👋"]
    );
    assert_eq!(pieces[1].bytes, [0x20, 0xF0, 0x9F, 0x91]);
    assert_eq!(pieces[1].pending_bytes, [0xF0, 0x9F, 0x91]);
    assert_eq!(
        (pieces[2].pending_bytes.as_slice(), stream.finish()),
        ([].as_slice(), String::new())
    );
}

#[test]
fn every_letter_appears_in_its_own_step() {
    let mut stream = Detokenizer::new(gpt2(), false);
    let ids: Vec<u32> = "abcdefghij"
        .chars()
        .flat_map(|letter| gpt2().encode(&letter.to_string()).expect("encodes"))
        .collect();
    let texts: Vec<String> = ids.into_iter().map(|id| stream.push(id).text).collect();
    assert_eq!(texts.concat(), "abcdefghij");
    assert_eq!(texts.len(), 10);
}

/// Joins a stream that ends after the last id.
fn streamed(ids: &[u32], skip_special_tokens: bool) -> String {
    let mut stream = Detokenizer::new(gpt2(), skip_special_tokens);
    let texts: Vec<String> = ids.iter().map(|&id| stream.push(id).text).collect();
    texts.concat() + &stream.finish()
}

/// Ids that often cut characters: single bytes, parts of emoji, special and unknown ids, anything.
fn any_id() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 94_u32..256,
        1 => prop::sample::select(vec![50169, 233, 8582, 12520, 447, 50256, 50257, u32::MAX]),
        2 => 0_u32..50_300,
    ]
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(text in any::<String>()) {
        let ids = gpt2().encode(&text).expect("encodes");
        prop_assert_eq!(gpt2().decode(&ids, false), text.clone());
        prop_assert!(ids.len() >= gpt2().at_least(&text));
    }

    #[test]
    fn tokens_cover_the_text(text in "(?s)[a-z ⭢👋é'\n]{0,40}") {
        let tokens = gpt2().tokens(&text).expect("encodes");
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.bytes.clone()).collect();
        prop_assert_eq!(bytes, text.as_bytes());
        let units: Vec<u16> = text.encode_utf16().collect();
        let covered: HashSet<usize> = tokens.iter().flat_map(|token| token.start..token.end).collect();
        prop_assert_eq!(covered.len(), units.len());
        for Token { text: part, start, end, .. } in tokens {
            prop_assert_eq!(String::from_utf16(&units[start..end]).expect("no character is cut"), part);
        }
    }

    #[test]
    fn streaming_equals_decoding(ids in prop::collection::vec(any_id(), 0..30), skip in any::<bool>()) {
        prop_assert_eq!(streamed(&ids, skip), gpt2().decode(&ids, skip));
    }
}

//! The options of `generate`: defaults, ranges, and what a wrong value is told.
#![cfg(not(target_arch = "wasm32"))]

use gpt2_webgpu::config::Config;
use gpt2_webgpu::error::Error;
use gpt2_webgpu::sampling::OptionValue::{self, Bool, List, Null, Number, Other, Text, TextList};
use gpt2_webgpu::sampling::{Options, SamplingUniform};

fn config() -> Config {
    let text = r#"{"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 4, "n_positions": 16, "vocab_size": 257,
                   "eos_token_id": 256}"#;
    Config::from_json(text).expect("a small config")
}

fn options(entries: &[(&str, OptionValue)]) -> Result<Options, Error> {
    let entries = entries
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    Options::from_entries(entries, &config())
}

fn accepted(entries: &[(&str, OptionValue)]) -> Options {
    options(entries).expect("accepted")
}

fn refusal(name: &str, value: OptionValue) -> String {
    match options(&[(name, value.clone())]) {
        Err(error @ Error::BadOption(_)) => error.to_string(),
        other => panic!("{name} = {value} gave {other:?}"),
    }
}

fn text(value: &str) -> OptionValue {
    Text(value.to_owned())
}

#[test]
fn defaults_are_those_of_transformers() {
    let options = accepted(&[]);
    let expected = Options {
        eos_token_id: vec![256],
        ..Options::greedy(20)
    };
    assert_eq!(options, expected);
    assert_eq!(
        (
            options.do_sample,
            options.temperature,
            options.top_k,
            options.top_p
        ),
        (false, 1.0, 50, 1.0)
    );
    assert_eq!(
        (
            options.repetition_penalty,
            options.use_cache,
            options.max_in_flight
        ),
        (1.0, true, 4)
    );
}

#[test]
fn values_at_the_ends_of_their_ranges() {
    let options = accepted(&[
        ("max_new_tokens", Number(1.0)),
        ("do_sample", Bool(true)),
        ("temperature", Number(1e-6)),
        ("top_k", Number(0.0)),
        ("top_p", Number(0.0)),
        ("repetition_penalty", Number(1.2)),
        ("seed", Number(9_007_199_254_740_991.0)),
        ("eos_token_id", List(vec![0.0, 256.0])),
        ("stop_strings", TextList(vec!["\n".to_owned()])),
        ("use_cache", Bool(false)),
        ("past_key_values", text("reuse")),
        ("top_logits", Number(40.0)),
        ("attention_mask", List(vec![1.0; 3])),
        ("max_in_flight", Number(8.0)),
    ]);
    let expected = Options {
        max_new_tokens: 1,
        do_sample: true,
        temperature: 1e-6,
        top_k: 0,
        top_p: 0.0,
        repetition_penalty: 1.2,
        seed: Some((1 << 53) - 1),
        eos_token_id: vec![0, 256],
        stop_strings: vec!["\n".to_owned()],
        use_cache: false,
        top_logits: 40,
        reuse: true,
        max_in_flight: 8,
        warnings: vec![],
    };
    assert_eq!(options, expected);
    assert_eq!(accepted(&[("top_k", Number(50_257.0))]).top_k, 50_257);
    assert_eq!(accepted(&[("top_p", Number(1e-9))]).top_p, 1e-9);
    assert_eq!(accepted(&[("seed", Number(0.0))]).seed, Some(0));
}

#[test]
fn null_is_none_where_there_is_such_a_thing() {
    let nothing = [
        "eos_token_id",
        "seed",
        "stop_strings",
        "past_key_values",
        "attention_mask",
    ];
    let options = accepted(&nothing.map(|name| (name, Null)));
    assert_eq!(options, Options::greedy(20));
    assert_eq!(
        accepted(&[("eos_token_id", List(vec![]))]).eos_token_id,
        [0_u32; 0]
    );
    assert_eq!(accepted(&[("eos_token_id", Number(7.0))]).eos_token_id, [7]);
    assert_eq!(
        accepted(&[("stop_strings", List(vec![]))]).stop_strings,
        [""; 0]
    );
    assert_eq!(
        accepted(&[("stop_strings", text("end"))]).stop_strings,
        ["end"]
    );
    for name in [
        "max_new_tokens",
        "do_sample",
        "temperature",
        "top_k",
        "top_p",
        "repetition_penalty",
        "use_cache",
    ] {
        assert!(refusal(name, Null).contains(&format!("{name} is null")));
    }
}

#[test]
fn wrong_values_are_told_the_range_and_what_to_do() {
    let cases = [
        (
            "temperature",
            Number(0.0),
            "temperature is 0; it must be a number above 0: use do_sample: false",
        ),
        ("temperature", text(""), "temperature is empty"),
        ("temperature", Number(f64::NAN), "temperature is NaN"),
        ("temperature", Number(f64::INFINITY), "temperature is inf"),
        ("temperature", Number(-1.0), "temperature is -1"),
        (
            "temperature",
            text("hot"),
            "temperature is the text \"hot\"",
        ),
        (
            "top_p",
            Number(1.01),
            "top_p is 1.01; it must be a number from 0 to 1",
        ),
        ("top_p", Number(-0.1), "top_p is -0.1"),
        ("top_p", Number(f64::NAN), "top_p is NaN"),
        (
            "top_k",
            Number(-1.0),
            "top_k is -1; it must be a whole number from 0 to 4294967295",
        ),
        ("top_k", Number(1.5), "top_k is 1.5"),
        (
            "repetition_penalty",
            Number(0.0),
            "repetition_penalty is 0; it must be a number above 0: use 1",
        ),
        (
            "max_new_tokens",
            Number(0.0),
            "max_new_tokens is 0; it must be a whole number from 1",
        ),
        ("max_new_tokens", Number(2.5), "max_new_tokens is 2.5"),
        (
            "max_new_tokens",
            Number(f64::INFINITY),
            "max_new_tokens is inf",
        ),
        (
            "seed",
            Number(9_007_199_254_740_992.0),
            "seed is 9007199254740992; it must be a whole number from 0 to 9007199254740991",
        ),
        ("seed", Number(-1.0), "seed is -1"),
        ("seed", Number(1.5), "seed is 1.5"),
        ("seed", text(""), "seed is empty"),
        ("seed", Other("bigint"), "seed is of type bigint"),
        (
            "do_sample",
            Number(1.0),
            "do_sample is 1; it must be true or false",
        ),
        ("use_cache", text("no"), "use_cache is the text \"no\""),
        (
            "eos_token_id",
            Number(257.0),
            "eos_token_id is 257; it must be a whole number from 0 to 256",
        ),
        ("eos_token_id", List(vec![1.0, -2.0]), "eos_token_id is -2"),
        ("eos_token_id", Bool(false), "use null for no end id"),
        (
            "stop_strings",
            TextList(vec![String::new()]),
            "stop_strings has an empty text",
        ),
        ("stop_strings", Number(3.0), "stop_strings is 3"),
        (
            "top_logits",
            Number(41.0),
            "top_logits is 41; it must be a whole number from 0 to 40",
        ),
        (
            "max_in_flight",
            Number(0.0),
            "max_in_flight is 0; it must be a whole number from 1 to 8",
        ),
        (
            "past_key_values",
            Other("object"),
            "past_key_values is of type object; it must be \"reuse\" or null",
        ),
        (
            "attention_mask",
            List(vec![1.0, 0.0]),
            "attention_mask is a list of 2 numbers; it must be a list of ones",
        ),
    ];
    for (name, value, expected) in cases {
        let message = refusal(name, value);
        assert!(message.contains(expected), "{expected:?} not in: {message}");
    }
}

#[test]
fn no_name_is_ignored() {
    assert_eq!(
        refusal("num_beams", Number(1.0)),
        "num_beams is an option of transformers that this project does not have; leave it out."
    );
    assert_eq!(
        refusal("maxNewTokens", Number(5.0)),
        "maxNewTokens is not an option; write max_new_tokens."
    );
    let message = refusal("wibble", Null);
    assert!(
        message.contains("wibble is not an option") && message.contains("repetition_penalty"),
        "{message}"
    );
}

#[test]
fn sampling_options_without_sampling_are_reported() {
    let entries = [
        ("temperature", Number(0.5)),
        ("top_k", Number(5.0)),
        ("seed", Null),
        ("repetition_penalty", Number(2.0)),
    ];
    let warnings = accepted(&entries).warnings;
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].starts_with("temperature has no effect with do_sample: false"));
    assert!(warnings[1].starts_with("top_k has no effect"));
    // The order in which they are given does not matter.
    let sampled = [entries.as_slice(), &[("do_sample", Bool(true))]].concat();
    assert!(accepted(&sampled).warnings.is_empty());
}

#[test]
fn the_uniform_has_what_has_an_effect() {
    assert_eq!(size_of::<SamplingUniform>(), 48);
    let sampling = Options {
        temperature: 0.5,
        top_k: 9,
        top_p: 0.8,
        repetition_penalty: 1.5,
        top_logits: 3,
        ..Options::greedy(1)
    };
    let greedy = SamplingUniform::new(&sampling, 1 << 40 | 5, 257);
    assert_eq!(
        (
            greedy.do_sample,
            greedy.temperature,
            greedy.top_k,
            greedy.top_p
        ),
        (0, 1.0, 0, 1.0)
    );
    assert_eq!(
        (greedy.repetition_penalty, greedy.n_vocab, greedy.top_logits),
        (1.5, 257, 3)
    );
    assert_eq!((greedy.seed_lo, greedy.seed_hi), (5, 256));
    let drawn = SamplingUniform::new(
        &Options {
            do_sample: true,
            ..sampling
        },
        0,
        257,
    );
    assert_eq!(
        (drawn.do_sample, drawn.temperature, drawn.top_k, drawn.top_p),
        (1, 0.5, 9, 0.8)
    );
}

#[test]
fn extreme_temperatures_stay_finite_in_f32() {
    assert_eq!(
        accepted(&[("temperature", Number(1e-300))]).temperature,
        1e-30
    );
    assert_eq!(
        accepted(&[("temperature", Number(1e300))]).temperature,
        1e30
    );
}

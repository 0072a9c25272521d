use serde_json::json;

use super::*;

const GPT2: &str = r#"{
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "resid_pdrop": 0.1, "task_specific_params": {"text-generation": {"do_sample": true}},
    "vocab_size": 50257
}"#;

/// The text of the 124M model's config with some keys changed (`null` stays null) and some removed.
fn text(changed: Value, removed: &[&str]) -> String {
    let mut keys: Map<String, Value> = serde_json::from_str(GPT2).unwrap();
    keys.extend(changed.as_object().unwrap().clone());
    keys.retain(|key, _| !removed.contains(&key.as_str()));
    Value::Object(keys).to_string()
}

fn read(changed: Value) -> Result<Config> {
    Config::from_json(&text(changed, &[]))
}

fn message(changed: Value) -> String {
    let error = read(changed).unwrap_err();
    assert_eq!(error.code(), "bad-config", "{error}");
    error.to_string()
}

#[test]
fn the_124m_model() {
    let config = Config::from_json(GPT2).unwrap();
    assert_eq!(
        (config.n_layer, config.n_head, config.n_embd, config.n_inner),
        (12, 12, 768, 3072)
    );
    assert_eq!(
        (config.n_positions, config.vocab_size, config.head_size()),
        (1024, 50_257, 64)
    );
    assert_eq!(config.activation_function, Activation::GeluTanh);
    assert_eq!(config.layer_norm_epsilon, 1e-5);
    assert_eq!(
        (config.bos_token_id, config.eos_token_id.as_slice()),
        (Some(50_256), &[50_256][..])
    );
    assert!(config.scale_attn_weights && config.tie_word_embeddings);
    assert!(!config.scale_attn_by_inverse_layer_idx && !config.reorder_and_upcast_attn);
}

#[test]
fn absent_null_and_given_values() {
    assert_eq!(read(json!({"n_inner": null})).unwrap().n_inner, 3072);
    assert_eq!(read(json!({"n_inner": 128})).unwrap().n_inner, 128);
    assert_eq!(
        read(json!({"layer_norm_epsilon": 1e-3}))
            .unwrap()
            .layer_norm_epsilon,
        1e-3
    );
    assert_eq!(
        read(json!({"vocab_size": 50_259})).unwrap().vocab_size,
        50_259
    );
    assert_eq!(
        read(json!({"eos_token_id": [1, 2]})).unwrap().eos_token_id,
        [1, 2]
    );
    assert!(
        read(json!({"eos_token_id": null}))
            .unwrap()
            .eos_token_id
            .is_empty()
    );
    assert_eq!(
        read(json!({"eos_token_id": -1, "bos_token_id": -1}))
            .unwrap()
            .bos_token_id,
        None
    );
    let bare = text(
        json!({}),
        &[
            "eos_token_id",
            "model_type",
            "activation_function",
            "layer_norm_epsilon",
        ],
    );
    assert_eq!(
        Config::from_json(&format!("\u{feff}{bare}")).unwrap(),
        Config::from_json(GPT2).unwrap()
    );
}

#[test]
fn newer_names_of_sizes_are_read() {
    let keys = json!({"hidden_size": 60, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 33});
    let config =
        Config::from_json(&text(keys, &["n_embd", "n_head", "n_layer", "n_positions"])).unwrap();
    assert_eq!(
        [
            config.n_embd,
            config.n_head,
            config.n_layer,
            config.n_positions
        ],
        [60, 4, 2, 33]
    );
}

#[test]
fn scores_are_scaled_as_asked() {
    let scale = |changed: Value| read(changed).unwrap().score_scale(2);
    assert_eq!(scale(json!({})), 0.125);
    assert_eq!(scale(json!({"scale_attn_weights": false})), 1.0);
    assert_eq!(
        scale(json!({"scale_attn_by_inverse_layer_idx": true})),
        (0.125f64 / 3.0) as f32
    );
}

#[test]
fn every_offered_activation_keeps_its_name() {
    for (name, formula) in ACTIVATIONS {
        let config = read(json!({"activation_function": name})).unwrap();
        assert_eq!(config.activation_function, formula);
        assert_eq!(
            serde_json::to_value(&config).unwrap()["activation_function"],
            name
        );
    }
    let refused = message(json!({"activation_function": "foo"}));
    assert!(
        refused.contains("\"foo\"") && refused.contains("gelu_new"),
        "{refused}"
    );
    for name in [
        "relu2",
        "relu6",
        "leaky_relu",
        "mish",
        "linear",
        "hardswish",
        "GELU_NEW",
        "",
    ] {
        message(json!({"activation_function": name}));
    }
}

#[test]
fn serialised_it_reads_back() {
    let config =
        read(json!({"n_inner": 128, "activation_function": "swish", "eos_token_id": [3]})).unwrap();
    assert_eq!(
        Config::from_json(&serde_json::to_string(&config).unwrap()).unwrap(),
        config
    );
}

#[test]
fn missing_sizes_are_named() {
    for key in ["n_layer", "n_head", "n_embd", "n_positions", "vocab_size"] {
        let error = Config::from_json(&text(json!({}), &[key])).unwrap_err();
        assert_eq!(error.code(), "bad-config");
        assert!(
            error.to_string().contains(&format!("{key} is missing")),
            "{error}"
        );
    }
}

#[test]
fn values_out_of_range_are_named_with_the_limit() {
    for key in [
        "n_layer",
        "n_head",
        "n_embd",
        "n_inner",
        "n_positions",
        "vocab_size",
    ] {
        for value in [
            json!(0),
            json!(-1),
            json!(1.5),
            json!(1e300),
            json!(u64::MAX),
            json!("12"),
            json!([]),
        ] {
            let refused = message(json!({key: value}));
            assert!(
                refused.contains(key) && refused.contains("from 1 to"),
                "{refused}"
            );
        }
    }
    let refused = message(json!({"n_head": 7}));
    assert!(
        refused.contains("n_head 7") && refused.contains("n_embd 768"),
        "{refused}"
    );
    let refused = message(json!({"n_embd": 16_384, "n_head": 1, "vocab_size": 1 << 20}));
    assert!(
        refused.contains("wte") && refused.contains("17179869184"),
        "{refused}"
    );
    for value in [json!(0), json!(-1e-5), json!(2), json!("1e-5")] {
        message(json!({"layer_norm_epsilon": value}));
    }
    for value in [
        json!(1.5),
        json!("x"),
        json!(true),
        json!([0.5]),
        json!(1u64 << 32),
    ] {
        message(json!({"eos_token_id": value}));
    }
    message(json!({"scale_attn_weights": 1}));
    message(json!({"activation_function": 1}));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (key, value) in [
        ("add_cross_attention", json!(true)),
        ("is_encoder_decoder", json!(true)),
        ("quantization_config", json!({"bits": 4})),
        ("pruned_heads", json!({"0": [1]})),
    ] {
        let refused = message(json!({key: value}));
        assert!(refused.contains(key), "{refused}");
    }
    assert!(
        read(
            json!({"pruned_heads": {}, "add_cross_attention": false, "quantization_config": null})
        )
        .is_ok()
    );
}

#[test]
fn other_models_are_named() {
    for (config, name) in [
        (
            r#"{"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"]}"#,
            "gpt_neo",
        ),
        (r#"{"model_type": "gptj", "n_embd": 4096}"#, "gptj"),
        (r#"{"model_type": "llama", "hidden_size": 4096}"#, "llama"),
        (r#"{"architectures": ["BertModel"]}"#, "BertModel"),
    ] {
        let error = Config::from_json(config).unwrap_err();
        assert_eq!(error.code(), "not-a-gpt2", "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn impostors_are_recognised() {
    for (file, hint) in [
        ("", "empty"),
        ("<!DOCTYPE html><html></html>", "web page"),
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 665\n",
            "git lfs pull",
        ),
        (&GPT2[..100], "ends too early"),
        ("{n_embd: 768}", "broken"),
        ("[1, 2]", "a list"),
        (&"[".repeat(100_000), "broken"),
    ] {
        let error = Config::from_json(file).unwrap_err();
        assert_eq!(error.code(), "bad-config");
        assert!(error.to_string().contains(hint), "{error}");
    }
}

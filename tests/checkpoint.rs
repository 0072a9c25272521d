//! The streaming loader on every checkpoint that Hugging Face wrote: the values it lays out for the GPU are those that the
//! plain-Rust reference reads with the `safetensors` crate.

mod fixtures;

use fixtures::{FIXTURES, Fixture};
use gpt2_webgpu::checkpoint::{Dtype, Layout, LoadReport, Loader, Memory, ShardIndex};
use gpt2_webgpu::config::Config;
use gpt2_webgpu::reference::Weights;

/// Loads a fixture in pieces of an odd size and reads everything back.
fn loaded(fixture: &Fixture, config: &Config, dtype: Dtype) -> (Weights, LoadReport) {
    let mut memory = Memory::default();
    let mut loader = Loader::new(config, dtype);
    for (name, bytes) in fixture.files {
        loader.begin_file(name, Some(bytes.len() as u64)).unwrap();
        for piece in bytes.chunks(1001) {
            loader.push(piece, &mut memory).unwrap();
        }
        loader.end_file().unwrap();
    }
    let report = loader.finish().unwrap();
    let layout = Layout::new(config, dtype);
    let weights = Weights::read(config, report.tied, &mut |tensor| {
        Ok(memory.tensor(&layout, tensor))
    });
    (weights.unwrap(), report)
}

#[test]
fn every_checkpoint_loads_with_the_reference_s_values() {
    for fixture in FIXTURES {
        let (config, expected) = fixture.load();
        for dtype in Dtype::ALL {
            let (weights, report) = loaded(fixture, &config, dtype);
            assert!(
                weights == expected.rounded(&config, dtype).unwrap(),
                "{} {dtype}",
                fixture.name
            );
            assert_eq!(report.tied, expected.lm_head.is_none(), "{}", fixture.name);
            assert!(
                report.ignored.is_empty(),
                "{}: {:?}",
                fixture.name,
                report.ignored
            );
        }
    }
}

#[test]
fn a_head_that_overrules_the_config_is_mentioned() {
    let fixture = fixtures::fixture("tie_overruled");
    let (config, _) = fixture.load();
    let (_, report) = loaded(fixture, &config, Dtype::Fp32);
    assert!(config.tie_word_embeddings && !report.tied);
    assert!(
        report.warnings[0].contains("lm_head.weight"),
        "{:?}",
        report.warnings
    );
}

#[test]
fn the_index_names_the_files() {
    let fixture = fixtures::fixture("sharded");
    let index = ShardIndex::from_json(fixture.index.unwrap()).unwrap();
    let names: Vec<&str> = fixture.files.iter().map(|(name, _)| *name).collect();
    assert_eq!(index.files(), names);
}

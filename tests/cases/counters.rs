//! What a step costs, counted where the device is asked.

use gpt2_webgpu::generator::{Generator, Prompt};
use gpt2_webgpu::gpu::Counters;
use gpt2_webgpu::sampling::Options;
use serde_json::json;

use super::made::{Made, ids};
use super::run::{Load, generate, gpu, own_gpu};
use super::steps::pull;

/// Whether the difference of two counts is that of `steps` decode steps of a model of so many layers.
fn check_steps(
    before: &Counters,
    after: &Counters,
    steps: u64,
    layers: u64,
    candidates: u64,
) -> Result<(), String> {
    let bytes = if candidates > 0 { 512 } else { 32 };
    let limits = [
        ("submits", after.submits - before.submits, steps, steps),
        ("passes", after.passes - before.passes, steps, steps),
        (
            "dispatches",
            after.dispatches - before.dispatches,
            1,
            steps * (5 * layers + 3),
        ),
        ("rows", after.rows - before.rows, steps, steps),
        (
            "bytes read back",
            after.bytes_read_back - before.bytes_read_back,
            4 * steps,
            steps * bytes,
        ),
        (
            "bytes uploaded",
            after.bytes_uploaded - before.bytes_uploaded,
            0,
            0,
        ),
        (
            "buffers",
            after.buffers_created - before.buffers_created,
            0,
            0,
        ),
        (
            "bind groups",
            after.bind_groups_created - before.bind_groups_created,
            0,
            0,
        ),
        (
            "pipelines",
            after.pipelines_created - before.pipelines_created,
            0,
            0,
        ),
    ];
    for (what, count, least, most) in limits {
        if count < least || count > most {
            return Err(format!(
                "{count} {what} in {steps} steps, expected {least} to {most}"
            ));
        }
    }
    Ok(())
}

pub async fn a_decode_step_is_one_small_submit() {
    let gpu = gpu().await;
    for layers in [1, 3] {
        let made = Made::new(json!({"n_layer": layers}));
        let model = made.load(&gpu, Load::default()).await;
        assert_eq!(model.decode_kernels().len() as u64, 5 * layers + 3);
        assert_eq!(model.prefill_kernels().len() as u64, 7 * layers + 1);
        for candidates in [0, 40] {
            for extra in [false, true] {
                let options = Options {
                    top_logits: candidates,
                    max_in_flight: 1,
                    ..Options::greedy(20)
                };
                let generator =
                    Generator::new(&model, Prompt::Ids(vec![1, 2, 3]), options).unwrap();
                pull(&generator, 1).await;
                let before = gpu.counters();
                pull(&generator, 6).await;
                if extra {
                    gpu.replay(&[], 0, None, &[]);
                }
                let checked = check_steps(&before, &gpu.counters(), 6, layers, candidates.into());
                // A single submit more than needed shows.
                if extra {
                    assert_eq!(checked, Err("7 submits in 6 steps, expected 6 to 6".into()));
                } else {
                    assert_eq!(checked, Ok(()));
                }
            }
        }
    }
}

pub async fn a_prefill_is_one_submit_a_chunk() {
    let gpu = gpu().await;
    let made = Made::new(json!({"n_layer": 1, "n_positions": 600}));
    let model = made.load(&gpu, Load::default()).await;
    for n in [1, 8, 33, 600] {
        let before = gpu.counters();
        let ran = generate(&model, &ids(1, n, 257), Options::greedy(1)).await;
        let after = gpu.counters();
        let chunks = ran.steps[0].chunks as u64;
        assert_eq!(after.submits - before.submits, chunks, "{n} rows");
        assert_eq!(after.passes - before.passes, chunks, "{n} rows");
        let dispatches = after.dispatches - before.dispatches;
        assert!(dispatches <= chunks * (7 + 3), "{n} rows: {dispatches}");
        assert_eq!(after.rows - before.rows, n as u64);
        assert_eq!(after.buffers_created, before.buffers_created);
        assert_eq!(after.bind_groups_created, before.bind_groups_created);
        assert!(after.bytes_read_back - before.bytes_read_back <= 32 * chunks);
    }
}

pub async fn memory_is_flat_over_many_generations() {
    let gpu = own_gpu().await;
    let made = Made::new(json!({"n_layer": 1}));
    let empty = gpu.memory();
    let model = made.load(&gpu, Load::default()).await;
    let (memory, counters) = (gpu.memory(), gpu.counters());
    let mut texts = Vec::new();
    for _ in 0..50 {
        texts.push(
            generate(&model, &[1, 2, 3], Options::greedy(20))
                .await
                .new_tokens,
        );
    }
    assert!(
        texts
            .iter()
            .all(|text| *text == texts[0] && text.len() == 20)
    );
    assert_eq!(gpu.memory(), memory);
    let after = gpu.counters();
    assert_eq!(after.buffers_created, counters.buffers_created);
    assert_eq!(after.bind_groups_created, counters.bind_groups_created);
    assert_eq!(after.max_in_flight, 4);
    drop(model);
    assert_eq!(gpu.memory(), empty);
}

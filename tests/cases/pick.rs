//! The pick kernel, its twin in plain Rust and Hugging Face's processors, on sizes and logits that break samplers.

use std::rc::Rc;

use gpt2_webgpu::gpu::{Gpu, MemoryClass, ReadbackRing, Region, Tensor};
use gpt2_webgpu::kernel::{Grid, Kernel, Op, PICK};
use gpt2_webgpu::sampling::{
    MAX_TOP_LOGITS, Picked, Processed, RECORD_HEADER_BYTES, SamplingUniform, pick,
};
use serde::Deserialize;

use super::run::gpu;

const RECORD_BYTES: u64 = (RECORD_HEADER_BYTES + 12 * MAX_TOP_LOGITS) as u64;

/// The kernel with buffers for one vocabulary.
struct Bench {
    gpu: Rc<Gpu>,
    state: Tensor,
    tokens: Tensor,
    logits: Tensor,
    /// Scratch; dropping it would destroy it under the op.
    _scores: Tensor,
    record: Tensor,
    sampling: Tensor,
    op: [Op; 1],
    ring: ReadbackRing,
}

impl Bench {
    /// For V logits and up to `length` ids.
    fn new(gpu: &Rc<Gpu>, kernel: &Kernel, vocab: usize, length: usize) -> Self {
        let tensor = |name, bytes| Tensor::new(gpu, name, bytes, MemoryClass::Activations).unwrap();
        let (state, tokens) = (tensor("state", 32), tensor("tokens", 4 * length as u64));
        let (logits, scores) = (
            tensor("logits", 4 * vocab as u64),
            tensor("scores", 4 * vocab as u64),
        );
        let (record, sampling) = (tensor("record", RECORD_BYTES), tensor("sampling", 48));
        let tensors = [&state, &tokens, &logits, &scores, &record, &sampling];
        let op = [kernel.op(&tensors, Grid::fixed(1, 1)).unwrap()];
        let ring = ReadbackRing::new(
            gpu,
            "picked",
            1,
            RECORD_BYTES + state.bytes() + tokens.bytes(),
            false,
        );
        Bench {
            gpu: gpu.clone(),
            state,
            tokens,
            logits,
            _scores: scores,
            record,
            sampling,
            op,
            ring,
        }
    }

    /// Picks `times` ids in a row, each from the same logits. Returns the last record and all ids there are then.
    async fn run(
        &self,
        logits: &[f32],
        tokens: &[u32],
        sampling: &SamplingUniform,
        times: usize,
    ) -> (Picked, Vec<u32>) {
        let n = tokens.len() as u32;
        let past = n / 2;
        let write = |tensor, words: &[u32]| {
            self.gpu
                .write(tensor, 0, bytemuck::cast_slice(words))
                .unwrap()
        };
        write(&self.state, &[past, n - past, 0, 0, 0, 0, 0, 0]);
        write(&self.tokens, tokens);
        write(&self.logits, bytemuck::cast_slice(logits));
        // What an earlier step left in the record must not be taken for this step's.
        write(&self.record, &[u32::MAX / 3; RECORD_BYTES as usize / 4]);
        self.gpu
            .write(&self.sampling, 0, bytemuck::bytes_of(sampling))
            .unwrap();

        let lease = self.ring.lease().await.unwrap();
        let record_bytes = RECORD_HEADER_BYTES as u64 + 12 * u64::from(sampling.top_logits);
        let parts = [
            (&self.state, self.state.bytes()),
            (&self.tokens, self.tokens.bytes()),
            (&self.record, record_bytes),
        ];
        let regions = parts.map(|(tensor, bytes)| Region {
            tensor,
            offset: 0,
            bytes,
        });
        self.gpu
            .replay(&vec![self.op.as_slice(); times], 1, Some(&lease), &regions);
        let bytes = lease
            .map(parts.iter().map(|part| part.1).sum())
            .await
            .unwrap();
        let (state, rest) = bytes.split_at(self.state.bytes() as usize);
        let (ids, record) = rest.split_at(self.tokens.bytes() as usize);
        let known = n + times as u32;
        assert_eq!(
            bytemuck::pod_collect_to_vec::<u8, u32>(state)[..2],
            [known - 1, 1],
            "state"
        );
        let mut ids: Vec<u32> = bytemuck::pod_collect_to_vec(ids);
        ids.truncate(known as usize);
        (Picked::from_record(record), ids)
    }

    /// One pick that must be what the twin says.
    async fn check(
        &self,
        name: &str,
        logits: &[f32],
        tokens: &[u32],
        sampling: &SamplingUniform,
    ) -> Picked {
        let (picked, ids) = self.run(logits, tokens, sampling, 1).await;
        let twin = pick(logits, tokens, sampling);
        let case = format!("{name}, V = {}, {sampling:?}", logits.len());
        assert_eq!(ids, [tokens, &[picked.id]].concat(), "{case}");
        assert_same(&case, &picked, &twin);
        picked
    }
}

fn assert_same(case: &str, picked: &Picked, twin: &Picked) {
    assert_eq!((picked.id, picked.kept), (twin.id, twin.kept), "{case}");
    assert!(
        (picked.rest - twin.rest).abs() < 1e-5,
        "rest {} and {}: {case}",
        picked.rest,
        twin.rest
    );
    assert_eq!(picked.candidates.len(), twin.candidates.len(), "{case}");
    for (one, other) in picked.candidates.iter().zip(&twin.candidates) {
        let difference = (one.probability - other.probability).abs();
        assert!(difference < 1e-5, "{one:?} and {other:?}: {case}");
        assert_eq!(
            (one.id, one.removed_by),
            (other.id, other.removed_by),
            "{case}"
        );
        assert_eq!(one.logit.to_bits(), other.logit.to_bits(), "{case}");
    }
    let listed: f32 = picked
        .candidates
        .iter()
        .map(|candidate| candidate.probability)
        .sum();
    assert!(
        (listed + picked.rest - 1.0).abs() < 1e-5,
        "{listed} + {} is not 1: {case}",
        picked.rest
    );
}

const GREEDY: SamplingUniform = SamplingUniform {
    do_sample: 0,
    top_k: 0,
    top_p: 1.0,
    temperature: 1.0,
    repetition_penalty: 1.0,
    seed_lo: 7,
    seed_hi: 1,
    n_vocab: 0,
    top_logits: 0,
    pad: [0; 3],
};

/// A hash of u32 numbers, the `mixed` of make_processors.py.
pub fn mixed(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7FEB_352D);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

/// The `made_logits` of make_processors.py.
fn made_logits(seed: u32, n: usize) -> Vec<f32> {
    let logit = |i: u32| {
        let x = (mixed(i.wrapping_add(seed << 20)) >> 8) as f32 / 1_048_576.0 - 8.0;
        x * x * x / 32.0 - 30.0
    };
    (0..n as u32).map(logit).collect()
}

/// Logits on which thresholds, ties or f32 go wrong easily.
fn awkward_logits(n: usize) -> Vec<(&'static str, Vec<f32>)> {
    let of = |logit: &dyn Fn(usize) -> f32| (0..n).map(logit).collect::<Vec<f32>>();
    vec![
        ("like a model's", made_logits(3, n)),
        ("all equal", vec![-31.25; n]),
        (
            "four in five equal",
            of(&|i| {
                if mixed(i as u32).is_multiple_of(5) {
                    i as f32 / n as f32 - 30.0
                } else {
                    -31.0
                }
            }),
        ),
        ("few values", of(&|i| (mixed(i as u32) % 7) as f32)),
        ("both zeros", of(&|i| if i % 2 == 0 { -0.0 } else { 0.0 })),
        ("one peak", of(&|i| if i == n / 2 { 1e4 } else { -1e4 })),
        ("rising", of(&|i| i as f32)),
        ("falling", of(&|i| -(i as f32) * 0.001)),
        ("tiny", of(&|i| (mixed(i as u32) % 1000) as f32 * 1e-30)),
    ]
}

fn kernel(gpu: &Rc<Gpu>, lanes: u32) -> Kernel {
    Kernel::new(gpu, PICK, &[("LANES", f64::from(lanes))])
}

pub async fn the_pick_kernel_is_its_twin_on_awkward_logits() {
    let gpu = gpu().await;
    // With the threads of a software adapter and with those of a GPU.
    for (vocab, lanes) in [
        (1, 64),
        (2, 256),
        (5, 64),
        (39, 256),
        (41, 64),
        (255, 256),
        (257, 64),
        (257, 256),
        (1000, 256),
        (50257, 64),
    ] {
        let kernel = kernel(&gpu, lanes);
        let bench = Bench::new(&gpu, &kernel, vocab, 64);
        let tokens: Vec<u32> = (0..40).map(|i| mixed(i) % vocab as u32).collect();
        for (index, (name, logits)) in awkward_logits(vocab).iter().enumerate() {
            for round in 0..12_usize {
                let choose = |values: &[f32], stride: usize| {
                    values[(index + round / stride + round) % values.len()]
                };
                let sampling = SamplingUniform {
                    do_sample: u32::from(round > 2),
                    top_k: choose(&[0.0, 1.0, 5.0, 50.0, vocab as f32, 60_000.0], 1) as u32,
                    top_p: choose(&[1.0, 0.0, 1e-9, 0.4937, 0.9531], 2),
                    temperature: choose(&[1.0, 1e-30, 1e-6, 0.7, 100.0, 1e30], 3),
                    repetition_penalty: choose(&[1.0, 1.0, 1.3, 0.5], 4),
                    top_logits: choose(&[0.0, 5.0, 40.0], 5) as u32,
                    // A vocabulary that the tokenizer does not fill.
                    n_vocab: if round == 5 { vocab.div_ceil(2) } else { vocab } as u32,
                    ..GREEDY
                };
                // With fifty thousand nearly equal weights the order of additions decides where a sum is reached.
                let flat = vocab > 1000 && sampling.temperature > 1.0;
                let sampling = SamplingUniform {
                    top_p: if flat { 1.0 } else { sampling.top_p },
                    ..sampling
                };
                bench
                    .check(name, logits, &tokens[..round * 3 + 1], &sampling)
                    .await;
            }
        }
    }
    gpu.check().unwrap();
}

pub async fn the_pick_kernel_and_its_twin_process_like_hugging_face() {
    #[derive(Deserialize)]
    struct Case {
        logits: Logits,
        tokens: Vec<u32>,
        options: Processors,
        kept: u32,
        best: Vec<(u32, f32, bool)>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Logits {
        Given(Vec<f32>),
        Made { seed: u32, n: usize },
    }
    #[derive(Deserialize)]
    struct Processors {
        temperature: f32,
        top_k: u32,
        top_p: f32,
        repetition_penalty: f32,
    }

    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../fixtures/processors.json")).unwrap();
    assert!(cases.len() >= 200);
    let gpu = gpu().await;
    let kernel = kernel(&gpu, 256);
    let mut bench: Option<(usize, Bench)> = None;
    for Case {
        logits,
        tokens,
        options,
        kept,
        best,
    } in cases
    {
        let logits = match logits {
            Logits::Given(logits) => logits,
            Logits::Made { seed, n } => made_logits(seed, n),
        };
        if bench
            .as_ref()
            .is_none_or(|(vocab, _)| *vocab != logits.len())
        {
            bench = Some((logits.len(), Bench::new(&gpu, &kernel, logits.len(), 64)));
        }
        let sampling = SamplingUniform {
            do_sample: 1,
            top_k: options.top_k,
            top_p: options.top_p,
            temperature: options.temperature,
            repetition_penalty: options.repetition_penalty,
            n_vocab: logits.len() as u32,
            top_logits: MAX_TOP_LOGITS as u32,
            ..GREEDY
        };
        let picked = bench
            .as_ref()
            .unwrap()
            .1
            .check("Hugging Face", &logits, &tokens, &sampling)
            .await;
        assert_eq!(picked.kept, kept, "{sampling:?}");
        assert_eq!(picked.candidates.len(), best.len());
        for (candidate, (id, probability, is_kept)) in picked.candidates.iter().zip(best) {
            assert_eq!(
                (candidate.id, candidate.removed_by.is_none()),
                (id, is_kept),
                "{sampling:?}"
            );
            assert!(
                (candidate.probability - probability).abs() < 1e-5,
                "{candidate:?}, {probability}: {sampling:?}"
            );
        }
    }
    gpu.check().unwrap();
}

/// Fails if the ids are unlikely to be drawn from these probabilities: a chi-square sum over the ids that are expected at
/// least five times (the others as one) more than four standard deviations above its mean.
fn assert_drawn_from(name: &str, ids: &[u32], probabilities: &[(u32, f32)]) {
    let draws = ids.len() as f64;
    let (mut sum, mut cells) = (0.0, 0);
    let (mut others, mut others_seen) = (draws, draws);
    for &(id, probability) in probabilities {
        let expected = draws * f64::from(probability);
        if expected >= 5.0 {
            let seen = ids.iter().filter(|&&other| other == id).count() as f64;
            sum += (seen - expected).powi(2) / expected;
            cells += 1;
            others -= expected;
            others_seen -= seen;
        }
    }
    if others >= 5.0 {
        sum += (others_seen - others).powi(2) / others;
        cells += 1;
    } else {
        assert!(
            others_seen <= 20.0,
            "{name}: {others_seen} draws of ids that should be rare"
        );
    }
    let freedom = f64::from(cells - 1);
    let most = freedom + 4.0 * (2.0 * freedom).sqrt();
    assert!(
        sum < most,
        "{name}: chi-square {sum:.1} with {freedom} degrees of freedom"
    );
}

pub async fn draws_follow_the_probabilities() {
    let gpu = gpu().await;
    let kernel = kernel(&gpu, 64);
    let small = vec![1.0, 3.0, 2.0, 0.5, -1.0];
    let large = made_logits(5, 50257);
    // Logits, top-k, top-p, temperature, draws of the twin and of the kernel.
    let cases = [
        (&small, 0, 1.0, 1.5, 20_000, 20_000),
        (&small, 0, 0.9, 1.0, 20_000, 1_000),
        (&large, 40, 1.0, 0.02, 20_000, 400),
        (&large, 0, 1.0, 0.02, 1_000, 300),
    ];
    for (logits, top_k, top_p, temperature, twin_draws, kernel_draws) in cases {
        let sampling = SamplingUniform {
            do_sample: 1,
            n_vocab: logits.len() as u32,
            top_logits: 40,
            top_k,
            top_p,
            temperature,
            ..GREEDY
        };
        let name = format!("V = {}, top_k {top_k}", logits.len());
        let processed = Processed::new(logits, &[], &sampling);
        let probabilities: Vec<(u32, f32)> = processed
            .candidates()
            .iter()
            .map(|one| (one.id, one.probability))
            .collect();
        let drawn: Vec<u32> = (0..twin_draws)
            .map(|position| processed.pick(position))
            .collect();
        assert_drawn_from(&format!("twin, {name}"), &drawn, &probabilities);

        let bench = Bench::new(&gpu, &kernel, logits.len(), kernel_draws + 1);
        let unlisted = SamplingUniform {
            top_logits: 0,
            ..sampling
        };
        let (_, ids) = bench.run(logits, &[0], &unlisted, kernel_draws).await;
        assert_drawn_from(&format!("kernel, {name}"), &ids[1..], &probabilities);
        // The same position draws the same id on both sides (but for noise that log rounds to the other side).
        let both = drawn[1..].iter().zip(&ids[1..]);
        let differing = both.filter(|(one, other)| one != other).count();
        assert!(differing <= 2, "{name}: {differing} draws differ");
    }
    gpu.check().unwrap();
}

pub async fn a_seed_repeats_its_draws_and_another_does_not() {
    let gpu = gpu().await;
    let kernel = kernel(&gpu, 64);
    let logits = made_logits(1, 257);
    let bench = Bench::new(&gpu, &kernel, 257, 64);
    let mut texts = Vec::new();
    for (seed_lo, seed_hi) in [(7, 0), (7, 0), (8, 0), (7, 1)] {
        let sampling = SamplingUniform {
            do_sample: 1,
            temperature: 3.0,
            n_vocab: 257,
            seed_lo,
            seed_hi,
            ..GREEDY
        };
        texts.push(bench.run(&logits, &[0], &sampling, 40).await.1);
    }
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[0], texts[2]);
    assert_ne!(texts[0], texts[3]);
}

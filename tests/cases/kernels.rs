//! Each kernel alone against the function of the reference that it is the twin of, at sizes that fit nowhere evenly.

use std::rc::Rc;

use gpt2_webgpu::checkpoint::{
    Dtype, Layout, Matrix, Memory, Param, Target, Tensor as Named, pad4,
};
use gpt2_webgpu::gpu::{Gpu, MemoryClass, ReadbackRing, Region, Tensor};
use gpt2_webgpu::kernel::{
    ATTENTION, EMBED, Grid, Kernel, LN, LN_FC, LN_HEAD, LN_QKV, MERGE_PROJ, PROJ_RESIDUAL, Shader,
};
use gpt2_webgpu::kv_cache::QUERY_RING;
use gpt2_webgpu::reference::{
    self, LayerCache, activation, attention, embed, head, layer_norm, linear, split_qkv,
};
use half::f16;
use serde_json::json;

use super::fixtures::check_close;
use super::made::{Made, Reference, ids, normals};
use super::run::gpu;

/// Columns and K slices of a workgroup in decode, columns in prefill: those of a software adapter, those of a GPU, and others.
const CUTS: [(u32, u32, u32); 4] = [(16, 1, 16), (8, 16, 64), (64, 1, 8), (4, 32, 32)];

type Constants<'a> = &'a [(&'a str, f64)];

/// The buffers of one model.
struct Bench {
    gpu: Rc<Gpu>,
    layout: Layout,
    memory: Memory,
    reference: Reference,
    state: Tensor,
}

impl Bench {
    fn new(gpu: &Rc<Gpu>, made: &Made, dtype: Dtype) -> Bench {
        let (layout, memory) = made.laid_out(dtype);
        Bench {
            gpu: gpu.clone(),
            layout,
            memory,
            reference: made.reference(dtype),
            state: empty(gpu, 8),
        }
    }

    fn upload(&self, bytes: &[u8]) -> Tensor {
        let tensor = empty(&self.gpu, bytes.len().div_ceil(4));
        self.gpu.write(&tensor, 0, bytes).unwrap();
        tensor
    }

    fn floats(&self, values: &[f32]) -> Tensor {
        self.upload(bytemuck::cast_slice(values))
    }

    fn weights(&self, target: Target) -> Tensor {
        self.upload(self.memory.bytes(target))
    }

    fn matrix(&self, matrix: Matrix) -> Tensor {
        self.weights(Target::Matrix { layer: 0, matrix })
    }

    fn params(&self) -> Tensor {
        self.weights(Target::Params { layer: 0 })
    }

    /// A table of rows as three buffers.
    fn parts(&self, target: Target) -> ([Tensor; 3], f64) {
        let bytes = self.memory.bytes(target);
        let part = self.layout.tiles().div_ceil(3) * self.layout.tile_bytes();
        let parts = std::array::from_fn(|i| {
            let begin = (i * part).min(bytes.len());
            self.upload(&bytes[begin..(begin + part).min(bytes.len())])
        });
        (parts, (part / 16) as f64)
    }

    /// Where a vector begins in its params, in vec4.
    fn at(&self, param: Param) -> f64 {
        (self.layout.param(param) / 4) as f64
    }

    fn norm(&self) -> [(&'static str, f64); 2] {
        let config = self.layout.config();
        [
            ("C", config.n_embd as f64),
            ("EPSILON", f64::from(config.layer_norm_epsilon)),
        ]
    }

    fn matrix_constants(&self, matrix: Matrix, bias: Param) -> [(&'static str, f64); 3] {
        [
            ("DTYPE", f64::from(self.layout.dtype() as u8)),
            ("MATRIX_BIAS", self.at(bias)),
            ("SCALE", self.at(Param::Scales(matrix))),
        ]
    }

    /// Runs one kernel for `rows` rows behind `past` positions and returns all of the tensor `out`.
    #[allow(clippy::too_many_arguments)]
    async fn run(
        &self,
        shader: Shader,
        constants: &[Constants<'_>],
        tensors: &[&Tensor],
        grid: Grid,
        past: usize,
        rows: usize,
        out: &Tensor,
    ) -> Vec<u8> {
        let state = [past as u32, rows as u32, 0, 0, 0, 0, 0, 0];
        self.gpu
            .write(&self.state, 0, bytemuck::cast_slice(&state))
            .unwrap();
        let op = Kernel::new(&self.gpu, shader, &constants.concat())
            .op(tensors, grid)
            .unwrap();
        let ring = ReadbackRing::new(&self.gpu, "result", 1, out.bytes(), false);
        let lease = ring.lease().await.unwrap();
        let region = Region {
            tensor: out,
            offset: 0,
            bytes: out.bytes(),
        };
        self.gpu
            .replay(&[&[op]], rows as u32, Some(&lease), &[region]);
        let bytes = lease.map(out.bytes()).await.unwrap();
        self.gpu.check().unwrap();
        bytes
    }
}

fn empty(gpu: &Rc<Gpu>, floats: usize) -> Tensor {
    Tensor::new(gpu, "test", 4 * floats as u64, MemoryClass::Activations).unwrap()
}

/// Pieces of `size` values, each padded to a multiple of 4.
fn padded(values: &[f32], size: usize) -> Vec<f32> {
    let pad = vec![0.0; pad4(size) - size];
    values
        .chunks(size)
        .flat_map(|piece| [piece, &pad].concat())
        .collect()
}

/// The first `count` values without the padding of their pieces of `size` values.
fn unpadded(bytes: &[u8], size: usize, count: usize) -> Vec<f32> {
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
    let pieces = values
        .chunks_exact(pad4(size))
        .flat_map(|piece| &piece[..size]);
    pieces.copied().take(count).collect()
}

/// C = 45 with three heads, C = 60 with four, both of 15; an inner width that no vec4 divides; more rows than a tile.
fn shapes() -> [Made; 2] {
    [
        Made::new(json!({"n_layer": 1})),
        Made::new(
            json!({"n_layer": 1, "n_embd": 60, "n_head": 4, "n_inner": 70, "vocab_size": 700}),
        ),
    ]
}

fn tolerance(dtype: Dtype) -> f32 {
    if dtype == Dtype::Fp32 { 2e-4 } else { 1e-3 }
}

/// Prefill with T rows and decode with one, in every cut; the second shape only in those that devices get.
fn forms(made: &Made) -> Vec<(bool, usize, (u32, u32))> {
    let cuts = if made.config.n_embd == 45 {
        &CUTS[..]
    } else {
        &CUTS[..2]
    };
    let decode = cuts.iter().map(|cut| (false, 1, (cut.0, cut.1)));
    let prefill = cuts
        .iter()
        .zip([2, 33, 1, 8])
        .map(|(cut, rows)| (true, rows, (cut.2, 1)));
    decode.chain(prefill).collect()
}

/// The threads that sum a row together: those of a workgroup whose threads share a dot product as well.
fn share(prefill: bool, cols: u32, ksplit: u32) -> (&'static str, f64) {
    let together = !prefill && ksplit > 1;
    ("SHARE", f64::from(if together { cols * ksplit } else { 1 }))
}

fn columns(n4: usize, prefill: bool, cols: u32) -> Grid {
    let grid = Grid::fixed((n4 as u32).div_ceil(cols), 1);
    if prefill { grid.rows(1, 8) } else { grid }
}

pub async fn embed_is_its_twin() {
    let gpu = gpu().await;
    for made in shapes() {
        for dtype in Dtype::ALL {
            let bench = Bench::new(&gpu, &made, dtype);
            let (c, v) = (made.config.n_embd, made.config.vocab_size);
            for (past, rows) in [(0, 1), (5, 2), (31, 33)] {
                // Both ends of the table, both sides of a tile's edge, and whatever else.
                let mut all = ids(1, past + rows, v);
                let ends = [v as u32 - 1, 0, 255, 256, 3];
                let count = rows.min(5);
                all[past..past + count].copy_from_slice(&ends[..count]);
                let (parts, part_vec4s) = bench.parts(Target::Wte);
                let c4 = pad4(c) / 4;
                let x = empty(&gpu, rows * pad4(c));
                let tokens = bench.upload(bytemuck::cast_slice(&all));
                let scales = bench.weights(Target::WteScales);
                let wpe = bench.weights(Target::Wpe);
                let [a, b, d] = &parts;
                let constants = [
                    ("DTYPE", f64::from(dtype as u8)),
                    ("C4", c4 as f64),
                    ("PART_VEC4S", part_vec4s),
                ];
                let tensors = [&bench.state, &tokens, a, b, d, &scales, &wpe, &x];
                let grid = Grid::fixed(1, 1).rows(1, 1);
                let got = bench
                    .run(EMBED, &[&constants], &tensors, grid, past, rows, &x)
                    .await;
                let want = embed(&bench.reference.weights, c, &all[past..], past);
                check_close(
                    &format!("embed C {c} {dtype} T {rows}"),
                    &unpadded(&got, c, rows * c),
                    &want,
                    1e-6,
                    1e-6,
                );
            }
        }
    }
}

pub async fn layer_norm_is_its_twin() {
    let gpu = gpu().await;
    for made in shapes() {
        let bench = Bench::new(&gpu, &made, Dtype::Fp32);
        let c = made.config.n_embd;
        for (rows, share) in [(1, 1), (2, 64), (33, 1), (33, 64)] {
            // A large mean, on which a variance computed as a difference of squares fails; and a constant row.
            let mut x = normals(9, rows * c, 1.0);
            x.iter_mut().for_each(|x| *x += 100.0);
            x[(rows - 1) * c..].fill(if rows == 33 { 7.0 } else { -3.0 });
            let (input, params, y) = (
                bench.floats(&padded(&x, c)),
                bench.params(),
                empty(&gpu, rows * pad4(c)),
            );
            let constants = [
                ("SHARE", f64::from(share)),
                ("WEIGHT", bench.at(Param::Ln1Weight)),
                ("BIAS", bench.at(Param::Ln1Bias)),
            ];
            let grid = Grid::fixed(1, 1).rows(0, 1);
            let got = bench
                .run(
                    LN,
                    &[&bench.norm(), &constants],
                    &[&input, &params, &y],
                    grid,
                    0,
                    rows,
                    &y,
                )
                .await;
            let ln_1 = &made.weights.h[0].ln_1;
            let want = layer_norm(&x, ln_1, made.config.layer_norm_epsilon);
            check_close("ln", &unpadded(&got, c, rows * c), &want, 1e-3, 1e-4);
        }
    }
}

pub async fn queries_keys_and_values_are_those_of_the_twin() {
    let gpu = gpu().await;
    for made in shapes() {
        for dtype in Dtype::ALL {
            let bench = Bench::new(&gpu, &made, dtype);
            let config = &made.config;
            let (c, d, a) = (config.n_embd, config.head_size(), bench.layout.a);
            let block = &bench.reference.weights.h[0];
            let half = dtype != Dtype::Fp32;
            let (params, w) = (bench.params(), bench.matrix(Matrix::CAttn));
            for (prefill, rows, (cols, ksplit)) in forms(&made) {
                let past = 21;
                let x = normals(rows as u32, rows * c, 1.0);
                let normed = layer_norm(&x, &block.ln_1, config.layer_norm_epsilon);
                let input = bench.floats(&padded(if prefill { &normed } else { &x }, c));
                let cached = 2 * config.n_positions * a / if half { 2 } else { 1 };
                let (q, kv, ring) = (
                    empty(&gpu, rows * a),
                    empty(&gpu, cached),
                    empty(&gpu, QUERY_RING * a),
                );
                let constants = [
                    ("ONE_ROW", f64::from(u8::from(!prefill))),
                    ("KV_F16", f64::from(u8::from(half))),
                    ("A4", (a / 4) as f64),
                    share(prefill, cols, ksplit),
                    ("POSITIONS", config.n_positions as f64),
                    ("RING", QUERY_RING as f64),
                    ("WEIGHT", bench.at(Param::Ln1Weight)),
                    ("BIAS", bench.at(Param::Ln1Bias)),
                    ("COLS", f64::from(cols)),
                    ("KSPLIT", f64::from(ksplit)),
                ];
                let matrix = bench.matrix_constants(Matrix::CAttn, Param::CAttnBias);
                let constants: [Constants; 3] = [&bench.norm(), &constants, &matrix];
                let tensors = [&bench.state, &input, &params, &w, &q, &kv, &ring];
                let grid = columns(3 * a / 4, prefill, cols);
                let mut cache = LayerCache {
                    half,
                    ..LayerCache::default()
                };
                let want = split_qkv(&linear(&normed, &block.attn.c_attn), c, &mut cache);
                let what = format!("qkv C {c} {dtype} T {rows} {cols}x{ksplit}");
                let tolerance = tolerance(dtype);

                let got = bench
                    .run(LN_QKV, &constants, &tensors, grid, past, rows, &q)
                    .await;
                check_close(&what, &unpadded(&got, d, rows * c), &want, tolerance, 1e-4);

                let got = bench
                    .run(LN_QKV, &constants, &tensors, grid, past, rows, &ring)
                    .await;
                let slot = (past + rows - 1) % QUERY_RING;
                let last = unpadded(&got[4 * slot * a..], d, c);
                check_close(&what, &last, &want[(rows - 1) * c..], tolerance, 1e-4);

                let got = bench
                    .run(LN_QKV, &constants, &tensors, grid, past, rows, &kv)
                    .await;
                let values: Vec<f32> = if half {
                    let words = got.chunks_exact(2);
                    words
                        .map(|word| f16::from_le_bytes([word[0], word[1]]).to_f32())
                        .collect()
                } else {
                    bytemuck::pod_collect_to_vec(&got)
                };
                for (which, want) in [(0, &cache.keys), (1, &cache.values)] {
                    let first = (which * config.n_positions + past) * a;
                    let rows_of_it = bytemuck::cast_slice(&values[first..first + rows * a]);
                    let tolerance = if half { 4e-3 } else { tolerance };
                    let got = unpadded(rows_of_it, d, rows * c);
                    check_close(&format!("{what} {which}"), &got, want, tolerance, 1e-3);
                    // Neighbours are left alone.
                    assert!(values[first - a..first].iter().all(|x| *x == 0.0), "{what}");
                    let after = first + rows * a;
                    assert!(values[after..after + a].iter().all(|x| *x == 0.0), "{what}");
                }
            }
        }
    }
}

pub async fn attention_is_its_twin() {
    let gpu = gpu().await;
    let made = Made::new(json!({"n_layer": 1, "n_positions": 170}));
    let config = &made.config;
    let (c, d, h) = (config.n_embd, config.head_size(), config.n_head);
    let (n, scale) = (config.n_positions, config.score_scale(0));
    for half in [false, true] {
        let dtype = if half { Dtype::Fp16 } else { Dtype::Fp32 };
        let bench = Bench::new(&gpu, &made, dtype);
        let a = bench.layout.a;
        let stride = pad4(a + 2 * h);
        let (params, w) = (bench.params(), bench.matrix(Matrix::AttnProj));
        // Scores far apart, so that the order in which maxima are found matters.
        let mut cache = LayerCache {
            half,
            ..LayerCache::default()
        };
        let (keys, values) = (normals(3, n * c, 3.0), normals(4, n * c, 1.0));
        for (key, value) in keys.chunks(c).zip(values.chunks(c)) {
            cache.push(key, value);
        }
        let stored = [padded(&cache.keys, d), padded(&cache.values, d)].concat();
        let kv = if half {
            let halves = stored.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes());
            bench.upload(&halves.collect::<Vec<u8>>())
        } else {
            bench.floats(&stored)
        };
        // Positions seen by the last row, rows, splits: tiles have 64 positions.
        let decode = [1, 63, 64, 65, 130, 170]
            .into_iter()
            .flat_map(|seen| [1, 3, 4].map(|splits| (seen, 1, splits)));
        let prefill = [(2, 2, 1), (33, 33, 1), (130, 66, 1)];
        for (seen, rows, splits) in decode.chain(prefill) {
            let past = seen - rows;
            let what = format!("{seen} positions, {rows} rows, {splits} splits, half {half}");
            let (q, x) = (normals(5, rows * c, 1.0), normals(6, rows * c, 1.0));
            let parts = empty(&gpu, rows * splits * stride);
            let heads = [
                ("A4", (a / 4) as f64),
                ("D", pad4(d) as f64),
                ("STRIDE", stride as f64),
                ("SPLITS", splits as f64),
            ];
            let constants = [
                ("SCALE", f64::from(scale)),
                ("POSITIONS", n as f64),
                ("KV_F16", f64::from(u8::from(half))),
            ];
            let queries = bench.floats(&padded(&q, d));
            let grid = Grid::fixed(splits as u32, h as u32).rows(2, 1);
            let tensors = [&bench.state, &queries, &kv, &parts];
            bench
                .run(
                    ATTENTION,
                    &[&heads, &constants],
                    &tensors,
                    grid,
                    past,
                    rows,
                    &parts,
                )
                .await;

            let seen_by_last = LayerCache {
                keys: cache.keys[..seen * c].to_vec(),
                values: cache.values[..seen * c].to_vec(),
                half,
            };
            let mixed = attention(&q, &seen_by_last, h, d, scale);
            let mut want = x.clone();
            let c_proj = &bench.reference.weights.h[0].attn.c_proj;
            reference::add(&mut want, &linear(&mixed, c_proj));
            let one_row = rows == 1;
            for (cols, ksplit, tile_cols) in if seen == 130 { &CUTS[..] } else { &CUTS[1..2] } {
                let stream = bench.floats(&padded(&x, c));
                let (cols, ksplit) = if one_row {
                    (*cols, *ksplit)
                } else {
                    (*tile_cols, 1)
                };
                let constants = [
                    ("ONE_ROW", f64::from(u8::from(one_row))),
                    ("N4", (pad4(c) / 4) as f64),
                    ("COLS", f64::from(cols)),
                    ("KSPLIT", f64::from(ksplit)),
                ];
                let matrix = bench.matrix_constants(Matrix::AttnProj, Param::AttnProjBias);
                let constants: [Constants; 3] = [&heads, &constants, &matrix];
                let tensors = [&bench.state, &parts, &params, &w, &stream];
                let grid = columns(pad4(c) / 4, !one_row, cols);
                let got = bench
                    .run(MERGE_PROJ, &constants, &tensors, grid, past, rows, &stream)
                    .await;
                check_close(
                    &what,
                    &unpadded(&got, c, rows * c),
                    &want,
                    tolerance(dtype),
                    1e-4,
                );
            }
        }
    }
}

pub async fn the_mlp_kernels_are_their_twins() {
    let gpu = gpu().await;
    for made in shapes() {
        for dtype in Dtype::ALL {
            let bench = Bench::new(&gpu, &made, dtype);
            let config = &made.config;
            let (c, f) = (config.n_embd, config.n_inner);
            let block = &bench.reference.weights.h[0];
            let params = bench.params();
            let (c_fc, c_proj) = (bench.matrix(Matrix::CFc), bench.matrix(Matrix::MlpProj));
            for (prefill, rows, (cols, ksplit)) in forms(&made) {
                let what = format!("C {c} {dtype} T {rows} {cols}x{ksplit}");
                let x = normals(rows as u32, rows * c, 1.0);
                let normed = layer_norm(&x, &block.ln_2, config.layer_norm_epsilon);
                let input = bench.floats(&padded(if prefill { &normed } else { &x }, c));
                let cut = [("COLS", f64::from(cols)), ("KSPLIT", f64::from(ksplit))];

                let h = empty(&gpu, rows * pad4(f));
                let constants = [
                    ("ONE_ROW", f64::from(u8::from(!prefill))),
                    ("N4", (pad4(f) / 4) as f64),
                    ("WEIGHT", bench.at(Param::Ln2Weight)),
                    ("BIAS", bench.at(Param::Ln2Bias)),
                    share(prefill, cols, ksplit),
                    ("ACTIVATION", config.activation_function as u8 as f64),
                ];
                let matrix = bench.matrix_constants(Matrix::CFc, Param::CFcBias);
                let constants: [Constants; 4] = [&bench.norm(), &constants, &matrix, &cut];
                let tensors = [&bench.state, &input, &params, &c_fc, &h];
                let grid = columns(pad4(f) / 4, prefill, cols);
                let got = bench
                    .run(LN_FC, &constants, &tensors, grid, 3, rows, &h)
                    .await;
                let mut inner = linear(&normed, &block.mlp.c_fc);
                for x in &mut inner {
                    *x = activation(config.activation_function, *x);
                }
                let got = unpadded(&got, f, rows * f);
                check_close(
                    &format!("ln_fc {what}"),
                    &got,
                    &inner,
                    tolerance(dtype),
                    1e-4,
                );

                let (h, stream) = (
                    bench.floats(&padded(&inner, f)),
                    bench.floats(&padded(&x, c)),
                );
                let constants = [
                    ("ONE_ROW", f64::from(u8::from(!prefill))),
                    ("K4", (pad4(f) / 4) as f64),
                    ("N4", (pad4(c) / 4) as f64),
                ];
                let matrix = bench.matrix_constants(Matrix::MlpProj, Param::MlpProjBias);
                let tensors = [&bench.state, &h, &params, &c_proj, &stream];
                let grid = columns(pad4(c) / 4, prefill, cols);
                let constants: [Constants; 3] = [&constants, &matrix, &cut];
                let got = bench
                    .run(PROJ_RESIDUAL, &constants, &tensors, grid, 3, rows, &stream)
                    .await;
                let mut want = x.clone();
                reference::add(&mut want, &linear(&inner, &block.mlp.c_proj));
                let got = unpadded(&got, c, rows * c);
                check_close(
                    &format!("proj_residual {what}"),
                    &got,
                    &want,
                    tolerance(dtype),
                    1e-4,
                );
            }
        }
    }
}

/// On inputs where shaders have given NaN: the biases of a matrix of zeros.
pub async fn every_activation_is_finite_and_its_twin() {
    let gpu = gpu().await;
    let inputs = [
        -1e4, -100.0, -13.24, -5.0, -1.0, 0.0, 1e-3, 0.7, 5.0, 13.24, 100.0, 1e4,
    ];
    for name in [
        "gelu",
        "gelu_10",
        "gelu_new",
        "quick_gelu",
        "relu",
        "silu",
        "tanh",
    ] {
        let sizes = json!({"n_layer": 1, "n_inner": 12, "activation_function": name});
        let made = Made::edited(sizes, |tensor, values| match tensor {
            Named::Matrix {
                matrix: Matrix::CFc,
                ..
            } => values.fill(0.0),
            Named::Param {
                param: Param::CFcBias,
                ..
            } => values.copy_from_slice(&inputs),
            _ => {}
        });
        let bench = Bench::new(&gpu, &made, Dtype::Fp32);
        let (x, h) = (
            bench.floats(&vec![1.0; pad4(made.config.n_embd)]),
            empty(&gpu, 12),
        );
        let kind = made.config.activation_function;
        let constants = [
            ("ONE_ROW", 0.0),
            ("N4", 3.0),
            ("WEIGHT", 0.0),
            ("BIAS", 0.0),
            ("ACTIVATION", f64::from(kind as u8)),
        ];
        let matrix = bench.matrix_constants(Matrix::CFc, Param::CFcBias);
        let (params, w) = (bench.params(), bench.matrix(Matrix::CFc));
        let tensors = [&bench.state, &x, &params, &w, &h];
        let constants: [Constants; 3] = [&bench.norm(), &constants, &matrix];
        let got = bench
            .run(LN_FC, &constants, &tensors, columns(3, true, 64), 0, 1, &h)
            .await;
        let got: Vec<f32> = bytemuck::pod_collect_to_vec(&got);
        assert!(got.iter().all(|y| y.is_finite()), "{name}: {got:?}");
        let want = inputs.map(|x| activation(kind, x));
        check_close(name, &got, &want, 2e-5, 1e-5);
    }
}

pub async fn the_head_is_its_twin() {
    let gpu = gpu().await;
    for made in shapes() {
        for dtype in Dtype::ALL {
            let bench = Bench::new(&gpu, &made, dtype);
            let (c, v) = (made.config.n_embd, made.config.vocab_size);
            let params = bench.weights(Target::FinalParams);
            let (parts, part_vec4s) = bench.parts(Target::Wte);
            let scales = bench.weights(Target::WteScales);
            for ((cols, ksplit, _), rows) in CUTS.into_iter().zip([1, 2, 33, 8]) {
                let x = normals(rows as u32, rows * c, 1.0);
                let (input, logits) = (
                    bench.floats(&padded(&x, c)),
                    empty(&gpu, bench.layout.tiles() * 256),
                );
                let constants = [
                    ("WEIGHT", bench.at(Param::LnFWeight)),
                    ("BIAS", bench.at(Param::LnFBias)),
                    ("PART_VEC4S", part_vec4s),
                    share(false, cols, ksplit),
                    ("DTYPE", f64::from(dtype as u8)),
                    ("COLS", f64::from(cols)),
                    ("KSPLIT", f64::from(ksplit)),
                ];
                let [p, q, r] = &parts;
                let tensors = [&bench.state, &input, &params, p, q, r, &scales, &logits];
                let grid = Grid::fixed(bench.layout.tiles() as u32 * 64 / cols, 1);
                let constants: [Constants; 2] = [&bench.norm(), &constants];
                let got = bench
                    .run(LN_HEAD, &constants, &tensors, grid, 3, rows, &logits)
                    .await;
                let want = head(&made.config, &bench.reference.weights, &x[(rows - 1) * c..]);
                let got: Vec<f32> = bytemuck::pod_collect_to_vec(&got);
                let what = format!("head V {v} {dtype} T {rows} {cols}x{ksplit}");
                check_close(&what, &got[..v], &want, tolerance(dtype), 1e-4);
            }
        }
    }
}

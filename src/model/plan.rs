//! The two plans: the forward pass as a list of ops, recorded once. Decode has one row and folds the norms into the
//! matrices; prefill has T rows and norms each row once.

use std::cell::Cell;
use std::rc::Rc;

use serde::Serialize;

use super::{MAX_CHUNK, Weights};
use crate::checkpoint::layout::TILE_ROWS;
use crate::checkpoint::{Layout, Matrix, Param, pad4};
use crate::error::{Error, Result};
use crate::gpu::{DeviceInfo, Gpu, MemoryClass, Tensor};
use crate::kernel::{self, Grid, Kernel, Op, Shader};
use crate::kv_cache::{KvCache, QUERY_RING};
use crate::sampling::{MAX_TOP_LOGITS, RECORD_HEADER_BYTES, SamplingUniform};

/// How the kernels are cut for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tuning {
    /// Threads over columns in a matrix-vector workgroup; divides 64.
    pub cols: u32,
    /// Threads that share one dot product; 1 needs no barrier.
    pub ksplit: u32,
    /// Threads over columns in a matrix-matrix workgroup.
    pub tile_cols: u32,
    /// Workgroups that share the cached positions of one head in decode.
    pub splits: u32,
}

impl Tuning {
    /// Software adapters: no barrier, few threads. GPUs: enough threads to fill them, neighbours reading 128 bytes in a row.
    pub fn for_device(info: &DeviceInfo) -> Self {
        if info.is_fallback {
            Self {
                cols: 16,
                ksplit: 1,
                tile_cols: 16,
                splits: 1,
            }
        } else {
            Self {
                cols: 8,
                ksplit: 16,
                tile_cols: 64,
                splits: 4,
            }
        }
    }
}

/// Everything between two kernels, allocated once for the largest chunk.
pub struct Activations {
    /// Rows of the largest chunk.
    pub rows: usize,
    /// `[T, C]`: the residual stream.
    x: Tensor,
    /// `[T, C]`: the normed residual stream (prefill).
    normed: Tensor,
    /// `[T, A]`: queries.
    q: Tensor,
    /// `[T, SPLITS, A + 2·H]`: attention not yet divided, with maximum and sum per head.
    parts: Tensor,
    /// `[T, F]`: the MLP's inner values.
    h: Tensor,
    /// `[V]` rounded up to whole tiles: raw logits.
    pub logits: Tensor,
    /// `[V]`: logits after the processors.
    scores: Tensor,
    /// What `pick` answers.
    pub record: Tensor,
    /// The options of the run.
    pub sampling: Tensor,
    /// Candidates in the record of this run.
    pub listed: Cell<usize>,
}

impl Activations {
    /// Allocates them.
    pub fn new(gpu: &Rc<Gpu>, layout: &Layout, tuning: Tuning) -> Result<Self> {
        let rows = MAX_CHUNK.min(layout.config().n_positions);
        let floats = |name: &str, count: usize| {
            Tensor::new(gpu, name, count as u64 * 4, MemoryClass::Activations)
        };
        let vocabulary = layout.tiles() * TILE_ROWS;
        Ok(Self {
            rows,
            x: floats("x", rows * layout.c_p)?,
            normed: floats("normed x", rows * layout.c_p)?,
            q: floats("q", rows * layout.a)?,
            parts: floats(
                "attention parts",
                rows.max(tuning.splits as usize) * parts_stride(layout),
            )?,
            h: floats("h", rows * layout.f_p)?,
            logits: floats("logits", vocabulary)?,
            scores: floats("scores", vocabulary)?,
            record: floats("record", RECORD_HEADER_BYTES / 4 + 3 * MAX_TOP_LOGITS)?,
            sampling: floats("sampling", size_of::<SamplingUniform>() / 4)?,
            listed: Cell::new(0),
        })
    }
}

/// Values of one row and split in `parts`.
fn parts_stride(layout: &Layout) -> usize {
    pad4(layout.a + 2 * layout.config().n_head)
}

/// Bytes that are read back at once when somebody looks into the cache: enough for a few thousand values.
pub fn cell_bytes(layout: &Layout, cache: &KvCache) -> u64 {
    ((layout.a * 4).max(1 << 16)).min(cache.capacity() * layout.a * 4) as u64
}

/// The ops of a pass; the head follows the last layer of either plan.
pub struct Plans {
    /// T rows through the layers.
    pub prefill: Vec<Op>,
    /// One row through the layers.
    pub decode: Vec<Op>,
    /// The last row to logits, and the pick.
    pub head: Vec<Op>,
}

/// Records both plans: at most 7·L + 3 ops for prefill and 5·L + 3 for decode, the head included.
pub fn record(
    gpu: &Rc<Gpu>,
    weights: &Weights,
    cache: &KvCache,
    act: &Activations,
    tuning: Tuning,
) -> Result<Plans> {
    // attention.wgsl keeps the scores of 64 positions and one head's sum.
    let (needed, most) = (
        4 * (64 + weights.layout().d_p),
        gpu.limits().max_compute_workgroup_storage_size as usize,
    );
    if needed > most {
        return Err(Error::Limit(format!(
            "A head of {} values needs {needed} bytes of workgroup memory, and this adapter has {most}. Choose a model \
             with smaller heads.",
            weights.layout().config().head_size()
        )));
    }
    let recorder = Recorder {
        gpu,
        weights,
        layout: weights.layout(),
        cache,
        act,
        tuning,
    };
    Ok(Plans {
        prefill: recorder.layers(true)?,
        decode: recorder.layers(false)?,
        head: recorder.head()?,
    })
}

struct Recorder<'a> {
    gpu: &'a Rc<Gpu>,
    weights: &'a Weights,
    layout: &'a Layout,
    cache: &'a KvCache,
    act: &'a Activations,
    tuning: Tuning,
}

impl Recorder<'_> {
    /// The forward pass up to the head. Kernels are made once and shared by the layers; only what a layer owns is bound anew.
    fn layers(&self, prefill: bool) -> Result<Vec<Op>> {
        let (a, c, t) = (self.act, self.cache, self.tuning);
        let config = self.layout.config();
        let splits = if prefill { 1 } else { t.splits };
        let [c4, a4, f4] =
            [self.layout.c_p, self.layout.a, self.layout.f_p].map(|n| (n / 4) as u32);
        let c_is = ("C", config.n_embd as f64);
        let epsilon = ("EPSILON", f64::from(config.layer_norm_epsilon));
        let half = ("KV_F16", f64::from(u8::from(c.is_half())));
        let heads = [
            ("A4", f64::from(a4)),
            ("D", self.layout.d_p as f64),
            ("STRIDE", parts_stride(self.layout) as f64),
            ("SPLITS", f64::from(splits)),
        ];
        let at = |name, param| (name, (self.layout.param(param) / 4) as f64);

        let share = self.share(64);
        let fused = self.share(t.cols * t.ksplit);
        let ln_1 = [at("WEIGHT", Param::Ln1Weight), at("BIAS", Param::Ln1Bias)];
        let ln_2 = [at("WEIGHT", Param::Ln2Weight), at("BIAS", Param::Ln2Bias)];
        let norm_1 = self.kernel(kernel::LN, &[&[c_is, epsilon, share], &ln_1]);
        let norm_2 = self.kernel(kernel::LN, &[&[c_is, epsilon, share], &ln_2]);
        let ln_qkv = self.matrix(
            kernel::LN_QKV,
            prefill,
            Matrix::CAttn,
            Param::CAttnBias,
            &[
                &[c_is, epsilon, half, heads[0], fused],
                &ln_1,
                &[
                    ("POSITIONS", config.n_positions as f64),
                    ("RING", QUERY_RING as f64),
                ],
            ],
        );
        let merge_proj = self.matrix(
            kernel::MERGE_PROJ,
            prefill,
            Matrix::AttnProj,
            Param::AttnProjBias,
            &[&heads, &[("N4", f64::from(c4))]],
        );
        let ln_fc = self.matrix(
            kernel::LN_FC,
            prefill,
            Matrix::CFc,
            Param::CFcBias,
            &[
                &[c_is, epsilon, ("N4", f64::from(f4)), fused],
                &ln_2,
                &[("ACTIVATION", f64::from(config.activation_function as u32))],
            ],
        );
        let proj_residual = self.matrix(
            kernel::PROJ_RESIDUAL,
            prefill,
            Matrix::MlpProj,
            Param::MlpProjBias,
            &[&[("K4", f64::from(f4)), ("N4", f64::from(c4))]],
        );
        let rows_in_x = Grid::fixed(1, 1).rows(0, 1);
        let attention_grid = Grid::fixed(splits, config.n_head as u32).rows(2, 1);

        let mut ops = vec![self.embed()?];
        let mut attention: Option<(f32, Kernel)> = None;
        for layer in 0..config.n_layer {
            let scale = config.score_scale(layer);
            if attention.as_ref().is_none_or(|(known, _)| *known != scale) {
                let constants = [
                    ("SCALE", f64::from(scale)),
                    ("POSITIONS", config.n_positions as f64),
                    half,
                ];
                attention = Some((scale, self.kernel(kernel::ATTENTION, &[&heads, &constants])));
            }
            let Some((_, attention)) = &attention else {
                continue;
            };
            let params = self.weights.params(layer);
            let w = |matrix| self.weights.matrix(layer, matrix);
            let (keys_values, queries) = (c.layer(layer), c.queries(layer));
            let normed = if prefill { &a.normed } else { &a.x };

            if prefill {
                ops.push(norm_1.op(&[&a.x, params, &a.normed], rows_in_x)?);
            }
            ops.push(ln_qkv.op(
                &[
                    c.state(),
                    normed,
                    params,
                    w(Matrix::CAttn),
                    &a.q,
                    keys_values,
                    queries,
                ],
                self.columns(3 * a4, prefill),
            )?);
            ops.push(attention.op(&[c.state(), &a.q, keys_values, &a.parts], attention_grid)?);
            ops.push(merge_proj.op(
                &[c.state(), &a.parts, params, w(Matrix::AttnProj), &a.x],
                self.columns(c4, prefill),
            )?);
            if prefill {
                ops.push(norm_2.op(&[&a.x, params, &a.normed], rows_in_x)?);
            }
            ops.push(ln_fc.op(
                &[c.state(), normed, params, w(Matrix::CFc), &a.h],
                self.columns(f4, prefill),
            )?);
            ops.push(proj_residual.op(
                &[c.state(), &a.h, params, w(Matrix::MlpProj), &a.x],
                self.columns(c4, prefill),
            )?);
        }
        Ok(ops)
    }

    fn embed(&self) -> Result<Op> {
        let c4 = (self.layout.c_p / 4) as u32;
        let wte = &self.weights.wte;
        let [wte0, wte1, wte2] = wte.bindings();
        self.kernel(
            kernel::EMBED,
            &[&[
                ("DTYPE", self.dtype()),
                ("C4", f64::from(c4)),
                ("PART_VEC4S", wte.part_vec4s()),
            ]],
        )
        .op(
            &[
                self.cache.state(),
                self.cache.tokens(),
                wte0,
                wte1,
                wte2,
                &wte.scales,
                &self.weights.wpe,
                &self.act.x,
            ],
            Grid::fixed(c4.div_ceil(64), 1).rows(1, 1),
        )
    }

    /// The last row to logits, then the pick.
    fn head(&self) -> Result<Vec<Op>> {
        let (a, c) = (self.act, self.cache);
        let table = self.weights.head();
        let [head0, head1, head2] = table.bindings();
        let ln_head = self.kernel(
            kernel::LN_HEAD,
            &[
                &[
                    ("C", self.layout.config().n_embd as f64),
                    (
                        "EPSILON",
                        f64::from(self.layout.config().layer_norm_epsilon),
                    ),
                    ("WEIGHT", (self.layout.param(Param::LnFWeight) / 4) as f64),
                    ("BIAS", (self.layout.param(Param::LnFBias) / 4) as f64),
                    ("PART_VEC4S", table.part_vec4s()),
                    self.share(self.tuning.cols * self.tuning.ksplit),
                ],
                &self.cut(false),
            ],
        );
        let logits = ln_head.op(
            &[
                c.state(),
                &a.x,
                &self.weights.final_params,
                head0,
                head1,
                head2,
                &table.scales,
                &a.logits,
            ],
            Grid::fixed(
                (self.layout.tiles() * TILE_ROWS / 4) as u32 / self.tuning.cols,
                1,
            ),
        )?;
        let pick = self.kernel(kernel::PICK, &[&[self.lanes()]]).op(
            &[
                c.state(),
                c.tokens(),
                &a.logits,
                &a.scores,
                &a.record,
                &a.sampling,
            ],
            Grid::fixed(1, 1),
        )?;
        Ok(vec![logits, pick])
    }

    /// A kernel with a weight matrix.
    fn matrix(
        &self,
        shader: Shader,
        prefill: bool,
        matrix: Matrix,
        bias: Param,
        constants: &[&[(&str, f64)]],
    ) -> Kernel {
        let offsets = [
            ("MATRIX_BIAS", (self.layout.param(bias) / 4) as f64),
            (
                "SCALE",
                (self.layout.param(Param::Scales(matrix)) / 4) as f64,
            ),
        ];
        let cut = self.cut(prefill);
        let all: Vec<&[(&str, f64)]> = constants
            .iter()
            .copied()
            .chain([&offsets[..], &cut[..]])
            .collect();
        self.kernel(shader, &all)
    }

    /// The threads of `pick`: many share the vocabulary, but a software adapter does the work of all of them in turn, and
    /// takes seconds to compile as much workgroup memory.
    fn lanes(&self) -> (&'static str, f64) {
        ("LANES", if self.tuning.ksplit > 1 { 256.0 } else { 64.0 })
    }

    /// How many of a workgroup's threads sum a row together: all, or each alone where barriers cost more than they save.
    fn share(&self, threads: u32) -> (&'static str, f64) {
        let share = if self.tuning.ksplit > 1 { threads } else { 1 };
        ("SHARE", f64::from(share))
    }

    /// The constants of linear.wgsl.
    fn cut(&self, prefill: bool) -> [(&'static str, f64); 4] {
        let (cols, ksplit) = if prefill {
            (self.tuning.tile_cols, 1)
        } else {
            (self.tuning.cols, self.tuning.ksplit)
        };
        [
            ("DTYPE", self.dtype()),
            ("ONE_ROW", f64::from(u8::from(!prefill))),
            ("COLS", f64::from(cols)),
            ("KSPLIT", f64::from(ksplit)),
        ]
    }

    /// Workgroups over `n4` vec4 columns and, in prefill, tiles of eight rows.
    fn columns(&self, n4: u32, prefill: bool) -> Grid {
        if prefill {
            Grid::fixed(n4.div_ceil(self.tuning.tile_cols), 1).rows(1, 8)
        } else {
            Grid::fixed(n4.div_ceil(self.tuning.cols), 1)
        }
    }

    fn dtype(&self) -> f64 {
        self.layout.dtype() as u8 as f64
    }

    fn kernel(&self, shader: Shader, constants: &[&[(&str, f64)]]) -> Kernel {
        Kernel::new(self.gpu, shader, &constants.concat())
    }
}

//! Kernels and ops: WGSL files become pipelines, pipelines with their buffers become ops, and a plan is a list of ops.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::gpu::{Gpu, Tensor};

/// One WGSL file with one entry point, named like the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shader {
    /// File name and entry point.
    pub name: &'static str,
    /// Its own text, then the shared pieces it calls, so that error lines point into its own file.
    pub pieces: &'static [&'static str],
}

macro_rules! shader {
    ($name:literal $(, $shared:literal)*) => {
        Shader {
            name: $name,
            pieces: &[
                include_str!(concat!("../shaders/", $name, ".wgsl")),
                $(include_str!(concat!("../shaders/", $shared, ".wgsl")),)*
                include_str!("../shaders/common.wgsl"),
            ],
        }
    };
}

/// wte and wpe to x.
pub const EMBED: Shader = shader!("embed");
/// A layer norm of its own (prefill).
pub const LN: Shader = shader!("ln", "layer_norm");
/// Layer norm, c_attn, append to the cache.
pub const LN_QKV: Shader = shader!("ln_qkv", "layer_norm", "linear");
/// Attention over the cached positions, split.
pub const ATTENTION: Shader = shader!("attention");
/// Merge of the split attention, c_proj, residual.
pub const MERGE_PROJ: Shader = shader!("merge_proj", "linear");
/// Layer norm, c_fc, activation.
pub const LN_FC: Shader = shader!("ln_fc", "layer_norm", "linear", "activation");
/// mlp.c_proj, residual.
pub const PROJ_RESIDUAL: Shader = shader!("proj_residual", "linear");
/// ln_f and the head, last row only.
pub const LN_HEAD: Shader = shader!("ln_head", "layer_norm", "linear");
/// The next id.
pub const PICK: Shader = shader!("pick");

/// Reads memory and does nothing else.
pub const READ_CEILING: Shader = shader!("read_ceiling");
/// Multiplies and adds and does nothing else.
pub const FMA_CEILING: Shader = shader!("fma_ceiling");

/// All of them: in the order of a decode step, then the two ceilings.
pub const SHADERS: [Shader; 11] = [
    EMBED,
    LN,
    LN_QKV,
    ATTENTION,
    MERGE_PROJ,
    LN_FC,
    PROJ_RESIDUAL,
    LN_HEAD,
    PICK,
    READ_CEILING,
    FMA_CEILING,
];

impl Shader {
    /// The whole WGSL text.
    pub fn source(&self) -> String {
        self.pieces.join("\n")
    }

    /// How many bindings its text declares: read from the text itself, so that no second list can disagree.
    fn bindings(&self) -> usize {
        self.pieces[0].matches("@binding(").count()
    }

    /// How many of them are storage buffers.
    pub fn storage_buffers(&self) -> usize {
        self.pieces[0].matches("var<storage").count()
    }
}

/// What a device has compiled: its kernels share shader texts, and its models share kernels.
#[derive(Default)]
pub(crate) struct Compiled {
    modules: RefCell<HashMap<Shader, wgpu::ShaderModule>>,
    pipelines: RefCell<HashMap<(Shader, Constants), wgpu::ComputePipeline>>,
}

/// Names and values of override constants, the values as their bits.
type Constants = Vec<(String, u64)>;

/// A compiled kernel.
pub struct Kernel {
    gpu: Rc<Gpu>,
    shader: Shader,
    pipeline: wgpu::ComputePipeline,
}

/// The number of workgroups in x, y and z; one axis may grow with T.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    groups: [u32; 3],
    rows: Option<(usize, u32)>,
}

impl Grid {
    /// The same for every T.
    pub fn fixed(x: u32, y: u32) -> Self {
        Self {
            groups: [x, y, 1],
            rows: None,
        }
    }

    /// Axis `axis` (0, 1 or 2) has one workgroup for every `per_group` rows.
    pub fn rows(self, axis: usize, per_group: u32) -> Self {
        Self {
            rows: Some((axis, per_group)),
            ..self
        }
    }

    fn groups(&self, rows: u32) -> [u32; 3] {
        let mut groups = self.groups;
        if let Some((axis, per_group)) = self.rows {
            groups[axis] = rows.div_ceil(per_group);
        }
        groups
    }
}

impl Kernel {
    /// A shader with its override constants, compiled unless the device has compiled it before. A mistake in the text
    /// reaches [`Gpu::check`].
    pub fn new(gpu: &Rc<Gpu>, shader: Shader, constants: &[(&str, f64)]) -> Self {
        let key = constants
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.to_bits()));
        let mut pipelines = gpu.compiled.pipelines.borrow_mut();
        let pipeline = pipelines
            .entry((shader, key.collect()))
            .or_insert_with(|| Self::compile(gpu, shader, constants));
        Self {
            gpu: gpu.clone(),
            shader,
            pipeline: pipeline.clone(),
        }
    }

    fn compile(gpu: &Gpu, shader: Shader, constants: &[(&str, f64)]) -> wgpu::ComputePipeline {
        let mut modules = gpu.compiled.modules.borrow_mut();
        let module = modules.entry(shader).or_insert_with(|| {
            gpu.device
                .create_shader_module(wgpu::ShaderModuleDescriptor {
                    label: Some(shader.name),
                    source: wgpu::ShaderSource::Wgsl(shader.source().into()),
                })
        });
        gpu.count(|c| c.pipelines_created += 1);
        gpu.device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(shader.name),
                layout: None,
                module,
                entry_point: Some(shader.name),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants,
                    ..Default::default()
                },
                cache: None,
            })
    }

    /// Binds tensors to bindings 0, 1, 2, … and fixes the grid.
    ///
    /// # Errors
    /// [`Error::Internal`] if the number of tensors is not the number of bindings that the shader declares.
    pub fn op(&self, tensors: &[&Tensor], grid: Grid) -> Result<Op> {
        if tensors.len() != self.shader.bindings() {
            return Err(Error::Internal(format!(
                "Kernel '{}' declares {} bindings and was given {}. Please report this.",
                self.shader.name,
                self.shader.bindings(),
                tensors.len()
            )));
        }
        let entries: Vec<_> = tensors
            .iter()
            .enumerate()
            .map(|(i, tensor)| wgpu::BindGroupEntry {
                binding: i as u32,
                resource: tensor.buffer().as_entire_binding(),
            })
            .collect();
        let bind_group = self
            .gpu
            .device
            .create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(self.shader.name),
                layout: &self.pipeline.get_bind_group_layout(0),
                entries: &entries,
            });
        self.gpu.count(|c| c.bind_groups_created += 1);
        Ok(Op {
            name: self.shader.name,
            pipeline: self.pipeline.clone(),
            bind_group,
            grid,
        })
    }
}

/// A kernel with its buffers and its grid: one line of a plan, recorded once and replayed every step.
pub struct Op {
    name: &'static str,
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    grid: Grid,
}

impl Op {
    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The workgroups it dispatches for T rows.
    pub fn groups(&self, rows: u32) -> [u32; 3] {
        self.grid.groups(rows)
    }

    pub(crate) fn record(&self, pass: &mut wgpu::ComputePass, rows: u32) {
        let [x, y, z] = self.groups(rows);
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

//! The WGSL itself: every shader compiles on this machine's adapter, and keeps to the default limits of WebGPU.
#![cfg(not(target_arch = "wasm32"))]

use gpt2_webgpu::gpu::{DeviceInfo, Gpu, GpuOptions};
use gpt2_webgpu::kernel::{Kernel, SHADERS, Shader};
use gpt2_webgpu::model::Tuning;
use wgpu::naga;

/// The most values of a head for which the attention kernel's memory is enough.
const LARGEST_HEAD: f64 = 4032.0;

/// A value for every override that has no default, and the cut.
fn constants(shader: &Shader, cols: u32, ksplit: u32) -> Vec<(String, f64)> {
    let source = shader.source();
    let names = source
        .lines()
        .filter_map(|line| line.strip_prefix("override "));
    let constant = |line: &str| {
        let name = line.split(':').next()?.trim();
        let value = match name {
            "COLS" => f64::from(cols),
            "KSPLIT" => f64::from(ksplit),
            "D" => LARGEST_HEAD,
            "SHARE" => f64::from(cols * ksplit),
            _ if line.contains('=') => return None,
            _ => 16.0,
        };
        Some((name.to_owned(), value))
    };
    names.filter_map(constant).collect()
}

/// How the devices that there are cut their workgroups: decode, then prefill.
fn cuts() -> impl Iterator<Item = (u32, u32)> {
    [false, true].into_iter().flat_map(|is_fallback| {
        let tuning = Tuning::for_device(&DeviceInfo {
            is_fallback,
            ..DeviceInfo::default()
        });
        [(tuning.cols, tuning.ksplit), (tuning.tile_cols, 1)]
    })
}

#[test]
fn every_shader_compiles() {
    pollster::block_on(async {
        let gpu = Gpu::request(GpuOptions::default()).await.unwrap();
        println!("{:?}", gpu.info());
        for shader in SHADERS {
            for (cols, ksplit) in cuts() {
                let constants = constants(&shader, cols, ksplit);
                let constants: Vec<(&str, f64)> = constants
                    .iter()
                    .map(|(name, value)| (name.as_str(), *value))
                    .collect();
                Kernel::new(&gpu, shader, &constants);
                gpu.check()
                    .unwrap_or_else(|e| panic!("{}: {e}", shader.name));
            }
        }
    });
}

/// 256 threads and 16,384 bytes in a workgroup, 8 storage buffers: what every WebGPU adapter has.
#[test]
fn workgroups_keep_to_the_default_limits() {
    for shader in SHADERS {
        assert!(shader.storage_buffers() <= 8, "{}", shader.name);
        let module = naga::front::wgsl::parse_str(&shader.source()).expect("it compiles");
        let mut validator = naga::valid::Validator::new(
            naga::valid::ValidationFlags::all(),
            naga::valid::Capabilities::all(),
        );
        let info = validator.validate(&module).expect("it compiles");
        assert_eq!(module.entry_points.len(), 1, "{}", shader.name);
        for (cols, ksplit) in cuts() {
            let constants = constants(&shader, cols, ksplit).into_iter().collect();
            let entry = Some((naga::ShaderStage::Compute, shader.name));
            let (module, _) = naga::back::pipeline_constants::process_overrides(
                &module, &info, entry, &constants,
            )
            .expect("a value for every override");
            let what = format!("{} {cols}x{ksplit}", shader.name);
            let threads: u32 = module.entry_points[0].workgroup_size.iter().product();
            assert!((1..=256).contains(&threads), "{what}: {threads} threads");
            let mut layouter = naga::proc::Layouter::default();
            layouter.update(module.to_ctx()).unwrap();
            let shared: u32 = module
                .global_variables
                .iter()
                .filter(|(_, variable)| variable.space == naga::AddressSpace::WorkGroup)
                .map(|(_, variable)| layouter[variable.ty].size)
                .sum();
            assert!(shared <= 16_384, "{what}: {shared} bytes");
        }
    }
}

//! Every shader compiles on this machine's adapter and keeps to the default limits.
#![cfg(not(target_arch = "wasm32"))]

use gpt2_webgpu::gpu::{Gpu, GpuOptions};
use gpt2_webgpu::kernel::{Kernel, SHADERS};

#[test]
fn every_shader_compiles() {
    pollster::block_on(async {
        let gpu = Gpu::request(GpuOptions::default()).await.unwrap();
        println!("{:?}", gpu.info());
        for shader in SHADERS {
            // Overrides without a default need a value.
            let source = shader.source();
            let constants: Vec<(&str, f64)> = source
                .lines()
                .filter(|l| l.starts_with("override") && !l.contains('='))
                .map(|l| {
                    (
                        l["override ".len()..].split(':').next().unwrap().trim(),
                        16.0,
                    )
                })
                .collect();
            Kernel::new(&gpu, shader, &constants);
            gpu.check()
                .unwrap_or_else(|e| panic!("{}: {e}", shader.name));
            assert!(shader.storage_buffers() <= 8, "{}", shader.name);
        }
    });
}

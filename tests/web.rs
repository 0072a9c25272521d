//! Tests inside a real browser: `wasm-pack test --headless --chrome`.
#![cfg(target_arch = "wasm32")]

use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

#[wasm_bindgen_test]
async fn the_browser_gives_an_adapter() {
    let instance = wgpu::Instance::default();
    let adapter = instance.request_adapter(&Default::default()).await;
    adapter.expect("WebGPU needs the browser flags in webdriver.json");
}

//! wasm-bindgen: wasm-pack asks it for its version, and takes the test runner beside it.

fn main() -> anyhow::Result<()> {
    wasm_bindgen_cli::wasm_bindgen::run_cli_with_args(std::env::args_os())
}

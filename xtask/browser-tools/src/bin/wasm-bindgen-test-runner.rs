//! The runner that cargo starts with each compiled test file: it serves the file to a browser and reports what came of it.

fn main() -> anyhow::Result<()> {
    wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args(std::env::args_os())
}

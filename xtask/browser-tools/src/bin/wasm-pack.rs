//! wasm-pack, without its search for a newer version of itself.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    let cli = wasm_pack::Cli::parse();
    wasm_pack::PBAR.set_log_level(cli.log_level);
    wasm_pack::command::run_wasm_pack(cli.cmd)
}

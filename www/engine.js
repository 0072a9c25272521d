// The WebAssembly module, loaded once.

import { env } from "./env.js";
import { Gpt2Error } from "./errors.js";

let engine;

export function loadEngine() {
  engine ??= (async () => {
    const url = new URL("./pkg/gpt2_webgpu_bg.wasm", import.meta.url);
    const wasm = await import("./pkg/gpt2_webgpu.js").catch((error) => {
      throw new Gpt2Error("http", `The engine could not be loaded next to ${import.meta.url}: ${error.message}`, { cause: error });
    });
    const response = await env.fetch(url).catch((error) => {
      throw new Gpt2Error("network", `Could not fetch ${url}.`, { cause: error });
    });
    if (!response.ok) throw new Gpt2Error("http", `${url} answered with status ${response.status}.`);
    await wasm.default({ module_or_path: response });
    return wasm;
  })();
  engine.catch(() => (engine = undefined));
  return engine;
}

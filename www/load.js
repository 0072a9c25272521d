// Loading a model: config.json, tokenizer and weights, which stream from where they are to the GPU in small pieces.

import { loadEngine } from "./engine.js";
import { Gpt2Error, aborted, throwIfAborted } from "./errors.js";
import { forget } from "./parts.js";
import { Progress } from "./progress.js";
import { beginAnew, smallFile, tokenizerOf } from "./tokenizer.js";

/** Bytes handed to WebAssembly at once: small enough that converting them is a short task. */
const PIECE = 1 << 20;
/** Milliseconds of work after which loading lets the page breathe. */
const SLICE_MS = 12;

/** What says that the files are not those of a model, whatever the GPU. */
const NO_MODEL = new Set(["not-a-gpt2", "bad-config", "bad-checkpoint", "bad-tokenizer"]);

/** Everything that holds GPU memory now. */
const holders = new Set();

/** Live bytes on the GPU of all models and loads of this page. */
export function gpuBytes() {
  let bytes = 0;
  for (const holder of holders) {
    const { total } = holder.memory();
    if (total) bytes += total;
    else holders.delete(holder);
  }
  return bytes;
}

/** Loads the model of a source: `{ inner, tokenizer, notes }`. */
export async function loadModel(folder, { dtype, default_limits, signal, progress_callback }) {
  const wasm = await loadEngine();
  // Refuses an unknown one before anything is fetched.
  if (dtype !== "auto") wasm.smaller_dtype(dtype);
  const progress = new Progress(folder.name, progress_callback);
  const asked = { dtype: dtype === "auto" ? null : dtype };
  for (;;) {
    try {
      const model = await attempt(wasm, folder, asked, default_limits, progress, signal);
      progress.ready();
      return { ...model, notes: progress.notes };
    } catch (error) {
      if (signal?.aborted) throw error.code === "aborted" ? error : aborted(error);
      // Bytes that turned out to be no model are not kept.
      if (NO_MODEL.has(error.code)) await forget(folder);
      const smaller = dtype === "auto" && error.code === "out-of-memory" && asked.dtype && wasm.smaller_dtype(asked.dtype);
      if (smaller && !progress.told("smaller-dtype")) {
        progress.note("smaller-dtype", `The GPU had no room for this model in ${asked.dtype}, so it was loaded in ${smaller}.`);
        asked.dtype = smaller;
        progress.restart();
      } else {
        beginAnew(error, folder, progress);
        if (dtype === "auto") asked.dtype = null;
      }
    }
  }
}

async function attempt(wasm, folder, asked, default_limits, progress, signal) {
  const config = new TextDecoder().decode(await smallFile(folder, "config.json", progress, signal));
  // Another kind of model is refused before anything large is fetched.
  wasm.auto_dtype(config);
  const tokenizer = await tokenizerOf(folder, progress, signal, true);
  const weights = weightFiles(wasm, folder, progress, signal);
  let loader;
  const abort = () => loader?.abort();
  signal?.addEventListener("abort", abort);
  try {
    let next = await weights.next();
    asked.dtype ??= wasm.auto_dtype(config, next.value.total ?? undefined);
    loader = await wasm.ModelLoader.create(config, asked.dtype, { default_limits });
    holders.add(loader);
    for (; !next.done; next = await weights.next()) await push(loader, next.value, signal);
    if (!progress.told("uncached")) await folder.seal?.();
    if (tokenizer) tokenizer.lend(loader);
    throwIfAborted(signal);
    const inner = await loader.finish();
    if (signal?.aborted) inner.dispose();
    throwIfAborted(signal);
    holders.add(inner);
    return { inner, tokenizer };
  } catch (error) {
    loader?.abort();
    throw error;
  } finally {
    holders.delete(loader);
    signal?.removeEventListener("abort", abort);
    await weights.return();
  }
}

async function push(loader, { file, opened, reporter }, signal) {
  let loaded = 0;
  let last = performance.now();
  loader.begin_file(file, undefined);
  for await (const chunk of opened.chunks) {
    for (let at = 0; at < chunk.byteLength; at += PIECE) {
      const piece = chunk.subarray(at, at + PIECE);
      loader.push(piece);
      reporter.bytes((loaded += piece.byteLength));
      if (performance.now() - last >= SLICE_MS) {
        await breathe();
        last = performance.now();
      }
      throwIfAborted(signal);
    }
  }
  loader.end_file();
  reporter.done();
}

/** Lets the page handle what waits, without the pause that a timer would make. */
function breathe() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

/** The one weight file, or the shards that the index names, in its order; `total` is the bytes of all of them, if known. */
async function* weightFiles(wasm, folder, progress, signal) {
  const open = async (file, optional) => {
    const reporter = progress.file(file);
    const opened = await folder.open(file, { signal, optional, onNote: (...note) => progress.note(...note) });
    if (opened) reporter.opened(opened.length);
    else reporter.missing();
    return { file, reporter, opened };
  };
  const close = async ({ opened }) => opened?.chunks.return?.();
  const single = await open("model.safetensors", true);
  if (single.opened) {
    const total = single.opened.length;
    progress.expectWeights(total);
    try {
      yield { ...single, total };
    } finally {
      await close(single);
    }
    return;
  }
  const index = await smallFile(folder, "model.safetensors.index.json", progress, signal, true);
  if (!index) throw await noWeights(folder, signal);
  const text = new TextDecoder().decode(index);
  const files = wasm.shard_files(text);
  const total = indexTotal(text);
  progress.expectWeights(total);
  for (const file of files) {
    const shard = await open(file, false);
    try {
      yield { ...shard, total };
    } finally {
      await close(shard);
    }
  }
}

function indexTotal(text) {
  const total = JSON.parse(text).metadata?.total_size;
  return Number.isSafeInteger(total) && total > 0 ? total : null;
}

async function noWeights(folder, signal) {
  const where = folder.url ?? folder.name;
  if (await folder.has("pytorch_model.bin", signal)) {
    return new Gpt2Error("bad-checkpoint", `${where} has its weights only as pytorch_model.bin, which is not read. Save the model again in Python with model.save_pretrained(folder, safe_serialization=True), or use a copy that has model.safetensors.`);
  }
  return new Gpt2Error("http", `${where} has neither model.safetensors nor model.safetensors.index.json. Weights must be in the safetensors format.`);
}

// The public API: transformers.js names in snake_case over the WebAssembly engine.
//
// Errors are `Error` objects with a `code`: no-webgpu, insecure-context, no-adapter, device-lost, out-of-memory, limit,
// network, http, cors, not-a-gpt2, bad-config, bad-checkpoint, bad-tokenizer, bad-option, prompt-too-long, bad-trace,
// busy, disposed, aborted, internal.

import { Gpt2Error, coded, throwIfAborted } from "./errors.js";
import { env, readAll, resolveSource } from "./source.js";

export { Gpt2Error, env };

/** Bytes handed to WebAssembly at once: small enough that converting them is a short task. */
const PIECE = 1 << 20;
/** Milliseconds of work after which loading lets the page breathe. */
const SLICE_MS = 12;

let engine;

/** The WebAssembly module, loaded once. */
function loadEngine() {
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

/** Runs `work` and gives every failure a code. */
async function guarded(work) {
  try {
    return await work();
  } catch (error) {
    throw coded(error);
  }
}

const tokenizers = new Map();

/** Tokenizers by source. */
export const AutoTokenizer = {
  /** Loads `tokenizer.json` from a folder; the same folder is fetched once. */
  async from_pretrained(source, { progress_callback, signal } = {}) {
    return guarded(async () => {
      const folder = resolveSource(source);
      const tokenizer = await sharedTokenizer(folder, progress_callback, signal, false);
      progress_callback?.({ status: "ready", model: folder.name });
      return tokenizer;
    });
  },
};

function sharedTokenizer(folder, progress_callback, signal, optional) {
  const key = folder.url.href;
  if (!tokenizers.has(key)) {
    const pending = readTokenizer(folder, progress_callback, signal, optional);
    tokenizers.set(key, pending);
    pending.then((tokenizer) => tokenizer ?? tokenizers.delete(key), () => tokenizers.delete(key));
  }
  return tokenizers.get(key);
}

/** `tokenizer.json`, or the older pair of `vocab.json` and `merges.txt`; null when `optional` and there is neither. */
async function readTokenizer(folder, progress_callback, signal, optional) {
  const small = (file, may_lack) => smallFile(folder, file, progress_callback, signal, may_lack);
  const [wasm, whole] = await Promise.all([loadEngine(), small("tokenizer.json", true)]);
  if (whole) return new Tokenizer(wasm.Tokenizer.from_json(whole));
  const vocab = await small("vocab.json", optional);
  return vocab && new Tokenizer(wasm.Tokenizer.from_vocab_and_merges(vocab, await small("merges.txt", false)));
}

async function smallFile(folder, file, progress_callback, signal, optional) {
  const progress = fileProgress(folder, file, progress_callback);
  const opened = await folder.open(file, { signal, optional, onBytes: progress.bytes });
  if (!opened) return null;
  const bytes = await readAll(opened);
  progress.done();
  return bytes;
}

/** transformers.js statuses for one file: initiate, download, progress, done. */
function fileProgress(folder, file, progress_callback) {
  const about = { name: folder.name, file };
  let started = false;
  progress_callback?.({ status: "initiate", ...about });
  return {
    bytes(loaded, total) {
      if (!started) progress_callback?.({ status: "download", ...about });
      started = true;
      const progress = total ? Math.min(100, (100 * loaded) / total) : 0;
      progress_callback?.({ status: "progress", ...about, progress, loaded, total: total ?? 0 });
    },
    done: () => progress_callback?.({ status: "done", ...about }),
  };
}

/** Text to ids and back. */
class Tokenizer {
  #inner;
  constructor(inner) {
    this.#inner = inner;
  }
  /** Ids of a text. */
  encode(text) {
    return call(() => Array.from(this.#inner.encode(text)));
  }
  /** Text of ids. */
  decode(ids, { skip_special_tokens = false } = {}) {
    return call(() => this.#inner.decode(Uint32Array.from(ids), skip_special_tokens));
  }
  /** `[{id, text, bytes, start, end, special}]`; start and end in UTF-16 units. */
  tokens(text) {
    return call(() => this.#inner.tokens(text));
  }
  /** One more than the highest id. */
  get vocab_size() {
    return this.#inner.vocab_size;
  }
  /** The engine's own handle, for a model that uses this tokenizer. */
  get handle() {
    return this.#inner;
  }
}

function call(work) {
  try {
    return work();
  } catch (error) {
    throw coded(error);
  }
}

/** GPT-2 on the GPU. */
export class GPT2LMHeadModel {
  #inner;
  #streaming = new Set();

  /**
   * Loads `config.json`, the weights and the tokenizer of a folder. Weights stream from the network to the GPU.
   * Options: `dtype` ("fp32", "fp16"), `progress_callback`, `signal`, `default_limits`.
   */
  static async from_pretrained(source, options = {}) {
    return guarded(async () => {
      const { dtype = "fp32", revision, progress_callback, signal, default_limits, ...unknown } = options;
      refuseUnknown(unknown, "from_pretrained");
      if (revision !== undefined && revision !== "main") {
        throw new Gpt2Error("bad-option", "revision belongs to hub ids; this source is a folder.");
      }
      const folder = resolveSource(source);
      const wasm = await loadEngine();
      const config = new TextDecoder().decode(await smallFile(folder, "config.json", progress_callback, signal));
      const loader = await wasm.ModelLoader.create(config, dtype, { default_limits });
      try {
        const tokenizer = await sharedTokenizer(folder, progress_callback, signal, true);
        if (tokenizer) loader.use_tokenizer(tokenizer.handle);
        await pushWeights(wasm, loader, folder, progress_callback, signal);
        const model = new GPT2LMHeadModel(await loader.finish(), tokenizer, folder.name);
        progress_callback?.({ status: "ready", model: folder.name });
        return model;
      } catch (error) {
        try {
          loader.abort();
        } catch {
          // Already finished or freed: the first error is the one to tell.
        }
        throw error;
      }
    });
  }

  /** @private use `from_pretrained`. */
  constructor(inner, tokenizer, name) {
    this.#inner = inner;
    this.tokenizer = tokenizer ?? null;
    this.name = name;
    this.config = inner.config;
    this.dtype = inner.dtype;
    this.device_info = inner.device_info;
    this.past_key_values = {
      /** Cached positions. */
      get_seq_length: () => call(() => inner.get_seq_length()),
      /** Bytes of one position: all layers, K and V. */
      position_bytes: () => call(() => inner.position_bytes()),
    };
  }
  /** What the engine did since loading: submits, passes, dispatches, bytes and so on. */
  counters() {
    return call(() => this.#inner.counters());
  }
  /** Live bytes on the GPU: weights, kv_cache, activations, readback, total. */
  memory() {
    return call(() => this.#inner.memory());
  }
  /** The keys or values of one position in one layer, read back from the GPU. */
  read_kv(layer, which, position) {
    return guarded(() => this.#inner.read_kv(layer, which, position));
  }
  /** The attention weights of the last step over the cached positions. */
  attention(layer, head) {
    return guarded(() => this.#inner.attention(layer, head));
  }
  /** Measured memory bandwidth and arithmetic rate of this device. */
  roofline() {
    return this.#optional("roofline");
  }
  /** Compares the GPU with the plain-Rust reference. */
  self_check() {
    return this.#optional("self_check");
  }
  #optional(name) {
    return guarded(() => {
      if (!this.#inner[name]) throw new Gpt2Error("bad-option", `This build does not have ${name}().`);
      return this.#inner[name]();
    });
  }

  /** Ends what runs and frees the GPU memory. */
  dispose() {
    for (const run of this.#streaming) run.interrupt();
    return guarded(() => this.#inner.dispose());
  }

  /**
   * Starts a run and gives its events one by one, as they happen. What it returns can be iterated with `for await` and
   * has `next()`, `interrupt()` and a settable `max_in_flight`.
   */
  stream(options = {}) {
    return call(() => {
      const { streamer, stopping_criteria, signal, ...rest } = options;
      throwIfAborted(signal);
      const run = new Stream(this.#inner.stream(rest), { streamer, stopping_criteria, signal }, () => this.#streaming.delete(run));
      this.#streaming.add(run);
      return run;
    });
  }

  /** Runs to the end: `{ sequences, new_tokens, text, finish_reason, timings, top_logits?, seed, warnings }`. */
  async generate(options = {}) {
    const prompt = [];
    const new_tokens = [];
    const top_logits = [];
    let text = this.tokenizer ? "" : null;
    let done;
    for await (const event of this.stream(options)) {
      if (event.type === "tokenized") prompt.push(...event.tokens.map((token) => token.id));
      else if (event.type === "prefilled" || event.type === "decoded") {
        new_tokens.push(event.token_id);
        top_logits.push(event.candidates.map((candidate) => [candidate.id, candidate.logit]));
      } else if (event.type === "text" && text !== null) text += event.text;
      else if (event.type === "error") throw new Gpt2Error(event.code, event.message);
      else if (event.type === "done") done = event;
    }
    throwIfAborted(options.signal);
    if (!done) throw new Gpt2Error("internal", "The run ended without saying why.");
    const { finish_reason, timings, seed, warnings } = done;
    const result = { sequences: [[...prompt, ...new_tokens]], new_tokens, text, finish_reason, timings, seed, warnings };
    return options.top_logits ? { ...result, top_logits } : result;
  }
}

async function pushWeights(wasm, loader, folder, progress_callback, signal) {
  let last = performance.now();
  const breathe = async () => {
    if (performance.now() - last < SLICE_MS) return;
    await new Promise((resolve) => setTimeout(resolve));
    last = performance.now();
  };
  for await (const { file, opened, progress } of weightFiles(wasm, folder, progress_callback, signal)) {
    loader.begin_file(file, opened.length ?? undefined);
    for await (const chunk of opened.chunks) {
      for (let at = 0; at < chunk.byteLength; at += PIECE) {
        await loader.push(chunk.subarray(at, at + PIECE));
        await breathe();
        throwIfAborted(signal);
      }
    }
    loader.end_file();
    progress.done();
  }
}

/** The one weight file, or the shards that the index names, in its order. */
async function* weightFiles(wasm, folder, progress_callback, signal) {
  const open = async (file, optional) => {
    const progress = fileProgress(folder, file, progress_callback);
    return { file, progress, opened: await folder.open(file, { signal, optional, onBytes: progress.bytes }) };
  };
  const single = await open("model.safetensors", true);
  if (single.opened) {
    yield single;
    return;
  }
  const index = await smallFile(folder, "model.safetensors.index.json", progress_callback, signal, true);
  if (!index) {
    throw new Gpt2Error("http", `${folder.url} has neither model.safetensors nor model.safetensors.index.json. Weights must be in the safetensors format.`);
  }
  for (const file of wasm.shard_files(new TextDecoder().decode(index))) yield await open(file, false);
}

function refuseUnknown(unknown, where) {
  const [name] = Object.keys(unknown);
  if (name) throw new Gpt2Error("bad-option", `${where} has no option "${name}".`);
}

/** One run in progress. */
class Stream {
  #run;
  #end;
  #streamer;
  #detach;
  #queue = Promise.resolve();

  constructor(run, { streamer, stopping_criteria, signal }, end) {
    this.#run = run;
    this.#end = end;
    this.#streamer = streamer;
    const interrupt = () => this.interrupt();
    stopping_criteria?.attach(interrupt);
    signal?.addEventListener("abort", interrupt);
    this.#detach = () => {
      stopping_criteria?.detach(interrupt);
      signal?.removeEventListener("abort", interrupt);
    };
  }

  get max_in_flight() {
    return this.#run.max_in_flight;
  }
  set max_in_flight(steps) {
    call(() => (this.#run.max_in_flight = steps));
  }

  /** Ends the run at the next event. */
  interrupt() {
    this.#run?.interrupt();
  }

  /** `{ value: event, done: false }`, or `{ done: true }` after the last. */
  next() {
    const step = this.#queue.then(() => this.#pull());
    this.#queue = step.catch(() => {});
    return step;
  }

  async #pull() {
    if (!this.#run) return { value: undefined, done: true };
    try {
      const event = await this.#run.next();
      if (event === undefined) this.#finish();
      else this.#feed(event);
      return { value: event, done: event === undefined };
    } catch (error) {
      this.#finish();
      throw coded(error);
    }
  }

  #feed(event) {
    if (event.type === "tokenized") this.#streamer?.put([event.tokens.map((token) => BigInt(token.id))]);
    else if (event.type === "prefilled" || event.type === "decoded") this.#streamer?.put([[BigInt(event.token_id)]]);
    else if (event.type === "done") this.#streamer?.end();
  }

  #finish() {
    this.#detach();
    this.#run = null;
    this.#end();
  }

  /** Called when a `for await` loop is left early. */
  async return() {
    this.interrupt();
    while (!(await this.next()).done);
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

/** What a streamer has; extend it for your own. */
export class BaseStreamer {
  /** Called with the whole prompt first, then once per new token. */
  put() {
    throw new Gpt2Error("internal", "A streamer needs put(value).");
  }
  end() {
    throw new Gpt2Error("internal", "A streamer needs end().");
  }
}

/** Gives text as soon as whole characters are known. */
export class TextStreamer extends BaseStreamer {
  #ids = [];
  #shown = 0;
  #prompt = true;

  constructor(tokenizer, { skip_prompt = false, callback_function = null, token_callback_function = null, skip_special_tokens = true } = {}) {
    super();
    this.tokenizer = tokenizer;
    this.skip_prompt = skip_prompt;
    this.skip_special_tokens = skip_special_tokens;
    this.callback_function = callback_function ?? ((text) => console.log(text));
    this.token_callback_function = token_callback_function;
  }

  put([ids]) {
    const prompt = this.#prompt;
    this.#prompt = false;
    if (prompt && this.skip_prompt) return;
    this.token_callback_function?.(ids);
    this.#ids.push(...ids.map(Number));
    const text = this.#text();
    // A trailing replacement character is the beginning of a character that the next ids complete.
    if (!text.endsWith("\ufffd")) this.#show(text);
  }

  end() {
    this.#show(this.#text());
    this.#ids = [];
    this.#shown = 0;
    this.#prompt = true;
  }

  #text() {
    return this.tokenizer.decode(this.#ids, { skip_special_tokens: this.skip_special_tokens });
  }

  #show(text) {
    if (text.length > this.#shown) this.callback_function(text.slice(this.#shown));
    this.#shown = text.length;
  }
}

/** A stop button for `generate` and `stream`. */
export class InterruptableStoppingCriteria {
  #runs = new Set();
  interrupted = false;

  /** Ends every run that was started with these criteria. */
  interrupt() {
    this.interrupted = true;
    for (const interrupt of this.#runs) interrupt();
  }
  /** Makes them usable again. */
  reset() {
    this.interrupted = false;
  }
  attach(interrupt) {
    this.#runs.add(interrupt);
    if (this.interrupted) interrupt();
  }
  detach(interrupt) {
    this.#runs.delete(interrupt);
  }
}

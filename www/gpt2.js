// The public API: transformers.js names in snake_case over the WebAssembly engine.
//
// Errors are `Error` objects with a `code`: no-webgpu, insecure-context, no-adapter, device-lost, out-of-memory, limit,
// network, http, cors, not-a-gpt2, bad-config, bad-checkpoint, bad-tokenizer, bad-option, prompt-too-long, bad-trace,
// busy, disposed, aborted, internal.

import { env } from "./env.js";
import { Gpt2Error, coded, throwIfAborted } from "./errors.js";
import { gpuBytes, loadModel } from "./load.js";
import { filesOfDrop } from "./local.js";
import * as downloads from "./parts.js";
import { resolveSource } from "./source.js";
import { AutoTokenizer } from "./tokenizer.js";

export { AutoTokenizer, Gpt2Error, downloads, env, filesOfDrop, gpuBytes, resolveSource };

/** Runs `work` and gives every failure a code. */
async function guarded(work) {
  try {
    return await work();
  } catch (error) {
    throw coded(error);
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
   * Loads `config.json`, the weights and the tokenizer of a source: a hub id, an address, a path on this site or a list of
   * `File`s. Weights stream to the GPU as they come.
   * Options: `dtype` ("auto", "fp32", "fp16", "q8"), `revision` (hub ids), `progress_callback`, `signal`, `default_limits`.
   */
  static async from_pretrained(source, options = {}) {
    return guarded(async () => {
      const { dtype = "auto", revision, progress_callback, signal, default_limits, ...unknown } = options;
      refuseUnknown(unknown, "from_pretrained");
      throwIfAborted(signal);
      const folder = resolveSource(source, { revision });
      return new GPT2LMHeadModel(await loadModel(folder, { dtype, default_limits, signal, progress_callback }), folder.name);
    });
  }

  /** @private use `from_pretrained`. */
  constructor({ inner, tokenizer, notes }, name) {
    this.#inner = inner;
    this.tokenizer = tokenizer ?? null;
    this.name = name;
    /** What the reader should know about this load. */
    this.notes = notes;
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
  /** What this device can do, measured now: `{ read_gbps, fma_gflops, dispatch_us }`. The model is busy meanwhile. */
  roofline() {
    return guarded(() => this.#inner.roofline());
  }
  /**
   * Compares this GPU with the plain-Rust reference, and with what is published about OpenAI's weights:
   * `{ ok, max_logit_diff, checks: [{ name, ok, detail }] }`. The cache is empty afterwards.
   */
  self_check() {
    return guarded(() => this.#inner.self_check(this.name));
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

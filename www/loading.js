// Loading a model and checking it: one at a time; a new load cancels the one before and frees the old model first.

import { BUNDLED } from "./catalog.js";
import { AutoTokenizer, GPT2LMHeadModel, resolveSource } from "./gpt2.js";

export class Loading {
  #current = null;
  #changed;
  #told;

  /** `changed()` redraws; `told` has `started`, `progress`, `tokenizer`, `loaded`, `checked`, `refused` and `failed`. */
  constructor(changed, told) {
    this.#changed = changed;
    this.#told = told;
    this.model = null;
    this.tokenizer = null;
    this.source = BUNDLED;
    this.dtype = "auto";
    /** Resolved when no self check is running: a model does one thing at a time. */
    this.checking = Promise.resolve();
  }

  /** Per cent of the running load, null when unknown; undefined when nothing loads. */
  get percent() {
    return this.#current?.percent;
  }

  async load(source = this.source, dtype = this.dtype) {
    let folder;
    try {
      folder = resolveSource(source);
    } catch (error) {
      return this.#told.refused(error);
    }
    this.#current?.abort.abort();
    const mine = (this.#current = { abort: new AbortController(), percent: null });
    [this.source, this.dtype] = [source, dtype];
    const old = this.model;
    this.model = null;
    this.#told.started();
    try {
      // Freed first: both at once may not fit.
      await old?.dispose().catch(() => {});
      const { signal } = mine.abort;
      this.tokenizer = await AutoTokenizer.from_pretrained(folder, { signal });
      this.#told.tokenizer();
      const model = await GPT2LMHeadModel.from_pretrained(folder, { dtype, signal, progress_callback: (info) => this.#progress(mine, info) });
      if (mine !== this.#current) return void model.dispose();
      this.model = model;
      this.#current = null;
      // Files that changed during the load brought another one.
      if (model.tokenizer !== this.tokenizer) {
        this.tokenizer = model.tokenizer;
        this.#told.tokenizer();
      }
      this.#told.loaded(model);
      // On a software adapter the check takes as long as a run: there the reader asks for it.
      if (!model.device_info.is_fallback) this.check();
    } catch (error) {
      if (mine !== this.#current) return;
      this.#current = null;
      this.#told.failed(error);
    } finally {
      this.#changed();
    }
  }

  cancel() {
    this.#current?.abort.abort();
  }

  /** Compares the device's results with the reference's; the verdict is told. */
  check() {
    const { model } = this;
    this.checking = model.self_check().then((verdict) => model === this.model && this.#told.checked(verdict), (error) => model === this.model && this.#told.checked(null, error));
    return this.checking;
  }

  #progress(mine, info) {
    if (info.status !== "progress_total" || mine !== this.#current) return;
    mine.percent = info.progress === null ? null : Math.floor(info.progress);
    this.#told.progress(info);
    this.#changed();
  }
}

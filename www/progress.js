// How far a load is: the statuses of transformers.js for each file, and one total.

/** Milliseconds between two reports of the same file. */
const INTERVAL_MS = 50;
/** Milliseconds over which the rate is measured. */
const WINDOW_MS = 4000;

/**
 * Reports to `callback`: `initiate`, `download`, `progress` and `done` for each file, `progress_total` for the whole model,
 * `note` for what the reader should know, and `ready`.
 */
export class Progress {
  #callback;
  #name;
  #files = new Map();
  #weights = null;
  #samples = [];
  #notes = new Set();
  /** Notes so far, each once. */
  notes = [];

  constructor(name, callback) {
    this.#name = name;
    this.#callback = callback ?? (() => {});
  }

  /** Begins a file. */
  file(file) {
    const about = { name: this.#name, file };
    const state = { loaded: 0, total: null, last: -Infinity, begun: false };
    this.#files.set(file, state);
    this.#callback({ status: "initiate", ...about });
    const report = () => {
      if (!state.begun) this.#callback({ status: "download", ...about });
      state.begun = true;
      state.last = performance.now();
      const total = state.total ?? 0;
      this.#callback({ status: "progress", ...about, progress: percent(state.loaded, state.total) ?? 0, loaded: state.loaded, total });
      this.#total();
    };
    return {
      opened: (length) => (state.total = length ?? null),
      missing: () => this.#files.delete(file),
      bytes: (loaded) => {
        state.loaded = loaded;
        // A compressed body is longer than its host said.
        if (state.total !== null && loaded > state.total) state.total = null;
        if (performance.now() - state.last >= INTERVAL_MS) report();
      },
      done: () => {
        state.total = state.loaded;
        report();
        this.#callback({ status: "done", ...about });
      },
    };
  }

  /** The weights have this many bytes; null if nobody says. */
  expectWeights(bytes) {
    this.#weights = bytes;
  }

  /** Begins again, after a retry. */
  restart() {
    this.#files.clear();
    this.#weights = null;
    this.#samples = [];
  }

  note(code, message) {
    if (this.#notes.has(code)) return;
    this.#notes.add(code);
    this.notes.push(message);
    this.#callback({ status: "note", name: this.#name, code, message });
  }

  /** Whether a note with this code was given. */
  told(code) {
    return this.#notes.has(code);
  }

  ready() {
    this.#callback({ status: "ready", model: this.#name });
  }

  #total() {
    const now = performance.now();
    const files = [...this.#files.entries()];
    const loaded = files.reduce((sum, [, state]) => sum + state.loaded, 0);
    const small = files.filter(([file]) => !file.endsWith(".safetensors"));
    const known = this.#weights !== null && files.every(([, state]) => state.total !== null);
    const total = known ? Math.max(loaded, this.#weights + small.reduce((sum, [, state]) => sum + state.total, 0)) : null;
    this.#samples = [...this.#samples.filter(([at]) => now - at <= WINDOW_MS), [now, loaded]];
    const [[first, before]] = this.#samples;
    const bytes_per_second = now > first ? (1000 * (loaded - before)) / (now - first) : null;
    const seconds_left = total !== null && bytes_per_second ? (total - loaded) / bytes_per_second : null;
    this.#callback({ status: "progress_total", name: this.#name, progress: percent(loaded, total), loaded, total, bytes_per_second, seconds_left });
  }
}

const percent = (loaded, total) => (total ? Math.min(100, (100 * loaded) / total) : null);

// Tokenizers by source: a folder's tokenizer is fetched and read once, whoever asks for it.

import { loadEngine } from "./engine.js";
import { Gpt2Error, coded } from "./errors.js";
import { Progress } from "./progress.js";
import { readAll, resolveSource } from "./source.js";

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
  /** Gives a model that is being loaded the same tokenizer. */
  lend(loader) {
    loader.use_tokenizer(this.#inner);
  }
}

/** Tokenizers by source. */
export const AutoTokenizer = {
  /** Loads `tokenizer.json`, or `vocab.json` and `merges.txt`. Options: `revision`, `progress_callback`, `signal`. */
  async from_pretrained(source, { revision, progress_callback, signal } = {}) {
    try {
      const folder = resolveSource(source, { revision });
      const progress = new Progress(folder.name, progress_callback);
      const load = () => tokenizerOf(folder, progress, signal, false);
      const tokenizer = await load().catch((error) => {
        beginAnew(error, folder, progress);
        return load();
      });
      progress.ready();
      return tokenizer;
    } catch (error) {
      throw coded(error);
    }
  },
};

const tokenizers = new Map();

/** The tokenizer of a folder; null if there is none and it is `optional`. */
export async function tokenizerOf(folder, progress, signal, optional) {
  const known = tokenizers.get(folder.key);
  if (known) return known;
  // Not the promise is shared but its result, so that one caller's cancelling does not touch another.
  const tokenizer = await read(folder, progress, signal, optional);
  if (tokenizer) tokenizers.set(folder.key, tokenizer);
  return tokenizer;
}

/** After the error of a file that changed on its host everything is loaded once more, and it is said; any other error is thrown. */
export function beginAnew(error, folder, progress) {
  if (!error.changed || progress.told("changed")) throw error;
  tokenizers.delete(folder.key);
  progress.note("changed", "The files changed on their host since their download began, so it began again.");
  progress.restart();
}

async function read(folder, progress, signal, optional) {
  const small = (file, may_lack) => smallFile(folder, file, progress, signal, may_lack);
  const [wasm, whole] = await Promise.all([loadEngine(), small("tokenizer.json", true)]);
  if (whole) return new Tokenizer(wasm.Tokenizer.from_json(whole));
  const vocab = await small("vocab.json", true);
  if (!vocab && !optional) throw new Gpt2Error("bad-tokenizer", `${folder.url ?? folder.name} has neither tokenizer.json nor vocab.json with merges.txt. Save the model's tokenizer there.`);
  return vocab && new Tokenizer(wasm.Tokenizer.from_vocab_and_merges(vocab, await small("merges.txt", false)));
}

/** A whole file in memory. */
export async function smallFile(folder, file, progress, signal, optional = false) {
  const reporter = progress.file(file);
  const opened = await folder.open(file, { signal, optional, onNote: (...note) => progress.note(...note) });
  if (!opened) {
    reporter.missing();
    return null;
  }
  reporter.opened(opened.length);
  const bytes = await readAll(opened, reporter.bytes);
  reporter.done();
  return bytes;
}

function call(work) {
  try {
    return work();
  } catch (error) {
    throw coded(error);
  }
}

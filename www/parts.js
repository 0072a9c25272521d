// The download cache: files from other sites are kept in parts of a fixed size, each stored whole with its checksum. A load that
// was broken off goes on at the first missing part; a complete file makes no request at all.
//
// One `Cache` per model holds, for each file, its parts and a record of them. A part counts when the record names it.

import { throwIfAborted } from "./errors.js";
import { changed, open, sameFile } from "./fetch.js";

/** Bytes of a part: what a broken download loses at most, and all that is held of a file at once. */
export const PART_BYTES = 8 << 20;

const PREFIX = "gpt2-webgpu/1 ";

/**
 * Opens a file of `folder` at `url`, from the cache as far as it is there. The files of one load belong to one version of the
 * model: only those of a sealed folder are used without asking the host, and when one has changed, all that is kept goes and
 * the error has `changed: true`.
 */
export async function openKept(folder, file, url, options = {}) {
  const failed = async (error) => {
    if (error.changed) await forget(folder);
    throw error;
  };
  const opened = await keptOrNew(folder, file, url, options).catch(failed);
  if (!opened) return null;
  const chunks = async function* () {
    try {
      yield* opened.chunks;
    } catch (error) {
      await failed(error);
    }
  };
  return { ...opened, chunks: chunks() };
}

async function keptOrNew(folder, file, url, { signal, optional, onNote }) {
  const note = (error) => onNote?.("uncached", `Downloads cannot be kept here (${error?.message || error}): the model loads all the same, and is downloaded again next time.`);
  let shelf;
  try {
    shelf = await Shelf.of(folder);
  } catch (error) {
    note(error);
    return open(url, { signal, optional });
  }
  const known = await shelf.record(url);
  if (await shelf.sealed()) {
    if (known?.absent && optional) return null;
    if (known?.complete) return { url, length: known.length, chunks: stored(shelf, url, known, signal), from_cache: true };
  }
  // Of a file that is there whole the last part is fetched again: the answer tells whether it is still the same file.
  const parts = (known?.complete ? known.parts.slice(0, -1) : known?.parts) ?? [];
  const rest = await open(url, { signal, optional, from: parts.length * PART_BYTES, expect: known?.validator });
  if (!rest) {
    if (known?.parts) throw changed(url);
    await shelf.write(url, { file, absent: true }).catch(note);
    return null;
  }
  const record = { file, length: rest.length, validator: rest.validator, complete: false, parts };
  return { url, length: rest.length, resumed_at: parts.length * PART_BYTES, chunks: storing(shelf, url, record, rest.chunks, signal, note) };
}

/** The parts that are there, then the rest from the network, which is kept on its way. */
async function* storing(shelf, url, record, rest, signal, note) {
  // While one part is written the next one comes in; never more than these two.
  let writing = Promise.resolve();
  try {
    yield* stored(shelf, url, record, signal);
    let buffer = new Uint8Array(PART_BYTES);
    let filled = 0;
    let keeping = true;
    const give_up = (error) => {
      if (keeping) note(error);
      keeping = false;
    };
    const flush = async () => {
      await writing;
      if (!keeping) return;
      const [part, index] = [buffer.subarray(0, filled), record.parts.length];
      record.parts.push(null);
      writing = shelf.put(url, record, index, part).catch(give_up);
      buffer = new Uint8Array(PART_BYTES);
      filled = 0;
    };
    for await (const chunk of rest) {
      for (let at = 0; keeping && at < chunk.length; ) {
        const piece = chunk.subarray(at, at + PART_BYTES - filled);
        buffer.set(piece, filled);
        filled += piece.length;
        at += piece.length;
        if (filled === PART_BYTES) await flush();
      }
      yield chunk;
    }
    if (filled) await flush();
    await writing;
    if (!keeping) return;
    const length = record.parts.reduce((sum, part) => sum + part.bytes, 0);
    await shelf.write(url, { ...record, length, complete: true }).catch(give_up);
  } finally {
    await rest.return();
    // A load that is left keeps each part that has come, and writes nothing any more once it has ended.
    await writing;
  }
}

/** The parts of a record; one that is missing or damaged is fetched again. */
async function* stored(shelf, url, record, signal) {
  for (const [index, about] of [...record.parts].entries()) {
    throwIfAborted(signal);
    yield (await shelf.get(url, index, about)) ?? (await refetch(shelf, url, record, index, signal));
  }
}

async function refetch(shelf, url, record, index, signal) {
  const from = index * PART_BYTES;
  const to = from + record.parts[index].bytes;
  const part = new Uint8Array(to - from);
  let at = 0;
  const again = await open(url, { signal, from, to, expect: record.validator });
  for await (const chunk of again.chunks) {
    part.set(chunk, at);
    at += chunk.length;
  }
  await shelf.put(url, record, index, part).catch(() => {});
  return part;
}

/** What is kept of one model. */
class Shelf {
  #cache;
  #seal;
  constructor(cache, { key: address }) {
    this.#cache = cache;
    this.#seal = key(address, "whole");
  }

  static async of(folder) {
    if (!globalThis.caches || !globalThis.crypto?.subtle) throw new Error("this browser offers no storage to this page");
    return new Shelf(await caches.open(shelfName(folder)), folder);
  }

  /** Whether all files of a load have come, so that they are of one version. */
  async sealed() {
    return Boolean(await this.#cache.match(this.#seal).catch(() => null));
  }

  seal() {
    return this.#cache.put(this.#seal, new Response());
  }

  /** What is known of a file; null if nothing is, or if it cannot be read. */
  async record(url) {
    try {
      const found = await this.#cache.match(key(url, "record"));
      const record = found && (await found.json());
      return record?.absent || Array.isArray(record?.parts) ? record : null;
    } catch {
      return null;
    }
  }

  write(url, record) {
    return this.#cache.put(key(url, "record"), new Response(JSON.stringify(record)));
  }

  /** Stores a part, and then names it in the record. */
  async put(url, record, index, bytes) {
    const sha256 = await digest(bytes);
    await this.#cache.put(key(url, index), new Response(bytes));
    record.parts[index] = { bytes: bytes.length, sha256 };
    await this.write(url, { ...record, parts: record.parts.slice(0, index + 1).concat(record.parts.slice(index + 1).filter(Boolean)) });
  }

  /** A part, or null if it is not as it was stored. */
  async get(url, index, { bytes, sha256 }) {
    try {
      const found = await this.#cache.match(key(url, index));
      const part = found && new Uint8Array(await found.arrayBuffer());
      return part?.length === bytes && (await digest(part)) === sha256 ? part : null;
    } catch {
      return null;
    }
  }

  async records() {
    const found = [];
    for (const request of await this.#cache.keys()) {
      const url = new URL(request.url);
      if (url.searchParams.get(KEY) !== "record") continue;
      url.searchParams.delete(KEY);
      const record = await this.record(url);
      if (record) found.push([url, record]);
    }
    return found;
  }
}

const KEY = "gpt2-webgpu";

function key(url, what) {
  const address = new URL(url);
  address.searchParams.set(KEY, what);
  return address.href;
}

const shelfName = ({ name, key }) => PREFIX + JSON.stringify([name, key]);

async function digest(bytes) {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// ---- for the reader: what is kept, and how to be rid of it ----

/** `[{ name, key, bytes, complete }]`: the models that are kept in this browser. */
export async function list() {
  const models = [];
  if (!globalThis.caches) return models;
  for (const shelf of (await caches.keys().catch(() => [])).filter((each) => each.startsWith(PREFIX))) {
    const [name, key] = JSON.parse(shelf.slice(PREFIX.length));
    const kept = await Shelf.of({ name, key });
    const parts = (await kept.records()).flatMap(([, record]) => record.parts ?? []);
    models.push({ name, key, bytes: parts.reduce((sum, part) => sum + part.bytes, 0), complete: await kept.sealed() });
  }
  return models;
}

/** Forgets what is kept of a model. */
export async function forget(model) {
  await globalThis.caches?.delete(shelfName(model)).catch(() => {});
}

/** Says that all files of a load have come: from now on those of this folder are read without asking the host. */
export async function seal(folder) {
  await Shelf.of(folder).then((shelf) => shelf.seal()).catch(() => {});
}

/** Asks the host whether a kept model has changed: the names of the files that did. */
export async function changedFiles(model, { signal } = {}) {
  const shelf = await Shelf.of(model);
  const names = [];
  for (const [url, record] of await shelf.records()) {
    const now = await open(url, { signal, optional: true });
    await now?.chunks.return();
    const same = record.absent ? !now : now && sameFile(now.validator, { ...record.validator, length: record.complete ? record.length : null });
    if (!same) names.push(record.file);
  }
  return names;
}

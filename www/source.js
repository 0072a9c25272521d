// Where a model's files come from: a source is named once and then gives its files as streams of bytes.

import { Gpt2Error, throwIfAborted } from "./errors.js";

const SITE = new URL("../", import.meta.url);
const BUNDLED = new URL("models/tiny/", import.meta.url);
const GZIP = [0x1f, 0x8b];
/** "gpt2" or "owner/name". A folder of this site with such a short path is written with a leading "./". */
const HUB_ID = /^[\w.-]*\w(\/[\w.-]*\w)?$/;

/** Settings shared by everything that loads. */
export const env = {
  /** Used for every request; replace it to add headers or to test. */
  fetch: (...request) => globalThis.fetch(...request),
};

/**
 * The source that `from_pretrained` was given: a site-relative path or the address of a folder.
 *
 * Every source has `name` (for messages and progress) and `open(file, options)`.
 */
export function resolveSource(source) {
  if (source instanceof FolderSource) return source;
  if (typeof source !== "string" || source.trim() === "") {
    throw new Gpt2Error("bad-option", `A model is named by a path on this site or the address of a folder; got ${describe(source)}.`);
  }
  if (HUB_ID.test(source.trim())) {
    throw new Gpt2Error("bad-option", `"${source}" is a hub id; this build loads folders. Give the address of the folder that holds its files, or "./${source}" for a folder of this site.`);
  }
  const url = folderUrl(source.trim());
  if (!/^https?:$/.test(url.protocol)) {
    throw new Gpt2Error("bad-option", `"${source}" is not an http or https address. Give a path on this site or the address of a folder.`);
  }
  return new FolderSource(source.trim(), url);
}

function folderUrl(text) {
  try {
    const url = new URL(text, SITE);
    if (!url.pathname.endsWith("/")) url.pathname += "/";
    return url;
  } catch {
    throw new Gpt2Error("bad-option", `"${text}" is neither a path on this site nor an address.`);
  }
}

function describe(value) {
  if (value === null || value === undefined) return String(value);
  return typeof value === "string" ? "an empty text" : `a value of type ${value.constructor?.name ?? typeof value}`;
}

/** A folder that is reached over http. */
class FolderSource {
  constructor(name, url) {
    this.name = name;
    this.url = url;
    this.bundled = url.href === BUNDLED.href;
  }

  /** Opens a file: `{ url, length, chunks }`. `optional` files that are not there give null. */
  async open(file, { signal, optional = false, onBytes } = {}) {
    if (this.bundled && (file === "model.safetensors" || file === "tokenizer.json")) {
      const packed = await openUrl(new URL(`${file}.gz`, this.url), { signal, optional: true, onBytes });
      if (packed) return packed;
    }
    return openUrl(new URL(file, this.url), { signal, optional, onBytes });
  }
}

async function openUrl(url, { signal, optional, onBytes }) {
  throwIfAborted(signal);
  const response = await request(url, signal);
  if (response.status === 404 && optional) return null;
  if (!response.ok) throw statusError(url, response.status);
  if (!response.body) throw new Gpt2Error("http", `${url} answered without a body. Try again.`);

  // A content-encoded body is counted after decoding, so its Content-Length says nothing about progress.
  const encoded = response.headers.get("content-encoding");
  const length = encoded ? null : Number(response.headers.get("content-length")) || null;
  const counted = count(response.body, (bytes) => onBytes?.(bytes, length));
  const { head, body } = await peek(counted.getReader(), 64, url, signal);
  refuseStandIn(url, head, response.headers.get("content-type") ?? "");
  const gzip = head[0] === GZIP[0] && head[1] === GZIP[1];
  const stream = gzip ? body.pipeThrough(new DecompressionStream("gzip")) : body;
  return { url, length: gzip ? null : length, chunks: chunksOf(stream, url, signal) };
}

async function request(url, signal) {
  try {
    return await env.fetch(url, { signal });
  } catch (error) {
    if (error?.name === "AbortError") throw new Gpt2Error("aborted", "The caller cancelled.");
    // The browser hides why a cross-origin request failed: name both possible causes.
    const foreign = url.origin !== globalThis.location?.origin;
    const why = foreign ? "The host could not be reached, or it does not allow other sites to read its files (CORS)." : "The host could not be reached.";
    throw new Gpt2Error("network", `Could not fetch ${url}. ${why}`, { cause: error });
  }
}

function statusError(url, status) {
  const hint =
    status === 401 || status === 403 ? "The file needs permission: log in there and download it, or use a public copy."
    : status === 404 ? "There is no such file: check the address."
    : status === 429 ? "The host limits requests: wait a little and try again."
    : status >= 500 ? "The host has a fault: try again later."
    : "Check the address.";
  return new Gpt2Error("http", `${url} answered with status ${status}. ${hint}`);
}

/** Pages and pointers that hosts send instead of the file itself. */
function refuseStandIn(url, head, type) {
  const text = new TextDecoder("latin1").decode(head).trimStart().toLowerCase();
  if (text.startsWith("<!doctype") || text.startsWith("<html") || (text.startsWith("<") && type.includes("text/html"))) {
    throw new Gpt2Error("http", `${url} answered with a web page instead of the file. Use the address of the file's folder, not of a page about it.`);
  }
  if (text.startsWith("version https://git-lfs")) {
    throw new Gpt2Error("http", `${url} is a Git LFS pointer, not the file itself. Run "git lfs pull" where it is hosted, or use another copy.`);
  }
}

/** The same stream; `onBytes` hears the running total. */
function count(stream, onBytes) {
  let total = 0;
  return stream.pipeThrough(new TransformStream({
    transform(chunk, controller) {
      total += chunk.byteLength;
      onBytes(total);
      controller.enqueue(chunk);
    },
  }));
}

/** Reads at least `bytes` bytes (or all) and gives them back together with the untouched stream. */
async function peek(reader, bytes, url, signal) {
  const first = [];
  let have = 0;
  while (have < bytes) {
    const { done, value } = await readOr(reader, url, signal);
    if (done) break;
    first.push(value);
    have += value.byteLength;
  }
  const head = new Uint8Array(Math.min(have, bytes));
  let at = 0;
  for (const chunk of first) {
    const part = chunk.subarray(0, head.length - at);
    head.set(part, at);
    at += part.length;
  }
  const body = new ReadableStream({
    async pull(controller) {
      if (first.length) return controller.enqueue(first.shift());
      const { done, value } = await readOr(reader, url, signal);
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return { head, body };
}

async function readOr(reader, url, signal) {
  throwIfAborted(signal);
  try {
    return await reader.read();
  } catch (error) {
    if (error?.name === "AbortError") throw new Gpt2Error("aborted", "The caller cancelled.");
    throw new Gpt2Error("network", `The connection broke while fetching ${url}. Try again.`, { cause: error });
  }
}

async function* chunksOf(stream, url, signal) {
  const reader = stream.getReader();
  try {
    for (;;) {
      throwIfAborted(signal);
      let step;
      try {
        step = await reader.read();
      } catch (error) {
        if (error?.code) throw error;
        throw new Gpt2Error("network", `${url} is cut short or damaged. Try again.`, { cause: error });
      }
      if (step.done) return;
      yield step.value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The whole file in memory: for the small ones. */
export async function readAll(opened) {
  const parts = [];
  let total = 0;
  for await (const chunk of opened.chunks) {
    parts.push(chunk);
    total += chunk.byteLength;
  }
  const all = new Uint8Array(total);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.byteLength;
  }
  return all;
}

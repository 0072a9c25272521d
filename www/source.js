// What a `source` means: a hub id, an address, a path on this site, or files from the reader's disk. Whatever it is, it has a
// `name` for messages, a `key` that tells it from others, and opens its files as streams of bytes.

import { env } from "./env.js";
import { Gpt2Error } from "./errors.js";
import { exists, open } from "./fetch.js";
import { localFolder } from "./local.js";
import { openKept, seal } from "./parts.js";

const SITE = new URL("../", import.meta.url);
const BUNDLED = new URL("models/tiny/", import.meta.url);
/** `gpt2` or `openai-community/gpt2`; a path on this site has a slash at its end or a dot or slash before it, or lies in `www`. */
const HUB_ID = /^(?!www\/)[A-Za-z0-9][\w.-]*(\/[A-Za-z0-9][\w.-]*)?$/;
/** The last part of an address that is a file of a model, not a folder. */
const FILE = /\/([\w.-]+\.(safetensors|json|bin|txt|gz))$/;

/** The source that `from_pretrained` was given. */
export function resolveSource(source, { revision } = {}) {
  if (source && typeof source === "object" && typeof source.open === "function") return source;
  const files = localFolder(source);
  if (files) {
    if (revision !== undefined) refuseRevision("files on your disk");
    return files;
  }
  if (typeof source !== "string" || source.trim() === "") {
    throw new Gpt2Error("bad-option", `A model is named by a hub id, an address, a path on this site or a list of files; got ${describe(source)}.`);
  }
  const text = source.trim();
  if (HUB_ID.test(text)) return hub(text, revision);
  const url = address(text);
  const page = hubPage(url);
  if (page) return hub(page.id, revision ?? page.revision, page.folder);
  if (revision !== undefined && revision !== "main") refuseRevision("an address");
  return new Folder(text, asFolder(url));
}

function refuseRevision(what) {
  throw new Gpt2Error("bad-option", `revision belongs to hub ids; this source is ${what}.`);
}

function address(text) {
  let url;
  try {
    // "host/path" without a scheme is a path on this site, as in a link.
    url = new URL(text, SITE);
  } catch {
    throw new Gpt2Error("bad-option", `"${text}" is neither a path on this site nor an address.`);
  }
  if (!/^https?:$/.test(url.protocol)) {
    throw new Gpt2Error("bad-option", `"${text}" is not an http or https address. Give a hub id, an address or a path on this site.`);
  }
  return url;
}

function hub(id, revision = "main", folder = "") {
  if (typeof revision !== "string" || revision.trim() === "") {
    throw new Gpt2Error("bad-option", `revision is ${describe(revision)}; it must be the name of a branch, a tag or a commit.`);
  }
  // Branch names may contain slashes, which are no folders.
  const path = env.remotePathTemplate.replaceAll("{model}", id).replaceAll("{revision}", encodeURIComponent(revision));
  return new Folder(id, new URL(path + folder, env.remoteHost), revision);
}

/** The model that a page of the hub is about: its front page, a folder, or a file as page or download. */
function hubPage(url) {
  if (url.origin !== new URL(env.remoteHost).origin) return null;
  const [, id, kind, revision, rest] = /^\/([\w.-]+(?:\/[\w.-]+)?)(?:\/(blob|tree|resolve|raw)\/([^/]+)(?:\/(.*))?)?\/?$/.exec(url.pathname) ?? [];
  if (!id || !HUB_ID.test(id)) return null;
  const folder = kind ? (rest ?? "").replace(kind === "tree" ? /\/?$/ : /[^/]*$/, kind === "tree" && rest ? "/" : "") : "";
  return { id, revision: revision && decodeURIComponent(revision), folder };
}

/** The folder of a model: of a pasted file or `blob` page the one that the file is in. */
function asFolder(url) {
  const folder = new URL(url);
  folder.hash = "";
  if (folder.hostname === "github.com") {
    // Its own pages cannot be read from another site; its raw files can.
    const parts = /^\/([^/]+\/[^/]+)\/(?:blob|tree|raw)\/(.*)$/.exec(folder.pathname);
    if (parts) [folder.hostname, folder.pathname] = ["raw.githubusercontent.com", `/${parts[1]}/${parts[2]}`];
  }
  folder.pathname = folder.pathname.replace(/\/blob\//, "/resolve/").replace(FILE, "/").replace(/\/?$/, "/");
  folder.searchParams.delete("download");
  return folder;
}

function describe(value) {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return value.length ? "a list of something else" : "an empty list";
  return typeof value === "string" ? "an empty text" : `a value of type ${value.constructor?.name ?? typeof value}`;
}

/** A folder that is reached over http. */
class Folder {
  constructor(name, url, revision) {
    this.name = name;
    this.url = url;
    this.revision = revision;
    this.key = url.href;
    this.bundled = url.href === BUNDLED.href;
    /** What this site serves is left to the browser's own cache, which knows when the site changes. */
    this.kept = url.origin !== SITE.origin;
  }

  /** Where a file is. A query of the folder, such as a signature, belongs to each of its files. */
  at(file) {
    const url = new URL(encodeURIComponent(file), this.url);
    url.search = this.url.search;
    return url;
  }

  /** Opens a file: `{ url, length, chunks }`, or null for a missing `optional` one. */
  async open(file, options = {}) {
    if (this.bundled && (file === "model.safetensors" || file === "tokenizer.json")) {
      const packed = await open(this.at(`${file}.gz`), { ...options, optional: true });
      if (packed) return gunzipped(packed);
    }
    const url = this.at(file);
    if (this.#keeps) return openKept(this, file, url, options);
    return open(url, options);
  }

  /** Says that all files of a load have come, and were kept: they are read without asking the host from now on. */
  async seal() {
    if (this.#keeps) await seal(this);
  }

  get #keeps() {
    return this.kept && env.useBrowserCache;
  }

  has(file, signal) {
    return exists(this.at(file), signal);
  }
}

/** A stream that begins like gzip, unpacked; a host may have unpacked it on the way. */
async function gunzipped(opened) {
  const first = await opened.chunks.next();
  const packed = !first.done && first.value[0] === 0x1f && first.value[1] === 0x8b;
  const whole = async function* () {
    try {
      if (!first.done) yield first.value;
      yield* opened.chunks;
    } finally {
      await opened.chunks.return();
    }
  };
  if (!packed) return { ...opened, chunks: whole() };
  let failure;
  const source = whole();
  const stream = new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await source.next();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        failure = error;
        controller.error(error);
      }
    },
    cancel: () => source.return(),
  }).pipeThrough(new DecompressionStream("gzip"));
  return { ...opened, length: null, packed_length: opened.length, chunks: unpacked(stream, opened.url, () => failure) };
}

async function* unpacked(stream, url, failure) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((cause) => {
        throw failure() ?? new Gpt2Error("network", `${url} is cut short or damaged. Try again.`, { cause });
      });
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The whole file in memory: for the small ones. */
export async function readAll(opened, onBytes) {
  const parts = [];
  let total = 0;
  for await (const chunk of opened.chunks) {
    // A chunk may be a view of memory that is used again.
    parts.push(chunk.slice());
    total += chunk.byteLength;
    onBytes?.(total);
  }
  const all = new Uint8Array(total);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.byteLength;
  }
  return all;
}

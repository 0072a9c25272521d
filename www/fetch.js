// One request done right: what may pass is tried again, a broken download goes on where it broke, and what cannot work ends
// with one sentence that names the URL.

import { env } from "./env.js";
import { Gpt2Error, aborted, throwIfAborted } from "./errors.js";

/** Bytes that tell a file from a page about it. */
const HEAD_BYTES = 64;

/**
 * Opens `url` at byte `from`: `{ url, length, validator, chunks }`, or null for a missing `optional` file.
 *
 * `length` is that of the whole file, null if the host does not say. `expect` is the validator of an earlier download of the
 * same file: if the file has changed since, the error has `changed: true`. `to` is the byte to stop before.
 */
export async function open(url, { signal, from = 0, to, expect, optional = false } = {}) {
  const response = await ask(url, { signal, from, to, optional });
  if (!response) return null;
  const about = { url, length: lengthOf(response), validator: validatorOf(response) };
  if (expect) refuseChanged(about, expect, response);
  const rest = body(about, response, { signal, from, to });
  // The first bytes are looked at before anyone uses, or keeps, what follows.
  const chunks = from === 0 ? await refuseStandIn(url, rest) : rest;
  return { ...about, chunks };
}

/** Whether `url` is there; false if that cannot be found out. */
export async function exists(url, signal) {
  try {
    return (await env.fetch(url, { method: "HEAD", signal })).ok;
  } catch {
    throwIfAborted(signal);
    return false;
  }
}

/** Whether two validators can belong to the same file; what only one of them knows is not compared. */
export function sameFile(a, b) {
  // The strongest that both have decides: a length may be that of a compressed body.
  const known = ["etag", "modified", "length"].find((each) => a[each] && b[each]);
  return !known || a[known] === b[known];
}

/** Asks until there is an answer that can be used. */
async function ask(url, { signal, from = 0, to, optional, ranged = true }) {
  const headers = ranged && (from > 0 || to !== undefined) ? { Range: `bytes=${from}-${to === undefined ? "" : to - 1}` } : {};
  for (let failures = 0; ; failures++) {
    throwIfAborted(signal);
    let response;
    try {
      response = await env.fetch(url, { signal, headers });
    } catch (error) {
      throwIfAborted(signal);
      if (failures < 1) await pause(failures, null, signal);
      else throw await unreachable(url, error, signal);
      continue;
    }
    if (response.ok && response.body) return response;
    // A body that nobody reads would hold its connection.
    discard(response);
    if (response.status === 404 && optional) return null;
    if (response.status === 416 && from > 0) return response;
    const wait = retryAfter(response);
    const may_pass = response.status === 408 || response.status === 429 || response.status >= 500;
    if (!may_pass || failures >= env.retry.times || wait > env.retry.longest_ms) throw statusError(url, response.status, wait);
    await pause(failures, wait, signal);
  }
}

/** The bytes from `from` on. A connection that breaks is made again and continued; without ranges the known bytes are skipped. */
async function* body(about, response, { signal, from, to }) {
  let at = from;
  let ended = null;
  for (let failures = 0, ranged = true; ; failures++) {
    if (response.status === 416) return;
    let skip = response.status === 206 ? 0 : at;
    let cause;
    const reader = response.body.getReader();
    try {
      for (;;) {
        throwIfAborted(signal);
        const { done, value } = await reader.read();
        if (done) break;
        const fresh = value.subarray(Math.min(skip, value.length));
        skip -= value.length - fresh.length;
        const wanted = to === undefined ? fresh : fresh.subarray(0, to - at);
        if (!wanted.length) continue;
        at += wanted.length;
        failures = 0;
        yield wanted;
        if (at === to) return;
      }
    } catch (error) {
      if (error instanceof Gpt2Error) throw error;
      throwIfAborted(signal);
      cause = error;
    } finally {
      reader.cancel().catch(() => {});
    }
    // A body that ends early twice at the same byte is whole: its length was that of a compression that the browser hides.
    if (!cause && (at >= (to ?? about.length ?? 0) || ended === at)) return;
    if (!cause) ended = at;
    if (failures >= env.retry.times) {
      const size = about.length ? ` of ${about.length}` : "";
      throw new Gpt2Error("network", `The connection broke at byte ${at}${size} of ${about.url} and could not be made again. Try again: the download goes on where it stopped.`, { cause });
    }
    await pause(failures, null, signal);
    try {
      response = await ask(about.url, { signal, from: at, to, ranged });
    } catch (error) {
      // A host may refuse the header for ranges from another site's page: then the whole file is read again.
      if (!ranged || !["network", "cors"].includes(error.code)) throw error;
      ranged = false;
      response = await ask(about.url, { signal, from: at, to, ranged });
    }
    if (response.status !== 416) refuseChanged({ url: about.url, validator: validatorOf(response) }, about.validator, response);
  }
}

function refuseChanged(now, before, response) {
  if (sameFile(now.validator, before)) return;
  discard(response);
  throw changed(now.url);
}

/** The error of a file that is no longer the one whose download began; it has `changed: true`. */
export function changed(url) {
  return Object.assign(new Gpt2Error("http", `${url} has changed since its download began. Load the model again to get the new file.`), { changed: true });
}

function discard(response) {
  response.body?.cancel().catch(() => {});
}

/** Length of the whole file. Of a compressed body only the compressed length is known, which says nothing. */
function lengthOf(response) {
  if (response.headers.get("content-encoding")) return null;
  const range = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
  if (range) return Number(range[1]);
  return response.status === 206 ? null : Number(response.headers.get("content-length")) || null;
}

/** What tells one version of a file from another. */
function validatorOf(response) {
  // Hosts mark the compressed variant of a file in its tag.
  const etag = response.headers.get("etag")?.replace(/^W\//, "").replace(/[-;]gzip(?="?$)/, "") ?? null;
  return { etag, modified: response.headers.get("last-modified"), length: lengthOf(response) };
}

/** Milliseconds that the host asks to wait, or null. */
function retryAfter(response) {
  const text = response.headers.get("retry-after");
  if (!text) return null;
  const ms = /^\d+$/.test(text.trim()) ? 1000 * Number(text) : Date.parse(text) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : null;
}

function pause(failures, wait, signal) {
  const ms = wait ?? Math.min(env.retry.longest_ms, env.retry.first_ms * 2 ** failures);
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(aborted());
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** The browser hides why a request to another site failed. A request whose answer may not be read tells the two causes apart. */
async function unreachable(url, cause, signal) {
  const own = url.origin === globalThis.location?.origin;
  if (globalThis.navigator?.onLine === false && !own) {
    return new Gpt2Error("network", `Could not fetch ${url}: this computer is offline. Connect it and try again.`, { cause });
  }
  if (!own) {
    try {
      discard(await env.fetch(url, { mode: "no-cors", signal }));
      return new Gpt2Error("cors", `${url} cannot be read from this page: the host answers, but does not let other sites read its files (CORS). Download the files and open them from your disk, or use a host that allows it.`, { cause });
    } catch {
      throwIfAborted(signal);
    }
  }
  return new Gpt2Error("network", `Could not fetch ${url}: the host could not be reached. Check the address and the connection, and try again.`, { cause });
}

function statusError(url, status, wait) {
  const hint =
    status === 401 || status === 403 ? "It needs permission (a gated or private model), or its name is wrong: log in there, accept its terms and download the files, then open them from your disk."
    : status === 404 ? "There is no such file: check the name or address."
    : status === 429 ? `The host limits requests: try again in ${wait === null ? "a while" : `${Math.ceil(wait / 1000)} s`}.`
    : status >= 500 ? "The host has a fault: try again later."
    : "Check the address.";
  return new Gpt2Error("http", `${url} answered with status ${status}. ${hint}`);
}

/** The same bytes, unless they begin like a page or a pointer that a host sends instead of the file itself. */
async function refuseStandIn(url, chunks) {
  const first = [];
  let have = 0;
  while (have < HEAD_BYTES) {
    const { done, value } = await chunks.next();
    if (done) break;
    first.push(value);
    have += value.length;
  }
  const text = first.map((chunk) => new TextDecoder("latin1").decode(chunk.subarray(0, HEAD_BYTES))).join("").replace(/^\u00ef\u00bb\u00bf/, "").trimStart().toLowerCase();
  const stand_in =
    // A safetensors file may begin with any character; a page goes on like this.
    /^<(!doctype|html|head|body|script|\?xml|!--)/.test(text) ? "with a web page instead of the file. Check the address: it has to be the folder of the files, not a page about it."
    : text.startsWith("version https://git-lfs") ? "with a Git LFS pointer instead of the file. Run \"git lfs pull\" where it is hosted, or use another copy."
    : null;
  if (stand_in) {
    await chunks.return();
    throw new Gpt2Error("http", `${url} answered ${stand_in}`);
  }
  return (async function* () {
    try {
      while (first.length) yield first.shift();
      yield* chunks;
    } finally {
      await chunks.return();
    }
  })();
}

// Files from hosts of every kind: the modules that fetch and keep them, in the browser, against the imitated hosts of
// `cargo xtask hosts` (its address is HOSTS_URL). No model is loaded here.
import { randomUUID } from "node:crypto";
import { expect, hosts, logOf, test } from "./hosts.js";

const BLOB_BYTES = (20 << 20) + 12_345;
const PART_BYTES = 8 << 20;

/** Everything that the page is told while `file` of the model `id` is read from a host that behaves in this way. */
async function read(page, behaviour, { id = "synthetic/blob", file = "model.safetensors", name = randomUUID(), optional = false, stop_at, sealed = true, hold = "", env = {} } = {}) {
  const result = await page.evaluate(async ({ host, id, file, optional, stop_at, sealed, hold, env }) => {
    const [{ env: settings }, { resolveSource }] = await Promise.all([import("./env.js"), import("./source.js")]);
    Object.assign(settings, { remoteHost: host, retry: { times: 4, first_ms: 10, longest_ms: 5000 }, useBrowserCache: true }, env);
    if (hold) new Function(hold)();
    const notes = [];
    try {
      const source = resolveSource(id);
      const opened = await source.open(file, { optional, onNote: (code, message) => notes.push([code, message]) });
      if (!opened) return { missing: true, notes };
      let bytes = 0;
      let longest = 0;
      // FNV-1a over a byte in 1,021: cheap, and every part has many.
      let hash = 0x811c9dc5;
      for await (const chunk of opened.chunks) {
        for (let at = (1021 - (bytes % 1021)) % 1021; at < chunk.length; at += 1021) hash = Math.imul(hash ^ chunk[at], 0x01000193) >>> 0;
        bytes += chunk.length;
        longest = Math.max(longest, chunk.length);
        if (stop_at && bytes >= stop_at) break;
      }
      // As a load does that has read all files of a model.
      if (sealed && !stop_at && !notes.length) await source.seal();
      return { bytes, hash, longest, length: opened.length, from_cache: Boolean(opened.from_cache), resumed_at: opened.resumed_at, notes, waits: globalThis.waits };
    } catch (error) {
      return { code: error.code, message: error.message, notes };
    }
  }, { host: `${hosts}/${behaviour}/${name}/`, id, file, optional, stop_at, sealed, hold, env });
  // What was put in the place of the browser's own goes with the page.
  if (hold) await page.reload();
  return { ...result, log: await logOf(name), name };
}

/** The models of which something is kept. */
const kept = (page) => page.evaluate(async () => (await import("./parts.js")).list());

let right;
test.beforeEach(async ({ page }) => {
  right ??= (await read(page, "plain", { env: { useBrowserCache: false } })).hash;
});

const uncached = { env: { useBrowserCache: false } };

test.describe("hosts that give the file in their own way", () => {
  for (const behaviour of ["plain", "redirect", "no-length", "gzip", "no-range", "mime", "no-content-range", "busy", "faulty", "break", "break-no-range", "cut-half"]) {
    for (const cached of [false, true]) {
      test(`${behaviour}, ${cached ? "kept" : "not kept"}`, async ({ page }) => {
        const got = await read(page, behaviour, cached ? {} : uncached);
        expect(got).toMatchObject({ bytes: BLOB_BYTES, hash: right, notes: [] });
        expect(got.longest).toBeLessThanOrEqual(PART_BYTES);
        // Of a body that was compressed on its way, the browser tells the compressed length.
        if (behaviour !== "gzip") expect([null, BLOB_BYTES]).toContain(got.length);
      });
    }
  }

  for (const cached of [false, true]) {
    test(`bytes are used as they come: of a host that sends half and no more, ${cached ? "kept" : "not kept"}`, async ({ page }) => {
      const got = await read(page, "stall", { ...(cached ? {} : uncached), stop_at: 10 << 20 });
      expect(got.bytes).toBeGreaterThanOrEqual(10 << 20);
      expect(got.log).toMatchObject([{ status: 200, bytes: Math.floor(BLOB_BYTES / 2) }]);
    });
  }

  test("a broken download asks for the rest only", async ({ page }) => {
    const { log } = await read(page, "break", uncached);
    expect(log.map(({ method, status }) => [method, status])).toEqual([["GET", 200], ["GET", 206], ["GET", 206], ["GET", 206]]);
    // Each goes on behind what the page has read, which the browser may have less of than was sent.
    let [from, sent] = [0, log[0].bytes];
    for (const { range, bytes } of log.slice(1)) {
      expect(range[0]).toBeGreaterThan(from);
      expect(range[0]).toBeLessThanOrEqual(from + sent);
      expect(range[1]).toBe(null);
      [from, sent] = [range[0], bytes];
    }
    expect(from + sent).toBe(BLOB_BYTES);
  });
});

test.describe("hosts that do not give the file", () => {
  const sentences = {
    missing: ["http", "status 404. There is no such file"],
    gated: ["http", "status 401. It needs permission"],
    forbidden: ["http", "status 403. It needs permission"],
    closed: ["http", "status 429. The host limits requests: try again in 3600 s."],
    down: ["http", "status 500. The host has a fault"],
    page: ["http", "answered with a web page instead of the file"],
    lfs: ["http", "Git LFS pointer"],
    "no-cors": ["cors", "(CORS)"],
    cut: ["network", "could not be made again"],
  };
  for (const [behaviour, [code, sentence]] of Object.entries(sentences)) {
    for (const file of ["config.json", "tokenizer.json", "model.safetensors"]) {
      test(`${behaviour}: ${file}`, async ({ page }) => {
        const id = file === "model.safetensors" ? "synthetic/blob" : "fixtures/small";
        // A file that the host does not have at all cannot be cut short.
        const got = await read(page, behaviour, { id: file === "tokenizer.json" && behaviour === "cut" ? "synthetic/blob" : id, file: file === "tokenizer.json" && behaviour === "cut" ? "model.safetensors" : file });
        expect(got.code).toBe(code);
        expect(got.message).toContain(sentence);
        expect(got.message).toContain(`${hosts}/${behaviour}/${got.name}/`);
        // Nothing of it is kept.
        expect((await kept(page)).reduce((sum, model) => sum + model.bytes, 0)).toBe(0);
      });
    }
  }

  test("a host that cannot be reached", async ({ page }) => {
    const got = await page.evaluate(async () => {
      const { resolveSource } = await import("./source.js");
      return resolveSource("http://127.0.0.1:9/gpt2").open("config.json").catch(({ code, message }) => ({ code, message }));
    });
    expect(got.code).toBe("network");
    expect(got.message).toContain("http://127.0.0.1:9/gpt2/config.json");
    expect(got.message).toContain("could not be reached");
  });

  test("a missing optional file is no error", async ({ page }) => {
    expect(await read(page, "missing", { optional: true, file: "tokenizer.json" })).toMatchObject({ missing: true });
  });

  test("waits as long as the host asks", async ({ page }) => {
    // No wait takes time here: how long it should last is noted.
    const hold = "globalThis.waits = []; globalThis.setTimeout = (work, ms) => void queueMicrotask(work, waits.push(ms))";
    const got = await read(page, "busy", { ...uncached, hold });
    expect(got).toMatchObject({ bytes: BLOB_BYTES, hash: right, waits: [1000, 1000] });
  });

  test("a file that changes during its download", async ({ page }) => {
    const got = await read(page, "changing", uncached);
    expect(got).toMatchObject({ code: "http" });
    expect(got.message).toContain("has changed since its download began");
  });

  test("cancelling ends a wait", async ({ page }) => {
    const code = await page.evaluate(async (host) => {
      const [{ env }, { resolveSource }] = await Promise.all([import("./env.js"), import("./source.js")]);
      Object.assign(env, { remoteHost: host, useBrowserCache: false });
      const abort = new AbortController();
      // The wait never ends by itself, and is cancelled as soon as it has begun.
      globalThis.setTimeout = () => void queueMicrotask(() => abort.abort());
      return resolveSource("synthetic/blob").open("model.safetensors", { signal: abort.signal }).catch((error) => error.code);
    }, `${hosts}/down/${randomUUID()}/`);
    await page.reload();
    expect(code).toBe("aborted");
  });
});

test.describe("the download cache", () => {
  test("a second load makes no request, even offline", async ({ page }) => {
    const first = await read(page, "plain");
    await page.reload();
    const again = await read(page, "plain", { name: first.name, hold: "globalThis.fetch = () => Promise.reject(new TypeError('offline'))" });
    expect(again).toMatchObject({ bytes: BLOB_BYTES, hash: right, from_cache: true, length: BLOB_BYTES });
    expect(again.longest).toBeLessThanOrEqual(PART_BYTES);
    expect(again.log).toHaveLength(1);
  });

  test("a load that was left goes on at the first missing part", async ({ page }) => {
    const { name } = await read(page, "plain", { stop_at: 10 << 20 });
    const got = await read(page, "plain", { name });
    expect(got).toMatchObject({ bytes: BLOB_BYTES, hash: right, resumed_at: PART_BYTES });
    expect(got.log.at(-1)).toMatchObject({ status: 206, range: [PART_BYTES, null], bytes: BLOB_BYTES - PART_BYTES });
  });

  test("a host without ranges is read again whole, and the file is right", async ({ page }) => {
    const { name } = await read(page, "no-range", { stop_at: 10 << 20 });
    expect(await read(page, "no-range", { name })).toMatchObject({ bytes: BLOB_BYTES, hash: right });
  });

  test("a file that changed is an error once, and nothing old is kept", async ({ page }) => {
    const { name } = await read(page, "renewed", { stop_at: 9 << 20 });
    expect(await kept(page)).toMatchObject([{ bytes: PART_BYTES, complete: false }]);
    const got = await read(page, "renewed", { name });
    expect(got.code).toBe("http");
    expect(got.message).toContain("has changed since its download began");
    expect(await kept(page)).toEqual([]);
    const again = await read(page, "renewed", { name });
    expect(again).toMatchObject({ bytes: BLOB_BYTES, resumed_at: 0 });
    expect(again.log.map(({ range }) => range)).toEqual([null, [PART_BYTES, null], null]);
  });

  test("a file that another load left whole is used if it is still the same", async ({ page }) => {
    const { name } = await read(page, "plain", { sealed: false });
    expect(await kept(page)).toMatchObject([{ bytes: BLOB_BYTES, complete: false }]);
    const got = await read(page, "plain", { name });
    expect(got).toMatchObject({ bytes: BLOB_BYTES, hash: right, resumed_at: 2 * PART_BYTES });
    expect(got.log.map(({ range }) => range)).toEqual([null, [2 * PART_BYTES, null]]);
    expect(await kept(page)).toMatchObject([{ bytes: BLOB_BYTES, complete: true }]);
  });

  test("a small file that another load left, and that has changed since, is an error", async ({ page }) => {
    const config = { id: "fixtures/small", file: "config.json", sealed: false };
    const { name } = await read(page, "renewed", config);
    expect((await read(page, "renewed", { ...config, name })).message).toContain("config.json has changed since");
    expect(await read(page, "renewed", { ...config, name })).toMatchObject({ resumed_at: 0 });
  });

  for (const [how, damage] of Object.entries({
    damaged: "new Uint8Array(await part.arrayBuffer()).map((byte, at) => (at === 77 ? byte ^ 64 : byte))",
    truncated: "(await part.arrayBuffer()).slice(0, 1000)",
    missing: "null",
  })) {
    test(`a ${how} part is fetched again`, async ({ page }) => {
      const { name } = await read(page, "plain");
      await page.evaluate(async (damage) => {
        for (const shelf of await caches.keys()) {
          const cache = await caches.open(shelf);
          for (const request of await cache.keys()) {
            if (!request.url.endsWith("=1")) continue;
            const part = await cache.match(request);
            const bytes = await new Function("part", `return (async () => ${damage})()`)(part);
            await (bytes ? cache.put(request, new Response(bytes)) : cache.delete(request));
          }
        }
      }, damage);
      const got = await read(page, "plain", { name });
      expect(got).toMatchObject({ bytes: BLOB_BYTES, hash: right });
      expect(got.log.at(-1)).toMatchObject({ range: [PART_BYTES, 2 * PART_BYTES - 1], bytes: PART_BYTES });
      // And kept again.
      expect((await read(page, "plain", { name })).log).toHaveLength(2);
    });
  }

  for (const [why, hold] of Object.entries({
    "storage is forbidden": "CacheStorage.prototype.open = () => { throw new DOMException('The operation is insecure.', 'SecurityError'); }",
    "there is no storage": "Object.defineProperty(globalThis, 'caches', { value: undefined })",
    "storage is full": "Cache.prototype.put = () => Promise.reject(new DOMException('Quota exceeded.', 'QuotaExceededError'))",
  })) {
    test(`${why}: it loads all the same and says so once`, async ({ page }) => {
      const got = await read(page, "plain", { hold });
      expect(got).toMatchObject({ bytes: BLOB_BYTES, hash: right });
      expect(got.notes.map(([code]) => code)).toEqual(["uncached"]);
    });
  }

  test("what is kept is listed, checked for an update and deleted", async ({ page }) => {
    const { name } = await read(page, "plain");
    const downloads = (work) => page.evaluate(`import("./parts.js").then(async (parts) => { const [model] = await parts.list(); return ${work}; })`);
    expect(await downloads("model")).toMatchObject({ name: "synthetic/blob", bytes: BLOB_BYTES, complete: true });
    expect(await downloads("parts.changedFiles(model)")).toEqual([]);
    await downloads("parts.forget(model)");
    expect(await downloads("parts.list()")).toEqual([]);
    expect((await read(page, "plain", { name })).from_cache).toBe(false);
  });
});

test.describe("sources", () => {
  // With the settings as they are by default.
  test.beforeEach(({ page }) => page.reload());

  const hub = "https://huggingface.co/openai-community/gpt2/resolve";
  for (const [source, folder, revision] of [
    ["openai-community/gpt2", `${hub}/main/`],
    ["distilgpt2", "https://huggingface.co/distilgpt2/resolve/main/"],
    ["openai-community/gpt2", `${hub}/refs%2Fpr%2F1/`, "refs/pr/1"],
    ["https://huggingface.co/openai-community/gpt2", `${hub}/main/`],
    ["https://huggingface.co/openai-community/gpt2/", `${hub}/main/`],
    ["https://huggingface.co/openai-community/gpt2/tree/v2", `${hub}/v2/`],
    ["https://huggingface.co/openai-community/gpt2/tree/main/onnx", `${hub}/main/onnx/`],
    ["https://huggingface.co/openai-community/gpt2/blob/main/model.safetensors", `${hub}/main/`],
    ["https://huggingface.co/openai-community/gpt2/resolve/main/model.safetensors?download=true", `${hub}/main/`],
    ["https://huggingface.co/openai-community/gpt2/resolve/main/", `${hub}/main/`],
    ["https://example.org/models/mine", "https://example.org/models/mine/"],
    ["https://example.org/models/mine/config.json", "https://example.org/models/mine/"],
    ["https://example.org/a/blob/main/model.safetensors", "https://example.org/a/resolve/main/"],
    ["https://github.com/me/mine/blob/main/gpt/config.json", "https://raw.githubusercontent.com/me/mine/main/gpt/"],
    ["https://example.org/models/mine?key=1", "https://example.org/models/mine/?key=1"],
  ]) {
    test(`${source}${revision ? ` at ${revision}` : ""}`, async ({ page }) => {
      expect(await page.evaluate(async ([source, revision]) => (await import("./source.js")).resolveSource(source, { revision }).url.href, [source, revision])).toBe(folder);
    });
  }

  test("paths on this site", async ({ page }) => {
    for (const path of ["www/models/tiny", "./mine", "mine/", "/elsewhere/mine"]) {
      const url = await page.evaluate(async (path) => (await import("./source.js")).resolveSource(path).url.href, path);
      expect(url).toBe(new URL(path.replace(/\/?$/, "/"), new URL("../", page.url())).href);
    }
  });

  for (const [source, sentence] of [["null", "got null"], ["''", "got an empty text"], ["'ftp://example.org/a/b'", "not an http or https address"], ["[]", "got an empty list"], ["7", "a value of type Number"], ["'http://'", "neither a path"]]) {
    test(`refused: ${source}`, async ({ page }) => {
      const error = await page.evaluate(`import("./source.js").then(({ resolveSource }) => resolveSource(${source})).catch(({ code, message }) => ({ code, message }))`);
      expect(error).toMatchObject({ code: "bad-option" });
      expect(error.message).toContain(sentence);
    });
  }

  test("files from the disk: a folder, one model in it, read where they are", async ({ page }) => {
    const said = await page.evaluate(async () => {
      const { readAll, resolveSource } = await import("./source.js");
      const file = (path, text) => Object.assign(new File([text], path.split("/").at(-1)), { droppedPath: path });
      const two = [file("top/config.json", "{}"), file("top/model.safetensors", "12345678"), file("top/checkpoint-5/config.json", "[]")];
      const source = resolveSource(two);
      const text = new TextDecoder().decode(await readAll(await source.open("config.json")));
      const refused = [];
      for (const files of [[file("a.txt", "")], [file("a/config.json", "{}"), file("b/config.json", "{}")]]) {
        try {
          resolveSource(files);
        } catch (error) {
          refused.push(error.message);
        }
      }
      const absent = await source.open("tokenizer.json").catch((error) => error.message);
      return { name: source.name, text, length: (await source.open("model.safetensors")).length, optional: await source.open("x", { optional: true }), refused, absent };
    });
    expect(said).toMatchObject({ name: "top", text: "{}", length: 8, optional: null });
    expect(said.refused[0]).toContain("config.json is not among the chosen files (a.txt)");
    expect(said.refused[1]).toContain("more than one model (a/config.json, b/config.json)");
    expect(said.absent).toContain("tokenizer.json is not among");
  });
});

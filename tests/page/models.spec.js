// Whole models from the imitated hosts of `cargo xtask hosts` (its address is HOSTS_URL): loaded, run, cached, cancelled.
import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { expect, hosts, logOf, test } from "./hosts.js";

const folder = (model) => new URL(`../fixtures/models/${model}/`, import.meta.url);
const expected = (model) => JSON.parse(readFileSync(new URL("expected.json", folder(model)), "utf8"));

/** Runs `work(gpt2, ...)` in the page with every hub id on a host that behaves in this way. */
async function withHost(page, behaviour, work, argument, name = randomUUID()) {
  const result = await page.evaluate(async ([host, work, argument]) => {
    const gpt2 = await import("./gpt2.js");
    Object.assign(gpt2.env, { remoteHost: host, retry: { times: 4, first_ms: 10, longest_ms: 5000 }, useBrowserCache: true });
    const said = [];
    const progress_callback = (info) => said.push(info);
    try {
      const value = await new Function("gpt2", "argument", "progress_callback", `return (${work})(gpt2, argument, progress_callback)`)(gpt2, argument, progress_callback);
      return { value, said };
    } catch (error) {
      return { code: error.code, message: error.message, said, left: gpt2.gpuBytes() };
    }
  }, [`${hosts}/${behaviour}/${name}/`, work.toString(), argument]);
  return { ...result, log: await logOf(name), name };
}

const run = async (gpt2, { id, input_ids, count, ...options }, progress_callback) => {
  const model = await gpt2.GPT2LMHeadModel.from_pretrained(id, { progress_callback, ...options });
  const held = gpt2.gpuBytes();
  const { new_tokens } = await model.generate({ input_ids, max_new_tokens: count, eos_token_id: null });
  const { dtype, notes } = model;
  await model.dispose();
  return { new_tokens, dtype, notes, held, left: gpt2.gpuBytes() };
};

function asked(model, more = {}) {
  const { input_ids, new_tokens } = expected(model);
  return { request: { id: `fixtures/${model}`, input_ids, count: 4, ...more }, right: new_tokens.slice(0, 4) };
}

const shards = readdirSync(folder("sharded")).filter((file) => file.endsWith(".safetensors")).sort();
/** The names of the files that a log tells of, in its order. */
const filesOf = (log) => log.map(({ path }) => path.split("/").at(-1));

/** Loads up to the last byte of the last file, and not the model itself: the long part on a software adapter. */
const arrive = async (gpt2, { id, last }, progress_callback) => {
  const abort = new AbortController();
  let held = 0;
  const watch = (info) => {
    progress_callback(info);
    if (info.status !== "done" || info.file !== last) return;
    held = gpt2.gpuBytes();
    abort.abort();
  };
  const { code, message } = await gpt2.GPT2LMHeadModel.from_pretrained(id, { progress_callback: watch, signal: abort.signal }).catch((error) => error);
  return { code, message, held, left: gpt2.gpuBytes() };
};

function arriving(model) {
  const last = readdirSync(folder(model)).filter((file) => file.endsWith(".safetensors")).sort().at(-1);
  return { id: `fixtures/${model}`, last };
}

for (const behaviour of ["plain", "redirect", "no-length", "gzip", "mime", "faulty", "break"]) {
  for (const model of ["small", "sharded"]) {
    test(`the files of ${model} arrive: ${behaviour}`, async ({ page }) => {
      const { value, said } = await withHost(page, behaviour, arrive, arriving(model));
      expect(value).toMatchObject({ code: "aborted", left: 0 });
      expect(value.held).toBeGreaterThan(0);
      const shown = said.filter(({ status }) => status.startsWith("progress")).map(({ progress }) => progress ?? 0);
      for (const progress of shown) expect(progress).toBeLessThanOrEqual(100);
      expect(shown.length).toBeGreaterThan(0);
    });
  }
}

for (const [model, behaviour] of [["small", "gzip"], ["sharded", "break"]]) {
  test(`${model} from a host gives Hugging Face's ids: ${behaviour}`, async ({ page }) => {
    const { request, right } = asked(model);
    const got = await withHost(page, behaviour, run, request);
    expect(got.message).toBe(undefined);
    expect(got.value).toMatchObject({ new_tokens: right, dtype: "fp32", left: 0 });
    expect(got.value.held).toBeGreaterThan(0);
    expect(got.said.at(-1)).toMatchObject({ status: "ready" });
  });
}

test("the second load makes no request at all, and gives the same ids", async ({ page }) => {
  const { name, log } = await withHost(page, "plain", arrive, arriving("sharded"));
  const { request, right } = asked("sharded");
  const again = await withHost(page, "plain", run, request, name);
  expect(again.value.new_tokens).toEqual(right);
  expect(again.log).toHaveLength(log.length);
});

test("weights that change during the download: all is loaded anew, and it is said", async ({ page }) => {
  const { request } = asked("small");
  const got = await withHost(page, "changing", run, { ...request, dtype: "fp32" });
  // The changed file differs in one bit, so only that it loads is known of it.
  expect(got.message).toBe(undefined);
  expect(got.value.notes.join()).toContain("changed on their host");
  expect(filesOf(got.log).filter((file) => file === "config.json")).toHaveLength(2);
});

test("a load that was left is never completed with files of another version", async ({ page }) => {
  const { name, value } = await withHost(page, "renewed", arrive, { id: "fixtures/sharded", last: shards[1] });
  expect(value).toMatchObject({ code: "aborted", left: 0 });
  const { request, right } = asked("sharded");
  const got = await withHost(page, "renewed", run, request, name);
  expect(got.message).toBe(undefined);
  expect(got.value.new_tokens).toEqual(right);
  expect(got.value.notes.join()).toContain("changed on their host");
  // The first file that was asked for again showed it; after that every file came once, and none was left from before.
  const files = filesOf(got.log);
  const before = files.slice(0, files.indexOf("config.json", 1));
  const after = files.slice(before.length + 1);
  expect(before.filter((file) => shards.includes(file))).toEqual(shards.slice(0, 2));
  expect(after).toEqual([...before, ...shards.slice(2)]);
});

for (const [behaviour, code] of [["missing", "http"], ["gated", "http"], ["page", "http"], ["lfs", "http"], ["no-cors", "cors"], ["cut", "network"]]) {
  test(`nothing is left of a load that failed: ${behaviour}`, async ({ page }) => {
    const got = await withHost(page, behaviour, run, asked("small").request);
    expect(got).toMatchObject({ code, left: 0 });
    expect(got.message).toContain(`${hosts}/${behaviour}/`);
  });
}

test("cancelled at any moment, a load frees its memory", async ({ page }) => {
  const { request } = asked("small");
  const cancel = async (gpt2, { id }) => {
    const told = [];
    for (const at of ["initiate config.json", "done config.json", "initiate model.safetensors", "progress model.safetensors", "done model.safetensors"]) {
      const abort = new AbortController();
      const progress_callback = ({ status, file }) => `${status} ${file}` === at && abort.abort();
      const error = await gpt2.GPT2LMHeadModel.from_pretrained(id, { signal: abort.signal, progress_callback }).catch((error) => error);
      told.push([at, error.code, gpt2.gpuBytes()]);
    }
    return told;
  };
  const { value } = await withHost(page, "plain", cancel, request);
  expect(value.map(([, ...rest]) => rest)).toEqual(value.map(() => ["aborted", 0]));
});

// The public JavaScript API, called from the page as a course's own script would.
import { LESSON, expect, test } from "./helpers.js";

test.beforeEach(async ({ page }) => {
  await page.goto("./");
  // One model for the tests of this file's page; the page's own stays idle.
  await page.evaluate(async () => {
    globalThis.api = await import(new URL("www/gpt2.js", document.baseURI));
    globalThis.code = (work) => Promise.resolve().then(work).then(() => "no error", (error) => error.code);
  });
});

test("generate gives what Hugging Face gives, and streams on the way", async ({ page }) => {
  const result = await page.evaluate(async (prompt) => {
    const { AutoTokenizer, GPT2LMHeadModel, TextStreamer } = globalThis.api;
    const statuses = new Set();
    const tokenizer = await AutoTokenizer.from_pretrained("www/models/tiny");
    const model = await GPT2LMHeadModel.from_pretrained("www/models/tiny", { progress_callback: ({ status }) => statuses.add(status) });
    const pieces = [];
    const ids = [];
    const streamer = new TextStreamer(tokenizer, { skip_prompt: true, callback_function: (text) => pieces.push(text), token_callback_function: (list) => ids.push(...list.map(Number)) });
    const input_ids = tokenizer.encode(prompt);
    const out = await model.generate({ input_ids, max_new_tokens: 5, streamer, top_logits: 3 });
    const again = await model.generate({ prompt, max_new_tokens: 5 });
    const length = model.past_key_values.get_seq_length();
    await model.dispose();
    const after = await globalThis.code(() => model.generate({ prompt }));
    return { input_ids, out, again, pieces, ids, length, after, statuses: [...statuses], decoded: tokenizer.decode(out.new_tokens) };
  }, LESSON.prompt);
  expect(result.input_ids).toEqual(LESSON.ids);
  expect(result.out.sequences).toEqual([[...LESSON.ids, ...result.out.new_tokens]]);
  expect(result.out.new_tokens).toHaveLength(5);
  expect(result.out.finish_reason).toBe("length");
  expect(result.out.text).toBe(result.decoded);
  expect(result.pieces.join("")).toBe(result.decoded);
  expect(result.ids).toEqual(result.out.new_tokens);
  expect(result.out.top_logits.map((list) => list.length)).toEqual([3, 3, 3, 3, 3]);
  expect(result.out.top_logits.map(([[id]]) => id)).toEqual(result.out.new_tokens);
  expect(result.out.timings.decode_ms).toHaveLength(4);
  expect(result.again.new_tokens).toEqual(result.out.new_tokens);
  expect(result.again).not.toHaveProperty("top_logits");
  expect(result.length).toBe(11);
  expect(result.after).toBe("disposed");
  expect(result.statuses).toEqual(expect.arrayContaining(["initiate", "download", "progress", "done", "ready"]));
});

test("a run can be stopped from outside, one at a time, and every refusal has its code", async ({ page }) => {
  const seen = await page.evaluate(async () => {
    const { GPT2LMHeadModel, InterruptableStoppingCriteria } = globalThis.api;
    const model = await GPT2LMHeadModel.from_pretrained("www/models/tiny");
    const stopping_criteria = new InterruptableStoppingCriteria();
    const running = model.generate({ prompt: "Once", max_new_tokens: 500, stopping_criteria });
    const busy = await globalThis.code(() => model.generate({ prompt: "Twice" }));
    stopping_criteria.interrupt();
    const { finish_reason } = await running;
    const abort = new AbortController();
    const aborted = globalThis.code(() => model.generate({ prompt: "Once", max_new_tokens: 500, signal: abort.signal }));
    abort.abort();
    const run = model.stream({ prompt: "Once", max_new_tokens: 500, max_in_flight: 1 });
    const types = [];
    for await (const event of run) {
      types.push(event.type);
      if (event.type === "text") break;
    }
    const codes = {
      option: await globalThis.code(() => model.generate({ prompt: "x", num_beams: 4 })),
      temperature: await globalThis.code(() => model.generate({ prompt: "x", do_sample: true, temperature: 0 })),
      ids: await globalThis.code(() => model.generate({ input_ids: [60_000] })),
      kv: await globalThis.code(() => model.read_kv(99, "key", 0)),
      long: await globalThis.code(() => model.generate({ input_ids: new Array(1025).fill(11) })),
    };
    await model.dispose();
    return { busy, finish_reason, aborted: await aborted, types, codes };
  });
  expect(seen.busy).toBe("busy");
  expect(seen.finish_reason).toBe("interrupted");
  expect(seen.aborted).toBe("aborted");
  expect(seen.types.slice(0, 2)).toEqual(["tokenized", "prefill_started"]);
  expect(seen.types.slice(-2)).toEqual(["prefilled", "text"]);
  expect(seen.codes).toEqual({ option: "bad-option", temperature: "bad-option", ids: "bad-option", kv: "bad-option", long: "prompt-too-long" });
});

test("a source that cannot be loaded is one coded error with its address", async ({ page }) => {
  await page.route("**/pointer/config.json", (route) => route.fulfill({ body: "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n" }));
  await page.route("**/webpage/config.json", (route) => route.fulfill({ contentType: "text/html", body: "<!DOCTYPE html><title>Hi</title>" }));
  await page.route("**/llama/config.json", (route) => route.fulfill({ contentType: "application/json", body: "{\"model_type\": \"llama\"}" }));
  const errors = await page.evaluate(async () => {
    const load = (source, options) => globalThis.api.GPT2LMHeadModel.from_pretrained(source, options).then(() => null, ({ code, message }) => ({ code, message }));
    return {
      pointer: await load("./pointer"), webpage: await load("./webpage"), llama: await load("./llama"),
      dtype: await load("www/models/tiny", { dtype: "fp64" }), option: await load("www/models/tiny", { device: "cpu" }),
      aborted: await load("www/models/tiny", { signal: AbortSignal.abort() }),
    };
  });
  expect(Object.fromEntries(Object.entries(errors).map(([name, { code }]) => [name, code]))).toEqual({
    pointer: "http", webpage: "http", llama: "not-a-gpt2", dtype: "bad-option", option: "bad-option", aborted: "aborted",
  });
  expect(errors.pointer.message).toContain("/pointer/config.json");
  expect(errors.webpage.message).toContain("/webpage/config.json");
});

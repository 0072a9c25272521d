// What the page teaches, compared with the events of the run and with independent counts.
import { LESSON, config, ended, expect, generate, numberIn, open, savedRun, setOptions, steps, test } from "./helpers.js";

test("with and without the cache: equal ids, and the rows that each needs", async ({ page }) => {
  await open(page, { max_new_tokens: 10 });
  await page.locator("#compare-run").click();
  await expect(page.locator("#compare-results")).toContainText("The 10 new ids are equal in both runs.");
  const rows = page.locator("#compare-results tbody tr");
  const [n, N] = [LESSON.ids.length, 10];
  const naive = Array.from({ length: N }, (_, i) => n + i).reduce((a, b) => a + b);
  const { n_layer } = await config(page);
  expect((await rows.nth(0).locator("td").allInnerTexts()).slice(1).map(numberIn)).toEqual([naive, n + N - 1]);
  expect((await rows.nth(1).locator("td").allInnerTexts()).slice(1).map(numberIn)).toEqual([naive * 2 * n_layer, (n + N - 1) * 2 * n_layer]);
  // The cached run came last, so the cache that is shown is its own.
  await expect(page.locator("#cache-size")).toContainText(`${n + N - 1} of 1,024`);
});

test("a candidate forks the text, and only the new part is computed", async ({ page }) => {
  await open(page, { max_new_tokens: 6 });
  await generate(page);
  const candidate = page.locator(".candidate:not(.chosen)").first();
  const id = await candidate.getAttribute("data-id");
  await candidate.click();
  await ended(page);
  await expect(page.locator("#prefill-caption")).toContainText("of 13 positions reused");
  const run = await savedRun(page);
  const tokenized = run.events.find(({ type }) => type === "tokenized");
  expect(tokenized.tokens.length).toBe(13);
  expect(String(tokenized.tokens.at(-1).id)).toBe(id);
  const { reused } = run.events.find(({ type }) => type === "prefill_started");
  expect(run.events.find(({ type }) => type === "prefilled").rows).toBe(13 - reused);
  expect(reused).toBe(12);
});

test("going back in time shows the past without running anything", async ({ page }) => {
  await open(page, { max_new_tokens: 6 });
  await generate(page);
  await page.locator("#output .new").nth(2).click();
  await expect(page.locator("#output .new")).toHaveCount(3);
  await expect(page.locator("#cache-size")).toContainText("9 of 1,024");
  await page.locator("#strip-canvas").focus();
  await page.keyboard.press("End");
  await expect(page.locator("#output .new")).toHaveCount(6);
  await page.keyboard.press("Home");
  await expect(page.locator("#output .new")).toHaveCount(0);
});

test("a cell of the cache gives the numbers that are in the buffer", async ({ page }) => {
  await open(page, { max_new_tokens: 3 });
  await generate(page);
  await page.locator("#cache-map").focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await expect(page.locator("#cache-caption")).toContainText(/K of layer 0, position 1 · -?\d/);
  for (let i = 0; i < 12; i++) await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await expect(page.locator("#cache-caption")).toContainText("empty capacity");
});

test("attention of the last step adds up to one over the cached positions", async ({ page }) => {
  await open(page, { max_new_tokens: 4 });
  await generate(page);
  await page.getByRole("tab", { name: "Attention" }).click();
  await page.locator("#attention-read").click();
  await expect(page.locator("#panel-attention")).toContainText("add up to 1");
  await expect(page.locator("#panel-attention tbody tr")).toHaveCount(10);
});

test("memory: the parts add up, and the what-if cache grows in a straight line", async ({ page }) => {
  await open(page);
  await page.getByRole("tab", { name: "Memory" }).click();
  const bytes = (await page.locator("#panel-memory tbody td:nth-child(2)").allInnerTexts()).map((text) => numberIn(text.match(/\(([^)]*)\)/)[1]));
  const total = bytes.pop();
  expect(bytes.reduce((a, b) => a + b)).toBe(total);
  const { n_layer, n_embd } = await config(page);
  const each = 2 * n_layer * n_embd * 4;
  for (const context of [512, 1024, 2048]) {
    await page.locator("#memory-context").fill(String(context));
    await expect(page.locator("#panel-memory .verdict")).toContainText(`cache ${inUnits(context * each)}`);
  }
});

const inUnits = (bytes) => {
  const mib = bytes / 2 ** 20;
  return mib >= 1 ? `${mib >= 10 ? Math.round(mib) : mib.toFixed(1)}` : `${Math.round(bytes / 1024)}`;
};

test("where the time goes: four stages, and GPU time only where there is a GPU clock", async ({ page }) => {
  await open(page, { max_new_tokens: 5 });
  await generate(page);
  await page.getByRole("tab", { name: "Where the time goes" }).click();
  await expect(page.locator("#panel-time table").first().locator("tbody tr")).toHaveCount(4);
  const run = await savedRun(page);
  const timed = steps(run).every((step) => step.gpu_ms !== undefined);
  await page.getByRole("tab", { name: "Where the time goes" }).click();
  const gpu = await page.locator("#panel-time table").first().locator("tbody tr").nth(2).locator("td").nth(2).innerText();
  if (timed) expect(gpu).toMatch(/ms|s/);
  else expect(gpu).toBe("–");
});

test("bytes of an unfinished character are held, then shown whole", async ({ page }) => {
  await open(page);
  // The prompt ends inside a character only by its ids, so the text of a run on emoji must never show a replacement mark.
  await page.locator("#prompt").fill("👋👋👋👋👋👋");
  await setOptions(page, { max_new_tokens: 6 });
  await generate(page);
  const run = await savedRun(page);
  for (const event of run.events.filter(({ type }) => type === "text")) {
    if (event.pending_bytes.length) expect(event.text).not.toContain("\ufffd");
  }
  await expect(page.locator("#bytes")).toContainText("→");
});

test("a run is saved, opened again and replayed with a badge, and exported", async ({ page }) => {
  await open(page, { max_new_tokens: 5 });
  await generate(page);
  const text = await page.locator("#output").innerText();
  const run = await savedRun(page);
  expect(run.version).toBe(1);
  await page.locator("#prompt").fill("something else");
  await page.locator("#trace-file").setInputFiles({ name: "run.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(run)) });
  await expect(page.locator("#recorded-badge")).toContainText("RECORDED");
  await expect(page.locator("#generate")).toHaveText("Play");
  await page.locator("#next-token").click();
  await expect(page.locator("#output .new")).toHaveCount(1);
  await page.locator("#generate").click();
  await expect(page.locator("#output .new")).toHaveCount(5);
  expect(await page.locator("#output").innerText()).toBe(text);
  const [chrome] = await Promise.all([page.waitForEvent("download"), page.locator("#trace-chrome").click()]);
  expect(chrome.suggestedFilename()).toBe("run.trace.json");
  await page.locator("#trace-file").setInputFiles({ name: "bad.json", mimeType: "application/json", buffer: Buffer.from("{\"version\":99}") });
  await expect(page.locator("#panel-trace")).toContainText("version 99");
});

test("a link carries prompt and options, is validated, and fetches no model", async ({ page, baseURL }) => {
  const foreign = [];
  page.on("request", (request) => {
    if (/^https?:/.test(request.url()) && !request.url().startsWith(baseURL)) foreign.push(request.url());
  });
  await open(page, { prompt: "Hi <b>", max_new_tokens: 0, model: "https://example.com/gpt2/" });
  await expect(page.locator("#prompt")).toHaveValue("Hi <b>");
  await page.locator("#generate").click();
  await expect(page.locator("#wrong-max_new_tokens")).toContainText("max_new_tokens");
  expect(foreign).toEqual([]);
});

test("More explains a stage, shows it as a table and links to the files that do it", async ({ page }) => {
  await open(page, { max_new_tokens: 2 });
  await generate(page);
  for (const stage of ["tokenize", "prefill", "cache", "decode", "detokenize"]) {
    await page.locator(`#stage-${stage} .more`).click();
    expect(await page.locator("#sheet tbody tr").count()).toBeGreaterThan(1);
    for (const link of await page.locator("#sheet li a").all()) {
      const answer = await page.request.get(`./${await link.getAttribute("href")}`);
      expect(answer.status(), await link.innerText()).toBe(200);
    }
    await page.keyboard.press("Escape");
  }
});

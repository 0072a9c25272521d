// The main job: type, generate, step, stop.
import { LESSON, config, ended, expect, generate, open, savedRun, setOptions, steps, test } from "./helpers.js";

test("tokens appear while typing, with their ids", async ({ page }) => {
  await page.goto("./");
  await expect(page.locator("#tokens .token")).toHaveCount(7);
  expect(await page.locator("#tokens .token small").allInnerTexts()).toEqual(LESSON.ids.map(String));
  await page.locator("#prompt").fill("hello 👋 world");
  await expect(page.locator("#tokens .token")).toHaveCount(4);
  expect(await page.locator("#tokens .token small").allInnerTexts()).toEqual(["31373", "50169", "233", "995"]);
  await page.locator("#tokens .token").nth(1).hover();
  await expect(page.locator("#token-note")).toContainText("20 F0 9F 91");
});

test("a special token typed as text is shown as what it becomes", async ({ page }) => {
  await page.goto("./");
  await page.locator("#prompt").fill("hello<|endoftext|>world");
  await expect(page.locator("#tokens .token")).toHaveCount(3);
  expect(await page.locator("#tokens .token small").allInnerTexts()).toEqual(["31373", "50256", "6894"]);
  await expect(page.locator("#tokens .token.special")).toHaveCount(1);
});

test("Generate streams text from the lesson's prompt through all four stages", async ({ page }) => {
  await open(page);
  await generate(page);
  await expect(page.locator("#output .prompt")).toHaveText(LESSON.prompt);
  await expect(page.locator("#prefill-caption")).toContainText("7 rows");
  for (const stage of ["tokenize", "prefill", "decode", "detokenize"]) await expect(page.locator(`#stage-${stage}`)).toHaveClass(/ran/);
  const run = await savedRun(page);
  // The model may end its text before all tokens are used.
  const made = steps(run).length;
  expect(made).toBeGreaterThan(3);
  await expect(page.locator("#output .new")).toHaveCount(made);
  const past = LESSON.ids.length + made - 1;
  await expect(page.locator("#cache-size")).toContainText(`${past} of 1,024 positions`);
  const text = run.events.filter(({ type }) => type === "text").map((event) => event.text).join("");
  await expect(page.locator("#output")).toContainText(text.trim());
  const { n_layer, n_embd } = await config(page);
  await expect(page.locator("#cache-size")).toContainText(`${n_layer} × 2 × ${n_embd} × ${past} × 4 B`);
});

test("the same prompt gives the same text again, and another prompt is not influenced", async ({ page }) => {
  await open(page, { max_new_tokens: 8 });
  await generate(page);
  const first = await page.locator("#output").innerText();
  await page.locator("#prompt").fill("Once upon a time");
  await generate(page);
  await expect(page.locator("#output .prompt")).toHaveText("Once upon a time");
  await page.locator("#prompt").fill(LESSON.prompt);
  await generate(page);
  expect(await page.locator("#output").innerText()).toBe(first);
});

test("Next token: the first press runs prefill and shows the first token", async ({ page }) => {
  await open(page, { max_new_tokens: 6 });
  await page.locator("#next-token").click();
  await expect(page.locator("#output .new")).toHaveCount(1);
  await expect(page.locator("#cache-size")).toContainText("7 of 1,024");
  await page.locator("#next-token").click();
  await expect(page.locator("#output .new")).toHaveCount(2);
  await expect(page.locator("#cache-size")).toContainText("8 of 1,024");
  await expect(page.locator("#stage-decode .code")).toContainText("[1, 1] · past 7 → 8");
  await expect(page.locator("#generate")).toHaveText("Continue");
  await page.locator("#generate").click();
  await ended(page);
  await expect(page.locator("#output .new")).toHaveCount(6);
});

test("Next stage stops after each stage", async ({ page }) => {
  await open(page);
  for (const stage of ["tokenize", "prefill", "detokenize", "decode", "detokenize"]) {
    await page.locator("#next-stage").click();
    await expect(page.locator(`#stage-${stage}`)).toHaveClass(/lit/);
    await expect(page.locator("#generate")).toHaveText("Continue");
  }
});

test("Stop works half-way, twice, and the next run is as on a fresh page", async ({ page }) => {
  await open(page, { max_new_tokens: 8, prompt: "Once upon a time" });
  await generate(page);
  const whole = await page.locator("#output").innerText();
  await setOptions(page, { max_new_tokens: 400 });
  await page.locator("#generate").click();
  await expect(page.locator("#output .new").nth(3)).toBeAttached();
  await page.locator("#stop").click();
  await expect(page.locator("#stage-detokenize .cost")).toContainText("stopped");
  expect(await page.locator("#output .new").count()).toBeLessThan(400);
  await expect(page.locator("#stop")).toBeDisabled();
  await setOptions(page, { max_new_tokens: 8 });
  await generate(page);
  expect(await page.locator("#output").innerText()).toBe(whole);
});

test("Pause holds and Continue goes on", async ({ page }) => {
  await open(page, { max_new_tokens: 900, prompt: "Once upon a time" });
  const shown = page.locator("#output .new");
  await page.locator("#generate").click();
  await expect(shown.nth(1)).toBeAttached();
  await page.locator("#generate").click();
  await expect(page.locator("#generate")).toHaveText("Continue");
  const held = await shown.count();
  // Had anything gone on, the next token would not be the next one.
  await page.locator("#next-token").click();
  await expect(shown.nth(held)).toBeAttached();
  await expect(page.locator("#generate")).toHaveText("Continue");
  expect(await shown.count()).toBe(held + 1);
  await page.locator("#generate").click();
  await expect(shown.nth(held + 3)).toBeAttached();
  await page.locator("#stop").click();
  await ended(page);
});

test("markup in the prompt is shown literally", async ({ page }) => {
  await open(page, { max_new_tokens: 2 });
  const prompt = "<img src=x onerror=alert(1)> & <b>bold</b>";
  await page.locator("#prompt").fill(prompt);
  await generate(page);
  await expect(page.locator("#output .prompt")).toHaveText(prompt);
  expect(await page.locator("main img, main b:not(.token b)").count()).toBe(0);
});

test("a bad option is shown at its control, and the page goes on", async ({ page }) => {
  await open(page, { do_sample: true, temperature: 0, max_new_tokens: 4 });
  await page.locator("#generate").click();
  await expect(page.locator("#wrong-temperature")).toContainText("do_sample");
  await expect(page.locator("#option-temperature")).toBeFocused();
  await page.locator("#option-temperature").fill("0.8");
  await page.keyboard.press("Escape");
  await generate(page);
  await expect(page.locator("#output .new")).toHaveCount(4);
});

test("a prompt longer than the context is refused in words", async ({ page }) => {
  await open(page);
  await page.locator("#prompt").fill("the ".repeat(1200));
  await expect(page.locator("#notice")).toContainText("1,024 positions");
  await page.locator("#prompt").fill("Once");
  await expect(page.locator("#notice")).toBeHidden();
});

test("sampling: the same seed draws the same text; listed and unlisted probabilities add up to one", async ({ page }) => {
  await open(page, { do_sample: true, top_k: 8, seed: 7, max_new_tokens: 6 });
  await generate(page);
  const first = await page.locator("#output").innerText();
  await generate(page);
  expect(await page.locator("#output").innerText()).toBe(first);
  await expect(page.locator(".candidate.removed").first()).toContainText("removed by top_k");
  for (const step of steps(await savedRun(page))) {
    const listed = step.candidates.reduce((sum, candidate) => sum + candidate.probability, 0);
    expect(Math.abs(listed + step.rest - 1)).toBeLessThan(1e-4);
  }
});

// What every page test needs: the words for driving the page as a reader would.
import { readFile } from "node:fs/promises";
import { expect, test as base } from "./evidence.js";

export { expect };

/** The prompt of the lesson and its ids, as Hugging Face's tokenizer gives them. */
export const LESSON = { prompt: "The future of AI systems engineering is", ids: [464, 2003, 286, 9552, 3341, 8705, 318] };

/** `page` with the tour already seen; a test fails if the console shows an error or a script throws. */
export const test = base.extend({
  quiet: true,
  page: async ({ page }, use) => {
    await page.addInitScript(() => localStorage.setItem("inside-generate:tour", "seen"));
    await use(page);
  },
});

/** Opens the page with options in its link and waits until the model is ready. */
export async function open(page, options = {}) {
  const fragment = new URLSearchParams({ prompt: LESSON.prompt, ...options });
  await page.goto(`./#${fragment}`);
  await ready(page);
}

/** Waits until a model is loaded and the device, if it is checked by itself, has been. */
export async function ready(page) {
  await drawn(page);
  await expect(page.locator("#generate")).toHaveText("Generate");
  await expect(page.locator("#generate")).toBeEnabled();
  await expect(page.locator("#device-chip")).not.toContainText("checking");
  await drawn(page);
}

/** Waits until the page has drawn what it knows by now, which it does at the next frame. */
async function drawn(page) {
  await page.evaluate(() => new Promise((resolve) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(resolve)))));
}

/** Sets options in their menu. */
export async function setOptions(page, values) {
  await page.locator("#options-button").click();
  for (const [name, value] of Object.entries(values)) {
    const control = page.getByLabel(name, { exact: true });
    if (typeof value === "boolean") await control.setChecked(value);
    else await control.fill(String(value));
  }
  await page.keyboard.press("Escape");
}

/** Runs to the end. */
export async function generate(page) {
  await page.locator("#generate").click();
  await ended(page);
}

export async function ended(page) {
  await expect(page.locator("#stage-detokenize .cost")).toContainText(/reached|ended|stopped|used every|found/, { timeout: 150_000 });
  await expect(page.locator("#stop")).toBeDisabled();
  await drawn(page);
}

/** The run as the page saves it. */
export async function savedRun(page) {
  await page.getByRole("tab", { name: "Trace" }).click();
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("#trace-save").click()]);
  return JSON.parse(await readFile(await download.path(), "utf8"));
}

/** config.json of the bundled model. */
export async function config(page) {
  return (await page.request.get("./www/models/tiny/config.json")).json();
}

/** The number in a text such as "1,024 positions". */
export const numberIn = (text) => Number(text.replaceAll(",", "").match(/-?\d+(\.\d+)?/)[0]);

export const steps = (run) => run.events.filter(({ type }) => type === "prefilled" || type === "decoded");

// Sizes, keyboard and assistive technology.
import { createRequire } from "node:module";
import { ended, expect, generate, open, ready, test } from "./helpers.js";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const STAGES = ["tokenize", "prefill", "cache", "decode", "detokenize"];

for (const colorScheme of ["light", "dark"]) {
  test(`the first screen shows the four stages without scrolling, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme });
    await open(page, { max_new_tokens: 8 });
    const boxes = () => Promise.all(STAGES.map((stage) => page.locator(`#stage-${stage}`).boundingBox()));
    const before = await boxes();
    expect(before.at(-1).y + before.at(-1).height).toBeLessThanOrEqual(800);
    await generate(page);
    expect(await boxes()).toEqual(before);
    await page.screenshot({ path: `output/first-1280-${colorScheme}.png` });
  });

  test(`no violations found by axe, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await open(page, { max_new_tokens: 4 });
    await generate(page);
    await page.addScriptTag({ path: AXE });
    const check = async () => {
      const { violations } = await page.evaluate(() => globalThis.axe.run());
      expect(violations.map(({ id, nodes }) => [id, nodes[0].target.join(" ")])).toEqual([]);
    };
    for (const tab of await page.getByRole("tab").all()) {
      await tab.click();
      await check();
    }
    for (const menu of ["options-button", "model-chip", "device-chip"]) {
      await page.locator(`#${menu}`).click();
      await check();
      await page.keyboard.press("Escape");
    }
    await page.locator("#stage-decode .more").click();
    await check();
  });
}

test("390 pixels wide: nothing is cut off, and the first stage and Generate are in view", async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await open(page, { max_new_tokens: 6 });
  await generate(page);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  await page.evaluate(() => scrollTo(0, 0));
  await expect(page.locator("#generate")).toBeInViewport({ ratio: 1 });
  await expect(page.locator("#tokens")).toBeInViewport({ ratio: 0.9 });
  await page.screenshot({ path: "output/first-390.png", fullPage: true });
});

test("an 850 by 450 frame: the first stage and Generate are in view", async ({ page }) => {
  await page.setViewportSize({ width: 850, height: 450 });
  await open(page);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(850);
  await expect(page.locator("#generate")).toBeInViewport({ ratio: 1 });
  await expect(page.locator("#tokens .token").first()).toBeInViewport({ ratio: 1 });
  await page.screenshot({ path: "output/first-850.png" });
});

test("the keyboard is enough", async ({ page }) => {
  await open(page, { max_new_tokens: 5 });
  await page.locator("#prompt").focus();
  await page.keyboard.press("Enter");
  await ended(page);
  await page.locator("#prompt").blur();
  await page.keyboard.press("ArrowLeft");
  await expect(page.locator("#strip-figures")).toContainText(/event \d+ of \d+/);
  await page.keyboard.press("End");
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toContainText("Next token");
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await ended(page);
  await page.locator("#tokens .token").first().focus();
  await page.keyboard.press("ArrowRight");
  await expect(page.locator("#tokens .token").nth(1)).toBeFocused();
  await expect(page.locator("#announcements")).toContainText("Text:");
});

test("the tour is offered once, has six steps and stays away afterwards", async ({ page }) => {
  await page.addInitScript(() => sessionStorage.getItem("kept") ?? (sessionStorage.setItem("kept", "1"), localStorage.removeItem("inside-generate:tour")));
  await open(page);
  await page.locator("#tour-offer").getByRole("button", { name: "Start" }).click();
  for (let step = 1; step <= 6; step++) {
    await expect(page.locator(".tour")).toContainText(`${step} of 6`);
    await page.locator(".tour .primary").click();
  }
  await expect(page.locator(".tour")).toBeHidden();
  await page.reload();
  await ready(page);
  await expect(page.locator("#tour-offer")).toHaveCount(0);
});

// Without WebGPU, with a broken site, and over a long run.
import { expect, generate, open, ready, savedRun, setOptions, steps, test } from "./helpers.js";

test("without WebGPU the page says so, tokenizes and plays a recorded run", async ({ page }) => {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, "gpu", { get: () => undefined }));
  await page.goto("./");
  await expect(page.locator("#notice")).toContainText("This browser has no WebGPU");
  await expect(page.locator("#recorded-badge")).toContainText("RECORDED");
  await expect(page.locator("#output .new").nth(5)).toBeAttached();
  await page.locator("#prompt").fill("hello world");
  await expect(page.locator("#tokens .token")).toHaveCount(2);
});

test("without an adapter the page says that instead", async ({ page }) => {
  await page.addInitScript(() => (GPU.prototype.requestAdapter = async () => null));
  await page.goto("./");
  await expect(page.locator("#notice")).toContainText("No GPU answered");
});

test("a web page in place of the weights is one clear sentence", async ({ page }) => {
  await page.route("**/model.safetensors.gz", (route) => route.fulfill({ status: 200, contentType: "text/html", body: "<!doctype html><p>moved" }));
  await page.goto("./");
  await expect(page.locator("#notice")).toContainText("web page instead of the file");
  await expect(page.locator("#notice")).toContainText("model.safetensors");
  await page.unroute("**/model.safetensors.gz");
  await page.getByRole("button", { name: "Try again" }).click();
  await ready(page);
});

test("a lost device says so, and one button restarts it, twice", async ({ page }) => {
  await page.addInitScript(() => {
    const request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (...wanted) {
      return (globalThis.device = await request.apply(this, wanted));
    };
  });
  await open(page, { max_new_tokens: 5, prompt: "Once upon a time" });
  await generate(page);
  const text = await page.locator("#output").innerText();
  for (let time = 1; time <= 2; time++) {
    await setOptions(page, { max_new_tokens: 200 });
    await page.locator("#generate").click();
    await expect(page.locator("#output .new").nth(1)).toBeAttached();
    await page.evaluate(() => globalThis.device.destroy());
    await expect(page.locator("#notice")).toContainText("The GPU was lost");
    await page.getByRole("button", { name: "Restart" }).click();
    await ready(page);
    await setOptions(page, { max_new_tokens: 5 });
    await generate(page);
    expect(await page.locator("#output").innerText()).toBe(text);
  }
});

test("a long run: every token is shown, and the page stays bounded", async ({ page }) => {
  await open(page, { max_new_tokens: 250, prompt: "Once upon a time" });
  await generate(page);
  const made = await page.locator("#output .new").count();
  // The model may end its text before all tokens are used.
  expect(made).toBeGreaterThan(100);
  expect(steps(await savedRun(page))).toHaveLength(made);
  expect(await page.evaluate(() => document.querySelectorAll("*").length)).toBeLessThan(2500);
});

// Without WebGPU, with a broken site, and over a long run.
import { expect, generate, open, savedRun, setOptions, steps, test } from "./helpers.js";

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
  await expect(page.locator("#generate")).toBeEnabled();
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
    await expect(page.locator("#generate")).toHaveText("Generate");
    await expect(page.locator("#generate")).toBeEnabled();
    await setOptions(page, { max_new_tokens: 5 });
    await generate(page);
    expect(await page.locator("#output").innerText()).toBe(text);
  }
});

test("up to 900 tokens: every one is shown, and the page stays bounded", async ({ page }) => {
  test.setTimeout(600_000);
  await open(page, { max_new_tokens: 8, prompt: "Once upon a time" });
  await generate(page);
  const each = Math.max(...steps(await savedRun(page)).map(({ ms }) => ms));
  // On a slow software adapter as many as fit into some minutes.
  const wanted = Math.max(100, Math.min(900, Math.floor(180_000 / each)));
  await setOptions(page, { max_new_tokens: wanted });
  await page.locator("#generate").click();
  await expect(page.locator("#output .new").nth(9)).toBeAttached();
  await expect(page.locator("#stage-detokenize .cost")).toContainText(/reached|ended/, { timeout: 500_000 });
  const made = await page.locator("#output .new").count();
  expect(steps(await savedRun(page))).toHaveLength(made);
  expect(await page.evaluate(() => document.querySelectorAll("*").length)).toBeLessThan(2500);
  console.log(`${made} tokens of ${wanted}`);
});

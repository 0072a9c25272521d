// The menus of the model and of the device.
import { expect, open, ready, test } from "./helpers.js";

test("the model menu says what each model takes, and fetches none of them", async ({ page, baseURL }) => {
  const foreign = [];
  page.on("request", (request) => {
    if (/^https?:/.test(request.url()) && !request.url().startsWith(baseURL)) foreign.push(request.url());
  });
  await open(page);
  await page.locator("#model-chip").click();
  const choice = page.locator(".choice", { hasText: "openai-community/gpt2-xl" });
  await expect(choice).toContainText("6.4 GB to download");
  await page.getByLabel("dtype", { exact: true }).selectOption("fp32");
  await expect(choice).toContainText(/fits this adapter's limits in fp32|does not fit in fp32: max\w+ is .* too much/);
  expect(foreign).toEqual([]);
});

test("files from the disk are loaded as a model, and a wrong choice is one sentence", async ({ page }) => {
  await open(page, { max_new_tokens: 3 });
  const read = async (name) => ({ name, mimeType: "application/octet-stream", buffer: await (await page.request.get(`./www/models/tiny/${name}`)).body() });
  await page.locator("#model-files").setInputFiles([await read("tokenizer.json")]);
  await expect(page.locator("#notice")).toContainText("config.json is not among the chosen files");
  await expect(page.locator("#generate")).toBeEnabled();
  await page.locator("#model-files").setInputFiles(await Promise.all(["config.json", "tokenizer.json", "model.safetensors"].map(read)));
  await expect(page.locator("#model-chip")).toContainText("files from this computer");
  await ready(page);
  await page.locator("#next-token").click();
  await expect(page.locator("#output .new")).toHaveCount(1);
});

test("the device is checked against the reference when asked", async ({ page }) => {
  await open(page);
  await page.locator("#device-chip").click();
  await page.locator("#self-check").click();
  await expect(page.locator("#device-chip")).toContainText(/checked, largest difference/, { timeout: 150_000 });
  await expect(page.locator("#device-menu")).toContainText("✓ reference");
});

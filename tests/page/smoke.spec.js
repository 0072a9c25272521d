import { expect, test } from "@playwright/test";

test("the page opens without an error and without asking another host", async ({ page, baseURL }) => {
  const faults = [];
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("response", (response) => response.status() >= 400 && faults.push(`${response.status()} ${response.url()}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(baseURL) && !request.url().startsWith("data:") && !request.url().startsWith("blob:")) {
      faults.push(`request to ${request.url()}`);
    }
  });
  await page.goto("./", { waitUntil: "networkidle" });
  await expect(page).toHaveTitle(/GPT-2/);
  expect(faults).toEqual([]);
});

test("this browser gives a WebGPU adapter", async ({ page }) => {
  await page.goto("./");
  const vendor = await page.evaluate(async () => (await navigator.gpu?.requestAdapter())?.info.vendor);
  expect(vendor).toBeTruthy();
});

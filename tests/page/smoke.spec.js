// The site as it is served: complete, and on its own.
import { expect, ready, test } from "./helpers.js";

test("the page opens with all its scripts and styles, and asks no other host", async ({ page, baseURL }) => {
  const faults = [];
  page.on("request", (request) => {
    const url = request.url();
    if (/^https?:/.test(url) && !url.startsWith(baseURL)) faults.push(`request to ${url}`);
  });
  page.on("response", (response) => {
    const part = ["document", "script", "stylesheet"].includes(response.request().resourceType());
    if (part && !response.ok()) faults.push(`${response.status()} ${response.url()}`);
  });
  await page.goto("./");
  await ready(page);
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  expect(faults).toEqual([]);
});

test("this browser gives a WebGPU adapter", async ({ page }) => {
  await page.goto("./");
  const vendor = await page.evaluate(async () => (await navigator.gpu?.requestAdapter())?.info.vendor);
  expect(vendor).toBeTruthy();
});

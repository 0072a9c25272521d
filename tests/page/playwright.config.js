// Page tests: real Chromium on the built site. `cargo xtask test` sets the variables; by hand, run `cargo xtask serve` beside it.
import { readFileSync } from "node:fs";
import { defineConfig } from "@playwright/test";

const url = process.env.SITE_URL ?? "http://127.0.0.1:8080/";
const browser = process.env.CHROMIUM ?? "/usr/bin/chromium";

// The flags that give headless Chromium a WebGPU adapter are kept in one place, where wasm-pack reads them too.
const driver = JSON.parse(readFileSync(new URL("../../webdriver.json", import.meta.url), "utf8"));
const args = driver["goog:chromeOptions"].args.filter((flag) => !flag.startsWith("--headless"));

export default defineConfig({
  testDir: ".",
  // These load from the hosts that `cargo xtask hosts` imitates.
  testIgnore: process.env.HOSTS_URL ? [] : /(hosts|models)\.spec\.js/,
  outputDir: "output/results",
  forbidOnly: Boolean(process.env.CI),
  // One at a time: on a software adapter every page shares the same processor.
  workers: 1,
  timeout: 180_000,
  expect: { timeout: 60_000 },
  reporter: [["list"], ["json", { outputFile: "output/report.json" }]],
  use: {
    baseURL: url,
    viewport: { width: 1280, height: 800 },
    screenshot: "only-on-failure",
    trace: "retain-on-failure",
    launchOptions: { executablePath: browser, args },
  },
});

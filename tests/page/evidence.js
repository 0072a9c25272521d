// What a failed page test leaves beside its screenshot: all that the console said, and what the imitated hosts were asked.
import { rm, writeFile } from "node:fs/promises";
import { expect, test as base } from "@playwright/test";

export { expect };

/** Address of the imitated hosts: `${hosts}/BEHAVIOUR/NAME/` is a host that behaves in this way, and remembers it for this name. */
export const hosts = process.env.HOSTS_URL;

/** The requests that were made with a name, in the order in which they came; without one those of all names. */
export const logOf = async (name = "") => (await fetch(`${hosts}/log/${name}`)).json();

/**
 * Watches the console of `page`. With `quiet`, a test also fails if the console shows an error or a script throws: not for
 * tests of hosts that fail, of which the browser tells there.
 */
export const test = base.extend({
  quiet: [false, { option: true }],
  watched: [
    async ({ page, quiet }, use, testInfo) => {
      const lines = [];
      const faults = [];
      const onConsole = (message) => {
        lines.push(`${message.type()}: ${message.text()}`);
        if (message.type() === "error") faults.push(message.text());
      };
      const onError = (error) => {
        lines.push(`thrown: ${error.stack ?? error}`);
        faults.push(String(error));
      };
      const onFailed = (request) => lines.push(`request failed: ${request.url()} ${request.failure()?.errorText ?? ""}`);
      page.on("console", onConsole).on("pageerror", onError).on("requestfailed", onFailed);
      await use();
      // A page may be shared with the tests that follow.
      page.off("console", onConsole).off("pageerror", onError).off("requestfailed", onFailed);
      if (testInfo.status !== testInfo.expectedStatus || (quiet && faults.length)) {
        await attach(testInfo, "console", lines);
        if (hosts) await attach(testInfo, "hosts", (await logOf()).map((row) => JSON.stringify(row)));
      }
      if (quiet) expect(faults).toEqual([]);
    },
    { auto: true },
  ],
});

async function attach(testInfo, name, lines) {
  const path = testInfo.outputPath(`${name}.txt`);
  await writeFile(path, `${lines.join("\n")}\n`);
  // This puts a copy where reporters find it.
  await testInfo.attach(name, { path, contentType: "text/plain" });
  await rm(path);
}

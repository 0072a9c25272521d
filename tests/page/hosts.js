// What the tests of loading share: the imitated hosts of `cargo xtask hosts`, and one page for all tests of a file.
import { test as base } from "./evidence.js";

export { expect, hosts, logOf } from "./evidence.js";

/** `page` shows no page that runs but a script as text, on the site's origin; the download cache is empty. */
export const test = base.extend({
  shared: [
    async ({ browser }, use) => {
      const page = await browser.newPage();
      await use(page);
      await page.close();
    },
    { scope: "worker" },
  ],
  page: async ({ shared, baseURL }, use) => {
    const blank = new URL("www/env.js", baseURL).href;
    if (shared.url() !== blank) await shared.goto(blank);
    await shared.evaluate(async () => Promise.all((await caches.keys()).map((each) => caches.delete(each))));
    await use(shared);
  },
});

import { readFileSync } from "node:fs";
import { expect, test } from "./helpers.js";

const golden = JSON.parse(readFileSync(new URL("../fixtures/tiny_golden.json", import.meta.url), "utf8"));

test("the bundled model continues in the browser as in transformers", async ({ page }) => {
  await page.goto("./");
  const prompts = golden.cases.map((wanted) => [wanted.prompt, wanted.new_ids.length]);
  const answers = await page.evaluate(async (prompts) => {
    const { GPT2LMHeadModel } = await import(new URL("./www/gpt2.js", location.href).href);
    const model = await GPT2LMHeadModel.from_pretrained("www/models/tiny", { dtype: "fp32" });
    const answers = [];
    for (const [prompt, max_new_tokens] of prompts) {
      const { sequences, new_tokens, text } = await model.generate({ prompt, max_new_tokens });
      answers.push({ sequence: sequences[0], new_tokens, text });
    }
    await model.dispose();
    return answers;
  }, prompts);
  expect(answers).toEqual(
    golden.cases.map((wanted) => ({
      sequence: [...wanted.prompt_ids, ...wanted.new_ids],
      new_tokens: wanted.new_ids,
      text: wanted.new_text,
    })),
  );
});

// Prompt and options in the URL fragment. A link is only typed text: it is validated like any input and fetches nothing.

const LONGEST = 20_000;

/** The fragment for a prompt and options. */
export function write(prompt, options, model) {
  const fields = new URLSearchParams({ prompt });
  for (const [name, value] of Object.entries(options)) fields.set(name, Array.isArray(value) ? value[0] : String(value));
  if (model) fields.set("model", model);
  return `#${fields}`;
}

/** `{ prompt, model, options }` of a fragment, all texts; null without one. */
export function read(fragment) {
  if (fragment.length < 2 || fragment.length > LONGEST) return null;
  const fields = new URLSearchParams(fragment.slice(1));
  const options = Object.fromEntries(fields);
  const { prompt, model } = options;
  delete options.prompt;
  delete options.model;
  return { prompt, model, options };
}

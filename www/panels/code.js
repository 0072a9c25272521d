// The code lane: the loop inside generate(), in Python and in this page's API, with the shapes of the run beside it.

import { strings } from "../strings.js";
import { lastStep } from "../fold.js";
import { el, setText } from "../ui/dom.js";
import { count } from "../ui/format.js";

const words = strings.code;

/** `[line, kind]`: kind "now" is the line that runs, a function gives the live shape. */
const LANES = {
  python: {
    tokenize: [["ids = tokenizer(prompt,", "now"], ["      return_tensors=\"pt\").input_ids", ""], shape((s, v) => `# ids [1, ${v.tokens ? count(v.tokens.length) : words.unknown}]`)],
    prefill: [["out = model(ids, past_key_values=None)", "now"], ["past = out.past_key_values", ""], ["next_id = pick(out.logits[:, -1])", ""], shape((s, v) => `# logits [1, ${s.prefilled ? count(s.input_len) : words.unknown}, ${v.config ? v.config.vocab_size : words.unknown}] → last row`)],
    decode: [["while not done(next_id):", ""], ["  out = model(next_id,", "now"], ["              past_key_values=past)", "now"], ["  next_id = pick(out.logits[:, -1])", ""], shape(decodeShape)],
    detokenize: [["text = tokenizer.decode(ids)", "now"], shape((s) => (s.texts.length ? `# ${count(s.texts.length)} new ids → ${count(s.text.length)} characters` : "# bytes first, then characters"))],
  },
  javascript: {
    tokenize: [["const input_ids =", ""], ["  tokenizer.encode(prompt);", "now"], shape((s, v) => `// ${v.tokens ? count(v.tokens.length) : words.unknown} ids`)],
    prefill: [["const run = model.stream({ input_ids });", ""], ["for await (const event of run) …", ""], ["event.type === \"prefilled\"", "now"], shape((s) => `// rows ${s.prefilled ? count(s.prefilled.rows) : words.unknown} · past_len ${s.prefilled ? count(s.prefilled.past_len) : words.unknown}`)],
    decode: [["event.type === \"decoded\"", "now"], ["event.token_id; event.candidates;", ""], ["model.past_key_values", ""], ["     .get_seq_length();", ""], shape(decodeShape)],
    detokenize: [["event.type === \"text\"", "now"], ["output += event.text;", ""], shape((s) => (s.texts.length ? `// ${count(s.texts.length)} ids → ${count(s.text.length)} characters` : "// bytes first, then characters"))],
  },
};

function shape(text) {
  return [text, "shape"];
}

function decodeShape(state) {
  const step = lastStep(state);
  if (!step || step.type !== "decoded") return "# ids [1, 1]";
  if (step.past_len === 0) return `# ids [1, ${count(step.rows)}] · no cache`;
  return `# ids [1, ${count(step.rows)}] · past ${count(step.kv_written[0])} → ${count(step.past_len)}`;
}

export function create({ copyPython }) {
  let language = "python";
  const blocks = Object.fromEntries(Object.keys(LANES.python).map((stage) => [stage, document.querySelector(`#stage-${stage} .code code`)]));
  const tools = document.querySelector("#code-tools");
  const choices = ["python", "javascript"].map((name) => el("button", { type: "button", class: "link", "aria-pressed": String(name === language), click: () => choose(name) }, words[name]));
  const copy = el("button", { type: "button", class: "link", click: async () => {
    setText(copy, await copyPython().then(() => strings.buttons.copied, () => strings.buttons.not_copied));
    setTimeout(() => setText(copy, words.copy), 2000);
  } }, words.copy);
  tools.setAttribute("role", "group");
  tools.setAttribute("aria-label", words.language);
  tools.append(...choices, copy);
  let last = null;

  function choose(name) {
    language = name;
    choices.forEach((button, index) => button.setAttribute("aria-pressed", String(index === (name === "python" ? 0 : 1))));
    lay();
    if (last) draw(last);
  }

  function lay() {
    for (const [stage, lines] of Object.entries(LANES[language])) {
      blocks[stage].replaceChildren(...lines.map(([text, kind]) => el("span", { class: `line ${kind}` }, typeof text === "string" ? text : "")));
    }
  }

  function draw(view) {
    last = view;
    for (const [stage, lines] of Object.entries(LANES[language])) {
      lines.forEach(([text], index) => {
        if (typeof text !== "function") return;
        const said = text(view.state, view);
        setText(blocks[stage].children[index], language === "javascript" ? said.replace(/^#/, "//") : said);
      });
    }
  }

  lay();
  return { draw };
}

/** A script for Python that does what the page just did, with the same prompt and options. */
export function pythonScript(model, prompt, options) {
  const literal = (value) => (value === true ? "True" : value === false ? "False" : value === null ? "None" : typeof value === "string" ? JSON.stringify(value) : Array.isArray(value) ? `[${value.map(literal).join(", ")}]` : String(value));
  const { seed, ...rest } = options;
  const named = Object.entries(rest).map(([name, value]) => `    ${name}=${literal(value)},`);
  if (rest.stop_strings) named.push("    tokenizer=tokenizer,");
  return [
    "import torch",
    "from transformers import AutoModelForCausalLM, AutoTokenizer",
    "",
    `model_id = ${literal(model)}`,
    "tokenizer = AutoTokenizer.from_pretrained(model_id)",
    "model = AutoModelForCausalLM.from_pretrained(model_id)",
    "",
    `inputs = tokenizer(${literal(prompt)}, return_tensors="pt")`,
    ...(seed === undefined ? [] : [`torch.manual_seed(${seed})  # PyTorch draws other numbers than this page does`]),
    "ids = model.generate(",
    "    **inputs,",
    ...named,
    "    pad_token_id=tokenizer.eos_token_id,",
    ")",
    "print(tokenizer.decode(ids[0]))",
    "",
  ].join("\n");
}

// The sheet behind every "More": what the stage does, the formula, where it is done, and the panel as a table.

import { strings } from "../strings.js";
import { $, el, table } from "./dom.js";

/** The Rust files and shaders of each stage, relative to the repository; the built site carries them along. */
const FILES = {
  tokenize: ["src/tokenizer.rs"],
  prefill: ["src/model/plan.rs", "shaders/embed.wgsl", "shaders/layer_norm.wgsl", "shaders/linear.wgsl", "shaders/attention.wgsl", "src/reference.rs"],
  cache: ["src/kv_cache.rs", "shaders/ln_qkv.wgsl"],
  decode: ["src/generator.rs", "src/model/plan.rs", "shaders/ln_qkv.wgsl", "shaders/attention.wgsl", "shaders/pick.wgsl", "src/sampling.rs"],
  detokenize: ["src/tokenizer.rs", "src/trace.rs"],
};

/** Adds a More button to every stage; `rows(stage)` gives the panel as a table. */
export function create(rows, extras = {}) {
  const sheet = $("#sheet");
  let open = null;
  let drawn = "";
  const holder = el("div", { class: "table-holder" });

  for (const stage of Object.keys(FILES)) {
    const about = $(`#stage-${stage} .about`);
    const title = strings[stage].name ?? strings.cache.title.replace(/^· /, "");
    about.append(el("button", { type: "button", class: "link more", "aria-label": `${strings.buttons.more}: ${title}`, click: () => show(stage, title) }, strings.buttons.more));
  }
  sheet.addEventListener("close", () => (open = null));
  sheet.addEventListener("click", (event) => event.target === sheet && sheet.close());

  function show(stage, title) {
    open = stage;
    drawn = "";
    sheet.replaceChildren(
      el("header", {}, el("h2", { id: "sheet-title" }, title), el("button", { type: "button", class: "small", click: () => sheet.close() }, strings.buttons.close)),
      ...strings.more.stages[stage].map((text) => el("p", {}, text)),
      ...(extras[stage]?.() ?? []),
      el("h3", {}, strings.more.source),
      el("ul", {}, ...FILES[stage].map((file) => el("li", {}, el("a", { href: file }, el("code", {}, file))))),
      el("h3", {}, strings.more.table), holder);
    sheet.showModal();
    draw();
  }

  /** Redraws the table of the open sheet if it changed. */
  function draw() {
    if (!open) return;
    const { columns, rows: body, numbers } = rows(open);
    const key = `${open}/${body.length}/${body.at(-1)?.join()}/${body[0]?.join()}`;
    if (key === drawn) return;
    drawn = key;
    holder.replaceChildren(table(columns, body, numbers));
  }

  return { draw };
}

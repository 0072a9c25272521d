// Memory: live bytes on the GPU, and what another context, depth or number format would take.

import { strings } from "../strings.js";
import { el, setText, table } from "../ui/dom.js";
import { bytes, count, percent } from "../ui/format.js";

const words = strings.memory;
const COLOURS = { weights: "prefill", kv_cache: "decode", activations: "tokenize", readback: "detokenize" };
const BYTES = { fp32: 4, fp16: 2, q8: 1 };

export function create(root) {
  const stack = el("div", { class: "stack", role: "img" });
  const holder = el("div");
  const context = range("memory-context", words.context);
  const layers = range("memory-layers", words.layers);
  const dtype = el("select", { id: "memory-dtype" }, ...Object.keys(BYTES).map((name) => el("option", { value: name }, name)));
  const result = el("p", { class: "verdict", role: "status" });
  const scale = el("div", { class: "stack", "aria-hidden": "true" });
  root.append(el("p", {}, words.about),
    el("div", { class: "split" }, el("div", {}, stack, holder),
      el("div", {}, el("h3", {}, words.what_if), el("p", { class: "caption" }, words.what_if_about), context.row, layers.row,
        el("div", { class: "slider" }, el("label", { for: "memory-dtype" }, words.dtype), dtype, el("span")), scale, result)));
  let config = null;
  for (const control of [context.input, layers.input, dtype]) control.addEventListener("input", whatIf);

  function range(id, label) {
    const input = el("input", { type: "range", id, min: 1 });
    const output = el("output", { for: id });
    return { input, output, row: el("div", { class: "slider" }, el("label", { for: id }, label), input, output) };
  }

  function draw(view) {
    if (view.config && view.config !== config) start(view);
    const live = view.model?.memory();
    if (!live) {
      stack.replaceChildren();
      holder.replaceChildren(el("p", { class: "hint" }, view.recorded ? words.not_recorded : words.empty));
      return;
    }
    const parts = Object.keys(COLOURS).map((name) => [name, live[name]]);
    stack.setAttribute("aria-label", parts.map(([name, size]) => `${words.kinds[name]} ${bytes(size)}`).join(", "));
    stack.replaceChildren(...parts.map(([name, size]) => el("i", { style: `flex: ${size} 1 0; background: var(--${COLOURS[name]})`, title: `${words.kinds[name]} ${bytes(size)}` })));
    holder.replaceChildren(table(words.columns, [...parts, ["total", live.total]].map(([name, size]) => [words.kinds[name] ?? words.total, `${bytes(size)} (${count(size)} B)`, percent(size / live.total)]), [1, 2]));
  }

  function start(view) {
    const fresh = !config || config.n_layer !== view.config.n_layer || config.n_embd !== view.config.n_embd;
    config = view.config;
    if (!fresh) return;
    context.input.max = Math.max(4096, config.n_positions);
    context.input.value = config.n_positions;
    layers.input.max = Math.max(48, config.n_layer);
    layers.input.value = config.n_layer;
    whatIf();
  }

  /** The cache: 2 L C bytes for each position. The weights: embeddings, L blocks of 12 C^2 + 13 C, the last norm. */
  function whatIf() {
    if (!config) return;
    const [P, L, C, F] = [Number(context.input.value), Number(layers.input.value), config.n_embd, config.n_inner ?? 4 * config.n_embd];
    setText(context.output, count(P));
    setText(layers.output, count(L));
    const each = 2 * L * C * 4;
    const numbers = config.vocab_size * C + P * C + L * (4 * C * C + 2 * C * F + 9 * C + F) + 2 * C;
    const weights = numbers * BYTES[dtype.value];
    setText(result, words.result(bytes(P * each), bytes(each), bytes(weights)));
    scale.replaceChildren(el("i", { style: `flex: ${weights} 1 0; background: var(--prefill)` }), el("i", { style: `flex: ${P * each} 1 0; background: var(--decode)` }));
  }

  return { draw };
}

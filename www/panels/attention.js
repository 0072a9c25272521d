// Attention of the last step, read from the GPU on demand.

import { strings } from "../strings.js";
import { begin, colour } from "../ui/canvas.js";
import { el, setText, table } from "../ui/dom.js";
import { number, percent, visible } from "../ui/format.js";
import { chosenText } from "./prefill.js";

const words = strings.attention;
const LISTED = 12;

export function create(root, app) {
  const layer = el("select", { id: "attention-layer", change: read });
  const head = el("select", { id: "attention-head", change: read });
  const button = el("button", { type: "button", id: "attention-read", click: read }, words.read);
  const status = el("p", { role: "status" });
  const canvas = el("canvas", { class: "chart", role: "img", "aria-label": words.columns.join(", ") });
  const holder = el("div", { class: "scroll", tabindex: 0 });
  root.append(el("p", {}, words.about),
    el("div", { class: "row" }, el("label", { for: "attention-layer" }, words.layer), layer, el("label", { for: "attention-head" }, words.head), head, button), status,
    el("div", { class: "split" }, canvas, holder));
  let shown = null; // { weights, step }

  async function read() {
    const view = app.view();
    if (button.disabled) return;
    try {
      const weights = await view.model.attention(Number(layer.value), Number(head.value));
      shown = { weights: Array.from(weights), texts: positions(view), run: view.run, seen: view.state.seen };
      setText(status, words.sum(number(shown.weights.reduce((sum, weight) => sum + weight, 0), 4)));
      list();
      paint();
    } catch (error) {
      setText(status, error.message);
    }
  }

  function list() {
    const ranked = shown.weights.map((weight, position) => [position, weight]).sort((a, b) => b[1] - a[1]).slice(0, LISTED);
    holder.replaceChildren(table(words.columns, ranked.map(([position, weight]) => [String(position), shown.texts[position] ?? "", percent(weight)]), [0, 2]));
  }

  function paint() {
    const { context, width, height } = begin(canvas);
    if (!shown) return;
    const { weights, texts } = shown;
    const top = Math.max(...weights);
    const wide = (width - 16) / weights.length;
    weights.forEach((weight, position) => {
      const high = ((height - 44) * weight) / top;
      context.fillStyle = colour("decode");
      context.fillRect(8 + position * wide, height - 32 - high, Math.max(0.6, wide - (wide > 4 ? 2 : 0)), high);
      if (wide < 30) return;
      context.save();
      context.translate(8 + (position + 0.5) * wide, height - 26);
      context.rotate(Math.PI / 7);
      context.fillStyle = colour("soft");
      context.fillText((texts[position] ?? "").slice(0, 9), 0, 0);
      context.restore();
    });
  }

  function draw(view) {
    choices(layer, view.config?.n_layer ?? 0);
    choices(head, view.config?.n_head ?? 0);
    const why = reason(view);
    button.disabled = !!why || view.status === "running";
    if (shown && (shown.run !== view.run || shown.seen !== view.state.seen)) {
      shown = null;
      holder.replaceChildren();
    }
    if (!shown) setText(status, why ?? "");
    paint();
  }

  return { draw };
}

function reason({ recorded, model, state, at_end }) {
  if (recorded) return words.not_recorded;
  if (!model || !state.prefilled) return words.empty;
  if (!at_end) return words.not_last;
  return state.steps.at(-1).past_len ? null : words.off;
}

/** Readable text of every cached position: the prompt's tokens, then the new ones. */
function positions({ state }) {
  return [...state.tokens.map((token) => visible(token.text, token.bytes)), ...state.steps.map((step, index) => chosenText(step, state.texts[index]))];
}

function choices(select, length) {
  if (select.options.length === length) return;
  select.replaceChildren(...Array.from({ length }, (_, index) => el("option", { value: index }, String(index))));
}

// 2 Prefill: every prompt row through every layer, and what came out of the last row.

import { strings } from "../strings.js";
import { begin, cell, colour, sizeOf } from "../ui/canvas.js";
import { el, setText } from "../ui/dom.js";
import { bytes, count, flops, ms, number, percent, visible } from "../ui/format.js";

const words = strings.prefill;

export function create(section) {
  const canvas = section.querySelector("canvas");
  const caption = section.querySelector(".caption");
  const cost = section.querySelector(".cost");
  const big = cost.appendChild(el("strong"));
  const small = cost.appendChild(el("p"));
  const first = cost.appendChild(el("p"));
  let painted = "";

  function draw(view) {
    const { state } = view;
    const step = state.prefilled;
    const layers = view.config?.n_layer ?? 0;
    setText(caption, said(state, step, layers));
    setText(big, step ? ms(step.ms) : "");
    setText(small, step ? speed(step) : "");
    setText(first, step ? words.chosen(chosenText(step, state.texts[0])) : "");
    const { width, height } = sizeOf(canvas);
    const key = [state.rows_done, state.input_len, state.reused, layers, width, height, colour("prefill")].join();
    if (key === painted) return;
    painted = key;
    paint(canvas, state, layers);
    canvas.setAttribute("aria-label", words.picture(count(state.input_len), layers, count(state.rows_done)));
  }

  return { draw, table };
}

function said(state, step, layers) {
  if (step) {
    const reused = state.reused ? words.reused(count(state.reused), count(state.input_len)) : "";
    return reused + words.caption(words.rows(count(step.rows)), layers || strings.not_recorded, words.passes(step.chunks), flops(step.flops), bytes(step.bytes), number(step.flops / step.bytes));
  }
  if (state.input_len) return words.running(count(state.rows_done), count(state.input_len));
  return layers ? words.idle(layers) : words.idle_unknown;
}

function speed(step) {
  const rate = number((1000 * step.rows) / step.ms);
  return step.gpu_ms === undefined ? words.wall(rate) : words.gpu(ms(step.gpu_ms), rate);
}

/** Text of the token that a step picked: of its candidates, or of the detokenizer when it is not listed. */
export function chosenText(step, textEvent) {
  const listed = step.candidates.find((candidate) => candidate.id === step.token_id);
  const text = textEvent?.text || listed?.text;
  return text ? visible(text, textEvent?.bytes) : textEvent ? visible("\ufffd", textEvent.bytes) : `id ${step.token_id}`;
}

/** Rows are layers, columns are prompt positions; what was reused from the cache is hollow. */
function paint(canvas, state, layers) {
  const { context, width, height } = begin(canvas);
  const columns = state.input_len || 8;
  const rows = layers || 6;
  const wide = width / columns;
  const high = height / rows;
  const gapX = wide > 4 ? 2 : 0;
  const gapY = high > 4 ? 2 : 0.5;
  for (let layer = 0; layer < rows; layer++) {
    // Deeper layers are stronger: data flows downwards.
    const depth = 0.3 + (0.7 * (layer + 1)) / rows;
    for (let column = 0; column < columns; column++) {
      const done = state.input_len > 0 && column < state.rows_done;
      context.globalAlpha = done ? (column < state.reused ? 0.25 : depth) : 1;
      cell(context, column * wide, layer * high, wide - gapX, high - gapY, colour(done ? "prefill" : "empty"));
    }
  }
  context.globalAlpha = 1;
}

function table({ state }) {
  const step = state.prefilled;
  const top = (step?.candidates ?? []).slice(0, 5).map((candidate) => [visible(candidate.text), percent(candidate.probability)]);
  const rows = step
    ? [["input_len", count(state.input_len)], ["reused", count(state.reused)], ["rows", count(step.rows)], ["chunks", String(step.chunks)], ["ms", ms(step.ms)],
        ["gpu_ms", step.gpu_ms === undefined ? "–" : ms(step.gpu_ms)], ["flops", flops(step.flops)], ["bytes", bytes(step.bytes)], ["past_len", count(step.past_len)], ...top]
    : [];
  return { columns: words.columns, rows, numbers: [1] };
}

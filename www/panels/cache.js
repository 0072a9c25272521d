// The KV cache: layers x (K, V) x positions, what wrote each column, and the real numbers of a cell on demand.

import { strings } from "../strings.js";
import { lastStep } from "../fold.js";
import { begin, cell, colour, sizeOf } from "../ui/canvas.js";
import { el, setText } from "../ui/dom.js";
import { bytes, count, number } from "../ui/format.js";

const words = strings.cache;
const LEFT = 26;
const COLUMN = 13;

export function create(section, app) {
  const canvas = section.querySelector("canvas");
  const caption = section.querySelector(".caption");
  const size = section.querySelector("#cache-size");
  const focus = { row: 0, position: 0, on: false };
  let last = null;
  let read = "";
  let asked = 0;

  canvas.setAttribute("aria-label", words.label);
  canvas.setAttribute("aria-describedby", "cache-caption");
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [0, 16], PageUp: [0, -16] }[event.key];
    if (move) select(focus.row + move[0], focus.position + move[1]);
    else if (event.key === "Enter" || event.key === " ") readCell();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) select(focus.row, focus.position);
  });
  canvas.addEventListener("blur", () => {
    focus.on = false;
    redraw();
  });
  canvas.addEventListener("click", (event) => {
    const at = shape(last);
    if (!at) return;
    const row = Math.floor(event.offsetY / at.high);
    const position = at.from + Math.floor((event.offsetX - LEFT) / COLUMN);
    if (event.offsetX < LEFT || row >= at.rows) return;
    select(row, position);
    readCell();
  });

  function select(row, position) {
    const at = shape(last);
    if (!at) return;
    focus.on = true;
    focus.row = Math.max(0, Math.min(at.rows - 1, row));
    focus.position = Math.max(0, Math.min(at.capacity - 1, position));
    read = "";
    redraw();
  }

  async function readCell() {
    const { state, config, model, recorded } = last;
    const step = lastStep(state);
    const which = focus.row % 2 === 0 ? "key" : "value";
    if (recorded) read = words.not_recorded;
    else if (!model || !step || focus.position >= step.past_len) read = words.cell_empty;
    else {
      const mine = ++asked;
      try {
        const numbers = await model.read_kv(focus.row >> 1, which, focus.position);
        if (mine !== asked) return;
        read = words.cell_values(Array.from(numbers.subarray(0, 6), (value) => number(value, 3)).join("  "), config.n_embd);
      } catch (error) {
        read = error.message;
      }
      app.announce(`${name(config)}: ${read}`);
    }
    redraw();
  }

  const name = () => words.cell(focus.row % 2 === 0 ? "K" : "V", focus.row >> 1, focus.position);

  /** The geometry of the map: which positions fit, and where the window starts. */
  function shape(view) {
    if (!view?.config) return null;
    const rows = 2 * view.config.n_layer;
    const { width, height } = sizeOf(canvas);
    const columns = Math.max(1, Math.floor((width - LEFT) / COLUMN));
    const past = lastStep(view.state)?.past_len ?? 0;
    const capacity = view.config.n_positions;
    const follow = focus.on ? focus.position + 1 : past + 2;
    // The window moves in half-widths, so that it stays still for many tokens.
    const half = Math.max(1, columns >> 1);
    const from = follow <= columns ? 0 : Math.min(Math.max(0, capacity - columns), Math.ceil((follow - columns) / half) * half);
    return { rows, columns: Math.min(columns, capacity), past, capacity, from, high: (height - 6) / rows };
  }

  function draw(view) {
    last = view;
    if (focus.on && view.run !== focus.run) read = "";
    focus.run = view.run;
    redraw();
  }

  function redraw() {
    if (!last) return;
    const at = shape(last);
    paint(at);
    setText(size, at ? sizeText(last, at) : words.none);
    setText(caption, at ? captionText(at) : "");
  }

  function paint(at) {
    const { context, width, height } = begin(canvas);
    if (!at) return;
    const { state } = last;
    const step = lastStep(state);
    const kept = state.reused;
    const filled = step ? step.past_len : state.rows_done;
    const [from, to] = step && step.past_len ? step.kv_written : [0, 0];
    const gap = at.high > 5 ? 2 : at.high > 3 ? 1 : 0.5;
    const labelled = 2 * Math.ceil(10 / (2 * at.high));
    context.textBaseline = "middle";
    for (let row = 0; row < at.rows; row++) {
      const y = row * at.high;
      if (row % labelled === 0) {
        context.fillStyle = colour("soft");
        context.font = `9px ${colour("sans")}`;
        context.fillText(`KV${row >> 1}`, 0, y + at.high + 0.5);
      }
      for (let column = 0; column < at.columns; column++) {
        const position = at.from + column;
        const name = position >= filled ? "empty" : position < state.input_len ? "prefill" : "decode";
        // V is a little lighter than K, so that the two rows of a layer are told apart.
        context.globalAlpha = name === "empty" ? 1 : position < kept ? 0.4 : row % 2 ? 0.72 : 1;
        cell(context, LEFT + column * COLUMN, y, COLUMN - 2, at.high - gap, colour(name));
      }
    }
    context.globalAlpha = 1;
    outline(context, at, from, to, height);
    query(context, at, to, height);
    overview(context, at, state, filled, width, height);
    if (focus.on) {
      context.strokeStyle = colour("ink");
      context.lineWidth = 2;
      context.strokeRect(LEFT + (focus.position - at.from) * COLUMN - 1.5, focus.row * at.high - 1, COLUMN + 1, at.high + 1);
    }
  }

  /** The columns that this step wrote, and a line under those it read. */
  function outline(context, at, from, to, height) {
    const left = Math.max(from, at.from);
    const right = Math.min(to, at.from + at.columns);
    if (right <= left) return;
    context.strokeStyle = colour("ink");
    context.lineWidth = 1.25;
    context.strokeRect(LEFT + (left - at.from) * COLUMN - 1, 0.6, (right - left) * COLUMN, height - 6.5);
  }

  /** This step's queries: beside the column it wrote, dashed because they are not kept. */
  function query(context, at, to, height) {
    if (to <= at.from || to >= at.from + at.columns) return;
    const x = LEFT + (to - at.from) * COLUMN;
    context.fillStyle = colour("panel");
    context.fillRect(x, 0, COLUMN - 2, height - 6);
    context.strokeStyle = context.fillStyle = colour("soft");
    context.setLineDash([2, 2]);
    context.strokeRect(x + 0.5, 0.6, COLUMN - 3, height - 6.5);
    context.setLineDash([]);
    context.font = `9.5px ${colour("sans")}`;
    context.fillText("Q", x + 2, (height - 6) / 2);
  }

  /** The whole capacity to scale along the bottom, with the window that is shown above. */
  function overview(context, at, state, filled, width, height) {
    const scale = (width - LEFT) / at.capacity;
    const y = height - 3;
    const bar = (from, to, fill) => {
      context.fillStyle = colour(fill);
      context.fillRect(LEFT + from * scale, y, Math.max(0, to - from) * scale, 3);
    };
    bar(0, at.capacity, "empty");
    bar(0, Math.min(filled, state.input_len), "prefill");
    bar(Math.min(filled, state.input_len), filled, "decode");
    context.strokeStyle = colour("soft");
    context.lineWidth = 1;
    context.strokeRect(LEFT + at.from * scale + 0.5, y - 0.5, Math.max(3, at.columns * scale - 1), 3);
  }

  function captionText(at) {
    const parts = [];
    const step = lastStep(last.state);
    if (focus.on) return `${name()} · ${read || (focus.position < at.past ? "Enter" : words.cell_empty)}`;
    if (step && !step.past_len) return words.off;
    if (step) {
      const written = step.kv_written[1] - step.kv_written[0];
      parts.push(words.step(words.wrote(written), bytes(written * column(last)), count(step.kv_read)));
    }
    parts.push(words.window(at.from, at.from + at.columns - 1, count(at.capacity)));
    return parts.join(" · ");
  }

  return { draw, table };
}

/** Bytes of one position in all layers, K and V: as the engine allocated them, in fp32 for a recording. */
export function column({ config, model }) {
  return model ? model.past_key_values.position_bytes() : config.n_layer * 2 * config.n_embd * 4;
}

function sizeText(view, at) {
  const each = column(view);
  if (!at.past) return words.capacity(count(at.capacity), bytes(each));
  const number_bytes = each / (view.config.n_layer * 2 * view.config.n_embd);
  // Heads of a size that is no multiple of 4 are padded: then the product of the shapes is not the size.
  if (!Number.isInteger(number_bytes)) return words.padded(count(at.past), count(at.capacity), bytes(each), bytes(at.past * each));
  return words.size(count(at.past), count(at.capacity), view.config.n_layer, view.config.n_embd, number_bytes, bytes(at.past * each));
}

function table(view) {
  const { state, config } = view;
  const past = lastStep(state)?.past_len ?? 0;
  if (!config || !past) return { columns: words.columns, rows: [] };
  const row = (from, to, by) => (to > from ? [[from === to - 1 ? String(from) : `${from}–${to - 1}`, by, bytes((to - from) * column(view))]] : []);
  const decoded = state.steps.slice(1).flatMap((step) => row(...step.kv_written, words.by_decode));
  return { columns: words.columns, numbers: [2], rows: [...row(0, state.reused, words.reused), ...row(state.reused, state.input_len, words.by_prefill), ...decoded] };
}

/** The sentence about queries, for the sheet. */
export const note = () => el("p", {}, words.q);

// Why cache? The same prompt with use_cache false and then true, measured one after the other.

import { strings } from "../strings.js";
import { chart } from "../ui/chart.js";
import { el, setText, table } from "../ui/dom.js";
import { count, median, ms, number } from "../ui/format.js";

const words = strings.compare;
/** Below this the two times are called close. */
const CLOSE = 1.25;

export function create(root, app) {
  const button = el("button", { type: "button", id: "compare-run", click: start }, words.run);
  const status = el("span", { class: "hint", role: "status" });
  const results = el("div", { id: "compare-results" }, el("p", { class: "hint" }, words.empty));
  const canvas = el("canvas", { class: "chart", role: "img", "aria-label": words.chart });
  const picture = el("div", { hidden: true }, canvas, el("p", { class: "legend" }, key("prefill", words.off), key("decode", words.on)));
  root.append(el("p", {}, words.about), el("div", { class: "split" }, el("div", {}, el("div", { class: "row" }, button, status), results), picture));
  let pair = null;
  let busy = false;

  async function start() {
    busy = true;
    const { pace } = app.player;
    app.player.pace = "full";
    setText(status, words.running_off);
    const off = await app.compareRun({ use_cache: false });
    const finished = !off.error && off.events.at(-1)?.finish_reason !== "interrupted";
    if (finished) {
      setText(status, words.running_on);
      const on = await app.compareRun({ use_cache: true, seed: off.events.at(-1).seed });
      if (!on.error && on.events.at(-1)?.finish_reason !== "interrupted") {
        pair = [off.events, on.events];
        report(results, pair, app.model.config.n_layer);
      }
    }
    setText(status, "");
    app.player.pace = pace;
    busy = false;
    draw(app.view());
  }

  function draw({ model, recorded, status: running }) {
    button.disabled = !model || running === "running" || busy;
    if (!busy) setText(status, recorded ? words.recorded : model ? "" : words.needs_model);
    picture.hidden = !pair;
    if (pair) {
      const [off, on] = pair.map((events) => decoded(events).map((step) => [tokensSoFar(events, step), step.ms]));
      chart(canvas, { x: words.axis, y: strings.units.ms, series: [{ points: off, colour: "prefill" }, { points: on, colour: "decode" }] });
    }
  }

  return { draw };
}

const key = (name, text) => el("span", {}, el("i", { style: `background: var(--${name})` }), text);
const steps = (events) => events.filter((event) => event.type === "prefilled" || event.type === "decoded");
const decoded = (events) => events.filter((event) => event.type === "decoded");
const sum = (values) => values.reduce((total, value) => total + value, 0);
const tokensSoFar = (events, step) => events.find((event) => event.type === "tokenized").tokens.length + step.index;

function report(root, pair, layers) {
  const [off, on] = pair.map((events) => measure(events, layers));
  const line = (title, value) => [title, value(off), value(on)];
  const ratio = off.time / on.time;
  root.replaceChildren(
    table(words.columns, [
      line(words.rows, (run) => count(run.rows)), line(words.kv, (run) => count(run.kv)), line(words.total, (run) => ms(run.time)),
      line(words.per_token, (run) => (run.halves ? run.halves.map(ms).join(" → ") : strings.not_recorded)),
    ], [1, 2]),
    el("p", { class: "verdict" }, verdictIds(off, on)),
    el("p", {}, words.logit(number(largestDifference(pair), 2))),
    el("p", {}, ratio < CLOSE ? words.close : words.faster(number(ratio))),
  );
}

function measure(events, layers) {
  const all = steps(events);
  const times = decoded(events).map((step) => step.ms);
  const half = times.length >> 1;
  return {
    steps: all, ids: all.map((step) => step.token_id),
    rows: sum(all.map((step) => step.rows)),
    kv: 2 * layers * sum(all.map((step) => step.kv_written[1] - step.kv_written[0])),
    time: sum(all.map((step) => step.ms)),
    halves: half ? [median(times.slice(0, half)), median(times.slice(half))] : null,
  };
}

function verdictIds(off, on) {
  const length = Math.max(off.ids.length, on.ids.length);
  const differs = Array.from({ length }, (_, i) => i).find((i) => off.ids[i] !== on.ids[i]);
  if (differs === undefined) return words.ids_equal(length);
  const [first, second] = off.steps[differs]?.candidates ?? [];
  return `${words.ids_differ(differs)} ${first && second ? words.margin(number(Math.abs(first.logit - second.logit))) : ""}`;
}

/** Over the candidates that both runs list at the same step, while the ids before are equal. */
function largestDifference([off, on]) {
  const pairs = steps(off).map((step, index) => [step, steps(on)[index]]);
  let largest = 0;
  for (const [a, b] of pairs) {
    if (!b) break;
    const logits = new Map(b.candidates.map((candidate) => [candidate.id, candidate.logit]));
    for (const { id, logit } of a.candidates) if (logits.has(id)) largest = Math.max(largest, Math.abs(logit - logits.get(id)));
    if (a.token_id !== b.token_id) break;
  }
  return largest;
}

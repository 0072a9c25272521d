// 3 Decode: the candidates of the step that is shown, the one that was picked, and the time of every step.

import { strings } from "../strings.js";
import { decodeTimes, lastStep } from "../fold.js";
import { begin, colour } from "../ui/canvas.js";
import { el, roving, setText } from "../ui/dom.js";
import { count, median, ms, number, percent, visible } from "../ui/format.js";
import { chosenText } from "./prefill.js";

const words = strings.decode;

export function create(section, { fork }) {
  const list = section.querySelector(".candidates");
  const spark = section.querySelector("canvas");
  const cost = section.querySelector(".cost");
  const big = el("strong");
  const small = el("p");
  cost.prepend(big, small);
  let drawn = null;
  let enabled = null;
  roving(list, ".candidate");
  list.addEventListener("click", (event) => {
    const button = event.target.closest(".candidate");
    if (button && button.getAttribute("aria-disabled") !== "true") fork(Number(button.dataset.id));
  });

  function draw(view) {
    const { state } = view;
    const step = lastStep(state);
    const times = decodeTimes(state);
    setText(big, step && times.length ? ms(step.ms) : "");
    setText(small, times.length ? cost_line(step, times) : "");
    paintTimes(spark, times);
    if (step === drawn && view.can_fork === enabled) return;
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    drawn = step;
    enabled = view.can_fork;
    if (!step) return list.replaceChildren(el("span", { class: "hint" }, words.empty));
    const top = Math.max(...step.candidates.map((candidate) => candidate.probability), 1e-9);
    list.replaceChildren(
      ...(step.candidates.some((candidate) => candidate.id === step.token_id) ? [] : [unlisted(step, state)]),
      ...step.candidates.map((candidate, rank) => row(step, candidate, rank, top, enabled)),
      el("span", { class: "hint" }, `${where(step)} · ${words.summary(count(step.kept), view.config ? count(view.config.vocab_size) : strings.not_recorded, percent(step.rest))}`));
    if (focused !== null) (list.querySelector(`[data-id="${focused}"]`) ?? list.querySelector(".candidate"))?.focus();
  }

  return { draw, table };
}

/** A candidate's text; the event does not hold the bytes of one that is only a part of a character. */
export const candidateText = ({ id, text }) => (text.includes("\ufffd") ? words.part(id) : visible(text));
const where = (step) => (step.type === "prefilled" ? words.from_prefill : words.step(step.index));

function cost_line(step, times) {
  const tpot = ms(median(times));
  if (step.rows > 1) return words.no_cache(count(step.rows));
  return step.gpu_ms === undefined ? words.wall(tpot) : words.gpu(ms(step.gpu_ms), tpot);
}

function row(step, candidate, rank, top, can_fork) {
  const chosen = candidate.id === step.token_id;
  const text = candidateText(candidate);
  const state = chosen ? words.chosen : candidate.removed_by ? words.removed[candidate.removed_by] : "";
  const title = `id ${candidate.id} · logit ${number(candidate.logit, 4)}${can_fork && !chosen ? ` · ${words.fork(text)}` : ""}`;
  return el("button", {
    type: "button", class: `candidate${chosen ? " chosen" : ""}${candidate.removed_by ? " removed" : ""}`, "data-id": candidate.id, title,
    tabindex: rank === 0 ? 0 : -1, style: `--share: ${candidate.probability / top}`, "aria-disabled": String(!can_fork || chosen),
  }, el("span", { class: "what" }, text), el("span", { class: "bar" }),
  candidate.removed_by ? el("span", { class: "state" }, state) : el("span", { class: "percent" }, percent(candidate.probability)),
  candidate.removed_by ? null : el("span", { class: "state" }, state));
}

function unlisted(step, state) {
  const index = step.type === "prefilled" ? 0 : step.index;
  return el("div", { class: "candidate chosen" }, el("span", { class: "what" }, chosenText(step, state.texts[index])), el("span"), el("span"), el("span", { class: "state" }, words.chosen));
}

/** One bar for each decode step, scaled to the slowest. */
function paintTimes(canvas, times) {
  const { context, width, height } = begin(canvas);
  if (!times.length) return;
  const top = Math.max(...times);
  const wide = Math.min(6, width / times.length);
  const from = width - wide * times.length;
  times.forEach((time, index) => {
    const high = Math.max(1, (height * time) / top);
    context.fillStyle = colour(index === times.length - 1 ? "decode" : "decode-mute");
    context.fillRect(from + index * wide, height - high, Math.max(0.6, wide - (wide > 3 ? 1 : 0)), high);
  });
}

function table({ state }) {
  const step = lastStep(state);
  const rows = (step?.candidates ?? []).map((candidate, rank) => [
    String(rank + 1), candidateText(candidate), String(candidate.id), number(candidate.logit, 4), percent(candidate.probability),
    candidate.id === step.token_id ? words.chosen : candidate.removed_by ? words.removed[candidate.removed_by] : "",
  ]);
  return { columns: words.columns, rows, numbers: [3, 4] };
}

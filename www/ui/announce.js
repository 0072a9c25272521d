// What is said to screen readers: one line a stage while a run goes on, one line a step when it is stepped through.

import { decodeTimes, lastStep } from "../fold.js";
import { chosenText } from "../panels/prefill.js";
import { strings } from "../strings.js";
import { $, setText } from "./dom.js";
import { count, median, ms, visible } from "./format.js";

const LISTED = 12;
let said = { run: -1, key: null };

/** Says one line. */
export function announce(text) {
  setText($("#announcements"), text);
}

/** Says what is new since the last call. */
export function announceStage({ state, status, cursor, runs }) {
  if (said.run !== runs) said = { run: runs, key: null };
  const stepping = status === "paused";
  const key = stepping ? `${state.stage}/${cursor}` : state.stage === "detokenize" ? "decode" : state.stage;
  if (!key || key === said.key) return;
  said.key = key;
  const line = lines[state.stage]?.(state, stepping);
  if (line) announce(line);
}

const lines = {
  tokenize: (state) => strings.tokenize.said(strings.tokenize.tokens(count(state.tokens.length)), state.tokens.slice(0, LISTED).map((token) => visible(token.text, token.bytes)).join(" ")),
  prefill: ({ prefilled }) => prefilled && strings.prefill.said(ms(prefilled.ms), strings.prefill.rows(count(prefilled.rows)), strings.prefill.passes(prefilled.chunks), chosenText(prefilled)),
  decode: (state, stepping) => stepping && strings.decode.said_step(chosenText(lastStep(state)), count(lastStep(state).past_len)),
  detokenize: (state, stepping) => stepping && strings.detokenize.said(state.texts.at(-1).text || strings.detokenize.waiting_some),
  done: (state) => [
    state.steps.length > 1 ? strings.decode.said(count(state.steps.length - 1), ms(median(decodeTimes(state)))) : "",
    strings.detokenize.said(state.text), state.done ? strings.finish[state.done.finish_reason] : state.error.message,
  ].join(" "),
};

// One notice above the rows: what is so, why, and what to do.

import { strings } from "../strings.js";
import { $, el } from "./dom.js";

let current = null;

/** Shows a notice; `actions` are `[label, function]`, `about` lets one cause take back its own notice only. */
export function show(title, text, actions = [], about = "state") {
  current = about;
  const box = $("#notice");
  box.replaceChildren(el("strong", {}, title), el("p", {}, text), ...actions.map(([label, act]) => el("button", { type: "button", class: "small", click: act }, label)));
  box.hidden = false;
}

/** Takes the notice back; with `about`, only if that is what it is about. */
export function hide(about = current) {
  if (about !== current) return;
  current = null;
  $("#notice").hidden = true;
}

/** Shows an error with its own title where there is one. `kind` is "load" or "run". */
export function showError(error, kind, actions, about) {
  const known = strings.notice[error.code];
  const [title, advice] = Array.isArray(known) ? known : strings.notice[kind];
  show(title, advice ? `${error.message} ${advice}` : `${error.message} [${error.code ?? "internal"}]`, actions, about);
}

// One notice above the rows: what is so, why, and what to do. And the device chip with its menu.

import { strings } from "../strings.js";
import { $, el, setText } from "./dom.js";

const words = strings.device;

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

/** The chip and menu of the device. `info` is null before a model is loaded, `state` then says why; `check` is the self check's result. */
export function device(info, dtype, check = null, state = "looking") {
  const chip = $("#device-chip");
  const menu = $("#device-menu");
  if (!info) {
    chip.replaceChildren(el("span", {}, words[state]));
    menu.replaceChildren(el("h2", {}, words.title), el("p", {}, words[state]));
    return;
  }
  const name = deviceName(info);
  const verdict = !check ? "" : check.ok ? ` · ${words.checked(check.max_logit_diff.toExponential(0))}` : ` · ${words.wrong}`;
  chip.replaceChildren(el("span", {}, `${check?.ok ? "✓ " : ""}${name}${verdict}`));
  const gpuClock = info.features?.includes("timestamp-query");
  menu.replaceChildren(el("h2", {}, words.title), el("p", {}, info.is_fallback ? words.software_about : words.hardware_about),
    ...(check && !check.ok ? [el("p", {}, words.wrong_about)] : []),
    ...Object.entries({ vendor: info.vendor, architecture: info.architecture, description: info.description, dtype, timestamps: gpuClock ? words.has_timestamps : words.no_timestamps, features: (info.features ?? []).join(", ") })
      .filter(([, value]) => value).map(([key, value]) => el("div", { class: "field" }, el("span", {}, words.labels[key]), el("span", {}, value))));
}

/** A name for people: vendor and architecture, or what the browser tells. */
export function deviceName(info) {
  const name = [info?.vendor, info?.architecture].filter(Boolean).join(" ") || info?.description || words.unknown;
  return info?.is_fallback ? `${name} · ${words.software}` : name;
}

/** Says one line to screen readers. */
export function announce(text) {
  setText($("#announcements"), text);
}

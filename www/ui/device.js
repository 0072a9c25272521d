// The device chip and its menu: which adapter, whether it is a software one, and whether its results were checked.

import { strings } from "../strings.js";
import { $, el } from "./dom.js";
import { number } from "./format.js";

const words = strings.device;

/** `check()` starts a self check. */
export function create({ check }) {
  const chip = $("#device-chip");
  const menu = $("#device-menu");
  let shown = null; // { info, dtype }

  function draw(verdict, error) {
    const { info, dtype } = shown;
    const short = verdict === "running" ? ` · ${words.checking}` : !verdict ? "" : verdict.ok ? ` · ${difference(verdict)}` : ` · ${words.wrong}`;
    chip.replaceChildren(el("span", {}, `${verdict?.ok ? "✓ " : ""}${deviceName(info)}${short}`));
    const clock = info.features?.includes("timestamp-query");
    const facts = { vendor: info.vendor, architecture: info.architecture, description: info.description, dtype, timestamps: clock ? words.has_timestamps : words.no_timestamps, features: (info.features ?? []).join(", ") };
    menu.replaceChildren(el("h2", {}, words.title), el("p", {}, info.is_fallback ? words.software_about : words.hardware_about),
      ...(verdict && verdict !== "running" && !verdict.ok ? [el("p", { class: "wrong" }, words.wrong_about)] : []),
      ...(error ? [el("p", { class: "wrong" }, error.message)] : []),
      ...(verdict?.checks ?? []).map(({ name, ok, detail }) => el("div", { class: "field" }, el("span", {}, `${ok ? "✓" : "✗"} ${name}`), el("span", {}, detail))),
      el("div", { class: "row" }, el("button", { type: "button", class: "small", id: "self-check", disabled: verdict === "running", click: check }, words.check)),
      el("p", {}, words.check_about),
      ...Object.entries(facts).filter(([, value]) => value).map(([key, value]) => el("div", { class: "field" }, el("span", {}, words.labels[key]), el("span", {}, value))));
  }

  return {
    /** No device: "looking", "none" or "idle". */
    none(state) {
      shown = null;
      chip.replaceChildren(el("span", {}, words[state]));
      menu.replaceChildren(el("h2", {}, words.title), el("p", {}, words[state]));
    },
    loaded(info, dtype) {
      shown = { info, dtype };
      draw(null);
    },
    checking: () => shown && draw("running"),
    checked: (verdict, error) => shown && draw(verdict, error),
  };
}

function difference({ max_logit_diff }) {
  return max_logit_diff === null || max_logit_diff === undefined ? words.checked : words.checked_difference(number(max_logit_diff, 1));
}

/** A name for people: vendor and architecture, or what the browser tells. */
export function deviceName(info) {
  const name = [info?.vendor, info?.architecture].filter(Boolean).join(" ") || info?.description || words.unknown;
  return info?.is_fallback ? `${name} · ${words.software}` : name;
}

// Single keys outside text fields, and the list of them.

import { strings } from "../strings.js";
import { $, el } from "./dom.js";
import { recall, remember } from "./memory.js";

const words = strings.keys;

/** `actions` maps a key to what it does. */
export function create(actions) {
  let on = recall("keys") !== "off";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog, .menu")) return;
    if (event.key === "?") return show();
    const act = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!on || !act) return;
    // Arrow keys inside widgets belong to these.
    if (event.key.length > 1 && event.target.closest("[role=tab], .token, .candidate, canvas")) return;
    event.preventDefault();
    act();
  });

  function show() {
    const sheet = $("#sheet");
    const toggle = el("input", { type: "checkbox", id: "keys-on", change: () => {
      on = toggle.checked;
      remember("keys", on ? "on" : "off");
    } });
    toggle.checked = on;
    sheet.replaceChildren(
      el("header", {}, el("h2", { id: "sheet-title" }, words.title), el("button", { type: "button", class: "small", click: () => sheet.close() }, strings.buttons.close)),
      el("table", {}, el("tbody", {}, ...words.list.map(([key, what]) => el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, what))))),
      el("p", {}, words.enter),
      el("p", { class: "row" }, toggle, el("label", { for: "keys-on" }, words.single), el("span", {}, words.single_about)));
    sheet.showModal();
  }

  return { show };
}

// The model chip and its menu: what is loaded, and how to load another one. Nothing is fetched without a press.

import { strings } from "../strings.js";
import { $, el, setText } from "./dom.js";
import { bytes } from "./format.js";

const words = strings.models;
export const BUNDLED = "www/models/tiny";

/** `load(source, dtype)` and `cancel()` are called by the buttons. */
export function create({ load, cancel }) {
  const chip = $("#model-chip");
  const menu = $("#model-menu");
  const label = chip.appendChild(el("span"));
  const size = el("p");
  const address = el("input", { id: "model-address", type: "url", "aria-describedby": "model-address-help", autocomplete: "off", spellcheck: "false" });
  const dtype = el("select", { id: "model-dtype" }, el("option", { value: "fp32" }, "fp32"), el("option", { value: "fp16" }, "fp16"));
  const note = el("p", { class: "wrong", hidden: true });
  const go = el("button", { type: "submit", class: "small" }, words.load);
  const stop = el("button", { type: "button", class: "small", hidden: true, click: cancel }, words.cancel);
  const form = el("form", { submit: (event) => {
    event.preventDefault();
    if (address.value.trim()) load(address.value.trim(), dtype.value);
    else address.focus();
  } },
  el("div", { class: "field" }, el("label", { for: "model-address" }, words.address), address, el("p", { id: "model-address-help" }, `${words.address_help} `,
    el("button", { type: "button", class: "link", click: () => (address.value = words.gpt2_address) }, words.fill))),
  el("div", { class: "field" }, el("label", { for: "model-dtype" }, words.dtype), dtype), note,
  el("div", { class: "row" }, go, el("button", { type: "button", class: "small", click: () => load(BUNDLED, dtype.value) }, words.load_bundled), stop));
  menu.append(el("h2", {}, words.title), el("p", {}, words.bundled_about), size, el("h2", {}, words.other), form, el("p", {}, words.nothing_sent));

  return {
    loading(percent) {
      setText(label, `${words.chip_loading(percent)} ▾`);
      stop.hidden = false;
    },
    loaded(model) {
      const { n_layer, n_head, n_embd, n_positions } = model.config;
      setText(label, `${title(model.name)} ▾`);
      setText(size, `${title(model.name)}: ${words.size(n_layer, n_head, n_embd, n_positions, bytes(model.memory().weights))}`);
      stop.hidden = true;
      note.hidden = true;
    },
    none() {
      setText(label, `${words.chip_none} ▾`);
      stop.hidden = true;
    },
    /** A model that a link names: put into the form, not fetched. */
    offer(source) {
      address.value = source;
      setText(note, words.from_link);
      note.hidden = false;
    },
  };
}

/** A model's name for people. */
export function title(source) {
  if (source === BUNDLED) return words.bundled;
  return source.replace(/\/(resolve\/[^/]+)?\/*$/, "").split("/").slice(-2).join("/") || source;
}

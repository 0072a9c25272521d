// The model chip and its menu: what is loaded, what could be, and what it would take. Nothing is fetched without a press.

import { BUNDLED, DTYPES, HUB, automatic, judge, memory } from "../catalog.js";
import { downloads, filesOfDrop } from "../gpt2.js";
import { strings } from "../strings.js";
import { $, el, setText } from "./dom.js";
import { bytes } from "./format.js";

const words = strings.models;

/** `load(source, dtype)` and `cancel()` are called by the buttons; `refuse(error)` tells what went wrong. */
export function create({ load, cancel, refuse }) {
  const chip = $("#model-chip");
  const menu = $("#model-menu");
  const label = chip.appendChild(el("span"));
  const about = el("p");
  const notes = el("p", { hidden: true });
  const progress = el("p", { hidden: true });
  const address = el("input", { id: "model-address", type: "text", "aria-describedby": "model-address-help", autocomplete: "off", spellcheck: "false", input: () => choose("own") });
  const dtype = el("select", { id: "model-dtype", change: judgeAll }, ...["auto", ...DTYPES].map((value) => el("option", { value }, value)));
  const fromLink = el("p", { class: "wrong", hidden: true });
  const stop = el("button", { type: "button", class: "small", hidden: true, click: cancel }, words.cancel);
  const kept = el("div");
  const files = el("input", { type: "file", multiple: true, hidden: true, id: "model-files", change: () => {
    if (files.files.length) load([...files.files], dtype.value);
    files.value = "";
  } });
  const folder = el("input", { type: "file", webkitdirectory: true, hidden: true, id: "model-folder", change: () => {
    if (folder.files.length) load([...folder.files], dtype.value);
    folder.value = "";
  } });
  const verdicts = new Map();
  let limits = null;

  const radio = (value, ...text) => el("label", { class: "choice" }, el("input", { type: "radio", name: "model", value, checked: value === BUNDLED }), el("span", {}, ...text));
  const form = el("form", { submit: (event) => {
    event.preventDefault();
    const chosen = menu.querySelector("[name=model]:checked").value;
    if (chosen !== "own") load(chosen, dtype.value);
    else if (address.value.trim()) load(address.value.trim(), dtype.value);
    else address.focus();
  } },
  radio(BUNDLED, words.bundled, el("small", {}, words.bundled_about)),
  ...HUB.map((model) => {
    const verdict = el("small");
    verdicts.set(model, verdict);
    return radio(model.id, model.id, el("small", {}, words.takes(decimal(model.bytes), DTYPES.map((name) => `${decimal(memory(model, name))} ${name}`).join(", "))), verdict);
  }),
  el("p", {}, words.free),
  radio("own", words.own),
  el("div", { class: "field" }, el("label", { for: "model-address" }, words.address), address, el("p", { id: "model-address-help" }, words.address_help)),
  fromLink,
  el("div", { class: "field" }, el("label", { for: "model-dtype" }, words.dtype), dtype, el("p", {}, words.dtype_help)),
  el("div", { class: "row" }, el("button", { type: "submit", class: "small" }, words.load), stop,
    el("button", { type: "button", class: "small", click: () => files.click() }, words.files), el("button", { type: "button", class: "small", click: () => folder.click() }, words.folder), files, folder),
  el("p", {}, words.nothing_sent));
  menu.append(el("h2", {}, words.title), about, notes, progress, form, el("h3", {}, words.kept), kept);
  menu.addEventListener("toggle", (event) => event.newState === "open" && opened());
  menu.addEventListener("dragover", (event) => event.preventDefault());
  menu.addEventListener("drop", async (event) => {
    event.preventDefault();
    try {
      load(await filesOfDrop(event.dataTransfer), dtype.value);
    } catch (error) {
      refuse(error);
    }
  });

  const choose = (value) => (menu.querySelector(`[name=model][value="${value}"]`).checked = true);

  async function opened() {
    limits ??= (await navigator.gpu?.requestAdapter())?.limits ?? null;
    judgeAll();
    listKept();
  }

  /** Says of every model whether this adapter's limits allow it. */
  function judgeAll() {
    for (const [model, verdict] of verdicts) {
      const name = dtype.value === "auto" ? automatic(model) : dtype.value;
      const judged = judge(model, name, limits);
      setText(verdict, !judged ? words.no_adapter : judged.fits ? words.fits(name) : words.too_large(name, judged.limit, decimal(judged.needs), decimal(judged.allowed), decimal(judged.needs - judged.allowed)));
    }
  }

  async function listKept() {
    const models = await downloads.list();
    kept.replaceChildren(...(models.length ? models.map(keptRow) : [el("p", {}, words.nothing_kept)]));
  }

  function keptRow(model) {
    const said = el("span", { role: "status" });
    const check = async () => {
      try {
        const changed = await downloads.changedFiles(model);
        setText(said, changed.length ? words.changed(changed.join(", ")) : words.unchanged);
      } catch (error) {
        setText(said, error.message);
      }
    };
    const forget = async () => {
      await downloads.forget(model);
      await listKept();
      chip.focus();
    };
    return el("div", { class: "row kept" }, el("span", {}, words.kept_model(model.name, decimal(model.bytes), model.complete)),
      el("button", { type: "button", class: "small", "aria-label": `${words.check_update}: ${model.name}`, click: check }, words.check_update),
      el("button", { type: "button", class: "small", "aria-label": `${words.forget}: ${model.name}`, click: forget }, words.forget), said);
  }

  return {
    /** `info` is a `progress_total` report, or null before the first. */
    loading(info) {
      const share = info?.progress === null || info?.progress === undefined ? null : Math.floor(info.progress);
      setText(label, `${words.chip_loading(share)} ▾`);
      stop.hidden = progress.hidden = false;
      setText(progress, info ? words.progress(decimal(info.loaded), info.total && decimal(info.total), info.bytes_per_second && decimal(info.bytes_per_second), info.seconds_left && Math.ceil(info.seconds_left)) : words.starting);
    },
    loaded(model) {
      const { n_layer, n_head, n_embd, n_positions } = model.config;
      setText(label, `${title(model.name)} ▾`);
      setText(about, `${title(model.name)}: ${words.size(n_layer, n_head, n_embd, n_positions, bytes(model.memory().weights), model.dtype)}`);
      notes.hidden = !model.notes.length;
      setText(notes, model.notes.join(" "));
      stop.hidden = progress.hidden = fromLink.hidden = true;
    },
    none() {
      setText(label, `${words.chip_none} ▾`);
      setText(about, "");
      stop.hidden = progress.hidden = true;
    },
    /** A model that a link names: put into the form, not fetched. */
    offer(source) {
      address.value = source;
      choose("own");
      setText(fromLink, words.from_link);
      fromLink.hidden = false;
    },
  };
}

/** Bytes as downloads are usually told: in decimal units. */
function decimal(value) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : Number(value.toPrecision(2))} ${units[unit]}`;
}

/** A model's name for people. */
export const title = (name) => (name === BUNDLED ? words.bundled : name);

// The options of generate(): controls with Hugging Face's names. Values go to the engine as they are, which validates them.

import { strings } from "../strings.js";
import { $, el, setText } from "./dom.js";

const words = strings.options;

/** Name, kind, what the page starts with, attributes of the control, and Hugging Face's default where it is another. */
const FIELDS = [
  ["max_new_tokens", "number", 24, { min: 1, step: 1 }, 20],
  ["do_sample", "checkbox", false],
  ["temperature", "number", 1, { min: 0, step: 0.1 }],
  ["top_k", "number", 50, { min: 0, step: 1 }],
  ["top_p", "number", 1, { min: 0, max: 1, step: 0.05 }],
  ["repetition_penalty", "number", 1, { min: 0, step: 0.05 }],
  ["seed", "number", null, { min: 0, step: 1 }],
  ["stop_strings", "text", null],
  ["use_cache", "checkbox", true],
];
/** Act only when sampling; sent only then, so that a greedy run is not warned about them. */
const SAMPLING = new Set(["temperature", "top_k", "top_p"]);

export function create({ changed, setPace }) {
  const menu = $("#options-menu");
  const controls = {};
  const wrongs = {};
  const seedNote = el("p", { hidden: true });
  const notes = el("p", { hidden: true });
  menu.append(el("h2", {}, words.title), notes);
  for (const [name, kind, value, attributes, usual = value] of FIELDS) {
    const wrong = el("p", { class: "wrong", id: `wrong-${name}`, hidden: true });
    // Numbers are typed into text fields: what is typed reaches the validation unchanged.
    const control = el("input", { id: `option-${name}`, type: kind === "checkbox" ? "checkbox" : kind, "aria-describedby": `help-${name} wrong-${name}`, ...attributes });
    if (kind === "number") control.step = "any";
    if (kind === "checkbox") control.checked = value;
    else control.value = value ?? "";
    control.addEventListener("input", () => {
      clear(name);
      changed();
      label();
    });
    controls[name] = control;
    wrongs[name] = wrong;
    const about = words.fields[name] + (value === null || kind === "checkbox" ? "" : ` (${words.default(usual)})`) + (SAMPLING.has(name) ? ` — ${words.sampling_only}.` : "");
    menu.append(el("div", { class: "field" }, el("label", { for: control.id }, name), control, wrong, el("p", { id: `help-${name}` }, about), name === "seed" ? seedNote : null));
  }
  const pace = el("select", { id: "option-pace", "aria-describedby": "help-pace", change: () => setPace(pace.value) }, ...words.paces.map(([value, title]) => el("option", { value }, title)));
  menu.append(el("div", { class: "field" }, el("label", { for: "option-pace" }, "pace"), pace, el("p", { id: "help-pace" }, words.fields.pace)),
    el("div", { class: "row" }, el("button", { type: "button", class: "small", click: reset }, words.reset)));

  function reset() {
    for (const [name, kind, value] of FIELDS) {
      if (kind === "checkbox") controls[name].checked = value;
      else controls[name].value = value ?? "";
    }
    clearAll();
    changed();
    label();
  }

  /** What the controls say, with only those options that differ from not being given. */
  function read() {
    const options = {};
    for (const [name, kind] of FIELDS) {
      const control = controls[name];
      if (SAMPLING.has(name) && !controls.do_sample.checked) continue;
      if (kind === "checkbox") options[name] = control.checked;
      // Text that is no number gives NaN, which the engine refuses by name.
      else if (kind === "number" && (control.value !== "" || control.validity.badInput)) options[name] = control.valueAsNumber;
      else if (kind === "text" && control.value !== "") options[name] = [control.value];
    }
    return options;
  }

  /** Puts values in as if typed; unknown names are left out. */
  function write(values) {
    for (const [name, kind] of FIELDS) {
      if (!(name in values)) continue;
      if (kind === "checkbox") controls[name].checked = values[name] === true || values[name] === "true";
      else controls[name].value = values[name] ?? "";
    }
    label();
  }

  /** Shows an error at the control that its message names; false if it names none. */
  function refuse(message) {
    const named = FIELDS.map(([name]) => [name, message.search(new RegExp(`\\b${name}\\b`))]).filter(([, at]) => at >= 0).sort((a, b) => a[1] - b[1]);
    if (!named.length) return false;
    const [name] = named[0];
    setText(wrongs[name], message);
    wrongs[name].hidden = false;
    controls[name].setAttribute("aria-invalid", "true");
    menu.showPopover();
    controls[name].focus();
    return true;
  }

  function clear(name) {
    wrongs[name].hidden = true;
    controls[name].removeAttribute("aria-invalid");
  }
  function clearAll() {
    for (const [name] of FIELDS) clear(name);
  }

  function label() {
    setText($("#options-button"), `${words.summary(controls.do_sample.checked ? words.sampling : words.greedy, controls.max_new_tokens.value || "…")} ▾`);
  }

  /** The seed of the last run, to be used again. */
  function showSeed(seed) {
    seedNote.hidden = false;
    seedNote.replaceChildren(`${words.used_seed(seed)} `, el("button", { type: "button", class: "link", click: () => {
      controls.seed.value = seed;
      changed();
    } }, words.reuse_seed));
  }

  /** What the last run accepted without effect, and the like. */
  function showNotes(warnings) {
    notes.hidden = !warnings.length;
    setText(notes, words.notes(warnings.join(" ")));
  }

  label();
  return { read, write, refuse, clearAll, showSeed, showNotes };
}

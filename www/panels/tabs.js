// The tabs below the fold. Each is made when it is first opened and drawn only while it is shown.

import { strings } from "../strings.js";
import { $, el, roving } from "../ui/dom.js";
import { create as attention } from "./attention.js";
import { create as compare } from "./compare.js";
import { create as memory } from "./memory.js";
import { create as time } from "./time.js";
import { create as trace } from "./trace.js";

const MAKERS = { compare, time, attention, memory, trace };

export function create(app) {
  const bar = $("#tabs");
  const box = $("#tab-panels");
  const made = {};
  let open = null;
  let last = null;

  const names = Object.keys(MAKERS);
  const tabs = Object.fromEntries(names.map((name) => [name, el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, click: () => show(name, true) }, strings.tabs[name])]));
  const panels = Object.fromEntries(names.map((name) => [name, el("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, tabindex: 0, hidden: true })]));
  bar.append(...Object.values(tabs));
  box.append(...Object.values(panels));
  roving(bar, "[role=tab]");

  function show(name, asked) {
    open = name;
    for (const key of names) {
      tabs[key].setAttribute("aria-selected", String(key === name));
      tabs[key].tabIndex = key === name ? 0 : -1;
      panels[key].hidden = key !== name;
    }
    made[name] ??= MAKERS[name](panels[name], app);
    if (last) made[name].draw(last);
    // Only when it was asked for and would otherwise stay below the window.
    if (asked && bar.getBoundingClientRect().top > innerHeight - 240) bar.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }

  show(names[0], false);
  return {
    draw(view) {
      last = view;
      made[open].draw(view);
    },
  };
}

// Small helpers for elements. Text is always set as text, never as markup.

export const $ = (selector) => document.querySelector(selector);

/** An element with attributes (functions become listeners) and children (texts or elements). */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "class") node.className = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets text only if it changed, so that nothing is laid out again for nothing. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Disables a button; if it has the focus, `next` gets it, so that the keyboard does not lose its place. */
export function disable(button, off, next) {
  if (button.disabled === off) return;
  const focused = document.activeElement === button;
  button.disabled = off;
  if (off && focused) next.focus();
}

/** A table from column titles and rows of texts; `numbers` are the columns set to the right. */
export function table(columns, rows, numbers = []) {
  const side = (index) => (numbers.includes(index) ? { class: "number" } : {});
  return el("table", {},
    el("thead", {}, el("tr", {}, ...columns.map((title, i) => el("th", { scope: "col", ...side(i) }, title)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, i) => el("td", side(i), cell))))));
}

/** Saves text as a file on the reader's disk. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Opens a popover below its button, inside the window. */
export function placeMenus() {
  for (const menu of document.querySelectorAll(".menu")) {
    menu.addEventListener("toggle", (event) => {
      const button = $(`[popovertarget="${menu.id}"]`);
      button.setAttribute("aria-expanded", String(event.newState === "open"));
      if (event.newState !== "open") return;
      const from = button.getBoundingClientRect();
      const size = menu.getBoundingClientRect();
      menu.style.left = `${Math.max(8, Math.min(from.right - size.width, innerWidth - size.width - 8))}px`;
      menu.style.top = `${Math.max(8, Math.min(from.bottom + 6, innerHeight - size.height - 8))}px`;
    });
  }
}

/** Arrow keys move the focus among the items of a list, which is one stop of the Tab key. */
export function roving(container, selector) {
  const items = () => [...container.querySelectorAll(selector)];
  container.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const all = items();
    const at = all.indexOf(document.activeElement);
    if (at < 0 || (step === undefined && event.key !== "Home" && event.key !== "End")) return;
    event.preventDefault();
    event.stopPropagation();
    const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : Math.min(all.length - 1, Math.max(0, at + step));
    all[at].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  });
}

// A tour of six steps, offered once on the first visit and again only when asked for.

import { strings } from "../strings.js";
import { $, el } from "./dom.js";
import { recall, remember } from "./memory.js";

const words = strings.tour;

export function create() {
  let card = null;
  let back = null;

  /** On a first visit the tagline makes room for the offer. */
  function offer() {
    if (recall("tour")) return;
    const line = $("#tagline");
    const button = (label, act) => el("button", { type: "button", class: "link", click: act }, label);
    line.append(" ", el("span", { id: "tour-offer" }, words.offer, button(words.start, start), button(words.dismiss, end)));
  }

  function start() {
    back = document.activeElement;
    go(0);
  }

  function end() {
    remember("tour", "seen");
    $("#tour-offer")?.remove();
    card?.remove();
    card = null;
    document.querySelector(".toured")?.classList.remove("toured");
    if (back?.isConnected) back.focus();
    back = null;
  }

  function go(index) {
    if (index >= words.steps.length) return end();
    const [selector, text] = words.steps[index];
    document.querySelector(".toured")?.classList.remove("toured");
    const target = $(selector);
    target.classList.add("toured");
    target.scrollIntoView({ block: "nearest" });
    card?.remove();
    const last = index === words.steps.length - 1;
    const next = el("button", { type: "button", class: "primary small", click: () => go(index + 1) }, last ? words.done : words.next);
    card = el("div", { class: "tour", role: "dialog", "aria-label": words.again, keydown: (event) => event.key === "Escape" && end() },
      el("p", { id: "tour-text" }, text),
      el("div", { class: "row" }, next, last ? null : el("button", { type: "button", class: "small", click: end }, words.skip), el("small", {}, words.step(index + 1, words.steps.length))));
    document.body.append(card);
    const box = target.getBoundingClientRect();
    const size = card.getBoundingClientRect();
    const below = box.bottom + 10 + size.height < innerHeight;
    card.style.top = `${Math.max(8, below ? box.bottom + 10 : box.top - size.height - 10)}px`;
    card.style.left = `${Math.max(8, Math.min(box.left + box.width / 2 - size.width / 2, innerWidth - size.width - 8))}px`;
    next.focus();
  }

  offer();
  return { start };
}

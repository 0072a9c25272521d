// 4 Detokenize: the text, token by token, with bytes held back until they complete a character.

import { strings } from "../strings.js";
import { el, setText } from "../ui/dom.js";
import { hex, ms, symbols, visible } from "../ui/format.js";

const words = strings.detokenize;

export function create(section, { seekToken }) {
  const box = section.querySelector(".output");
  const trail = section.querySelector(".bytes");
  const cost = section.querySelector(".cost");
  const big = cost.appendChild(el("strong"));
  const small = cost.appendChild(el("p"));
  const held = el("span", { class: "held" });
  let run = -1;
  let shown = 0;
  let current = null;

  box.addEventListener("click", (event) => go(event.target));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      go(event.target);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const to = event.key === "ArrowLeft" ? event.target.previousElementSibling : event.target.nextElementSibling;
      if (!to?.classList.contains("new")) return;
      event.preventDefault();
      event.stopPropagation();
      event.target.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    }
  });
  const go = (target) => target.classList.contains("new") && seekToken(Number(target.dataset.index));

  function restart(view) {
    const prompt = view.state.tokens.length ? view.promptText : "";
    box.replaceChildren(prompt ? el("span", { class: "prompt" }, prompt) : el("span", { class: "hint" }, words.empty));
    shown = 0;
    current = null;
  }

  function draw(view) {
    const { state } = view;
    const key = `${view.run}/${state.tokens.length > 0}`;
    if (key !== run || shown > state.texts.length) {
      run = key;
      restart(view);
    }
    const stay = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    held.remove();
    for (; shown < state.texts.length; shown++) box.append(piece(state.texts[shown], shown));
    const last = state.texts.at(-1);
    if (current !== box.lastElementChild) {
      current?.classList.remove("last");
      if (last) (current = box.lastElementChild).classList.add("last");
    }
    if (last?.pending_bytes.length) {
      setText(held, `${hex(last.pending_bytes)} ·· ${waiting(last.pending_bytes)}`);
      box.append(held);
    }
    if (stay) box.scrollTop = box.scrollHeight;
    setText(trail, last ? words.trail(last.token_id, symbols(last.bytes), hex(last.bytes), last.text ? visible(last.text) : words.nothing_yet) : "");
    setText(big, last ? ms(state.texts.reduce((sum, event) => sum + event.ms, 0)) : "");
    setText(small, last ? words.cpu + (state.done ? ` · ${strings.finish[state.done.finish_reason]}` : "") : "");
  }

  return { draw, table };
}

function piece(event, index) {
  return el("span", { class: "new", role: "button", "data-index": index, tabindex: index === 0 ? 0 : -1, title: `id ${event.token_id} · ${hex(event.bytes)}`, "aria-label": words.show_step(visible(event.text, event.bytes)) }, event.text);
}

/** How many bytes the held beginning of a character still lacks, as UTF-8 says in its first byte. */
function waiting([first, ...more]) {
  const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  const lacking = length - 1 - more.length;
  return lacking > 0 ? words.waiting(lacking) : words.waiting_some;
}

function table({ state }) {
  const rows = state.texts.map((event) => [String(event.index), String(event.token_id), symbols(event.bytes), hex(event.bytes), visible(event.text), hex(event.pending_bytes)]);
  return { columns: words.columns, rows };
}

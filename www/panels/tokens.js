// 1 Tokenize: chips of the prompt, live while typing, or of the ids that a run took in.

import { strings } from "../strings.js";
import { el, roving, setText } from "../ui/dom.js";
import { count, hex, ms, visible } from "../ui/format.js";

const words = strings.tokenize;
/** Chips beyond this are in the table only: a very long prompt must not slow typing. */
const SHOWN = 160;

export function create(section) {
  const box = section.querySelector(".tokens");
  const cost = section.querySelector(".cost");
  const big = cost.appendChild(el("strong"));
  const small = cost.appendChild(el("p"));
  const note = cost.appendChild(el("p", { id: "token-note" }));
  let drawn = null;
  roving(box, ".token");
  box.addEventListener("focusin", (event) => say(event.target));
  box.addEventListener("pointerover", (event) => say(event.target));

  function say(target) {
    const index = target.closest?.(".token")?.dataset.index;
    if (index !== undefined) setText(note, about(drawn, Number(index)));
  }

  function draw(view) {
    const tokens = view.tokens;
    setText(big, view.tokenize_ms === null ? "" : ms(view.tokenize_ms));
    setText(small, tokens === null ? "" : line(view, tokens));
    if (tokens === drawn) return;
    drawn = tokens;
    setText(note, "");
    if (tokens === null) return box.replaceChildren(el("span", { class: "hint" }, words.waiting));
    if (!tokens.length) return box.replaceChildren(el("span", { class: "hint" }, `${words.empty} ${words.empty_prompt}`));
    box.replaceChildren(...tokens.slice(0, SHOWN).map((token, index) => chip(tokens, token, index)));
    if (tokens.length > SHOWN) box.append(el("span", { class: "hint" }, words.more_chips(count(tokens.length - SHOWN))));
  }

  return { draw, table };
}

function line(view, tokens) {
  const said = words.tokens(count(tokens.length));
  if (view.forked) return words.forked(said);
  return view.typing ? words.typing(said) : words.cpu(said);
}

function chip(tokens, token, index) {
  const text = visible(token.text, token.bytes);
  const kind = `token${token.special ? " special" : ""}${sharing(tokens, index) > 1 ? " part" : ""}`;
  return el("button", { type: "button", class: kind, "data-index": index, tabindex: index === 0 ? 0 : -1, title: about(tokens, index), "aria-describedby": "token-note" },
    el("b", {}, text), el("small", {}, String(token.id)));
}

/** How many tokens have this token's span: more than one when a character is split. */
function sharing(tokens, index) {
  const same = (other) => other && other.end > other.start && other.start === tokens[index].start && other.end === tokens[index].end;
  if (!same(tokens[index])) return 1;
  let from = index;
  let to = index;
  while (same(tokens[from - 1])) from--;
  while (same(tokens[to + 1])) to++;
  return to - from + 1;
}

function about(tokens, index) {
  const token = tokens[index];
  const shared = sharing(tokens, index);
  const parts = [words.chip_note(token.id, hex(token.bytes), token.start, token.end)];
  if (token.special) parts.push(words.special);
  if (shared > 1) parts.push(words.shared(shared));
  return parts.join(" · ");
}

function table(view) {
  const rows = (view.tokens ?? []).map((token, index) => [index, visible(token.text, token.bytes), token.id, hex(token.bytes), `${token.start}–${token.end}`]);
  return { columns: words.columns, rows: rows.map((row) => row.map(String)) };
}

// Trace: save the run, open one, export it, share the settings; and the run as a text log.

import { strings } from "../strings.js";
import * as file from "../trace_file.js";
import { download, el, setText } from "../ui/dom.js";
import { count, ms, percent, visible } from "../ui/format.js";
import { chosenText } from "./prefill.js";

const words = strings.trace;
/** Lines of the log that stay on the page. */
const LINES = 300;

export function create(root, app) {
  const { player } = app;
  const status = el("p", { role: "status", class: "hint" });
  const input = el("input", { type: "file", accept: ".json,application/json", hidden: true, id: "trace-file", change: async () => {
    const [chosen] = input.files;
    if (chosen) await tell(async () => app.openTrace(file.read(await chosen.text())));
    input.value = "";
  } });
  const save = button("trace-save", words.save, () => download("run.json", "application/json", file.write(player)));
  const chrome = button("trace-chrome", words.chrome, () => download("run.trace.json", "application/json", file.chrome(player)));
  const csv = button("trace-csv", words.csv, () => download("run.csv", "text/csv", file.csv(player)));
  const link = button("trace-link", words.link, () => tell(async () => {
    await app.copyLink();
    setText(status, strings.buttons.copied);
  }));
  const log = el("div", { class: "log", id: "log", role: "log", "aria-label": words.log, tabindex: 0 });
  root.append(el("p", {}, words.about),
    el("div", { class: "row" }, save, button("trace-open", words.open, () => input.click()), input, chrome, csv, link, button("trace-bundled", words.bundled, () => tell(app.playBundled))),
    el("p", { class: "caption" }, words.link_about), status, el("h3", {}, words.log), log);
  let drawn = { run: -1, seen: 0 };

  async function tell(work) {
    setText(status, "");
    try {
      await work();
    } catch (error) {
      setText(status, error.message);
    }
  }

  function draw(view) {
    for (const control of [save, chrome, csv]) control.disabled = !player.events.length || view.status === "running";
    if (drawn.run !== view.run || drawn.seen > player.cursor) {
      drawn = { run: view.run, seen: 0 };
      log.replaceChildren();
    }
    const stay = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    for (; drawn.seen < player.cursor; drawn.seen++) {
      const event = player.events[drawn.seen];
      if (lines[event.type]) log.append(el("div", {}, `${ms(event.t)}  ${lines[event.type](event)}`));
    }
    while (log.childElementCount > LINES) log.firstElementChild.remove();
    if (!log.childElementCount) log.append(el("div", {}, words.empty));
    if (stay) log.scrollTop = log.scrollHeight;
  }

  return { draw };
}

const button = (id, text, click) => el("button", { type: "button", class: "small", id, click }, text);

/** One line of text per event type. */
const lines = {
  tokenized: (event) => `tokenized      ${count(event.tokens.length)} ids, ${ms(event.ms)}: ${event.tokens.slice(0, 10).map((token) => `${visible(token.text, token.bytes)} ${token.id}`).join(" · ")}`,
  prefill_started: (event) => `prefill        ${count(event.input_len)} rows, ${count(event.reused)} reused`,
  prefill_progress: (event) => `prefill        ${count(event.rows_done)} of ${count(event.input_len)} rows`,
  prefilled: (event) => `prefilled      → ${chosenText(event)} ${event.token_id}, ${ms(event.ms)}, cache ${count(event.past_len)}${best(event)}`,
  decoded: (event) => `decoded ${String(event.index).padEnd(6)} ${event.input_id} → ${chosenText(event)} ${event.token_id}, ${ms(event.ms)}, cache ${count(event.past_len)}${best(event)}`,
  text: (event) => `text ${String(event.index).padEnd(9)} ${visible(event.text)}${event.pending_bytes.length ? ` (${event.pending_bytes.length} bytes held)` : ""}`,
  done: (event) => `done           ${[strings.finish[event.finish_reason] ?? event.finish_reason, ...event.warnings].join(". ")}`,
  error: (event) => `error          ${event.message}`,
};

function best(event) {
  const chosen = event.candidates.find((candidate) => candidate.id === event.token_id);
  return chosen ? `, ${percent(chosen.probability)}` : "";
}

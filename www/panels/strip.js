// The strip: the run to scale, one segment per step in its stage's colour. It is also the way back in time.

import { strings } from "../strings.js";
import { decodeTimes, ttft } from "../fold.js";
import { begin, colour } from "../ui/canvas.js";
import { $, disable, setText } from "../ui/dom.js";
import { median, ms } from "../ui/format.js";

const words = strings.strip;

export function create(section, player) {
  const canvas = section.querySelector("canvas");
  const figures = section.querySelector(".figures");
  let segments = [];

  $("#step-back").addEventListener("click", () => player.step(-1));
  $("#step-forward").addEventListener("click", () => player.step(1));
  canvas.addEventListener("keydown", (event) => {
    const frames = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10, PageDown: -10 }[event.key];
    if (frames) player.step(frames);
    else if (event.key === "Home") player.seek(0);
    else if (event.key === "End") player.seek(player.events.length);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const seekTo = (event) => {
    const hit = segments.findLast((segment) => segment.x <= event.offsetX);
    if (hit) player.seek(hit.index + 1);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    seekTo(event);
  });
  canvas.addEventListener("pointermove", (event) => event.buttons && seekTo(event));

  function draw() {
    const { events, cursor, state } = player;
    paint();
    canvas.setAttribute("aria-valuemin", 0);
    canvas.setAttribute("aria-valuemax", events.length);
    canvas.setAttribute("aria-valuenow", cursor);
    canvas.setAttribute("aria-valuetext", cursor ? words.at(cursor, events.length, words.kinds[events[cursor - 1].type] ?? "") : words.empty);
    disable($("#step-back"), cursor === 0, canvas);
    disable($("#step-forward"), player.atEnd, canvas);
    const times = decodeTimes(state);
    const said = !player.atEnd ? words.past(cursor, events.length)
      : times.length ? words.figures(ms(ttft(state)), ms(median(times))) : state.prefilled ? words.ttft(ms(ttft(state))) : words.empty;
    setText(figures, said);
  }

  function paint() {
    const { context, width, height } = begin(canvas);
    const { events, cursor } = player;
    const timed = events.flatMap((event, index) => (COLOURS[event.type] ? [{ index, time: event.ms, name: COLOURS[event.type] }] : []));
    context.fillStyle = colour("empty");
    context.fillRect(0, height - 2, width, 2);
    if (!timed.length) return void (segments = []);
    const gap = timed.length < 120 ? 1.5 : 0;
    const least = timed.length < 120 ? 3 : 0;
    const total = timed.reduce((sum, { time }) => sum + time, 0) || 1;
    // Very short segments get a visible least width; the others share what is left, to scale.
    const scale = Math.max(0, width - timed.length * (least + gap)) / total;
    let x = 0;
    segments = timed.map((segment) => {
      const placed = { ...segment, x, width: least + segment.time * scale };
      x += placed.width + gap;
      return placed;
    });
    for (const segment of segments) {
      context.globalAlpha = segment.index < cursor ? 1 : 0.3;
      context.fillStyle = colour(segment.index === cursor - 1 || segment.name !== "decode" ? segment.name : "decode-mute");
      context.fillRect(segment.x, 1, Math.max(0.5, segment.width), height - 5);
    }
    context.globalAlpha = 1;
    const at = segments.findLast((segment) => segment.index < cursor);
    const mark = at ? at.x + at.width : 0;
    if (!player.atEnd) {
      context.fillStyle = colour("ink");
      context.fillRect(Math.min(width - 2, mark), 0, 2, height);
    }
  }

  return { draw };
}

const COLOURS = { tokenized: "tokenize", prefilled: "prefill", decoded: "decode", text: "detokenize" };

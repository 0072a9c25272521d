// Where the time goes: four lanes on one clock, time per token, and the roofline of this device.

import { strings } from "../strings.js";
import { decodeTimes, ttft } from "../fold.js";
import { begin, colour } from "../ui/canvas.js";
import { chart } from "../ui/chart.js";
import { el, setText, table } from "../ui/dom.js";
import { count, median, ms, number, percent } from "../ui/format.js";
import { column } from "./cache.js";

const words = strings.time;
const LANES = ["tokenize", "prefill", "decode", "detokenize"];
/** Below this share of GPU work in a decode step, or of the roof that applies, overhead is what limits. */
const OVERHEAD = 0.5;

export function create(root, app) {
  const lanes = el("canvas", { class: "chart", role: "img", style: "height: 132px" });
  const holder = el("div");
  const remark = el("p", { class: "verdict" });
  const perToken = el("canvas", { class: "chart", role: "img", "aria-label": words.chart });
  const legend = el("p", { class: "legend" }, key("decode", words.wall), key("detokenize", words.gpu), el("span", {}, `– – ${words.median}`));
  const roof = el("canvas", { class: "chart", role: "img", "aria-label": words.roofline, style: "height: 240px" });
  const measure = el("button", { type: "button", id: "roofline-measure", click: measureDevice }, words.measure);
  const measuredText = el("span", { class: "hint", role: "status" });
  const slider = el("input", { type: "range", id: "roofline-length", min: 0, max: 9, step: 1, value: 5, input: () => last && draw(last) });
  const sliderOut = el("output", { for: "roofline-length" });
  const sliderText = el("p");
  const points = el("div");
  root.append(el("p", {}, words.about), lanes,
    el("div", { class: "split" },
      el("div", {}, holder, remark, el("h3", {}, words.chart), perToken, legend),
      el("div", {}, el("h3", {}, words.roofline), el("p", { class: "caption" }, words.roofline_about), el("div", { class: "row" }, measure, measuredText), roof,
        el("div", { class: "slider" }, el("label", { for: "roofline-length" }, words.prompt_length), slider, sliderOut), sliderText, points)));
  let roofs = null;
  let last = null;

  async function measureDevice() {
    measure.disabled = true;
    try {
      roofs = await app.model.roofline();
      setText(measuredText, words.measured(number(roofs.read_gbps), number(roofs.fma_gflops)));
    } catch (error) {
      setText(measuredText, error.code === "bad-option" ? words.roofline_missing : error.message);
    }
    draw(app.view());
  }

  function draw(view) {
    last = view;
    const rows = stages(view.state);
    paintLanes(lanes, view.state);
    lanes.setAttribute("aria-label", rows.map((row) => row.slice(0, 2).join(" ")).join(", ") || words.empty);
    holder.replaceChildren(view.state.prefilled ? table(words.columns, rows, [1, 2, 3]) : el("p", { class: "hint" }, words.empty));
    setText(remark, remarkOn(view));
    paintTokens(perToken, view.state);
    measure.disabled = !view.model || view.status === "running";
    drawRoof(view);
  }

  function drawRoof(view) {
    const dots = measuredDots(view.state);
    const tokens = Math.min(2 ** Number(slider.value), view.config?.n_positions ?? 512);
    const computed = computedDot(view, tokens, roofs);
    setText(sliderOut, count(tokens));
    setText(sliderText, computed ? words.at_length(count(tokens), number(computed.x), bound(computed.x, roofs)) + (view.device?.is_fallback ? `. ${words.software}` : "") : "");
    const series = dots.map((dot) => ({ points: [[dot.x, dot.y]], colour: dot.name, line: false, dots: true }));
    if (roofs) {
      const ridge = roofs.fma_gflops / roofs.read_gbps;
      series.unshift({ points: [[0.1, 0.1 * roofs.read_gbps], [ridge, roofs.fma_gflops], [Math.max(1000, ridge * 10), roofs.fma_gflops]], colour: "ink" });
    }
    if (computed?.y) series.push({ points: [[computed.x, computed.y]], colour: "prefill", line: false, dots: true, hollow: true });
    chart(roof, { series, x: words.points[1], y: words.points[2], log: true });
    points.replaceChildren(dots.length ? table(words.points, dots.map((dot) => [`${words.stages[LANES.indexOf(dot.name)]}${roofs ? ` · ${reach(dot, roofs)}` : ""}`, number(dot.x), number(dot.y)]), [1, 2]) : "");
  }

  return { draw };
}

const key = (name, text) => el("span", {}, el("i", { style: `background: var(--${name})` }), text);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const gpuOf = (steps) => (steps.length && steps.every((step) => step.gpu_ms !== undefined) ? sum(steps.map((step) => step.gpu_ms)) : null);

/** Wall clock and GPU time of the four stages. */
function stages(state) {
  const decode = state.steps.slice(1);
  const walls = [state.tokenize_ms ?? 0, state.prefilled?.ms ?? 0, sum(decodeTimes(state)), sum(state.texts.map((event) => event.ms))];
  const gpus = [null, gpuOf(state.steps.slice(0, 1)), gpuOf(decode), null];
  const total = sum(walls) || 1;
  return walls.map((wall, index) => [words.stages[index], ms(wall), gpus[index] === null ? "–" : ms(gpus[index]), percent(wall / total)]);
}

function remarkOn({ state }) {
  const decode = state.steps.slice(1);
  if (!state.prefilled) return "";
  const gpu = gpuOf(decode);
  if (gpuOf(state.steps.slice(0, 1)) === null) return words.no_gpu;
  const share = gpu / sum(decode.map((step) => step.ms));
  return decode.length && share < OVERHEAD ? words.overhead(percent(share)) : "";
}

/** Every segment at its place on a clock that leaves out the reader's pauses; GPU time as the darker part. */
function paintLanes(canvas, state) {
  const { context, width, height } = begin(canvas);
  const segments = [];
  let clock = 0;
  const add = (lane, wall, gpu) => {
    segments.push({ lane, from: clock, wall, gpu });
    clock += wall;
  };
  if (state.tokenize_ms !== null) add(0, state.tokenize_ms);
  state.steps.forEach((step, index) => {
    add(index ? 2 : 1, step.ms, step.gpu_ms);
    if (state.texts[index]) add(3, state.texts[index].ms);
  });
  const left = 84;
  const scale = (width - left - 12) / (clock || 1);
  const high = (height - 26) / LANES.length;
  LANES.forEach((lane, index) => {
    context.fillStyle = colour("soft");
    context.textBaseline = "middle";
    context.fillText(words.stages[index], 10, 8 + (index + 0.5) * high);
    context.fillStyle = colour("line");
    context.fillRect(left, 8 + (index + 1) * high - 2, width - left - 12, 1);
  });
  for (const { lane, from, wall, gpu } of segments) {
    const x = left + from * scale;
    const wide = Math.max(0.75, wall * scale - (wall * scale > 3 ? 1 : 0));
    context.fillStyle = colour(gpu === undefined ? LANES[lane] : `${LANES[lane]}-mute`);
    context.fillRect(x, 10 + lane * high, wide, high - 6);
    if (gpu === undefined) continue;
    context.fillStyle = colour(LANES[lane]);
    context.fillRect(x, 10 + lane * high + (high - 6) / 2, Math.min(wide, gpu * scale), (high - 6) / 2);
  }
  if (!state.prefilled) return;
  const mark = left + ttft(state) * scale;
  context.fillStyle = colour("ink");
  context.fillRect(mark, 6, 1, height - 18);
  context.fillText(`${words.ttft} ${ms(ttft(state))}`, Math.min(mark + 4, width - 90), height - 8);
}

function paintTokens(canvas, state) {
  const wall = state.steps.slice(1).map((step) => [step.index, step.ms]);
  const gpu = state.steps.slice(1).filter((step) => step.gpu_ms !== undefined).map((step) => [step.index, step.gpu_ms]);
  const middle = median(decodeTimes(state));
  const series = [{ points: wall, colour: "decode", dots: wall.length < 60 }];
  const marks = [];
  if (state.prefilled) {
    series.unshift({ points: [[0, state.prefilled.ms]], colour: "prefill", line: false, dots: true });
    marks.push([0, `${words.ttft} ${ms(ttft(state))}`]);
  }
  const levels = wall.length > 1 ? [[middle, `${words.tpot} ${ms(middle)}`]] : [];
  if (gpu.length) series.push({ points: gpu, colour: "detokenize" });
  chart(canvas, { series, x: words.new_token, y: strings.units.ms, marks, levels });
}

/** Where prefill and the typical decode step really were. */
function measuredDots(state) {
  const dot = (step, name) => ({ name, x: step.flops / step.bytes, y: step.flops / (step.gpu_ms ?? step.ms) / 1e6 });
  const decode = state.steps.slice(1);
  const typical = decode[decode.length >> 1];
  return [...(state.prefilled ? [dot(state.prefilled, "prefill")] : []), ...(typical ? [dot(typical, "decode")] : [])];
}

/** Where a prefill of `tokens` rows would be: flops grow with the rows, the weights are read once. */
function computedDot(view, tokens, roofs) {
  const one = view.state.steps.slice(1).find((step) => step.rows === 1);
  if (!one || !view.config) return null;
  const x = (one.flops * tokens) / (one.bytes + (tokens - 1) * column(view));
  return { x, y: roofs ? Math.min(x * roofs.read_gbps, roofs.fma_gflops) : null };
}

function bound(ratio, roofs) {
  if (!roofs) return words.unknown_bound;
  return ratio * roofs.read_gbps < roofs.fma_gflops ? words.memory_bound : words.compute_bound;
}

/** What limited a measured step: a roof, or neither. */
function reach(dot, roofs) {
  const roof = Math.min(dot.x * roofs.read_gbps, roofs.fma_gflops);
  return dot.y < OVERHEAD * roof ? words.overhead_bound : bound(dot.x, roofs);
}

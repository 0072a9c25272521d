// A small line and dot chart: linear or logarithmic axes, series in the stage colours, no library.

import { begin, colour } from "./canvas.js";
import { number } from "./format.js";

const PAD = { left: 52, right: 14, top: 22, bottom: 30 };

/**
 * Draws `series` = [{ points: [[x, y]], colour, line, dots, hollow }] with axis titles.
 * `log` makes both axes logarithmic; `marks` are vertical lines `[x, label]`, `levels` horizontal ones `[y, label]`.
 */
export function chart(canvas, { series, x, y, log = false, marks = [], levels = [] }) {
  const { context, width, height } = begin(canvas);
  const all = series.flatMap(({ points }) => points).filter(([px, py]) => Number.isFinite(px) && Number.isFinite(py) && (!log || (px > 0 && py > 0)));
  if (!all.length) return;
  const scaleX = axis(all.map(([px]) => px), log, PAD.left, width - PAD.right, false);
  const scaleY = axis(all.map(([, py]) => py), log, height - PAD.bottom, PAD.top, true);
  grid(context, scaleX, scaleY, width, height, x, y);
  for (const [at, label] of marks) {
    context.strokeStyle = context.fillStyle = colour("soft");
    context.setLineDash([2, 3]);
    line(context, [[scaleX(at), PAD.top], [scaleX(at), height - PAD.bottom]]);
    context.setLineDash([]);
    context.fillText(label, scaleX(at) + 3, PAD.top + 6);
  }
  for (const [at, label] of levels) {
    context.strokeStyle = context.fillStyle = colour("ink");
    context.setLineDash([5, 4]);
    line(context, [[PAD.left, scaleY(at)], [width - PAD.right, scaleY(at)]]);
    context.setLineDash([]);
    context.textAlign = "right";
    context.fillText(label, width - PAD.right, scaleY(at) - 8);
    context.textAlign = "left";
  }
  for (const { points, colour: name, line: lined = true, dots = false, hollow = false } of series) {
    const placed = points.filter(([px, py]) => !log || (px > 0 && py > 0)).map(([px, py]) => [scaleX(px), scaleY(py)]);
    context.strokeStyle = context.fillStyle = colour(name);
    context.lineWidth = 1.75;
    if (lined) line(context, placed);
    if (dots) for (const [px, py] of placed) dot(context, px, py, hollow);
  }
}

function axis(values, log, from, to, zero) {
  const f = log ? Math.log10 : (value) => value;
  let low = Math.min(...values.map(f));
  let high = Math.max(...values.map(f));
  if (log) {
    low = Math.floor(low - 0.1);
    high = Math.ceil(high + 0.1);
  } else {
    if (zero) low = Math.min(0, low);
    if (high === low) high = low + 1;
    if (zero) high += (high - low) * 0.08;
  }
  const scale = (value) => from + ((f(value) - low) / (high - low)) * (to - from);
  scale.ticks = log ? Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i)) : nice(low, high);
  return scale;
}

/** Round steps between two values. */
function nice(low, high) {
  const raw = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) ticks.push(value);
  return ticks;
}

function grid(context, scaleX, scaleY, width, height, x, y) {
  context.lineWidth = 1;
  context.textBaseline = "middle";
  for (const tick of scaleY.ticks) {
    context.strokeStyle = colour("line");
    line(context, [[PAD.left, scaleY(tick)], [width - PAD.right, scaleY(tick)]]);
    context.fillStyle = colour("soft");
    context.textAlign = "right";
    context.fillText(number(tick), PAD.left - 6, scaleY(tick));
  }
  for (const tick of scaleX.ticks) {
    context.textAlign = "center";
    context.fillText(number(tick), scaleX(tick), height - PAD.bottom + 10);
  }
  context.textAlign = "right";
  context.fillText(x, width - PAD.right, height - 7);
  context.textAlign = "left";
  context.fillText(y, 6, 7);
}

function line(context, points) {
  context.beginPath();
  points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

function dot(context, x, y, hollow) {
  context.beginPath();
  context.arc(x, y, 4.5, 0, 7);
  if (hollow) {
    context.lineWidth = 2;
    context.stroke();
  } else context.fill();
}

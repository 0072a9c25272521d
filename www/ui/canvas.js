// Canvases: sharp on every screen, in the colours of the style sheet, redrawn when these change.

const colours = new Map();
const listeners = new Set();

/** The value of a CSS custom property, for drawing. */
export function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}

/** Calls `redraw` when colours or sizes changed. */
export function onAppearance(redraw) {
  listeners.add(redraw);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours.clear();
  for (const redraw of listeners) redraw();
});
new ResizeObserver(() => {
  for (const redraw of listeners) redraw();
}).observe(document.documentElement);

/** A cleared context scaled to CSS pixels, with the canvas's width and height. */
export function begin(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
  return { context, width, height };
}

/** A small rectangle with rounded corners. */
export function cell(context, x, y, width, height, fill) {
  context.fillStyle = fill;
  context.beginPath();
  context.roundRect(x, y, Math.max(width, 0.5), height, Math.min(2, width / 3, height / 3));
  context.fill();
}

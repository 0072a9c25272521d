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

const sizes = new WeakMap();
const observer = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) sizes.set(target, { width: contentRect.width, height: contentRect.height });
  for (const redraw of listeners) redraw();
});

/** Width and height in CSS pixels. Remembered, because asking the layout in the middle of drawing is slow. */
export function sizeOf(canvas) {
  if (!sizes.has(canvas)) {
    sizes.set(canvas, { width: canvas.clientWidth, height: canvas.clientHeight });
    observer.observe(canvas);
  }
  return sizes.get(canvas);
}

/** A cleared context scaled to CSS pixels, with the canvas's width and height. */
export function begin(canvas) {
  const { width, height } = sizeOf(canvas);
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${colour("sans")}`;
  return { context, width, height };
}

/** A small rectangle, with rounded corners where they can be seen. */
export function cell(context, x, y, width, height, fill) {
  context.fillStyle = fill;
  if (width < 5 || height < 5) return context.fillRect(x, y, Math.max(width, 0.5), height);
  context.beginPath();
  context.roundRect(x, y, width, height, 2);
  context.fill();
}

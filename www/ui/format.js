// Numbers as people read them: two significant digits unless more are true, always with a unit.

/** A plain number with about `digits` significant digits and thousands separators. */
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return "…";
  if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(0);
  const size = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)));
  const decimals = Math.max(0, Math.min(6, digits - 1 - size));
  return formatter(decimals).format(Number(value.toPrecision(Math.max(digits, 2))));
}

const formatters = new Map();
function formatter(decimals) {
  if (!formatters.has(decimals)) {
    formatters.set(decimals, new Intl.NumberFormat("en-US", { minimumFractionDigits: Math.min(decimals, 2), maximumFractionDigits: decimals }));
  }
  return formatters.get(decimals);
}

/** A whole number with thousands separators. */
export const count = (value) => formatter(0).format(Math.round(value));

/** Milliseconds in the unit that fits. */
export function ms(value) {
  if (!Number.isFinite(value)) return "…";
  // Browsers tell the time in steps of 0.1 ms.
  if (value === 0) return "<0.1 ms";
  if (value >= 1000) return `${number(value / 1000, value >= 10_000 ? 3 : 2)} s`;
  if (value >= 100) return `${count(value)} ms`;
  return `${number(Math.max(value, 0), value < 0.01 ? 1 : 2)} ms`;
}

/** Bytes in binary units. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? count(value) : number(value, value >= 100 ? 3 : 2)} ${units[unit]}`;
}

/** Floating point operations. */
export function flops(value) {
  const units = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${number(value, value >= 100 ? 3 : 2)} ${units[unit]}`;
}

/** A share of one in per cent. */
export function percent(value) {
  if (!Number.isFinite(value)) return "…";
  const hundred = Math.max(0, value) * 100;
  return `${hundred >= 0.1 || hundred === 0 ? hundred.toFixed(1) : "<0.1"} %`;
}

/** Bytes of a token in hexadecimal. */
export const hex = (list) => Array.from(list, (byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ");

/** Text of a token with its spaces, tabs and line breaks visible; a part of a character is shown as its bytes. */
export function visible(text, list) {
  if (text.includes("\ufffd") && list?.length) return hex(list);
  return text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍") || "∅";
}

/** The middle value. */
export function median(values) {
  if (!values.length) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** GPT-2's printable symbols for bytes, as its vocabulary writes them. */
const SYMBOLS = (() => {
  let next = 256;
  const printable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
})();
export const symbols = (list) => Array.from(list, (byte) => SYMBOLS[byte]).join("");

// Models that the menu names, and what they would take: known before anything is downloaded.

export const BUNDLED = "www/models/tiny";

const VOCABULARY = 50_257;
const POSITIONS = 1024;
/** Bytes of a number in the matrices; q8 has one f32 scale for every 64 numbers. */
const BYTES = { fp32: 4, fp16: 2, q8: 1 + 4 / 64 };
/** The token embedding is cut into at most this many bindings. */
const PARTS = 3;
export const DTYPES = Object.keys(BYTES);

/** Hub ids with the bytes of their weights (to three digits) and their shapes. */
export const HUB = [
  { id: "distilbert/distilgpt2", bytes: 353e6, layers: 6, width: 768 },
  { id: "openai-community/gpt2", bytes: 548e6, layers: 12, width: 768 },
  { id: "openai-community/gpt2-medium", bytes: 1.52e9, layers: 24, width: 1024 },
  { id: "openai-community/gpt2-large", bytes: 3.25e9, layers: 36, width: 1280 },
  { id: "openai-community/gpt2-xl", bytes: 6.43e9, layers: 48, width: 1600 },
];

/** GPU memory for weights and cache: (V C + L 12 C^2) numbers, the positions in f32, and 2 L C P f32 of keys and values. */
export function memory({ layers, width }, dtype) {
  const numbers = VOCABULARY * width + layers * 12 * width * width;
  return numbers * BYTES[dtype] + POSITIONS * width * 4 + 2 * layers * width * POSITIONS * 4;
}

/** The largest piece that one binding must hold. */
function largestBinding({ width }, dtype) {
  return Math.max(Math.ceil(VOCABULARY / PARTS) * width * BYTES[dtype], 4 * width * width * BYTES[dtype], 2 * POSITIONS * width * 4);
}

/** `{ fits, limit, needs, allowed }`: whether the adapter's limits allow a model; null without an adapter. */
export function judge(model, dtype, limits) {
  if (!limits) return null;
  const needs = largestBinding(model, dtype);
  const limit = limits.maxBufferSize < limits.maxStorageBufferBindingSize ? "maxBufferSize" : "maxStorageBufferBindingSize";
  return { fits: needs <= limits[limit], limit, needs, allowed: limits[limit] };
}

/** What dtype "auto" becomes for a checkpoint of this size. */
export const automatic = ({ bytes }) => (bytes < 100e6 ? "fp32" : "fp16");

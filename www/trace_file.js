// Runs as files: saved and opened as JSON, exported for Perfetto and for spreadsheets.

import { Gpt2Error } from "./errors.js";
import { strings } from "./strings.js";

const VERSION = 1;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const isBytes = (value) => Array.isArray(value) && value.every((byte) => Number.isInteger(byte) && byte >= 0 && byte < 256);
const isText = (value) => typeof value === "string";
const isPair = (value) => Array.isArray(value) && value.length === 2 && value.every(isNumber);
const each = (check) => (value) => Array.isArray(value) && value.every(check);
const shaped = (fields) => (value) => !!value && typeof value === "object" && Object.entries(fields).every(([name, check]) => check(value[name]));

const TOKEN = shaped({ id: isNumber, text: isText, bytes: isBytes, start: isNumber, end: isNumber });
const CANDIDATE = shaped({ id: isNumber, text: isText, logit: isNumber, probability: isNumber });
const STEP = { token_id: isNumber, ms: isNumber, past_len: isNumber, chunks: isNumber, rows: isNumber, kv_written: isPair, kv_read: isNumber, flops: isNumber, bytes: isNumber, candidates: each(CANDIDATE), kept: isNumber, rest: isNumber };
/** What a panel needs of each event; other fields are ignored. */
const EVENTS = {
  tokenized: shaped({ tokens: each(TOKEN), ms: isNumber }),
  prefill_started: shaped({ input_len: isNumber, reused: isNumber }),
  prefill_progress: shaped({ rows_done: isNumber, input_len: isNumber }),
  prefilled: shaped(STEP),
  decoded: shaped({ ...STEP, index: isNumber, input_id: isNumber }),
  text: shaped({ index: isNumber, token_id: isNumber, bytes: isBytes, text: isText, pending_bytes: isBytes, ms: isNumber }),
  done: shaped({ finish_reason: isText, warnings: each(isText) }),
  error: shaped({ code: isText, message: isText }),
};

/** The file for a run. */
export function write({ meta, events }) {
  const { created, model, config, device, options } = meta;
  return JSON.stringify({ version: VERSION, created, model, config, device, options, events });
}

/** A run from a file's text. Throws `bad-trace`. */
export function read(text) {
  const bad = (why) => new Gpt2Error("bad-trace", strings.trace.bad(why));
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw bad(error.message);
  }
  if (!file || typeof file !== "object") throw bad("it is not an object");
  if (file.version !== VERSION) throw bad(strings.trace.version(JSON.stringify(file.version) ?? "none"));
  if (!Array.isArray(file.events) || !file.events.length) throw bad("it has no events");
  const events = file.events.filter((event) => Object.hasOwn(EVENTS, event?.type));
  events.forEach((event, index) => {
    if (!isNumber(event.t) || !EVENTS[event.type](event)) throw bad(`event ${index} (${event.type}) is incomplete`);
  });
  const sized = shaped({ n_layer: small(256), n_head: small(256), n_embd: small(65_536), n_positions: small(1_000_000), vocab_size: small(10_000_000) });
  return {
    created: isText(file.created) ? file.created : "", model: isText(file.model) ? file.model : "",
    config: sized(file.config) ? file.config : null, device: file.device && typeof file.device === "object" ? texts(file.device) : {},
    options: file.options && typeof file.options === "object" ? file.options : {}, events,
  };
}

const small = (most) => (value) => Number.isInteger(value) && value > 0 && value <= most;
const texts = ({ vendor, architecture, description, is_fallback }) => ({
  vendor: isText(vendor) ? vendor : "", architecture: isText(architecture) ? architecture : "", description: isText(description) ? description : "", is_fallback: is_fallback === true,
});

const NAMES = { tokenized: "tokenize", prefilled: "prefill", decoded: "decode", text: "detokenize" };

/** The Chrome trace event format, in microseconds; opens in Perfetto. */
export function chrome({ events, meta }) {
  const row = Object.values(NAMES);
  const traceEvents = row.map((name, tid) => ({ ph: "M", pid: 1, tid, name: "thread_name", args: { name } }));
  for (const event of events) {
    const name = NAMES[event.type];
    if (!name) continue;
    const { token_id, past_len, rows, gpu_ms } = event;
    traceEvents.push({ ph: "X", pid: 1, tid: row.indexOf(name), name, ts: Math.max(0, 1000 * (event.t - event.ms)), dur: 1000 * event.ms, args: { token_id, past_len, rows, gpu_ms } });
  }
  return JSON.stringify({ traceEvents, displayTimeUnit: "ms", otherData: { model: meta.model, created: meta.created } });
}

/** One line per measured event. */
export function csv({ events }) {
  const columns = ["type", "index", "t_ms", "ms", "gpu_ms", "token_id", "rows", "past_len", "flops", "bytes"];
  const lines = events.filter((event) => NAMES[event.type]).map((event) => [event.type, event.index, event.t, event.ms, event.gpu_ms, event.token_id, event.rows, event.past_len, event.flops, Array.isArray(event.bytes) ? event.bytes.length : event.bytes]);
  return [columns, ...lines].map((line) => line.map((cell) => cell ?? "").join(",")).join("\n") + "\n";
}

// What a run looks like after some of its events: one function per event type, nothing else decides what is drawn.

/** Before the first event. */
export function initial() {
  return {
    seen: 0, // events folded in
    stage: null, // the stage of the last event
    tokens: [], tokenize_ms: null,
    input_len: 0, reused: 0, rows_done: 0,
    prefilled: null, steps: [], // prefilled, then every decoded event
    texts: [], text: "",
    done: null, error: null,
  };
}

const folds = {
  tokenized(state, event) {
    state.stage = "tokenize";
    state.tokens = event.tokens;
    state.tokenize_ms = event.ms;
  },
  prefill_started(state, event) {
    state.stage = "prefill";
    state.input_len = event.input_len;
    state.reused = event.reused;
    state.rows_done = event.reused;
  },
  prefill_progress(state, event) {
    state.stage = "prefill";
    state.rows_done = event.rows_done;
  },
  prefilled(state, event) {
    state.stage = "prefill";
    state.prefilled = event;
    state.rows_done = state.input_len;
    state.steps.push(event);
  },
  decoded(state, event) {
    state.stage = "decode";
    state.steps.push(event);
  },
  text(state, event) {
    state.stage = "detokenize";
    state.texts.push(event);
    state.text += event.text;
  },
  done(state, event) {
    state.stage = "done";
    state.done = event;
  },
  error(state, event) {
    state.stage = "done";
    state.error = event;
  },
};

/** Folds one more event in. Types that this page does not know are ignored. */
export function fold(state, event) {
  state.seen++;
  folds[event.type]?.(state, event);
  return state;
}

/** The event types that this page knows. */
export const TYPES = Object.keys(folds);

/** The last step, or null before prefill ended. */
export const lastStep = (state) => state.steps.at(-1) ?? null;

/** Token by token: the ids of the prompt and the new ids of the steps. */
export const allIds = (state) => [...state.tokens.map((token) => token.id), ...state.steps.map((step) => step.token_id)];

/** Times of the decode steps, ms. */
export const decodeTimes = (state) => state.steps.slice(1).map((step) => step.ms);

/** Time to first token, ms: what the reader waited, without the time between two pulls. */
export const ttft = (state) => (state.prefilled ? (state.tokenize_ms ?? 0) + state.prefilled.ms : NaN);

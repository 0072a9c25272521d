// Plays runs: a live one, whose events are pulled from the model, or a recorded one. The cursor says how many events are
// shown; going back in time moves the cursor and never touches the GPU.

import { fold, initial } from "./fold.js";

/** Events after which the page may stop: each shows something new. */
const FRAMES = new Set(["tokenized", "prefilled", "decoded", "text", "done", "error"]);
const PACE_MS = { full: 0, fast: 200, slow: 1000 };
const IN_FLIGHT = 4;

export class Player {
  #run = null;
  #pulling = null;
  #pausing = false;
  #changed;
  #wake = null;
  #state = initial();

  /** `changed` is called after every change; drawing is its business. */
  constructor(changed) {
    this.#changed = changed;
    this.events = [];
    this.cursor = 0;
    this.status = "idle"; // idle, running, paused, done
    this.meta = null; // { source: "live" | "recorded", model, config, device, options, created }
    this.pace = "full";
    this.runs = 0;
  }

  /** The folded state at the cursor. */
  get state() {
    if (this.#state.seen > this.cursor) this.#state = initial();
    while (this.#state.seen < this.cursor) fold(this.#state, this.events[this.#state.seen]);
    return this.#state;
  }
  /** True when the newest event is shown. */
  get atEnd() {
    return this.cursor === this.events.length;
  }
  get live() {
    return this.meta?.source === "live";
  }
  get active() {
    return this.status === "running" || this.status === "paused";
  }

  /** Starts a run on the model and pulls it up to `until`: "end", "token" or "stage". Throws what the model throws. */
  async start(model, options, meta, until = "end") {
    await this.stop();
    const run = model.stream({ ...options, max_in_flight: this.#flight(until) });
    this.#reset({ source: "live", created: new Date().toISOString(), ...meta });
    this.#run = run;
    await this.#advance(until);
  }

  /** Shows a recorded run from its beginning. */
  async load(trace) {
    await this.stop();
    this.#reset({ ...trace, source: "recorded" });
    this.events = trace.events;
    this.status = "paused";
    this.#changed();
  }

  #reset(meta) {
    this.events = [];
    this.cursor = 0;
    this.#state = initial();
    this.meta = meta;
    this.runs++;
    this.#pausing = false;
  }

  /** Empties the page. */
  async clear() {
    await this.stop();
    this.#reset(null);
    this.status = "idle";
    this.#changed();
  }

  /** Goes on to the end, the next token or the next stage. */
  async go(until = "end") {
    if (this.status === "running") {
      // A step asked for while running means: stop at the next one.
      if (until !== "end") this.pause();
      return;
    }
    if (this.status !== "paused" && this.atEnd) return;
    await this.#advance(until);
  }

  /** Stops after the step that is being computed. */
  pause() {
    if (this.status !== "running") return;
    this.#pausing = true;
    this.#wake?.();
    if (this.#run) this.#run.max_in_flight = 1;
  }

  /** Ends the run at once. A recorded run jumps to its end. */
  async stop() {
    if (!this.active) return;
    if (this.#run) {
      this.#run.interrupt();
      this.#pausing = false;
      this.#wake?.();
      await this.#pulling;
      if (this.#run) await this.#advance("end");
    } else {
      this.#pausing = true;
      this.#wake?.();
      await this.#pulling;
      this.status = "done";
      this.#changed();
    }
  }

  /** Shows the first `cursor` events. */
  seek(cursor) {
    this.cursor = Math.max(0, Math.min(this.events.length, cursor));
    this.#changed();
  }

  /** One visible event back or forward, or `frames` of them. */
  step(frames) {
    const direction = Math.sign(frames);
    let at = this.cursor;
    for (let left = Math.abs(frames); left > 0; left--) {
      do at += direction;
      while (at > 0 && at < this.events.length && !FRAMES.has(this.events[at - 1].type));
    }
    this.seek(at);
  }

  #flight(until) {
    return until === "end" && this.pace === "full" ? IN_FLIGHT : 1;
  }

  /** Whether to stop after this event. */
  #reached(event, until) {
    if (event.type === "done" || event.type === "error") return true;
    if (this.#pausing) return FRAMES.has(event.type) && event.type !== "prefilled" && event.type !== "decoded";
    if (until === "token") return event.type === "text";
    if (until === "stage") return FRAMES.has(event.type);
    return false;
  }

  async #advance(until) {
    this.status = "running";
    this.#pausing = false;
    if (this.#run && until === "end") this.cursor = this.events.length;
    if (this.#run) this.#run.max_in_flight = this.#flight(until);
    this.#changed();
    this.#pulling = this.#loop(until);
    await this.#pulling;
  }

  async #loop(until) {
    try {
      for (;;) {
        const event = await this.#next(until);
        if (!event) break;
        this.#changed();
        if (this.#reached(event, until)) break;
        if (until === "end" && event.type === "text") await this.#wait();
        if (this.#pausing && event.type === "text") break;
      }
    } catch (error) {
      this.events.push({ type: "error", t: this.events.at(-1)?.t ?? 0, code: error.code ?? "internal", message: error.message });
      this.cursor = this.events.length;
      this.#run = null;
    }
    this.#pausing = false;
    this.status = this.#run || (!this.live && !this.atEnd) ? "paused" : "done";
    this.#changed();
  }

  /** The next event: what was recorded after the cursor when replaying or stepping, otherwise what the run gives. */
  async #next(until) {
    if (!this.atEnd && (!this.#run || until !== "end")) {
      const event = this.events[this.cursor];
      if (until === "end" && this.cursor > 0) await this.#sleep(event.t - this.events[this.cursor - 1].t);
      this.cursor++;
      return event;
    }
    if (!this.#run) return null;
    const { value, done } = await this.#run.next();
    if (done) {
      this.#run = null;
      return null;
    }
    const follow = this.atEnd;
    this.events.push(value);
    if (follow) this.cursor = this.events.length;
    if (value.type === "done" || value.type === "error") {
      await this.#run.next();
      this.#run = null;
    }
    return value;
  }

  #wait() {
    return PACE_MS[this.pace] ? this.#sleep(PACE_MS[this.pace]) : undefined;
  }

  #sleep(time) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, time);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

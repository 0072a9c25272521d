// The page: wires the controls to the player and draws every panel from the player's state.

import { BUNDLED } from "./catalog.js";
import { allIds, lastStep } from "./fold.js";
import { Loading } from "./loading.js";
import { create as cachePanel, note as cacheNote } from "./panels/cache.js";
import { create as codePanel, pythonScript } from "./panels/code.js";
import { create as decodePanel } from "./panels/decode.js";
import { create as outputPanel } from "./panels/output.js";
import { create as prefillPanel } from "./panels/prefill.js";
import { create as stripPanel } from "./panels/strip.js";
import { create as tabPanels } from "./panels/tabs.js";
import { create as tokensPanel } from "./panels/tokens.js";
import { Player } from "./player.js";
import { fill, strings } from "./strings.js";
import { read as readTrace } from "./trace_file.js";
import { announce, announceStage } from "./ui/announce.js";
import { onAppearance } from "./ui/canvas.js";
import { create as deviceMenu, deviceName } from "./ui/device.js";
import { $, disable, el, placeMenus, setText } from "./ui/dom.js";
import { count } from "./ui/format.js";
import { create as keyHandler } from "./ui/keys.js";
import * as link from "./ui/link.js";
import { create as modelMenu } from "./ui/models.js";
import * as notice from "./ui/notice.js";
import { create as optionMenu } from "./ui/options.js";
import { create as sheet } from "./ui/sheet.js";
import { create as tourGuide } from "./ui/tour.js";

const TOP_LOGITS = 40;
const NO_GPU = new Set(["no-webgpu", "insecure-context", "no-adapter"]);
const STAGES = ["tokenize", "prefill", "decode", "detokenize"];

fill(document);
placeMenus();

const prompt = $("#prompt");
const player = new Player(redraw);
const loading = new Loading(redraw, {
  started: loadStarted, progress: (info) => models.loading(info), tokenizer: typeTokens, loaded, failed: loadFailed, refused: (error) => notice.showError(error, "load"),
  checked: (verdict, error) => device.checked(verdict, error),
});
let typed = null; // { tokens, ms }: live tokens of the prompt field
let started = null; // what the run was started with: { prompt, forked }

// ---- what is drawn ----

const app = { player, announce, compareRun, openTrace, playBundled, copyLink, view, get model() { return loading.model; } };
const panels = {
  code: codePanel({ copyPython }),
  tokenize: tokensPanel($("#stage-tokenize")),
  prefill: prefillPanel($("#stage-prefill")),
  cache: cachePanel($("#stage-cache"), app),
  decode: decodePanel($("#stage-decode"), { fork }),
  detokenize: outputPanel($("#stage-detokenize"), { seekToken }),
  strip: stripPanel($("#strip"), player),
  tabs: tabPanels(app),
};
const more = sheet((stage) => panels[stage].table(view()), { cache: () => [cacheNote()] });

/** Everything a panel may draw from. */
function view() {
  const { state, meta, status } = player;
  const { model } = loading;
  const recorded = meta?.source === "recorded";
  const shown = state.tokens.length > 0 || player.active;
  const typing = !shown || (status !== "running" && prompt.value !== started?.prompt);
  return {
    state, recorded, model: recorded ? null : model, run: player.runs, status, typing,
    config: recorded ? meta.config : (model?.config ?? null),
    device: recorded ? meta.device : model?.device_info,
    tokens: typing ? (typed?.tokens ?? null) : state.tokens,
    tokenize_ms: typing ? (typed?.ms ?? null) : state.tokenize_ms,
    forked: !typing && (meta?.forked ?? false),
    promptText: recorded ? (meta.options?.prompt ?? textOf(state.tokens)) : (started?.text ?? textOf(state.tokens)),
    can_fork: !recorded && !!model && status !== "running" && !!lastStep(state),
    at_end: player.atEnd,
  };
}

/** The text of tokens whose spans may share characters. */
function textOf(tokens) {
  return loading.tokenizer ? loading.tokenizer.decode(tokens.map((token) => token.id)) : tokens.map((token) => token.text).join("");
}

let frame = 0;
let cost = 0;
let shownStatus = null;
/** Draws at the next frame; many events in one frame are one drawing, and drawing takes at most a third of the time. */
function redraw() {
  frame ||= setTimeout(() => requestAnimationFrame(() => {
    frame = 0;
    const from = performance.now();
    draw();
    cost = performance.now() - from;
  }), player.status === "running" ? 2 * cost : 0);
  // The buttons say at once what a press does now, and what they say is then true of the panels too.
  if (player.status !== shownStatus) draw();
  announceStage(player);
}

function draw() {
  const now = view();
  for (const panel of Object.values(panels)) panel.draw(now);
  more.draw();
  light(now);
  drawControls(now);
}

/** Lights the stage that runs. Between a decode step and its text the GPU is already at the next step. */
function light({ state, status }) {
  const running = status === "running" && player.atEnd;
  const stage = running && state.steps.length ? "decode" : running && !state.stage ? "tokenize" : state.stage;
  for (const name of STAGES) {
    const row = $(`#stage-${name}`);
    row.classList.toggle("lit", name === stage);
    row.classList.toggle("ran", ran(state, name));
  }
}

function ran(state, stage) {
  return { tokenize: state.tokenize_ms !== null, prefill: !!state.prefilled, decode: state.steps.length > 1, detokenize: state.texts.length > 0 }[stage];
}

function drawControls({ recorded, status }) {
  shownStatus = status;
  const ready = !!loading.model || recorded;
  const label = status === "running" ? strings.buttons.pause
    : status === "paused" && !changedSinceStart() ? (recorded && player.cursor === 0 ? strings.buttons.play : strings.buttons.resume)
    : loading.percent !== undefined && !ready ? strings.buttons.loading(loading.percent) : recorded && !changedSinceStart() ? strings.buttons.play : strings.buttons.generate;
  setText($("#generate"), label);
  $("#generate").classList.toggle("pausing", status === "running");
  disable($("#generate"), !ready, prompt);
  disable($("#next-token"), !ready || (recorded && player.atEnd), $("#generate"));
  disable($("#next-stage"), !ready || (recorded && player.atEnd), $("#generate"));
  disable($("#stop"), !player.active, $("#generate"));
  const badge = $("#recorded-badge");
  badge.hidden = !recorded;
  if (recorded) setText(badge, strings.notice.recorded(deviceName(player.meta.device), (player.meta.created ?? "").slice(0, 10)));
}

// ---- tokens while typing ----

function typeTokens() {
  const { tokenizer, model } = loading;
  if (!tokenizer) return;
  const from = performance.now();
  try {
    const tokens = tokenizer.tokens(prompt.value);
    typed = { tokens, ms: performance.now() - from };
    const max = model?.config.n_positions;
    if (max && tokens.length > max) notice.show(strings.notice["prompt-too-long"][0], strings.prompt.too_long(count(tokens.length), count(max)), [], "prompt");
    else notice.hide("prompt");
  } catch (error) {
    typed = { tokens: [], ms: null };
    notice.showError(error, "run", [], "prompt");
  }
  redraw();
}

let typing = 0;
prompt.addEventListener("input", () => {
  clearTimeout(typing);
  // A very long prompt is tokenized when the typing pauses.
  if (prompt.value.length < 2000) typeTokens();
  else typing = setTimeout(typeTokens, 250);
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("#controls").requestSubmit($("#generate").disabled ? null : $("#generate"));
});

const examples = $("#examples");
examples.append(el("option", { value: "" }, strings.prompt.choose), ...strings.prompt.list.map(([title], index) => el("option", { value: index }, title)));
examples.addEventListener("change", () => {
  if (examples.value !== "") prompt.value = strings.prompt.list[examples.value][1];
  examples.value = "";
  typeTokens();
});

// ---- running ----

const options = optionMenu({ changed: redraw, setPace: (pace) => (player.pace = pace) });

function changedSinceStart() {
  return player.meta && started && !started.forked && prompt.value !== started.prompt && (player.live || loading.model);
}

/** Generate, Pause, Continue or Play: what the primary button says. */
async function primary() {
  if (player.status === "running") return player.pause();
  if (player.status === "paused" && !changedSinceStart()) return player.go("end");
  if (player.meta?.source === "recorded" && !changedSinceStart()) {
    player.seek(0);
    return player.go("end");
  }
  return begin("end");
}

/** Next token and Next stage: the first press starts a run. */
async function stepOn(until) {
  const more = player.active || !player.atEnd;
  if (more && !changedSinceStart()) return player.go(until);
  return begin(until);
}

async function begin(until) {
  if (!loading.model) return;
  await run({ prompt: prompt.value, ...options.read() }, { prompt: prompt.value, text: prompt.value }, {}, until);
}

async function run(request, start, meta, until) {
  const { model } = loading;
  options.clearAll();
  notice.hide();
  await loading.checking;
  const kept = started;
  started = start;
  const about = { model: model.name, config: model.config, device: model.device_info, options: request, ...meta };
  try {
    await player.start(model, { top_logits: TOP_LOGITS, ...request }, about, until);
  } catch (error) {
    started = kept;
    refuse(error);
  }
  finish();
}

function refuse(error) {
  if ((error.code === "bad-option" || error.code === "prompt-too-long") && options.refuse(error.message)) return;
  notice.showError(error, error.code === "bad-option" ? "option" : "run", recovery(error));
}

/** After a run: what it warned about, the seed it used, or why it failed. */
function finish() {
  const { done, error } = player.state;
  if (done) {
    options.showSeed(done.seed);
    options.showNotes(done.warnings);
  }
  if (error) refuse(error);
  redraw();
}

function recovery(error) {
  return error.code === "device-lost" ? [[strings.buttons.restart, () => loading.load()]] : [];
}

/** Continues from the shown step with another id. The engine reuses the common prefix of its cache. */
async function fork(id) {
  const { state } = player;
  const ids = allIds(state).slice(0, -1);
  const { max_new_tokens, ...rest } = options.read();
  if (player.active) await player.stop();
  const reuse = rest.use_cache ? { past_key_values: "reuse" } : {};
  const request = { input_ids: [...ids, id], ...reuse, max_new_tokens, ...rest };
  await run(request, { prompt: prompt.value, text: null, forked: true }, { forked: true }, "end");
  const prefill = player.state.prefilled;
  if (prefill) announce(strings.decode.forked(player.state.reused, player.state.input_len));
}

/** Shows the step that made a token of the text. */
function seekToken(index) {
  const at = player.events.findIndex((event) => event.type === "text" && event.index === index);
  if (at >= 0) player.seek(at + 1);
}

/** Runs the prompt to the end with one more option, for the comparison. */
async function compareRun(extra) {
  const chosen = options.read();
  // A seed means something only when sampling.
  const { seed, ...rest } = extra;
  if (chosen.do_sample) rest.seed = seed ?? chosen.seed;
  await run({ prompt: prompt.value, ...chosen, ...rest }, { prompt: prompt.value, text: prompt.value }, {}, "end");
  return { events: player.events, error: player.state.error };
}

$("#controls").addEventListener("submit", (event) => {
  event.preventDefault();
  primary();
});
$("#next-token").addEventListener("click", () => stepOn("token"));
$("#next-stage").addEventListener("click", () => stepOn("stage"));
$("#stop").addEventListener("click", () => player.stop());

const keys = keyHandler({
  g: primary, n: () => stepOn("token"), s: () => stepOn("stage"), x: () => player.stop(),
  ArrowLeft: () => player.step(-1), ArrowRight: () => player.step(1), Home: () => player.seek(0), End: () => player.seek(player.events.length),
});

// ---- sharing ----

function currentRequest() {
  return { prompt: prompt.value, options: options.read() };
}

function copyPython() {
  const { prompt: text, options: chosen } = currentRequest();
  return navigator.clipboard.writeText(pythonScript(loading.model?.name ?? BUNDLED, text, chosen));
}

function copyLink() {
  const { prompt: text, options: chosen } = currentRequest();
  // Files on the reader's disk cannot be linked to.
  const other = loading.model && typeof loading.source === "string" && loading.source !== BUNDLED ? loading.source : null;
  history.replaceState(null, "", link.write(text, chosen, other));
  return navigator.clipboard.writeText(location.href);
}

/** Shows a recorded run; its prompt goes into the prompt field, where it can be changed as always. */
async function openTrace(trace) {
  await player.load(trace);
  if (typeof trace.options.prompt === "string") prompt.value = trace.options.prompt;
  typeTokens();
  started = { prompt: prompt.value };
  if (loading.model) notice.show(strings.notice.recorded_title, strings.notice.recorded_about, [[strings.buttons.leave_recording, leaveRecording]]);
}

async function leaveRecording() {
  notice.hide();
  await player.clear();
}

// ---- the model ----

const device = deviceMenu({ check: checkDevice });
const models = modelMenu({ load: (source, dtype) => loading.load(source, dtype), cancel: () => loading.cancel(), refuse: (error) => notice.showError(error, "load") });

function loadStarted() {
  player.clear();
  notice.hide();
  device.none("looking");
  models.loading(null);
  redraw();
}

function loaded(model) {
  models.loaded(model);
  device.loaded(model.device_info, model.dtype);
  if (!model.device_info.is_fallback) device.checking();
}

function loadFailed(error) {
  const no_gpu = NO_GPU.has(error.code);
  models.none();
  device.none(no_gpu ? "none" : "idle");
  if (error.code === "aborted") return;
  notice.showError(error, "load", [[strings.buttons.try_again, () => loading.load()], [strings.buttons.play_recording, playBundled]]);
  // Without a GPU the page still shows a run: a real one, recorded elsewhere.
  if (no_gpu) playBundled().catch(() => {});
}

/** Plays the recorded run that comes with the page: a real one, made on the device that its badge names. */
async function playBundled() {
  const url = new URL("recorded.json", import.meta.url);
  const response = await fetch(url);
  if (!response.ok) throw new Error(strings.trace.bundled_missing);
  await openTrace(readTrace(await response.text()));
  await player.go("end");
}

async function checkDevice() {
  await player.clear();
  device.checking();
  await loading.check();
}

// ---- start ----

const tour = tourGuide();
$("#foot").append(strings.foot, el("button", { type: "button", class: "link", click: () => keys.show() }, strings.keys.button), el("button", { type: "button", class: "link", click: () => tour.start() }, strings.tour.again));
const shared = link.read(location.hash);
prompt.value = shared?.prompt ?? strings.prompt.list[0][1];
if (shared) options.write(shared.options);
if (shared?.model) models.offer(shared.model);
onAppearance(draw);
draw();
loading.load();

//! `generate()`: the one decode loop. A prompt goes in, a stream of events comes out; the page, the command line, the tests
//! and the comparison without a cache all run this loop.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use futures::future::{Either, select};
use futures::lock::Mutex;
use futures::task::AtomicWaker;
use web_time::Instant;

use crate::error::{Error, Result};
use crate::model::{MAX_IN_FLIGHT, Model, Outcome, Pass};
use crate::sampling::Options;
use crate::tokenizer::{Detokenizer, Piece};
use crate::trace::{Candidate, Event, EventKind, FinishReason, GpuTimings, Step, Timings};

/// What a run starts from.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// Text, for the model's tokenizer.
    Text(String),
    /// Ids.
    Ids(Vec<u32>),
}

/// A run: pull its events with [`Generator::next`].
pub struct Generator {
    shared: Rc<Shared>,
    run: Mutex<Run>,
}

/// What the consumer touches while the run goes on.
struct Shared {
    events: RefCell<VecDeque<Event>>,
    consumer: RefCell<Option<Waker>>,
    max_in_flight: Cell<usize>,
    pumping: Cell<bool>,
    finished: Cell<bool>,
    interrupt: Interrupter,
}

/// Stops a run from anywhere, at once.
#[derive(Clone, Default)]
pub struct Interrupter(Arc<Interrupt>);

#[derive(Default)]
struct Interrupt {
    asked: AtomicBool,
    waker: AtomicWaker,
}

impl Interrupter {
    /// Ends the run with what it has delivered, without waiting for the GPU.
    pub fn interrupt(&self) {
        self.0.asked.store(true, Ordering::Release);
        self.0.waker.wake();
    }

    fn asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }

    async fn wait(&self) {
        std::future::poll_fn(|cx| {
            self.0.waker.register(cx.waker());
            if self.asked() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Where a run stands.
enum Stage {
    Tokenize(Prompt),
    Prefill {
        done: usize,
        ms: f64,
        gpu_ms: Option<f64>,
        chunks: usize,
        reused: usize,
    },
    Decode,
    Done,
}

/// The loop's own state; nobody else sees it.
struct Run {
    model: Rc<Model>,
    options: Options,
    seed: u64,
    shared: Rc<Shared>,
    stage: Stage,
    started: Instant,
    /// Prompt, then every delivered id.
    ids: Vec<u32>,
    prompt_len: usize,
    /// New ids submitted so far, those in flight included.
    submitted: usize,
    in_flight: VecDeque<Pass>,
    /// Whether the GPU's state must be put back before the next submit, since steps were dropped.
    stale: bool,
    last_arrival: Instant,
    detokenizer: Option<Detokenizer>,
    text: String,
    timings: Timings,
    warnings: Vec<String>,
}

impl Generator {
    /// Claims the model and prepares a run; nothing is submitted before the first [`Generator::next`].
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Disposed`] or the device's fault.
    pub fn new(model: &Rc<Model>, prompt: Prompt, options: Options) -> Result<Self> {
        let interrupt = Interrupter::default();
        model.claim(interrupt.clone())?;
        let shared = Rc::new(Shared {
            events: RefCell::default(),
            consumer: RefCell::default(),
            max_in_flight: Cell::new(options.max_in_flight),
            pumping: Cell::new(false),
            finished: Cell::new(false),
            interrupt,
        });
        let mut warnings = model.warnings();
        warnings.extend(options.warnings.iter().cloned());
        let now = Instant::now();
        Ok(Self {
            run: Mutex::new(Run {
                model: model.clone(),
                seed: options.seed.unwrap_or_else(fresh_seed),
                options,
                shared: shared.clone(),
                stage: Stage::Tokenize(prompt),
                started: now,
                ids: Vec::new(),
                prompt_len: 0,
                submitted: 0,
                in_flight: VecDeque::new(),
                stale: false,
                last_arrival: now,
                detokenizer: model
                    .tokenizer()
                    .map(|tokenizer| Detokenizer::new(tokenizer.clone(), true)),
                text: String::new(),
                timings: Timings::default(),
                warnings,
            }),
            shared,
        })
    }

    /// The next event; `None` after `done` or `error`.
    pub async fn next(&self) -> Option<Event> {
        loop {
            if let Some(event) = self.shared.events.borrow_mut().pop_front() {
                return Some(event);
            }
            if self.shared.finished.get() {
                return None;
            }
            if self.shared.pumping.get() {
                self.shared.arrival().await;
            } else {
                self.run.lock().await.advance().await;
            }
        }
    }

    /// Keeps the GPU busy whatever the consumer does, until the run ends or [`Generator::set_max_in_flight`] asks for steps
    /// one by one. Where nothing else drives the run (the browser), spawn this beside the consumer.
    pub async fn pump(&self) {
        if self.shared.pumping.replace(true) {
            return;
        }
        while !self.shared.finished.get() && self.shared.max_in_flight.get() > 1 {
            self.run.lock().await.advance().await;
        }
        self.shared.pumping.set(false);
        self.shared.wake_consumer();
    }

    /// Stops the run.
    pub fn interrupter(&self) -> Interrupter {
        self.shared.interrupt.clone()
    }

    /// Steps in flight at most.
    pub fn max_in_flight(&self) -> usize {
        self.shared.max_in_flight.get()
    }

    /// Changes the number of steps in flight. Lowering it drops what is in flight beyond it; at 1 nothing is submitted until
    /// [`Generator::next`] asks.
    ///
    /// # Errors
    /// [`Error::BadOption`] outside 1 to 8.
    pub fn set_max_in_flight(&self, steps: usize) -> Result<()> {
        if !(1..=MAX_IN_FLIGHT).contains(&steps) {
            return Err(Error::BadOption(format!(
                "max_in_flight is {steps}; it must be a whole number from 1 to {MAX_IN_FLIGHT}."
            )));
        }
        self.shared.max_in_flight.set(steps);
        Ok(())
    }
}

impl Shared {
    fn push(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
        self.wake_consumer();
    }

    fn wake_consumer(&self) {
        if let Some(waker) = self.consumer.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Until the pump has pushed something or stopped.
    fn arrival(&self) -> impl Future<Output = ()> {
        std::future::poll_fn(|cx| {
            if !self.events.borrow().is_empty() || self.finished.get() || !self.pumping.get() {
                return Poll::Ready(());
            }
            *self.consumer.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// A seed for a run that names none: hashed from the clock, 53 bits so that JavaScript can hold it.
fn fresh_seed() -> u64 {
    let now = web_time::SystemTime::now()
        .duration_since(web_time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64);
    let mut z = now.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) >> 11
}

impl Run {
    /// One turn of the loop: does the next thing, and waits for at most one arrival. An interruption ends the waiting.
    async fn advance(&mut self) {
        let interrupt = self.shared.interrupt.clone();
        let turn = {
            let (asked, turn) = (pin!(interrupt.wait()), pin!(self.turn()));
            match select(asked, turn).await {
                Either::Left(_) => None,
                Either::Right((turn, _)) => Some(turn),
            }
        };
        // Disposing interrupts as well; that is an error, not an end.
        let turn =
            turn.unwrap_or_else(|| self.model.check().map(|()| Some(FinishReason::Interrupted)));
        match turn {
            Ok(None) => {}
            Ok(Some(reason)) => self.finish(reason),
            Err(error) => self.fail(error),
        }
    }

    async fn turn(&mut self) -> Result<Option<FinishReason>> {
        self.model.check()?;
        match &self.stage {
            Stage::Tokenize(prompt) => {
                let prompt = prompt.clone();
                self.tokenize(prompt)?;
                Ok(None)
            }
            Stage::Prefill { .. } => self.prefill_chunk().await,
            Stage::Decode => self.decode_step().await,
            Stage::Done => Ok(None),
        }
    }

    fn tokenize(&mut self, prompt: Prompt) -> Result<()> {
        let config = self.model.config();
        let start = Instant::now();
        let mut tokens = Vec::new();
        let mut ids = match prompt {
            Prompt::Ids(ids) => ids,
            Prompt::Text(text) => {
                let tokenizer = self.model.tokenizer().ok_or_else(|| {
                    Error::BadTokenizer(
                        "This model came without a tokenizer, so it cannot read a prompt. Pass input_ids instead."
                            .into(),
                    )
                })?;
                // More ids than bytes cannot be: refuse before a very long text is worked on.
                let least = tokenizer.at_least(&text);
                if least > config.n_positions {
                    return Err(too_long(least, config.n_positions));
                }
                tokens = tokenizer.tokens(&text)?;
                tokens.iter().map(|t| t.id).collect()
            }
        };
        if !self.options.stop_strings.is_empty() && self.model.tokenizer().is_none() {
            return Err(Error::BadTokenizer(
                "This model came without a tokenizer, so it cannot find stop_strings. Leave them out, or use eos_token_id."
                    .into(),
            ));
        }
        if ids.is_empty() {
            let bos = config.bos_token_id.ok_or_else(|| {
                Error::BadOption(
                    "The prompt is empty and this model's config.json names no bos_token_id to start from. Give a prompt."
                        .into(),
                )
            })?;
            ids.push(bos);
        }
        if tokens.is_empty()
            && let Some(tokenizer) = self.model.tokenizer()
        {
            tokens = tokenizer.describe(&ids);
        }
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if let Some(id) = ids.iter().find(|id| **id as usize >= config.vocab_size) {
            return Err(Error::BadOption(format!(
                "input_ids has {id}, but this model knows ids 0 to {}.",
                config.vocab_size - 1
            )));
        }
        if ids.len() > config.n_positions {
            return Err(too_long(ids.len(), config.n_positions));
        }
        let reused = self.model.begin(&ids, &self.options, self.seed)?;
        self.prompt_len = ids.len();
        self.ids = ids;
        self.timings.tokenize_ms = ms;
        self.emit(EventKind::Tokenized { tokens, ms });
        self.emit(EventKind::PrefillStarted {
            input_len: self.prompt_len,
            reused,
        });
        self.stage = Stage::Prefill {
            done: reused,
            ms: 0.0,
            gpu_ms: self.model.gpu().has_timestamps().then_some(0.0),
            chunks: 0,
            reused,
        };
        Ok(())
    }

    /// Submits the next chunk of the prompt and waits for it; the last one brings the first new id.
    async fn prefill_chunk(&mut self) -> Result<Option<FinishReason>> {
        let Stage::Prefill {
            done,
            ms,
            gpu_ms,
            chunks,
            reused,
        } = self.stage
        else {
            return Ok(None);
        };
        let rows = self.model.chunk_rows().min(self.prompt_len - done);
        let last = done + rows == self.prompt_len;
        let pass = self.model.prefill(done, rows, last).await?;
        let (done, submitted_at) = (done + rows, pass.submitted_at);
        let (pass, outcome, took) = self.arrive(pass).await?;
        self.model
            .learn_rate(rows, (self.last_arrival - submitted_at).as_secs_f64() * 1e3);
        let ms = ms + took;
        let gpu_ms = gpu_ms.zip(outcome.gpu_ms).map(|(a, b)| a + b);
        let chunks = chunks + 1;
        let cached = if self.options.use_cache { done } else { 0 };
        self.model
            .past_key_values()
            .arrived(cached, outcome.picked.as_ref().map(|p| p.id));
        self.emit(EventKind::PrefillProgress {
            rows_done: done,
            input_len: self.prompt_len,
        });
        if !last {
            self.stage = Stage::Prefill {
                done,
                ms,
                gpu_ms,
                chunks,
                reused,
            };
            return Ok(None);
        }
        self.timings.prefill_ms = ms;
        self.timings.ttft_ms = self.timings.tokenize_ms + ms;
        self.timings.gpu = gpu_ms.map(|prefill_ms| GpuTimings {
            prefill_ms,
            decode_ms: Vec::new(),
        });
        self.stage = Stage::Decode;
        self.submitted = 1;
        let whole = Pass {
            past: reused,
            rows: done - reused,
            chunks,
            ..pass
        };
        self.deliver(&whole, Outcome { gpu_ms, ..outcome }, ms)
    }

    /// Fills the window of steps in flight and waits for the oldest.
    async fn decode_step(&mut self) -> Result<Option<FinishReason>> {
        let window = self.shared.max_in_flight.get();
        if self.in_flight.len() > window {
            self.drop_in_flight();
        }
        while self.in_flight.len() < window && self.may_submit() {
            if std::mem::take(&mut self.stale) {
                self.model.rewind()?;
            }
            let pass = if self.options.use_cache {
                self.model.decode().await?
            } else {
                self.model
                    .recompute(self.prompt_len + self.submitted)
                    .await?
            };
            self.in_flight.push_back(pass);
            self.submitted += 1;
            let in_flight = self.in_flight.len() as u64;
            self.model
                .gpu()
                .count(|c| c.max_in_flight = c.max_in_flight.max(in_flight));
        }
        let Some(pass) = self.in_flight.pop_front() else {
            return Ok(Some(FinishReason::Length));
        };
        let (pass, outcome, ms) = self.arrive(pass).await?;
        let cached = if self.options.use_cache {
            pass.past + pass.rows
        } else {
            0
        };
        self.model
            .past_key_values()
            .arrived(cached, outcome.picked.as_ref().map(|p| p.id));
        self.timings.decode_ms.push(ms);
        if let (Some(gpu), Some(gpu_ms)) = (&mut self.timings.gpu, outcome.gpu_ms) {
            gpu.decode_ms.push(gpu_ms);
        }
        self.deliver(&pass, outcome, ms)
    }

    /// Waits for a pass; then its wall clock is known.
    async fn arrive(&mut self, mut pass: Pass) -> Result<(Pass, Outcome, f64)> {
        let bytes = (&mut pass.arrival).await?;
        let now = Instant::now();
        let begun = pass.submitted_at.max(self.last_arrival);
        self.last_arrival = now;
        let outcome = pass.outcome(&self.model, &bytes);
        let ms = (now - begun).as_secs_f64() * 1e3;
        Ok((pass, outcome, ms))
    }

    /// Whether one more step may be asked for: the limits on new ids and on positions.
    fn may_submit(&self) -> bool {
        self.submitted < self.options.max_new_tokens
            && self.prompt_len + self.submitted <= self.model.config().n_positions
    }

    /// Tells the consumer about a new id, and whether it was the last.
    fn deliver(&mut self, pass: &Pass, outcome: Outcome, ms: f64) -> Result<Option<FinishReason>> {
        let picked = outcome.picked.ok_or_else(|| {
            Error::Internal("A step came back without an id. Please report this.".into())
        })?;
        if picked.id as usize >= self.model.config().vocab_size {
            return Err(Error::Internal(format!(
                "The GPU picked id {}, which this model does not have. Please report this.",
                picked.id
            )));
        }
        let tokenizer = self.model.tokenizer();
        let candidates = picked
            .candidates
            .iter()
            .map(|c| Candidate {
                id: c.id,
                text: tokenizer.map(|t| t.text_of(c.id)).unwrap_or_default(),
                logit: c.logit,
                probability: c.probability,
                removed_by: c.removed_by,
            })
            .collect();
        let end = pass.past + pass.rows;
        let step = Step {
            token_id: picked.id,
            ms,
            gpu_ms: outcome.gpu_ms,
            past_len: self.model.past_key_values().len(),
            chunks: pass.chunks,
            rows: pass.rows,
            kv_written: [pass.past, end],
            kv_read: end,
            flops: self.model.flops(pass.past, pass.rows),
            bytes: self.model.bytes(pass.past, pass.rows),
            candidates,
            kept: picked.kept as usize,
            rest: f64::from(picked.rest),
        };
        let index = self.ids.len() - self.prompt_len;
        let input_id = self.ids[self.ids.len() - 1];
        self.ids.push(picked.id);
        self.emit(if index == 0 {
            EventKind::Prefilled { step }
        } else {
            EventKind::Decoded {
                index,
                input_id,
                step,
            }
        });
        let end = if self.options.eos_token_id.contains(&picked.id) {
            Some(FinishReason::Eos)
        } else if index + 1 == self.options.max_new_tokens {
            Some(FinishReason::Length)
        } else if self.ids.len() > self.model.config().n_positions {
            Some(FinishReason::Context)
        } else {
            None
        };
        self.detokenize(index, picked.id, end.is_some());
        let stopped = || {
            self.options
                .stop_strings
                .iter()
                .any(|s| self.text.contains(s.as_str()))
        };
        Ok(match end {
            Some(FinishReason::Eos) => end,
            _ if stopped() => Some(FinishReason::Stop),
            _ => end,
        })
    }

    /// Text of one more id; with the last one, bytes that never became a character come out as U+FFFD.
    fn detokenize(&mut self, index: usize, token_id: u32, last: bool) {
        let start = Instant::now();
        let mut piece = Piece::default();
        if let Some(detokenizer) = &mut self.detokenizer {
            piece = detokenizer.push(token_id);
            if last {
                piece.text.push_str(&detokenizer.finish());
                piece.pending_bytes.clear();
            }
        }
        let ms = start.elapsed().as_secs_f64() * 1e3;
        self.timings.detokenize_ms += ms;
        self.text.push_str(&piece.text);
        self.emit(EventKind::Text {
            index,
            token_id,
            bytes: piece.bytes,
            text: piece.text,
            pending_bytes: piece.pending_bytes,
            ms,
        });
    }

    /// Lets what is in flight finish unseen; its slots free themselves.
    fn drop_in_flight(&mut self) {
        self.submitted -= self.in_flight.len();
        self.in_flight.clear();
        self.stale = true;
    }

    fn finish(&mut self, finish_reason: FinishReason) {
        if matches!(self.stage, Stage::Done) {
            return;
        }
        self.drop_in_flight();
        self.end();
        self.emit(EventKind::Done {
            finish_reason,
            timings: self.timings.clone(),
            seed: self.seed,
            warnings: self.warnings.clone(),
        });
    }

    fn fail(&mut self, error: Error) {
        self.in_flight.clear();
        self.end();
        self.emit(EventKind::Error {
            code: error.code().into(),
            message: error.to_string(),
        });
    }

    /// Gives the model back.
    fn end(&mut self) {
        if !self.options.use_cache {
            self.model.past_key_values().clear();
        }
        self.stage = Stage::Done;
        self.model.release();
        self.shared.finished.set(true);
    }

    fn emit(&self, kind: EventKind) {
        self.shared.push(Event {
            t: self.started.elapsed().as_secs_f64() * 1e3,
            kind,
        });
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A consumer may walk away in the middle.
        if !matches!(self.stage, Stage::Done) {
            self.end();
        }
    }
}

fn too_long(ids: usize, n_positions: usize) -> Error {
    Error::PromptTooLong(format!(
        "The prompt has {ids} ids or more, and this model has {n_positions} positions. Shorten the prompt."
    ))
}

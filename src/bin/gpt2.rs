//! The command line: the same engine without a browser.

#[cfg(target_arch = "wasm32")]
fn main() {}

#[cfg(not(target_arch = "wasm32"))]
fn main() -> std::process::ExitCode {
    match cli::run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpt2: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod cli {
    use std::io::Write;
    use std::path::PathBuf;

    use clap::{Args, Parser, Subcommand};
    use serde_json::json;

    use gpt2_webgpu::bench;
    use gpt2_webgpu::checkpoint::Dtype;
    use gpt2_webgpu::checkpoint::make::{Shape, write_folder};
    use gpt2_webgpu::error::{Error, Result};
    use gpt2_webgpu::from_pretrained::{LoadOptions, from_pretrained, resolve, tokenizer};
    use gpt2_webgpu::generator::{Generator, Prompt};
    use gpt2_webgpu::gpu::GpuOptions;
    use gpt2_webgpu::model::Tuning;
    use gpt2_webgpu::sampling::{OptionValue, Options};
    use gpt2_webgpu::self_check::self_check;
    use gpt2_webgpu::trace::{Event, EventKind, TRACE_VERSION, Trace};

    #[derive(Parser)]
    #[command(name = "gpt2", about = "GPT-2 on this machine's GPU", version)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        /// Continue a prompt.
        Generate(Box<Generate>),
        /// Compare this machine's GPU with plain Rust, on a model's own weights.
        SelfCheck {
            /// A folder, or a hub id in Hugging Face's local cache.
            #[arg(long)]
            model: String,
            /// auto, fp32, fp16 or q8.
            #[arg(long, default_value = "auto", value_parser = dtype)]
            dtype: DtypeChoice,
            /// Ask the adapter for WebGPU's default limits only.
            #[arg(long)]
            default_limits: bool,
        },
        /// Print the ids of a text.
        Tokenize {
            /// A folder, or a hub id in Hugging Face's local cache.
            #[arg(long)]
            model: String,
            /// The text.
            text: String,
        },
        /// Measure this machine's adapter, and what the model reaches of it.
        Bench(Bench),
        /// Write a checkpoint of random weights, the same for the same seed.
        Make {
            /// mini or 124m.
            #[arg(long)]
            shape: Shape,
            #[arg(long, default_value_t = 1)]
            seed: u64,
            /// The folder to write.
            #[arg(long)]
            out: PathBuf,
        },
    }

    #[derive(Args)]
    struct Bench {
        /// A folder, or a hub id in Hugging Face's local cache.
        #[arg(long, conflicts_with = "shape", required_unless_present = "shape")]
        model: Option<String>,
        /// mini or 124m: a checkpoint of random weights instead.
        #[arg(long)]
        shape: Option<Shape>,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// fp32, fp16 or q8, more than one with commas.
        #[arg(long, value_delimiter = ',', default_value = "fp32,fp16,q8")]
        dtype: Vec<Dtype>,
        /// cols,ksplit,tile_cols,splits: cut the kernels so, instead of by the adapter.
        #[arg(long, value_delimiter = ',', num_args = 1)]
        tuning: Vec<u32>,
        /// Ask the adapter for WebGPU's default limits only.
        #[arg(long)]
        default_limits: bool,
        /// Write everything measured to this file.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Measure how the costs grow as well, and write plots into this folder.
        #[arg(long)]
        plots: Option<PathBuf>,
    }

    #[derive(Args)]
    struct Generate {
        /// A folder, or a hub id in Hugging Face's local cache.
        #[arg(long)]
        model: String,
        #[arg(
            long,
            conflicts_with = "input_ids",
            required_unless_present = "input_ids"
        )]
        prompt: Option<String>,
        /// Ids instead of a text: 1,2,3
        #[arg(long)]
        input_ids: Option<String>,
        #[arg(long, allow_hyphen_values = true)]
        max_new_tokens: Option<f64>,
        #[arg(long)]
        do_sample: bool,
        #[arg(long, allow_hyphen_values = true)]
        temperature: Option<f64>,
        #[arg(long, allow_hyphen_values = true)]
        top_k: Option<f64>,
        #[arg(long, allow_hyphen_values = true)]
        top_p: Option<f64>,
        #[arg(long, allow_hyphen_values = true)]
        repetition_penalty: Option<f64>,
        #[arg(long, allow_hyphen_values = true)]
        seed: Option<f64>,
        /// An id, ids with commas, or "none".
        #[arg(long)]
        eos_token_id: Option<String>,
        #[arg(long)]
        stop_strings: Vec<String>,
        /// auto, fp32, fp16 or q8; auto is fp32 for a checkpoint under 100 MB, else fp16.
        #[arg(long, default_value = "auto", value_parser = dtype)]
        dtype: DtypeChoice,
        /// Recompute every position in every step.
        #[arg(long)]
        no_use_cache: bool,
        /// Ask the adapter for WebGPU's default limits only.
        #[arg(long)]
        default_limits: bool,
        #[arg(long, allow_hyphen_values = true)]
        max_in_flight: Option<f64>,
        /// Candidates per step, 0 to 40.
        #[arg(long, allow_hyphen_values = true)]
        top_logits: Option<f64>,
        /// Write the run's events to this file.
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Print one JSON object instead of the text.
        #[arg(long)]
        json: bool,
    }

    pub fn run() -> Result<()> {
        match Cli::parse().command {
            Command::Bench(given) => given.run(),
            Command::Make { shape, seed, out } => {
                write_folder(&shape.config_json(), seed, &out)?;
                println!("{}", out.display());
                Ok(())
            }
            Command::Generate(options) => pollster::block_on(generate(&options)),
            Command::SelfCheck {
                model,
                dtype,
                default_limits,
            } => pollster::block_on(check(&model, dtype, default_limits)),
            Command::Tokenize { model, text } => {
                let folder = resolve(&model)?;
                let tokenizer = tokenizer(&folder)?.ok_or_else(|| {
                    Error::BadTokenizer(format!("{} has no tokenizer.json.", folder.display()))
                })?;
                let ids: Vec<String> = tokenizer
                    .encode(&text)?
                    .iter()
                    .map(u32::to_string)
                    .collect();
                println!("{}", ids.join(" "));
                Ok(())
            }
        }
    }

    impl Bench {
        fn run(&self) -> Result<()> {
            let source = match (&self.model, self.shape) {
                (_, Some(shape)) => bench::Source::Shape(shape, self.seed),
                (Some(model), None) => bench::Source::Folder(resolve(model)?),
                (None, None) => {
                    return Err(Error::BadOption("Give --model or --shape.".into()));
                }
            };
            let tuning = match self.tuning[..] {
                [] => None,
                [cols, ksplit, tile_cols, splits] => Some(Tuning {
                    cols,
                    ksplit,
                    tile_cols,
                    splits,
                }),
                _ => {
                    return Err(Error::BadOption(
                        "--tuning takes four numbers: cols,ksplit,tile_cols,splits.".into(),
                    ));
                }
            };
            let report = pollster::block_on(bench::run(&bench::Options {
                source,
                dtypes: self.dtype.clone(),
                tuning,
                default_limits: self.default_limits,
                plots: self.plots.clone(),
            }))?;
            print!("{report}");
            match &self.json {
                Some(path) => std::fs::write(path, json!(report).to_string()).map_err(|e| {
                    Error::Internal(format!("{} could not be written: {e}.", path.display()))
                }),
                None => Ok(()),
            }
        }
    }

    /// A dtype, or none for `auto`.
    #[derive(Debug, Clone, Copy)]
    struct DtypeChoice(Option<Dtype>);

    fn dtype(name: &str) -> Result<DtypeChoice> {
        match name {
            "auto" => Ok(DtypeChoice(None)),
            _ => name.parse().map(|dtype| DtypeChoice(Some(dtype))),
        }
    }

    impl Generate {
        /// The options that were given, by Hugging Face's names.
        fn entries(&self) -> Result<Vec<(String, OptionValue)>> {
            let mut entries = vec![("do_sample".to_owned(), OptionValue::Bool(self.do_sample))];
            for (name, value) in [
                ("max_new_tokens", self.max_new_tokens),
                ("temperature", self.temperature),
                ("top_k", self.top_k),
                ("top_p", self.top_p),
                ("repetition_penalty", self.repetition_penalty),
                ("seed", self.seed),
                ("max_in_flight", self.max_in_flight),
                ("top_logits", self.top_logits),
            ] {
                entries.extend(value.map(|value| (name.to_owned(), OptionValue::Number(value))));
            }
            if let Some(eos) = &self.eos_token_id {
                let value = if eos == "none" {
                    OptionValue::Null
                } else {
                    OptionValue::List(
                        ids(eos, "eos-token-id")?
                            .into_iter()
                            .map(f64::from)
                            .collect(),
                    )
                };
                entries.push(("eos_token_id".to_owned(), value));
            }
            if !self.stop_strings.is_empty() {
                entries.push((
                    "stop_strings".to_owned(),
                    OptionValue::TextList(self.stop_strings.clone()),
                ));
            }
            if self.no_use_cache {
                entries.push(("use_cache".to_owned(), OptionValue::Bool(false)));
            }
            Ok(entries)
        }
    }

    fn ids(text: &str, name: &str) -> Result<Vec<u32>> {
        text.split(',')
            .map(|id| {
                id.trim().parse().map_err(|_| {
                    Error::BadOption(format!("--{name} has {id:?}; it must be ids with commas between them, such as 1,2,3."))
                })
            })
            .collect()
    }

    async fn check(name: &str, dtype: DtypeChoice, default_limits: bool) -> Result<()> {
        let options = LoadOptions {
            dtype: dtype.0,
            gpu: GpuOptions { default_limits },
            tuning: None,
        };
        let (model, _) = from_pretrained(&resolve(name)?, options).await?;
        let checked = self_check(&model, name).await?;
        for check in &checked.checks {
            let verdict = if check.ok { "ok" } else { "WRONG" };
            println!("{verdict:5} {}: {}", check.name, check.detail);
        }
        if checked.ok {
            return Ok(());
        }
        Err(Error::Internal(
            "This device does not compute this model as it should. Update the graphics driver, or use another adapter.".into(),
        ))
    }

    async fn generate(given: &Generate) -> Result<()> {
        let folder = resolve(&given.model)?;
        let options = LoadOptions {
            dtype: given.dtype.0,
            gpu: GpuOptions {
                default_limits: given.default_limits,
            },
            tuning: None,
        };
        let (model, _) = from_pretrained(&folder, options).await?;
        let prompt = match (&given.prompt, &given.input_ids) {
            (_, Some(list)) => Prompt::Ids(ids(list, "input-ids")?),
            (Some(text), None) => Prompt::Text(text.clone()),
            (None, None) => Prompt::Text(String::new()),
        };
        let input_ids = match &prompt {
            Prompt::Ids(ids) => Some(ids.clone()),
            Prompt::Text(_) => None,
        };
        let entries = given.entries()?;
        let named: serde_json::Map<_, _> =
            entries.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        let options = Options::from_entries(entries, model.config())?;
        let generator = Generator::new(&model, prompt, options)?;
        let (mut events, mut text) = (Vec::new(), String::new());
        while let Some(event) = generator.next().await {
            match &event.kind {
                EventKind::Text { text: piece, .. } => {
                    text.push_str(piece);
                    if !given.json {
                        print!("{piece}");
                        // A closed pipe ends the text, not the program.
                        let _ = std::io::stdout().flush();
                    }
                }
                EventKind::Error { message, .. } => {
                    return Err(Error::Internal(message.clone()));
                }
                _ => {}
            }
            events.push(event);
        }
        if given.json {
            println!("{}", report(&events, input_ids, text, &model));
        } else {
            println!();
        }
        if let Some(path) = &given.trace {
            let trace = Trace {
                version: TRACE_VERSION,
                created: String::new(),
                model: given.model.clone(),
                config: json!(model.config()),
                device: json!(model.gpu().info()),
                options: named.into(),
                events,
            };
            std::fs::write(path, json!(trace).to_string()).map_err(|e| {
                Error::Internal(format!(
                    "The trace could not be written to {}: {e}.",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }

    /// The run as one JSON object.
    fn report(
        events: &[Event],
        input_ids: Option<Vec<u32>>,
        text: String,
        model: &gpt2_webgpu::model::Model,
    ) -> serde_json::Value {
        let mut input = input_ids.unwrap_or_default();
        let (mut new, mut top_logits, mut end) = (Vec::new(), Vec::new(), None);
        for event in events {
            match &event.kind {
                EventKind::Tokenized { tokens, .. } if !tokens.is_empty() => {
                    input = tokens.iter().map(|t| t.id).collect();
                }
                EventKind::Prefilled { step } | EventKind::Decoded { step, .. } => {
                    new.push(step.token_id);
                    let listed: Vec<_> = step
                        .candidates
                        .iter()
                        .map(|c| json!([c.id, c.logit]))
                        .collect();
                    top_logits.push(listed);
                }
                EventKind::Done {
                    finish_reason,
                    timings,
                    seed,
                    warnings,
                } => end = Some((finish_reason, timings, seed, warnings)),
                _ => {}
            }
        }
        let output: Vec<u32> = input.iter().chain(&new).copied().collect();
        json!({
            "input_ids": input,
            "output_ids": output,
            "text": text,
            "finish_reason": end.map(|e| e.0),
            "past_len": model.past_key_values().len(),
            "adapter": model.gpu().info(),
            "dtype": model.dtype().name(),
            "timings": end.map(|e| e.1),
            "counters": model.gpu().counters(),
            "seed": end.map(|e| e.2),
            "warnings": end.map(|e| e.3),
            "top_logits": top_logits,
        })
    }
}

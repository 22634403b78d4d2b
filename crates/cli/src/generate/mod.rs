//! `lockstep generate`: texts continued by plain sampling, one at the terminal or many in a file.

mod prompts;
mod settings;
mod text;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lockstep::engine::{EngineConfig, FinishReason, Generated, RowLimits};
use lockstep::model::{self, LoadOptions};

use crate::args::GenerateArgs;
use crate::error::CliError;
use crate::input;
use crate::interrupt::{self, INTERRUPTED};
use crate::stdout::print;
use settings::Settings;
use text::Text;

pub(crate) fn generate(args: &GenerateArgs) -> Result<ExitCode, CliError> {
    let mut args = args.clone();
    if let Some(prompt) = &mut args.prompt {
        *prompt = input::text("--prompt", prompt)?;
    }
    match &args.many.prompts {
        Some(path) => prompts::generate(path, &args),
        None => generate_one(&args),
    }
}

/// The one text that the flags describe, as it is written.
fn generate_one(args: &GenerateArgs) -> Result<ExitCode, CliError> {
    // What is wrong with the request is told before the model is loaded.
    if args.settings.logprobs.is_some() && !args.json {
        return Err(CliError::usage("--logprobs", "are told in JSON alone: add --json"));
    }
    let settings = Settings::new(&args.settings)?;
    let text = Text::of_prompt(args.prompt.clone().unwrap_or_default(), args.chat);
    let model = load(args, 1)?;
    let spec = settings.spec(&model, text.tokens(&model)?)?;
    let interrupted = interrupt::flag()?;
    let stream = model.engine.submit(vec![spec]).map_err(|error| settings::refused(&error))?.remove(0);
    let (engine, id) = (model.engine.clone(), stream.id());
    interrupt::then(move || engine.cancel(&[id]));

    let start = Instant::now();
    let mut out = io::stdout();
    let generated = stream.wait_with(|event| match args.json {
        true => Ok(()),
        false => out
            .write_all(event.text().as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| CliError::unwritable("the text", &error)),
    })?;
    if let FinishReason::Error(error) = &generated.finished.reason {
        return Err(CliError::failed(error));
    }
    if args.json {
        print(text::result(&model, None, &generated))?;
    } else {
        print("")?;
        eprint!("{}", closing(&generated, start.elapsed().as_secs_f64()));
    }
    let was_interrupted = interrupted.load(Ordering::SeqCst);
    Ok(if was_interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The line below a text, for whoever looks at it; nothing if standard error is no terminal.
fn closing(generated: &Generated, seconds: f64) -> String {
    use io::IsTerminal;
    if !io::stderr().is_terminal() {
        return String::new();
    }
    let n = generated.tokens.len();
    let (reason, seed) = (generated.finished.reason.name(), generated.finished.seed);
    format!("[{reason}, {n} tokens, {:.0} tokens/s, seed {seed}]\n", n as f64 / seconds)
}

/// The model on an engine for `rows` rows at once.
fn load(args: &GenerateArgs, rows: usize) -> Result<model::Loaded, CliError> {
    let limits = RowLimits::new(rows, rows.min(8)).map_err(CliError::failed)?;
    let engine = EngineConfig { limits, kv_bytes: args.kv_bytes, ..EngineConfig::default() };
    Ok(model::load(args.model.name(), &LoadOptions { threads: args.model.threads, engine })?)
}

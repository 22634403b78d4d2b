//! `lockstep run`: weighted samples from a model under a constraint and a critic.

mod cohort;
mod problem;
mod progress;
mod report;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lockstep::control::JsonRecord;
use lockstep::model::{self, LoadOptions, Loaded};

use crate::args::RunArgs;
use crate::error::CliError;
use crate::input;
use crate::interrupt::{self, INTERRUPTED};
use crate::stdout::print;
use problem::Problem;
use progress::Progress;
use report::Report;

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, CliError> {
    let mut args = args.clone();
    if let Some(prompt) = &mut args.prompt {
        *prompt = input::text("--prompt", prompt)?;
    }
    match &args.cohort.problems {
        Some(path) => cohort::run(path, &args),
        None => run_alone(&args),
    }
}

/// The model that the flags name.
fn load(args: &RunArgs) -> Result<Loaded, CliError> {
    let mut options = LoadOptions::in_step(args.model.threads);
    options.engine.kv_bytes = args.kv_bytes;
    Ok(model::load(args.model.name(), &options)?)
}

/// The problem that the flags describe.
fn run_alone(args: &RunArgs) -> Result<ExitCode, CliError> {
    // What is wrong with the request is told before the model is loaded.
    let problem = Problem::new(args)?;
    let record = args.record.as_deref().map(record).transpose()?;
    let model = load(args)?;
    let smc = problem.smc(&model)?;

    let interrupted = interrupt::flag()?;
    let before = model.engine.stats();
    let start = Instant::now();
    let mut run = smc.start(&problem.options)?;
    if let Some(record) = record {
        run = run.with_record(record);
    }
    let mut progress = Progress::new(problem.options.n_particles);
    let mut tokens = 0;
    while !interrupted.load(Ordering::SeqCst) {
        let Some(step) = run.next() else { break };
        let step = step?;
        tokens += step.tokens;
        progress.step(&step, tokens, start.elapsed());
    }
    progress.finish();
    let report = Report {
        sequences: run.sequences(),
        seed: run.seed(),
        tokens,
        seconds: start.elapsed().as_secs_f64(),
        forwards: (model.engine.stats() - before).forwards,
        interrupted: interrupted.load(Ordering::SeqCst),
        model: &model,
    };
    print(if args.json { report.json().to_string() } else { report.table() })?;
    Ok(if report.interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// A record that goes to the file at `path`.
fn record(path: &Path) -> Result<JsonRecord, CliError> {
    let unusable = |error| CliError::usage("--record", format!("{}: {error}", path.display()));
    JsonRecord::create(path).map_err(unusable)
}

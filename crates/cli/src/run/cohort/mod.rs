//! `lockstep run --problems`: many problems that step together.
//!
//! Every problem is a run on a thread of its own, and all of them are parties of one engine that
//! waits for its busy parties without limit: a step is one forward for the particles of all
//! problems. A problem's randomness is a function of its seed and problem number, so its result is
//! the same alone and in any company.

mod line;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lockstep::control::Smc;
use lockstep::model::Loaded;
use serde_json::{Value, json};

use super::problem::Problem;
use super::report;
use crate::args::{CohortArgs, RunArgs};
use crate::error::CliError;
use crate::input;
use crate::interrupt::{self, INTERRUPTED};
use crate::jsonl::{self, Line, Output, failure};
use crate::progress::LinesProgress;

/// Problems at once unless said otherwise. Each has a thread, and a batch of a few thousand rows
/// gains nothing from more.
const CONCURRENT: usize = 64;

/// A problem that can be run.
struct Job {
    id: Value,
    number: usize,
    problem: Problem,
    smc: Smc,
}

/// Solves the problems of the file at `path`; `defaults` holds what lines do not say.
pub(super) fn run(path: &str, defaults: &RunArgs) -> Result<ExitCode, CliError> {
    let text = input::file("--problems", path)?;
    let lines = jsonl::lines("--problems", &text, |fields| line::problem(fields, defaults))?;
    let CohortArgs { out, resume, concurrent, .. } = &defaults.cohort;
    let mut output = match out {
        Some(out) => Output::file(out, *resume, path)?,
        None => Output::stdout(),
    };
    let all = lines.len();
    let lines: Vec<Line<Problem>> = lines.into_iter().filter(|line| !output.has(&line.id)).collect();
    let mut progress = LinesProgress::new("problems", all, all - lines.len());

    // A file without a sound line needs no model.
    let model = match lines.iter().any(|line| line.asked.is_ok()) {
        true => Some(super::load(defaults)?),
        false => None,
    };
    let mut jobs = Vec::with_capacity(lines.len());
    for Line { number, id, asked } in lines {
        let prepared = asked.and_then(|problem| {
            let model = model.as_ref().expect("a sound line has brought the model up");
            Ok((problem.smc(model)?, problem))
        });
        match prepared {
            Ok((smc, problem)) => jobs.push(Job { id, number, problem, smc }),
            Err(error) => {
                output.add(&failure(&id, number, &error))?;
                progress.failed();
            }
        }
    }
    let interrupted = interrupt::flag()?;
    let (output, progress) = (Mutex::new(output), Mutex::new(progress));
    if let Some(model) = &model {
        let most = concurrent.map_or(CONCURRENT, std::num::NonZero::get);
        Cohort { model, output: &output, progress: &progress, interrupted: &interrupted }.run(jobs, most)?;
    }
    let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    progress.finish();
    if interrupted.load(Ordering::SeqCst) {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match progress.failures() {
        0 => Ok(ExitCode::SUCCESS),
        n => Err(CliError::failed(format!("{n} of {all} problems failed: their results say why"))),
    }
}

/// What the threads of a cohort share.
struct Cohort<'a> {
    model: &'a Loaded,
    output: &'a Mutex<Output>,
    progress: &'a Mutex<LinesProgress>,
    interrupted: &'a AtomicBool,
}

impl Cohort<'_> {
    /// Runs all jobs, at most `most` of them at a time. Those that memory does not hold wait for
    /// others to end, in order.
    fn run(&self, jobs: Vec<Job>, most: usize) -> Result<(), CliError> {
        let workers = jobs.len().min(most);
        let begin = Barrier::new(workers);
        let jobs = Mutex::new(jobs.into_iter());
        std::thread::scope(|scope| {
            let work = || {
                // A member is busy from its first moment to its last, also between two problems:
                // the others' forwards wait for it unless it waits itself.
                let _member = self.model.engine.party();
                begin.wait();
                while !self.interrupted.load(Ordering::SeqCst) {
                    let Some(job) = lock(&jobs).next() else { break };
                    self.solve(job)?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a problem's thread does not panic"))
        })
    }

    /// Runs one problem to its end and writes its result; an interrupted one leaves nothing.
    fn solve(&self, job: Job) -> Result<(), CliError> {
        let Some(result) = self.result(&job) else { return Ok(()) };
        let (result, failed) = match result {
            Ok(result) => (result, false),
            Err(error) => (failure(&job.id, job.number, &error), true),
        };
        let mut progress = lock(self.progress);
        progress.aside(|| lock(self.output).add(&result))?;
        if failed {
            progress.failed()
        } else {
            progress.solved()
        }
        Ok(())
    }

    fn result(&self, job: &Job) -> Option<Result<Value, CliError>> {
        let start = Instant::now();
        let mut run = match job.smc.start(&job.problem.options) {
            Ok(run) => run,
            Err(error) => return Some(Err(error.into())),
        };
        let mut tokens = 0;
        loop {
            if self.interrupted.load(Ordering::SeqCst) {
                return None;
            }
            match run.next() {
                None => break,
                Some(Err(error)) => return Some(Err(error.into())),
                Some(Ok(step)) => {
                    tokens += step.tokens;
                    lock(self.progress).step(step.tokens);
                }
            }
        }
        let sequences = run.sequences();
        let mut result = json!({ "id": job.id });
        report::add_population(&mut result, &sequences, &self.model.tokenizer);
        result["tokens"] = tokens.into();
        result["seed"] = run.seed().into();
        result["problem"] = job.problem.options.problem.into();
        result["model"] = self.model.name.clone().into();
        result["seconds"] = start.elapsed().as_secs_f64().into();
        Some(Ok(result))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

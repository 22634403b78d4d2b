//! `lockstep bench smc`: a step of several problems at once.
//!
//! Four contenders decode as many rows under the same prompts, at equal lengths:
//!
//! - `plain`: rows that draw and nothing else, all in one batch;
//! - `plain_alone`: the same rows in a batch for each problem, one after another;
//! - `cohort`: the problems as runs of SMC on a thread each, as `lockstep run --problems` runs them;
//! - `alone`: the same runs, one after another.
//!
//! Every problem has a constraint that keeps its particles alive and allows almost every token, a
//! critic that rewards words, and resamples at half of the effective sample size. The contenders take
//! turns of a step of all rows. Of eight problems one after another, one takes eight steps in a row at a
//! turn, the next one at the next, so that each finds the caches as its own last step left them. The
//! cohort has an engine of its own, whose forwards wait for nobody while the others have theirs.
//!
//! What one batch saves is a matter of the model's kernels and the machine. Plain decoding shows how much
//! that is; what is left to a cohort is to save as much.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockstep::control::potential::Words;
use lockstep::control::{BoolFsa, Coerced, Direct, Product, PromptedLlm, Smc, SmcOptions, SmcRun};
use lockstep::engine::{Stats, TokenId};
use lockstep::model::{self, LoadOptions, Loaded};
use lockstep::native::probe;
use serde_json::json;

use super::figures::Figures;
use super::plain::Plain;
use super::rotation::place;
use super::select;
use super::step::{CONSTRAINT, next, share_of_peak};
use super::timed::{Clocks, Timed};
use crate::args::BenchSmcArgs;
use crate::error::CliError;
use crate::stdout::print;
use crate::table::table;

const PROMPTS: [&str; 8] = [
    "Once upon a time, in a small village by the sea,",
    "The history of the railway begins in a quiet town,",
    "My honest review of this movie is a long one:",
    "The professor opened the old book and began to read,",
    "Dear friends, I write to you about our garden,",
    "The recipe for a good soup starts with fresh onions,",
    "In the year 1850 the first ships came to the island,",
    "When the rain stopped, the children went outside,",
];

/// What the critic likes.
const WORDS: [(&str, f64); 3] = [("the", 0.5), ("and", 0.3), ("was", -0.3)];

/// Steps before the timed ones. In them the rows, which begin alike, part.
const WARM_UP: usize = 8;

const CONTENDERS: [&str; 4] = ["plain", "plain_alone", "cohort", "alone"];

/// The bounds: figure, limit, what it says. A cohort cannot get further below the runs one after
/// another than to the share of the f32 peak at which those run already.
const BOUNDS: [(&str, f64, &str); 3] = [
    ("cohort_over_plain", 1.1, "a step of the cohort within 1.1 of plain decoding of as many rows"),
    ("cohort_over_alone", 0.8, "a step of the cohort under 0.8 of its runs one after another"),
    (
        "cohort_saves_over_plain_saves",
        1.05,
        "cohort_over_alone within 1.05 of the same ratio of plain decoding",
    ),
];

pub(crate) fn smc(args: &BenchSmcArgs) -> Result<ExitCode, CliError> {
    if args.rounds == 0 || args.steps == 0 || args.particles == 0 {
        return Err(CliError::usage("--rounds, --steps, --particles", "must be at least 1"));
    }
    if !(1..=PROMPTS.len()).contains(&args.problems) {
        return Err(CliError::usage("--problems", "must lie between 1 and 8"));
    }
    let options = LoadOptions::in_step(args.model.threads);
    let models = [model::load(args.model.name(), &options)?, model::load(args.model.name(), &options)?];
    let mut figures = Figures::default();
    measure(&models, args, &mut figures)?;
    select::measure(&models[0], args.rounds, &mut figures)?;
    for name in CONTENDERS {
        share_of_peak(&models[0], args.problems * args.particles, name, "step_ms", &mut figures);
    }
    if args.json {
        let object = json!({
            "bench": "smc",
            "model": models[0].name,
            "problems": args.problems,
            "particles": args.particles,
            "rounds": args.rounds,
            "steps": args.steps,
            "figures": figures.json(),
        });
        print(object)?;
    } else {
        print_table(&figures)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The clocks of the parts of a run.
#[derive(Clone, Debug, Default)]
struct Parts {
    model: Clocks,
    constraint: Clocks,
    critic: Clocks,
}

impl Parts {
    /// Time in the constraint, in the critic and in selections, over all threads.
    fn totals(&self) -> [Duration; 3] {
        let selects = [&self.model, &self.constraint, &self.critic].map(|clocks| clocks.selects.total());
        [self.constraint.calls.total(), self.critic.calls.total(), selects.iter().sum()]
    }
}

/// The run of problem `which`.
fn problem(
    model: &Loaded,
    prompt: &[TokenId],
    which: usize,
    args: &BenchSmcArgs,
    parts: &Parts,
) -> Result<SmcRun, CliError> {
    let vocab = model.tokenizer.vocabulary();
    let llm = PromptedLlm::new(model.engine.clone(), Arc::clone(vocab), prompt)?;
    let regex = BoolFsa::from_regex(CONSTRAINT).map_err(CliError::failed)?;
    let constraint = Coerced::new(Arc::new(regex), Arc::clone(vocab))?;
    let target = Product::new(
        Arc::new(Timed::new(llm, parts.model.clone())),
        Arc::new(Timed::new(constraint, parts.constraint.clone())),
    )?;
    let critic = Timed::new(Words::new(Arc::clone(vocab), &WORDS)?, parts.critic.clone());
    let options = SmcOptions {
        n_particles: args.particles,
        // The runs one after another are up to a turn ahead.
        max_tokens: WARM_UP + args.rounds * args.steps + args.problems + 1,
        seed: Some(0),
        problem: which as u64,
        ..SmcOptions::default()
    };
    Ok(Smc::new(Arc::new(Direct::new(Arc::new(target))), Some(Arc::new(critic)))?.start(&options)?)
}

/// All rounds, on an engine for the cohort and one for the others.
fn measure(models: &[Loaded; 2], args: &BenchSmcArgs, figures: &mut Figures) -> Result<(), CliError> {
    let [model, cohort_model] = models;
    let prompts = PROMPTS[..args.problems].iter().map(|prompt| model.tokenizer.encode(prompt, false));
    let prompts: Vec<Vec<TokenId>> = prompts.collect::<Result<_, _>>()?;
    let borrowed: Vec<&[TokenId]> = prompts.iter().map(Vec::as_slice).collect();
    let mut plain = Plain::start(model, &borrowed, args.particles, 0)?;
    let mut plain_alone = borrowed
        .iter()
        .map(|prompt| Plain::start(model, &[prompt], args.particles, 0))
        .collect::<Result<Vec<_>, _>>()?;
    let mut alone = prompts
        .iter()
        .enumerate()
        .map(|(which, prompt)| problem(model, prompt, which, args, &Parts::default()))
        .collect::<Result<Vec<_>, _>>()?;
    let parts = Parts::default();
    let gate = Gate::new(prompts.len());
    std::thread::scope(|scope| {
        for (which, prompt) in prompts.iter().enumerate() {
            let (parts, gate) = (&parts, &gate);
            scope.spawn(move || gate.member(|| problem(cohort_model, prompt, which, args, parts)));
        }
        let mut contest = || -> Result<(), CliError> {
            let problems = prompts.len();
            let mut step = |contender: usize, turn: usize| match contender {
                0 => plain.step(),
                1 => (0..problems).try_for_each(|_| plain_alone[turn % problems].step()),
                2 => gate.step(),
                _ => (0..problems).try_for_each(|_| next(&mut alone[turn % problems])),
            };
            gate.started()?;
            for contender in 0..CONTENDERS.len() {
                (0..WARM_UP).try_for_each(|turn| step(contender, turn))?;
            }
            for round in 0..args.rounds {
                eprintln!("round {} of {}", round + 1, args.rounds);
                figures.add("peak.f32_gflops", probe::f32_peak_gflops(model.threads));
                let mut spent = [Duration::ZERO; CONTENDERS.len()];
                let before = (cohort_model.engine.stats(), parts.totals());
                for turn in round * args.steps..(round + 1) * args.steps {
                    for i in 0..CONTENDERS.len() {
                        let contender = place(CONTENDERS.len(), turn, i);
                        let start = Instant::now();
                        step(contender, WARM_UP + turn)?;
                        spent[contender] += start.elapsed();
                    }
                }
                let after = parts.totals();
                let parts = [0, 1, 2].map(|part| after[part] - before.1[part]);
                report(spent, cohort_model.engine.stats() - before.0, parts, args, figures);
            }
            Ok(())
        };
        let outcome = contest();
        gate.end();
        outcome
    })
}

fn report(
    spent: [Duration; CONTENDERS.len()],
    stats: Stats,
    parts: [Duration; 3],
    args: &BenchSmcArgs,
    figures: &mut Figures,
) {
    let spent = spent.map(|time| time.as_secs_f64());
    let [plain, plain_alone, cohort, alone] = spent;
    let steps = args.steps as f64;
    for (name, time) in CONTENDERS.into_iter().zip(spent) {
        figures.add(format!("{name}.step_ms"), 1e3 * time / steps);
        let rows = (args.problems * args.particles) as f64;
        figures.add(format!("{name}.tokens_per_second"), rows * steps / time);
    }
    figures.add("cohort_over_plain", cohort / plain);
    figures.add("cohort_over_alone", cohort / alone);
    figures.add("cohort_saves_over_plain_saves", (cohort / alone) / (plain / plain_alone));
    figures.add("cohort.forwards_per_step", stats.forwards as f64 / steps);
    figures.add("cohort.distinct_rows", stats.rows as f64 / steps);
    let [constraint, critic, select] = parts.map(|part| part.as_secs_f64());
    let (forward, draw) = (stats.forward_time.as_secs_f64(), stats.draw_time.as_secs_f64());
    for (name, time) in [
        ("forward", forward),
        ("draw", draw),
        ("constraint", constraint),
        ("critic", critic),
        ("resampling", select),
    ] {
        figures.add(format!("cohort.share.{name}"), time / cohort);
    }
}

/// Lets the members of a cohort take a step and wait.
struct Gate {
    open: Barrier,
    shut: Barrier,
    is_over: AtomicBool,
    error: Mutex<Option<CliError>>,
}

impl Gate {
    fn new(members: usize) -> Self {
        Self {
            open: Barrier::new(members + 1),
            shut: Barrier::new(members + 1),
            is_over: AtomicBool::new(false),
            error: Mutex::default(),
        }
    }

    /// A member: starts its run and steps it whenever the gate opens. After an error it has no run,
    /// so that nobody waits for it.
    fn member(&self, start: impl FnOnce() -> Result<SmcRun, CliError>) {
        let mut run = self.note(start());
        self.shut.wait();
        loop {
            self.open.wait();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if let Some(running) = &mut run
                && self.note(next(running)).is_none()
            {
                run = None;
            }
            self.shut.wait();
        }
    }

    fn note<T>(&self, outcome: Result<T, CliError>) -> Option<T> {
        outcome.map_err(|error| *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error)).ok()
    }

    /// Waits until every member has its run.
    fn started(&self) -> Result<(), CliError> {
        self.shut.wait();
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// All members take a step, in a shared forward.
    fn step(&self) -> Result<(), CliError> {
        self.open.wait();
        self.started()
    }

    /// The members end.
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.open.wait();
    }
}

fn print_table(figures: &Figures) -> Result<(), CliError> {
    let show = |name: &str, digits: usize| {
        let summary = figures.summary(name);
        summary.map_or([const { String::new() }; 3], |s| {
            [s.median, s.min, s.max].map(|value| format!("{value:.digits$}"))
        })
    };
    let mut times = table(["", "step, ms", "from", "to", "tokens/s", "of f32 peak"], 0);
    for name in CONTENDERS {
        let [step, min, max] = show(&format!("{name}.step_ms"), 1);
        let [rate, ..] = show(&format!("{name}.tokens_per_second"), 0);
        let share = figures.summary(&format!("{name}.share_of_f32_peak"));
        let share = share.map_or(String::new(), |s| format!("{:.0} %", 100.0 * s.median));
        times.add_row([name.to_owned(), step, min, max, rate, share]);
    }
    print(format_args!("all rows, medians of rounds\n{times}"))?;
    let mut shares = table(["part of a step of the cohort", "share", "from", "to"], 0);
    for name in ["forward", "draw", "constraint", "critic", "resampling"] {
        let [share, min, max] = show(&format!("cohort.share.{name}"), 5);
        shares.add_row([name.to_owned(), share, min, max]);
    }
    print(format_args!(
        "constraint, critic and resampling: time of all threads over time of the step\n{shares}"
    ))?;
    for (name, digits) in [
        ("cohort.forwards_per_step", 2),
        ("cohort.distinct_rows", 1),
        ("select.us", 1),
        ("select.first_step_over_step", 3),
        ("select.parting_step_over_step", 3),
    ] {
        let [median, min, max] = show(name, digits);
        print(format_args!("{name} {median} ({min} to {max})"))?;
    }
    for (name, limit, what) in BOUNDS {
        let Some(summary) = figures.summary(name) else { continue };
        let [median, min, max] = show(name, 3);
        let holds = if summary.median <= limit { "holds" } else { "broken" };
        print(format_args!("{name} {median} ({min} to {max}): {what}: {holds}"))?;
    }
    Ok(())
}

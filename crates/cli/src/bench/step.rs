//! `lockstep bench step`: a step of plain decoding beside a step of SMC.
//!
//! Both decode the same number of rows after the same prompt, at equal lengths, on one engine. In
//! each round both populations are alive and take timed steps in turn, so that whatever else the
//! machine does hits both alike. The constraint allows any text that has not ended, so all rows
//! stay live and almost every token is allowed: the hardest case for a masked draw.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep::control::{BoolFsa, Coerced, Direct, Product, PromptedLlm, Smc, SmcOptions, SmcRun};
use lockstep::engine::{Stats, TokenId};
use lockstep::model::{self, LoadOptions, Loaded};
use lockstep::native::probe;
use serde_json::json;

use super::figures::{Figures, median};
use super::plain::Plain;
use super::timed::{Clocks, Timed};
use crate::args::BenchStepArgs;
use crate::error::CliError;
use crate::stdout::print;
use crate::table::table;

const PROMPT: &str = "Once upon a time, in a small village by the sea,";

/// Any text up to a character that a model does not write.
pub(super) const CONSTRAINT: &str = r"(?s).*\u{E000}";

/// Steps before the timed ones. In them the rows, which begin alike, part.
const WARM_UP: usize = 12;

pub(crate) fn step(args: &BenchStepArgs) -> Result<ExitCode, CliError> {
    if args.rows.contains(&0) || args.rounds == 0 || args.steps == 0 {
        return Err(CliError::usage("--rows, --rounds, --steps", "must be at least 1"));
    }
    let options = LoadOptions { threads: args.model.threads, ..LoadOptions::default() };
    let model = model::load(args.model.name(), &options)?;
    let mut figures = Figures::default();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        figures.add("peak.f32_gflops", probe::f32_peak_gflops(model.threads));
        for &rows in &args.rows {
            measure(&model, rows, args.steps, round as u64, &mut figures)?;
        }
    }
    for &rows in &args.rows {
        let name = format!("rows.{rows}.plain");
        share_of_peak(&model, rows, &name, "forward_ms", &mut figures);
    }
    if args.json {
        let object = json!({
            "bench": "step",
            "model": model.name,
            "threads": model.threads,
            "rounds": args.rounds,
            "steps": args.steps,
            "figures": figures.json(),
        });
        print(object)?;
    } else {
        print_table(&figures, &args.rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Milliseconds of the parts of one step.
#[derive(Debug, Default)]
struct Parts {
    step: Vec<f64>,
    forward: Vec<f64>,
    draw: Vec<f64>,
    constraint: Vec<f64>,
    /// Everything but the forward.
    outside: Vec<f64>,
    rest: Vec<f64>,
}

impl Parts {
    fn add(&mut self, total: Duration, stats: Stats, constraint: Duration) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        self.step.push(ms(total));
        self.forward.push(ms(stats.forward_time));
        self.draw.push(ms(stats.draw_time));
        self.constraint.push(ms(constraint));
        self.outside.push(ms(total) - ms(stats.forward_time));
        self.rest.push(ms(total) - ms(stats.forward_time) - ms(stats.draw_time) - ms(constraint));
    }

    fn report(&mut self, name: &str, figures: &mut Figures) {
        for (part, values) in [
            ("step_ms", &mut self.step),
            ("forward_ms", &mut self.forward),
            ("draw_ms", &mut self.draw),
            ("constraint_ms", &mut self.constraint),
            ("outside_forward_ms", &mut self.outside),
            ("rest_ms", &mut self.rest),
        ] {
            figures.add(format!("{name}.{part}"), median(values));
        }
    }
}

/// One round at `rows` rows.
fn measure(
    model: &Loaded,
    rows: usize,
    steps: usize,
    round: u64,
    figures: &mut Figures,
) -> Result<(), CliError> {
    let prompt = model.tokenizer.encode(PROMPT, false)?;
    let clocks = Clocks::default();
    let mut plain = Plain::start(model, &[&prompt], rows, round)?;
    let mut smc = constrained(model, &prompt, rows, steps, round, &clocks)?;
    next(&mut smc)?;
    for _ in 1..WARM_UP {
        plain.step()?;
        next(&mut smc)?;
    }
    let (mut plain_parts, mut smc_parts) = (Parts::default(), Parts::default());
    let mut served = 0;
    for i in 0..steps {
        // Who goes first changes, so that neither always finds the caches as the other left them.
        for turn in 0..2 {
            let before = (model.engine.stats(), clocks.calls.total());
            let start = Instant::now();
            if (i + turn) % 2 == 0 {
                plain.step()?;
                plain_parts.add(start.elapsed(), model.engine.stats() - before.0, Duration::ZERO);
            } else {
                next(&mut smc)?;
                let stats = model.engine.stats() - before.0;
                served += stats.rows;
                smc_parts.add(start.elapsed(), stats, clocks.calls.total() - before.1);
            }
        }
    }
    let name = format!("rows.{rows}");
    figures.add(format!("{name}.smc.distinct_rows"), served as f64 / steps as f64);
    let step_ratio = median(&mut smc_parts.step) / median(&mut plain_parts.step);
    let outside_ratio = median(&mut smc_parts.outside) / median(&mut plain_parts.draw);
    figures.add(format!("{name}.smc_over_plain"), step_ratio);
    figures.add(format!("{name}.outside_forward_over_draw"), outside_ratio);
    figures.add(format!("{name}.plain.tokens_per_second"), rows as f64 / median(&mut plain_parts.step) * 1e3);
    plain_parts.report(&format!("{name}.plain"), figures);
    smc_parts.report(&format!("{name}.smc"), figures);
    Ok(())
}

fn constrained(
    model: &Loaded,
    prompt: &[TokenId],
    rows: usize,
    steps: usize,
    seed: u64,
    clocks: &Clocks,
) -> Result<SmcRun, CliError> {
    let vocab = model.tokenizer.vocabulary();
    let llm = PromptedLlm::new(model.engine.clone(), Arc::clone(vocab), prompt)?;
    let regex = BoolFsa::from_regex(CONSTRAINT).map_err(CliError::failed)?;
    let constraint = Timed::new(Coerced::new(Arc::new(regex), Arc::clone(vocab))?, clocks.clone());
    let target = Product::new(Arc::new(llm), Arc::new(constraint))?;
    let options = SmcOptions {
        n_particles: rows,
        max_tokens: WARM_UP + steps + 1,
        seed: Some(seed),
        ..SmcOptions::default()
    };
    Ok(Smc::new(Arc::new(Direct::new(Arc::new(target))), None)?.start(&options)?)
}

pub(super) fn next(smc: &mut SmcRun) -> Result<(), CliError> {
    match smc.next() {
        Some(step) => Ok(step.map(|_| ())?),
        None => Err(CliError::failed("every particle ended: the measured constraint should keep them alive")),
    }
}

/// Adds the share of the f32 peak that `rows` rows get in the time of the figure `{name}.{time}`.
pub(super) fn share_of_peak(model: &Loaded, rows: usize, name: &str, time: &str, figures: &mut Figures) {
    let (Some(peak), Some(time)) =
        (figures.summary("peak.f32_gflops"), figures.summary(&format!("{name}.{time}")))
    else {
        return;
    };
    let gflops = 2.0 * model.multiply_adds_per_token as f64 * rows as f64 / (time.median * 1e6);
    figures.add(format!("{name}.share_of_f32_peak"), gflops / peak.median);
}

fn print_table(figures: &Figures, rows: &[usize]) -> Result<(), CliError> {
    let header = ["rows", "", "step", "forward", "draw", "constraint", "rest", "tokens/s", "of f32 peak"];
    let mut table = table(header, header.len());
    let show = |name: String, digits: usize| {
        figures.summary(&name).map_or(String::new(), |s| format!("{:.digits$}", s.median))
    };
    for &n in rows {
        for kind in ["plain", "smc"] {
            let name = format!("rows.{n}.{kind}");
            let part = |part: &str| show(format!("{name}.{part}"), 2);
            let share = figures.summary(&format!("{name}.share_of_f32_peak"));
            table.add_row([
                n.to_string(),
                kind.to_owned(),
                part("step_ms"),
                part("forward_ms"),
                part("draw_ms"),
                part("constraint_ms"),
                part("rest_ms"),
                show(format!("{name}.tokens_per_second"), 0),
                share.map_or(String::new(), |s| format!("{:.0} %", 100.0 * s.median)),
            ]);
        }
    }
    print(format_args!("milliseconds a step, medians\n{table}"))?;
    if let Some(peak) = figures.summary("peak.f32_gflops") {
        print(format_args!(
            "f32 multiply-add peak {:.0} GFLOPS ({:.0} to {:.0})",
            peak.median, peak.min, peak.max
        ))?;
    }
    for &n in rows {
        for ratio in ["smc_over_plain", "outside_forward_over_draw"] {
            let name = format!("rows.{n}.{ratio}");
            if let Some(s) = figures.summary(&name) {
                print(format_args!("{name} {:.3} ({:.3} to {:.3})", s.median, s.min, s.max))?;
            }
        }
    }
    Ok(())
}

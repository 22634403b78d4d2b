//! `lockstep bench draw`: from logits to tokens, without a model.
//!
//! Two parts. *Mixes*: the draw pass (A, the code that the engine runs) beside the same chain row by
//! row (R), one call for each distinct setting (G), and, where they have the settings, an independent
//! sampler (C) and, if asked for, mlx-lm's row by row (M), for several numbers of ids, rows and
//! threads; greedy rows, equal rows, rows all different, and those with penalties and a quarter
//! masked. *Blocks*: each way to draw, as a multiple of the time to read the block once.
//! `scripts/draws_torch.py` times PyTorch on blocks alike.
//!
//! Times are taken in rounds, all contenders of a batch in each, in an order in which everyone follows
//! everyone equally often. A round counts the best of a contender's three turns, and ratios are taken
//! within a round.

mod batch;
mod kinds;
mod mixes;
mod mlx;
mod peer;

use std::num::NonZero;
use std::process::ExitCode;

use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::{Value, json};

use super::figures::Figures;
use crate::args::{BenchDrawArgs, BlockSize, DrawPart};
use crate::error::CliError;
use crate::stdout::print;
use crate::table::table;
use batch::{Logits, Mix};
use mlx::Mlx;

/// The least that a row-by-row pass may take, as a share of the vectorised one's time.
const FLOOR: f64 = 0.97;
/// Batches of so many rows must reach it.
const FLOOR_FROM: usize = 8;
/// The most that rows all different may take, as a share of equal rows' time.
const DIFFERENT: f64 = 1.15;

pub(crate) fn draw(args: &BenchDrawArgs) -> Result<ExitCode, CliError> {
    if args.sizes.contains(&0) || args.rows.contains(&0) || args.rounds == 0 {
        return Err(CliError::usage("--sizes, --rows, --rounds", "must be at least 1"));
    }
    if args.sizes.iter().any(|&ids| ids < 1024) {
        return Err(CliError::usage("--sizes", "must be at least 1024, which histories and biases reach"));
    }
    let all = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut threads: Vec<usize> = args.threads.iter().map(|n| n.get()).collect();
    if threads.is_empty() {
        threads = vec![1, all];
        threads.dedup();
    }
    let pools: Vec<(usize, ThreadPool)> = threads
        .iter()
        .map(|&n| Ok((n, ThreadPoolBuilder::new().num_threads(n).build().map_err(CliError::failed)?)))
        .collect::<Result<_, CliError>>()?;
    let mlx = args.mlx.as_deref().map(Mlx::start).transpose()?;
    let mlx_name = if mlx.is_some() { "mlx-lm's samplers, row by row" } else { "not available" };
    let mut figures = Figures::default();
    let mut names = Vec::new();
    if args.only != Some(DrawPart::Blocks) {
        let most = args.rows.iter().copied().max().unwrap_or(0);
        for &ids in &args.sizes {
            let logits = Logits::new(most, ids);
            for &rows in &args.rows {
                for (threads, pool) in &pools {
                    eprintln!("{rows} rows of {ids} ids, {threads} threads");
                    let name = format!("mix.v{ids}.b{rows}.t{threads}");
                    mixes::measure(&logits, rows, pool, mlx.as_ref(), args.rounds, &name, &mut figures)?;
                    names.push((ids, rows, *threads, name));
                }
            }
        }
    }
    let mut blocks = Vec::new();
    if args.only != Some(DrawPart::Mixes) {
        for block in &args.blocks {
            let logits = Logits::new(block.rows, block.ids);
            for (threads, pool) in &pools {
                eprintln!("block of {block}, {threads} threads");
                let name = format!("block.{block}.t{threads}");
                kinds::measure(&logits, pool, args.rounds, &name, &mut figures)?;
                blocks.push((*block, *threads, name));
            }
        }
    }
    let bounds = bounds_hold(&names, &figures);
    if args.json {
        let object = json!({
            "bench": "draw",
            "threads": threads,
            "rounds": args.rounds,
            "contenders": {
                "a": "the draw pass",
                "r": "row by row",
                "g": "one call for each distinct setting",
                "c": peer::NAME,
                "m": mlx_name,
            },
            "figures": figures.json(),
            "bounds_hold": bounds,
        });
        print(object)?;
    } else {
        if !names.is_empty() {
            print_mixes(&names, &figures, mlx_name)?;
        }
        if !blocks.is_empty() {
            print_blocks(&blocks, &figures)?;
        }
        for (name, holds) in bounds.as_object().into_iter().flatten() {
            print(format_args!("{name}: {holds}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A batch that was timed: ids, rows, threads, and the name of its figures.
type Timed = (usize, usize, usize, String);

/// For each bound whether the medians hold it, with what breaks it; null if nothing was measured.
fn bounds_hold(names: &[Timed], figures: &Figures) -> Value {
    let mut broken = [Vec::new(), Vec::new()];
    let mut measured = [false; 2];
    let mut check = |bound: usize, name: String, holds: &dyn Fn(f64) -> bool| {
        if let Some(summary) = figures.summary(&name) {
            measured[bound] = true;
            if !holds(summary.median) {
                broken[bound].push(format!("{name} {:.2}", summary.median));
            }
        }
    };
    for (_, rows, _, name) in names {
        for mix in Mix::ALL.iter().filter(|_| *rows >= FLOOR_FROM) {
            check(0, format!("{name}.{}.r_over_a", mix.name()), &|ratio| ratio >= FLOOR);
        }
        check(1, format!("{name}.different_over_equal"), &|ratio| ratio <= DIFFERENT);
    }
    let says = [
        format!("row by row takes at least {FLOOR} times the pass from {FLOOR_FROM} rows on"),
        format!("rows all different take at most {DIFFERENT} times equal ones"),
    ];
    let holds = |(measured, broken): (bool, Vec<String>)| match (measured, broken.is_empty()) {
        (false, _) => Value::Null,
        (true, true) => true.into(),
        (true, false) => json!({ "broken_by": broken }),
    };
    Value::Object(says.into_iter().zip(measured.into_iter().zip(broken).map(holds)).collect())
}

fn print_mixes(names: &[Timed], figures: &Figures, mlx_name: &str) -> Result<(), CliError> {
    let mut table = table(["ids", "rows", "threads", "mix", "A ms", "R/A", "G/A", "C/A", "M/A"], 9);
    for (ids, rows, threads, name) in names {
        for mix in Mix::ALL {
            let name = format!("{name}.{}", mix.name());
            let ratio = |who: &str| {
                figures
                    .summary(&format!("{name}.{who}_over_a"))
                    .map_or(String::new(), |s| format!("{:.2} ({:.2} to {:.2})", s.median, s.min, s.max))
            };
            let ms = figures.summary(&format!("{name}.a_ms")).map_or(f64::NAN, |s| s.median);
            table.add_row([
                ids.to_string(),
                rows.to_string(),
                threads.to_string(),
                mix.name().to_owned(),
                format!("{ms:.3}"),
                ratio("r"),
                ratio("g"),
                ratio("c"),
                ratio("m"),
            ]);
        }
    }
    print(format_args!(
        "A the draw pass, R row by row, G one call a setting, C {}, M {mlx_name}",
        peer::NAME
    ))?;
    print(table)
}

fn print_blocks(blocks: &[(BlockSize, usize, String)], figures: &Figures) -> Result<(), CliError> {
    let mut table = table(["block", "threads", "", "ms", "least", "times read once"], 6);
    for (block, threads, name) in blocks {
        for kind in ["read"].into_iter().chain(kinds::KINDS) {
            let Some(ms) = figures.summary(&format!("{name}.{kind}_ms")) else { continue };
            let reads = figures.summary(&format!("{name}.{kind}_over_read"));
            table.add_row([
                block.to_string(),
                threads.to_string(),
                kind.to_owned(),
                format!("{:.2}", ms.median),
                format!("{:.2}", ms.min),
                reads.map_or(String::new(), |s| format!("{:.1} ({:.1} to {:.1})", s.median, s.min, s.max)),
            ]);
        }
    }
    print(table)
}

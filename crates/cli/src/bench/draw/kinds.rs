//! Each way to draw over a block of rows, as a multiple of the time to read the block once.

use lockstep::sample::{
    Bitset, DrawKey, DrawMethod, EosSet, ProblemKey, RowDraw, SamplingParams, TokenId, draw_rows, sample_rows,
};
use rayon::ThreadPool;
use rayon::prelude::*;

use super::batch::{Batch, Logits};
use super::mixes::tokens;
use crate::bench::figures::Figures;
use crate::bench::rotation::{Contender, rotate};
use crate::error::CliError;

/// The ways to draw, in the order in which they are shown.
pub(super) const KINDS: [&str; 9] = [
    "greedy",
    "gumbel_max",
    "inverse_cdf",
    "multinomial",
    "top_p",
    "top_k",
    "min_p",
    "xtc",
    "masked_particle",
];

fn params(kind: &str) -> SamplingParams {
    let plain = SamplingParams::default();
    match kind {
        "greedy" => SamplingParams { temperature: 0.0, ..plain },
        "inverse_cdf" => SamplingParams { draw_method: DrawMethod::InverseCdf, ..plain },
        "multinomial" => SamplingParams { draw_method: DrawMethod::Multinomial, ..plain },
        "top_p" => SamplingParams { top_p: 0.95, ..plain },
        "top_k" => SamplingParams { top_k: 50, ..plain },
        "min_p" => SamplingParams { min_p: 0.05, ..plain },
        "xtc" => SamplingParams { xtc_probability: 1.0, ..plain },
        _ => plain,
    }
}

/// Adds the figures `<name>.read_ms`, `<name>.<kind>_ms` and `<name>.<kind>_over_read`.
pub(super) fn measure(
    logits: &Logits,
    pool: &ThreadPool,
    rounds: usize,
    name: &str,
    figures: &mut Figures,
) -> Result<(), CliError> {
    let rows = logits.values.len() / logits.ids;
    let batches: Vec<(&str, Batch<'_>)> = KINDS
        .into_iter()
        .filter(|kind| *kind != "masked_particle")
        .map(|kind| Ok((kind, Batch::of(logits, vec![params(kind); rows], vec![None; rows])?)))
        .collect::<Result<_, CliError>>()?;
    let (eos, mask) = (EosSet::new([2]), nearly_full(logits.ids));
    let mut contenders = vec![Contender::new("read", |_| {
        std::hint::black_box(pool.install(|| read(&logits.values)));
        Ok(Vec::new())
    })];
    for (kind, batch) in &batches {
        contenders.push(Contender::new(*kind, move |step| {
            let rows = batch.rows(step);
            tokens(pool.install(|| sample_rows(&rows)))
        }));
    }
    contenders.push(Contender::new("masked_particle", |step| {
        let rows: Vec<RowDraw<'_>> = (0..rows)
            .map(|row| RowDraw {
                logits: logits.row(row),
                temperature: 1.0,
                eos: &eos,
                mask: Some(&mask),
                method: DrawMethod::GumbelMax,
                key: DrawKey::new(ProblemKey::new(4, 0), row as u32, step, 0),
            })
            .collect();
        let token = |drawn: Result<lockstep::sample::Drawn, _>| Ok(drawn.map_err(CliError::failed)?.token);
        pool.install(|| draw_rows(&rows)).into_iter().map(token).collect::<Result<Vec<TokenId>, CliError>>()
    }));
    rotate(&contenders, rounds, |seconds| {
        figures.add(format!("{name}.read_ms"), seconds[0] * 1e3);
        for (contender, time) in contenders.iter().zip(seconds).skip(1) {
            figures.add(format!("{name}.{}_ms", contender.name), time * 1e3);
            figures.add(format!("{name}.{}_over_read", contender.name), time / seconds[0]);
        }
    })
}

/// Everything but one id in 64.
fn nearly_full(ids: usize) -> Bitset {
    Bitset::from_ids(ids, (0..ids as u32).filter(|id| id % 64 != 3))
}

/// The sum of all: as little as can be done with a block.
fn read(values: &[f32]) -> f32 {
    const LANES: usize = 64;
    values
        .par_chunks(1 << 16)
        .map(|chunk| {
            let mut lanes = [0.0; LANES];
            for values in chunk.as_chunks::<LANES>().0 {
                for (lane, value) in lanes.iter_mut().zip(values) {
                    *lane += value;
                }
            }
            lanes.iter().sum::<f32>()
        })
        .sum()
}

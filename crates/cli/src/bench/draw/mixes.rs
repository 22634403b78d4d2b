//! The draw pass beside other shapes of the same work, for batches of several mixes of settings.

use lockstep::sample::{RowError, Sampled, TokenId, sample_row, sample_rows};
use rayon::ThreadPool;

use super::batch::{Batch, Logits, Mix};
use super::mlx::Mlx;
use super::peer;
use crate::bench::figures::Figures;
use crate::bench::rotation::{Contender, rotate};
use crate::error::CliError;

/// Rows that others' samplers are timed on; they take their time row by row.
const PEER_ROWS: usize = 8;

/// Times all mixes and contenders for batches of `rows` rows in rounds, and adds the figures
/// `<name>.<mix>.a_ms`, `…r_over_a`, `…g_over_a`, `…c_over_a`, `…m_over_a` and `<name>.different_over_equal`.
pub(super) fn measure(
    logits: &Logits,
    rows: usize,
    pool: &ThreadPool,
    mlx: Option<&Mlx>,
    rounds: usize,
    name: &str,
    figures: &mut Figures,
) -> Result<(), CliError> {
    let batches: Vec<(Mix, Batch<'_>)> = Mix::ALL
        .into_iter()
        .map(|mix| Ok((mix, Batch::new(logits, rows, mix)?)))
        .collect::<Result<_, CliError>>()?;
    let mut contenders = Vec::new();
    for (mix, batch) in &batches {
        let first = contenders.len();
        contenders.extend(ours(mix.name(), batch, pool));
        let expected = contenders[first].tokens(1)?;
        for other in &contenders[first + 1..] {
            if other.tokens(1)? != expected {
                return Err(CliError::failed(format!("{name}: {} draws other tokens", other.name)));
            }
        }
        contenders.extend(theirs(mix.name(), logits, batch));
        if let Some(mlx) = mlx {
            contenders.extend(python(mix.name(), logits, batch, mlx)?);
        }
    }
    let place = |name: String| contenders.iter().position(|contender| contender.name == name);
    rotate(&contenders, rounds, |seconds| {
        let time = |mix: Mix, who: &str| place(format!("{}.{who}", mix.name())).map(|at| seconds[at]);
        for mix in Mix::ALL {
            let Some(a) = time(mix, "a") else { continue };
            let mut add = |figure: &str, value| figures.add(format!("{name}.{}.{figure}", mix.name()), value);
            add("a_ms", a * 1e3);
            for who in ["r", "g", "c", "m"] {
                if let Some(other) = time(mix, who) {
                    add(&format!("{who}_over_a"), other / a);
                }
            }
        }
        if let (Some(different), Some(equal)) = (time(Mix::Different, "a"), time(Mix::Equal, "a")) {
            figures.add(format!("{name}.different_over_equal"), different / equal);
        }
    })
}

/// The pass, the same row by row, and one call for each distinct setting.
fn ours<'a>(mix: &str, batch: &'a Batch<'a>, pool: &'a ThreadPool) -> [Contender<'a>; 3] {
    let groups = batch.groups();
    [
        Contender::new(format!("{mix}.a"), move |step| {
            let rows = batch.rows(step);
            tokens(pool.install(|| sample_rows(&rows)))
        }),
        Contender::new(format!("{mix}.r"), move |step| {
            let rows = batch.rows(step);
            tokens(pool.install(|| rows.iter().map(sample_row).collect()))
        }),
        Contender::new(format!("{mix}.g"), move |step| {
            let rows = batch.rows(step);
            let mut out = vec![TokenId::EOS; rows.len()];
            for group in &groups {
                let group_rows: Vec<_> = group.iter().map(|&row| rows[row]).collect();
                let drawn = tokens(pool.install(|| sample_rows(&group_rows)))?;
                for (&row, token) in group.iter().zip(drawn) {
                    out[row] = token;
                }
            }
            Ok(out)
        }),
    ]
}

/// The independent sampler, if it has the settings of the batch.
fn theirs<'a>(mix: &str, logits: &'a Logits, batch: &'a Batch<'a>) -> Option<Contender<'a>> {
    let rows = batch.params.len().min(PEER_ROWS);
    let draw = move |step| -> Option<Vec<TokenId>> {
        (0..rows).map(|row| peer::sample(logits.row(row), &batch.params[row], step)).collect()
    };
    draw(0).map(|_| {
        Contender::new(format!("{mix}.c"), move |step| {
            draw(step).ok_or_else(|| CliError::failed("llm-samplers drew no token"))
        })
        .scaled(batch.params.len() as f64 / rows as f64)
    })
}

/// mlx-lm's samplers, if they have the settings of the batch.
fn python<'a>(
    mix: &str,
    logits: &Logits,
    batch: &Batch<'_>,
    mlx: &'a Mlx,
) -> Result<Option<Contender<'a>>, CliError> {
    let rows = batch.params.len().min(PEER_ROWS);
    Ok(mlx.batch(logits.ids, &batch.params[..rows])?.map(|theirs| {
        Contender::new(format!("{mix}.m"), move |_| mlx.draw(theirs))
            .scaled(batch.params.len() as f64 / rows as f64)
    }))
}

pub(super) fn tokens(drawn: Vec<Result<Sampled, RowError>>) -> Result<Vec<TokenId>, CliError> {
    drawn.into_iter().map(|drawn| Ok(drawn.map_err(CliError::failed)?.token)).collect()
}

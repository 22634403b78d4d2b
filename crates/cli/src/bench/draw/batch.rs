//! Rows to draw from: logits, settings, histories, masks.

use lockstep::sample::{Bitset, ChainRow, DrawKey, DrawMethod, History, ProblemKey, SamplingParams, TokenId};
use rayon::prelude::*;

use crate::error::CliError;

/// Tokens of a row's history.
const HISTORY: usize = 512;

/// Logits of many rows, three times normal deviates: a few large ones and a long tail.
pub(super) struct Logits {
    pub(super) ids: usize,
    pub(super) values: Vec<f32>,
}

impl Logits {
    pub(super) fn new(rows: usize, ids: usize) -> Self {
        let mut values = vec![0.0; rows * ids];
        values.par_chunks_mut(ids).enumerate().for_each(|(row, out)| {
            let noise = key(0, row, 0);
            for (i, pair) in (0..).step_by(2).zip(out.chunks_mut(2)) {
                let radius = 3.0 * (-2.0 * noise.uniform(i).ln()).sqrt();
                let (sin, cos) = (std::f64::consts::TAU * noise.uniform(i + 1)).sin_cos();
                for (l, side) in pair.iter_mut().zip([cos, sin]) {
                    *l = (radius * side) as f32;
                }
            }
        });
        Self { ids, values }
    }

    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.ids..(row + 1) * self.ids]
    }
}

fn key(seed: u64, row: usize, step: u32) -> DrawKey {
    DrawKey::new(ProblemKey::new(seed, 0), u32::try_from(row).unwrap_or(u32::MAX), step, 0)
}

/// How the rows of a batch differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    Greedy,
    /// Temperature 0.8, top-p 0.95, min-p 0.05.
    Equal,
    /// No two rows alike: temperature, filters, their order and the way to draw.
    Different,
    /// That, with bias and penalties everywhere and a mask on every fourth row.
    Penalties,
}

impl Mix {
    pub(super) const ALL: [Self; 4] = [Self::Greedy, Self::Equal, Self::Different, Self::Penalties];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Equal => "equal",
            Self::Different => "different",
            Self::Penalties => "penalties",
        }
    }

    fn params(self, row: usize) -> SamplingParams {
        match self {
            Self::Greedy => SamplingParams { temperature: 0.0, ..SamplingParams::default() },
            Self::Equal => {
                SamplingParams { temperature: 0.8, top_p: 0.95, min_p: 0.05, ..SamplingParams::default() }
            }
            Self::Different => {
                // Multiples of the golden ratio: spread evenly, and never the same twice.
                let spread =
                    |low: f64, high: f64| low + (high - low) * (row as f64 * 0.618_033_988_75).fract();
                SamplingParams {
                    temperature: spread(0.6, 1.0),
                    top_p: spread(0.92, 0.98),
                    min_p: spread(0.03, 0.07),
                    min_tokens_to_keep: 1 + (row % 3) as i64,
                    xtc_probability: [0.0, 0.5][usize::from(row % 4 == 1)],
                    top_k: [0, 50, 200][row % 3],
                    temperature_first: row % 5 == 2,
                    draw_method: [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial]
                        [row / 2 % 3],
                    ..SamplingParams::default()
                }
            }
            Self::Penalties => SamplingParams {
                logit_bias: (0..4).map(|i| (TokenId(7 * i + row as u32), 0.5)).collect(),
                repetition_penalty: 1.1,
                presence_penalty: 0.2,
                frequency_penalty: 0.1,
                ..Self::Different.params(row)
            },
        }
    }

    fn is_masked(self, row: usize) -> bool {
        self == Self::Penalties && row % 4 == 3
    }
}

/// The rows of a mix over a block of logits.
pub(super) struct Batch<'a> {
    logits: &'a Logits,
    pub(super) params: Vec<SamplingParams>,
    histories: Vec<History>,
    masks: Vec<Option<Bitset>>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(logits: &'a Logits, rows: usize, mix: Mix) -> Result<Self, CliError> {
        let ids = logits.ids as u32;
        let mask = |row: usize| {
            let noise = key(1, row, 0);
            mix.is_masked(row)
                .then(|| Bitset::from_ids(logits.ids, (0..ids).filter(|&id| noise.uniform(id) < 0.5)))
        };
        Self::of(logits, (0..rows).map(|row| mix.params(row)).collect(), (0..rows).map(mask).collect())
    }

    /// Rows with these settings and masks, one each.
    pub(super) fn of(
        logits: &'a Logits,
        params: Vec<SamplingParams>,
        masks: Vec<Option<Bitset>>,
    ) -> Result<Self, CliError> {
        for params in &params {
            params.validate(logits.ids).map_err(CliError::failed)?;
        }
        let history = |(row, params): (usize, &SamplingParams)| {
            let noise = key(2, row, 0);
            let token = |i: usize| TokenId((noise.uniform(i as u32) * logits.ids as f64) as u32);
            History::new(params, &(0..HISTORY).map(token).collect::<Vec<_>>())
        };
        let histories = params.iter().enumerate().map(history).collect();
        Ok(Self { logits, params, histories, masks })
    }

    /// The rows at a step.
    pub(super) fn rows(&self, step: u32) -> Vec<ChainRow<'_>> {
        self.params
            .iter()
            .zip(&self.histories)
            .zip(&self.masks)
            .enumerate()
            .map(|(row, ((params, history), mask))| ChainRow {
                logits: self.logits.row(row),
                vocab_size: self.logits.ids,
                params,
                history,
                special_ids: &[],
                mask: mask.as_ref(),
                banned: &[],
                key: key(3, row, step),
                logprobs: None,
            })
            .collect()
    }

    /// The rows that have equal settings, group by group.
    pub(super) fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (row, params) in self.params.iter().enumerate() {
            match groups.iter_mut().find(|group| self.params[group[0]] == *params) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_as_they_say() {
        let logits = Logits::new(16, 300);
        for (mix, groups) in Mix::ALL.into_iter().zip([1, 1, 16, 16]) {
            let batch = Batch::new(&logits, 16, mix).unwrap();
            assert_eq!(batch.groups().len(), groups, "{mix:?}");
            let masked = batch.rows(1).iter().filter(|row| row.mask.is_some()).count();
            assert_eq!(masked, if mix == Mix::Penalties { 4 } else { 0 });
        }
    }

    #[test]
    fn logits_are_spread_and_differ_by_row() {
        let logits = Logits::new(2, 10_001);
        let row = logits.row(0);
        let mean = row.iter().sum::<f32>() / 10_001.0;
        let variance = row.iter().map(|l| (l - mean).powi(2)).sum::<f32>() / 10_001.0;
        assert!(mean.abs() < 0.2 && (8.0..10.0).contains(&variance), "{mean} {variance}");
        assert_ne!(row, logits.row(1));
    }
}

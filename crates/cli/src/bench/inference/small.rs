//! Small models whose mass is known: letters from a Markov chain, under a pattern and a critic.
//!
//! The truth is summed over every text, by code that shares nothing with the potentials but the
//! chain's probabilities and the pattern's automaton.

use std::sync::Arc;

use lockstep::control::potential::{Claims, FromSequences, SequencePotential, Words};
use lockstep::control::{BoolFsa, Coerced, ControlError, Potential};
use lockstep::engine::TokenId;
use lockstep::engine::vocab::{TokenEntry, Vocabulary};
use lockstep::grammar::{Dfa, StateId};
use lockstep::sample::{DrawKey, EosSet, ProblemKey, math};
use rayon::prelude::*;

use super::plan::{Distribution, Outcome, PLANS, Plan, Score, Target, Truth};
use crate::error::CliError;

/// Numbers of particles.
pub(super) const PARTICLES: [usize; 3] = [4, 16, 64];

const LETTERS: [u8; 4] = *b"abcd";

/// Letters of every text.
const LENGTH: usize = 10;

/// A small problem.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// What it is, for the table.
    pub(super) about: &'static str,
    seed: u64,
    /// Factors on the chain's odds of each letter and the end, wherever it is.
    odds: [f64; 5],
    pattern: &'static str,
    words: &'static [(&'static str, f64)],
    statistic: fn(&str) -> String,
}

fn first_letter(text: &str) -> String {
    text.chars().take(1).collect()
}

fn count_of_a(text: &str) -> String {
    text.matches('a').count().to_string()
}

fn count_of_ab(text: &str) -> String {
    text.matches("ab").count().to_string()
}

/// The problems.
pub(super) const CASES: [Case; 4] = [
    Case {
        name: "free",
        about: "any ten letters: the pattern forbids the end until then and nothing else",
        seed: 1,
        odds: [1.0, 1.0, 1.0, 1.0, 0.1],
        pattern: "[abcd]{10}",
        words: &[],
        statistic: count_of_a,
    },
    Case {
        name: "steady",
        about: "ten letters, a or b: at every step a part of the mass is forbidden, which part depends on the last letter",
        seed: 2,
        odds: [1.0, 1.0, 1.0, 1.0, 0.1],
        pattern: "[ab]{10}",
        words: &[],
        statistic: count_of_a,
    },
    Case {
        name: "late",
        about: "a first letter that is likely, and all but forbidden by what must follow at the end",
        seed: 3,
        odds: [4.0, 1.0, 1.0, 0.05, 0.1],
        pattern: "a[abc]{8}d|[bc][abcd]{9}",
        words: &[],
        statistic: first_letter,
    },
    Case {
        name: "critic",
        about: "any ten letters, with 1.5 nats for each ab and -1 for each c",
        seed: 4,
        odds: [1.0, 1.0, 1.0, 1.0, 0.1],
        pattern: "[abcd]{10}",
        words: &[("ab", 1.5), ("c", -1.0)],
        statistic: count_of_ab,
    },
];

/// A Markov chain over letters.
struct Chain {
    vocab: Arc<Vocabulary>,
    /// Log-probabilities of the letters and the end, at the start and after each letter.
    log_p: [[f64; 5]; 5],
}

impl Chain {
    fn new(seed: u64, odds: &[f64; 5]) -> Result<Self, CliError> {
        let tokens = LETTERS.map(|letter| TokenEntry { bytes: vec![letter], special: false });
        let vocab = Vocabulary::new(tokens.to_vec(), EosSet::new([])).map_err(CliError::failed)?;
        let key = DrawKey::new(ProblemKey::new(seed, 0), 0, 0, 0);
        let log_p = [0, 1, 2, 3, 4].map(|from| {
            // Odds between e^-1.5 and e^1.5, times those of the case.
            let weights: [f64; 5] = [0, 1, 2, 3, 4].map(|to| {
                let uniform = key.uniform((5 * from + to) as u32);
                math::ln(odds[to]) + 3.0 * uniform - 1.5
            });
            let total = math::log_sum_exp(&weights);
            weights.map(|weight| weight - total)
        });
        Ok(Self { vocab, log_p })
    }

    /// The row of log-probabilities after a text.
    fn row(&self, last: Option<usize>) -> &[f64; 5] {
        &self.log_p[last.map_or(0, |last| last + 1)]
    }
}

impl SequencePotential for Chain {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        Claims { tight: true, mass_exact: true, monotone: true, ..Claims::default() }
    }

    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        let mut last = None;
        let mut sum = 0.0;
        for token in context {
            sum += self.row(last)[token.index()];
            last = Some(token.index());
        }
        Ok(sum)
    }

    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok(self.prefix(context)? + self.row(context.last().map(|token| token.index()))[4])
    }
}

impl Case {
    /// The truth, and the scores of every way at every number of particles.
    pub(super) fn scores(&self, runs: u64) -> Result<(Truth, Vec<Score>), CliError> {
        let (truth, target) = self.target()?;
        let statistic = |context: &[TokenId]| {
            let letters = context.iter().filter(|token| !token.is_eos());
            let text: String = letters.map(|token| char::from(LETTERS[token.index()])).collect();
            (self.statistic)(&text)
        };
        let mut scores = Vec::new();
        for plan in &PLANS {
            for n in PARTICLES {
                let outcomes = outcomes(plan, &target, n, runs)?;
                let readings = plan.readings.iter();
                scores.extend(readings.map(|reading| Score::new(reading, &truth, &outcomes, &statistic)));
            }
        }
        Ok((truth, scores))
    }

    fn target(&self) -> Result<(Truth, Target), CliError> {
        let chain = Chain::new(self.seed, &self.odds)?;
        let vocab = Arc::clone(&chain.vocab);
        let fsa = BoolFsa::from_regex(self.pattern).map_err(CliError::failed)?;
        let truth = self.truth(&chain, fsa.automaton().expect("a BoolFsa is an automaton"));
        let critic = match self.words {
            [] => None,
            words => Some(Arc::new(Words::new(Arc::clone(&vocab), words)?) as Arc<dyn Potential>),
        };
        let target = Target {
            model: Arc::new(FromSequences::new(chain)),
            condition: Arc::new(Coerced::new(Arc::new(fsa), vocab)?),
            critic,
            max_tokens: LENGTH + 1,
        };
        Ok((truth, target))
    }

    /// Sums over every text.
    fn truth(&self, chain: &Chain, pattern: &Dfa) -> Truth {
        let mut masses = Distribution::new();
        self.walk(chain, pattern, pattern.start(), &mut Vec::new(), 0.0, &mut masses);
        let total: f64 = masses.values().sum();
        masses.values_mut().for_each(|mass| *mass /= total);
        Truth { log_z: math::ln(total), distribution: masses }
    }

    /// Adds the mass of every text that goes on from `text`, by the text's statistic.
    fn walk(
        &self,
        chain: &Chain,
        pattern: &Dfa,
        state: StateId,
        text: &mut Vec<u8>,
        log_p: f64,
        masses: &mut Distribution,
    ) {
        let last = text.last().and_then(|last| LETTERS.iter().position(|letter| letter == last));
        let row = chain.row(last);
        if pattern.is_final(state) {
            let text: String = text.iter().copied().map(char::from).collect();
            let nats: f64 =
                self.words.iter().map(|(word, nats)| nats * text.matches(word).count() as f64).sum();
            *masses.entry((self.statistic)(&text)).or_default() += math::exp(log_p + row[4] + nats);
        }
        for (letter, log_next) in LETTERS.into_iter().zip(row) {
            if let Some(next) = pattern.next(state, letter) {
                text.push(letter);
                self.walk(chain, pattern, next, text, log_p + log_next, masses);
                text.pop();
            }
        }
    }
}

fn outcomes(plan: &Plan, target: &Target, n: usize, runs: u64) -> Result<Vec<Outcome>, CliError> {
    (0..runs).into_par_iter().map(|run| plan.run(target, n, run)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of 200 estimates lies within 5 standard errors of the truth; seeds are fixed, and
    /// for new ones a false alarm in any of the 32 would have odds of 1 in 50,000 if the estimates
    /// were normal.
    #[test]
    fn every_way_estimates_the_mass_that_enumeration_gives() {
        const RUNS: u64 = 200;
        for case in &CASES {
            let (truth, target) = case.target().unwrap();
            assert!((truth.distribution.values().sum::<f64>() - 1.0).abs() < 1e-12);
            for plan in &PLANS {
                let outcomes = outcomes(plan, &target, 16, RUNS).unwrap();
                let ratios = outcomes.iter().map(|run| math::exp(run.sequences.log_ml() - truth.log_z));
                let ratios: Vec<f64> = ratios.collect();
                let mean = ratios.iter().sum::<f64>() / RUNS as f64;
                let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / RUNS as f64;
                let error = (variance / RUNS as f64).sqrt();
                assert!((mean - 1.0).abs() < 5.0 * error, "{} {plan:?}: {mean} +- {error}", case.name);
            }
        }
    }
}

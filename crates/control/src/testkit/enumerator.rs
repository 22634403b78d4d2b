//! A chooser that visits every leaf of a tree of random choices.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockstep_sample::{DrawKey, DrawMethod, Drawn, TokenId, math};

use crate::chooser::Chooser;
use crate::potential::Row;
use crate::resampling::{Resampling, copies_and_fractions};

/// Replays a program once for every possible outcome of its random choices, depth first.
///
/// ```
/// use lockstep_control::testkit::Enumerator;
///
/// let enumerator = Enumerator::default();
/// let mut total = 0.0;
/// loop {
///     let mut choices = enumerator.start();
///     let (first, second) = (choices.choose(&[0.2_f64.ln(), 0.8_f64.ln()]), choices.choose(&[0.0, 0.0]));
///     total += enumerator.log_probability().exp() * (first * 10 + second) as f64;
///     if !enumerator.next_leaf() {
///         break;
///     }
/// }
/// assert!((total - 8.5).abs() < 1e-12);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Enumerator {
    path: Arc<Mutex<Path>>,
}

#[derive(Debug, Default)]
struct Path {
    choices: Vec<Choice>,
    /// Choices replayed in this run.
    at: usize,
}

#[derive(Debug)]
struct Choice {
    /// The live options and their log-probabilities.
    options: Vec<(usize, f64)>,
    taken: usize,
}

impl Enumerator {
    /// Begins the run of the next leaf.
    #[must_use]
    pub fn start(&self) -> Self {
        self.lock().at = 0;
        self.clone()
    }

    /// The log-probability of the choices made in this run.
    #[must_use]
    pub fn log_probability(&self) -> f64 {
        self.lock().choices.iter().map(|choice| choice.options[choice.taken].1).sum()
    }

    /// Moves to the next leaf; false if all have been visited.
    #[must_use]
    pub fn next_leaf(&self) -> bool {
        let mut path = self.lock();
        while let Some(last) = path.choices.last_mut() {
            last.taken += 1;
            if last.taken < last.options.len() {
                return true;
            }
            path.choices.pop();
        }
        false
    }

    /// One choice in proportion to `exp(log_weights)`.
    ///
    /// # Panics
    /// If nothing is live.
    pub fn choose(&mut self, log_weights: &[f64]) -> usize {
        let mut path = self.lock();
        let at = path.at;
        path.at += 1;
        if at == path.choices.len() {
            let total = math::log_sum_exp(log_weights);
            let live = log_weights.iter().enumerate().filter(|(_, w)| **w > f64::NEG_INFINITY);
            let options: Vec<(usize, f64)> = live.map(|(i, w)| (i, w - total)).collect();
            assert!(!options.is_empty(), "a choice needs a live option");
            path.choices.push(Choice { options, taken: 0 });
        }
        let choice = &path.choices[at];
        choice.options[choice.taken].0
    }

    /// A uniform number up to what it decides: the middle of one of the intervals between `cuts`.
    fn uniform(&mut self, mut cuts: Vec<f64>) -> f64 {
        cuts.retain(|cut| *cut > 0.0 && *cut < 1.0);
        cuts.extend([0.0, 1.0]);
        cuts.sort_by(f64::total_cmp);
        // What lies closer together than this is one number and rounding.
        cuts.dedup_by(|b, a| *b - *a < 1e-12);
        let widths: Vec<f64> = cuts.windows(2).map(|pair| math::ln(pair[1] - pair[0])).collect();
        let i = self.choose(&widths);
        f64::midpoint(cuts[i], cuts[i + 1])
    }

    fn lock(&self) -> MutexGuard<'_, Path> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the ancestors change as the uniform at `position` grows; some of it may lie outside (0, 1).
fn cuts(scheme: Resampling, weights: &[f64], position: u32) -> Vec<f64> {
    let fractions;
    let (weights, n) = match scheme {
        Resampling::Residual => {
            fractions = copies_and_fractions(weights).1;
            (&fractions[..], 1.0)
        }
        Resampling::Multinomial => (weights, 1.0),
        Resampling::Stratified | Resampling::Systematic => (weights, weights.len() as f64),
    };
    let total: f64 = weights.iter().sum();
    let ends = weights.iter().scan(0.0, |sum, weight| {
        *sum += weight / total;
        Some(*sum * n)
    });
    match scheme {
        Resampling::Systematic => ends.map(f64::fract).collect(),
        Resampling::Stratified => ends.map(|end| end - f64::from(position)).collect(),
        Resampling::Multinomial | Resampling::Residual => ends.collect(),
    }
}

impl Chooser for Enumerator {
    fn keyed(&self) -> Option<DrawMethod> {
        None
    }

    fn draw(&mut self, row: &Row, eos_position: usize, _key: &DrawKey) -> Option<Drawn> {
        let entries = row.entries();
        let log_mass = row.log_total();
        if log_mass == f64::NEG_INFINITY {
            return None;
        }
        let index = self.choose(entries.log_weights());
        let position = entries.position(index);
        let token =
            if position == eos_position { TokenId::EOS } else { TokenId(u32::try_from(position).ok()?) };
        Some(Drawn { token, log_mass, logp: entries.log_weights()[index] - log_mass })
    }

    fn ancestors(&mut self, scheme: Resampling, weights: &[f64], key: &DrawKey) -> Vec<usize> {
        if scheme == Resampling::Multinomial {
            let mut ancestors = self.picks(weights, weights.len(), key);
            ancestors.sort_unstable();
            return ancestors;
        }
        scheme.ancestors(weights, &mut |position| self.uniform(cuts(scheme, weights, position)))
    }

    fn picks(&mut self, weights: &[f64], n: usize, _key: &DrawKey) -> Vec<usize> {
        let log_weights: Vec<f64> = weights.iter().map(|w| math::ln(*w)).collect();
        (0..n).map(|_| self.choose(&log_weights)).collect()
    }
}

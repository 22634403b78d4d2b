//! The mass of a row that a walk has not taken away yet.

use lockstep_sample::math;

/// The mass left is the difference of a sum and what was taken off it since, down to this share of
/// the sum. Below, the difference would lose digits, and what is left is summed itself.
const DIRECT_SUM_BELOW: f64 = 1.0 / 1024.0;

/// A row of probabilities from which candidates are removed one by one.
#[derive(Clone, Debug)]
pub(super) struct Remaining<'a> {
    log_weights: &'a [f64],
    log_z: f64,
    removed: Vec<usize>,
    removed_mass: CompensatedSum,
    /// The log of the mass left when it was last summed itself, and the share of it removed since.
    log_sum: f64,
    removed_since: CompensatedSum,
}

impl<'a> Remaining<'a> {
    /// All of a row whose log-sum-exp is `log_z`.
    pub(super) fn new(log_weights: &'a [f64], log_z: f64) -> Self {
        Self {
            log_weights,
            log_z,
            removed: Vec::new(),
            removed_mass: CompensatedSum::default(),
            log_sum: 0.0,
            removed_since: CompensatedSum::default(),
        }
    }

    /// The log-probability of a candidate, removed or not.
    pub(super) fn log_p(&self, index: usize) -> f64 {
        self.log_weights[index] - self.log_z
    }

    /// Takes a candidate away, once.
    pub(super) fn remove(&mut self, index: usize) {
        let log_p = self.log_p(index);
        self.removed.push(index);
        self.removed_mass.add(math::exp(log_p));
        self.removed_since.add(math::exp(log_p - self.log_sum));
    }

    /// The candidate that was removed last.
    pub(super) fn last_removed(&self) -> Option<usize> {
        self.removed.last().copied()
    }

    /// The mass removed.
    pub(super) fn removed_mass(&self) -> f64 {
        self.removed_mass.total()
    }

    /// The log of the mass left. Costs a pass over the row if that is little, beside what was left
    /// at the last such pass.
    pub(super) fn log_mass(&mut self) -> f64 {
        let share = self.removed_since.complement();
        if share >= DIRECT_SUM_BELOW {
            return self.log_sum + math::ln(share);
        }
        let mut log_weights = self.log_weights.to_vec();
        for &index in &self.removed {
            log_weights[index] = f64::NEG_INFINITY;
        }
        self.log_sum = math::log_sum_exp(&log_weights) - self.log_z;
        self.removed_since = CompensatedSum::default();
        self.log_sum
    }
}

/// A sum of masses that keeps what each addition rounds off (Neumaier, 1974), so that its
/// complement has as many digits after a thousand probes as after one.
#[derive(Clone, Copy, Debug, Default)]
struct CompensatedSum {
    sum: f64,
    lost: f64,
}

impl CompensatedSum {
    fn add(&mut self, term: f64) {
        let sum = self.sum + term;
        self.lost += if self.sum >= term { (self.sum - sum) + term } else { (term - sum) + self.sum };
        self.sum = sum;
    }

    fn total(self) -> f64 {
        self.sum + self.lost
    }

    /// One minus the sum.
    fn complement(self) -> f64 {
        (1.0 - self.sum) - self.lost
    }
}

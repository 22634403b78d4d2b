//! Unbiased weights for rejection sampling without replacement: the walk of RAWRS-K.
//!
//! Candidates come one at a time, drawn without replacement by their probabilities `p`, and each is
//! accepted or rejected by a condition. A walk owns neither the order nor the condition: the caller
//! offers candidates in the order of the draw, with the condition's answers, until the walk is
//! done. Whether a probe is the final one is fixed by the probes before it, so answers may be
//! fetched ahead, in batches of any size, without changing the result.
//!
//! ```text
//! u = 1; s = 0; tok = none; rejects = 0; left = none
//! for t in order:
//!     final = t is the last token with mass  or  rejects == max_rejects − 1  or  left == 1
//!     a = accept(t)
//!     if final:  s += a ? u : 0;  if a and tok is none: tok = t;  stop
//!     if a:      s += p_t;  if tok is none: tok = t, left = K (from the next token on)
//!     else:      rejects += 1
//!     u −= p_t;  if left was already set before t: left −= 1
//! ```
//!
//! In words: the mass of every accepted probe counts, and the final probe stands for all mass `u`
//! not yet probed. Invariant: `E[s · 1{tok = t}] = p_t` for every accepted `t`, whatever K and
//! `max_rejects`; `s = 0` iff the returned token is rejected.
//!
//! [`FirstAccepted`] is the improper walk beside it: no weight, the first accepted candidate.

use lockstep_sample::math;

/// The mass not probed is the complement of the mass probed down to this size; below it that
/// difference would lose digits, and the unprobed mass is summed itself.
const DIRECT_SUM_BELOW: f64 = 1.0 / 1024.0;

/// Whether a walk wants another candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Offer the next candidate, if there is one.
    Continue,
    /// The outcome is fixed; candidates fetched ahead are not offered.
    Done,
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The first accepted candidate, else the last one tried, which was rejected; `None` if none
    /// was offered.
    pub index: Option<usize>,
    /// `ln s` in nats: the log-weight relative to the row's mass. `-inf` iff `index` is not an
    /// accepted candidate.
    pub log_s: f64,
}

/// The RAWRS-K walk over one row: first accepted candidate, weight from at most K further probes.
#[derive(Clone, Debug)]
pub struct RecursiveWalk<'a> {
    log_weights: &'a [f64],
    log_z: f64,
    further_probes: u32,
    max_rejects: Option<u64>,
    unoffered: usize,
    rejects: u64,
    left: Option<u32>,
    probed: Vec<usize>,
    probed_mass: CompensatedSum,
    accepted: Option<usize>,
    log_s: f64,
    done: bool,
}

impl<'a> RecursiveWalk<'a> {
    /// A walk over the live entries of `log_weights` (those above `-inf`; nats), whose
    /// log-sum-exp is `log_z`: candidate `i` has probability `exp(log_weights[i] − log_z)`.
    ///
    /// After the first acceptance it probes up to K = `max_accepts` − 1 further candidates; K = 1
    /// is RAWRS. It tries at most `max_rejects` candidates that are rejected; `None` is no limit.
    ///
    /// # Panics
    /// If `max_accepts` is below 2 or `max_rejects` is 0.
    #[must_use]
    pub fn new(max_accepts: u32, max_rejects: Option<u64>, log_weights: &'a [f64], log_z: f64) -> Self {
        assert!(max_accepts >= 2, "max_accepts must be at least 2");
        assert!(max_rejects != Some(0), "max_rejects must be at least 1");
        Self {
            log_weights,
            log_z,
            further_probes: max_accepts - 1,
            max_rejects,
            unoffered: log_weights.iter().filter(|&&w| w > f64::NEG_INFINITY).count(),
            rejects: 0,
            left: None,
            probed: Vec::new(),
            probed_mass: CompensatedSum::default(),
            accepted: None,
            log_s: f64::NEG_INFINITY,
            done: false,
        }
    }

    /// Takes the next candidate in the order of the draw (each at most once), and whether the
    /// condition accepts it. The last live candidate always ends the walk.
    ///
    /// # Panics
    /// If the walk is done, or the candidate's log-weight is `-inf`.
    pub fn offer(&mut self, index: usize, accepted: bool) -> Progress {
        assert!(!self.done, "the walk is done");
        assert!(self.log_weights[index] > f64::NEG_INFINITY, "candidate {index} has no mass");

        let is_last = self.unoffered == 1;
        let is_final =
            is_last || self.left == Some(1) || self.max_rejects.is_some_and(|max| self.rejects == max - 1);
        let log_p = self.log_weights[index] - self.log_z;
        if accepted {
            let log_mass = match (is_final, is_last) {
                // The last token with mass is all mass there is: its own, to the last bit.
                (false, _) | (true, true) => log_p,
                (true, false) => self.log_unprobed(),
            };
            self.log_s = log_add(self.log_s, log_mass);
        } else {
            self.rejects += 1;
        }
        self.left = match self.left {
            Some(left) => Some(left - 1),
            None => accepted.then_some(self.further_probes),
        };
        if accepted && self.accepted.is_none() {
            self.accepted = Some(index);
        }
        self.probed.push(index);
        self.probed_mass.add(math::exp(log_p));
        self.unoffered -= 1;
        self.done = is_final;
        if is_final { Progress::Done } else { Progress::Continue }
    }

    /// The result: what was found up to here, final once [`Self::offer`] answered
    /// [`Progress::Done`].
    #[must_use]
    pub fn outcome(self) -> Outcome {
        Outcome { index: self.accepted.or(self.probed.last().copied()), log_s: self.log_s }
    }

    /// `ln u`: the log of the mass not probed yet, relative to the row's mass. Costs a pass over
    /// the row if little is left, which happens at most once a walk: only a final probe asks.
    fn log_unprobed(&self) -> f64 {
        let unprobed = self.probed_mass.complement();
        if unprobed >= DIRECT_SUM_BELOW {
            return math::ln(unprobed);
        }
        let mut log_weights = self.log_weights.to_vec();
        for &index in &self.probed {
            log_weights[index] = f64::NEG_INFINITY;
        }
        math::log_sum_exp(&log_weights) - self.log_z
    }
}

/// The improper walk: the first accepted candidate with weight exactly 1.
#[derive(Clone, Debug)]
pub struct FirstAccepted {
    max_rejects: Option<u64>,
    rejects: u64,
    last: Option<usize>,
    accepted: bool,
}

impl FirstAccepted {
    /// A walk that ends with the first acceptance, or with `max_rejects` candidates rejected;
    /// `None` is no limit, so the order may run out before the walk is done.
    ///
    /// # Panics
    /// If `max_rejects` is 0.
    #[must_use]
    pub fn new(max_rejects: Option<u64>) -> Self {
        assert!(max_rejects != Some(0), "max_rejects must be at least 1");
        Self { max_rejects, rejects: 0, last: None, accepted: false }
    }

    /// Takes the next candidate in the order of the draw, and whether the condition accepts it.
    ///
    /// # Panics
    /// If the walk is done.
    pub fn offer(&mut self, index: usize, accepted: bool) -> Progress {
        assert!(!self.is_done(), "the walk is done");
        self.last = Some(index);
        self.accepted = accepted;
        self.rejects += u64::from(!accepted);
        if self.is_done() { Progress::Done } else { Progress::Continue }
    }

    /// The result: `log_s` is exactly 0 for an accepted candidate, else `-inf`.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        Outcome { index: self.last, log_s: if self.accepted { 0.0 } else { f64::NEG_INFINITY } }
    }

    fn is_done(&self) -> bool {
        self.accepted || self.max_rejects == Some(self.rejects)
    }
}

/// `ln(exp(a) + exp(b))`; exactly `b` if `a` is `-inf`.
fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + math::ln(1.0 + math::exp(low - high)) }
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

    /// One minus the sum.
    fn complement(self) -> f64 {
        (1.0 - self.sum) - self.lost
    }
}

#[cfg(test)]
mod tests;

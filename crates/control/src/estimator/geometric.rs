//! GAWRS: a sampler with replacement, rebuilt from orders without replacement.
//!
//! Drawing with replacement until A acceptances or R rejections, `s = min(A − 1, a) / (a + r − 1)`
//! of a acceptances and r rejections is unbiased (Girshick, Mosteller and Savage, 1946; of A
//! acceptances, Haldane, 1945). Draws of candidates known to be rejected need no probe: how many
//! come before the next other one is geometric.
//!
//! ```text
//! acc = rej = 0; u = 1; tok = first_rejected = none
//! repeat A times while rej < R:
//!     for t in a fresh order over tokens not yet rejected:
//!         if u < 1: rej += floor(ln U / ln(1 − u))
//!         if rej ≥ R: break
//!         if accept(t): acc += 1; tok ??= t; break
//!         rej += 1; first_rejected ??= t; u −= p_t; drop t
//! if acc == 0: return first_rejected, −inf
//! return tok, ln( min(A − 1, acc) / (acc + min(rej, R) − 1) )
//! ```
//!
//! It needs fewer probes than RAWRS-K where one accepted candidate has most of the mass, and its
//! weight varies more.

use std::collections::BTreeSet;

use lockstep_sample::math;

use super::remaining::Remaining;
use super::{Outcome, Progress};

/// Counts of rejections stay below this, so that no weight underflows.
const MOST_REJECTS: f64 = 1e300;

/// The GAWRS walk over one row.
#[derive(Clone, Debug)]
pub struct GeometricWalk<'a> {
    remaining: Remaining<'a>,
    rejected: BTreeSet<usize>,
    max_accepts: u32,
    max_rejects: f64,
    accepts: u32,
    rejects: f64,
    accepted: Option<usize>,
    first_rejected: Option<usize>,
    done: bool,
}

impl<'a> GeometricWalk<'a> {
    /// A walk over the live entries of `log_weights` (those above `-inf`; nats), whose
    /// log-sum-exp is `log_z`: candidate `i` has probability `exp(log_weights[i] − log_z)`.
    ///
    /// It ends with `max_accepts` acceptances or `max_rejects` rejections, repeats counted; `None`
    /// is no limit.
    ///
    /// # Panics
    /// If `max_accepts` or a given `max_rejects` is below 2.
    #[must_use]
    pub fn new(max_accepts: u32, max_rejects: Option<u64>, log_weights: &'a [f64], log_z: f64) -> Self {
        assert!(max_accepts >= 2, "max_accepts must be at least 2");
        assert!(max_rejects.is_none_or(|max| max >= 2), "max_rejects must be at least 2");
        Self {
            remaining: Remaining::new(log_weights, log_z),
            rejected: BTreeSet::new(),
            max_accepts,
            max_rejects: max_rejects.map_or(f64::INFINITY, |max| max as f64),
            accepts: 0,
            rejects: 0.0,
            accepted: None,
            first_rejected: None,
            done: false,
        }
    }

    /// Takes the next candidate in the order, and whether the condition accepts it. A candidate that
    /// was rejected is never offered again; an accepted one may be, in a later order.
    ///
    /// `uniform` gives a uniform number between 0 and 1. It is asked for one if any candidate has
    /// been rejected: that decides how many rejected draws come first.
    ///
    /// An order that ends before the walk is done has shown that nothing is accepted.
    ///
    /// # Panics
    /// If the walk is done, or the candidate's log-weight is `-inf`.
    pub fn offer(&mut self, index: usize, accepted: bool, uniform: impl FnOnce() -> f64) -> Progress {
        assert!(!self.done, "the walk is done");
        assert!(self.remaining.log_p(index) > f64::NEG_INFINITY, "candidate {index} has no mass");

        if self.first_rejected.is_some() {
            let repeats = (math::ln(uniform()) / self.log_rejected()).floor();
            self.rejects = (self.rejects + repeats).min(self.max_rejects.min(MOST_REJECTS));
            if self.is_out_of_rejects() {
                return Progress::Done;
            }
        }
        if accepted {
            self.accepts += 1;
            self.accepted.get_or_insert(index);
            self.done = self.accepts == self.max_accepts;
            return if self.done { Progress::Done } else { Progress::Restart };
        }
        self.rejects += 1.0;
        self.first_rejected.get_or_insert(index);
        self.remaining.remove(index);
        self.rejected.insert(index);
        if self.is_out_of_rejects() { Progress::Done } else { Progress::Continue }
    }

    /// Whether a candidate was offered and rejected, so that it is not to be offered again.
    #[must_use]
    pub fn is_rejected(&self, index: usize) -> bool {
        self.rejected.contains(&index)
    }

    /// The result: what was found up to here, final once [`Self::offer`] answered
    /// [`Progress::Done`] or an order ended.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        if self.accepted.is_none() {
            return Outcome { index: self.first_rejected, log_s: f64::NEG_INFINITY };
        }
        let counted = f64::from(self.accepts.min(self.max_accepts - 1));
        let draws = f64::from(self.accepts) + self.rejects.min(self.max_rejects) - 1.0;
        Outcome { index: self.accepted, log_s: math::ln(counted / draws) }
    }

    fn is_out_of_rejects(&mut self) -> bool {
        self.done = self.rejects >= self.max_rejects;
        self.done
    }

    /// `ln(1 − u)`: the log of the rejected mass.
    fn log_rejected(&mut self) -> f64 {
        let rejected = self.remaining.removed_mass();
        if rejected <= 0.5 { math::ln(rejected) } else { log_1p(-math::exp(self.remaining.log_mass())) }
    }
}

/// `ln(1 + x)` for `|x| < 1`, without losing the digits of a small x.
fn log_1p(x: f64) -> f64 {
    let rounded = 1.0 + x;
    // Both factors of the quotient suffer the same rounding of 1 + x.
    if rounded == 1.0 { x } else { math::ln(rounded) * (x / (rounded - 1.0)) }
}

//! RAWRS-K: rejection sampling without replacement, with further probes for the weight.
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
//! not yet probed. Whether a probe is the final one is fixed by the probes before it.

use lockstep_sample::math;

use super::remaining::Remaining;
use super::{Outcome, Progress};

/// The RAWRS-K walk over one row: first accepted candidate, weight from at most K further probes.
#[derive(Clone, Debug)]
pub struct RecursiveWalk<'a> {
    remaining: Remaining<'a>,
    further_probes: u32,
    max_rejects: Option<u64>,
    unoffered: usize,
    rejects: u64,
    left: Option<u32>,
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
            remaining: Remaining::new(log_weights, log_z),
            further_probes: max_accepts - 1,
            max_rejects,
            unoffered: log_weights.iter().filter(|&&w| w > f64::NEG_INFINITY).count(),
            rejects: 0,
            left: None,
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
        let log_p = self.remaining.log_p(index);
        assert!(log_p > f64::NEG_INFINITY, "candidate {index} has no mass");

        let is_last = self.unoffered == 1;
        let is_final =
            is_last || self.left == Some(1) || self.max_rejects.is_some_and(|max| self.rejects == max - 1);
        if accepted {
            let log_mass = match (is_final, is_last) {
                // The last token with mass is all mass there is: its own, to the last bit.
                (false, _) | (true, true) => log_p,
                (true, false) => self.remaining.log_mass(),
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
        self.remaining.remove(index);
        self.unoffered -= 1;
        self.done = is_final;
        if is_final { Progress::Done } else { Progress::Continue }
    }

    /// The most candidates that it may still want; `None` while nothing is accepted.
    pub(crate) fn candidates_left(&self) -> Option<usize> {
        self.left.map(|left| left as usize)
    }

    /// The result: what was found up to here, final once [`Self::offer`] answered
    /// [`Progress::Done`].
    #[must_use]
    pub fn outcome(self) -> Outcome {
        Outcome { index: self.accepted.or(self.remaining.last_removed()), log_s: self.log_s }
    }
}

/// `ln(exp(a) + exp(b))`; exactly `b` if `a` is `-inf`.
fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + math::ln(1.0 + math::exp(low - high)) }
}

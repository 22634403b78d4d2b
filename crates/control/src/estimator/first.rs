//! The improper walk.

use super::{Outcome, Progress};

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

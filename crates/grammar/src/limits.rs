//! How much memory and time a construction may take.
//!
//! A [`Budget`] goes through every stage. Memory is charged before it is allocated, and given back
//! when a stage's working set is dropped, so what is compared with the limit is the peak of an
//! estimate, not a sum over the stages.

use std::time::{Duration, Instant};

use crate::error::{RegexError, RegexErrorKind};

/// How much one construction may use before it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The most memory, in bytes, as estimated while building. Default 256 MiB.
    pub max_bytes: usize,
    /// The most wall time. Default 5 s. Parsing and Thompson's construction are not interrupted:
    /// their time is bounded through `max_bytes`, and compared with this limit afterwards.
    pub max_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 256 << 20, max_time: Duration::from_secs(5) }
    }
}

/// Steps between two looks at the clock.
const STEPS_PER_CHECK: u32 = 1024;

/// What is left of one construction's limits.
pub(crate) struct Budget {
    limits: Limits,
    started: Instant,
    used_bytes: usize,
    steps: u32,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: *limits, started: Instant::now(), used_bytes: 0, steps: 0 }
    }

    /// For what is known to be small.
    pub(crate) fn unlimited() -> Self {
        Self::new(&Limits { max_bytes: usize::MAX, max_time: Duration::MAX })
    }

    /// Takes `bytes` of the memory limit.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), RegexError> {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if self.used_bytes > self.limits.max_bytes { Err(self.too_large()) } else { Ok(()) }
    }

    /// Gives back what was charged and is no longer held.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes);
    }

    /// Bytes that may still be charged.
    pub(crate) fn remaining_bytes(&self) -> usize {
        self.limits.max_bytes.saturating_sub(self.used_bytes)
    }

    /// Counts one small unit of work, and looks at the clock now and then.
    pub(crate) fn step(&mut self) -> Result<(), RegexError> {
        self.steps += 1;
        if self.steps < STEPS_PER_CHECK {
            return Ok(());
        }
        self.check_time()
    }

    /// Looks at the clock now.
    pub(crate) fn check_time(&mut self) -> Result<(), RegexError> {
        self.steps = 0;
        if self.started.elapsed() < self.limits.max_time {
            return Ok(());
        }
        let message = format!(
            "building the automaton takes longer than max_time = {:?}; simplify the pattern or raise the limit",
            self.limits.max_time
        );
        Err(RegexError::new(RegexErrorKind::TooSlow, None, message))
    }

    /// The error of a construction that would not fit.
    pub(crate) fn too_large(&self) -> RegexError {
        let message = format!(
            "building the automaton takes more than max_bytes = {}; simplify the pattern or raise the limit",
            self.limits.max_bytes
        );
        RegexError::new(RegexErrorKind::TooLarge, None, message)
    }
}

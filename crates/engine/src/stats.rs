//! Counters of an engine.

use std::ops::Sub;
use std::time::Duration;

/// Counters since the engine started; they only rise. A window is the difference of two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Ticks: each serves every row that was ready with one draw pass.
    pub steps: u64,
    /// Calls of the model's forward. More than `steps` only if ready rows exceed one batch.
    pub forwards: u64,
    /// Rows served.
    pub rows: u64,
    /// Tokens fed to the model.
    pub tokens: u64,
    /// Draw passes: one for each step that had wishes to answer.
    pub draw_passes: u64,
    /// Times that a step began without a party that was still busy.
    pub straggler_waits: u64,
    /// Time inside the model's forward.
    pub forward_time: Duration,
    /// Time inside draw passes.
    pub draw_time: Duration,
    /// Time with nothing ready.
    pub idle_time: Duration,
}

impl Sub for Stats {
    type Output = Self;

    /// The window from `earlier` to `self`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            steps: self.steps - earlier.steps,
            forwards: self.forwards - earlier.forwards,
            rows: self.rows - earlier.rows,
            tokens: self.tokens - earlier.tokens,
            draw_passes: self.draw_passes - earlier.draw_passes,
            straggler_waits: self.straggler_waits - earlier.straggler_waits,
            forward_time: self.forward_time - earlier.forward_time,
            draw_time: self.draw_time - earlier.draw_time,
            idle_time: self.idle_time - earlier.idle_time,
        }
    }
}

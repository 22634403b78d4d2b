//! The progress line of a run, or of many.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockstep::control::Step;

/// One line on standard error, redrawn after each step; nothing if that is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    particles: usize,
}

impl Progress {
    pub(crate) fn new(particles: usize) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        Self { bar, particles }
    }

    pub(crate) fn step(&mut self, step: &Step, tokens: usize, elapsed: Duration) {
        let rate = tokens as f64 / elapsed.as_secs_f64();
        let resampled = if step.ancestors.is_some() { ", resampled" } else { "" };
        self.bar.set_message(format!(
            "step {}: {} of {} particles live, ESS {:.1}{resampled}, {rate:.0} tokens/s",
            step.number, step.live, self.particles, step.ess
        ));
        self.bar.tick();
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

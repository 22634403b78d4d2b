//! The progress line of a run, or of many.

use std::time::{Duration, Instant};

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

/// One line on standard error about many problems; nothing if that is no terminal.
pub(crate) struct CohortProgress {
    bar: ProgressBar,
    start: Instant,
    tokens: usize,
    failures: usize,
}

impl CohortProgress {
    /// Of `all` problems, `done` were solved before.
    pub(crate) fn new(all: usize, done: usize) -> Self {
        let target = ProgressDrawTarget::stderr();
        let bar = ProgressBar::with_draw_target(Some(all as u64), target).with_position(done as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} problems{msg}") {
            bar.set_style(style);
        }
        Self { bar, start: Instant::now(), tokens: 0, failures: 0 }
    }

    /// A step of one problem.
    pub(crate) fn step(&mut self, tokens: usize) {
        self.tokens += tokens;
        let rate = self.tokens as f64 / self.start.elapsed().as_secs_f64();
        let failed = match self.failures {
            0 => String::new(),
            n => format!(", {n} of them failed"),
        };
        self.bar.set_message(format!("{failed}, {rate:.0} tokens/s"));
    }

    pub(crate) fn solved(&mut self) {
        self.bar.inc(1);
    }

    pub(crate) fn failed(&mut self) {
        self.failures += 1;
        self.bar.inc(1);
    }

    /// Problems that failed.
    pub(crate) fn failures(&self) -> usize {
        self.failures
    }

    /// Does something that may write to the terminal, with the line out of the way.
    pub(crate) fn aside<T>(&self, call: impl FnOnce() -> T) -> T {
        self.bar.suspend(call)
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

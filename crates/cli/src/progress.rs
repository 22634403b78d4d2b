//! The progress line of many lines of work.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// One line on standard error about many problems; nothing if that is no terminal.
pub(crate) struct LinesProgress {
    bar: ProgressBar,
    start: Instant,
    tokens: usize,
    failures: usize,
}

impl LinesProgress {
    /// Of `all` lines, which are `what`, `done` were done before.
    pub(crate) fn new(what: &str, all: usize, done: usize) -> Self {
        let target = ProgressDrawTarget::stderr();
        let bar = ProgressBar::with_draw_target(Some(all as u64), target).with_position(done as u64);
        if let Ok(style) =
            ProgressStyle::with_template(&format!("{{bar:30}} {{pos}} of {{len}} {what}{{msg}}"))
        {
            bar.set_style(style);
        }
        Self { bar, start: Instant::now(), tokens: 0, failures: 0 }
    }

    /// One of them drew tokens.
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

    /// How many failed.
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

//! Counters of an engine.

use std::ops::{AddAssign, Sub};
use std::time::Duration;

/// Defines [`Stats`] and what is done to each of its fields alike.
macro_rules! counters {
    ($($(#[doc = $doc:literal])* $field:ident: $type:ty,)*) => {
        /// Counters since the engine started; they only rise. A window is the difference of two
        /// snapshots; windows may overlap and nest.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])* pub $field: $type,)*
        }

        impl Sub for Stats {
            type Output = Self;

            /// The window from `earlier` to `self`.
            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field - earlier.$field,)* }
            }
        }

        impl AddAssign for Stats {
            fn add_assign(&mut self, more: Self) {
                $(self.$field += more.$field;)*
            }
        }
    };
}

counters! {
    /// Ticks: each serves every row that was ready with one draw pass.
    steps: u64,
    /// Calls of the model's forward. More than `steps` only if ready rows exceed one batch.
    forwards: u64,
    /// Rows served, those of parties and generating ones.
    rows: u64,
    /// Tokens fed to the model.
    tokens: u64,
    /// Draw passes: one for each step that had wishes to answer or tokens to draw.
    draw_passes: u64,
    /// Times that a step began without a party, or a row's own code, that was still busy.
    straggler_waits: u64,
    /// Calls of samplers and processors that generating rows brought along.
    opaque_calls: u64,
    /// Prompt tokens that generating rows fed.
    prompt_tokens: u64,
    /// Prompt tokens that they did not have to feed.
    cached_tokens: u64,
    /// Tokens that generating rows drew.
    drawn_tokens: u64,
    /// Generating rows that drew an end or wrote a stop string.
    finished_stop: u64,
    /// Generating rows that drew as many tokens as they may.
    finished_length: u64,
    /// Generating rows that were cancelled.
    finished_cancelled: u64,
    /// Generating rows that failed.
    finished_error: u64,
    /// Time inside the model's forward.
    forward_time: Duration,
    /// The part of it that went to prompts of generating rows, by tokens.
    prefill_time: Duration,
    /// The part of it that went to the last tokens of generating rows, by tokens.
    decode_time: Duration,
    /// Time inside draw passes.
    draw_time: Duration,
    /// Time with nothing ready.
    idle_time: Duration,
}

impl Stats {
    /// Prompt tokens a second of prefill time; 0 if there was none.
    #[must_use]
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill_time)
    }

    /// Drawn tokens a second of decode time; 0 if there was none.
    #[must_use]
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.drawn_tokens, self.decode_time)
    }
}

fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_43_windows_nest_and_an_empty_one_is_zero() {
        let snapshot = |drawn, seconds| Stats {
            drawn_tokens: drawn,
            decode_time: Duration::from_secs(seconds),
            ..Stats::default()
        };
        let (start, inner, inner_end, end) =
            (snapshot(3, 1), snapshot(10, 2), snapshot(30, 4), snapshot(33, 7));
        assert_eq!((inner_end - inner).drawn_tokens, 20);
        assert_eq!((inner_end - inner).decode_tokens_per_second(), 10.0);
        assert_eq!(((end - start).drawn_tokens, (end - start).decode_tokens_per_second()), (30, 5.0));
        let empty = end - end;
        assert_eq!(empty, Stats::default());
        assert_eq!((empty.decode_tokens_per_second(), empty.prefill_tokens_per_second()), (0.0, 0.0));
        let mut sum = start;
        sum += end - start;
        assert_eq!(sum, end);
    }
}

//! How fast the model is, as far as the scheduler needs to know.

use std::collections::VecDeque;
use std::time::Duration;

/// Forwards that a median is taken of.
const RECENT: usize = 31;
const LONGEST_STRAGGLER_WAIT: Duration = Duration::from_millis(20);
/// Prompt tokens a step at least, however slow the model reads.
const LEAST_PREFILL: usize = 32;

/// Times of recent forwards.
#[derive(Debug, Default)]
pub(super) struct Pace {
    all: Recent,
    /// Of forwards without prompts.
    decode: Recent,
    /// Of a prompt's token, in forwards with prompts.
    prompt_token: Recent,
}

#[derive(Debug, Default)]
struct Recent(VecDeque<Duration>);

impl Recent {
    fn note(&mut self, time: Duration) {
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back(time);
    }

    fn median(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

impl Pace {
    /// A forward took `time`, with `prompt` of its tokens from prompts of generating rows and
    /// `others` not.
    pub(super) fn note(&mut self, time: Duration, prompt: usize, others: usize) {
        self.all.note(time);
        match (u32::try_from(prompt).unwrap_or(u32::MAX), others) {
            (0, _) => self.decode.note(time),
            (prompt, 0) => self.prompt_token.note(time / prompt),
            (prompt, _) => {
                let rest = time.saturating_sub(self.decode.median().unwrap_or_default());
                self.prompt_token.note(rest / prompt);
            }
        }
    }

    /// How long a forward waits for stragglers.
    pub(super) fn straggler_wait(&self) -> Duration {
        self.all.median().map_or(LONGEST_STRAGGLER_WAIT, |median| (median / 4).min(LONGEST_STRAGGLER_WAIT))
    }

    /// Prompt tokens that take about as long as two forwards without prompts.
    pub(super) fn prefill_tokens(&self) -> usize {
        let (Some(decode), Some(token)) = (self.decode.median(), self.prompt_token.median()) else {
            return LEAST_PREFILL;
        };
        let fits = 2 * decode.as_nanos() / token.as_nanos().max(1);
        usize::try_from(fits).unwrap_or(usize::MAX).max(LEAST_PREFILL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_get_the_time_of_two_decode_steps_and_at_least_32_tokens() {
        let mut pace = Pace::default();
        assert_eq!(pace.prefill_tokens(), 32);
        for _ in 0..5 {
            pace.note(Duration::from_millis(30), 0, 4);
        }
        assert_eq!(pace.prefill_tokens(), 32);
        // 100 tokens in 50 ms, be it beside four decoding rows or alone.
        pace.note(Duration::from_millis(80), 100, 4);
        assert_eq!(pace.prefill_tokens(), 120);
        pace.note(Duration::from_millis(50), 100, 0);
        assert_eq!(pace.prefill_tokens(), 120);
        for _ in 0..RECENT {
            pace.note(Duration::from_millis(1000), 100, 0);
        }
        assert_eq!(pace.prefill_tokens(), 32);
    }

    #[test]
    fn stragglers_get_a_quarter_of_the_median_and_20_ms_at_most() {
        let mut pace = Pace::default();
        assert_eq!(pace.straggler_wait(), Duration::from_millis(20));
        pace.note(Duration::from_millis(8), 0, 1);
        assert_eq!(pace.straggler_wait(), Duration::from_millis(2));
        for _ in 0..3 {
            pace.note(Duration::from_millis(800), 0, 1);
        }
        assert_eq!(pace.straggler_wait(), Duration::from_millis(20));
    }
}

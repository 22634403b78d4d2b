//! What a row has read and drawn, and the counts that penalties look at.
//!
//! A window is the last n tokens. Its counts follow the tokens as they come: one enters, one leaves,
//! O(1) a token whatever the window's size.
//!
//! Invariant: the counts of a window equal those of the last n tokens of the history.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::params::{SamplingParams, count};
use crate::token::TokenId;

/// The tokens of a row, prompt first, then drawn ones.
#[derive(Clone, Debug, Default)]
pub struct History {
    tokens: Vec<TokenId>,
    /// One for each size in use.
    windows: Vec<Window>,
}

#[derive(Clone, Debug)]
struct Window {
    size: usize,
    counts: Counts,
}

/// How often each id occurs; only ids that do are listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// In no particular order, but the same for the same changes.
    entries: Vec<(TokenId, u32)>,
    /// Where an id's entry is.
    slots: HashMap<TokenId, u32>,
}

impl History {
    /// The history of a row with these settings that has read `prompt` (all of it, cached parts
    /// included) and drawn nothing.
    #[must_use]
    pub fn new(params: &SamplingParams, prompt: &[TokenId]) -> Self {
        let mut history = Self::default();
        for (active, size) in [
            (params.repeats_cost(), params.repetition_context_size),
            (params.presence_penalty != 0.0, params.presence_context_size),
            (params.frequency_penalty != 0.0, params.frequency_context_size),
        ] {
            let size = count(size);
            if active && history.windows.iter().all(|window| window.size != size) {
                history.windows.push(Window { size, counts: Counts::default() });
            }
        }
        history.tokens.reserve(prompt.len());
        for &token in prompt {
            history.push(token);
        }
        history
    }

    /// Appends a drawn token.
    pub fn push(&mut self, token: TokenId) {
        for window in &mut self.windows {
            if window.size != 0
                && let Some(leaving) = self.tokens.len().checked_sub(window.size)
            {
                window.counts.remove(self.tokens[leaving]);
            }
            window.counts.add(token);
        }
        self.tokens.push(token);
    }

    /// All tokens, in order.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The counts of the last `size` tokens (all of them if 0): kept ones, or, for a size that the
    /// settings of [`History::new`] had no use for, counted now.
    pub(crate) fn counts(&self, size: usize) -> Cow<'_, Counts> {
        if let Some(window) = self.windows.iter().find(|window| window.size == size) {
            return Cow::Borrowed(&window.counts);
        }
        let start = if size == 0 { 0 } else { self.tokens.len().saturating_sub(size) };
        let mut counts = Counts::default();
        for &token in &self.tokens[start..] {
            counts.add(token);
        }
        Cow::Owned(counts)
    }
}

impl Counts {
    /// Every id that occurs, once, with its count.
    pub(crate) fn entries(&self) -> &[(TokenId, u32)] {
        &self.entries
    }

    fn add(&mut self, token: TokenId) {
        let slot = *self.slots.entry(token).or_insert(self.entries.len() as u32) as usize;
        match self.entries.get_mut(slot) {
            Some((_, count)) => *count += 1,
            None => self.entries.push((token, 1)),
        }
    }

    fn remove(&mut self, token: TokenId) {
        let slot = *self.slots.get(&token).expect("what leaves a window had entered it");
        let (_, count) = &mut self.entries[slot as usize];
        *count -= 1;
        if *count == 0 {
            self.slots.remove(&token);
            self.entries.swap_remove(slot as usize);
            if let Some((moved, _)) = self.entries.get(slot as usize) {
                self.slots.insert(*moved, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn sorted(counts: &Counts) -> Vec<(TokenId, u32)> {
        let mut entries = counts.entries().to_vec();
        entries.sort_unstable();
        entries
    }

    fn counted(tokens: &[TokenId]) -> Vec<(TokenId, u32)> {
        let mut counts = BTreeMap::new();
        for &token in tokens {
            *counts.entry(token).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    fn with_window(size: i64) -> SamplingParams {
        SamplingParams { presence_penalty: 1.0, presence_context_size: size, ..SamplingParams::default() }
    }

    proptest! {
        #[test]
        fn windows_count_the_last_tokens(
            tokens in prop::collection::vec(0u32..9, 0..80),
            prompt in 0usize..80,
            size in 0usize..30,
        ) {
            let tokens: Vec<TokenId> = tokens.into_iter().map(TokenId).collect();
            let (prompt, drawn) = tokens.split_at(prompt.min(tokens.len()));
            let mut history = History::new(&with_window(size as i64), prompt);
            for &token in drawn {
                history.push(token);
            }
            prop_assert_eq!(history.tokens(), &tokens[..]);
            prop_assert!(matches!(history.counts(size), Cow::Borrowed(_)));
            for size in [size, size + 1, 0] {
                let start = if size == 0 { 0 } else { tokens.len().saturating_sub(size) };
                prop_assert_eq!(sorted(&history.counts(size)), counted(&tokens[start..]));
            }
        }
    }

    #[test]
    fn b_20_windows_are_exact_at_their_edges() {
        for len in [19, 20, 21] {
            let tokens: Vec<TokenId> = (0..len).map(TokenId).collect();
            let history = History::new(&with_window(20), &tokens);
            let oldest = len.saturating_sub(20);
            assert_eq!(sorted(&history.counts(20)), counted(&tokens[oldest as usize..]), "{len} tokens");
        }
        let tokens: Vec<TokenId> = (0..500).map(|i| TokenId(i % 300)).collect();
        let history = History::new(&with_window(0), &tokens);
        assert_eq!(sorted(&history.counts(0)), counted(&tokens), "size 0 is the whole history");
    }

    #[test]
    fn a_row_without_penalties_keeps_no_window() {
        assert!(History::new(&SamplingParams::default(), &[TokenId(1)]).windows.is_empty());
    }
}

//! Preferences for words: so many nats for each time one occurs.
//!
//! `prefix(x) = complete(x) = Σ nats of the occurrences in the text of x`, at most the cap if there
//! is one. An automaton over bytes finds all words at once (Aho and Corasick, Communications of the
//! ACM 18, 1975), so a token costs its own bytes, however long the text is.

use std::collections::VecDeque;
use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use super::states::{Machine, States};
use super::{Claims, Cursor, Potential, Row, Run};
use crate::error::ControlError;

/// A sum of nats over the occurrences of words in a text, overlapping ones included. The letters A
/// to Z match in either case; words are found inside longer words and across tokens.
#[derive(Clone, Debug)]
pub struct Words {
    vocab: Arc<Vocabulary>,
    finder: Arc<Finder>,
    most: f64,
    cap: f64,
}

impl Words {
    /// `nats` for each occurrence of each word in texts of `vocab`'s tokens.
    ///
    /// # Errors
    /// If there are no words, one is empty or its nats are not finite.
    pub fn new<S: AsRef<str>>(vocab: Arc<Vocabulary>, words: &[(S, f64)]) -> Result<Self, ControlError> {
        if words.is_empty() {
            return Err(ControlError::argument("words: must be at least one"));
        }
        for (word, nats) in words {
            if word.as_ref().is_empty() {
                return Err(ControlError::argument("words: must not be empty"));
            }
            if !nats.is_finite() {
                let message = format!("words: the nats of `{}` must be finite", word.as_ref());
                return Err(ControlError::argument(message));
            }
        }
        let most = words.iter().map(|(_, nats)| *nats).fold(f64::NEG_INFINITY, f64::max);
        let finder =
            Arc::new(Finder::new(words.iter().map(|(word, nats)| (word.as_ref().as_bytes(), *nats))));
        Ok(Self { vocab, finder, most, cap: f64::INFINITY })
    }

    /// No text gets more than `occurrences` of the best word would. Default: no cap.
    ///
    /// # Errors
    /// If no word has positive nats.
    pub fn with_cap(mut self, occurrences: usize) -> Result<Self, ControlError> {
        if self.most <= 0.0 {
            return Err(ControlError::argument("words: a cap needs a word with positive nats"));
        }
        self.cap = occurrences as f64 * self.most;
        Ok(self)
    }

    /// The state and sum after `token`; `None` if it is no token of the vocabulary.
    fn read(&self, mut at: Place, token: TokenId) -> Option<Place> {
        if !self.vocab.is_member(token) {
            return None;
        }
        for byte in self.vocab.bytes_of(token) {
            at.state = self.finder.next[at.state as usize][usize::from(byte.to_ascii_lowercase())];
            at.sum += self.finder.nats[at.state as usize];
        }
        Some(at)
    }

    fn weight(&self, at: Place) -> f64 {
        at.sum.min(self.cap)
    }

    /// `logw_next` of `token`.
    fn next(&self, at: Place, token: TokenId) -> f64 {
        if token.is_eos() {
            return 0.0;
        }
        self.read(at, token).map_or(f64::NEG_INFINITY, |after| self.weight(after) - self.weight(at))
    }
}

impl Potential for Words {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        Claims { tight: true, ..Claims::default() }
    }

    fn open(&self, n: usize, _run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        Ok(States::open(self.clone(), Place::default(), n))
    }
}

impl Machine for Words {
    type State = Place;

    fn vocab(&self) -> &Vocabulary {
        &self.vocab
    }

    fn prefix(&self, at: &Place) -> f64 {
        self.weight(*at)
    }

    fn complete(&self, at: &Place) -> f64 {
        self.weight(*at)
    }

    fn step(&self, at: &Place, token: TokenId) -> Option<Place> {
        self.read(*at, token)
    }

    fn row(&self, at: &Place) -> Row {
        let weights = (0..self.vocab.row_len()).map(|position| self.next(*at, self.vocab.token_at(position)));
        Row::dense(weights.collect::<Vec<f64>>())
    }

    fn tokens(&self, at: &Place, tokens: &[TokenId]) -> Vec<f64> {
        tokens.iter().map(|token| self.next(*at, *token)).collect()
    }
}

/// What has been read: the longest beginning of a word that the text ends with, and the sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    state: u32,
    sum: f64,
}

/// Finds all words in one pass.
#[derive(Debug)]
struct Finder {
    next: Vec<[u32; 256]>,
    /// The nats of all words that end in a state.
    nats: Vec<f64>,
}

impl Finder {
    fn new<'a>(words: impl Iterator<Item = (&'a [u8], f64)>) -> Self {
        let (mut next, mut nats) = (vec![[0; 256]], vec![0.0]);
        for (word, weight) in words {
            let mut state = 0;
            for byte in word.to_ascii_lowercase() {
                let to = next[state][usize::from(byte)] as usize;
                state = if to > 0 {
                    to
                } else {
                    let new = nats.len();
                    next[state][usize::from(byte)] = u32::try_from(new).expect("words fit in memory");
                    next.push([0; 256]);
                    nats.push(0.0);
                    new
                };
            }
            nats[state] += weight;
        }
        // In order of depth: where a word cannot go on, its longest ending that begins one does.
        let mut fallback = vec![0; nats.len()];
        let mut queue: VecDeque<usize> =
            next[0].iter().filter(|to| **to > 0).map(|to| *to as usize).collect();
        while let Some(state) = queue.pop_front() {
            let other: usize = fallback[state];
            nats[state] += nats[other];
            let after_other = next[other];
            for (to, otherwise) in next[state].iter_mut().zip(after_other) {
                if *to == 0 {
                    *to = otherwise;
                } else {
                    fallback[*to as usize] = otherwise as usize;
                    queue.push_back(*to as usize);
                }
            }
        }
        Self { next, nats }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_engine::vocab::TokenEntry;
    use lockstep_sample::EosSet;

    use super::*;
    use crate::testkit::{Tolerance, assert_claims, assert_contract, assert_cursor, assert_soundness, words};

    fn vocab() -> Arc<Vocabulary> {
        let token = |bytes: &str, special| TokenEntry { bytes: bytes.into(), special };
        let ordinary = ["go", "od", "Good", "o", "d", " "].map(|bytes| token(bytes, false));
        let special = ["<|good|>", "</s>"].map(|bytes| token(bytes, true));
        Vocabulary::new([&ordinary[..], &special[..]].concat(), EosSet::new([7])).unwrap()
    }

    fn weight(words: &Words, text: &[u32]) -> f64 {
        let mut cursor = words.open(1, &Run::default()).unwrap();
        let tokens: Vec<TokenId> = text.iter().map(|id| TokenId(*id)).collect();
        let _ = cursor.advance(&[0], &[&tokens]);
        cursor.score(&[0]).remove(0).unwrap()
    }

    #[test]
    fn occurrences_are_counted_across_tokens_and_inside_words_in_either_case() {
        let of = Words::new(vocab(), &[("good", 1.5), ("OD", 0.25), ("ood o", -2.0)]).unwrap();
        assert_eq!(weight(&of, &[0, 1]), 1.75, "go|od");
        assert_eq!(weight(&of, &[2]), 1.75, "Good");
        assert_eq!(weight(&of, &[0, 0, 3, 4, 5, 3]), -0.25, "gogo|o|d| |o");
        assert_eq!(weight(&of, &[0, 4]), 0.25, "god");
        assert_eq!(weight(&of, &[6]), 0.0, "special tokens have no text");
        assert_eq!(weight(&of, &[7]), f64::NEG_INFINITY);
    }

    #[test]
    fn a_cap_bounds_the_sum() {
        let of = Words::new(vocab(), &[("good", 1.5), ("o", -0.5)]).unwrap().with_cap(2).unwrap();
        assert_eq!(weight(&of, &[2]), 0.5);
        assert_eq!(weight(&of, &[2; 9]), 3.0);
    }

    #[test]
    fn the_contract_holds() {
        let vocab = vocab();
        let symbols: Vec<TokenId> = (0..7).map(TokenId).collect();
        let of = Words::new(Arc::clone(&vocab), &[("good", 1.5), ("o", -0.5), ("d g", 0.25)]).unwrap();
        for of in [of.clone(), of.with_cap(1).unwrap()] {
            assert_contract(&of, &words(&symbols, 3), Tolerance::WEIGHTED);
            assert_soundness(&of, &symbols, 2);
            assert_claims(&of, &symbols, 2, 2, Tolerance::WEIGHTED);
            for seed in 0..4 {
                assert_cursor(&of, &symbols, 40, seed, Tolerance::WEIGHTED);
            }
        }
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for words in [&[][..], &[("", 1.0)], &[("a", f64::NAN)], &[("a", f64::INFINITY)]] {
            assert!(Words::new(vocab(), words).is_err(), "{words:?}");
        }
        assert!(Words::new(vocab(), &[("a", -1.0)]).unwrap().with_cap(3).is_err());
    }
}

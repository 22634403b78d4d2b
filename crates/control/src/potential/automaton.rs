//! A byte automaton read through a vocabulary, and its masks by state.
//!
//! With the 256 one-byte tokens this is the automaton itself; with a model's tokens it is its
//! coerced form. A mask costs one walk of the vocabulary's trie and is kept for its state, and for
//! all others that no token tells from it: in a long count (`.{1,500}`) that is nearly all of them.
//! What is known of an automaton and a vocabulary is shared by all who read one through the other,
//! and masks lie in one cache of the process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use lockstep_engine::vocab::{TokenTrie, Vocabulary};
use lockstep_grammar::{Dfa, StateId};
use lockstep_sample::{Bitset, TokenId};

use super::states::{Machine, MaskOf, States};
use super::walk::{Kinds, allow_readable};
use super::{Cursor, Row};
use crate::cache::Cache;
use crate::error::{ControlError, ErrorKind};

/// The bytes that the masks of all automata may take together: 20,000 masks of a vocabulary of
/// 50,000 tokens.
const MASK_BYTES: usize = 128 << 20;

/// The bytes that automata and what is known of them may take while nobody uses them.
const READING_BYTES: usize = 64 << 20;

/// Masks, by what decides them.
type Masks = Cache<MaskKey, Bitset>;

/// The reading, what its state is alike to, and whether the end is allowed.
type MaskKey = (u64, u32, bool);

static MASKS: LazyLock<Arc<Masks>> = LazyLock::new(|| Arc::new(Cache::new(MASK_BYTES)));

/// What decides a reading: the automaton and the tokens, by address, and where the end is in a row.
type ReadingKey = (usize, usize, usize, usize);

static READINGS: LazyLock<Cache<ReadingKey, Reading>> = LazyLock::new(|| Cache::new(READING_BYTES));

/// What is known of an automaton and the tokens that it reads, whoever reads them.
#[derive(Debug)]
struct Reading {
    /// Of its own among all readings of the process.
    number: u64,
    dfa: Arc<Dfa>,
    /// Keeps the trie's address from being used again, and nothing else of it.
    _trie: Weak<TokenTrie>,
    /// States from which tokens can reach acceptance; `None` if all can.
    live: Option<Bitset>,
    /// For each state a number that it shares with those which allow the same tokens, the end aside.
    alike: Vec<u32>,
}

/// A DFA over bytes, read token by token. Shared by all cursors over it.
#[derive(Clone, Debug)]
pub(crate) struct TokenAutomaton {
    reading: Arc<Reading>,
    vocab: Arc<Vocabulary>,
    masks: Arc<Masks>,
}

impl Reading {
    fn new(dfa: Arc<Dfa>, vocab: &Vocabulary) -> Result<Self, ControlError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let mut this = Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            dfa,
            _trie: Arc::downgrade(vocab.trie()),
            live: None,
            alike: Vec::new(),
        };
        if !this.bytes_suffice(vocab) {
            let live = this.token_live(vocab);
            if !live.contains(this.dfa.start().0 as usize) {
                return Err(ControlError::new(
                    ErrorKind::Vocabulary,
                    "the constraint accepts no text that the vocabulary's tokens can spell",
                ));
            }
            this.live = Some(live);
        }
        this.alike = match vocab.trie().longest() {
            // The masks of bytes are not worth telling states apart.
            0 | 1 => (0..).take(this.dfa.state_count()).collect(),
            longest => this.dfa.alike(longest, |state| this.is_live(state)),
        };
        Ok(this)
    }

    fn byte_len(&self) -> usize {
        self.dfa.byte_len()
            + self.alike.len() * size_of::<u32>()
            + self.live.as_ref().map_or(0, Bitset::byte_len)
    }

    /// Whether every state reaches acceptance by bytes that are tokens themselves. Then whatever
    /// bytes can complete, tokens can.
    fn bytes_suffice(&self, vocab: &Vocabulary) -> bool {
        let (bytes, missing): (Vec<u8>, Vec<u8>) =
            (0..=u8::MAX).partition(|byte| vocab.find(&[*byte]).is_some());
        let all = || (0..self.dfa.state_count()).filter_map(|state| u32::try_from(state).ok()).map(StateId);
        // Every state reaches acceptance by bytes; most automata and vocabularies miss none of them.
        if all().all(|state| missing.iter().all(|byte| self.dfa.next(state, *byte).is_none())) {
            return true;
        }
        let n = self.dfa.state_count();
        let mut sources = vec![Vec::new(); n];
        let mut accepting = Vec::new();
        let mut live = Bitset::new(n);
        for state in all() {
            for next in bytes.iter().filter_map(|byte| self.dfa.next(state, *byte)) {
                if sources[next.0 as usize].last() != Some(&state) {
                    sources[next.0 as usize].push(state);
                }
            }
            if self.dfa.is_final(state) {
                live.insert(state.0 as usize);
                accepting.push(state);
            }
        }
        spread(&mut live, accepting, &mut sources);
        live.count() == n
    }

    /// The states from which some sequence of tokens reaches acceptance.
    fn token_live(&self, vocab: &Vocabulary) -> Bitset {
        let n = self.dfa.state_count();
        let mut sources = vec![Vec::new(); n];
        let mut seen = Bitset::new(n);
        let mut queue = VecDeque::from([self.dfa.start()]);
        seen.insert(self.dfa.start().0 as usize);
        let mut live = Bitset::new(n);
        let mut accepting = Vec::new();
        while let Some(state) = queue.pop_front() {
            if self.dfa.is_final(state) {
                live.insert(state.0 as usize);
                accepting.push(state);
            }
            self.walk(vocab, state, |next, _| {
                if sources[next.0 as usize].last() != Some(&state) {
                    sources[next.0 as usize].push(state);
                }
                if !seen.contains(next.0 as usize) {
                    seen.insert(next.0 as usize);
                    queue.push_back(next);
                }
            });
        }
        spread(&mut live, accepting, &mut sources);
        live
    }

    fn walk(&self, vocab: &Vocabulary, state: StateId, mut visit: impl FnMut(StateId, TokenId)) {
        vocab.trie().walk(
            state,
            |state, byte| self.dfa.next(*state, byte),
            |state, token| visit(*state, token),
        );
    }

    fn is_live(&self, state: StateId) -> bool {
        self.live.as_ref().is_none_or(|live| live.contains(state.0 as usize))
    }
}

impl TokenAutomaton {
    /// `dfa`, read by nobody else.
    ///
    /// # Errors
    /// If no sequence of the vocabulary's tokens spells an accepted text.
    pub(crate) fn new(dfa: Arc<Dfa>, vocab: Arc<Vocabulary>) -> Result<Self, ControlError> {
        let reading = Arc::new(Reading::new(dfa, &vocab)?);
        Ok(Self { reading, vocab, masks: Arc::clone(&MASKS) })
    }

    /// `dfa`, with what is known of it from whoever has read it through this vocabulary before.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub(crate) fn shared(dfa: Arc<Dfa>, vocab: Arc<Vocabulary>) -> Result<Self, ControlError> {
        let key = (
            Arc::as_ptr(&dfa).addr(),
            Arc::as_ptr(vocab.trie()).addr(),
            vocab.eos_position(),
            vocab.row_len(),
        );
        let reading = match READINGS.find(&key) {
            Some(reading) => reading,
            None => {
                let reading = Arc::new(Reading::new(dfa, &vocab)?);
                let bytes = reading.byte_len();
                READINGS.insert(key, reading, bytes)
            }
        };
        Ok(Self { reading, vocab, masks: Arc::clone(&MASKS) })
    }

    /// The same automaton, with a cache of masks to itself that takes at most `bytes`.
    pub(crate) fn with_mask_bytes(&self, bytes: usize) -> Self {
        Self { masks: Arc::new(Cache::new(bytes)), ..self.clone() }
    }

    /// The bytes that the masks take which are kept where its own are.
    pub(crate) fn mask_bytes(&self) -> usize {
        self.masks.byte_len()
    }

    /// The tokens that it reads.
    pub(crate) fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    /// The state after `token`, if anything accepted is reachable from there. The end of sequence
    /// and special tokens lead nowhere.
    fn step(&self, state: StateId, token: TokenId) -> Option<StateId> {
        if !self.vocab.is_member(token) || self.vocab.is_special(token) {
            return None;
        }
        let end = self
            .vocab
            .bytes_of(token)
            .iter()
            .try_fold(state, |state, byte| self.reading.dfa.next(state, *byte))?;
        self.reading.is_live(end).then_some(end)
    }

    /// Whether `token` may follow `state`.
    fn allows(&self, state: StateId, token: TokenId) -> bool {
        if token.is_eos() { self.reading.dfa.is_final(state) } else { self.step(state, token).is_some() }
    }

    /// The allowed positions in `state`.
    pub(crate) fn mask(&self, state: StateId) -> Arc<Bitset> {
        let reading = &*self.reading;
        let key = (reading.number, reading.alike[state.0 as usize], reading.dfa.is_final(state));
        if let Some(mask) = self.masks.find(&key) {
            return mask;
        }
        let mut mask = Bitset::new(self.vocab.row_len());
        match &reading.live {
            None => {
                let states = Kinds { dfa: &reading.dfa, alike: &reading.alike };
                allow_readable(&states, self.vocab.trie(), state, &mut mask);
            }
            Some(live) => reading.walk(&self.vocab, state, |end, token| {
                if live.contains(end.0 as usize) {
                    mask.insert(token.index());
                }
            }),
        }
        if reading.dfa.is_final(state) {
            mask.insert(self.vocab.eos_position());
        }
        let bytes = mask.byte_len();
        self.masks.insert(key, Arc::new(mask), bytes)
    }

    /// A cursor of `n` empty sequences.
    pub(crate) fn open(self: &Arc<Self>, n: usize) -> Box<dyn Cursor> {
        States::open(Arc::clone(self), self.reading.dfa.start(), n)
    }
}

impl Machine for Arc<TokenAutomaton> {
    type State = StateId;

    const MASK: Option<MaskOf<Self>> = Some(|this, state| this.mask(*state));

    fn vocab(&self) -> &Vocabulary {
        &self.vocab
    }

    fn prefix(&self, _: &StateId) -> f64 {
        0.0
    }

    fn complete(&self, state: &StateId) -> f64 {
        if self.reading.dfa.is_final(*state) { 0.0 } else { f64::NEG_INFINITY }
    }

    fn step(&self, state: &StateId, token: TokenId) -> Option<StateId> {
        TokenAutomaton::step(self, *state, token)
    }

    fn row(&self, state: &StateId) -> Row {
        Row::bits(self.mask(*state))
    }

    fn tokens(&self, state: &StateId, tokens: &[TokenId]) -> Vec<f64> {
        let weight = |token: &TokenId| if self.allows(*state, *token) { 0.0 } else { f64::NEG_INFINITY };
        tokens.iter().map(weight).collect()
    }
}

/// Marks everything from which a state of `newly` is reached as live; `sources` are the moves,
/// backwards.
fn spread(live: &mut Bitset, mut newly: Vec<StateId>, sources: &mut [Vec<StateId>]) {
    while let Some(state) = newly.pop() {
        for source in std::mem::take(&mut sources[state.0 as usize]) {
            if !live.contains(source.0 as usize) {
                live.insert(source.0 as usize);
                newly.push(source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_engine::vocab::TokenEntry;
    use lockstep_grammar::RegexOptions;
    use lockstep_sample::EosSet;

    use super::*;

    #[test]
    fn potentials_31_a_cache_bound_changes_no_result() {
        let tokens = ["a", "b", "ab", "ba", "c", "abc", "</s>"];
        let tokens = tokens.map(|bytes| TokenEntry { bytes: bytes.into(), special: bytes.len() == 4 });
        let vocab = Vocabulary::new(tokens.to_vec(), EosSet::new([6])).unwrap();
        let dfa = Arc::new(Dfa::from_regex("(a|b){1,9}c?", &RegexOptions::default()).unwrap());
        let unbounded = TokenAutomaton::new(dfa, vocab).unwrap();
        // No mask, one, three: what is kept never passes the bound.
        for bytes in [0, 150, 400] {
            let bounded = unbounded.with_mask_bytes(bytes);
            for state in (0..unbounded.reading.dfa.state_count() as u32).chain([0, 3, 1]).map(StateId) {
                let held = bounded.mask(state);
                assert_eq!(held, unbounded.mask(state), "{bytes} bytes, {state:?}");
                assert!(bounded.mask_bytes() <= bytes);
            }
            assert_eq!(bounded.mask_bytes() > 0, bytes > 0);
        }
        assert!(Arc::ptr_eq(&unbounded.mask(StateId(0)), &unbounded.mask(StateId(0))));
    }

    #[test]
    fn states_that_no_token_tells_apart_share_a_mask() {
        let tokens = ["a", "b", "ab", "aaa", "!"];
        let tokens = tokens.map(|bytes| TokenEntry { bytes: bytes.into(), special: false });
        let vocab = Vocabulary::new(tokens.to_vec(), EosSet::new([])).unwrap();
        let dfa = Arc::new(Dfa::from_regex("[ab]{9,500}!", &RegexOptions::default()).unwrap());
        let automaton = TokenAutomaton::new(dfa, vocab).unwrap();
        let masks: Vec<_> = (0..502).map(|state| automaton.mask(StateId(state))).collect();
        // Only near the first `!` and near the last does the count matter to a token of 3 bytes.
        let n_distinct = (0..502).filter(|i| !masks[..*i].iter().any(|m| Arc::ptr_eq(m, &masks[*i]))).count();
        assert!(n_distinct < 20, "{n_distinct}");
        assert!(Arc::ptr_eq(&masks[20], &masks[400]));
        for (state, mask) in (0..).map(StateId).zip(&masks) {
            let allowed = |id| automaton.allows(state, TokenId(id));
            assert!((0..5).all(|id| mask.contains(id as usize) == allowed(id)), "{state:?}");
        }
    }
}

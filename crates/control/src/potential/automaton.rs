//! A byte automaton read through a vocabulary: masks by state, and the cursor that walks it.
//!
//! With the 256 one-byte tokens this is the automaton itself; with a model's tokens it is its
//! coerced form. A mask costs one walk of the vocabulary's trie and is kept in a cache that all
//! cursors over the automaton share: for its state, and for all others that no token tells from it.
//! In a long count (`.{1,500}`) that is nearly all of them.

use std::collections::VecDeque;
use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_grammar::{Dfa, StateId};
use lockstep_sample::{Bitset, TokenId};

use super::walk::{States, allow_readable};
use super::{Answer, Cursor, Row, RowResult, Status, Ticket, Want};
use crate::cache::Cache;
use crate::error::{ControlError, ErrorKind};

/// The bytes that an automaton's masks may take unless said otherwise: 10,000 states of a vocabulary
/// of 50,000 tokens.
pub(crate) const MASK_BYTES: usize = 64 << 20;

/// A DFA over bytes, read token by token. Shared by all cursors over it.
#[derive(Debug)]
pub(crate) struct TokenAutomaton {
    dfa: Arc<Dfa>,
    vocab: Arc<Vocabulary>,
    masks: Cache<MaskKey, Bitset>,
    /// States from which tokens can reach acceptance; `None` if all can.
    live: Option<Bitset>,
    /// For each state a number that it shares with those which allow the same tokens, the end aside.
    alike: Arc<[u32]>,
}

/// What decides a mask: the tokens, and whether the end is allowed.
type MaskKey = (u32, bool);

impl TokenAutomaton {
    /// # Errors
    /// If no sequence of the vocabulary's tokens spells an accepted text.
    pub(crate) fn new(dfa: Arc<Dfa>, vocab: Arc<Vocabulary>) -> Result<Self, ControlError> {
        let mut this = Self { dfa, vocab, masks: Cache::new(MASK_BYTES), live: None, alike: Arc::new([]) };
        if !this.bytes_suffice() {
            let live = this.token_live();
            if !live.contains(this.dfa.start().0 as usize) {
                return Err(ControlError::new(
                    ErrorKind::Vocabulary,
                    "the constraint accepts no text that the vocabulary's tokens can spell",
                ));
            }
            this.live = Some(live);
        }
        this.alike = this.dfa.alike(this.vocab.trie().longest(), |state| this.is_live(state)).into();
        Ok(this)
    }

    /// The same automaton, with a new cache of masks that takes at most `bytes`.
    pub(crate) fn with_mask_bytes(&self, bytes: usize) -> Self {
        Self {
            dfa: Arc::clone(&self.dfa),
            vocab: Arc::clone(&self.vocab),
            masks: Cache::new(bytes),
            live: self.live.clone(),
            alike: Arc::clone(&self.alike),
        }
    }

    /// The bytes that its kept masks take.
    pub(crate) fn mask_bytes(&self) -> usize {
        self.masks.byte_len()
    }

    /// The tokens that it reads.
    pub(crate) fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    /// Whether every state reaches acceptance by bytes that are tokens themselves. Then whatever
    /// bytes can complete, tokens can.
    fn bytes_suffice(&self) -> bool {
        let (bytes, missing): (Vec<u8>, Vec<u8>) =
            (0..=u8::MAX).partition(|byte| self.vocab.find(&[*byte]).is_some());
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
    fn token_live(&self) -> Bitset {
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
            self.walk(state, |next, _| {
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

    fn walk(&self, state: StateId, mut visit: impl FnMut(StateId, TokenId)) {
        self.vocab.trie().walk(
            state,
            |state, byte| self.dfa.next(*state, byte),
            |state, token| visit(*state, token),
        );
    }

    fn is_live(&self, state: StateId) -> bool {
        self.live.as_ref().is_none_or(|live| live.contains(state.0 as usize))
    }

    /// The state after `token`, if anything accepted is reachable from there. The end of sequence
    /// and special tokens lead nowhere.
    fn step(&self, state: StateId, token: TokenId) -> Option<StateId> {
        if !self.vocab.is_member(token) || self.vocab.is_special(token) {
            return None;
        }
        let end =
            self.vocab.bytes_of(token).iter().try_fold(state, |state, byte| self.dfa.next(state, *byte))?;
        self.is_live(end).then_some(end)
    }

    /// Whether `token` may follow `state`.
    fn allows(&self, state: StateId, token: TokenId) -> bool {
        if token.is_eos() { self.dfa.is_final(state) } else { self.step(state, token).is_some() }
    }

    /// The allowed positions in `state`.
    pub(crate) fn mask(&self, state: StateId) -> Arc<Bitset> {
        let key = (self.alike[state.0 as usize], self.dfa.is_final(state));
        if let Some(mask) = self.masks.find(key) {
            return mask;
        }
        let mut mask = Bitset::new(self.vocab.row_len());
        match &self.live {
            None => {
                let states = States { dfa: &self.dfa, alike: &self.alike };
                allow_readable(&states, self.vocab.trie(), state, &mut mask);
            }
            Some(live) => self.walk(state, |end, token| {
                if live.contains(end.0 as usize) {
                    mask.insert(token.index());
                }
            }),
        }
        if self.dfa.is_final(state) {
            mask.insert(self.vocab.eos_position());
        }
        let bytes = mask.byte_len();
        self.masks.insert(key, Arc::new(mask), bytes)
    }

    /// A cursor of `n` empty sequences.
    pub(crate) fn open(self: &Arc<Self>, n: usize) -> Box<dyn Cursor> {
        Box::new(AutomatonCursor {
            automaton: Arc::clone(self),
            rows: vec![State::Open(self.dfa.start()); n],
            nothing: Arc::new(Bitset::new(self.vocab.row_len())),
        })
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

#[derive(Clone, Copy, Debug)]
enum State {
    Open(StateId),
    Closed,
    Dead,
}

/// State ids in a column.
#[derive(Clone, Debug)]
struct AutomatonCursor {
    automaton: Arc<TokenAutomaton>,
    rows: Vec<State>,
    nothing: Arc<Bitset>,
}

impl AutomatonCursor {
    fn mask(&self, row: usize) -> Arc<Bitset> {
        match self.rows[row] {
            State::Open(state) => self.automaton.mask(state),
            State::Closed | State::Dead => Arc::clone(&self.nothing),
        }
    }

    fn answer(&self, row: usize, want: &Want, i: usize) -> RowResult<Answer> {
        if let State::Closed = self.rows[row] {
            return Err(super::closed());
        }
        Ok(match want {
            Want::Row => Answer::Row(Row::bits(self.mask(row))),
            Want::Hold => Answer::Held,
            Want::Tokens(tokens) => Answer::Tokens(
                tokens[i]
                    .iter()
                    .map(|token| match self.rows[row] {
                        State::Open(state) if self.automaton.allows(state, *token) => 0.0,
                        _ => f64::NEG_INFINITY,
                    })
                    .collect(),
            ),
            Want::Draw(draws) => Answer::Draw(Row::bits(self.mask(row)).draw(
                self.automaton.vocab.eos_position(),
                draws.masks.as_ref().map(|masks| &masks[i]),
                draws.method,
                &draws.keys[i],
            )),
        })
    }
}

impl Cursor for AutomatonCursor {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        Ticket::ready(rows.iter().enumerate().map(|(i, row)| self.answer(*row, &want, i)).collect())
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        Some(rows.iter().map(|row| self.mask(*row)).collect())
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let mut statuses = Vec::with_capacity(rows.len());
        for (&row, span) in rows.iter().zip(spans) {
            let mut status = Status::Live;
            for token in *span {
                self.rows[row] = match self.rows[row] {
                    State::Closed => {
                        status = Status::Failed(super::closed());
                        State::Closed
                    }
                    State::Dead => State::Dead,
                    State::Open(state) if token.is_eos() => {
                        if self.automaton.dfa.is_final(state) {
                            State::Closed
                        } else {
                            State::Dead
                        }
                    }
                    State::Open(state) => self.automaton.step(state, *token).map_or(State::Dead, State::Open),
                };
            }
            if matches!(self.rows[row], State::Dead) {
                status = Status::Dead;
            }
            statuses.push(status);
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let score = |row: &usize| match self.rows[*row] {
            State::Open(_) | State::Closed => Ok(0.0),
            State::Dead => Ok(f64::NEG_INFINITY),
        };
        rows.iter().map(score).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let complete = |row: &usize| match self.rows[*row] {
            State::Open(state) if self.automaton.dfa.is_final(state) => Ok(0.0),
            State::Closed => Err(super::closed()),
            State::Open(_) | State::Dead => Ok(f64::NEG_INFINITY),
        };
        rows.iter().map(complete).collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.rows = ancestors.iter().map(|ancestor| self.rows[*ancestor]).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        let mut copy = self.clone();
        copy.select(rows);
        Box::new(copy)
    }

    fn release(&mut self, rows: &[usize]) {
        for row in rows {
            self.rows[*row] = State::Dead;
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
            for state in (0..unbounded.dfa.state_count() as u32).chain([0, 3, 1]).map(StateId) {
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

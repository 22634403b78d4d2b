//! Minimal deterministic automata over bytes.
//!
//! Invariant: every state is reachable from the start and reaches acceptance, no two states accept
//! the same suffixes, and states and byte classes are numbered in breadth-first byte order. Hence
//! `alive(x) = exists y: accepts(x y)`, and two automata are equal values if and only if their
//! languages are equal.

use crate::alphabet::Alphabet;
use crate::error::RegexError;
use crate::limits::{Budget, Limits};
use crate::minimize::Arc;
use crate::syntax::RegexOptions;
use crate::{ahead, charset, nfa, partition, product, strings, subset, syntax};

/// A live state of a [`Dfa`]: an index below [`Dfa::state_count`]. The start is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct StateId(pub u32);

/// A missing transition.
pub(crate) const DEAD: u32 = u32::MAX;

/// A minimal deterministic automaton over bytes in which every state can reach acceptance.
///
/// Two automata are equal if and only if they accept the same language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dfa {
    classes: Alphabet,
    /// Row-major `[state_count, classes]`; [`DEAD`] where no completion is left.
    table: Vec<u32>,
    finals: Vec<bool>,
}

impl Dfa {
    /// The texts that `pattern` matches as a whole.
    ///
    /// Text is UTF-8 unless [`RegexOptions::unicode`] is off. `^ $ \A \z \b \B` and their variants
    /// are zero-width assertions; under a full match `$` means the very end, or before a line feed
    /// with `(?m)`. So are look-aheads, `(?=…)` and `(?!…)`, wherever no repetition repeats them: the
    /// rest of the text must, or must not, have a prefix that they match. A lone `(?R)` is read as
    /// recursion, not as a flag.
    ///
    /// # Errors
    /// A [`RegexError`] of any kind: the pattern is malformed, uses what is not supported, matches
    /// no text, or passes a limit of `options`.
    pub fn from_regex(pattern: &str, options: &RegexOptions) -> Result<Self, RegexError> {
        let mut budget = Budget::new(&options.limits);
        budget.check_time()?;
        let tree = syntax::parse(pattern, options.unicode, &mut budget)?;
        let nfa = nfa::Nfa::new(&tree.hir, &tree.aheads, &mut budget)?;
        budget.release(tree.bytes);
        drop(tree);
        let draft = if nfa.has_aheads {
            ahead::determinize(&nfa, &mut budget)?
        } else {
            subset::determinize(&nfa, &mut budget)?
        };
        budget.release(nfa.byte_len());
        drop(nfa);
        let dfa = draft.minimal(&mut budget)?;
        match &options.charset {
            Some(charset) => charset::restrict(&dfa, charset, &mut budget),
            None => Ok(dfa),
        }
    }

    /// The finite language of the given strings; order and repetition do not matter.
    ///
    /// # Errors
    /// `EmptyLanguage` if there are no strings, `TooLarge` or `TooSlow` past the default [`Limits`].
    pub fn from_strings<I, S>(strings: I) -> Result<Self, RegexError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<[u8]>,
    {
        let mut budget = Budget::new(&Limits::default());
        strings::trie(strings, &mut budget)?.minimal(&mut budget)
    }

    /// The texts that both automata accept: the exact product, minimal again.
    ///
    /// # Errors
    /// `EmptyLanguage` if no text is in both, `TooLarge` or `TooSlow` past `limits`.
    pub fn intersect(&self, other: &Self, limits: &Limits) -> Result<Self, RegexError> {
        let mut budget = Budget::new(limits);
        budget.check_time()?;
        product::intersection(self, other, &mut budget)?.minimal(&mut budget)
    }

    /// The state before the first byte.
    #[must_use]
    pub fn start(&self) -> StateId {
        StateId(0)
    }

    /// The state after `byte`, or `None` if no accepted text goes on this way. Constant time.
    ///
    /// # Panics
    /// If `state` is not a state of this automaton.
    #[inline]
    #[must_use]
    pub fn next(&self, state: StateId, byte: u8) -> Option<StateId> {
        let row = state.0 as usize * self.classes.len();
        let target = self.table[row + usize::from(self.classes.symbol(byte))];
        (target != DEAD).then_some(StateId(target))
    }

    /// Whether the text read up to `state` is accepted.
    ///
    /// # Panics
    /// If `state` is not a state of this automaton.
    #[inline]
    #[must_use]
    pub fn is_final(&self, state: StateId) -> bool {
        self.finals[state.0 as usize]
    }

    /// How many states there are, all of them live: at least one.
    #[must_use]
    pub fn state_count(&self) -> usize {
        self.finals.len()
    }

    /// Whether `text` as a whole is in the language.
    #[must_use]
    pub fn accepts(&self, text: &[u8]) -> bool {
        let end = text.iter().try_fold(self.start(), |state, &byte| self.next(state, byte));
        end.is_some_and(|state| self.is_final(state))
    }

    /// States by what can be read from them: two have equal numbers exactly if after every text of
    /// at most `depth` bytes both are dead, or both alive and in states of which `is_marked` says the
    /// same.
    #[must_use]
    pub fn alike(&self, depth: usize, is_marked: impl Fn(StateId) -> bool) -> Vec<u32> {
        let n_classes = self.classes.len();
        let mut arcs: Vec<Arc> = Vec::new();
        for (from, row) in (0..).zip(self.table.chunks_exact(n_classes)) {
            for (class, &to) in (0..=u8::MAX).zip(row) {
                match arcs.last_mut() {
                    Some(last) if (last.from, last.to, last.high) == (from, to, class.wrapping_sub(1)) => {
                        last.high = class;
                    }
                    _ if to != DEAD => arcs.push(Arc { from, low: class, high: class, to }),
                    _ => {}
                }
            }
        }
        let marks: Vec<bool> = (0..self.finals.len() as u32).map(|state| is_marked(StateId(state))).collect();
        let first = marks.iter().map(|mark| u32::from(*mark != marks[0])).collect();
        let mut budget = Budget::unlimited();
        let refined = partition::refine(&arcs, first, depth, &mut budget);
        refined.expect("no limit is exceeded where there is none").0
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        size_of::<Self>()
            + self.table.capacity() * size_of::<u32>()
            + self.finals.capacity()
            + self.classes.byte_len()
    }

    /// Assembles an automaton that already has the invariant of this module.
    pub(crate) fn from_parts(classes: Alphabet, table: Vec<u32>, finals: Vec<bool>) -> Self {
        debug_assert_eq!(table.len(), finals.len() * classes.len());
        Self { classes, table, finals }
    }

    pub(crate) fn classes(&self) -> &Alphabet {
        &self.classes
    }

    /// The automaton of a syntax tree of our own, whose size is known to be small.
    pub(crate) fn from_hir_unlimited(hir: &regex_syntax::hir::Hir) -> Result<Self, RegexError> {
        Self::from_hir(hir, &mut Budget::unlimited())
    }

    /// The automaton of a syntax tree of our own, which holds no captures.
    pub(crate) fn from_hir(hir: &regex_syntax::hir::Hir, budget: &mut Budget) -> Result<Self, RegexError> {
        let nfa = nfa::Nfa::new(hir, &[], budget)?;
        let draft = subset::determinize(&nfa, budget)?;
        draft.minimal(budget)
    }
}

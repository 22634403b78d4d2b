//! Determinisation by the subset construction, with threads that owe the answers of look-aheads.
//!
//! A thread is a state of the nondeterministic automaton, the condition under which it got there,
//! and its debts. A debt is the set of ways in which a look-ahead's body may still match: it is
//! paid, or the thread broken, as soon as some way has matched or none is left. Ways are threads
//! themselves, so bodies may hold look-aheads again. A text is accepted if some thread matches at
//! its end, and all that it owes comes out as wanted there.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::error::RegexError;
use crate::limits::Budget;
use crate::look::{Before, Condition, Tracker};
use crate::minimize::{Arc, Draft};
use crate::nfa::{Nfa, State};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Thread {
    state: u32,
    condition: Condition,
    /// Rising.
    debts: Vec<Debt>,
}

/// The outcome that a look-ahead must have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Debt {
    wanted: bool,
    /// Rising and not empty. None has matched with nothing left to keep.
    ways: Vec<Thread>,
}

impl Thread {
    fn at(state: u32) -> Self {
        Self { state, condition: Condition::NONE, debts: Vec::new() }
    }

    /// Its state and condition after `symbol`.
    fn moved(&self, nfa: &Nfa, symbol: u8) -> Move {
        let state = match nfa.state(self.state) {
            State::Read(arcs) => nfa.reads(arcs, symbol),
            // A body that has matched waits for what else it depends on.
            State::Match => Some(self.state),
            State::Free(_) | State::Look(..) | State::Ahead { .. } => None,
        };
        (state, self.condition.after(nfa.alphabet.representatives()[usize::from(symbol)]))
    }

    /// Takes on the debt of a look-ahead whose body may match in `ways`; false if it is broken
    /// already.
    fn owe(&mut self, nfa: &Nfa, wanted: bool, ways: Vec<Self>) -> bool {
        if ways.iter().any(|way| way.has_matched(nfa)) {
            return wanted;
        }
        if ways.is_empty() {
            return !wanted;
        }
        let debt = Debt { wanted, ways };
        if let Err(place) = self.debts.binary_search(&debt) {
            self.debts.insert(place, debt);
        }
        true
    }

    /// Whether a body has matched here, whatever follows.
    fn has_matched(&self, nfa: &Nfa) -> bool {
        matches!(nfa.state(self.state), State::Match)
            && self.condition == Condition::NONE
            && self.debts.is_empty()
    }

    /// Whether it matches if the text ends here.
    fn matches_at_end(&self, nfa: &Nfa) -> bool {
        let is_paid = |debt: &Debt| debt.ways.iter().any(|way| way.matches_at_end(nfa)) == debt.wanted;
        matches!(nfa.state(self.state), State::Match)
            && self.condition.allows_end()
            && self.debts.iter().all(is_paid)
    }

    /// Whether this thread lives whenever `other`, of the same state, does.
    fn covers(&self, other: &Self) -> bool {
        (self.condition == other.condition || self.condition == Condition::NONE)
            && self.debts.iter().all(|debt| other.debts.binary_search(debt).is_ok())
    }

    /// Whether a Unicode word assertion can still come.
    fn sees_words(&self, nfa: &Nfa) -> bool {
        nfa.sees_words(self.state) || self.ways().any(|way| way.sees_words(nfa))
    }

    fn ways(&self) -> impl Iterator<Item = &Self> {
        self.debts.iter().flat_map(|debt| &debt.ways)
    }

    fn byte_len(&self) -> usize {
        size_of::<Self>()
            + self.debts.len() * size_of::<Debt>()
            + self.ways().map(Self::byte_len).sum::<usize>()
    }
}

/// What identifies a deterministic state.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Subset {
    tracker: Tracker,
    is_final: bool,
    threads: Vec<Thread>,
}

/// Estimated bytes a subset takes beside its threads, in the table and in the queue.
const BYTES_PER_SUBSET: usize = 128;

/// The deterministic automaton of `nfa`, dead ends included.
pub(crate) fn determinize(nfa: &Nfa, budget: &mut Budget) -> Result<Draft, RegexError> {
    let mut subsets = Subsets {
        nfa,
        draft: Draft::new(nfa.alphabet.clone()),
        numbers: HashMap::new(),
        queue: Vec::new(),
        charged: 0,
    };
    let start = closure(nfa, vec![Thread::at(nfa.start)], Before::START, budget)?;
    subsets.intern(start, Tracker::OUTSIDE, budget)?;
    let mut done = 0;
    while done < subsets.queue.len() {
        budget.check_time()?;
        let subset = Rc::clone(&subsets.queue[done]);
        // Most symbols move all threads as another one does; stepping once for all of them is enough.
        let mut known: Vec<(Vec<Move>, Before, Tracker, Option<u32>)> = Vec::new();
        for (symbol, &byte) in nfa.alphabet.representatives().iter().enumerate() {
            let symbol = symbol as u8; // at most 256 symbols
            let (before, tracker) = nfa.context(subset.tracker, byte);
            let mut moves = Vec::new();
            list_moves(nfa, &subset.threads, symbol, &mut moves);
            budget.step()?;
            let same = known.iter().rev().find(|(m, b, t, _)| (b, t) == (&before, &tracker) && *m == moves);
            let to = match same {
                Some((.., to)) => *to,
                None => {
                    let threads = step(nfa, &subset.threads, symbol, before, budget)?;
                    let to = match threads.is_empty() {
                        true => None,
                        false => Some(subsets.intern(threads, tracker, budget)?),
                    };
                    known.push((moves, before, tracker, to));
                    to
                }
            };
            if let Some(to) = to {
                subsets.draft.add_arc(Arc { from: done as u32, low: symbol, high: symbol, to }, budget)?;
            }
        }
        done += 1;
    }
    budget.release(subsets.charged);
    Ok(subsets.draft)
}

/// Where a symbol leads a thread, if anywhere, and what is left of its condition.
type Move = (Option<u32>, Option<Condition>);

/// The moves of all threads under `symbol`, ways of debts included.
fn list_moves(nfa: &Nfa, threads: &[Thread], symbol: u8, moves: &mut Vec<Move>) {
    for thread in threads {
        moves.push(thread.moved(nfa, symbol));
        thread.debts.iter().for_each(|debt| list_moves(nfa, &debt.ways, symbol, moves));
    }
}

/// The subsets found so far, numbered in the order of their discovery.
struct Subsets<'a> {
    nfa: &'a Nfa,
    draft: Draft,
    numbers: HashMap<Rc<Subset>, u32>,
    queue: Vec<Rc<Subset>>,
    charged: usize,
}

impl Subsets<'_> {
    fn intern(
        &mut self,
        mut threads: Vec<Thread>,
        tracker: Tracker,
        budget: &mut Budget,
    ) -> Result<u32, RegexError> {
        let nfa = self.nfa;
        let is_final = threads.iter().any(|thread| thread.matches_at_end(nfa));
        // A full match reads no further.
        threads.retain(|thread| !matches!(nfa.state(thread.state), State::Match));
        // Half-read characters matter only to word assertions that are still to come.
        let watched = tracker != Tracker::OUTSIDE && threads.iter().any(|thread| thread.sees_words(nfa));
        let subset = Subset { tracker: if watched { tracker } else { Tracker::OUTSIDE }, is_final, threads };
        if let Some(&known) = self.numbers.get(&subset) {
            return Ok(known);
        }
        let bytes = BYTES_PER_SUBSET + subset.threads.iter().map(Thread::byte_len).sum::<usize>();
        budget.charge(bytes)?;
        self.charged += bytes;
        let number = self.draft.add_state(is_final, budget)?;
        let subset = Rc::new(subset);
        self.numbers.insert(Rc::clone(&subset), number);
        self.queue.push(subset);
        Ok(number)
    }
}

/// Where `threads` are after one more symbol, behind which stands `before`. Recurses as deep as
/// look-aheads are nested.
fn step(
    nfa: &Nfa,
    threads: &[Thread],
    symbol: u8,
    before: Before,
    budget: &mut Budget,
) -> Result<Vec<Thread>, RegexError> {
    let mut kernel = Vec::new();
    'threads: for thread in threads {
        budget.step()?;
        let (Some(state), Some(condition)) = thread.moved(nfa, symbol) else { continue };
        let mut next = Thread { state, condition, debts: Vec::with_capacity(thread.debts.len()) };
        for debt in &thread.debts {
            let ways = step(nfa, &debt.ways, symbol, before, budget)?;
            if !next.owe(nfa, debt.wanted, ways) {
                continue 'threads;
            }
        }
        kernel.push(next);
    }
    closure(nfa, kernel, before, budget)
}

/// The threads that `kernel` reaches without reading, at a position after `before`: rising, only
/// states that read or match.
fn closure(
    nfa: &Nfa,
    kernel: Vec<Thread>,
    before: Before,
    budget: &mut Budget,
) -> Result<Vec<Thread>, RegexError> {
    let mut pending = kernel;
    let mut entered = HashSet::new();
    let mut threads = Vec::new();
    while let Some(thread) = pending.pop() {
        budget.step()?;
        if entered.contains(&thread) {
            continue;
        }
        entered.insert(thread.clone());
        match nfa.state(thread.state) {
            State::Free(targets) => {
                let onward = |&state: &u32| Thread { state, ..thread.clone() };
                pending.extend(nfa.targets(targets).iter().map(onward));
            }
            State::Look(look, next) => {
                let condition = thread.condition.with(*look, before);
                pending.extend(condition.map(|condition| Thread { state: *next, condition, ..thread }));
            }
            State::Ahead { wanted, body, next } => {
                let ways = closure(nfa, vec![Thread::at(*body)], before, budget)?;
                let mut onward = Thread { state: *next, ..thread };
                if onward.owe(nfa, *wanted, ways) {
                    pending.push(onward);
                }
            }
            State::Read(_) | State::Match => threads.push(thread),
        }
    }
    threads.sort_unstable();
    // Within a state, what owes less comes first more often than not; a set is small.
    let mut kept: Vec<Thread> = Vec::with_capacity(threads.len());
    for thread in threads {
        let same = kept.iter().rev().take_while(|known| known.state == thread.state);
        if !same.into_iter().any(|known| known.covers(&thread)) {
            kept.push(thread);
        }
    }
    Ok(kept)
}

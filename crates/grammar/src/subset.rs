//! Determinisation by the subset construction.
//!
//! A state of the result is a set of threads: states of the nondeterministic automaton, each with
//! the condition under which it got there. A thread that breaks its condition is dropped, so a text
//! is accepted exactly if some thread matches with nothing left to keep. Patterns with look-aheads
//! go another way, see `ahead`.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use crate::error::RegexError;
use crate::limits::Budget;
use crate::look::{Before, Condition, Kind, Tracker};
use crate::minimize::{Arc, Draft};
use crate::nfa::{Nfa, State};

/// A state of the nondeterministic automaton and what it owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Thread {
    state: u32,
    condition: Condition,
}

impl Hash for Thread {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // One word, not one call a field: hashing subsets is much of the work.
        hasher.write_u64(u64::from(self.state) << 32 | u64::from(self.condition.bits()));
    }
}

/// What identifies a deterministic state.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Subset {
    tracker: Tracker,
    /// Rising, only states that read or match; a match owes nothing.
    threads: Vec<Thread>,
}

/// Estimated bytes a subset takes beside its threads, in the table and in the queue.
const BYTES_PER_SUBSET: usize = 120;

/// The deterministic automaton of `nfa`, dead ends included.
pub(crate) fn determinize(nfa: &Nfa, budget: &mut Budget) -> Result<Draft, RegexError> {
    let mut subsets = Subsets::new(nfa);
    let scratch_bytes = nfa.len() * size_of::<u32>();
    budget.charge(scratch_bytes)?;
    let start = Thread { state: nfa.start, condition: Condition::NONE };
    subsets.intern(&[start], Before::START, Tracker::OUTSIDE, budget)?;

    let bytes = nfa.alphabet.representatives();
    let mut buckets: Vec<Vec<Thread>> = vec![Vec::new(); bytes.len()];
    let mut done = 0;
    while done < subsets.queue.len() {
        budget.check_time()?;
        let subset = Rc::clone(&subsets.queue[done]);
        buckets.iter_mut().for_each(Vec::clear);
        for thread in &subset.threads {
            let State::Read(arcs) = nfa.state(thread.state) else { continue };
            for arc in nfa.arcs(arcs) {
                budget.step()?;
                for symbol in usize::from(arc.low)..=usize::from(arc.high) {
                    if let Some(condition) = thread.condition.after(bytes[symbol]) {
                        buckets[symbol].push(Thread { state: arc.to, condition });
                    }
                }
            }
        }
        // Neighbouring symbols often lead to the same threads; closing those once is enough.
        let mut last: Option<(usize, Before, Tracker, u32)> = None;
        for (symbol, &byte) in bytes.iter().enumerate() {
            if buckets[symbol].is_empty() {
                continue;
            }
            let (before, tracker) = nfa.context(subset.tracker, byte);
            let to = match last {
                Some((of, b, t, to)) if (b, t) == (before, tracker) && buckets[of] == buckets[symbol] => to,
                _ => subsets.intern(&buckets[symbol], before, tracker, budget)?,
            };
            last = Some((symbol, before, tracker, to));
            subsets.draft.add_arc(Arc { from: done as u32, symbol: symbol as u8, to }, budget)?;
        }
        done += 1;
    }
    budget.release(scratch_bytes + subsets.charged);
    Ok(subsets.draft)
}

impl Nfa {
    /// What the assertions need to know after `byte`; always the same where there are none.
    pub(crate) fn context(&self, tracker: Tracker, byte: u8) -> (Before, Tracker) {
        if !self.has_looks {
            return (Before::START, Tracker::OUTSIDE);
        }
        let (tracker, word_character) =
            if self.has_word_looks() { tracker.after(byte) } else { (tracker, false) };
        (Before { kind: Kind::of(byte), word_character }, tracker)
    }
}

/// The subsets found so far, numbered in the order of their discovery.
struct Subsets<'a> {
    nfa: &'a Nfa,
    draft: Draft,
    numbers: HashMap<Rc<Subset>, u32>,
    queue: Vec<Rc<Subset>>,
    charged: usize,
    // Scratch space of the closure.
    pending: Vec<Thread>,
    /// The round in which each state was last entered without a condition.
    entered: Vec<u32>,
    round: u32,
    entered_under: HashSet<Thread>,
}

impl<'a> Subsets<'a> {
    fn new(nfa: &'a Nfa) -> Self {
        Self {
            nfa,
            draft: Draft::new(nfa.alphabet.clone()),
            numbers: HashMap::new(),
            queue: Vec::new(),
            charged: 0,
            pending: Vec::new(),
            entered: vec![0; nfa.len()],
            round: 0,
            entered_under: HashSet::new(),
        }
    }

    /// The number of the subset that `kernel` grows into after `before`.
    fn intern(
        &mut self,
        kernel: &[Thread],
        before: Before,
        tracker: Tracker,
        budget: &mut Budget,
    ) -> Result<u32, RegexError> {
        let threads = self.closure(kernel, before, budget)?;
        let is_final = threads.iter().any(|thread| matches!(self.nfa.state(thread.state), State::Match));
        // Half-read characters matter only to word assertions that are still to come.
        let watched =
            tracker != Tracker::OUTSIDE && threads.iter().any(|thread| self.nfa.sees_words(thread.state));
        let subset = Subset { tracker: if watched { tracker } else { Tracker::OUTSIDE }, threads };
        if let Some(&known) = self.numbers.get(&subset) {
            return Ok(known);
        }
        let bytes = BYTES_PER_SUBSET + subset.threads.capacity() * size_of::<Thread>();
        budget.charge(bytes)?;
        self.charged += bytes;
        let number = self.draft.add_state(is_final, budget)?;
        let subset = Rc::new(subset);
        self.numbers.insert(Rc::clone(&subset), number);
        self.queue.push(subset);
        Ok(number)
    }

    /// The threads that `kernel` reaches without reading, at a position after `before`.
    fn closure(
        &mut self,
        kernel: &[Thread],
        before: Before,
        budget: &mut Budget,
    ) -> Result<Vec<Thread>, RegexError> {
        let Self { nfa, pending, entered, entered_under, .. } = self;
        // Rounds would have to outnumber the arcs of a draft to wrap around.
        self.round += 1;
        entered_under.clear();
        pending.extend_from_slice(kernel);
        let mut threads = Vec::new();
        while let Some(Thread { state, condition }) = pending.pop() {
            budget.step()?;
            let last_round = &mut entered[state as usize];
            if *last_round == self.round {
                continue; // entered without a condition: any other adds nothing
            }
            if condition == Condition::NONE {
                *last_round = self.round;
            } else if !entered_under.insert(Thread { state, condition }) {
                continue;
            }
            match nfa.state(state) {
                State::Free(targets) => {
                    let targets = nfa.targets(targets).iter();
                    pending.extend(targets.map(|&state| Thread { state, condition }));
                }
                State::Look(look, next) => {
                    let condition = condition.with(*look, before);
                    pending.extend(condition.map(|condition| Thread { state: *next, condition }));
                }
                State::Read(_) => threads.push(Thread { state, condition }),
                State::Match if condition.allows_end() => {
                    threads.push(Thread { state, condition: Condition::NONE });
                }
                State::Match => {}
                State::Ahead { .. } => unreachable!("look-aheads are determinised with their debts"),
            }
        }
        // Sorting puts the thread that owes nothing before those of its state that owe something.
        threads.sort_unstable();
        threads.dedup_by(|later, kept| {
            later.state == kept.state && (later == kept || kept.condition == Condition::NONE)
        });
        threads.shrink_to_fit();
        Ok(threads)
    }
}

//! Determinisation by the subset construction.
//!
//! A state of the result is a set of threads: states of the nondeterministic automaton, each with
//! the condition under which it got there. A thread that breaks its condition is dropped, so a text
//! is accepted exactly if some thread matches with nothing left to keep. Patterns with look-aheads
//! go another way, see `ahead`.
//!
//! Symbols are taken in stretches that no arc of the subset tells apart, so that a class of
//! characters costs as much as it has ranges, not as it has bytes.

use std::collections::HashSet;
use std::ops::Range;

use crate::error::RegexError;
use crate::interned::{Fold, Interned};
use crate::limits::Budget;
use crate::look::{Before, Condition, Kind, Tracker};
use crate::minimize::{Arc, Draft};
use crate::nfa::{Nfa, State};

/// A state of the nondeterministic automaton and what it owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Thread {
    state: u32,
    condition: Condition,
}

/// What identifies a deterministic state.
#[derive(Debug)]
struct Subset {
    tracker: Tracker,
    /// Rising, only states that read or match; a match owes nothing. Places of [`Subsets::threads`].
    threads: Range<usize>,
}

/// Estimated bytes a subset takes beside its threads.
const BYTES_PER_SUBSET: usize = size_of::<Subset>() + Interned::BYTES_EACH;

/// The deterministic automaton of `nfa`, dead ends included.
pub(crate) fn determinize(nfa: &Nfa, budget: &mut Budget) -> Result<Draft, RegexError> {
    let scratch_bytes = nfa.len() * 2 * size_of::<u32>();
    budget.charge(scratch_bytes)?;
    let mut subsets = Subsets::new(nfa);
    let start = Thread { state: nfa.start, condition: Condition::NONE };
    subsets.intern(&[start], Before::START, Tracker::OUTSIDE, budget)?;

    let bytes = nfa.alphabet.representatives();
    let mut stretches = Stretches::new(bytes.len());
    let mut kernels: Vec<Vec<Thread>> = vec![Vec::new(); bytes.len()];
    let mut done = 0;
    while done < subsets.all.len() {
        budget.step()?;
        let Subset { tracker, threads } = &subsets.all[done];
        let (tracker, threads) = (*tracker, threads.clone());
        let arcs = |thread: &Thread| match nfa.state(thread.state) {
            State::Read(arcs) => nfa.arcs(arcs),
            _ => &[],
        };
        // Assertions look at single bytes.
        stretches.reset(nfa.has_looks);
        for arc in subsets.threads[threads.clone()].iter().flat_map(arcs) {
            stretches.cut(arc.low, arc.high);
        }
        stretches.number();
        for thread in &subsets.threads[threads] {
            for arc in arcs(thread) {
                budget.step()?;
                for stretch in stretches.within(arc.low, arc.high) {
                    let symbol = stretches.begin[stretch];
                    if let Some(condition) = thread.condition.after(bytes[usize::from(symbol)]) {
                        kernels[stretch].push(Thread { state: arc.to, condition });
                    }
                }
            }
        }
        // Neighbouring stretches often lead to the same threads; closing those once is enough.
        let mut last: Option<(usize, Before, Tracker, u32)> = None;
        for stretch in 0..stretches.begin.len() {
            if kernels[stretch].is_empty() {
                continue;
            }
            let (low, high) = stretches.ends(stretch);
            let (before, tracker) = nfa.context(tracker, bytes[usize::from(low)]);
            let to = match last {
                Some((of, b, t, to)) if (b, t) == (before, tracker) && kernels[of] == kernels[stretch] => to,
                _ => subsets.intern(&kernels[stretch], before, tracker, budget)?,
            };
            last = Some((stretch, before, tracker, to));
            subsets.draft.add_arc(Arc { from: done as u32, low, high, to }, budget)?;
        }
        kernels[..stretches.begin.len()].iter_mut().for_each(Vec::clear);
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

/// The symbols, divided where some arc begins or ends.
struct Stretches {
    n_symbols: usize,
    is_cut: [bool; 257],
    /// The stretch of each symbol.
    of: [u8; 256],
    /// The first symbol of each stretch.
    begin: Vec<u8>,
}

impl Stretches {
    fn new(n_symbols: usize) -> Self {
        Self { n_symbols, is_cut: [false; 257], of: [0; 256], begin: Vec::with_capacity(n_symbols) }
    }

    /// One stretch of all symbols, or each symbol by itself.
    fn reset(&mut self, singly: bool) {
        self.is_cut = [singly; 257];
    }

    fn cut(&mut self, low: u8, high: u8) {
        self.is_cut[usize::from(low)] = true;
        self.is_cut[usize::from(high) + 1] = true;
    }

    /// Numbers the stretches once all cuts are made.
    fn number(&mut self) {
        self.begin.clear();
        for symbol in 0..self.n_symbols {
            if symbol == 0 || self.is_cut[symbol] {
                self.begin.push(symbol as u8); // at most 256 symbols
            }
            self.of[symbol] = (self.begin.len() - 1) as u8;
        }
    }

    /// The stretches of the symbols from `low` to `high`.
    fn within(&self, low: u8, high: u8) -> impl Iterator<Item = usize> + use<> {
        usize::from(self.of[usize::from(low)])..=usize::from(self.of[usize::from(high)])
    }

    /// The first and the last symbol.
    fn ends(&self, stretch: usize) -> (u8, u8) {
        let end = self.begin.get(stretch + 1).map_or(self.n_symbols, |next| usize::from(*next));
        (self.begin[stretch], (end - 1) as u8)
    }
}

/// The number of a subset that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// The subsets found so far, numbered in the order of their discovery.
struct Subsets<'a> {
    nfa: &'a Nfa,
    draft: Draft,
    numbers: Interned,
    all: Vec<Subset>,
    /// The threads of all subsets.
    threads: Vec<Thread>,
    /// The subset that each state alone grows into, where no assertion can make a difference.
    of_one: Vec<u32>,
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
            numbers: Interned::default(),
            all: Vec::new(),
            threads: Vec::new(),
            of_one: vec![UNKNOWN; nfa.len()],
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
        let [Thread { state, .. }] = kernel else { return self.grow(kernel, before, tracker, budget) };
        if self.nfa.has_looks {
            return self.grow(kernel, before, tracker, budget);
        }
        if self.of_one[*state as usize] == UNKNOWN {
            self.of_one[*state as usize] = self.grow(kernel, before, tracker, budget)?;
        }
        Ok(self.of_one[*state as usize])
    }

    fn grow(
        &mut self,
        kernel: &[Thread],
        before: Before,
        tracker: Tracker,
        budget: &mut Budget,
    ) -> Result<u32, RegexError> {
        let begin = self.threads.len();
        self.close(kernel, before, budget)?;
        let threads = &self.threads[begin..];
        let is_final = threads.iter().any(|thread| matches!(self.nfa.state(thread.state), State::Match));
        // Half-read characters matter only to word assertions that are still to come.
        let watched =
            tracker != Tracker::OUTSIDE && threads.iter().any(|thread| self.nfa.sees_words(thread.state));
        let tracker = if watched { tracker } else { Tracker::OUTSIDE };
        let mut fold = Fold::new();
        fold.add(tracker.bits());
        for thread in threads {
            fold.add(u64::from(thread.state) << 32 | u64::from(thread.condition.bits()));
        }
        let known = self.numbers.find(fold.hash(), |number| {
            let other = &self.all[number as usize];
            other.tracker == tracker && self.threads[other.threads.clone()] == *threads
        });
        if let Some(known) = known {
            self.threads.truncate(begin);
            return Ok(known);
        }
        let bytes = BYTES_PER_SUBSET + size_of_val(threads);
        budget.charge(bytes)?;
        self.charged += bytes;
        let number = self.draft.add_state(is_final, budget)?;
        self.numbers.insert(fold.hash(), number);
        self.all.push(Subset { tracker, threads: begin..self.threads.len() });
        Ok(number)
    }

    /// Adds the threads that `kernel` reaches without reading, at a position after `before`.
    fn close(&mut self, kernel: &[Thread], before: Before, budget: &mut Budget) -> Result<(), RegexError> {
        let Self { nfa, threads, pending, entered, entered_under, .. } = self;
        let begin = threads.len();
        // Rounds would have to outnumber the arcs of a draft to wrap around.
        self.round += 1;
        entered_under.clear();
        pending.extend_from_slice(kernel);
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
        threads[begin..].sort_unstable();
        let mut end = begin;
        for at in begin..threads.len() {
            let thread = threads[at];
            let last = threads[begin..end].last();
            let is_known = last.is_some_and(|last| {
                last.state == thread.state && (*last == thread || last.condition == Condition::NONE)
            });
            if !is_known {
                threads[end] = thread;
                end += 1;
            }
        }
        threads.truncate(end);
        Ok(())
    }
}

//! The nondeterministic automaton of a syntax tree, flat and over symbols.
//!
//! Thompson's construction, UTF-8 ranges included, is `regex-automata`'s; here its states are laid
//! out for determinisation: arcs carry ranges of symbols, and each state knows whether a Unicode
//! word assertion can still come.

use std::ops::Range;

use regex_automata::nfa::thompson::{Compiler, Config, NFA, State as Thompson, Transition, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::PatternID;
use regex_syntax::hir::Hir;

use crate::ahead::LookAhead;
use crate::alphabet::Alphabet;
use crate::error::RegexError;
use crate::limits::Budget;
use crate::look::{Kind, is_unicode, word_class};

/// What a state does.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Moves on without reading, to the states at these places of [`Nfa::targets`].
    Free(Range<u32>),
    /// Reads a symbol, by the arcs at these places of [`Nfa::arcs`].
    Read(Range<u32>),
    /// Moves on if the assertion holds.
    Look(Look, u32),
    /// Moves on to `next` if the rest of the text has a prefix that is matched from `body`, or, if
    /// that is not `wanted`, has none.
    Ahead { wanted: bool, body: u32, next: u32 },
    /// Accepts: the pattern, or a look-ahead's body.
    Match,
}

/// Reading any symbol from `low` to `high` leads to state `to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arc {
    pub(crate) low: u8,
    pub(crate) high: u8,
    pub(crate) to: u32,
}

/// A nondeterministic automaton over symbols, with zero-width assertions.
#[derive(Debug)]
pub(crate) struct Nfa {
    pub(crate) alphabet: Alphabet,
    pub(crate) start: u32,
    pub(crate) has_looks: bool,
    pub(crate) has_aheads: bool,
    states: Vec<State>,
    targets: Vec<u32>,
    arcs: Vec<Arc>,
    /// States from which a Unicode word assertion can be reached; empty if there is none at all.
    sees_words: Vec<bool>,
}

impl Nfa {
    /// The automaton that accepts what `hir` matches as a whole; an empty capture n + 1 in it, or in
    /// a body, is the mark of `aheads[n]`.
    pub(crate) fn new(hir: &Hir, aheads: &[LookAhead], budget: &mut Budget) -> Result<Self, RegexError> {
        // The compiler looks at no clock, so this limit is also what bounds its time. A quarter is
        // enough: a larger automaton could not be determinised in the rest.
        let config = Config::new()
            .utf8(false) // its own rules for empty matches do not bear on full matches
            .which_captures(if aheads.is_empty() { WhichCaptures::None } else { WhichCaptures::All })
            .nfa_size_limit(Some(budget.remaining_bytes() / 4));
        let patterns: Vec<&Hir> =
            std::iter::once(hir).chain(aheads.iter().map(|ahead| &ahead.body)).collect();
        let thompson = Compiler::new()
            .configure(config)
            .build_many_from_hir(&patterns)
            .map_err(|_| budget.too_large())?;
        budget.check_time()?;
        budget.charge(thompson.memory_usage())?;
        let nfa = Self::flatten(&thompson, aheads, budget)?;
        budget.release(thompson.memory_usage());
        Ok(nfa)
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn state(&self, state: u32) -> &State {
        &self.states[state as usize]
    }

    pub(crate) fn targets(&self, range: &Range<u32>) -> &[u32] {
        &self.targets[range.start as usize..range.end as usize]
    }

    pub(crate) fn arcs(&self, range: &Range<u32>) -> &[Arc] {
        &self.arcs[range.start as usize..range.end as usize]
    }

    /// Where those of `arcs` that read `symbol` lead: at most one of a state's arcs does.
    pub(crate) fn reads(&self, arcs: &Range<u32>, symbol: u8) -> Option<u32> {
        let arcs = self.arcs(arcs);
        let arc = arcs.get(arcs.partition_point(|arc| arc.high < symbol))?;
        (arc.low <= symbol).then_some(arc.to)
    }

    /// Whether a Unicode word assertion can be reached from `state`.
    pub(crate) fn sees_words(&self, state: u32) -> bool {
        self.sees_words.get(state as usize).copied().unwrap_or(false)
    }

    /// Whether there is a Unicode word assertion anywhere.
    pub(crate) fn has_word_looks(&self) -> bool {
        !self.sees_words.is_empty()
    }

    /// What is charged for this automaton, in bytes.
    pub(crate) fn byte_len(&self) -> usize {
        bytes_of(self.states.len(), self.targets.len(), self.arcs.len())
    }

    fn flatten(thompson: &NFA, aheads: &[LookAhead], budget: &mut Budget) -> Result<Self, RegexError> {
        let start_of = |pattern: usize| {
            let start = thompson.start_pattern(PatternID::must(pattern)).expect("each pattern has a start");
            start.as_u32()
        };
        let looks = thompson.look_set_any();
        let alphabet = alphabet(thompson);
        let symbols = |transition: &Transition| {
            // Each stretch of bytes that the arcs keep together has its symbols to itself, so the
            // symbols up to the next stretch are those of this range.
            let high = match transition.end {
                u8::MAX => alphabet.len() - 1,
                end => usize::from(alphabet.symbol(end + 1)) - 1,
            };
            Arc { low: alphabet.symbol(transition.start), high: high as u8, to: transition.next.as_u32() }
        };
        let (mut states, mut targets, mut arcs) = (Vec::new(), Vec::new(), Vec::new());
        let mut charged = 0;
        for state in thompson.states() {
            budget.step()?;
            let (first_target, first_arc) = (targets.len() as u32, arcs.len() as u32);
            let own = match state {
                Thompson::ByteRange { trans } => {
                    arcs.push(symbols(trans));
                    State::Read(first_arc..arcs.len() as u32)
                }
                Thompson::Sparse(sparse) => {
                    arcs.extend(sparse.transitions.iter().map(symbols));
                    State::Read(first_arc..arcs.len() as u32)
                }
                Thompson::Dense(dense) => {
                    arcs.extend((0..=u8::MAX).filter_map(|byte| {
                        let symbol = alphabet.symbol(byte);
                        dense.matches_byte(byte).map(|to| Arc { low: symbol, high: symbol, to: to.as_u32() })
                    }));
                    State::Read(first_arc..arcs.len() as u32)
                }
                Thompson::Look { look, next } => State::Look(*look, next.as_u32()),
                Thompson::Union { alternates } => {
                    targets.extend(alternates.iter().map(|target| target.as_u32()));
                    State::Free(first_target..targets.len() as u32)
                }
                Thompson::BinaryUnion { alt1, alt2 } => {
                    targets.extend([alt1.as_u32(), alt2.as_u32()]);
                    State::Free(first_target..targets.len() as u32)
                }
                Thompson::Capture { next, group_index, slot, .. }
                    if group_index.as_usize() > 0 && slot.as_usize() % 2 == 0 =>
                {
                    let number = group_index.as_usize();
                    let wanted = aheads[number - 1].wanted;
                    State::Ahead { wanted, body: start_of(number), next: next.as_u32() }
                }
                Thompson::Capture { next, .. } => {
                    targets.push(next.as_u32());
                    State::Free(first_target..targets.len() as u32)
                }
                Thompson::Fail => State::Free(first_target..first_target),
                Thompson::Match { .. } => State::Match,
            };
            states.push(own);
            let bytes = bytes_of(states.len(), targets.len(), arcs.len());
            budget.charge(bytes - charged)?;
            charged = bytes;
        }
        let mut nfa = Self {
            alphabet,
            start: start_of(0),
            has_looks: !looks.is_empty(),
            has_aheads: !aheads.is_empty(),
            states,
            targets,
            arcs,
            sees_words: Vec::new(),
        };
        if looks.contains_word_unicode() {
            nfa.sees_words = nfa.states_before_word_looks(budget)?;
        }
        Ok(nfa)
    }

    /// The states from which a Unicode word assertion can be reached, by one reverse walk.
    fn states_before_word_looks(&self, budget: &mut Budget) -> Result<Vec<bool>, RegexError> {
        let n_edges = 2 * self.states.len() + self.targets.len() + self.arcs.len();
        let working_set = n_edges * 2 * size_of::<u32>() + self.states.len() * size_of::<Vec<u32>>();
        budget.charge(working_set)?;
        let mut sources: Vec<Vec<u32>> = vec![Vec::new(); self.states.len()];
        let mut sees = vec![false; self.states.len()];
        let mut pending = Vec::new();
        for (from, state) in self.states.iter().enumerate() {
            budget.step()?;
            let mut edge = |to: u32| sources[to as usize].push(from as u32);
            match state {
                State::Free(range) => self.targets(range).iter().copied().for_each(edge),
                State::Read(range) => self.arcs(range).iter().map(|arc| arc.to).for_each(edge),
                State::Look(look, next) => {
                    edge(*next);
                    if is_unicode(*look) {
                        sees[from] = true;
                        pending.push(from as u32);
                    }
                }
                State::Ahead { body, next, .. } => {
                    edge(*body);
                    edge(*next);
                }
                State::Match => {}
            }
        }
        while let Some(state) = pending.pop() {
            budget.step()?;
            for &source in &sources[state as usize] {
                if !std::mem::replace(&mut sees[source as usize], true) {
                    pending.push(source);
                }
            }
        }
        budget.release(working_set);
        Ok(sees)
    }
}

fn bytes_of(states: usize, targets: usize, arcs: usize) -> usize {
    states * (size_of::<State>() + size_of::<bool>()) + targets * size_of::<u32>() + arcs * size_of::<Arc>()
}

/// The bytes that neither an arc nor an assertion tells apart, as symbols.
fn alphabet(thompson: &NFA) -> Alphabet {
    let looks = thompson.look_set_any();
    let stretches = thompson.byte_classes();
    Alphabet::by_key(|byte| {
        let kind = (!looks.is_empty()).then(|| Kind::of(byte));
        let word = looks.contains_word_unicode().then(|| word_class(byte));
        (stretches.get(byte), kind, word)
    })
}

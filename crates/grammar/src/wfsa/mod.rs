//! Log-weighted automata over bytes.
//!
//! A text weighs the sum, over all its paths, of the product of an initial weight, the weights of
//! the arcs and a final weight. With forward weights `α_x(q)`, the sum over the paths that read x
//! and end in q, and backward weights `β(q) = final(q) + Σ_arcs weight · β(to)`, all texts that
//! begin with x weigh `Σ_q α_x(q) β(q)` together. Everything is kept as natural logarithms in f64.
//!
//! Invariant: every state is reachable and reaches acceptance, and weights are *pushed* (Mohri,
//! Computational Linguistics 23, 1997): an arc carries `weight · β(to) / β(from)`, so that what
//! leaves a state, stopping included, sums to 1, and the weights of a [`Forward`] are `α β` at once.

mod arcs;
mod support;
mod totals;
mod uniform;

use crate::dfa::Dfa;
use crate::error::RegexError;
use crate::limits::{Budget, Limits};
use crate::log_sum::{log_add, log_sum};
use crate::syntax::RegexOptions;

use arcs::Arcs;

/// An arc of a weighted automaton. Its states are whatever numbers the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedArc {
    /// The state it leaves.
    pub from: u32,
    /// The byte it reads.
    pub byte: u8,
    /// The state it leads to.
    pub to: u32,
    /// Its weight, a natural logarithm; `-inf` for an arc that is none.
    pub log_weight: f64,
}

/// A log-weighted automaton over bytes, in which every state can reach acceptance.
#[derive(Clone, Debug)]
pub struct Wfsa {
    initial: Forward,
    arcs: Arcs,
    /// The pushed weight of stopping in each state; `-inf` where no text ends.
    stops: Vec<f64>,
}

/// How the weight of all texts that begin with what has been read is spread over the states.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// States, rising, and the log-weight of all paths and completions through each; never `-inf`.
    states: Vec<(u32, f64)>,
    log_total: f64,
}

impl Forward {
    /// Merges equal states, in the order given.
    fn merge(mut states: Vec<(u32, f64)>) -> Self {
        states.retain(|(_, weight)| *weight > f64::NEG_INFINITY);
        states.sort_by_key(|(state, _)| *state);
        states.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = log_add(kept.1, later.1);
            }
            same
        });
        let log_total = log_sum(states.iter().map(|(_, weight)| *weight));
        Self { states, log_total }
    }

    /// The logarithm of the total weight of all texts that begin with what has been read; `-inf` if
    /// there is none.
    #[must_use]
    pub fn log_total(&self) -> f64 {
        self.log_total
    }
}

impl Wfsa {
    /// The automaton with these arcs, initial and final weights (state, natural logarithm).
    ///
    /// Several arcs between two states under one byte add up, and so do several weights of a state.
    /// States that cannot be reached or cannot reach acceptance are dropped.
    ///
    /// # Errors
    /// `InvalidWeight` if a weight is NaN or `+inf`, `EmptyLanguage` if every text weighs 0,
    /// `Divergent` if the texts from some state weigh infinitely much, or so nearly so that f64
    /// cannot tell, `TooLarge` or `TooSlow` past the default [`Limits`].
    pub fn from_arcs(
        arcs: &[WeightedArc],
        initial: &[(u32, f64)],
        finals: &[(u32, f64)],
    ) -> Result<Self, RegexError> {
        let mut budget = Budget::new(&Limits::default());
        let graph = arcs::live(arcs, initial, finals, &mut budget)?;
        let totals = totals::totals(&graph, &mut budget)?;
        let through = |&(state, weight): &(u32, f64)| (state, weight + totals[state as usize]);
        let initial = Forward::merge(graph.initial.iter().map(through).collect());
        if !initial.log_total.is_finite() {
            return Err(RegexError::invalid_weight("all texts together", initial.log_total));
        }
        Ok(Self {
            initial,
            stops: graph.finals.iter().zip(&totals).map(|(weight, total)| weight - total).collect(),
            arcs: graph
                .arcs
                .reweighted(|arc| arc.log_weight + totals[arc.to as usize] - totals[arc.from as usize]),
        })
    }

    /// The texts that `pattern` matches as a whole, generated character by character: on the minimal
    /// live automaton over the characters of [`RegexOptions::charset`], by default the 100 printable
    /// ASCII characters of Python's `string.printable`, each of a state's K options (the characters
    /// that may follow, and stopping if a text may end) weighs 1/K. All texts together weigh 1.
    ///
    /// # Errors
    /// As [`Dfa::from_regex`].
    pub fn from_regex(pattern: &str, options: &RegexOptions) -> Result<Self, RegexError> {
        let charset = options.charset.clone().unwrap_or_else(|| uniform::PRINTABLE.to_owned());
        let dfa = Dfa::from_regex(pattern, &RegexOptions { charset: Some(charset), ..options.clone() })?;
        Ok(uniform::over_characters(&dfa))
    }

    /// Before the first byte.
    #[must_use]
    pub fn start(&self) -> &Forward {
        &self.initial
    }

    /// After one more byte.
    ///
    /// # Panics
    /// If `forward` is of a larger automaton.
    #[must_use]
    pub fn next(&self, forward: &Forward, byte: u8) -> Forward {
        let onward = forward.states.iter().flat_map(|&(state, weight)| {
            self.arcs.under(state, byte).iter().map(move |arc| (arc.to, weight + arc.log_weight))
        });
        Forward::merge(onward.collect())
    }

    /// The logarithm of the weight of the text read.
    ///
    /// # Panics
    /// If `forward` is of a larger automaton.
    #[must_use]
    pub fn complete(&self, forward: &Forward) -> f64 {
        log_sum(forward.states.iter().map(|&(state, weight)| weight + self.stops[state as usize]))
    }

    /// The bytes that may follow, rising, each with the logarithm of its share in the total:
    /// [`Forward::log_total`] after it less that before it.
    ///
    /// # Panics
    /// If `forward` is of a larger automaton.
    #[must_use]
    pub fn log_shares(&self, forward: &Forward) -> Vec<(u8, f64)> {
        let onward = forward.states.iter().flat_map(|&(state, weight)| {
            self.arcs.of(state).iter().map(move |arc| (arc.byte, weight + arc.log_weight))
        });
        let mut onward: Vec<(u8, f64)> = onward.filter(|(_, weight)| *weight > f64::NEG_INFINITY).collect();
        onward.sort_by_key(|(byte, _)| *byte);
        let of_byte =
            |of: &[(u8, f64)]| (of[0].0, log_sum(of.iter().map(|(_, weight)| *weight)) - forward.log_total);
        onward.chunk_by(|a, b| a.0 == b.0).map(of_byte).collect()
    }

    /// How many states there are, all of them live: at least one.
    #[must_use]
    pub fn state_count(&self) -> usize {
        self.stops.len()
    }

    /// The texts of positive weight.
    ///
    /// # Errors
    /// `TooLarge` or `TooSlow` past `limits`: an equivalent deterministic automaton may be
    /// exponentially larger.
    pub fn support(&self, limits: &Limits) -> Result<Dfa, RegexError> {
        let mut budget = Budget::new(limits);
        budget.check_time()?;
        support::determinize(self, &mut budget)?.minimal(&mut budget)
    }
}

//! Weighted arcs by state, and what is left of a list of arcs when the dead states are gone.

use super::WeightedArc;
use crate::error::RegexError;
use crate::limits::Budget;
use crate::log_sum::log_add;

/// Arcs between the states 0 to n - 1, sorted by source, byte and target, each at most once.
#[derive(Clone, Debug)]
pub(super) struct Arcs {
    arcs: Vec<WeightedArc>,
    /// `arcs[begin[s]..begin[s + 1]]` leave state s.
    begin: Vec<usize>,
}

impl Arcs {
    /// Adds up arcs that are equal but for their weights.
    pub(super) fn new(mut arcs: Vec<WeightedArc>, n_states: usize) -> Self {
        let place = |arc: &WeightedArc| (arc.from, arc.byte, arc.to);
        arcs.sort_by_key(place);
        arcs.dedup_by(|later, kept| {
            let same = place(later) == place(kept);
            if same {
                kept.log_weight = log_add(kept.log_weight, later.log_weight);
            }
            same
        });
        let mut begin = vec![0; n_states + 1];
        for arc in &arcs {
            begin[arc.from as usize + 1] += 1;
        }
        for state in 0..n_states {
            begin[state + 1] += begin[state];
        }
        Self { arcs, begin }
    }

    /// The arcs that leave `state`, by byte and target.
    pub(super) fn of(&self, state: u32) -> &[WeightedArc] {
        let state = state as usize;
        &self.arcs[self.begin[state]..self.begin[state + 1]]
    }

    /// The arcs that leave `state` under `byte`.
    pub(super) fn under(&self, state: u32, byte: u8) -> &[WeightedArc] {
        let arcs = self.of(state);
        let begin = arcs.partition_point(|arc| arc.byte < byte);
        let len = arcs[begin..].partition_point(|arc| arc.byte == byte);
        &arcs[begin..begin + len]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &WeightedArc> {
        self.arcs.iter()
    }

    /// The same arcs with other weights.
    pub(super) fn reweighted(mut self, weight: impl Fn(&WeightedArc) -> f64) -> Self {
        for arc in &mut self.arcs {
            arc.log_weight = weight(arc);
        }
        self
    }
}

/// An automaton all of whose states are reachable and reach acceptance, numbered from 0.
pub(super) struct Graph {
    pub(super) arcs: Arcs,
    /// Of some states, in the order given, possibly more than once.
    pub(super) initial: Vec<(u32, f64)>,
    /// One a state; `-inf` where no text ends.
    pub(super) finals: Vec<f64>,
    /// What the caller calls each state.
    pub(super) names: Vec<u32>,
}

/// Estimated bytes held for an arc and for a state while the graph is built and solved.
const BYTES_PER_ARC: usize = 4 * size_of::<WeightedArc>();
const BYTES_PER_STATE: usize = 128;

/// The live part of an automaton as a caller gives it.
pub(super) fn live(
    arcs: &[WeightedArc],
    initial: &[(u32, f64)],
    finals: &[(u32, f64)],
    budget: &mut Budget,
) -> Result<Graph, RegexError> {
    for arc in arcs {
        check(arc.log_weight, || format!("the arc from state {} to state {}", arc.from, arc.to))?;
    }
    for (kind, weights) in [("initial", initial), ("final", finals)] {
        for &(state, weight) in weights {
            check(weight, || format!("the {kind} state {state}"))?;
        }
    }
    budget.charge(arcs.len().saturating_mul(BYTES_PER_ARC))?;
    let is_positive = |weight: f64| weight > f64::NEG_INFINITY;
    let arcs: Vec<WeightedArc> = arcs.iter().filter(|arc| is_positive(arc.log_weight)).copied().collect();
    let ends = |weights: &[(u32, f64)]| -> Vec<(u32, f64)> {
        weights.iter().filter(|(_, weight)| is_positive(*weight)).copied().collect()
    };
    let (initial, finals) = (ends(initial), ends(finals));

    let mut names: Vec<u32> = arcs.iter().flat_map(|arc| [arc.from, arc.to]).collect();
    names.extend(initial.iter().chain(&finals).map(|(state, _)| *state));
    names.sort_unstable();
    names.dedup();
    budget.charge(names.len().saturating_mul(BYTES_PER_STATE))?;
    let number = |names: &[u32], name: u32| names.binary_search(&name).ok();
    let numbers: Vec<(usize, usize)> =
        arcs.iter().filter_map(|arc| Some((number(&names, arc.from)?, number(&names, arc.to)?))).collect();
    let backwards: Vec<(usize, usize)> = numbers.iter().map(|(from, to)| (*to, *from)).collect();
    let seeds = |ends: &[(u32, f64)]| ends.iter().filter_map(|(state, _)| number(&names, *state)).collect();
    let reached = closure(names.len(), &numbers, seeds(&initial), budget)?;
    let reaching = closure(names.len(), &backwards, seeds(&finals), budget)?;
    let mut is_live = reached.iter().zip(&reaching).map(|(reached, reaching)| *reached && *reaching);
    names.retain(|_| is_live.next().expect("one flag a state"));
    if names.is_empty() {
        return Err(RegexError::empty_language("every text weighs 0"));
    }

    let renumber = |state: u32| number(&names, state).map(|state| state as u32);
    let arcs = arcs
        .iter()
        .filter_map(|arc| Some(WeightedArc { from: renumber(arc.from)?, to: renumber(arc.to)?, ..*arc }));
    let mut by_state = vec![f64::NEG_INFINITY; names.len()];
    for (state, weight) in finals {
        if let Some(state) = number(&names, state) {
            by_state[state] = log_add(by_state[state], weight);
        }
    }
    Ok(Graph {
        arcs: Arcs::new(arcs.collect(), names.len()),
        initial: initial.iter().filter_map(|(state, weight)| Some((renumber(*state)?, *weight))).collect(),
        finals: by_state,
        names,
    })
}

fn check(weight: f64, what: impl Fn() -> String) -> Result<(), RegexError> {
    if weight < f64::INFINITY { Ok(()) } else { Err(RegexError::invalid_weight(&what(), weight)) }
}

/// Which states are `seeds` or reached from them by `moves`.
fn closure(
    n_states: usize,
    moves: &[(usize, usize)],
    seeds: Vec<usize>,
    budget: &mut Budget,
) -> Result<Vec<bool>, RegexError> {
    let mut begin = vec![0; n_states + 1];
    let mut moves = moves.to_vec();
    moves.sort_unstable();
    for (from, _) in &moves {
        begin[from + 1] += 1;
    }
    for state in 0..n_states {
        begin[state + 1] += begin[state];
    }
    let mut reached = vec![false; n_states];
    let mut pending = seeds;
    while let Some(state) = pending.pop() {
        budget.step()?;
        if !std::mem::replace(&mut reached[state], true) {
            pending.extend(moves[begin[state]..begin[state + 1]].iter().map(|(_, to)| *to));
        }
    }
    Ok(reached)
}

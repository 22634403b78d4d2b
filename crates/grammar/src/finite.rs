//! Merging of states from which only finitely many texts are left.
//!
//! Such a state reaches no cycle, so it can be settled after all states it leads to: two of them
//! accept the same suffixes exactly if they agree on acceptance and on their arcs, once the targets
//! of these are settled (Revuz, Theoretical Computer Science 92, 1992). Linear in the arcs.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::error::RegexError;
use crate::limits::Budget;
use crate::minimize::{Arc, Incoming};

/// What [`merge`] found.
pub(crate) struct Merged {
    /// For each state the one that stands for it, often itself.
    pub(crate) twins: Vec<u32>,
    /// Whether no state reaches a cycle.
    pub(crate) is_all: bool,
}

/// The end of a chain of states with equal hashes.
const NONE: u32 = u32::MAX;

/// Finds equal states among those that reach no cycle, and leads all arcs to the states that stand
/// for them. The arcs come out sorted by state and symbol.
pub(crate) fn merge(finals: &[bool], arcs: &mut [Arc], budget: &mut Budget) -> Result<Merged, RegexError> {
    let n_states = finals.len();
    arcs.sort_unstable_by_key(|arc| (arc.from, arc.symbol));
    budget.check_time()?;
    let incoming = Incoming::new(arcs, n_states);
    let mut begin = vec![0usize; n_states + 1];
    for arc in arcs.iter() {
        begin[arc.from as usize + 1] += 1;
    }
    for state in 0..n_states {
        begin[state + 1] += begin[state];
    }
    let out = |state: u32| begin[state as usize]..begin[state as usize + 1];

    let mut unsettled: Vec<u32> = begin.windows(2).map(|ends| (ends[1] - ends[0]) as u32).collect();
    let mut pending: Vec<u32> =
        (0..n_states as u32).filter(|&state| unsettled[state as usize] == 0).collect();
    let mut twins: Vec<u32> = (0..n_states as u32).collect();
    let mut newest: HashMap<u64, u32> = HashMap::new();
    let mut older = vec![NONE; n_states];
    let mut n_settled = 0;
    while let Some(state) = pending.pop() {
        budget.step()?;
        n_settled += 1;
        let mut hasher = DefaultHasher::new();
        finals[state as usize].hash(&mut hasher);
        for arc in &mut arcs[out(state)] {
            arc.to = twins[arc.to as usize];
            hasher.write_u64(u64::from(arc.to) << 8 | u64::from(arc.symbol));
        }
        let is_twin = |other: u32| {
            let steps = |state| arcs[out(state)].iter().map(|arc| (arc.symbol, arc.to));
            finals[state as usize] == finals[other as usize] && steps(state).eq(steps(other))
        };
        let chain = newest.entry(hasher.finish()).or_insert(NONE);
        let mut other = *chain;
        while other != NONE && !is_twin(other) {
            other = older[other as usize];
        }
        if other == NONE {
            older[state as usize] = std::mem::replace(chain, state);
        } else {
            twins[state as usize] = other;
        }
        for &arc in incoming.of(state) {
            let from = arcs[arc as usize].from;
            unsettled[from as usize] -= 1;
            if unsettled[from as usize] == 0 {
                pending.push(from);
            }
        }
    }
    for arc in arcs {
        arc.to = twins[arc.to as usize];
    }
    Ok(Merged { twins, is_all: n_settled == n_states })
}

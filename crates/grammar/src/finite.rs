//! Merging of states from which only finitely many texts are left.
//!
//! Such a state reaches no cycle, so it can be settled after all states it leads to: two of them
//! accept the same suffixes exactly if they agree on acceptance and on their arcs, once the targets
//! of these are settled (Revuz, Theoretical Computer Science 92, 1992). Linear in the arcs.

use crate::error::RegexError;
use crate::interned::{Fold, Interned};
use crate::limits::Budget;
use crate::minimize::{Arc, Rows, Sources, steps};

/// What [`merge`] found.
pub(crate) struct Merged {
    /// For each state the one that stands for it, often itself.
    pub(crate) twins: Vec<u32>,
    /// The states that reach no cycle.
    pub(crate) is_settled: Vec<bool>,
}

/// Finds equal states among those that reach no cycle. The arcs are sorted by state and symbol.
pub(crate) fn merge(finals: &[bool], arcs: &[Arc], budget: &mut Budget) -> Result<Merged, RegexError> {
    let n_states = finals.len();
    let sources = Sources::new(arcs, n_states);
    let rows = Rows::new(arcs, n_states);
    let mut unsettled: Vec<u32> = (0..n_states as u32).map(|state| rows.of(state).len() as u32).collect();
    let mut pending: Vec<u32> =
        (0..n_states as u32).filter(|&state| unsettled[state as usize] == 0).collect();
    let mut twins: Vec<u32> = (0..n_states as u32).collect();
    let mut is_settled = vec![false; n_states];
    let mut known = Interned::default();
    while let Some(state) = pending.pop() {
        budget.step()?;
        is_settled[state as usize] = true;
        let own = || steps(rows.of(state), &twins);
        let mut fold = Fold::new();
        fold.add(u64::from(finals[state as usize]));
        own().for_each(|step| fold.add(step.bits()));
        let twin = known.find(fold.hash(), |other| {
            finals[state as usize] == finals[other as usize] && own().eq(steps(rows.of(other), &twins))
        });
        match twin {
            Some(twin) => twins[state as usize] = twin,
            None => known.insert(fold.hash(), state),
        }
        for &source in sources.of(state) {
            unsettled[source as usize] -= 1;
            if unsettled[source as usize] == 0 {
                pending.push(source);
            }
        }
    }
    Ok(Merged { twins, is_settled })
}

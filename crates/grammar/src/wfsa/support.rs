//! The texts of positive weight, by the subset construction.

use std::collections::HashMap;
use std::rc::Rc;

use super::Wfsa;
use crate::alphabet::Alphabet;
use crate::error::RegexError;
use crate::limits::Budget;
use crate::minimize::{Arc, Draft};

/// Estimated bytes a subset takes beside its states, in the table and in the queue.
const BYTES_PER_SUBSET: usize = 96;

/// The deterministic automaton of the support, all of whose states are live.
pub(super) fn determinize(wfsa: &Wfsa, budget: &mut Budget) -> Result<Draft, RegexError> {
    let mut moves: Vec<Vec<(u32, u32)>> = vec![Vec::new(); 256];
    for arc in wfsa.arcs.iter() {
        budget.charge(size_of::<(u32, u32)>())?;
        moves[usize::from(arc.byte)].push((arc.from, arc.to));
    }
    let alphabet = Alphabet::by_key(|byte| &moves[usize::from(byte)]);
    let mut draft = Draft::new(alphabet.clone());
    let mut numbers: HashMap<Rc<[u32]>, u32> = HashMap::new();
    let mut queue: Vec<Rc<[u32]>> = Vec::new();
    let mut intern =
        |states: Vec<u32>, queue: &mut Vec<Rc<[u32]>>, draft: &mut Draft, budget: &mut Budget| {
            let states: Rc<[u32]> = states.into();
            if let Some(&known) = numbers.get(&states) {
                return Ok(known);
            }
            budget.charge(BYTES_PER_SUBSET + size_of_val(&*states))?;
            let is_final = states.iter().any(|state| wfsa.stops[*state as usize] > f64::NEG_INFINITY);
            let number = draft.add_state(is_final, budget)?;
            numbers.insert(Rc::clone(&states), number);
            queue.push(states);
            Ok::<u32, RegexError>(number)
        };
    let start = wfsa.initial.states.iter().map(|(state, _)| *state).collect();
    intern(start, &mut queue, &mut draft, budget)?;
    let mut done = 0;
    while done < queue.len() {
        let subset = Rc::clone(&queue[done]);
        for (symbol, &byte) in alphabet.representatives().iter().enumerate() {
            budget.step()?;
            let onward = subset.iter().flat_map(|state| wfsa.arcs.under(*state, byte));
            let mut onward: Vec<u32> = onward.map(|arc| arc.to).collect();
            if onward.is_empty() {
                continue;
            }
            onward.sort_unstable();
            onward.dedup();
            let to = intern(onward, &mut queue, &mut draft, budget)?;
            draft.add_arc(Arc { from: done as u32, low: symbol as u8, high: symbol as u8, to }, budget)?;
        }
        done += 1;
    }
    Ok(draft)
}

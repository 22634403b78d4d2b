//! The product of two automata: what both accept.

use std::collections::HashMap;

use crate::alphabet::Alphabet;
use crate::dfa::{Dfa, StateId};
use crate::error::RegexError;
use crate::limits::Budget;
use crate::minimize::{Arc, Draft};

/// Estimated bytes for a pair of states in the table and in the queue.
const BYTES_PER_PAIR: usize = 48;

/// The reachable pairs of states, not yet trimmed.
pub(crate) fn intersection(a: &Dfa, b: &Dfa, budget: &mut Budget) -> Result<Draft, RegexError> {
    let alphabet = Alphabet::by_key(|byte| (a.classes().symbol(byte), b.classes().symbol(byte)));
    let mut draft = Draft::new(alphabet.clone());
    let mut numbers: HashMap<(StateId, StateId), u32> = HashMap::new();
    let mut pairs = vec![(a.start(), b.start())];
    numbers.insert(pairs[0], draft.add_state(a.is_final(a.start()) && b.is_final(b.start()), budget)?);

    let mut done = 0;
    while done < pairs.len() {
        let (state_a, state_b) = pairs[done];
        for (symbol, &byte) in alphabet.representatives().iter().enumerate() {
            budget.step()?;
            let (Some(next_a), Some(next_b)) = (a.next(state_a, byte), b.next(state_b, byte)) else {
                continue;
            };
            let to = match numbers.get(&(next_a, next_b)) {
                Some(&known) => known,
                None => {
                    budget.charge(BYTES_PER_PAIR)?;
                    let new = draft.add_state(a.is_final(next_a) && b.is_final(next_b), budget)?;
                    numbers.insert((next_a, next_b), new);
                    pairs.push((next_a, next_b));
                    new
                }
            };
            draft.add_arc(Arc { from: done as u32, low: symbol as u8, high: symbol as u8, to }, budget)?;
        }
        done += 1;
    }
    budget.release((pairs.len() - 1) * BYTES_PER_PAIR);
    Ok(draft)
}

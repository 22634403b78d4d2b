//! Refinement of a partition of states until no block can be told apart, or for some rounds.
//!
//! After r rounds two states share a block if they did at first and no text of at most r bytes
//! leads one of them to acceptance, or on, where the other has none. A round looks again only at
//! the states that lead into what the round before split off. The largest part of a split block
//! keeps its number, so each state is split off at most log n times (Hopcroft's idea), and however
//! long the chains of an automaton are, they are not read over and over.

use std::ops::Range;

use crate::error::RegexError;
use crate::interned::{Fold, Interned};
use crate::limits::Budget;
use crate::minimize::{Arc, Rows, Sources, steps};

/// The block of each state once `blocks`, which leaves no number out, has been refined for `rounds`
/// rounds or until nothing changes, and the number of blocks. The arcs are sorted by state and
/// symbol.
pub(crate) fn refine(
    arcs: &[Arc],
    blocks: Vec<u32>,
    rounds: usize,
    budget: &mut Budget,
) -> Result<(Vec<u32>, usize), RegexError> {
    let n_states = blocks.len();
    let rows = Rows::new(arcs, n_states);
    let sources = Sources::new(arcs, n_states);
    let mut partition = Partition::new(blocks);
    let mut changed: Vec<u32> = (0..n_states as u32).collect();
    // The round in which each state was last found to be changed.
    let mut seen = vec![0; n_states];
    for round in 1..=rounds.min(n_states) {
        let n_before = partition.len();
        changed.drain(..).for_each(|state| partition.mark(state));
        partition.split(&rows, budget)?;
        for new in n_before..partition.len() {
            for &state in &partition.elements[partition.ends[new].clone()] {
                partition.block[state as usize] = new as u32;
                for &source in sources.of(state) {
                    budget.step()?;
                    if seen[source as usize] < round {
                        seen[source as usize] = round;
                        changed.push(source);
                    }
                }
            }
        }
        if changed.is_empty() {
            break;
        }
    }
    let n_blocks = partition.len();
    Ok((partition.block, n_blocks))
}

struct Partition {
    /// The states, those of a block side by side, marked ones first.
    elements: Vec<u32>,
    /// Where each state stands in `elements`.
    place: Vec<u32>,
    /// The block of each state before the round.
    block: Vec<u32>,
    /// Where each block's states stand in `elements`.
    ends: Vec<Range<usize>>,
    /// How many states of each block are marked.
    marked: Vec<usize>,
    /// The blocks with marked states.
    touched: Vec<u32>,
    // Scratch space of a split.
    known: Interned,
    /// The part of each marked state.
    part: Vec<u32>,
}

impl Partition {
    fn new(block: Vec<u32>) -> Self {
        let n_blocks = block.iter().max().map_or(0, |last| *last as usize + 1);
        let mut sizes = vec![0; n_blocks];
        block.iter().for_each(|block| sizes[*block as usize] += 1);
        let mut ends = Vec::with_capacity(n_blocks);
        let mut begin = 0;
        for size in sizes {
            ends.push(begin..begin);
            begin += size;
        }
        let mut elements = vec![0; block.len()];
        let mut place = vec![0; block.len()];
        for (state, block) in block.iter().enumerate() {
            let own = &mut ends[*block as usize];
            elements[own.end] = state as u32;
            place[state] = own.end as u32;
            own.end += 1;
        }
        Self {
            part: vec![0; block.len()],
            elements,
            place,
            block,
            marked: vec![0; n_blocks],
            ends,
            touched: Vec::new(),
            known: Interned::default(),
        }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    /// Marks a state, which is not marked, for the next split.
    fn mark(&mut self, state: u32) {
        let block = self.block[state as usize] as usize;
        let free = self.ends[block].start + self.marked[block];
        let place = self.place[state as usize] as usize;
        let other = self.elements[free];
        self.elements.swap(place, free);
        self.place[other as usize] = place as u32;
        self.place[state as usize] = free as u32;
        if self.marked[block] == 0 {
            self.touched.push(block as u32);
        }
        self.marked[block] += 1;
    }

    /// Splits each block that has marked states by where these lead. Which block a state is in, as
    /// [`Partition::block`] says, stays what it was before.
    ///
    /// The states that are not marked lead where they led before, all of a block into the same
    /// blocks; marked ones lead into blocks that are new. So those two never stay together, unless
    /// in the first round, when all are marked.
    fn split(&mut self, rows: &Rows<'_>, budget: &mut Budget) -> Result<(), RegexError> {
        self.known.clear();
        let mut sizes = Vec::new();
        let mut sorted = Vec::new();
        while let Some(block) = self.touched.pop() {
            let whole = self.ends[block as usize].clone();
            let marked = whole.start..whole.start + std::mem::take(&mut self.marked[block as usize]);
            if whole.len() == 1 {
                continue;
            }
            sizes.clear();
            for at in marked.clone() {
                let state = self.elements[at];
                let own = || steps(rows.of(state), &self.block);
                let mut fold = Fold::new();
                fold.add(u64::from(block));
                for step in own() {
                    budget.step()?;
                    fold.add(step.bits());
                }
                let twin = self.known.find(fold.hash(), |other| {
                    self.block[other as usize] == block && own().eq(steps(rows.of(other), &self.block))
                });
                let part = match twin {
                    Some(twin) => self.part[twin as usize],
                    None => {
                        self.known.insert(fold.hash(), state);
                        sizes.push(0);
                        (sizes.len() - 1) as u32
                    }
                };
                self.part[state as usize] = part;
                sizes[part as usize] += 1;
            }
            // The parts side by side, and the states that are not marked as the last of them.
            let mut parts = Vec::with_capacity(sizes.len() + 1);
            let mut begin = whole.start;
            for size in &sizes {
                parts.push(begin..begin);
                begin += size;
            }
            if sizes.len() > 1 {
                sorted.clear();
                sorted.extend_from_slice(&self.elements[marked]);
                for state in &sorted {
                    let own = &mut parts[self.part[*state as usize] as usize];
                    self.elements[own.end] = *state;
                    self.place[*state as usize] = own.end as u32;
                    own.end += 1;
                }
            } else {
                parts[0] = marked;
            }
            if begin < whole.end {
                parts.push(begin..whole.end);
            }
            let largest =
                (0..parts.len()).max_by_key(|part| parts[*part].len()).expect("some state is marked");
            self.ends[block as usize] = parts.swap_remove(largest);
            self.marked.resize(self.marked.len() + parts.len(), 0);
            self.ends.extend(parts);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::limits::Limits;

    /// The blocks after some rounds, by what every state leads to under each of three symbols.
    fn naive(rows: &[[Option<u8>; 3]], first: &[u32], rounds: usize) -> Vec<u32> {
        let mut blocks = first.to_vec();
        for _ in 0..rounds {
            let mut numbers = HashMap::new();
            let refined = rows.iter().enumerate().map(|(state, row)| {
                let onward = row.map(|to| to.map(|to| blocks[usize::from(to)]));
                let fresh = numbers.len() as u32;
                *numbers.entry((blocks[state], onward)).or_insert(fresh)
            });
            blocks = refined.collect();
        }
        blocks
    }

    proptest! {
        #[test]
        fn rounds_are_lengths_of_texts(
            rows in prop::collection::vec(prop::array::uniform3(prop::option::of(0_u8..12)), 12),
            finals in prop::collection::vec(0_u32..2, 11),
            rounds in 0_usize..14,
        ) {
            let first: Vec<u32> = [vec![0], finals].concat();
            let mut arcs: Vec<Arc> = Vec::new();
            for (from, row) in rows.iter().enumerate() {
                for (symbol, to) in row.iter().enumerate().filter_map(|(symbol, to)| Some((symbol as u8, (*to)?))) {
                    arcs.push(Arc { from: from as u32, low: symbol, high: symbol, to: u32::from(to) });
                }
            }
            let mut budget = Budget::new(&Limits::default());
            let (refined, n_blocks) = refine(&arcs, first.clone(), rounds, &mut budget).unwrap();
            let expected = naive(&rows, &first, rounds);
            for a in 0..rows.len() {
                for b in 0..rows.len() {
                    prop_assert_eq!(refined[a] == refined[b], expected[a] == expected[b]);
                }
            }
            prop_assert_eq!(refined.iter().max().map(|last| *last as usize + 1), Some(n_blocks));
        }
    }
}

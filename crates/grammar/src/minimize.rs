//! From any deterministic automaton to the minimal live one.
//!
//! Four passes, all iterative:
//! 1. **Trim.** A state is co-accessible if it is final or has an arc to a co-accessible state. One
//!    walk of the reversed arcs from the final states finds them all in O(arcs).
//! 2. **Merge.** Among states that reach no cycle, equal ones are found bottom-up by hashing, in
//!    O(arcs); a finite language is minimal after this.
//! 3. **Refine.** Hopcroft's algorithm in the form for partial transition functions of Valmari and
//!    Lehtinen (STACS 2008), O(arcs log states): blocks of states and bundles of arcs refine each
//!    other until all states of a block have arcs into the same blocks under the same symbols.
//! 4. **Number.** States breadth-first in byte order, bytes by equal columns.

use crate::alphabet::Alphabet;
use crate::dfa::{DEAD, Dfa};
use crate::error::RegexError;
use crate::finite;
use crate::limits::Budget;
use crate::partition::Partition;

/// A transition of a draft.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arc {
    pub(crate) from: u32,
    pub(crate) symbol: u8,
    pub(crate) to: u32,
}

/// Bytes that the passes hold for an arc, and for a state, beside the draft itself.
const WORK_PER_ARC: usize = 7 * size_of::<u32>();
const WORK_PER_STATE: usize = 16 * size_of::<u32>();

/// A deterministic automaton under construction. State 0 is the start, every state is reachable
/// from it, and a state has at most one arc for a symbol.
#[derive(Debug)]
pub(crate) struct Draft {
    alphabet: Alphabet,
    finals: Vec<bool>,
    arcs: Vec<Arc>,
}

impl Draft {
    pub(crate) fn new(alphabet: Alphabet) -> Self {
        Self { alphabet, finals: Vec::new(), arcs: Vec::new() }
    }

    pub(crate) fn alphabet(&self) -> &Alphabet {
        &self.alphabet
    }

    pub(crate) fn add_state(&mut self, is_final: bool, budget: &mut Budget) -> Result<u32, RegexError> {
        budget.charge(size_of::<bool>())?;
        let state = u32::try_from(self.finals.len()).ok().filter(|&state| state != DEAD);
        let state = state.ok_or_else(|| budget.too_large())?;
        self.finals.push(is_final);
        Ok(state)
    }

    pub(crate) fn make_final(&mut self, state: u32) {
        self.finals[state as usize] = true;
    }

    pub(crate) fn add_arc(&mut self, arc: Arc, budget: &mut Budget) -> Result<(), RegexError> {
        budget.charge(size_of::<Arc>())?;
        self.arcs.push(arc);
        Ok(())
    }

    /// The minimal automaton of the same language, all of whose states are live.
    pub(crate) fn minimal(mut self, budget: &mut Budget) -> Result<Dfa, RegexError> {
        u32::try_from(self.arcs.len()).map_err(|_| budget.too_large())?;
        budget.charge(self.arcs.len() * WORK_PER_ARC + self.finals.len() * WORK_PER_STATE)?;
        self.trim()?;
        budget.check_time()?;
        let is_minimal = self.merge_finite(budget)?;
        let blocks =
            if is_minimal { Partition::new(self.finals.len(), |state| state) } else { self.refine(budget)? };
        self.number(&blocks, budget)
    }

    /// Drops the states that cannot reach acceptance, with their arcs.
    fn trim(&mut self) -> Result<(), RegexError> {
        let incoming = Incoming::new(&self.arcs, self.finals.len());
        let mut live = self.finals.clone();
        let mut pending: Vec<u32> =
            (0..self.finals.len() as u32).filter(|&state| live[state as usize]).collect();
        while let Some(state) = pending.pop() {
            for &arc in incoming.of(state) {
                let from = self.arcs[arc as usize].from;
                if !live[from as usize] {
                    live[from as usize] = true;
                    pending.push(from);
                }
            }
        }
        if !live[0] {
            return Err(RegexError::empty_language("no text is accepted"));
        }
        self.retain(&live);
        Ok(())
    }

    /// Keeps the states that are flagged, and the arcs between them.
    fn retain(&mut self, keep: &[bool]) {
        let mut number = 0;
        let numbers: Vec<u32> = keep
            .iter()
            .map(|&keep| {
                let own = number;
                number += u32::from(keep);
                own
            })
            .collect();
        self.arcs.retain_mut(|arc| {
            let kept = keep[arc.from as usize] && keep[arc.to as usize];
            arc.from = numbers[arc.from as usize];
            arc.to = numbers[arc.to as usize];
            kept
        });
        let mut keep = keep.iter();
        self.finals.retain(|_| *keep.next().expect("one flag a state"));
    }

    /// Merges equal states among those with finitely many texts left; whether these are all.
    fn merge_finite(&mut self, budget: &mut Budget) -> Result<bool, RegexError> {
        let merged = finite::merge(&self.finals, &mut self.arcs, budget)?;
        // The start stays: what it reaches without a cycle has shorter texts left.
        let keep: Vec<bool> =
            merged.twins.iter().enumerate().map(|(state, &twin)| twin as usize == state).collect();
        self.retain(&keep);
        Ok(merged.is_all)
    }

    /// Which states accept the same suffixes. All states are live.
    fn refine(&mut self, budget: &mut Budget) -> Result<Partition, RegexError> {
        self.arcs.sort_unstable_by_key(|arc| arc.symbol);
        let incoming = Incoming::new(&self.arcs, self.finals.len());

        let mut blocks = Partition::new(self.finals.len(), |_| 0u8);
        for (state, &is_final) in self.finals.iter().enumerate() {
            if is_final {
                blocks.mark(state as u32);
            }
        }
        blocks.split();
        let mut bundles = Partition::new(self.arcs.len(), |arc| self.arcs[arc].symbol);

        // A bundle splits the blocks by who has an arc in it; a new block splits the bundles by
        // which arcs lead into it. Block 0 needs no turn: its arcs are what the others leave.
        let mut next_block = 1;
        let mut next_bundle = 0;
        while next_bundle < bundles.len() {
            for &arc in bundles.elements(next_bundle) {
                budget.step()?;
                blocks.mark(self.arcs[arc as usize].from);
            }
            blocks.split();
            next_bundle += 1;
            while next_block < blocks.len() {
                for &state in blocks.elements(next_block) {
                    for &arc in incoming.of(state) {
                        budget.step()?;
                        bundles.mark(arc);
                    }
                }
                bundles.split();
                next_block += 1;
            }
        }
        Ok(blocks)
    }

    /// The automaton of the blocks, canonically numbered.
    fn number(mut self, blocks: &Partition, budget: &mut Budget) -> Result<Dfa, RegexError> {
        // One arc a block and symbol is enough: those of the block's first state.
        let n_blocks = blocks.len();
        let first = |block: u32| blocks.elements(block as usize)[0];
        self.arcs.retain(|arc| first(blocks.block(arc.from)) == arc.from);
        for arc in &mut self.arcs {
            arc.from = blocks.block(arc.from);
            arc.to = blocks.block(arc.to);
        }

        // Bytes whose columns are equal become one class.
        self.arcs.sort_unstable_by_key(|arc| (arc.symbol, arc.from));
        let columns: Vec<&[Arc]> = (0..self.alphabet.len())
            .map(|symbol| {
                let begin = self.arcs.partition_point(|arc| usize::from(arc.symbol) < symbol);
                let end = self.arcs.partition_point(|arc| usize::from(arc.symbol) <= symbol);
                &self.arcs[begin..end]
            })
            .collect();
        let classes = Alphabet::by_key(|byte| Column(columns[usize::from(self.alphabet.symbol(byte))]));

        let n_classes = classes.len();
        let cells = n_blocks.checked_mul(n_classes).ok_or_else(|| budget.too_large())?;
        budget.charge(2 * cells * size_of::<u32>())?;
        let mut by_block = vec![DEAD; cells];
        for (class, &byte) in classes.representatives().iter().enumerate() {
            for arc in columns[usize::from(self.alphabet.symbol(byte))] {
                by_block[arc.from as usize * n_classes + class] = arc.to;
            }
        }
        budget.check_time()?;

        let mut order = vec![blocks.block(0)];
        let mut numbers = vec![DEAD; n_blocks];
        numbers[order[0] as usize] = 0;
        let mut table = Vec::with_capacity(cells);
        let mut done = 0;
        while done < order.len() {
            let row = order[done] as usize * n_classes;
            for &target in &by_block[row..row + n_classes] {
                if target == DEAD {
                    table.push(DEAD);
                    continue;
                }
                let number = &mut numbers[target as usize];
                if *number == DEAD {
                    *number = order.len() as u32;
                    order.push(target);
                }
                table.push(*number);
            }
            done += 1;
        }
        let finals = order.iter().map(|&block| self.finals[first(block) as usize]).collect();
        Ok(Dfa::from_parts(classes, table, finals))
    }
}

/// The arcs of one symbol, in the order of their states; equal if they lead to equal places.
struct Column<'a>(&'a [Arc]);

impl PartialEq for Column<'_> {
    fn eq(&self, other: &Self) -> bool {
        let ends = |arc: &Arc| (arc.from, arc.to);
        self.0.len() == other.0.len() && self.0.iter().map(ends).eq(other.0.iter().map(ends))
    }
}

/// The arcs into each state, as indices.
pub(crate) struct Incoming {
    arcs: Vec<u32>,
    /// `arcs[begin[s]..begin[s + 1]]` lead into state `s`.
    begin: Vec<u32>,
}

impl Incoming {
    pub(crate) fn new(arcs: &[Arc], n_states: usize) -> Self {
        let mut begin = vec![0u32; n_states + 2];
        for arc in arcs {
            begin[arc.to as usize + 2] += 1;
        }
        for state in 2..begin.len() {
            begin[state] += begin[state - 1];
        }
        // `begin` is one place ahead, so that filling moves each entry to its own start.
        let mut sorted = vec![0; arcs.len()];
        for (index, arc) in arcs.iter().enumerate() {
            let place = &mut begin[arc.to as usize + 1];
            sorted[*place as usize] = index as u32;
            *place += 1;
        }
        Self { arcs: sorted, begin }
    }

    /// The arcs into `state`.
    pub(crate) fn of(&self, state: u32) -> &[u32] {
        let state = state as usize;
        &self.arcs[self.begin[state] as usize..self.begin[state + 1] as usize]
    }
}

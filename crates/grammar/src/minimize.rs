//! From any deterministic automaton to the minimal live one.
//!
//! Three passes, all iterative:
//! 1. **Trim.** A state is co-accessible if it is final or has an arc to a co-accessible state. One
//!    walk of the reversed arcs from the final states finds them all in O(arcs).
//! 2. **Refine.** Hopcroft's algorithm in the form for partial transition functions of Valmari and
//!    Lehtinen (STACS 2008), O(arcs log states): blocks of states and bundles of arcs refine each
//!    other until all states of a block have arcs into the same blocks under the same symbols.
//! 3. **Number.** States breadth-first in byte order, bytes by equal columns.

use crate::alphabet::Alphabet;
use crate::dfa::{DEAD, Dfa};
use crate::error::RegexError;
use crate::limits::Budget;

/// A transition of a draft.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arc {
    pub(crate) from: u32,
    pub(crate) symbol: u8,
    pub(crate) to: u32,
}

/// Bytes that trimming and refining hold for an arc, and for a state, beside the draft itself.
const WORK_PER_ARC: usize = 7 * size_of::<u32>();
const WORK_PER_STATE: usize = 10 * size_of::<u32>();

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
        let blocks = self.refine(budget)?;
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
        let mut number = 0;
        let numbers: Vec<u32> = live
            .iter()
            .map(|&live| {
                let own = number;
                number += u32::from(live);
                own
            })
            .collect();
        self.arcs.retain_mut(|arc| {
            let keep = live[arc.from as usize] && live[arc.to as usize];
            arc.from = numbers[arc.from as usize];
            arc.to = numbers[arc.to as usize];
            keep
        });
        let mut live = live.iter();
        self.finals.retain(|_| *live.next().expect("one flag a state"));
        Ok(())
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
            for index in bundles.range(next_bundle) {
                budget.step()?;
                blocks.mark(self.arcs[bundles.elements[index] as usize].from);
            }
            blocks.split();
            next_bundle += 1;
            while next_block < blocks.len() {
                for index in blocks.range(next_block) {
                    for &arc in incoming.of(blocks.elements[index]) {
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
        let first = |block: u32| blocks.elements[blocks.range(block as usize).start];
        self.arcs.retain(|arc| first(blocks.block[arc.from as usize]) == arc.from);
        for arc in &mut self.arcs {
            arc.from = blocks.block[arc.from as usize];
            arc.to = blocks.block[arc.to as usize];
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

        let mut order = vec![blocks.block[0]];
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
struct Incoming {
    arcs: Vec<u32>,
    /// `arcs[begin[s]..begin[s + 1]]` lead into state `s`.
    begin: Vec<u32>,
}

impl Incoming {
    fn new(arcs: &[Arc], n_states: usize) -> Self {
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

    fn of(&self, state: u32) -> &[u32] {
        let state = state as usize;
        &self.arcs[self.begin[state] as usize..self.begin[state + 1] as usize]
    }
}

/// A partition of `0..n` that is refined by marking elements and splitting the marked ones off.
struct Partition {
    /// The elements, those of a block side by side, marked ones first.
    elements: Vec<u32>,
    /// Where each element stands in `elements`.
    place: Vec<u32>,
    /// The block of each element.
    block: Vec<u32>,
    begin: Vec<u32>,
    end: Vec<u32>,
    /// How many elements of each block are marked.
    marked: Vec<u32>,
    /// The blocks with marked elements.
    touched: Vec<u32>,
}

impl Partition {
    /// Blocks of equal keys; the keys must not fall from one element to the next.
    fn new<K: PartialEq>(n: usize, key: impl Fn(usize) -> K) -> Self {
        let elements: Vec<u32> = (0..n as u32).collect();
        let mut partition = Self {
            place: elements.clone(),
            elements,
            block: vec![0; n],
            begin: Vec::new(),
            end: Vec::new(),
            marked: Vec::new(),
            touched: Vec::new(),
        };
        for index in 0..n {
            if index == 0 || key(index) != key(index - 1) {
                partition.push(index as u32, index as u32);
            }
            let last = partition.len() - 1;
            partition.end[last] = index as u32 + 1;
            partition.block[index] = last as u32;
        }
        partition
    }

    fn len(&self) -> usize {
        self.begin.len()
    }

    fn range(&self, block: usize) -> std::ops::Range<usize> {
        self.begin[block] as usize..self.end[block] as usize
    }

    fn push(&mut self, begin: u32, end: u32) {
        self.begin.push(begin);
        self.end.push(end);
        self.marked.push(0);
    }

    fn mark(&mut self, element: u32) {
        let block = self.block[element as usize] as usize;
        let place = self.place[element as usize];
        let free = self.begin[block] + self.marked[block];
        if place < free {
            return; // marked before
        }
        let other = self.elements[free as usize];
        self.elements.swap(place as usize, free as usize);
        self.place[other as usize] = place;
        self.place[element as usize] = free;
        if self.marked[block] == 0 {
            self.touched.push(block as u32);
        }
        self.marked[block] += 1;
    }

    /// Splits each block that is marked in part. The smaller side becomes the new block, which
    /// keeps the whole refinement at O(n log n).
    fn split(&mut self) {
        while let Some(block) = self.touched.pop() {
            let block = block as usize;
            let (begin, end) = (self.begin[block], self.end[block]);
            let middle = begin + std::mem::take(&mut self.marked[block]);
            if middle == end {
                continue;
            }
            let new = self.len() as u32;
            let (new_begin, new_end) = if middle - begin <= end - middle {
                self.begin[block] = middle;
                (begin, middle)
            } else {
                self.end[block] = middle;
                (middle, end)
            };
            self.push(new_begin, new_end);
            for &element in &self.elements[new_begin as usize..new_end as usize] {
                self.block[element as usize] = new;
            }
        }
    }
}

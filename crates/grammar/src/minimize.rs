//! From any deterministic automaton to the minimal live one.
//!
//! Four passes, all iterative, over arcs that each take a stretch of symbols:
//! 1. **Trim.** A state is co-accessible if it is final or has an arc to a co-accessible state. One
//!    walk of the reversed arcs from the final states finds them all in O(arcs).
//! 2. **Merge.** Among states that reach no cycle, equal ones are found bottom-up by hashing, in
//!    O(arcs); a finite language is minimal after this.
//! 3. **Refine.** All other states are refined by where they lead, until those of a block lead into
//!    the same blocks under the same symbols.
//! 4. **Number.** States breadth-first in byte order, bytes by equal columns.

use crate::alphabet::Alphabet;
use crate::dfa::{DEAD, Dfa};
use crate::error::RegexError;
use crate::finite;
use crate::limits::Budget;
use crate::partition::refine;

/// Transitions of a draft: every symbol from `low` to `high` leads to `to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arc {
    pub(crate) from: u32,
    pub(crate) low: u8,
    pub(crate) high: u8,
    pub(crate) to: u32,
}

/// Bytes that the passes hold for an arc, and for a state, beside the draft itself.
const WORK_PER_ARC: usize = size_of::<Arc>() + 2 * size_of::<u32>();
const WORK_PER_STATE: usize = 24 * size_of::<u32>();

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

    /// Adds arcs; they join those before them if they go on there.
    pub(crate) fn add_arc(&mut self, arc: Arc, budget: &mut Budget) -> Result<(), RegexError> {
        if let Some(last) = self.arcs.last_mut()
            && (last.from, last.to, last.high.checked_add(1)) == (arc.from, arc.to, Some(arc.low))
        {
            last.high = arc.high;
            return Ok(());
        }
        budget.charge(size_of::<Arc>())?;
        self.arcs.push(arc);
        Ok(())
    }

    /// The minimal automaton of the same language, all of whose states are live.
    pub(crate) fn minimal(mut self, budget: &mut Budget) -> Result<Dfa, RegexError> {
        u32::try_from(self.arcs.len()).map_err(|_| budget.too_large())?;
        budget.charge(self.arcs.len() * WORK_PER_ARC + self.finals.len() * WORK_PER_STATE)?;
        if !self.arcs.is_sorted_by_key(|arc| (arc.from, arc.low)) {
            self.arcs.sort_unstable_by_key(|arc| (arc.from, arc.low));
        }
        self.trim()?;
        budget.check_time()?;
        let settled = self.merge_finite(budget)?;
        let (blocks, n_blocks) = self.refine_rest(&settled, budget)?;
        budget.check_time()?;
        self.number(&blocks, n_blocks, budget)
    }

    /// Drops the states that cannot reach acceptance, with their arcs.
    fn trim(&mut self) -> Result<(), RegexError> {
        let sources = Sources::new(&self.arcs, self.finals.len());
        let mut live = self.finals.clone();
        let mut pending: Vec<u32> =
            (0..self.finals.len() as u32).filter(|&state| live[state as usize]).collect();
        while let Some(state) = pending.pop() {
            for &from in sources.of(state) {
                if !std::mem::replace(&mut live[from as usize], true) {
                    pending.push(from);
                }
            }
        }
        if !live[0] {
            return Err(RegexError::empty_language("no text is accepted"));
        }
        if live.contains(&false) {
            self.retain(&live);
        }
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

    /// Merges equal states among those with finitely many texts left; which of the states that are
    /// left are of these.
    fn merge_finite(&mut self, budget: &mut Budget) -> Result<Vec<bool>, RegexError> {
        let finite::Merged { twins, is_settled: mut settled } =
            finite::merge(&self.finals, &self.arcs, budget)?;
        for arc in &mut self.arcs {
            arc.to = twins[arc.to as usize];
        }
        // The start stays: what it reaches without a cycle has shorter texts left.
        let keep: Vec<bool> = (0..).zip(&twins).map(|(state, &twin)| twin == state).collect();
        if keep.contains(&false) {
            self.retain(&keep);
            let mut keep = keep.iter();
            settled.retain(|_| *keep.next().expect("one flag a state"));
        }
        Ok(settled)
    }

    /// Which states accept the same suffixes, as a block for each, and how many blocks there are.
    /// All states are live; those that are `settled` are equal to no other.
    fn refine_rest(&self, settled: &[bool], budget: &mut Budget) -> Result<(Vec<u32>, usize), RegexError> {
        if settled.iter().all(|settled| *settled) {
            return Ok(((0..settled.len() as u32).collect(), settled.len()));
        }
        let mut n_blocks = 0;
        let mut fresh = || {
            n_blocks += 1;
            n_blocks - 1
        };
        let mut shared = [None; 2];
        let blocks = settled.iter().zip(&self.finals).map(|(settled, is_final)| match settled {
            true => fresh(),
            false => *shared[usize::from(*is_final)].get_or_insert_with(&mut fresh),
        });
        refine(&self.arcs, blocks.collect(), usize::MAX, budget)
    }

    /// The automaton of the blocks, canonically numbered.
    fn number(self, blocks: &[u32], n_blocks: usize, budget: &mut Budget) -> Result<Dfa, RegexError> {
        // Any state of a block has the arcs of all.
        let rows = Rows::new(&self.arcs, self.finals.len());
        let mut members = vec![0; n_blocks];
        (0..).zip(blocks).for_each(|(state, block)| members[*block as usize] = state);
        let mut order = vec![blocks[0]];
        let mut numbers = vec![DEAD; n_blocks];
        numbers[blocks[0] as usize] = 0;
        let mut is_cut = [false; 257];
        let mut done = 0;
        while done < order.len() {
            for step in steps(rows.of(members[order[done] as usize]), blocks) {
                is_cut[usize::from(step.low)] = true;
                is_cut[usize::from(step.high) + 1] = true;
                let number = &mut numbers[step.to as usize];
                if *number == DEAD {
                    *number = order.len() as u32;
                    order.push(step.to);
                }
            }
            done += 1;
        }

        // A column for each stretch of symbols that no state tells apart.
        is_cut[0] = true;
        let mut n_columns = 0;
        let number_column = |is_cut: &bool| {
            n_columns += usize::from(*is_cut);
            n_columns - 1
        };
        let columns: Vec<usize> = is_cut[..self.alphabet.len()].iter().map(number_column).collect();
        let cells = n_blocks.checked_mul(n_columns).ok_or_else(|| budget.too_large())?;
        budget.charge(cells.saturating_mul(size_of::<u32>()))?;
        let mut table = vec![DEAD; cells];
        for (row, block) in table.chunks_exact_mut(n_columns).zip(&order) {
            for step in steps(rows.of(members[*block as usize]), blocks) {
                let own = columns[usize::from(step.low)]..=columns[usize::from(step.high)];
                row[own].fill(numbers[step.to as usize]);
            }
        }
        budget.check_time()?;

        let same = equal_columns(&table, n_columns);
        let column = |byte: u8| columns[usize::from(self.alphabet.symbol(byte))];
        let classes = Alphabet::by_key(|byte| same[column(byte)]);
        let kept: Vec<usize> = classes.representatives().iter().map(|byte| column(*byte)).collect();
        if kept.len() < n_columns {
            // Columns rise with their lowest bytes, so none is overwritten before it is read.
            for row in 0..n_blocks {
                for (class, column) in kept.iter().enumerate() {
                    table[row * kept.len() + class] = table[row * n_columns + column];
                }
            }
            table.truncate(n_blocks * kept.len());
            table.shrink_to_fit();
        }
        let finals = order.iter().map(|block| self.finals[members[*block as usize] as usize]).collect();
        Ok(Dfa::from_parts(classes, table, finals))
    }
}

/// For each column of a table the first one that is equal to it.
fn equal_columns(table: &[u32], n_columns: usize) -> Vec<usize> {
    let mut hashes = vec![0_u32; n_columns];
    for row in table.chunks_exact(n_columns) {
        for (hash, cell) in hashes.iter_mut().zip(row) {
            *hash = (hash.rotate_left(5) ^ cell).wrapping_mul(0x9E37_79B1);
        }
    }
    let are_equal = |a: usize, b: usize| table.chunks_exact(n_columns).all(|row| row[a] == row[b]);
    let mut first = Vec::with_capacity(n_columns);
    for column in 0..n_columns {
        let same = (0..column).find(|other| {
            first[*other] == *other && hashes[*other] == hashes[column] && are_equal(*other, column)
        });
        first.push(same.unwrap_or(column));
    }
    first
}

/// A maximal stretch of symbols that leads from a state to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    low: u8,
    high: u8,
    to: u32,
}

impl Step {
    /// The step as a number of its own.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.to) << 16 | u64::from(self.low) << 8 | u64::from(self.high)
    }
}

/// The steps of a state with these arcs, if `places` says where each state is.
pub(crate) fn steps<'a>(arcs: &'a [Arc], places: &'a [u32]) -> impl Iterator<Item = Step> + 'a {
    let mut arcs = arcs.iter().map(|arc| Step { low: arc.low, high: arc.high, to: places[arc.to as usize] });
    let mut ahead = arcs.next();
    std::iter::from_fn(move || {
        let mut step = ahead?;
        loop {
            ahead = arcs.next();
            match ahead {
                Some(next) if next.to == step.to && u16::from(step.high) + 1 == u16::from(next.low) => {
                    step.high = next.high;
                }
                _ => return Some(step),
            }
        }
    })
}

/// The arcs of each state.
pub(crate) struct Rows<'a> {
    arcs: &'a [Arc],
    /// `arcs[begin[s]..begin[s + 1]]` are those of state `s`.
    begin: Vec<u32>,
}

impl<'a> Rows<'a> {
    /// Of arcs that are sorted by state.
    pub(crate) fn new(arcs: &'a [Arc], n_states: usize) -> Self {
        let mut begin = Vec::with_capacity(n_states + 1);
        begin.push(0);
        let mut at = 0;
        for state in 0..n_states as u32 {
            while arcs.get(at).is_some_and(|arc| arc.from == state) {
                at += 1;
            }
            begin.push(at as u32);
        }
        Self { arcs, begin }
    }

    /// The arcs of `state`, by rising symbol.
    pub(crate) fn of(&self, state: u32) -> &'a [Arc] {
        let state = state as usize;
        &self.arcs[self.begin[state] as usize..self.begin[state + 1] as usize]
    }
}

/// Where the arcs into each state come from.
pub(crate) struct Sources {
    from: Vec<u32>,
    /// `from[begin[s]..begin[s + 1]]` are the states with arcs into `s`, once for each arc.
    begin: Vec<u32>,
}

impl Sources {
    pub(crate) fn new(arcs: &[Arc], n_states: usize) -> Self {
        let mut begin = vec![0_u32; n_states + 2];
        for arc in arcs {
            begin[arc.to as usize + 2] += 1;
        }
        for state in 2..begin.len() {
            begin[state] += begin[state - 1];
        }
        // `begin` is one place ahead, so that filling moves each entry to its own start.
        let mut from = vec![0; arcs.len()];
        for arc in arcs {
            let place = &mut begin[arc.to as usize + 1];
            from[*place as usize] = arc.from;
            *place += 1;
        }
        Self { from, begin }
    }

    /// The states with arcs into `state`.
    pub(crate) fn of(&self, state: u32) -> &[u32] {
        let state = state as usize;
        &self.from[self.begin[state] as usize..self.begin[state + 1] as usize]
    }
}

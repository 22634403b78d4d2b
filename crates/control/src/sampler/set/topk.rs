//! The k tokens of the largest weight, and one of the others for the rest.
//!
//! Best first down the trie: a node's priority is `G + M`, the item log-weight of its path and the
//! largest `iter` log-weight below. Weights of `item` may not rise along a token, so priorities are
//! bounds and tokens come out by descending exact weight `G + iw[t]`, ties by lower id. If k were
//! found and other tokens have mass, a *wildcard* t' is drawn among those, `q ∝ exp(iw)`, with
//!
//! ```text
//! S[t'] = iw[t'] + (item.prefix(x·t') − item.prefix(x)) − ln q(t')      # EOS: complete − prefix
//! ```

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, TokenId};

use super::trie::{ItemRows, Scheme, TokenWeights, TrieTarget};
use super::{SampledSet, SetCursor, SetSampler, SetTokenSampler};
use crate::chooser::{Chooser, RowToDraw, draw_rows};
use crate::error::{ControlError, ErrorKind};
use crate::potential::{Cursor, Demands, Potential, Row, RowResult, Run, Spelling, Status};

/// How much more than its parent's a priority may be, for rounding: a share of its size.
const SLACK: f64 = 1e-9;

/// Lists the k best tokens, and one wildcard for all others.
#[derive(Clone)]
pub struct TopKSetSampler {
    target: TrieTarget,
    k: Option<usize>,
}

impl TopKSetSampler {
    /// Sets of `k` tokens and a wildcard for the target `iter · item`, `item` coerced to the tokens
    /// of `iter`; `None` lists all tokens.
    ///
    /// `item` may not rise along a token: a row in which it is seen to do so is an error.
    ///
    /// # Errors
    /// If `k` is 0, or the tokens of `iter` are not sequences of `item`'s symbols.
    pub fn new(
        iter: Arc<dyn Potential>,
        item: Arc<dyn Potential>,
        k: Option<usize>,
    ) -> Result<Self, ControlError> {
        if k == Some(0) {
            return Err(ControlError::argument("k: 0 must be at least 1, or nothing to list all tokens"));
        }
        Ok(Self { target: TrieTarget::new(iter, item)?, k })
    }
}

/// The token sampler over a [`TopKSetSampler`].
///
/// # Errors
/// As for [`TopKSetSampler::new`].
pub fn topk_token_sampler(
    iter: Arc<dyn Potential>,
    item: Arc<dyn Potential>,
    k: Option<usize>,
) -> Result<SetTokenSampler, ControlError> {
    Ok(SetTokenSampler::new(Arc::new(TopKSetSampler::new(iter, item, k)?)))
}

impl std::fmt::Debug for TopKSetSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopKSetSampler").field("k", &self.k).finish_non_exhaustive()
    }
}

impl SetSampler for TopKSetSampler {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.target.vocab()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SetCursor>, ControlError> {
        self.target.open(n, run, TopK { k: self.k })
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.target.demand(n, max_tokens, demands)
    }
}

struct TopK {
    k: Option<usize>,
}

/// What may come next in a search.
#[derive(Clone, Copy, Debug)]
struct Open {
    priority: f64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Node(Reached),
    /// A token by position.
    Token(usize),
}

/// A node that a search has come to.
#[derive(Clone, Copy, Debug)]
struct Reached {
    node: usize,
    /// The item log-weight of its path.
    weight: f64,
    /// Its item state is that of this scratch row after `symbol`, if there is one.
    slot: usize,
    symbol: Option<TokenId>,
}

impl Ord for Open {
    /// Greater is earlier. Of equal priority a node is first, since it may hold a token that is to
    /// come before another; tokens by lower position.
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |open: &Self| match open.what {
            What::Node(Reached { node, .. }) => (0, node),
            What::Token(position) => (1, position),
        };
        // Adding 0 makes −0 the 0 that it equals, for the total order.
        (self.priority + 0.0).total_cmp(&(other.priority + 0.0)).then(rank(other).cmp(&rank(self)))
    }
}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Open {}

/// A row's best-first search.
struct Search {
    /// Its place among the rows of the draw.
    i: usize,
    weights: TokenWeights,
    heap: BinaryHeap<Open>,
    found: Vec<(usize, f64)>,
}

impl Search {
    /// A search whose item state is in scratch row `slot`.
    fn new(i: usize, weights: TokenWeights, slot: usize, spelling: &Spelling) -> Self {
        let priority = weights.largest(spelling.ids_within(0)).max(weights.of_end());
        let root = What::Node(Reached { node: 0, weight: 0.0, slot, symbol: None });
        Self { i, weights, heap: BinaryHeap::from([Open { priority, what: root }]), found: Vec::new() }
    }

    /// Takes tokens until `k` are found or a node is to be expanded, whose priority comes along;
    /// `None` if the search is over.
    fn advance(&mut self, k: Option<usize>) -> Option<(Reached, f64)> {
        while k.is_none_or(|k| self.found.len() < k) {
            let Open { priority, what } = self.heap.pop()?;
            match what {
                What::Token(position) => self.found.push((position, priority)),
                What::Node(reached) => return Some((reached, priority)),
            }
        }
        None
    }

    /// Opens what is below a node whose item state is now in `slot`. `steps` are the item's
    /// log-weights of [`wanted`].
    fn expand(
        &mut self,
        reached: &Reached,
        bound: f64,
        slot: usize,
        steps: &[f64],
        spelling: &Spelling,
    ) -> Result<(), ControlError> {
        let Reached { node, weight, .. } = *reached;
        for token in spelling.ids(node) {
            self.open(bound, weight + self.weights.of(*token), What::Token(token.index()))?;
        }
        for (child, step) in spelling.children(node).zip(steps) {
            let weight = weight + step;
            if spelling.is_leaf(child) {
                for token in spelling.ids(child) {
                    self.open(bound, weight + self.weights.of(*token), What::Token(token.index()))?;
                }
            } else {
                let what =
                    What::Node(Reached { node: child, weight, slot, symbol: Some(spelling.symbol(child)) });
                self.open(bound, weight + self.weights.largest(spelling.ids_within(child)), what)?;
            }
        }
        if node == 0 {
            let end = weight + steps.last().expect("the end is wanted at the root");
            self.open(bound, end + self.weights.of_end(), What::Token(self.weights.eos_position))?;
        }
        Ok(())
    }

    /// Puts something into the heap, if it is possible, below a node of priority `bound`.
    fn open(&mut self, bound: f64, priority: f64, what: What) -> Result<(), ControlError> {
        if priority > bound + SLACK * (1.0 + bound.abs()) {
            let message = "item log-weights must not increase along a token";
            return Err(ControlError::new(ErrorKind::Contract, message));
        }
        if priority > f64::NEG_INFINITY {
            self.heap.push(Open { priority, what });
        }
        Ok(())
    }

    /// The row of what was not found, with `iter`'s weights.
    fn others(&self) -> Row {
        let mut log_weights = self.weights.log_weights.clone();
        for (position, _) in &self.found {
            log_weights[*position] = f64::NEG_INFINITY;
        }
        Row::dense(log_weights)
    }
}

/// The symbols that a node's item row is wanted for: its children's, and at the root the end.
fn wanted(node: usize, spelling: &Spelling) -> Vec<TokenId> {
    let symbols = spelling.children(node).map(|child| spelling.symbol(child));
    symbols.chain((node == 0).then_some(TokenId::EOS)).collect()
}

impl Scheme for TopK {
    fn sets(
        &self,
        item: &mut ItemRows<'_>,
        live: Vec<(usize, TokenWeights)>,
        keys: &mut [DrawKey],
        chooser: &mut dyn Chooser,
        results: &mut [RowResult<SampledSet>],
    ) {
        let spelling = item.spelling();
        let mut scratch = item.scratch(&live.iter().map(|(i, _)| *i).collect::<Vec<_>>());
        let all: Vec<usize> = (0..live.len()).collect();
        let mut open: Vec<Search> = Vec::with_capacity(live.len());
        for (slot, ((i, weights), score)) in live.into_iter().zip(scratch.score(&all)).enumerate() {
            match score {
                Err(error) => results[i] = Err(error),
                Ok(f64::NEG_INFINITY) => {}
                Ok(_) => open.push(Search::new(i, weights, slot, &spelling)),
            }
        }
        let mut through = Vec::with_capacity(open.len());
        while !open.is_empty() {
            let mut expanding = Vec::with_capacity(open.len());
            for mut search in open.drain(..) {
                match search.advance(self.k) {
                    Some((reached, bound)) => expanding.push((search, reached, bound)),
                    None => through.push(search),
                }
            }
            let slots = enter(&mut *scratch, expanding.iter().map(|(_, reached, _)| reached));
            let symbols = expanding.iter().map(|(_, reached, _)| wanted(reached.node, &spelling));
            let answers =
                scratch.probe(&slots.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), symbols.collect());
            for (((mut search, reached, bound), (slot, status)), answer) in
                expanding.into_iter().zip(slots).zip(answers)
            {
                let expanded = match status {
                    Status::Failed(error) => Err(error),
                    _ => answer.and_then(|steps| search.expand(&reached, bound, slot, &steps, &spelling)),
                };
                match expanded {
                    Ok(()) => open.push(search),
                    Err(error) => results[search.i] = Err(error),
                }
            }
        }
        self.finish(through, item, keys, chooser, results);
    }
}

impl TopK {
    /// Adds a wildcard to each set that has not all there is.
    fn finish(
        &self,
        through: Vec<Search>,
        item: &mut ItemRows<'_>,
        keys: &mut [DrawKey],
        chooser: &mut dyn Chooser,
        results: &mut [RowResult<SampledSet>],
    ) {
        let (mut partial, mut others) = (Vec::new(), Vec::new());
        for search in through {
            if self.k == Some(search.found.len()) {
                others.push(search.others());
                partial.push(search);
            } else {
                results[search.i] = Ok(SampledSet::of(search.found, 0.0));
            }
        }
        let to_draw: Vec<RowToDraw<'_>> = partial
            .iter()
            .zip(&others)
            .map(|(Search { i, weights, .. }, row)| RowToDraw {
                row,
                row_len: weights.log_weights.len(),
                eos_position: weights.eos_position,
                key: keys[*i],
            })
            .collect();
        let drawn = draw_rows(chooser, &to_draw);
        let mut wildcards = Vec::with_capacity(partial.len());
        for (search, drawn) in partial.into_iter().zip(drawn) {
            match drawn {
                Err(error) => results[search.i] = Err(error),
                Ok(None) => results[search.i] = Ok(SampledSet::of(search.found, 0.0)),
                Ok(Some(drawn)) => {
                    keys[search.i].ordinal += 1;
                    wildcards.push((search, drawn));
                }
            }
        }
        let rows: Vec<usize> = wildcards.iter().map(|(search, _)| item.rows[search.i]).collect();
        let tokens = wildcards.iter().map(|(_, drawn)| vec![drawn.token]).collect();
        let answers = item.cursor.probe(&rows, tokens);
        for ((search, drawn), answer) in wildcards.into_iter().zip(answers) {
            let Search { i, weights, mut found, .. } = search;
            results[i] = answer.map(|steps| {
                let position = if drawn.token.is_eos() { weights.eos_position } else { drawn.token.index() };
                found.push((position, weights.log_weights[position] + steps[0] - drawn.logp));
                SampledSet::of(found, drawn.logp)
            });
        }
    }
}

/// Gives each node's item state a scratch row of its own; the row, and what became of it.
fn enter<'a>(scratch: &mut dyn Cursor, reached: impl Iterator<Item = &'a Reached>) -> Vec<(usize, Status)> {
    let mut rows: Vec<usize> = (0..scratch.len()).collect();
    let (mut entered, mut moved, mut symbols) = (Vec::new(), Vec::new(), Vec::new());
    for Reached { slot, symbol, .. } in reached {
        match symbol {
            None => entered.push((*slot, Status::Live)),
            Some(symbol) => {
                moved.push(entered.len());
                symbols.push([*symbol]);
                entered.push((rows.len(), Status::Live));
                rows.push(*slot);
            }
        }
    }
    scratch.select(&rows);
    let rows: Vec<usize> = moved.iter().map(|at| entered[*at].0).collect();
    let spans: Vec<&[TokenId]> = symbols.iter().map(<[TokenId; 1]>::as_slice).collect();
    for (at, status) in moved.into_iter().zip(scratch.advance(&rows, &spans)) {
        entered[at].1 = status;
    }
    entered
}

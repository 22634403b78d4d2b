//! One random path down the trie; the set is the tokens along it.
//!
//! ```text
//! W[node] = Σ exp(iter weight − row maximum) of tokens at or below node
//! node = root; logw = logp = 0; S = ∅
//! loop:
//!     for every id t ending at node:  S[t] = iw[t] + logw − logp
//!     g = item row at this node
//!     for each child b:  m_b = W[child_b]/W[node] · exp(g[b])        # EOS: only at the root
//!     if Σm = 0: stop
//!     b ~ m/Σm;  logp += ln(m_b/Σm);  logw += g[b]
//!     if b is EOS: S[EOS] = iw[EOS] + logw − logp; stop
//!     node = child_b
//! ```
//!
//! W is summed for the children of the nodes on the path alone: a subtree's tokens are a range of
//! the trie's, so a row costs one pass over the vocabulary for the root and ever less below.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, Drawn, TokenId, math};
use rayon::prelude::*;

use super::trie::{ItemRows, Scheme, TokenWeights, TrieTarget};
use super::{SampledSet, SetCursor, SetSampler, SetTokenSampler};
use crate::chooser::{Chooser, RowToDraw, draw_rows};
use crate::error::ControlError;
use crate::potential::{Cursor, Demands, Potential, Row, RowResult, Run, Spelling, Status};

/// Draws the tokens along one path down the trie, a symbol at a time.
#[derive(Clone)]
pub struct EagerSetSampler {
    target: TrieTarget,
}

impl EagerSetSampler {
    /// Sets for the target `iter · item`, `item` coerced to the tokens of `iter`.
    ///
    /// # Errors
    /// If the tokens of `iter` are not sequences of `item`'s symbols.
    pub fn new(iter: Arc<dyn Potential>, item: Arc<dyn Potential>) -> Result<Self, ControlError> {
        Ok(Self { target: TrieTarget::new(iter, item)? })
    }
}

/// The token sampler over an [`EagerSetSampler`].
///
/// # Errors
/// As for [`EagerSetSampler::new`].
pub fn eager_token_sampler(
    iter: Arc<dyn Potential>,
    item: Arc<dyn Potential>,
) -> Result<SetTokenSampler, ControlError> {
    Ok(SetTokenSampler::new(Arc::new(EagerSetSampler::new(iter, item)?)))
}

impl std::fmt::Debug for EagerSetSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EagerSetSampler").finish_non_exhaustive()
    }
}

impl SetSampler for EagerSetSampler {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.target.vocab()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SetCursor>, ControlError> {
        self.target.open(n, run, Eager)
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.target.demand(n, max_tokens, demands)
    }
}

struct Eager;

/// A row on its way down.
struct Descent {
    /// Its place among the rows of the draw.
    i: usize,
    weights: TokenWeights,
    masses: Vec<f64>,
    node: usize,
    logw: f64,
    logp: f64,
    set: Vec<(usize, f64)>,
}

/// A child with mass, or the end: its symbol, its node, and `ln W`.
type Branch = (TokenId, usize, f64);

impl Descent {
    fn new(i: usize, weights: TokenWeights) -> Self {
        let masses = weights.masses();
        Self { i, weights, masses, node: 0, logw: 0.0, logp: 0.0, set: Vec::new() }
    }

    fn list(&mut self, position: usize) {
        self.set.push((position, self.weights.log_weights[position] + self.logw - self.logp));
    }

    fn list_tokens_here(&mut self, spelling: &Spelling) {
        spelling.ids(self.node).iter().for_each(|token| self.list(token.index()));
    }

    fn branches(&self, spelling: &Spelling) -> Vec<Branch> {
        let mut branches: Vec<Branch> = spelling
            .children(self.node)
            .map(|child| {
                let mass = total(&self.masses, spelling.ids_within(child));
                (spelling.symbol(child), child, math::ln(mass))
            })
            .collect();
        if self.node == 0 {
            branches.push((TokenId::EOS, 0, math::ln(self.masses[self.weights.eos_position])));
        }
        branches.retain(|(.., log_mass)| *log_mass > f64::NEG_INFINITY);
        branches
    }
}

/// The mass of some tokens, in eight running sums.
fn total(masses: &[f64], tokens: &[TokenId]) -> f64 {
    let (chunks, rest) = tokens.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for chunk in chunks {
        for (sum, token) in sums.iter_mut().zip(chunk) {
            *sum += masses[token.index()];
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|token| masses[token.index()]).sum::<f64>()
}

impl Scheme for Eager {
    fn sets(
        &self,
        item: &mut ItemRows<'_>,
        live: Vec<(usize, TokenWeights)>,
        keys: &mut [DrawKey],
        chooser: &mut dyn Chooser,
        results: &mut [RowResult<SampledSet>],
    ) {
        let mut open: Vec<Descent> =
            live.into_par_iter().map(|(i, weights)| Descent::new(i, weights)).collect();
        let spelling = item.spelling();
        let mut scratch = item.scratch(&open.iter().map(|descent| descent.i).collect::<Vec<_>>());
        open = keep_live(open, &mut *scratch, results);
        open.iter_mut().for_each(|descent| descent.list_tokens_here(&spelling));
        while !open.is_empty() {
            let branches: Vec<Vec<Branch>> =
                open.par_iter().map(|descent| descent.branches(&spelling)).collect();
            let wanted =
                branches.iter().map(|branches| branches.iter().map(|(symbol, ..)| *symbol).collect());
            let all: Vec<usize> = (0..open.len()).collect();
            let answers = scratch.probe(&all, wanted.collect());
            let mut choices = Vec::with_capacity(open.len());
            for (at, ((descent, branches), steps)) in open.into_iter().zip(branches).zip(answers).enumerate()
            {
                match steps {
                    Ok(steps) => choices.push((at, Choice::new(descent, branches, steps, item.symbols))),
                    Err(error) => results[descent.i] = Err(error),
                }
            }
            let (row_len, eos_position) = (item.symbols.row_len(), item.symbols.eos_position());
            let to_draw: Vec<RowToDraw<'_>> = choices
                .iter()
                .map(|(_, Choice { row, descent, .. })| RowToDraw {
                    row,
                    row_len,
                    eos_position,
                    key: keys[descent.i],
                })
                .collect();
            let drawn = draw_rows(chooser, &to_draw);
            let (mut parents, mut symbols, mut next) = (Vec::new(), Vec::new(), Vec::new());
            for ((at, choice), drawn) in choices.into_iter().zip(drawn) {
                let i = choice.descent.i;
                keys[i].ordinal += 1;
                let taken = drawn.map(|drawn| choice.take(drawn, &spelling));
                match taken {
                    Err(error) => results[i] = Err(error),
                    Ok((descent, None)) => results[i] = Ok(SampledSet::of(descent.set, descent.logp)),
                    Ok((descent, Some(symbol))) => {
                        parents.push(at);
                        symbols.push([symbol]);
                        next.push(descent);
                    }
                }
            }
            scratch.select(&parents);
            let all: Vec<usize> = (0..parents.len()).collect();
            let spans: Vec<&[TokenId]> = symbols.iter().map(<[TokenId; 1]>::as_slice).collect();
            let statuses = scratch.advance(&all, &spans);
            let mut kept = Vec::with_capacity(next.len());
            open = Vec::with_capacity(next.len());
            for (at, (descent, status)) in next.into_iter().zip(statuses).enumerate() {
                if let Status::Failed(error) = status {
                    results[descent.i] = Err(error);
                } else {
                    kept.push(at);
                    open.push(descent);
                }
            }
            scratch.select(&kept);
        }
    }
}

/// A descent at a node, with the item's log-weights of its branches.
struct Choice {
    descent: Descent,
    branches: Vec<Branch>,
    steps: Vec<f64>,
    /// The branches' masses times their steps, by symbol.
    row: Row,
}

impl Choice {
    fn new(descent: Descent, branches: Vec<Branch>, steps: Vec<f64>, symbols: &Vocabulary) -> Self {
        let position =
            |symbol: TokenId| u32::try_from(symbols.position_of(symbol)).expect("positions have 32 bits");
        let mut entries: Vec<(u32, f64)> = branches
            .iter()
            .zip(&steps)
            .map(|((symbol, _, log_mass), step)| (position(*symbol), log_mass + step))
            .filter(|(_, weight)| *weight > f64::NEG_INFINITY)
            .collect();
        entries.sort_unstable_by_key(|(position, _)| *position);
        let (positions, weights): (Vec<u32>, Vec<f64>) = entries.into_iter().unzip();
        Self { descent, branches, steps, row: Row::sparse(positions, weights) }
    }

    /// Takes the branch that was drawn. The symbol comes along if the descent goes on below it.
    fn take(self, drawn: Option<Drawn>, spelling: &Spelling) -> (Descent, Option<TokenId>) {
        let Self { mut descent, branches, steps, .. } = self;
        let Some(Drawn { token: symbol, logp, .. }) = drawn else { return (descent, None) };
        let branch = branches.iter().position(|(known, ..)| *known == symbol);
        let branch = branch.expect("what is drawn is a branch");
        descent.logp += logp;
        descent.logw += steps[branch];
        if symbol.is_eos() {
            descent.list(descent.weights.eos_position);
            return (descent, None);
        }
        descent.node = branches[branch].1;
        descent.list_tokens_here(spelling);
        let goes_on = !spelling.is_leaf(descent.node);
        (descent, goes_on.then_some(symbol))
    }
}

/// The rows in which `item` is live. Tokens without symbols change nothing, so only its score tells
/// of a dead one.
fn keep_live(
    open: Vec<Descent>,
    scratch: &mut dyn Cursor,
    results: &mut [RowResult<SampledSet>],
) -> Vec<Descent> {
    let all: Vec<usize> = (0..open.len()).collect();
    let mut kept = Vec::with_capacity(open.len());
    let mut live = Vec::with_capacity(open.len());
    for (at, (descent, score)) in open.into_iter().zip(scratch.score(&all)).enumerate() {
        match score {
            Err(error) => results[descent.i] = Err(error),
            Ok(f64::NEG_INFINITY) => {}
            Ok(_) => {
                kept.push(at);
                live.push(descent);
            }
        }
    }
    scratch.select(&kept);
    live
}

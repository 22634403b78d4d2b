//! The cursor of a coerced potential: the inner cursor, moved by the symbols of tokens.
//!
//! A token is weighed on a copy of the inner row that reads the token's symbols, so that costs as
//! much as the token is long. A row of weights is one walk of the trie of spellings, level by level,
//! for all rows asked at once, on copies of the inner rows; dead subtrees are cut, and leaves need
//! no copy. Everything is computed when the ticket is waited for.

use std::sync::Arc;

use lockstep_sample::TokenId;

use super::row::add;
use super::spelling::Spelling;
use super::{Answer, Cursor, Row, RowResult, Status, Ticket, Want, entrywise, score_after};

pub(crate) struct CoercedCursor {
    inner: Box<dyn Cursor>,
    spelling: Arc<Spelling>,
}

impl CoercedCursor {
    pub(crate) fn new(inner: Box<dyn Cursor>, spelling: Arc<Spelling>) -> Self {
        Self { inner, spelling }
    }

    /// A copy of the inner cursor's rows, in symbols.
    pub(crate) fn fork_inner(&self, rows: &[usize]) -> Box<dyn Cursor> {
        self.inner.fork(rows)
    }

    pub(crate) fn spelling(&self) -> &Arc<Spelling> {
        &self.spelling
    }

    fn spell(&self, span: &[TokenId]) -> Vec<TokenId> {
        let mut symbols = Vec::new();
        span.iter().for_each(|token| self.spelling.spell(*token, &mut symbols));
        symbols
    }
}

impl Cursor for CoercedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let n = rows.len();
        let spelling = Arc::clone(&self.spelling);
        match want {
            Want::Hold => self.inner.request(rows, Want::Hold),
            Want::Tokens(tokens) => {
                // A row once as it is, then a copy for each of its tokens.
                let copies = rows.iter().zip(&tokens).flat_map(|(row, tokens)| vec![*row; 1 + tokens.len()]);
                let scratch = self.inner.fork(&copies.collect::<Vec<_>>());
                Ticket::deferred(move || weigh(scratch, &spelling, &tokens))
            }
            Want::Row => {
                let scratch = self.inner.fork(rows);
                Ticket::deferred(move || {
                    Walk::new(n).over(scratch, &spelling).map(|row| row.map(Answer::Row)).collect()
                })
            }
            Want::Draw(draws) => {
                let scratch = self.inner.fork(rows);
                let eos = spelling.vocab().eos_position();
                Ticket::deferred(move || {
                    let rows = Walk::new(n).over(scratch, &spelling).zip(&draws.keys).enumerate();
                    rows.map(|(i, (row, key))| {
                        let mask = draws.masks.as_ref().map(|masks| &masks[i]);
                        Ok(Answer::Draw(row?.draw(eos, mask, draws.method, key)))
                    })
                    .collect()
                })
            }
        }
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let spelled: Vec<Vec<TokenId>> = spans.iter().map(|span| self.spell(span)).collect();
        let spelled: Vec<&[TokenId]> = spelled.iter().map(Vec::as_slice).collect();
        let mut statuses = self.inner.advance(rows, &spelled);
        // A token without symbols changes nothing, and so tells nothing of the row.
        let silent: Vec<usize> = (0..rows.len()).filter(|i| spelled[*i].is_empty()).collect();
        let scores = self.inner.score(&silent.iter().map(|i| rows[*i]).collect::<Vec<_>>());
        for (i, score) in silent.into_iter().zip(scores) {
            statuses[i] = Status::of(&score);
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.score(rows)
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.complete(rows)
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.inner.select(ancestors);
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self { inner: self.inner.fork(rows), spelling: Arc::clone(&self.spelling) })
    }

    fn release(&mut self, rows: &[usize]) {
        self.inner.release(rows);
    }
}

/// The log-weights of `tokens[i]` after row i; `scratch` has that row, then a copy for each token.
fn weigh(
    mut scratch: Box<dyn Cursor>,
    spelling: &Spelling,
    tokens: &[Vec<TokenId>],
) -> Vec<RowResult<Answer>> {
    let mut spelled = Vec::with_capacity(scratch.len());
    for tokens in tokens {
        spelled.push(Vec::new());
        for token in tokens {
            let mut symbols = Vec::new();
            spelling.spell(*token, &mut symbols);
            spelled.push(symbols);
        }
    }
    let all: Vec<usize> = (0..scratch.len()).collect();
    let spans: Vec<&[TokenId]> = spelled.iter().map(Vec::as_slice).collect();
    let mut weights = score_after(&mut *scratch, &all, &spans).into_iter();
    let mut next = || weights.next().expect("a weight for each copy");
    let mut answers = Vec::with_capacity(tokens.len());
    for tokens in tokens {
        let before = next();
        let after: Vec<RowResult<f64>> = tokens.iter().map(|_| next()).collect();
        let step = |after: RowResult<f64>| {
            let (before, after) = (before.clone()?, after?);
            let dead = before == f64::NEG_INFINITY || after == f64::NEG_INFINITY;
            Ok(if dead { f64::NEG_INFINITY } else { after - before })
        };
        answers.push(after.into_iter().map(step).collect::<RowResult<_>>().map(Answer::Tokens));
    }
    answers
}

/// A walk of the trie of spellings from several rows.
struct Walk {
    /// For each row the positions met and their log-weights, or why there are none.
    found: Vec<RowResult<Vec<(usize, f64)>>>,
}

/// A node that a walk has reached.
struct Reached {
    row: usize,
    node: usize,
    /// The log-weight of the symbols to the node.
    weight: f64,
}

impl Walk {
    fn new(rows: usize) -> Self {
        Self { found: vec![Ok(Vec::new()); rows] }
    }

    /// The rows of weights after the rows of `scratch`.
    fn over(
        mut self,
        mut scratch: Box<dyn Cursor>,
        spelling: &Spelling,
    ) -> impl Iterator<Item = RowResult<Row>> + use<> {
        let len = spelling.vocab().row_len();
        let eos = spelling.vocab().eos_position();
        let mut frontier = self.start(&mut *scratch);
        let mut at_root = true;
        while !frontier.is_empty() {
            // Only the edges that there are, and at the root the end.
            let wanted: Vec<Vec<TokenId>> = frontier
                .iter()
                .map(|reached| {
                    let symbols = spelling.children(reached.node).map(|child| spelling.symbol(child));
                    symbols.chain(at_root.then_some(TokenId::EOS)).collect()
                })
                .collect();
            let all: Vec<usize> = (0..frontier.len()).collect();
            let (mut parents, mut steps, mut next) = (Vec::new(), Vec::new(), Vec::new());
            for (i, weights) in scratch.probe(&all, wanted).into_iter().enumerate() {
                let Reached { row, node, weight } = frontier[i];
                let Some(weights) = self.note(row, weights) else { continue };
                let Ok(found) = &mut self.found[row] else { continue };
                if at_root {
                    found.extend(spelling.ids(node).iter().map(|token| (token.index(), weight)));
                    found.extend(weights.last().map(|end| (eos, *end)));
                }
                for (child, step) in spelling.children(node).zip(weights) {
                    let weight = add(weight, step);
                    if weight == f64::NEG_INFINITY {
                        continue;
                    }
                    found.extend(spelling.ids(child).iter().map(|token| (token.index(), weight)));
                    if !spelling.is_leaf(child) {
                        parents.push(i);
                        steps.push([spelling.symbol(child)]);
                        next.push(Reached { row, node: child, weight });
                    }
                }
            }
            at_root = false;
            scratch.select(&parents);
            let all: Vec<usize> = (0..parents.len()).collect();
            let spans: Vec<&[TokenId]> = steps.iter().map(<[TokenId; 1]>::as_slice).collect();
            for (reached, status) in next.iter().zip(scratch.advance(&all, &spans)) {
                if let Status::Failed(error) = status {
                    self.found[reached.row] = Err(error);
                }
            }
            frontier = next;
        }
        self.found.into_iter().map(move |found| Ok(entrywise::collect(len, found?.into_iter())))
    }

    /// The live rows at the root; `scratch` keeps just these.
    fn start(&mut self, scratch: &mut dyn Cursor) -> Vec<Reached> {
        let all: Vec<usize> = (0..scratch.len()).collect();
        let mut live = Vec::new();
        for (row, score) in scratch.score(&all).into_iter().enumerate() {
            // Tokens without symbols change nothing: only here do they show to be dead.
            if self.note(row, score).is_some_and(|score| score > f64::NEG_INFINITY) {
                live.push(row);
            }
        }
        scratch.select(&live);
        live.into_iter().map(|row| Reached { row, node: 0, weight: 0.0 }).collect()
    }

    /// What there is of `result`; if nothing, the row has failed.
    fn note<T>(&mut self, row: usize, result: RowResult<T>) -> Option<T> {
        result.map_err(|error| self.found[row] = Err(error)).ok()
    }
}

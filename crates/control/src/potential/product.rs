//! The product of two potentials: log-weights add.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use super::mapped::{Mapped, Mapping};
use super::row::add;
use super::{Answer, Claims, Cursor, Demands, Draws, Potential, Row, RowResult, Run, Status, Ticket, Want};
use crate::error::{ControlError, ErrorKind};

/// `ln (ψ₁ · ψ₂)`: the sum of two log-weights; `-inf` plus anything is `-inf`.
///
/// Its vocabulary is the tokens that both factors have, in the first one's order. Rows keep the
/// first one's positions: a token that the second factor lacks weighs `-inf`. Tightness and exact
/// mass are not inherited: two live factors may have no common completion.
#[derive(Clone)]
pub struct Product {
    first: Arc<dyn Potential>,
    second: Arc<dyn Potential>,
    /// The common tokens if they are not all of the first factor's.
    common: Option<Arc<Bitset>>,
    warnings: Vec<String>,
}

/// The share of the larger vocabulary below which the common tokens are suspiciously few.
const SMALL_OVERLAP: f64 = 0.1;

impl Product {
    /// The product of two potentials. Tokens of different vocabularies are the same if they have
    /// equal bytes; among tokens with equal bytes the first matches the first, and so on.
    ///
    /// # Errors
    /// If one factor reads bytes and the other a model's tokens (coerce it first), if they have no
    /// token in common, or if their end-of-sequence sets differ over the same tokens.
    pub fn new(first: Arc<dyn Potential>, second: Arc<dyn Potential>) -> Result<Self, ControlError> {
        let refuse = |why: &str| Err(ControlError::new(ErrorKind::Vocabulary, why));
        if first.vocab().same_tokens(second.vocab()) {
            if first.vocab().eos() != second.vocab().eos() {
                return refuse(
                    "the factors of a product have different end-of-sequence ids: coerce one to the other's vocabulary",
                );
            }
            return Ok(Self { first, second, common: None, warnings: Vec::new() });
        }
        let bytes = Vocabulary::bytes();
        if first.vocab().same_tokens(&bytes) != second.vocab().same_tokens(&bytes) {
            return refuse(
                "one factor of a product reads bytes, the other a model's tokens: coerce the one to the other's vocabulary",
            );
        }
        let mapping = Mapping::new(Arc::clone(first.vocab()), second.vocab());
        let common = Arc::clone(mapping.common());
        let [first_size, second_size] = mapping.sizes();
        if common.none() {
            return refuse(
                "the factors of a product have no token in common: coerce one to the other's vocabulary",
            );
        }
        let mut warnings = Vec::new();
        if (common.count() as f64) < SMALL_OVERLAP * first_size.max(second_size) as f64 {
            warnings.push(format!(
                "the factors of a product have only {} tokens in common, of {first_size} and {second_size}: coerce one to the other's vocabulary if that is not meant",
                common.count()
            ));
        }
        let second = Arc::new(Mapped::new(second, mapping));
        Ok(Self { first, second, common: Some(common), warnings })
    }

    /// Its vocabulary: the tokens that both factors have, in the first one's order, the end
    /// excepted.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenId> {
        let vocab = self.vocab();
        let is_common = |id: &TokenId| self.common.as_ref().is_none_or(|common| common.contains(id.index()));
        (0..vocab.len())
            .map(|position| vocab.token_at(position))
            .filter(|id| vocab.is_member(*id))
            .filter(is_common)
            .collect()
    }

    /// The factors, the second over the first one's ids, and the common tokens if they are not all
    /// of the first one's.
    pub(crate) fn into_factors(self) -> ([Arc<dyn Potential>; 2], Option<Arc<Bitset>>) {
        ([self.first, self.second], self.common)
    }

    /// What is probably not meant, for people: under 10 % of either factor's tokens are common.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl std::fmt::Debug for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Product").field("claims", &self.claims()).finish_non_exhaustive()
    }
}

impl Potential for Product {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.first.vocab()
    }

    fn claims(&self) -> Claims {
        let (a, b) = (self.first.claims(), self.second.claims());
        Claims {
            boolean: a.boolean && b.boolean,
            tight: false,
            mass_exact: false,
            monotone: a.monotone && b.monotone,
            terminal_only: a.terminal_only && b.terminal_only,
        }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let (first, second) = (self.first.open(n, run)?, self.second.open(n, run)?);
        Ok(Box::new(ProductCursor { first, second, eos_position: self.vocab().eos_position() }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.first.demand(n, max_tokens, demands)?;
        self.second.demand(n, max_tokens, demands)
    }
}

/// Both factors' cursors, always at the same sequences.
struct ProductCursor {
    first: Box<dyn Cursor>,
    second: Box<dyn Cursor>,
    eos_position: usize,
}

impl ProductCursor {
    /// A draw that one factor makes itself while the other only masks.
    fn masked_draw(&mut self, rows: &[usize], draws: &Draws) -> Option<Ticket> {
        let (drawer, masker) = if self.first.draws() {
            (&mut self.first, &mut self.second)
        } else if self.second.draws() {
            (&mut self.second, &mut self.first)
        } else {
            return None;
        };
        let masks = masker.masks(rows)?;
        let masks = match &draws.masks {
            Some(given) => given.iter().zip(&masks).map(|(given, own)| both(given, own)).collect(),
            None => masks,
        };
        Some(drawer.request(rows, Want::Draw(Draws { masks: Some(masks), ..draws.clone() })))
    }

    /// Asks both factors, and combines their answers once both are there.
    fn ask_both(
        &mut self,
        rows: &[usize],
        want: Want,
        combine: impl Fn(usize, Answer, Answer) -> Answer + Send + 'static,
    ) -> Ticket {
        let (first, second) = (self.first.request(rows, want.clone()), self.second.request(rows, want));
        Ticket::deferred(move || {
            let answers = first.wait().into_iter().zip(second.wait());
            answers.enumerate().map(|(i, (a, b))| Ok(combine(i, a?, b?))).collect()
        })
    }

    fn sum(a: Vec<RowResult<f64>>, b: Vec<RowResult<f64>>) -> Vec<RowResult<f64>> {
        a.into_iter().zip(b).map(|(a, b)| Ok(add(a?, b?))).collect()
    }
}

impl Cursor for ProductCursor {
    fn len(&self) -> usize {
        self.first.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        match want {
            Want::Draw(draws) => self.masked_draw(rows, &draws).unwrap_or_else(|| {
                let eos = self.eos_position;
                self.ask_both(rows, Want::Row, move |i, a, b| {
                    let mask = draws.masks.as_ref().map(|masks| &masks[i]);
                    let row = a.into_row().product(&b.into_row());
                    Answer::Draw(row.draw(eos, mask, draws.method, &draws.keys[i]))
                })
            }),
            Want::Row => {
                self.ask_both(rows, want, |_, a, b| Answer::Row(Row::product(&a.into_row(), &b.into_row())))
            }
            Want::Tokens(_) => self.ask_both(rows, want, |_, a, b| {
                let (a, b) = (a.into_tokens(), b.into_tokens());
                Answer::Tokens(a.into_iter().zip(b).map(|(a, b)| add(a, b)).collect())
            }),
            Want::Hold => self.ask_both(rows, want, |_, _, _| Answer::Held),
        }
    }

    fn draws(&self) -> bool {
        self.first.draws() || self.second.draws()
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        let (first, second) = (self.first.masks(rows)?, self.second.masks(rows)?);
        Some(first.iter().zip(&second).map(|(first, second)| both(first, second)).collect())
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let (first, second) = (self.first.advance(rows, spans), self.second.advance(rows, spans));
        let mut dead = Vec::new();
        let statuses = first
            .into_iter()
            .zip(second)
            .zip(rows)
            .map(|((a, b), row)| {
                let status = a.and(b);
                if matches!(status, Status::Dead) {
                    dead.push(*row);
                }
                status
            })
            .collect();
        self.release(&dead);
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        Self::sum(self.first.score(rows), self.second.score(rows))
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        Self::sum(self.first.complete(rows), self.second.complete(rows))
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.first.select(ancestors);
        self.second.select(ancestors);
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self {
            first: self.first.fork(rows),
            second: self.second.fork(rows),
            eos_position: self.eos_position,
        })
    }

    fn release(&mut self, rows: &[usize]) {
        self.first.release(rows);
        self.second.release(rows);
    }
}

fn both(a: &Arc<Bitset>, b: &Arc<Bitset>) -> Arc<Bitset> {
    let mut both = Bitset::clone(a);
    both.intersect(b);
    Arc::new(both)
}

//! Direct sampling: a token in proportion to the target's next-token weights.
//!
//! With `w` the row: `t ~ exp(w - LSE w)`, `logw = LSE w`, `logp = w[t] - logw`. The weight
//! depends on the context alone. If the target is a model times boolean constraints, the engine
//! makes the draw and the row never leaves it.
//!
//! With a proposal `q`, importance sampling: `t ~ exp(q - LSE q)`, `logp = q[t] - LSE q`,
//! `logw = w[t] - logp`. Both rows are asked for in one tick.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, Drawn, TokenId};

use super::importance::weighed;
use super::{Sampled, SamplerCursor, TokenSampler};
use crate::chooser::{Chooser, RowToDraw, draw_rows};
use crate::error::ControlError;
use crate::potential::{Answer, Cursor, Demands, Draws, Potential, Row, RowResult, Run, Status, Want};

/// Samples from a potential's own next-token weights, or from a proposal's.
#[derive(Clone)]
pub struct Direct {
    target: Arc<dyn Potential>,
    proposal: Option<Arc<dyn Potential>>,
}

impl Direct {
    /// The direct sampler of `target`.
    #[must_use]
    pub fn new(target: Arc<dyn Potential>) -> Self {
        Self { target, proposal: None }
    }

    /// Draws from `proposal` instead, weighted for `target`. The proposal must be positive wherever
    /// the target is.
    ///
    /// # Errors
    /// If the two read different tokens.
    pub fn with_proposal(
        target: Arc<dyn Potential>,
        proposal: Arc<dyn Potential>,
    ) -> Result<Self, ControlError> {
        super::check_proposal(&*target, &*proposal)?;
        Ok(Self { target, proposal: Some(proposal) })
    }
}

/// [`Direct`] with or without a proposal.
///
/// # Errors
/// As for [`Direct::with_proposal`].
pub fn direct_token_sampler(
    target: Arc<dyn Potential>,
    proposal: Option<Arc<dyn Potential>>,
) -> Result<Direct, ControlError> {
    match proposal {
        None => Ok(Direct::new(target)),
        Some(proposal) => Direct::with_proposal(target, proposal),
    }
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").field("target", &self.target.claims()).finish()
    }
}

impl TokenSampler for Direct {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.target.vocab()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError> {
        let vocab = Arc::clone(self.target.vocab());
        let target = self.target.open(n, run)?;
        Ok(match &self.proposal {
            None => Box::new(DirectCursor { target, vocab }),
            Some(proposal) => Box::new(ProposedCursor { target, proposal: proposal.open(n, run)?, vocab }),
        })
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.target.demand(n, max_tokens, demands)?;
        self.proposal.as_ref().map_or(Ok(()), |proposal| proposal.demand(n, max_tokens, demands))
    }

    fn has_fixed_weights(&self) -> bool {
        true
    }
}

struct DirectCursor {
    target: Box<dyn Cursor>,
    vocab: Arc<Vocabulary>,
}

impl SamplerCursor for DirectCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        super::start_weight(&mut *self.target)
    }

    fn sample(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        let want = match chooser.keyed() {
            Some(method) if self.target.draws() => {
                Want::Draw(Draws { keys: keys.to_vec(), method, masks: None })
            }
            _ => Want::Row,
        };
        let ticket = self.target.request(rows, want);
        others();
        let mut results: Vec<RowResult<Sampled>> = Vec::with_capacity(rows.len());
        let mut left = Vec::new();
        for (i, answer) in ticket.wait().into_iter().enumerate() {
            results.push(match answer {
                Ok(Answer::Draw(drawn)) => Ok(weighed(drawn, None, self.vocab.eos_position())),
                Ok(other) => {
                    left.push((i, other.into_row()));
                    Ok(Sampled::DEAD)
                }
                Err(error) => Err(error),
            });
        }
        let to_draw = left.iter().map(|(i, row)| to_draw(row, &self.vocab, keys[*i])).collect::<Vec<_>>();
        for ((i, _), drawn) in left.iter().zip(draw_rows(chooser, &to_draw)) {
            results[*i] = drawn.map(|drawn| weighed(drawn, None, self.vocab.eos_position()));
        }
        results
    }

    fn sample_forced(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        forced: &[Option<&[TokenId]>],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        // All as rows, so that draws and look-ups are one request; a draw is the same in both forms.
        let ticket = self.target.request(rows, Want::Row);
        others();
        let rows: Vec<RowResult<Row>> =
            ticket.wait().into_iter().map(|answer| answer.map(Answer::into_row)).collect();
        let live: Vec<Option<&Row>> = rows.iter().map(|row| row.as_ref().ok()).collect();
        let drawn = draw_or_look_up(&live, keys, forced, &self.vocab, chooser);
        let own = |drawn| weighed(drawn, None, self.vocab.eos_position());
        rows.iter().zip(drawn).map(|(row, drawn)| row.clone().and(drawn).map(own)).collect()
    }

    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        super::eos_weights(&mut *self.target, rows, others)
    }

    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status> {
        self.target.advance(rows, &super::spans(tokens))
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.target.select(ancestors);
    }

    fn release(&mut self, rows: &[usize]) {
        self.target.release(rows);
    }
}

fn to_draw<'a>(row: &'a Row, vocab: &Vocabulary, key: DrawKey) -> RowToDraw<'a> {
    RowToDraw { row, row_len: vocab.row_len(), eos_position: vocab.eos_position(), key }
}

/// A draw from each row that there is, or what a draw of its forced tokens gives.
fn draw_or_look_up(
    rows: &[Option<&Row>],
    keys: &[DrawKey],
    forced: &[Option<&[TokenId]>],
    vocab: &Vocabulary,
    chooser: &mut dyn Chooser,
) -> Vec<RowResult<Option<Drawn>>> {
    let free = rows.iter().zip(keys).zip(forced).filter(|(_, forced)| forced.is_none());
    let free: Vec<_> = free.filter_map(|((row, key), _)| Some(to_draw(row.as_ref()?, vocab, *key))).collect();
    let mut drawn = draw_rows(chooser, &free).into_iter();
    let mut one = |(row, forced): (&Option<&Row>, &Option<&[TokenId]>)| match (row, forced) {
        (None, _) => Ok(None),
        (Some(row), Some(tokens)) => Ok(look_up(row, tokens, vocab)),
        (Some(_), None) => drawn.next().expect("a draw for each free row"),
    };
    rows.iter().zip(forced).map(&mut one).collect()
}

/// What a draw of `tokens` gives; `None` if they cannot be drawn.
fn look_up(row: &Row, tokens: &[TokenId], vocab: &Vocabulary) -> Option<Drawn> {
    let &[token] = tokens else { return None };
    let weight = row.at(vocab.position_of(token));
    let log_mass = row.log_total();
    (weight > f64::NEG_INFINITY).then_some(Drawn { token, log_mass, logp: weight - log_mass })
}

/// Draws from the proposal, weighs by the target.
struct ProposedCursor {
    target: Box<dyn Cursor>,
    proposal: Box<dyn Cursor>,
    vocab: Arc<Vocabulary>,
}

impl SamplerCursor for ProposedCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        super::start_weight(&mut *self.target)
    }

    fn sample(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        self.sample_forced(rows, keys, &vec![None; rows.len()], others, chooser)
    }

    fn sample_forced(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        forced: &[Option<&[TokenId]>],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        let proposal = self.proposal.request(rows, Want::Row);
        let target = self.target.request(rows, Want::Row);
        others();
        let both = proposal.wait().into_iter().zip(target.wait());
        let both: Vec<RowResult<(Row, Row)>> =
            both.map(|(q, w)| Ok((q?.into_row(), w?.into_row()))).collect();
        let proposed: Vec<Option<&Row>> =
            both.iter().map(|both| both.as_ref().ok().map(|(proposal, _)| proposal)).collect();
        let drawn = draw_or_look_up(&proposed, keys, forced, &self.vocab, chooser);
        let weigh = |(both, drawn): (RowResult<(Row, Row)>, RowResult<Option<Drawn>>)| {
            let (_, target) = both?;
            Ok(weighed(drawn?, Some(&target), self.vocab.eos_position()))
        };
        both.into_iter().zip(drawn).map(weigh).collect()
    }

    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        super::eos_weights(&mut *self.target, rows, others)
    }

    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status> {
        super::advance_both(&mut *self.target, &mut *self.proposal, rows, tokens)
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.target.select(ancestors);
        self.proposal.select(ancestors);
    }

    fn release(&mut self, rows: &[usize]) {
        self.target.release(rows);
        self.proposal.release(rows);
    }
}

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
use rayon::prelude::*;

use super::{Sampled, SamplerCursor, TokenSampler};
use crate::chooser::Chooser;
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
        let method = chooser.keyed();
        let want = match method {
            Some(method) if self.target.draws() => {
                Want::Draw(Draws { keys: keys.to_vec(), method, masks: None })
            }
            _ => Want::Row,
        };
        let ticket = self.target.request(rows, want);
        others();
        let answers = ticket.wait();
        let eos = self.vocab.eos_position();
        match method {
            Some(method) => answers
                .into_par_iter()
                .zip(keys)
                .map(|(answer, key)| {
                    Ok(weighted(match answer? {
                        Answer::Draw(drawn) => drawn,
                        other => other.into_row().draw(eos, None, method, key),
                    }))
                })
                .collect(),
            None => answers
                .into_iter()
                .zip(keys)
                .map(|(answer, key)| Ok(weighted(chooser.draw(&answer?.into_row(), eos, key))))
                .collect(),
        }
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
        let one = |((answer, key), forced): ((RowResult<Answer>, &DrawKey), &Option<&[TokenId]>)| {
            let row = answer?.into_row();
            Ok(weighted(match forced {
                Some(tokens) => look_up(&row, tokens, &self.vocab),
                None => chooser.draw(&row, self.vocab.eos_position(), key),
            }))
        };
        ticket.wait().into_iter().zip(keys).zip(forced).map(one).collect()
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

/// What a draw of `tokens` gives; `None` if they cannot be drawn.
fn look_up(row: &Row, tokens: &[TokenId], vocab: &Vocabulary) -> Option<Drawn> {
    let &[token] = tokens else { return None };
    let weight = row.at(vocab.position_of(token));
    let log_mass = row.log_total();
    (weight > f64::NEG_INFINITY).then_some(Drawn { token, log_mass, logp: weight - log_mass })
}

fn weighted(drawn: Option<Drawn>) -> Sampled {
    drawn.map_or(Sampled::DEAD, |drawn| Sampled {
        token: Some(drawn.token),
        logw: drawn.log_mass,
        logp: Some(drawn.logp),
    })
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
        let rows = proposal.wait().into_iter().zip(target.wait()).zip(keys).zip(forced);
        rows.map(|(((proposal, target), key), forced)| {
            let (proposal, target) = (proposal?.into_row(), target?.into_row());
            let drawn = match forced {
                Some(tokens) => look_up(&proposal, tokens, &self.vocab),
                None => chooser.draw(&proposal, self.vocab.eos_position(), key),
            };
            let Some(drawn) = drawn else {
                return Ok(Sampled::DEAD);
            };
            let logw = target.at(self.vocab.position_of(drawn.token)) - drawn.logp;
            Ok(Sampled { token: Some(drawn.token), logw, logp: Some(drawn.logp) })
        })
        .collect()
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

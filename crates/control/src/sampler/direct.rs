//! Direct sampling: a token in proportion to the target's next-token weights.
//!
//! With `w` the row: `t ~ exp(w - LSE w)`, `logw = LSE w`, `logp = w[t] - logw`. The weight
//! depends on the context alone. If the target is a model times boolean constraints, the engine
//! makes the draw and the row never leaves it.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, Drawn, TokenId};
use rayon::prelude::*;

use super::{Sampled, SamplerCursor, TokenSampler};
use crate::chooser::Chooser;
use crate::error::ControlError;
use crate::potential::{Answer, Cursor, Demands, Draws, Potential, RowResult, Run, Status, Want};

/// Samples from a potential's own next-token weights.
#[derive(Clone)]
pub struct Direct {
    target: Arc<dyn Potential>,
}

impl Direct {
    /// The direct sampler of `target`.
    #[must_use]
    pub fn new(target: Arc<dyn Potential>) -> Self {
        Self { target }
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
        let eos_position = self.target.vocab().eos_position();
        Ok(Box::new(DirectCursor { target: self.target.open(n, run)?, eos_position }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.target.demand(n, max_tokens, demands)
    }
}

struct DirectCursor {
    target: Box<dyn Cursor>,
    eos_position: usize,
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
        let eos = self.eos_position;
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

    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        let ticket = self.target.request(rows, super::eos_of_each(rows));
        others();
        ticket.wait().into_iter().map(super::only_weight).collect()
    }

    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status> {
        let spans: Vec<&[TokenId]> = tokens.iter().map(std::slice::from_ref).collect();
        self.target.advance(rows, &spans)
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.target.select(ancestors);
    }

    fn release(&mut self, rows: &[usize]) {
        self.target.release(rows);
    }
}

fn weighted(drawn: Option<Drawn>) -> Sampled {
    drawn.map_or(Sampled::DEAD, |drawn| Sampled {
        token: Some(drawn.token),
        logw: drawn.log_mass,
        logp: Some(drawn.logp),
    })
}

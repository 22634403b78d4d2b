//! Token samplers: draws with weights that are right.
//!
//! A sampler draws, for many rows at once, a token and a log-weight, **properly weighted**: for
//! every context x and token t, `E[exp(logw) · 1{token = t}] = exp(target.logw_next(t | x))`,
//! exactly. Chained, the weights telescope to `target.complete`.

mod awrs;
mod direct;
mod importance;
mod set;
mod unit;

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, TokenId};

pub use awrs::{Awrs, AwrsOptions, ESTIMATORS, Estimator};
pub use direct::{Direct, direct_token_sampler};
pub use importance::draw_from;
pub use set::{
    EagerSetSampler, SampledSet, SetCursor, SetSampler, SetTokenSampler, TopKSetSampler, eager_token_sampler,
    topk_token_sampler,
};

pub use unit::{
    Boundary, CfgBoundary, CfgBoundaryOptions, CriticBoundary, DecodeErrors, FixedLengthBoundary,
    MultiTokenUnitSampler, Sign, SurpriseBoundary, TokenSetBoundary, UnitLength, UnitSoFar,
};

use crate::chooser::Chooser;
use crate::error::{ControlError, ErrorKind};
use crate::potential::{Answer, Cursor, Demands, Potential, RowResult, Run, Status, Want};
use crate::sequences::Sequences;
use crate::smc::{Smc, SmcOptions};
use crate::units::Unit;

/// A token drawn for a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// The token; `None` if the row is dead.
    pub token: Option<TokenId>,
    /// The log-weight (nats); `-inf` for a dead row or a rejected token.
    pub logw: f64,
    /// The log-probability of all random choices made; `None` if the sampler cannot tell.
    pub logp: Option<f64>,
}

impl Sampled {
    /// What a dead row yields.
    pub const DEAD: Self = Self { token: None, logw: f64::NEG_INFINITY, logp: None };
}

/// Draws tokens for a target potential.
pub trait TokenSampler: Send + Sync {
    /// The tokens it draws.
    fn vocab(&self) -> &Arc<Vocabulary>;

    /// Opens `n` sequences, all empty, within `run`.
    ///
    /// # Errors
    /// If the run cannot hold them.
    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError>;

    /// Adds what `n` sequences of up to `max_tokens` tokens will take of engines' memory.
    ///
    /// # Errors
    /// If a sequence of that length is impossible.
    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError>;

    /// The most tokens that one draw appends: 1, except for samplers of units.
    fn max_unit_tokens(&self) -> usize {
        1
    }

    /// How deep its units nest: 0 for tokens, 1 for units of tokens, 2 for units of those.
    fn unit_depth(&self) -> usize {
        0
    }

    /// Whether the log-weight of a draw is a function of the context and the token alone, so that
    /// [`SamplerCursor::sample_forced`] can tell it. By default it is not.
    fn has_fixed_weights(&self) -> bool {
        false
    }

    /// A run of sequential Monte Carlo with this sampler: [`Smc::new`] and [`Smc::run`].
    ///
    /// # Errors
    /// As for these two.
    fn smc(self, critic: Option<Arc<dyn Potential>>, options: &SmcOptions) -> Result<Sequences, ControlError>
    where
        Self: Sized + 'static,
    {
        Smc::new(Arc::new(self), critic)?.run(options)
    }
}

/// A sampler's sequences, in columns.
///
/// Methods that need the model take `others`: it is called once, after this sampler has issued its
/// requests and before it waits for any, so that everybody's requests ride in one forward.
pub trait SamplerCursor: Send {
    /// The target's log-weight of the empty sequence.
    ///
    /// # Errors
    /// If the target fails.
    fn start_weight(&mut self) -> Result<f64, ControlError>;

    /// Draws a token for each row (distinct). Does not move the target. Choices of row i use
    /// `keys[i]` with ordinals from its own upwards, in program order.
    ///
    /// A sampler of units draws several tokens: its rows move up to the last one, which is the one
    /// that is returned, and [`Self::unit`] has the others.
    fn sample(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>>;

    /// The unit that `sample` has just drawn for a row, without EOS; `None` if this sampler draws
    /// tokens. It is empty if the row died.
    fn unit(&self, row: usize) -> Option<&Unit> {
        let _ = row;
        None
    }

    /// How many ordinals the choices that `sample` has just made for a row took.
    fn choices(&self, row: usize) -> u32 {
        let _ = row;
        1
    }

    /// As [`Self::sample`], except that row i takes the tokens `forced[i]` of one draw, if there are
    /// any: whatever may be drawn for it is of no account. If the sampler's weights are
    /// [fixed](TokenSampler::has_fixed_weights), its log-weight is what a draw of them gets, `-inf`
    /// if they could not be drawn; otherwise it is NaN, and whoever forces them knows it.
    fn sample_forced(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        forced: &[Option<&[TokenId]>],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        let drawn = self.sample(rows, keys, others, chooser);
        let take = |(drawn, forced): (RowResult<Sampled>, &Option<&[TokenId]>)| match forced {
            None => drawn,
            Some(tokens) => {
                drawn.map(|_| Sampled { token: tokens.last().copied(), logw: f64::NAN, logp: None })
            }
        };
        drawn.into_iter().zip(forced).map(take).collect()
    }

    /// The target's log-weight of ending now, for each row.
    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>>;

    /// Appends to each row the token that was drawn, or another one.
    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status>;

    /// New row i is a copy of old row `ancestors[i]`.
    fn select(&mut self, ancestors: &[usize]);

    /// Gives back what `rows` hold; they are dead from now on.
    fn release(&mut self, rows: &[usize]);
}

/// The log-weight of the empty sequence, from a cursor that has not moved.
fn start_weight(cursor: &mut dyn Cursor) -> Result<f64, ControlError> {
    if cursor.is_empty() {
        return Ok(0.0);
    }
    cursor.score(&[0]).pop().unwrap_or(Ok(f64::NEG_INFINITY))
}

/// The request for the end's log-weight after each row.
fn eos_of_each(rows: &[usize]) -> Want {
    Want::Tokens(vec![vec![TokenId::EOS]; rows.len()])
}

/// The one log-weight of an answer to such a request.
fn only_weight(answer: RowResult<Answer>) -> RowResult<f64> {
    Ok(answer?.into_tokens().first().copied().unwrap_or(f64::NEG_INFINITY))
}

/// The end's log-weight after each row of one cursor.
fn eos_weights(cursor: &mut dyn Cursor, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
    let ticket = cursor.request(rows, eos_of_each(rows));
    others();
    ticket.wait().into_iter().map(only_weight).collect()
}

/// One token for each row, as spans.
fn spans(tokens: &[TokenId]) -> Vec<&[TokenId]> {
    tokens.iter().map(std::slice::from_ref).collect()
}

/// Advances two cursors over the same rows.
fn advance_both(
    first: &mut dyn Cursor,
    second: &mut dyn Cursor,
    rows: &[usize],
    tokens: &[TokenId],
) -> Vec<Status> {
    let spans = spans(tokens);
    let (first, second) = (first.advance(rows, &spans), second.advance(rows, &spans));
    first.into_iter().zip(second).map(|(a, b)| a.and(b)).collect()
}

/// A proposal must read its target's tokens, the end included.
fn check_proposal(target: &dyn Potential, proposal: &dyn Potential) -> Result<(), ControlError> {
    let (target, proposal) = (target.vocab(), proposal.vocab());
    if target.same_tokens(proposal) && target.eos() == proposal.eos() {
        return Ok(());
    }
    let message = "proposals with different tokenizers are not supported";
    Err(ControlError::new(ErrorKind::Vocabulary, message))
}

//! Adaptive weighted rejection sampling (AWRS): for conditions cheap to probe but dear to mask.
//!
//! The target is `potential · condition` with a boolean condition. Candidates come from the
//! potential's row without replacement; the first that the condition accepts is the token, and
//! what the further probes find gives an unbiased weight: `logw = ln s + LSE(row)`, with `s` from
//! [`RecursiveWalk`]. (Lipkin et al., 2025; the closed form of its recursion is RAWRS-K.) With a
//! proposal the candidates come from its row, and the token's ratio of target to proposal joins
//! the weight.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, GumbelOrder, TokenId};
use rayon::prelude::*;

use super::{Sampled, SamplerCursor, TokenSampler};
use crate::chooser::Chooser;
use crate::error::{ControlError, ErrorKind};
use crate::estimator::{FirstAccepted, Outcome, Progress, RecursiveWalk};
use crate::potential::{
    Answer, Cursor, Demands, Entries, Potential, Row, RowResult, Run, Status, Ticket, Want,
};

/// Settings of [`Awrs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwrsOptions {
    /// Accepted candidates looked for, at least 2: the first is the token, the others better the
    /// weight.
    pub max_accepts: u32,
    /// Rejected candidates after which a row gives up; `None` is no limit. At least 2, or 1 in
    /// improper mode.
    pub max_rejects: Option<u64>,
    /// Whether weights are unbiased. Otherwise accepted tokens weigh exactly 1.
    pub proper_weights: bool,
    /// Replaces the run's seed in this sampler's keys; problem, slot and step stay.
    pub seed: Option<u64>,
}

impl Default for AwrsOptions {
    fn default() -> Self {
        Self { max_accepts: 2, max_rejects: None, proper_weights: true, seed: None }
    }
}

/// Samples from a potential under a boolean condition by rejection without replacement.
#[derive(Clone)]
pub struct Awrs {
    potential: Arc<dyn Potential>,
    condition: Arc<dyn Potential>,
    proposal: Option<Arc<dyn Potential>>,
    options: AwrsOptions,
}

impl Awrs {
    /// The sampler of `potential · condition`.
    ///
    /// # Errors
    /// If the condition is not boolean, reads other tokens, or an option is out of range.
    pub fn new(
        potential: Arc<dyn Potential>,
        condition: Arc<dyn Potential>,
        options: AwrsOptions,
    ) -> Result<Self, ControlError> {
        if !condition.claims().boolean {
            return Err(ControlError::new(ErrorKind::Contract, "condition must be Boolean"));
        }
        if !potential.vocab().same_tokens(condition.vocab()) {
            return Err(ControlError::new(
                ErrorKind::Vocabulary,
                "the condition reads other tokens than the potential: coerce it to the potential's vocabulary",
            ));
        }
        if options.proper_weights && options.max_accepts < 2 {
            return Err(ControlError::argument(format!(
                "max_accepts: {} must be at least 2 for proper weights",
                options.max_accepts
            )));
        }
        let least = if options.proper_weights { 2 } else { 1 };
        if let Some(max) = options.max_rejects.filter(|max| *max < least) {
            return Err(ControlError::argument(format!("max_rejects: {max} must be at least {least}")));
        }
        Ok(Self { potential, condition, proposal: None, options })
    }

    /// Takes candidates from `proposal`, which must be positive wherever the potential is.
    ///
    /// # Errors
    /// If it reads other tokens than the potential.
    pub fn with_proposal(self, proposal: Arc<dyn Potential>) -> Result<Self, ControlError> {
        super::check_proposal(&*self.potential, &*proposal)?;
        Ok(Self { proposal: Some(proposal), ..self })
    }
}

impl std::fmt::Debug for Awrs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Awrs").field("options", &self.options).finish_non_exhaustive()
    }
}

impl TokenSampler for Awrs {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.potential.vocab()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError> {
        Ok(Box::new(AwrsCursor {
            potential: self.potential.open(n, run)?,
            condition: self.condition.open(n, run)?,
            proposal: match &self.proposal {
                Some(proposal) => Some(proposal.open(n, run)?),
                None => None,
            },
            vocab: Arc::clone(self.potential.vocab()),
            options: self.options.clone(),
        }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.potential.demand(n, max_tokens, demands)?;
        self.condition.demand(n, max_tokens, demands)?;
        self.proposal.as_ref().map_or(Ok(()), |proposal| proposal.demand(n, max_tokens, demands))
    }
}

struct AwrsCursor {
    potential: Box<dyn Cursor>,
    condition: Box<dyn Cursor>,
    proposal: Option<Box<dyn Cursor>>,
    vocab: Arc<Vocabulary>,
    options: AwrsOptions,
}

impl SamplerCursor for AwrsCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        Ok(super::start_weight(&mut *self.potential)? + super::start_weight(&mut *self.condition)?)
    }

    fn sample(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        let potential = self.potential.request(rows, Want::Row);
        let proposal = self.proposal.as_mut().map(|proposal| proposal.request(rows, Want::Row));
        others();
        let answers = match proposal {
            None => rows_of(potential).into_iter().map(|row| Ok((row?, None))).collect(),
            Some(proposal) => {
                let (target, proposed) = (rows_of(potential), rows_of(proposal));
                proposed.into_iter().zip(target).map(|(q, w)| Ok((q?, Some(w?)))).collect::<Vec<_>>()
            }
        };
        if chooser.keyed().is_none() {
            let refusal = "AWRS orders its candidates by key and cannot honour another chooser";
            return rows.iter().map(|_| Err(ControlError::argument(refusal))).collect();
        }
        let seed = self.options.seed;
        let searches: Vec<RowResult<Option<Prepared<'_>>>> = answers
            .par_iter()
            .zip(keys)
            .map(|(answer, key): (&RowResult<(Row, Option<Row>)>, _)| {
                let (row, target) = answer.as_ref().map_err(Clone::clone)?;
                let problem = seed.map_or(key.problem, |seed| key.problem.with_seed(seed));
                Ok(Prepared::new(row, target.as_ref(), &DrawKey { problem, ..*key }))
            })
            .collect();
        let mut results: Vec<RowResult<Sampled>> = Vec::with_capacity(rows.len());
        let mut open: Vec<(usize, Search<'_>)> = Vec::new();
        for (i, search) in searches.iter().enumerate() {
            match search {
                Err(error) => results.push(Err(error.clone())),
                Ok(None) => results.push(Ok(Sampled::DEAD)),
                Ok(Some(prepared)) => {
                    results.push(Ok(Sampled::DEAD));
                    open.push((i, Search::new(prepared, &self.options)));
                }
            }
        }
        let mut ahead = 1;
        while !open.is_empty() {
            self.round(rows, ahead, &mut open, &mut results);
            ahead *= 2;
        }
        results
    }

    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        let first = self.potential.request(rows, super::eos_of_each(rows));
        let second = self.condition.request(rows, super::eos_of_each(rows));
        others();
        let answers = first.wait().into_iter().zip(second.wait());
        answers.map(|(a, b)| Ok(super::only_weight(a)? + super::only_weight(b)?)).collect()
    }

    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status> {
        let statuses = super::advance_both(&mut *self.potential, &mut *self.condition, rows, tokens);
        match &mut self.proposal {
            None => statuses,
            Some(proposal) => {
                let proposed = proposal.advance(rows, &super::spans(tokens));
                statuses.into_iter().zip(proposed).map(|(a, b)| a.and(b)).collect()
            }
        }
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.cursors().for_each(|cursor| cursor.select(ancestors));
    }

    fn release(&mut self, rows: &[usize]) {
        self.cursors().for_each(|cursor| cursor.release(rows));
    }
}

/// The rows of a request for them.
fn rows_of(ticket: Ticket) -> Vec<RowResult<Row>> {
    ticket.wait().into_iter().map(|answer| answer.map(Answer::into_row)).collect()
}

impl AwrsCursor {
    fn cursors(&mut self) -> impl Iterator<Item = &mut Box<dyn Cursor>> {
        [&mut self.potential, &mut self.condition].into_iter().chain(&mut self.proposal)
    }

    /// Probes up to `ahead` more candidates of every open row in one call of the condition, and
    /// moves the rows that are through to `results`.
    fn round(
        &mut self,
        rows: &[usize],
        ahead: usize,
        open: &mut Vec<(usize, Search<'_>)>,
        results: &mut [RowResult<Sampled>],
    ) {
        let candidates: Vec<Vec<usize>> =
            open.iter_mut().map(|(_, search)| search.order.by_ref().take(ahead).collect()).collect();
        let tokens = open.iter().zip(&candidates).map(|((_, search), candidates)| {
            candidates.iter().map(|index| self.vocab.token_at(search.entries.position(*index))).collect()
        });
        let probed: Vec<usize> = open.iter().map(|(i, _)| rows[*i]).collect();
        let answers = self.condition.probe(&probed, tokens.collect());
        let mut still_open = Vec::with_capacity(open.len());
        for (((i, mut search), candidates), answer) in open.drain(..).zip(candidates).zip(answers) {
            let progress = answer.and_then(|scores| search.take(&candidates, &scores));
            match progress {
                Err(error) => results[i] = Err(error),
                // An order that ran out before the walk was done has told everything.
                Ok(Progress::Continue) if candidates.len() == ahead => still_open.push((i, search)),
                Ok(_) => results[i] = Ok(search.outcome(&self.vocab)),
            }
        }
        *open = still_open;
    }
}

/// A row's entries, its mass and the order of its candidates; under a proposal also the target's
/// row.
struct Prepared<'a> {
    entries: Entries<'a>,
    target: Option<&'a Row>,
    log_z: f64,
    order: GumbelOrder,
}

impl<'a> Prepared<'a> {
    /// `None` if nothing in the row is live.
    fn new(row: &'a Row, target: Option<&'a Row>, key: &DrawKey) -> Option<Self> {
        let entries = row.entries();
        let log_z = row.log_total();
        let order = GumbelOrder::new(entries.weights(), key);
        (log_z > f64::NEG_INFINITY).then_some(Self { entries, target, log_z, order })
    }
}

enum Walk<'a> {
    Proper(RecursiveWalk<'a>),
    Improper(FirstAccepted),
}

/// A row on its way to a token.
struct Search<'a> {
    entries: &'a Entries<'a>,
    target: Option<&'a Row>,
    order: GumbelOrder,
    log_z: f64,
    walk: Walk<'a>,
}

impl<'a> Search<'a> {
    fn new(prepared: &'a Prepared<'a>, options: &AwrsOptions) -> Self {
        let Prepared { entries, target, log_z, order } = prepared;
        let walk = if options.proper_weights {
            let weights = entries.log_weights();
            Walk::Proper(RecursiveWalk::new(options.max_accepts, options.max_rejects, weights, *log_z))
        } else {
            Walk::Improper(FirstAccepted::new(options.max_rejects))
        };
        Self { entries, target: *target, order: order.clone(), log_z: *log_z, walk }
    }

    /// Offers candidates with the condition's log-weights for them, until the walk is done.
    fn take(&mut self, candidates: &[usize], scores: &[f64]) -> Result<Progress, ControlError> {
        for (&candidate, &score) in candidates.iter().zip(scores) {
            if score != 0.0 && score != f64::NEG_INFINITY {
                return Err(ControlError::new(ErrorKind::Contract, "condition must be Boolean"));
            }
            let progress = match &mut self.walk {
                Walk::Proper(walk) => walk.offer(candidate, score == 0.0),
                Walk::Improper(walk) => walk.offer(candidate, score == 0.0),
            };
            if progress == Progress::Done {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::Continue)
    }

    fn outcome(self, vocab: &Vocabulary) -> Sampled {
        let (Outcome { index, log_s }, proper) = match self.walk {
            Walk::Proper(walk) => (walk.outcome(), true),
            Walk::Improper(walk) => (walk.outcome(), false),
        };
        let mut logw = if proper { log_s + self.log_z } else { log_s };
        if let (Some(index), Some(target)) = (index, self.target) {
            let ratio = target.at(self.entries.position(index)) - self.entries.log_weights()[index];
            if proper || ratio == f64::NEG_INFINITY {
                logw += ratio;
            }
        }
        let token = index.map(|index| vocab.token_at(self.entries.position(index)));
        Sampled { token, logw, logp: None }
    }
}

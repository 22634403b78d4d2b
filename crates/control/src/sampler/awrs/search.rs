//! One row on its way to a token: an order of candidates, the answers known, and a walk.
//!
//! Answers are fetched ahead. An error among them is the row's only once the walk needs that answer.

use std::collections::{BTreeMap, VecDeque};

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, DrawKey, GumbelOrder, math};

use super::super::Sampled;
use super::{AwrsOptions, Estimator};
use crate::error::{ControlError, ErrorKind};
use crate::estimator::{FirstAccepted, GeometricWalk, Outcome, Progress, RecursiveWalk};
use crate::potential::{Entries, Row, RowResult};

/// Above this share of the mass on one candidate, [`Estimator::Auto`] is geometric.
const DOMINANT: f64 = 2.0 / 3.0;

/// What candidates are drawn from: a row's entries and its mass; under a proposal also the
/// target's row.
pub(super) struct Candidates<'a> {
    entries: Entries<'a>,
    log_z: f64,
    target: Option<&'a Row>,
    members: Option<&'a Bitset>,
}

impl<'a> Candidates<'a> {
    /// `None` if nothing in the row is live. What is not among the `members` is rejected.
    pub(super) fn new(row: &'a Row, target: Option<&'a Row>, members: Option<&'a Bitset>) -> Option<Self> {
        let log_z = row.log_total();
        (log_z > f64::NEG_INFINITY).then(|| Self { entries: row.entries(), log_z, target, members })
    }

    fn is_member(&self, index: usize) -> bool {
        self.members.is_none_or(|members| members.contains(self.entries.position(index)))
    }
}

enum Walk<'a> {
    Recursive(RecursiveWalk<'a>),
    Geometric(GeometricWalk<'a>),
    Improper(FirstAccepted),
}

pub(super) struct Search<'a> {
    candidates: &'a Candidates<'a>,
    walk: Walk<'a>,
    order: GumbelOrder,
    /// Candidates taken from the order and not offered yet.
    queue: VecDeque<usize>,
    /// The answers known, by candidate.
    answers: BTreeMap<usize, RowResult<bool>>,
    /// Answers are asked for one at a time, since several together failed.
    singly: bool,
    /// The key of the next choice.
    key: DrawKey,
    /// What the walk has said last.
    progress: Progress,
}

impl<'a> Search<'a> {
    /// A search whose choices take the ordinals from `key`'s own upwards.
    pub(super) fn new(candidates: &'a Candidates<'a>, options: &AwrsOptions, mut key: DrawKey) -> Self {
        let (weights, log_z) = (candidates.entries.log_weights(), candidates.log_z);
        let (max_accepts, max_rejects) = (options.max_accepts, options.max_rejects);
        let is_dominated = || {
            let highest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            math::exp(highest - log_z) >= DOMINANT
        };
        let walk = match options.estimator {
            _ if !options.proper_weights => Walk::Improper(FirstAccepted::new(max_rejects)),
            Estimator::Recursive => {
                Walk::Recursive(RecursiveWalk::new(max_accepts, max_rejects, weights, log_z))
            }
            Estimator::Auto if max_accepts == 2 && !is_dominated() => {
                Walk::Recursive(RecursiveWalk::new(max_accepts, max_rejects, weights, log_z))
            }
            Estimator::Geometric | Estimator::Auto => {
                Walk::Geometric(GeometricWalk::new(max_accepts, max_rejects, weights, log_z))
            }
        };
        let order = GumbelOrder::new(candidates.entries.weights(), &next(&mut key));
        let (queue, answers) = (VecDeque::new(), BTreeMap::new());
        Self { candidates, walk, order, queue, answers, singly: false, key, progress: Progress::Continue }
    }

    /// The position of a candidate in its row.
    pub(super) fn position(&self, index: usize) -> usize {
        self.candidates.entries.position(index)
    }

    /// How many choices were made since the key `first`.
    pub(super) fn choices(&self, first: &DrawKey) -> u32 {
        self.key.ordinal - first.ordinal
    }

    /// Offers the walk all candidates whose answers are known. Then lists the next ones that are
    /// not, up to `ahead`; none if the walk is done.
    ///
    /// # Errors
    /// That of an answer that the walk needs.
    pub(super) fn advance(&mut self, ahead: usize) -> RowResult<Vec<usize>> {
        loop {
            if self.progress == Progress::Done {
                return Ok(Vec::new());
            }
            if self.progress == Progress::Restart {
                self.progress = Progress::Continue;
                self.queue.clear();
                self.order = GumbelOrder::new(self.candidates.entries.weights(), &next(&mut self.key));
            }
            if self.queue.is_empty() {
                // An order that ends before the walk is done has told everything.
                let Some(index) = self.next_in_order() else { return Ok(Vec::new()) };
                self.queue.push_back(index);
            }
            let Some(accepted) = self.answer(self.queue[0]).transpose()? else { break };
            let index = self.queue.pop_front().expect("there is a first candidate");
            self.progress = match &mut self.walk {
                Walk::Recursive(walk) => walk.offer(index, accepted),
                Walk::Geometric(walk) => walk.offer(index, accepted, || next(&mut self.key).uniform(0)),
                Walk::Improper(walk) => walk.offer(index, accepted),
            };
        }
        let ahead = if self.singly { 1 } else { ahead.min(self.most_wanted()) };
        let mut unknown: Vec<usize> =
            self.queue.iter().copied().filter(|index| self.answer(*index).is_none()).take(ahead).collect();
        while unknown.len() < ahead {
            let Some(index) = self.next_in_order() else { break };
            self.queue.push_back(index);
            if self.answer(index).is_none() {
                unknown.push(index);
            }
        }
        Ok(unknown)
    }

    /// The most candidates that the walk may still want.
    fn most_wanted(&self) -> usize {
        match &self.walk {
            Walk::Recursive(walk) => walk.candidates_left().unwrap_or(usize::MAX),
            Walk::Geometric(_) | Walk::Improper(_) => usize::MAX,
        }
    }

    /// Notes the condition's log-weights of candidates, or why there are none.
    pub(super) fn learn(&mut self, candidates: &[usize], scores: RowResult<Vec<f64>>) {
        match (scores, candidates) {
            (Ok(scores), _) => {
                let answers = scores.into_iter().map(|score| match score {
                    0.0 => Ok(true),
                    f64::NEG_INFINITY => Ok(false),
                    _ => Err(ControlError::new(ErrorKind::Contract, "condition must be Boolean")),
                });
                self.answers.extend(candidates.iter().copied().zip(answers));
            }
            (Err(error), [candidate]) => {
                self.answers.insert(*candidate, Err(error));
            }
            // It does not say which of them is to blame, and the walk may end before it.
            (Err(_), _) => self.singly = true,
        }
    }

    /// What the walk found, as a token with its weight.
    pub(super) fn outcome(self, vocab: &Vocabulary) -> Sampled {
        let (Outcome { index, log_s }, proper) = match self.walk {
            Walk::Recursive(walk) => (walk.outcome(), true),
            Walk::Geometric(walk) => (walk.outcome(), true),
            Walk::Improper(walk) => (walk.outcome(), false),
        };
        let Candidates { entries, log_z, target, .. } = self.candidates;
        let mut logw = if proper { log_s + log_z } else { log_s };
        if let (Some(index), Some(target)) = (index, target) {
            let ratio = target.at(entries.position(index)) - entries.log_weights()[index];
            if proper || ratio == f64::NEG_INFINITY {
                logw += ratio;
            }
        }
        Sampled { token: index.map(|index| vocab.token_at(entries.position(index))), logw, logp: None }
    }

    /// The condition's answer for a candidate, if it is known.
    fn answer(&self, index: usize) -> Option<RowResult<bool>> {
        if !self.candidates.is_member(index) {
            return Some(Ok(false));
        }
        self.answers.get(&index).cloned()
    }

    /// The next candidate in the order that the walk has not rejected.
    fn next_in_order(&mut self) -> Option<usize> {
        let walk = &self.walk;
        self.order.find(|index| !matches!(walk, Walk::Geometric(walk) if walk.is_rejected(*index)))
    }
}

/// The key of one choice; `key` moves on to the next.
fn next(key: &mut DrawKey) -> DrawKey {
    let own = *key;
    key.ordinal += 1;
    own
}

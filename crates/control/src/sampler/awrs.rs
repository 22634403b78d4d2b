//! Adaptive weighted rejection sampling (AWRS): for conditions cheap to probe but dear to mask.
//!
//! The target is `potential · condition` with a boolean condition. Candidates come from the
//! potential's row without replacement; the first that the condition accepts is the token, and
//! what the further probes find gives an unbiased weight: `logw = ln s + LSE(row)`, with `s` from
//! an [`Estimator`]. (Lipkin et al., 2025.) With a proposal the candidates come from its row, and
//! the token's ratio of target to proposal joins the weight.

mod search;

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, DrawKey, TokenId};
use rayon::prelude::*;

use search::{Candidates, Search};

use super::{Sampled, SamplerCursor, TokenSampler};
use crate::chooser::Chooser;
use crate::error::{ControlError, ErrorKind};
use crate::potential::{
    Answer, Cursor, Demands, Potential, Product, Row, RowResult, Run, Status, Ticket, Want,
};

/// How AWRS finds the weight of what it found. The variances and costs of both are in
/// `docs/samplers.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimator {
    /// RAWRS-K, with K = `max_accepts` - 1 further probes ([`RecursiveWalk`](crate::RecursiveWalk)).
    #[default]
    Recursive,
    /// GAWRS, a run with replacement ([`GeometricWalk`](crate::GeometricWalk)).
    Geometric,
    /// Geometric if `max_accepts` is above 2 or one candidate has at least two thirds of the mass,
    /// else recursive: the choice that genlm-control makes.
    Auto,
}

/// The names of all estimators.
pub const ESTIMATORS: [&str; 3] = ["recursive", "geometric", "auto"];

impl std::str::FromStr for Estimator {
    type Err = ControlError;

    fn from_str(name: &str) -> Result<Self, ControlError> {
        let all = [Self::Recursive, Self::Geometric, Self::Auto];
        ESTIMATORS.iter().position(|known| *known == name).map(|i| all[i]).ok_or_else(|| {
            ControlError::argument(format!(
                "estimator `{name}` is unknown: use one of {}",
                ESTIMATORS.join(", ")
            ))
        })
    }
}

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
    /// Where the weight comes from.
    pub estimator: Estimator,
    /// Whether tokens that the condition lacks are left out of the row before anything is drawn.
    /// Otherwise they are drawn like all others and rejected without a probe.
    pub prune_logws: bool,
    /// Replaces the run's seed in this sampler's keys; problem, slot, step and ordinal stay.
    pub seed: Option<u64>,
}

impl Default for AwrsOptions {
    fn default() -> Self {
        Self {
            max_accepts: 2,
            max_rejects: None,
            proper_weights: true,
            estimator: Estimator::default(),
            prune_logws: true,
            seed: None,
        }
    }
}

/// Samples from a potential under a boolean condition by rejection without replacement.
#[derive(Clone)]
pub struct Awrs {
    potential: Arc<dyn Potential>,
    condition: Arc<dyn Potential>,
    proposal: Option<Arc<dyn Potential>>,
    /// The positions that the target has, if it lacks some of the potential's.
    members: Option<Arc<Bitset>>,
    options: AwrsOptions,
}

impl Awrs {
    /// The sampler of `potential · condition`, whose vocabulary is the tokens of both.
    ///
    /// # Errors
    /// If the condition is not boolean, the two have no [`Product`], or an option is out of range.
    pub fn new(
        potential: Arc<dyn Potential>,
        condition: Arc<dyn Potential>,
        options: AwrsOptions,
    ) -> Result<Self, ControlError> {
        if !condition.claims().boolean {
            return Err(ControlError::new(ErrorKind::Contract, "condition must be Boolean"));
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
        let ([potential, condition], common) = Product::new(potential, condition)?.into_factors();
        let members = common.map(|common| {
            let mut members = Bitset::clone(&common);
            members.insert(potential.vocab().eos_position());
            Arc::new(members)
        });
        Ok(Self { potential, condition, proposal: None, members, options })
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
            members: self.members.clone(),
            options: self.options.clone(),
            choices: vec![1; n],
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
    members: Option<Arc<Bitset>>,
    options: AwrsOptions,
    /// How many choices the last draw of each row took.
    choices: Vec<u32>,
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
        let rows_and_targets: Vec<RowResult<(Row, Option<Row>)>> = match proposal {
            None => rows_of(potential).into_iter().map(|row| Ok((self.pruned(row?), None))).collect(),
            Some(proposal) => {
                let (target, proposed) = (rows_of(potential), rows_of(proposal));
                let both = proposed.into_iter().zip(target);
                both.map(|(q, w)| Ok((self.pruned(q?), Some(w?)))).collect()
            }
        };
        if chooser.keyed().is_none() {
            let refusal = "AWRS orders its candidates by key and cannot honour another chooser";
            return rows.iter().map(|_| Err(ControlError::argument(refusal))).collect();
        }
        let (seed, members) = (self.options.seed, self.members.clone());
        let candidates: Vec<RowResult<Option<Candidates<'_>>>> = rows_and_targets
            .par_iter()
            .map(|found| {
                let (row, target) = found.as_ref().map_err(Clone::clone)?;
                Ok(Candidates::new(row, target.as_ref(), members.as_deref()))
            })
            .collect();
        let mut results: Vec<RowResult<Sampled>> =
            candidates.iter().map(|c| c.as_ref().map(|_| Sampled::DEAD).map_err(Clone::clone)).collect();
        let live: Vec<(usize, &Candidates<'_>)> = candidates
            .iter()
            .enumerate()
            .filter_map(|(i, candidates)| Some((i, candidates.as_ref().ok()?.as_ref()?)))
            .collect();
        let options = self.options.clone();
        let mut open: Vec<(usize, Search<'_>)> = live
            .into_par_iter()
            .map(|(i, candidates)| {
                let problem = keys[i].problem;
                let key =
                    DrawKey { problem: seed.map_or(problem, |seed| problem.with_seed(seed)), ..keys[i] };
                (i, Search::new(candidates, &options, key))
            })
            .collect();
        let mut ahead = 1;
        while !open.is_empty() {
            self.round(rows, keys, ahead, &mut open, &mut results);
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

    fn choices(&self, row: usize) -> u32 {
        self.choices[row]
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.cursors().for_each(|cursor| cursor.select(ancestors));
        self.choices.resize(ancestors.len(), 1);
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

    /// A row to draw from without what the target lacks.
    fn pruned(&self, row: Row) -> Row {
        match self.members.as_ref().filter(|_| self.options.prune_logws) {
            Some(members) => row.product(&Row::bits(Arc::clone(members))),
            None => row,
        }
    }

    /// Takes every open row as far as what is known goes, then probes up to `ahead` more candidates
    /// of each that goes on in one call of the condition. Moves the rows that are through to
    /// `results`.
    fn round(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        ahead: usize,
        open: &mut Vec<(usize, Search<'_>)>,
        results: &mut [RowResult<Sampled>],
    ) {
        let vocab = &self.vocab;
        let wanted: Vec<RowResult<Vec<usize>>> =
            open.par_iter_mut().map(|(_, search)| search.advance(ahead)).collect();
        let mut going = Vec::with_capacity(open.len());
        for ((i, search), wanted) in open.drain(..).zip(wanted) {
            match wanted {
                Err(error) => results[i] = Err(error),
                Ok(wanted) if wanted.is_empty() => {
                    self.choices[rows[i]] = search.choices(&keys[i]);
                    results[i] = Ok(search.outcome(vocab));
                }
                Ok(wanted) => going.push((i, search, wanted)),
            }
        }
        let probed: Vec<usize> = going.iter().map(|(i, ..)| rows[*i]).collect();
        let tokens = going.iter().map(|(_, search, wanted)| {
            wanted.iter().map(|index| vocab.token_at(search.position(*index))).collect()
        });
        let answers = self.condition.probe(&probed, tokens.collect());
        for ((i, mut search, wanted), scores) in going.into_iter().zip(answers) {
            search.learn(&wanted, scores);
            open.push((i, search));
        }
    }
}

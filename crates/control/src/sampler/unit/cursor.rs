//! Rows of a sampler of units: the units they have, and those that are drawn.
//!
//! All rows whose units go on take their next subunit together, until none is left.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, TokenId};

use super::{Boundary, MultiTokenUnitSampler, UnitSoFar};
use crate::chooser::Chooser;
use crate::error::ControlError;
use crate::potential::{Cursor, RowResult, Run, Status, Ticket, Want, guarded, score_after};
use crate::sampler::{Sampled, SamplerCursor, TokenSampler};
use crate::units::{Unit, UnitEnds};
use crate::weights;

/// A row: the units it has, and the one drawn last.
#[derive(Clone, Default)]
struct Column {
    context: Vec<TokenId>,
    ends: UnitEnds,
    /// The unit that is not part of the context yet, and whether it is all drawn.
    unit: Unit,
    is_drawn: bool,
    /// How many choices were made for it.
    choices: u32,
}

pub(super) struct UnitCursor {
    subunits: Box<dyn SamplerCursor>,
    boundary: Arc<dyn Boundary>,
    critic: Option<Box<dyn Cursor>>,
    max_subunits: usize,
    vocab: Arc<Vocabulary>,
    columns: Vec<Column>,
}

/// A row whose unit goes on.
struct Open {
    /// Its place in the call.
    i: usize,
    row: usize,
    key: DrawKey,
    logw: f64,
    logp: Option<f64>,
    /// The critic's log-weight before the unit.
    critic_before: f64,
}

/// A subunit drawn, before anybody has moved.
struct Step {
    open: Open,
    token: TokenId,
    /// Where its tokens begin in the buffer.
    from: usize,
}

impl SamplerCursor for UnitCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        self.subunits.start_weight()
    }

    fn sample(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        let mut results: Vec<RowResult<Sampled>> = vec![Ok(Sampled::DEAD); rows.len()];
        let mut open = self.begin(rows, keys, &mut results);
        let mut others = Some(others);
        while !open.is_empty() {
            let steps = self.draw(open, &mut others, chooser, &mut results);
            open = self.go_on(steps, &mut results);
        }
        if let Some(others) = others {
            // Nothing was asked.
            others();
        }
        for (row, result) in rows.iter().zip(&results) {
            let column = &mut self.columns[*row];
            column.is_drawn = result.as_ref().is_ok_and(|sampled| sampled.token.is_some());
            if !column.is_drawn {
                // What dies midway leaves nothing behind.
                column.unit.clear();
            }
        }
        results
    }

    /// A forced row takes its tokens as one unit: nothing is drawn for it, and no boundary asked.
    fn sample_forced(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        forced: &[Option<&[TokenId]>],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        let free: Vec<usize> = (0..rows.len()).filter(|i| forced[*i].is_none()).collect();
        let free_rows: Vec<usize> = free.iter().map(|i| rows[*i]).collect();
        let free_keys: Vec<DrawKey> = free.iter().map(|i| keys[*i]).collect();
        let mut results = vec![Ok(Sampled::DEAD); rows.len()];
        for (i, drawn) in free.into_iter().zip(self.sample(&free_rows, &free_keys, others, chooser)) {
            results[i] = drawn;
        }
        for (i, (row, tokens)) in rows.iter().zip(forced).enumerate() {
            if let Some(tokens) = tokens {
                results[i] = self.force(*row, tokens);
            }
        }
        results
    }

    fn unit(&self, row: usize) -> Option<&Unit> {
        Some(&self.columns[row].unit)
    }

    fn choices(&self, row: usize) -> u32 {
        self.columns[row].choices
    }

    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        self.subunits.logw_eos(rows, others)
    }

    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status> {
        for (row, token) in rows.iter().zip(tokens) {
            let Column { context, ends, unit, is_drawn, .. } = &mut self.columns[*row];
            if !std::mem::take(is_drawn) && !token.is_eos() {
                // Moved by hand: the token is a unit of its own.
                unit.clear();
                unit.push_token(*token);
            }
            if !(unit.is_empty() && token.is_eos()) {
                ends.push(context.len(), unit);
                context.extend(&unit.tokens);
                unit.clear();
            }
        }
        self.subunits.advance(rows, tokens)
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.subunits.select(ancestors);
        if let Some(critic) = &mut self.critic {
            critic.select(ancestors);
        }
        self.columns = ancestors.iter().map(|ancestor| self.columns[*ancestor].clone()).collect();
    }

    fn release(&mut self, rows: &[usize]) {
        self.subunits.release(rows);
        if let Some(critic) = &mut self.critic {
            critic.release(rows);
        }
        rows.iter().for_each(|row| self.columns[*row] = Column::default());
    }
}

impl UnitCursor {
    /// `n` empty sequences of `sampler` within `run`.
    pub(super) fn open(sampler: &MultiTokenUnitSampler, n: usize, run: &Run) -> Result<Self, ControlError> {
        let critic = match sampler.boundary.critic() {
            Some(critic) => Some(critic.open(n, run)?),
            None => None,
        };
        Ok(Self {
            subunits: sampler.subunits.open(n, run)?,
            boundary: Arc::clone(&sampler.boundary),
            critic,
            max_subunits: sampler.max_subunits,
            vocab: Arc::clone(sampler.vocab()),
            columns: vec![Column::default(); n],
        })
    }

    /// Moves a row up to the last of `tokens`, which are a unit, perhaps with EOS.
    fn force(&mut self, row: usize, tokens: &[TokenId]) -> RowResult<Sampled> {
        let Some((last, before)) = tokens.split_last() else { return Ok(Sampled::DEAD) };
        for token in before {
            if let Some(Status::Failed(error)) = self.subunits.advance(&[row], &[*token]).pop() {
                return Err(error);
            }
        }
        let drawn = if last.is_eos() { before } else { tokens };
        if let Some(critic) = &mut self.critic
            && let Some(Status::Failed(error)) = critic.advance(&[row], &[drawn]).pop()
        {
            return Err(error);
        }
        let column = &mut self.columns[row];
        column.unit.clear();
        column.unit.tokens.extend(drawn);
        (column.is_drawn, column.choices) = (true, 0);
        Ok(Sampled { token: Some(*last), logw: f64::NAN, logp: None })
    }

    /// The rows of a call, at the start of their units.
    fn begin(&mut self, rows: &[usize], keys: &[DrawKey], results: &mut [RowResult<Sampled>]) -> Vec<Open> {
        let before = match &mut self.critic {
            Some(critic) => critic.score(rows),
            None => vec![Ok(0.0); rows.len()],
        };
        let mut open = Vec::with_capacity(rows.len());
        for (i, ((row, key), before)) in rows.iter().zip(keys).zip(before).enumerate() {
            let column = &mut self.columns[*row];
            (column.is_drawn, column.choices) = (false, 0);
            column.unit.clear();
            match before {
                Ok(critic_before) => {
                    open.push(Open { i, row: *row, key: *key, logw: 0.0, logp: Some(0.0), critic_before });
                }
                Err(error) => results[i] = Err(error),
            }
        }
        open
    }

    /// One subunit for each open row. Rows that end with it, for good or bad, go to `results`.
    fn draw(
        &mut self,
        open: Vec<Open>,
        others: &mut Option<&mut dyn FnMut()>,
        chooser: &mut dyn Chooser,
        results: &mut [RowResult<Sampled>],
    ) -> Vec<Step> {
        let rows: Vec<usize> = open.iter().map(|open| open.row).collect();
        let keys: Vec<DrawKey> = open.iter().map(|open| open.key).collect();
        let mut held: Option<Ticket> = None;
        let critic = &mut self.critic;
        let mut together = || {
            if let Some(critic) = critic.as_mut() {
                held.get_or_insert_with(|| critic.request(&rows, Want::Hold));
            }
            if let Some(others) = others.take() {
                others();
            }
        };
        let drawn = self.subunits.sample(&rows, &keys, &mut together, chooser);
        if let Some(held) = held {
            // Its rows' errors come back with their scores.
            let _ = held.wait();
        }
        let mut steps = Vec::with_capacity(open.len());
        for (mut open, drawn) in open.into_iter().zip(drawn) {
            let choices = self.subunits.choices(open.row);
            open.key.ordinal += choices;
            let column = &mut self.columns[open.row];
            column.choices += choices;
            let added = drawn.and_then(|drawn| {
                open.logw = weights::add(open.logw, drawn.logw)?;
                open.logp = open.logp.zip(drawn.logp).map(|(a, b)| a + b);
                Ok(drawn.token.filter(|_| open.logw > f64::NEG_INFINITY))
            });
            let from = column.unit.tokens.len();
            match added {
                Err(error) => results[open.i] = Err(error),
                Ok(None) => results[open.i] = Ok(Sampled { logp: open.logp, ..Sampled::DEAD }),
                Ok(Some(token)) => {
                    match self.subunits.unit(open.row) {
                        // A subunit that is only EOS is none.
                        Some(subunit) if subunit.is_empty() && token.is_eos() => {}
                        Some(subunit) => column.unit.push_unit(subunit),
                        None if token.is_eos() => {}
                        None => column.unit.push_token(token),
                    }
                    if token.is_eos() {
                        results[open.i] = Ok(open.sampled(token));
                    } else {
                        steps.push(Step { open, token, from });
                    }
                }
            }
        }
        steps
    }

    /// The rows whose boundary is not met, moved by what was drawn.
    fn go_on(&mut self, steps: Vec<Step>, results: &mut [RowResult<Sampled>]) -> Vec<Open> {
        let changes = self.move_critic(&steps);
        let (mut open, mut rows, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for (Step { open: row, token, from }, change) in steps.into_iter().zip(changes) {
            let met = change.and_then(|critic| self.is_met(&row, from, critic));
            let column = &mut self.columns[row.row];
            match met {
                Err(error) => results[row.i] = Err(error),
                Ok(true) => {
                    let unit = std::mem::take(&mut column.unit);
                    column.unit = self.boundary.finalize_unit(unit);
                    results[row.i] = Ok(row.sampled(token));
                }
                Ok(false) if column.unit.len() >= self.max_subunits => {
                    results[row.i] = Ok(Sampled { logp: row.logp, ..Sampled::DEAD });
                }
                Ok(false) => {
                    rows.push(row.row);
                    tokens.push(token);
                    open.push(row);
                }
            }
        }
        let statuses = self.subunits.advance(&rows, &tokens);
        let mut going = Vec::with_capacity(open.len());
        for (row, status) in open.into_iter().zip(statuses) {
            match status {
                Status::Failed(error) => results[row.i] = Err(error),
                // A dead one draws nothing in its next step.
                Status::Dead | Status::Live => going.push(row),
            }
        }
        going
    }

    /// Moves the critic by each step's tokens; how much its weight has changed over each unit.
    fn move_critic(&mut self, steps: &[Step]) -> Vec<RowResult<f64>> {
        let Some(critic) = &mut self.critic else { return vec![Ok(0.0); steps.len()] };
        let rows: Vec<usize> = steps.iter().map(|step| step.open.row).collect();
        let spans: Vec<&[TokenId]> =
            steps.iter().map(|step| &self.columns[step.open.row].unit.tokens[step.from..]).collect();
        let scores = score_after(&mut **critic, &rows, &spans);
        let change = |(score, step): (RowResult<f64>, &Step)| match score? {
            f64::NEG_INFINITY => Ok(f64::NEG_INFINITY),
            score => Ok(score - step.open.critic_before),
        };
        scores.into_iter().zip(steps).map(change).collect()
    }

    fn is_met(&self, open: &Open, from: usize, critic: f64) -> RowResult<bool> {
        let Column { context, ends, unit, .. } = &self.columns[open.row];
        let so_far = UnitSoFar {
            context: (context, ends),
            buffer: unit,
            last: &unit.tokens[from..],
            logw: open.logw,
            critic,
            vocab: &self.vocab,
        };
        guarded("the boundary", || self.boundary.is_met(&so_far))
    }
}

impl Open {
    fn sampled(&self, token: TokenId) -> Sampled {
        Sampled { token: Some(token), logw: self.logw, logp: self.logp }
    }
}

//! Potentials whose calls are merged across concurrent runs.

use std::sync::Arc;

use lockstep_engine::StragglerWait;
use lockstep_engine::party::PartyId;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use super::meeting::{Ask, BatchPotential, Meeting};
use super::{Answer, Answers, Claims, Cursor, Potential, Row, RowResult, Run, Status, Ticket, Want, closed};
use crate::canceller::{Canceller, OnCancel};
use crate::error::ControlError;

/// A [`BatchPotential`] as a [`Potential`]: what concurrent runs ask of it in one tick is one call.
///
/// A row that fails carries its error to its own run only. If the run that makes a batch for
/// everybody is cancelled in it, the others get [`BatchAbandoned`](crate::ErrorKind::BatchAbandoned).
pub struct Autobatched<P>(Arc<Meeting<P>>);

impl<P: BatchPotential + 'static> Autobatched<P> {
    /// Merges the calls of `potential`.
    #[must_use]
    pub fn new(potential: P) -> Self {
        Self::with_straggler_wait(potential, StragglerWait::default())
    }

    /// The same, with another wait for runs that are still busy.
    #[must_use]
    pub fn with_straggler_wait(potential: P, straggler_wait: StragglerWait) -> Self {
        Self(Arc::new(Meeting::new(potential, straggler_wait)))
    }
}

impl<P> std::fmt::Debug for Autobatched<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Autobatched").finish_non_exhaustive()
    }
}

impl<P: BatchPotential + 'static> Potential for Autobatched<P> {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.0.potential.vocab()
    }

    fn claims(&self) -> Claims {
        self.0.potential.claims()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let row = Column { tokens: Vec::new(), weight: None, closed: false };
        Ok(Box::new(AutobatchedCursor::new(Arc::clone(&self.0), run.canceller().clone(), vec![row; n])))
    }
}

#[derive(Clone)]
struct Column {
    tokens: Vec<TokenId>,
    /// `prefix` while open, `complete` once closed; `None` until somebody asks.
    weight: Option<RowResult<f64>>,
    closed: bool,
}

impl Column {
    fn own(&self) -> Ask {
        if self.closed { Ask::Complete(self.tokens.clone()) } else { Ask::Prefix(self.tokens.clone()) }
    }

    fn extended(&self, token: TokenId) -> Ask {
        if token.is_eos() {
            Ask::Complete(self.tokens.clone())
        } else {
            Ask::Prefix([self.tokens.as_slice(), &[token]].concat())
        }
    }

    fn is_dead(&self) -> bool {
        matches!(self.weight, Some(Ok(f64::NEG_INFINITY)))
    }
}

/// Contexts in a column, weighed when their weight is asked for.
struct AutobatchedCursor<P: BatchPotential> {
    meeting: Arc<Meeting<P>>,
    party: PartyId,
    canceller: Canceller,
    _cancels: OnCancel,
    rows: Vec<Column>,
}

impl<P: BatchPotential + 'static> AutobatchedCursor<P> {
    fn new(meeting: Arc<Meeting<P>>, canceller: Canceller, rows: Vec<Column>) -> Self {
        let party = meeting.parties.join();
        let weak = Arc::downgrade(&meeting);
        let cancels = canceller.on_cancel(move || {
            if let Some(meeting) = weak.upgrade() {
                meeting.cancel(party);
            }
        });
        Self { meeting, party, canceller, _cancels: cancels, rows }
    }

    /// The answers to `asks`, in one batch with whatever others ask.
    fn ask(&self, asks: Vec<Ask>) -> Vec<RowResult<f64>> {
        if asks.is_empty() {
            return Vec::new();
        }
        let call = self.meeting.submit(self.party, asks);
        self.meeting.wait(self.party, &call)
    }

    /// Weighs the rows that are not weighed yet.
    fn weigh(&mut self, rows: &[usize]) {
        let unknown: Vec<usize> =
            rows.iter().copied().filter(|row| self.rows[*row].weight.is_none()).collect();
        let weights = self.ask(unknown.iter().map(|row| self.rows[*row].own()).collect());
        for (row, weight) in unknown.into_iter().zip(weights) {
            self.rows[row].weight = Some(weight);
        }
    }

    fn weight(&self, row: usize) -> RowResult<f64> {
        self.rows[row].weight.clone().unwrap_or(Ok(f64::NEG_INFINITY))
    }
}

impl<P: BatchPotential> Drop for AutobatchedCursor<P> {
    fn drop(&mut self) {
        self.meeting.leave(self.party);
    }
}

/// What a request needs to be answered: the tokens of each row, all of them for a whole row.
struct Plan {
    vocab: Arc<Vocabulary>,
    want: Want,
    /// For each row its weight, if it is known, and the tokens to weigh after it.
    rows: Vec<(Option<RowResult<f64>>, Vec<TokenId>)>,
}

impl Plan {
    fn answers(self, weights: Vec<RowResult<f64>>) -> Answers {
        let mut weights = weights.into_iter();
        let mut next = || weights.next().unwrap_or(Ok(f64::NEG_INFINITY));
        let mut answers = Vec::with_capacity(self.rows.len());
        for (i, (known, tokens)) in self.rows.into_iter().enumerate() {
            let before = known.unwrap_or_else(&mut next);
            let after: Vec<RowResult<f64>> = tokens.iter().map(|_| next()).collect();
            answers.push(before.and_then(|before| {
                let weigh = |after: RowResult<f64>| {
                    Ok(if before == f64::NEG_INFINITY { before } else { after? - before })
                };
                let after = after.into_iter().map(weigh).collect::<RowResult<Vec<f64>>>()?;
                Ok(match &self.want {
                    Want::Hold => Answer::Held,
                    Want::Tokens(_) => Answer::Tokens(after),
                    Want::Row => Answer::Row(Row::dense(after)),
                    Want::Draw(draws) => Answer::Draw(Row::dense(after).draw(
                        self.vocab.eos_position(),
                        draws.masks.as_ref().map(|masks| &masks[i]),
                        draws.method,
                        &draws.keys[i],
                    )),
                })
            }));
        }
        answers
    }
}

impl<P: BatchPotential + 'static> Cursor for AutobatchedCursor<P> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let vocab = Arc::clone(self.meeting.potential.vocab());
        let (mut plan, mut asks) = (Vec::with_capacity(rows.len()), Vec::new());
        for (i, row) in rows.iter().enumerate() {
            let column = &self.rows[*row];
            let known = if column.closed { Some(Err(closed())) } else { column.weight.clone() };
            let tokens = match &want {
                Want::Hold => Vec::new(),
                Want::Tokens(tokens) => tokens[i].clone(),
                Want::Row | Want::Draw(_) => (0..vocab.row_len()).map(|at| vocab.token_at(at)).collect(),
            };
            if !matches!(want, Want::Hold) && known.is_none() {
                asks.push(column.own());
            }
            asks.extend(tokens.iter().map(|token| column.extended(*token)));
            let known = if matches!(want, Want::Hold) { known.or(Some(Ok(0.0))) } else { known };
            plan.push((known, tokens));
        }
        let plan = Plan { vocab, want, rows: plan };
        if asks.is_empty() {
            return Ticket::ready(plan.answers(Vec::new()));
        }
        let (meeting, party) = (Arc::clone(&self.meeting), self.party);
        let call = meeting.submit(party, asks);
        Ticket::deferred(move || plan.answers(meeting.wait(party, &call)))
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let vocab = Arc::clone(self.meeting.potential.vocab());
        let mut statuses = Vec::with_capacity(rows.len());
        for (&row, span) in rows.iter().zip(spans) {
            let column = &mut self.rows[row];
            for token in *span {
                if column.is_dead() || matches!(column.weight, Some(Err(_))) {
                    break;
                }
                column.weight = if column.closed {
                    Some(Err(closed()))
                } else if token.is_eos() {
                    column.closed = true;
                    None
                } else if vocab.is_member(*token) {
                    column.tokens.push(*token);
                    None
                } else {
                    Some(Ok(f64::NEG_INFINITY))
                };
            }
            statuses.push(match &column.weight {
                Some(Err(error)) => Status::Failed(error.clone()),
                Some(Ok(f64::NEG_INFINITY)) => Status::Dead,
                _ => Status::Live,
            });
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.weigh(rows);
        rows.iter().map(|row| self.weight(*row)).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let open: Vec<usize> = rows
            .iter()
            .copied()
            .filter(|row| !self.rows[*row].closed && !self.rows[*row].is_dead())
            .collect();
        let asks = open.iter().map(|row| Ask::Complete(self.rows[*row].tokens.clone())).collect();
        let mut weights = self.ask(asks).into_iter();
        rows.iter()
            .map(|row| {
                let column = &self.rows[*row];
                match &column.weight {
                    Some(Ok(f64::NEG_INFINITY)) => Ok(f64::NEG_INFINITY),
                    _ if column.closed => Err(closed()),
                    _ => weights.next().unwrap_or(Ok(f64::NEG_INFINITY)),
                }
            })
            .collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.rows = ancestors.iter().map(|ancestor| self.rows[*ancestor].clone()).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        let rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
        Box::new(Self::new(Arc::clone(&self.meeting), self.canceller.clone(), rows))
    }

    fn release(&mut self, rows: &[usize]) {
        for row in rows {
            self.rows[*row] =
                Column { tokens: Vec::new(), weight: Some(Ok(f64::NEG_INFINITY)), closed: false };
        }
    }
}

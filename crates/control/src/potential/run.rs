//! A run's place in the engines it uses: one party and one reservation in each.

use std::sync::{Arc, Mutex, PoisonError};

use lockstep_engine::{Engine, Party, Reservation};

use crate::canceller::{Canceller, OnCancel};
use crate::error::{ControlError, cancelled};

/// The memory that a run's cursors will take, by engine.
#[derive(Debug, Default)]
pub struct Demands(Vec<(Engine, usize)>);

impl Demands {
    /// Adds `tokens` tokens of sequences held in `engine`.
    pub fn add(&mut self, engine: &Engine, tokens: usize) {
        match self.0.iter_mut().find(|(known, _)| known.same(engine)) {
            Some((_, total)) => *total = total.saturating_add(tokens),
            None => self.0.push((engine.clone(), tokens)),
        }
    }
}

/// What the cursors of one run share. Dropping it, and them, leaves the engines.
#[derive(Debug, Default)]
pub struct Run {
    parties: Mutex<Vec<Joined>>,
    canceller: Canceller,
    _reservations: Vec<Reservation>,
}

#[derive(Debug)]
struct Joined {
    engine: Engine,
    party: Arc<Party>,
    _cancels: OnCancel,
}

impl Run {
    /// Reserves `demands` at once in each engine, waiting its turn, and joins them as a party.
    ///
    /// # Errors
    /// If an engine can never hold that much.
    pub fn reserve(demands: Demands) -> Result<Self, ControlError> {
        Self::reserve_with(demands, Canceller::default())
    }

    /// As [`Self::reserve`], for a run that `canceller` ends, also while it waits here: what it has got
    /// is given back, and so is its turn.
    ///
    /// # Errors
    /// As for [`Self::reserve`]; of kind [`Cancelled`](crate::ErrorKind::Cancelled) if it was cancelled.
    pub fn reserve_with(mut demands: Demands, canceller: Canceller) -> Result<Self, ControlError> {
        // Everybody takes engines in one order, so nobody holds one while it waits for another whose
        // holder waits for the first.
        demands.0.sort_by_key(|(engine, _)| engine.number());
        let mut reservations = Vec::with_capacity(demands.0.len());
        for (engine, tokens) in &demands.0 {
            let pending = engine.line_up(*tokens)?;
            let hook = canceller.on_cancel(pending.canceller());
            let reservation = pending.wait();
            drop(hook);
            if canceller.is_cancelled() {
                return Err(cancelled());
            }
            reservations.push(reservation?);
        }
        let run = Self { canceller, _reservations: reservations, ..Self::default() };
        for (engine, _) in &demands.0 {
            run.party(engine);
        }
        Ok(run)
    }

    /// What ends the run from another thread.
    #[must_use]
    pub fn canceller(&self) -> &Canceller {
        &self.canceller
    }

    /// This run's party in `engine`; it joins if it had not.
    pub fn party(&self, engine: &Engine) -> Arc<Party> {
        let mut parties = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(joined) = parties.iter().find(|joined| joined.engine.same(engine)) {
            return Arc::clone(&joined.party);
        }
        let party = Arc::new(engine.party());
        let weak = Arc::downgrade(&party);
        let cancels = self.canceller.on_cancel(move || {
            if let Some(party) = weak.upgrade() {
                party.cancel();
            }
        });
        parties.push(Joined { engine: engine.clone(), party: Arc::clone(&party), _cancels: cancels });
        party
    }
}

//! A run's place in the engines it uses: one party and one reservation in each.

use std::sync::{Arc, Mutex, PoisonError};

use lockstep_engine::{Engine, Party, Reservation};

use crate::error::ControlError;

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
    parties: Mutex<Vec<(Engine, Arc<Party>)>>,
    _reservations: Vec<Reservation>,
}

impl Run {
    /// Reserves `demands` at once in each engine, waiting its turn, and joins them as a party.
    ///
    /// # Errors
    /// If an engine can never hold that much.
    pub fn reserve(demands: Demands) -> Result<Self, ControlError> {
        let mut reservations = Vec::with_capacity(demands.0.len());
        for (engine, tokens) in &demands.0 {
            reservations.push(engine.reserve(*tokens)?);
        }
        let parties = demands.0.into_iter().map(|(engine, _)| (engine.clone(), Arc::new(engine.party())));
        Ok(Self { parties: Mutex::new(parties.collect()), _reservations: reservations })
    }

    /// This run's party in `engine`; it joins if it had not.
    pub fn party(&self, engine: &Engine) -> Arc<Party> {
        let mut parties = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, party)) = parties.iter().find(|(known, _)| known.same(engine)) {
            return Arc::clone(party);
        }
        let party = Arc::new(engine.party());
        parties.push((engine.clone(), Arc::clone(&party)));
        party
    }
}

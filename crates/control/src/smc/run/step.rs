//! The population loop.
//!
//! Every live particle takes one token, or one unit, a step. Per step the critic's weight is a provisional
//! *twist*, replaced at the next step and turned into weight at the end (*settled*), so that
//! between resamplings twists cancel and across one they give the critic's ratio.

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, POPULATION, TokenId};

use super::{Cursors, SmcRun, Step, cancelled};
use crate::error::ControlError;
use crate::potential::{RowResult, Status, Ticket, Want, score_after};
use crate::record::escape;
use crate::sampler::Sampled;
use crate::smc::conditional::Path;
use crate::weights;

impl SmcRun {
    pub(super) fn advance_population(&mut self, cursors: &mut Cursors) -> Result<Step, ControlError> {
        if self.canceller.is_cancelled() {
            return Err(cancelled());
        }
        self.step += 1;
        let before: Vec<usize> = self.population.contexts.iter().map(Vec::len).collect();
        let live = self.population.live();
        for &i in &live {
            self.population.twist[i] = 0.0;
        }
        let critic_row = self.take_tokens(cursors, &live)?;
        let appended: Vec<usize> =
            live.iter().copied().filter(|i| self.population.base[*i] > f64::NEG_INFINITY).collect();
        let read: Vec<usize> = appended.iter().map(|i| before[*i]).collect();
        self.twist(cursors, &appended, &read, critic_row)?;
        self.end_particles(cursors, &appended)?;
        self.move_sampler(cursors, &appended)?;
        let gone: Vec<usize> = live.iter().copied().filter(|i| self.population.done[*i]).collect();
        cursors.sampler.release(&gone);
        if let Some(critic) = &mut cursors.critic {
            critic.cursor.release(&gone);
        }

        let tokens = live.iter().map(|i| self.population.contexts[*i].len() - before[*i]).sum();
        if self.retained.is_some() && self.population.base[0] == f64::NEG_INFINITY {
            return Err(Path::dead(self.step));
        }
        let log_weights = self.population.log_weights();
        let ess = weights::ess(&log_weights);
        if let Some(recorder) = &mut self.recorder {
            recorder.step(self.step, &self.population.contexts, &log_weights)?;
        }
        log_particles(&self.population.contexts, &log_weights, &self.vocab);
        let live = self.population.live().len();
        let mut ancestors = None;
        if live == 0 || ess == 0.0 {
            self.finished = true;
        } else if weights::should_resample(ess, self.ess_threshold, log_weights.len()) {
            ancestors = Some(self.resample(cursors, &log_weights));
        }
        tracing::debug!(step = self.step, live, ess, resampled = ancestors.is_some(), "a step is done");
        Ok(Step { number: self.step, live, tokens, ess, ancestors })
    }

    /// Draws a token or unit for each live particle, or ends it with EOS if it has one left. The
    /// critic's rows for the coming twist ride in the same forward.
    fn take_tokens(&mut self, cursors: &mut Cursors, live: &[usize]) -> Result<Option<Ticket>, ControlError> {
        let (forced, drawn): (Vec<usize>, Vec<usize>) =
            live.iter().partition(|i| self.population.remaining[**i] == 1);
        let mut critic_row = None;
        let Cursors { sampler, critic, .. } = cursors;
        let mut others = || {
            if let Some(critic) = critic.as_mut().filter(|critic| critic.twisting) {
                critic_row.get_or_insert_with(|| critic.cursor.request(live, Want::Hold));
            }
        };
        if !drawn.is_empty() {
            let keys: Vec<DrawKey> = drawn
                .iter()
                .map(|i| DrawKey::new(self.problem, u32::try_from(*i).unwrap_or(u32::MAX), self.step, 0))
                .collect();
            let chooser = &mut *self.chooser;
            // Slot 0 is live, and so the first, until its path ends.
            let forced = self.retained.as_ref().filter(|_| drawn[0] == 0).and_then(|path| {
                let mut forced = vec![None; drawn.len()];
                forced[0] = Some(path.tokens(self.step)?);
                Some(forced)
            });
            let sampled = match &forced {
                None => sampler.sample(&drawn, &keys, &mut others, chooser),
                Some(forced) => sampler.sample_forced(&drawn, &keys, forced, &mut others, chooser),
            };
            for (&i, sampled) in drawn.iter().zip(sampled) {
                let Sampled { token, mut logw, .. } = or_dead(sampled, Sampled::DEAD, &mut self.n_failed)?;
                if let Some(path) = self.retained.as_ref().filter(|_| i == 0 && token.is_some()) {
                    logw = path.increment(self.step, logw);
                }
                self.population.weigh_step(i, logw)?;
                if let Some(token) = token {
                    self.population.append(i, token, sampler.unit(i));
                }
                if let Some(token) = token
                    && !token.is_eos()
                    && self.terminate_when.as_ref().is_some_and(|ends| ends(&self.population.contexts[i]))
                {
                    self.population.contexts[i].push(TokenId::EOS);
                }
            }
        }
        if !forced.is_empty() {
            let weights = sampler.logw_eos(&forced, &mut others);
            for (&i, logw) in forced.iter().zip(weights) {
                let logw = or_dead(logw, f64::NEG_INFINITY, &mut self.n_failed)?;
                self.population.weigh_step(i, logw)?;
                self.population.contexts[i].push(TokenId::EOS);
            }
        }
        for &i in live {
            if self.population.base[i] == f64::NEG_INFINITY {
                self.population.kill(i);
            }
        }
        Ok(critic_row)
    }

    /// Gives each particle that goes on the critic's weight of its sequence so far.
    /// `read` tells how much of each it has read before.
    fn twist(
        &mut self,
        cursors: &mut Cursors,
        rows: &[usize],
        read: &[usize],
        critic_row: Option<Ticket>,
    ) -> Result<(), ControlError> {
        let Some(critic) = cursors.critic.as_mut().filter(|critic| critic.twisting) else { return Ok(()) };
        if let Some(ticket) = critic_row {
            // Its rows' errors come back with their scores.
            let _ = ticket.wait();
        }
        let contexts = &self.population.contexts;
        // A token or the tokens of a unit, perhaps with the EOS of `terminate_when`.
        let spans: Vec<&[TokenId]> = rows.iter().zip(read).map(|(i, read)| &contexts[*i][*read..]).collect();
        let scores = score_after(&mut *critic.cursor, rows, &spans);
        for (&i, score) in rows.iter().zip(scores) {
            let score = or_dead(score, f64::NEG_INFINITY, &mut self.n_failed)?;
            let twisted = weights::add(self.population.base[i], score)?;
            if twisted == f64::NEG_INFINITY {
                self.population.kill(i);
            } else {
                self.population.twist[i] = score;
            }
        }
        Ok(())
    }

    /// Counts the step against each particle, and settles those that end with it.
    fn end_particles(&mut self, cursors: &mut Cursors, rows: &[usize]) -> Result<(), ControlError> {
        let mut ended = Vec::new();
        for &i in rows {
            self.population.remaining[i] -= 1;
            if !self.population.done[i] && (self.population.remaining[i] == 0 || self.population.has_ended(i))
            {
                self.population.done[i] = true;
                ended.push(i);
            }
        }
        if let Some(critic) = cursors.critic.as_mut().filter(|critic| !critic.twisting) {
            let contexts = &self.population.contexts;
            let spans: Vec<&[TokenId]> = ended.iter().map(|i| contexts[*i].as_slice()).collect();
            let scores = score_after(&mut *critic.cursor, &ended, &spans);
            for (&i, score) in ended.iter().zip(scores) {
                let score = or_dead(score, f64::NEG_INFINITY, &mut self.n_failed)?;
                self.population.reweight(i, score)?;
            }
        }
        for i in ended {
            let twist = std::mem::take(&mut self.population.twist[i]);
            self.population.reweight(i, twist)?;
        }
        Ok(())
    }

    /// Moves the sampler by the new token of each particle that goes on.
    fn move_sampler(&mut self, cursors: &mut Cursors, rows: &[usize]) -> Result<(), ControlError> {
        let (rows, tokens): (Vec<usize>, Vec<TokenId>) = rows
            .iter()
            .filter(|i| !self.population.done[**i])
            .filter_map(|i| Some((*i, self.population.drawn[*i]?)))
            .unzip();
        for (i, status) in rows.iter().zip(cursors.sampler.advance(&rows, &tokens)) {
            if let Status::Failed(error) = status {
                or_dead(Err(error), (), &mut self.n_failed)?;
                self.population.kill(*i);
            }
        }
        Ok(())
    }

    fn resample(&mut self, cursors: &mut Cursors, log_weights: &[f64]) -> Vec<usize> {
        let key = DrawKey::new(self.problem, POPULATION, self.step, 0);
        let shifted = weights::shifted(log_weights);
        let ancestors = if self.retained.is_some() {
            let mut ancestors = self.chooser.picks(&shifted, shifted.len() - 1, &key);
            ancestors.push(0);
            ancestors.sort_unstable();
            ancestors
        } else {
            self.chooser.ancestors(self.resampling, &shifted, &key)
        };
        self.population.select(&ancestors, weights::log_mean(log_weights));
        cursors.sampler.select(&ancestors);
        if let Some(critic) = &mut cursors.critic {
            critic.cursor.select(&ancestors);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.resampled(&ancestors);
        }
        self.n_resamples += 1;
        ancestors
    }
}

/// Whoever listens at the lowest level sees every particle.
fn log_particles(contexts: &[Vec<TokenId>], log_weights: &[f64], vocab: &Vocabulary) {
    if tracing::enabled!(tracing::Level::TRACE) {
        for (slot, (context, log_weight)) in contexts.iter().zip(log_weights).enumerate() {
            tracing::trace!(slot, log_weight, context = escape(context, vocab), "a particle");
        }
    }
}

/// A recoverable error costs its particle and is counted; any other ends the run.
fn or_dead<T>(result: RowResult<T>, dead: T, n_failed: &mut usize) -> Result<T, ControlError> {
    match result {
        Err(error) if error.is_recoverable() => {
            *n_failed += 1;
            tracing::warn!(%error, "a particle died of an error");
            Ok(dead)
        }
        other => other,
    }
}

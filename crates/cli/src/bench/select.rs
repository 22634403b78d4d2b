//! What a resampling costs: `select` on the cursors of many long particles.

use std::sync::Arc;
use std::time::Instant;

use lockstep::control::potential::{Cursor, Draws, Run, Want};
use lockstep::control::{BoolFsa, Coerced, Potential, Product, PromptedLlm};
use lockstep::engine::TokenId;
use lockstep::model::Loaded;
use lockstep::sample::{DrawKey, DrawMethod, ProblemKey};

use super::figures::Figures;
use super::step::CONSTRAINT;
use crate::error::CliError;

/// Particles.
const ROWS: usize = 64;

/// Tokens of each particle when the selections begin.
const LENGTH: usize = 256;

/// Tokens in which the particles differ. What they share is read once, which saves most of the
/// time that it takes to get here and changes nothing in a selection: it copies references.
const OWN: usize = 4;

/// Times selections of half of the particles, each twice, on a model's cursor under a constraint:
/// the call itself, the step after it (copies share their rows of the forward until they part), and
/// the step in which the copies part and their KV memory is forked, over a step without either.
pub(super) fn measure(model: &Loaded, rounds: usize, figures: &mut Figures) -> Result<(), CliError> {
    let vocab = model.tokenizer.vocabulary();
    let text = "Once upon a time there was a village by the sea. ".repeat(LENGTH);
    let mut tokens = model.tokenizer.encode(&text, false)?;
    tokens.truncate(LENGTH - OWN);
    let regex = BoolFsa::from_regex(CONSTRAINT).map_err(CliError::failed)?;
    let target = Product::new(
        Arc::new(PromptedLlm::new(model.engine.clone(), Arc::clone(vocab), &tokens)?),
        Arc::new(Coerced::new(Arc::new(regex), Arc::clone(vocab))?),
    )?;
    let run = Run::default();
    let mut particles = Particles { cursor: target.open(ROWS, &run)?, step: 0 };
    for _ in 0..OWN {
        particles.step()?;
    }
    let ancestors: Vec<usize> = (0..ROWS).map(|row| row / 2 * 2).collect();
    for _ in 0..rounds {
        let step = particles.step()?;
        let start = Instant::now();
        particles.cursor.select(&ancestors);
        figures.add("select.us", start.elapsed().as_secs_f64() * 1e6);
        figures.add("select.first_step_over_step", particles.step()? / step);
        figures.add("select.parting_step_over_step", particles.step()? / step);
    }
    Ok(())
}

struct Particles {
    cursor: Box<dyn Cursor>,
    step: u32,
}

impl Particles {
    /// Every particle draws a token and takes it. Returns the seconds that it took.
    fn step(&mut self) -> Result<f64, CliError> {
        self.step += 1;
        let rows: Vec<usize> = (0..ROWS).collect();
        let problem = ProblemKey::new(0, 0);
        let keys = (0..).zip(&rows).map(|(row, _)| DrawKey::new(problem, row, self.step, 0)).collect();
        let want = Want::Draw(Draws { keys, method: DrawMethod::default(), masks: None });
        let start = Instant::now();
        let answers = self.cursor.request(&rows, want).wait();
        let mut tokens: Vec<TokenId> = Vec::with_capacity(ROWS);
        for answer in answers {
            let drawn = answer?.into_draw();
            tokens.push(
                drawn.ok_or_else(|| CliError::failed("a particle died: the constraint is loose"))?.token,
            );
        }
        let spans: Vec<&[TokenId]> = tokens.iter().map(std::slice::from_ref).collect();
        let _ = self.cursor.advance(&rows, &spans);
        Ok(start.elapsed().as_secs_f64())
    }
}

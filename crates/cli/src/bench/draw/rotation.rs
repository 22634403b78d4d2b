//! Contenders timed in turn, so that whatever else the machine does hits all alike.

use std::time::Instant;

use lockstep::sample::TokenId;

use crate::error::CliError;

/// Seconds that a contender works at least in a round; quick ones repeat their work.
const LEAST: f64 = 2e-3;

/// Work by name. It is told the number of the step, which changes the noise.
pub(super) struct Contender<'a> {
    pub(super) name: String,
    work: Box<dyn Fn(u32) -> Result<Vec<TokenId>, CliError> + 'a>,
    /// The time counts so many times, for work that is done in part.
    scale: f64,
}

impl<'a> Contender<'a> {
    pub(super) fn new(
        name: impl Into<String>,
        work: impl Fn(u32) -> Result<Vec<TokenId>, CliError> + 'a,
    ) -> Self {
        Self { name: name.into(), work: Box::new(work), scale: 1.0 }
    }

    /// The same, doing one part in `scale` of the work.
    pub(super) fn scaled(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    /// What comes of step `step`.
    pub(super) fn tokens(&self, step: u32) -> Result<Vec<TokenId>, CliError> {
        (self.work)(step)
    }

    /// Seconds that `repeats` steps took, each.
    fn time(&self, first: u32, repeats: u32) -> Result<f64, CliError> {
        let start = Instant::now();
        for step in first..first + repeats {
            std::hint::black_box((self.work)(step)?);
        }
        Ok(start.elapsed().as_secs_f64() * self.scale / f64::from(repeats))
    }
}

/// Times every contender once a round, each round beginning with the next one, and hands each
/// round's seconds to `report`, in the order of the contenders.
pub(super) fn rotate(
    contenders: &[Contender<'_>],
    rounds: usize,
    mut report: impl FnMut(&[f64]),
) -> Result<(), CliError> {
    let mut repeats = Vec::new();
    for contender in contenders {
        let once = contender.time(0, 1)? / contender.scale;
        repeats.push((LEAST / once).clamp(1.0, 1e4).ceil() as u32);
    }
    let mut seconds = vec![0.0; contenders.len()];
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            seconds[at] = contenders[at].time(round as u32 * 10_000 + 1, repeats[at])?;
        }
        report(&seconds);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_round_begins_with_the_next_contender_and_times_all() {
        let order = RefCell::new(Vec::new());
        let contender = |name: &'static str| {
            let order = &order;
            Contender::new(name, move |step| {
                if step > 0 && step % 10_000 == 1 {
                    order.borrow_mut().push(name);
                }
                Ok(Vec::new())
            })
        };
        let contenders = [contender("a"), contender("b"), contender("c").scaled(2.0)];
        let mut rounds = 0;
        rotate(&contenders, 2, |seconds| {
            assert!(seconds.len() == 3 && seconds.iter().all(|&s| s > 0.0));
            rounds += 1;
        })
        .unwrap();
        assert_eq!(rounds, 2);
        assert_eq!(*order.borrow(), ["a", "b", "c", "b", "c", "a"]);
    }
}

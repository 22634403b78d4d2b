//! Contenders timed in turn, so that whatever else the machine does hits all alike.

use std::time::Instant;

use lockstep::sample::TokenId;

use crate::error::CliError;

/// Seconds that a contender works at least in a turn; quick ones repeat their work.
const LEAST: f64 = 1e-2;
/// Turns that a contender has in a round, of which the best counts: what else the machine does only ever
/// adds time.
const TURNS: usize = 3;

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

    /// Seconds that `repeats` steps took, each. One more goes before them: what the caches hold when
    /// the clock starts is this contender's own.
    fn time(&self, first: u32, repeats: u32) -> Result<f64, CliError> {
        std::hint::black_box((self.work)(first)?);
        let start = Instant::now();
        for step in first..first + repeats {
            std::hint::black_box((self.work)(step)?);
        }
        Ok(start.elapsed().as_secs_f64() * self.scale / f64::from(repeats))
    }
}

/// Times every contender in every round, [`TURNS`] times in the orders of [`place`], and hands each
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
    for round in 0..rounds {
        let mut seconds = vec![f64::INFINITY; contenders.len()];
        for order in round * TURNS..(round + 1) * TURNS {
            for turn in 0..contenders.len() {
                let at = place(contenders.len(), order, turn);
                let time = contenders[at].time(order as u32 * 10_000 + 1, repeats[at])?;
                seconds[at] = seconds[at].min(time);
            }
        }
        report(&seconds);
    }
    Ok(())
}

/// Which of `n` contenders has a turn of a round: a Williams square, and its mirror for odd `n`.
///
/// In `n` rounds every contender has every turn once and follows every other one equally often: once
/// for even `n`, twice in `2n` rounds for odd `n`. A mere rotation would have each follow the same one
/// always, and with it whatever that one leaves behind.
pub(super) fn place(n: usize, round: usize, turn: usize) -> usize {
    let is_mirror = n % 2 == 1 && round / n % 2 == 1;
    let turn = if is_mirror { n - 1 - turn } else { turn };
    // 0, 1, n - 1, 2, n - 2, …: no two steps of it are congruent modulo an even `n`.
    let zigzag = if turn % 2 == 1 { turn.div_ceil(2) } else { n - turn / 2 };
    (zigzag + round) % n
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn everyone_has_every_turn_and_follows_everyone_equally_often() {
        for n in 1..=14 {
            let cycle = if n % 2 == 0 { n } else { 2 * n };
            let mut turns = vec![vec![0; n]; n];
            let mut follows = vec![vec![0; n]; n];
            for round in 0..cycle {
                let order: Vec<usize> = (0..n).map(|turn| place(n, round, turn)).collect();
                for (turn, &at) in order.iter().enumerate() {
                    turns[at][turn] += 1;
                }
                for pair in order.windows(2) {
                    follows[pair[1]][pair[0]] += 1;
                }
            }
            let each = cycle / n;
            assert_eq!(turns, vec![vec![each; n]; n]);
            for (at, row) in follows.iter().enumerate() {
                assert!(
                    row.iter().enumerate().all(|(other, &times)| times == if other == at { 0 } else { each })
                );
            }
        }
    }

    #[test]
    fn every_round_times_all_each_after_a_step_of_its_own() {
        let calls = RefCell::new(Vec::new());
        let contender = |name: &'static str| {
            let calls = &calls;
            Contender::new(name, move |step| {
                if step > 0 && step % 10_000 == 1 {
                    calls.borrow_mut().push(name);
                }
                Ok(Vec::new())
            })
        };
        let contenders = [contender("a"), contender("b"), contender("c").scaled(2.0)];
        let mut rounds = 0;
        rotate(&contenders, 2, |seconds| {
            assert!(seconds.len() == 3 && seconds.iter().all(|s| s.is_finite() && *s > 0.0));
            rounds += 1;
        })
        .unwrap();
        assert_eq!(rounds, 2);
        let calls = calls.borrow();
        assert_eq!(calls.len(), 2 * 2 * TURNS * contenders.len());
        assert!(calls.chunks(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(calls[..12], ["a", "a", "b", "b", "c", "c", "b", "b", "c", "c", "a", "a"]);
    }
}

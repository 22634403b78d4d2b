//! The law of token samplers.

use lockstep_sample::{DrawKey, ProblemKey, TokenId, math};

use super::{Enumerator, Tolerance};
use crate::potential::{Potential, Run};
use crate::sampler::TokenSampler;

/// Proper weighting: `E[exp(logw) · 1{token = t}] = exp(target.logw_next(t | x))` after each of
/// `contexts`, for every token t and the end, by enumeration of every choice that the sampler makes.
/// Where it gives `logp`, that is the log-probability of its choices.
///
/// The sampler must take its choices from the chooser; one that orders candidates by key cannot be
/// enumerated.
///
/// ```
/// use lockstep_control::testkit::{Tolerance, WeightedSet, assert_properly_weighted};
/// use lockstep_control::{Direct, TokenSampler};
///
/// let target = WeightedSet::new("ab", &[("a", 2.0), ("ab", 1.0), ("b", 0.5)]).potential();
/// let contexts = [vec![], vec![0.into()]];
/// assert_properly_weighted(&Direct::new(target.clone()), &*target, &contexts, Tolerance::WEIGHTED);
/// ```
///
/// # Panics
/// If the law fails for one of the contexts (without EOS), or a row fails.
pub fn assert_properly_weighted(
    sampler: &dyn TokenSampler,
    target: &dyn Potential,
    contexts: &[Vec<TokenId>],
    tolerance: Tolerance,
) {
    let run = Run::default();
    for context in contexts {
        let fail = |what: String| -> ! { panic!("proper weighting is violated after {context:?}: {what}") };
        let open = || {
            let cursor = sampler.open(1, &run);
            let mut cursor = cursor.unwrap_or_else(|error| fail(format!("open fails: {error}")));
            for token in context {
                let _ = cursor.advance(&[0], &[*token]);
            }
            cursor
        };
        let row = {
            let oracle = target.open(1, &run);
            let mut oracle = oracle.unwrap_or_else(|error| fail(format!("the target fails: {error}")));
            let _ = oracle.advance(&[0], &[context]);
            let row = oracle.logw_next(&[0]).pop().expect("an answer for the one row");
            row.unwrap_or_else(|error| fail(format!("the target fails: {error}")))
        };
        let mut terms: Vec<Vec<f64>> = vec![Vec::new(); target.vocab().row_len()];
        let mut probabilities = Vec::new();
        let key = DrawKey::new(ProblemKey::new(0, 0), 0, 1, 0);
        let enumerator = Enumerator::default();
        let mut cursor = open();
        loop {
            let mut chooser = enumerator.start();
            let drawn = cursor.sample(&[0], &[key], &mut || {}, &mut chooser).pop();
            let drawn = drawn.expect("an answer for the one row");
            let drawn = drawn.unwrap_or_else(|error| fail(format!("the sampler fails: {error}")));
            let logp = enumerator.log_probability();
            if let Some(claimed) = drawn.logp
                && !tolerance.close(claimed, logp)
            {
                fail(format!("logp is {claimed}, its choices have {logp}: {drawn:?}"));
            }
            probabilities.push(logp);
            match drawn.token {
                Some(token) => terms[target.vocab().position_of(token)].push(drawn.logw + logp),
                None if drawn.logw > f64::NEG_INFINITY => {
                    fail(format!("a weight without a token: {drawn:?}"))
                }
                None => {}
            }
            if !enumerator.next_leaf() {
                break;
            }
        }
        let total = math::log_sum_exp(&probabilities);
        if total.abs() > 1e-9 {
            fail(format!("the choices have a log-probability of {total} together"));
        }
        for (position, terms) in terms.iter().enumerate() {
            let (actual, expected) = (math::log_sum_exp(terms), row.at(position));
            if !tolerance.close(actual, expected) {
                fail(format!(
                    "{:?} weighs {actual}, its target {expected}",
                    target.vocab().token_at(position)
                ));
            }
        }
    }
}

//! Conditional SMC: slot 0 holds a given path.
//!
//! The path is forced step by step and keeps its slot in resamplings; the other slots run as ever
//! and draw their ancestors from all, slot 0 included (Andrieu, Doucet and Holenstein, 2010). With a
//! path drawn exactly from the target, `E[1/Ẑ] = p/Z`, with p the probability that a plain run keeps
//! any weight: the joint density of path and run is `ψ · Ẑ/Z`, ψ that of a plain run, on the runs
//! that have any.

use lockstep_sample::TokenId;

use super::options::{SmcOptions, is_ended};
use crate::error::{ControlError, ErrorKind};
use crate::resampling::Resampling;
use crate::retained::Retained;
use crate::sampler::TokenSampler;

/// The path of slot 0, checked against the run that it is for.
#[derive(Debug)]
pub(super) struct Path {
    tokens: Vec<TokenId>,
    /// For each step, how many tokens there are up to its draw.
    ends: Vec<usize>,
    /// Its sampler's log-weights step by step; `None` if the sampler tells them.
    increments: Option<Vec<f64>>,
}

impl Path {
    /// The path of `retained` in a run of `sampler` with `options`.
    pub(super) fn new(
        retained: &Retained,
        options: &SmcOptions,
        sampler: &dyn TokenSampler,
    ) -> Result<Self, ControlError> {
        if options.resampling != Resampling::Multinomial {
            return Err(ControlError::argument(format!(
                "resampling_method: a conditional run resamples by multinomial, not {}, whose conditional form is another",
                options.resampling
            )));
        }
        let tokens = retained.tokens().to_vec();
        let Some((&TokenId::EOS, body)) = tokens.split_last() else {
            return Err(refusal("does not end in EOS: give a finished sequence"));
        };
        if let Some(token) = body.iter().find(|token| !sampler.vocab().is_member(**token)) {
            return Err(refusal(format!("{token} is no token of the sampler's vocabulary")));
        }
        let ends = match sampler.unit_depth() {
            0 => draws_of_tokens(&tokens, options)?,
            1 => draws_of_units(retained, options)?,
            _ => {
                return Err(refusal(
                    "units of units cannot be retained: condition a sampler of tokens or of units",
                ));
            }
        };
        let steps = ends.len();
        let path = Self { ends, tokens, increments: None };
        if sampler.has_fixed_weights() {
            return Ok(path);
        }
        let Some(increments) = retained.increments() else {
            return Err(refusal(
                "has no increments, and this sampler's weights are random given the token: take the path from the run that drew it",
            ));
        };
        if increments.len() != steps {
            return Err(refusal(format!("has {} increments for {steps} steps", increments.len())));
        }
        if let Some(limit) = retained.limit().filter(|limit| *limit != options.max_tokens) {
            return Err(refusal(format!(
                "was ended by max_tokens = {limit}, so its last increment is no draw's: use the same max_tokens, not {}",
                options.max_tokens
            )));
        }
        Ok(Self { increments: Some(increments.to_vec()), ..path })
    }

    /// The tokens of the draw in step `number`.
    pub(super) fn tokens(&self, number: u32) -> Option<&[TokenId]> {
        let step = number as usize - 1;
        let end = *self.ends.get(step)?;
        let start = step.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.tokens[start..end])
    }

    /// The sampler's log-weight in step `number`, which is `computed` if it is fixed.
    pub(super) fn increment(&self, number: u32, computed: f64) -> f64 {
        let recorded = self.increments.as_ref();
        recorded.map_or(computed, |recorded| {
            recorded.get(number as usize - 1).copied().unwrap_or(f64::NEG_INFINITY)
        })
    }

    /// The error of a path that died in step `number`.
    pub(super) fn dead(number: u32) -> ControlError {
        refusal(format!(
            "its weight is -inf after step {number}: its token there has no mass, or the target excludes it"
        ))
    }
}

/// The first of these numbers of tokens after which `terminate_when` ends `body`.
fn first_end(
    options: &SmcOptions,
    body: &[TokenId],
    mut ends: impl Iterator<Item = usize>,
) -> Result<Option<usize>, ControlError> {
    let condition = options.terminate_when.as_ref();
    ends.find_map(|n| match is_ended(condition, &body[..n]) {
        Ok(false) => None,
        Ok(true) => Some(Ok(n)),
        Err(error) => Some(Err(error)),
    })
    .transpose()
}

/// How many tokens there are up to each draw of a path of tokens.
fn draws_of_tokens(tokens: &[TokenId], options: &SmcOptions) -> Result<Vec<usize>, ControlError> {
    if tokens.len() > options.max_tokens {
        return Err(refusal(format!(
            "is {} tokens long, its end included, but max_tokens is {}: raise it",
            tokens.len(),
            options.max_tokens
        )));
    }
    let body = &tokens[..tokens.len() - 1];
    let steps = match first_end(options, body, 1..=body.len())? {
        None => tokens.len(),
        // The end comes in the same step as the last token.
        Some(n) if n == body.len() => n,
        Some(n) => return Err(refusal(format!("terminate_when ends it after {n} tokens"))),
    };
    Ok((1..=steps).collect())
}

/// How many tokens there are up to each draw of a path of units. The end came with the last unit, or
/// by itself: its increments tell.
fn draws_of_units(retained: &Retained, options: &SmcOptions) -> Result<Vec<usize>, ControlError> {
    let tokens = retained.tokens();
    let body = &tokens[..tokens.len() - 1];
    let units = retained.ends().of_tokens();
    let steps = retained.increments().map_or(0, <[f64]>::len);
    let fits = steps >= 1 && (steps == units.len() || steps == units.len() + 1);
    if !fits || retained.ends().depth() > 1 || units.last().copied().unwrap_or(0) != body.len() {
        return Err(refusal(
            "has no units with increments, and this sampler draws units: take the path from the run that drew it",
        ));
    }
    if steps > options.max_tokens {
        return Err(refusal(format!(
            "is {steps} units long, its end included, but max_tokens is {}: raise it",
            options.max_tokens
        )));
    }
    let mut draws = units.to_vec();
    match first_end(options, body, units.iter().copied())? {
        Some(n) if n != body.len() || steps > units.len() => {
            return Err(refusal(format!("terminate_when ends it after {n} tokens")));
        }
        Some(_) => {}
        None => {
            draws.truncate(steps - 1);
            draws.push(tokens.len());
        }
    }
    Ok(draws)
}

fn refusal(message: impl AsRef<str>) -> ControlError {
    ControlError::new(ErrorKind::Argument, format!("retained: {}", message.as_ref()))
}

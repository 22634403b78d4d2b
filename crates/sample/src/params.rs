//! The settings of one row, as plain data.
//!
//! Settings are values, never closures, so that rows of any mix are sampled in one pass. Every
//! default is neutral. Checked once, before a row is admitted ([`SamplingParams::validate`]); what
//! runs a row relies on that.

use crate::draw::DrawMethod;
use crate::token::TokenId;

/// How a row is sampled. [`Default`] is the model's own distribution.
///
/// Stages run in the order of [`sample_rows`](crate::sample_rows).
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the log-probabilities; 0 is greedy. Finite, ≥ 0; default 1.
    pub temperature: f64,
    /// Top-p: a token stays iff the mass ranked before it is below this. In (0, 1]; default 1 (off).
    pub top_p: f64,
    /// Min-p: a token stays iff its probability is at least this share of the largest. In [0, 1];
    /// default 0 (off).
    pub min_p: f64,
    /// Tokens that min-p leaves at least, if top-p did. ≥ 1; default 1.
    pub min_tokens_to_keep: i64,
    /// The probability that XTC acts on a step. In [0, 1]; default 0 (off).
    pub xtc_probability: f64,
    /// The probability that an XTC candidate exceeds. In [0, 0.5]; default 0.1.
    pub xtc_threshold: f64,
    /// Top-k: how many tokens stay. ≥ 0; default 0 (off).
    pub top_k: i64,
    /// Whether temperature comes before the filters instead of after them. Default false.
    pub temperature_first: bool,
    /// How the draw is made. Default [`DrawMethod::GumbelMax`].
    pub draw_method: DrawMethod,
    /// Added to the logits of these ids, in list order. Finite, ids below the vocabulary size;
    /// default empty.
    pub logit_bias: Vec<(TokenId, f64)>,
    /// Divides the positive logits of the ids in its window and multiplies the negative ones.
    /// Finite, ≥ 0; 0 and 1 are off; default 1.
    pub repetition_penalty: f64,
    /// Tokens in the window of the repetition penalty; 0 is the whole history. ≥ 0; default 20.
    pub repetition_context_size: i64,
    /// Subtracted from the logit of each id in its window, once. In [−2, 2]; default 0 (off).
    pub presence_penalty: f64,
    /// Tokens in the window of the presence penalty; 0 is the whole history. ≥ 0; default 20.
    pub presence_context_size: i64,
    /// Subtracted from the logit of each id in its window, once an occurrence. In [−2, 2]; default 0
    /// (off).
    pub frequency_penalty: f64,
    /// Tokens in the window of the frequency penalty; 0 is the whole history. ≥ 0; default 20.
    pub frequency_context_size: i64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            min_tokens_to_keep: 1,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            top_k: 0,
            temperature_first: false,
            draw_method: DrawMethod::default(),
            logit_bias: Vec::new(),
            repetition_penalty: 1.0,
            repetition_context_size: 20,
            presence_penalty: 0.0,
            presence_context_size: 20,
            frequency_penalty: 0.0,
            frequency_context_size: 20,
        }
    }
}

/// A setting outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ParamsError {
    field: &'static str,
    message: String,
}

impl ParamsError {
    /// The field of [`SamplingParams`] that is to blame.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// What is wrong with it.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl SamplingParams {
    /// Checks every setting, whether it takes effect or not, for a model of `vocab_size` real ids.
    ///
    /// # Errors
    /// Names the first field that is out of range, its value and the range.
    pub fn validate(&self, vocab_size: usize) -> Result<(), ParamsError> {
        at_least_zero("temperature", self.temperature)?;
        if self.top_p == 0.0 {
            return Err(ParamsError {
                field: "top_p",
                message:
                    "0 means off to some and greedy to others; use 1 for off or `temperature` 0 for greedy"
                        .into(),
            });
        }
        check("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "in (0, 1]")?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        check("min_tokens_to_keep", self.min_tokens_to_keep, self.min_tokens_to_keep >= 1, "at least 1")?;
        within("xtc_probability", self.xtc_probability, 0.0, 1.0)?;
        within("xtc_threshold", self.xtc_threshold, 0.0, 0.5)?;
        check("top_k", self.top_k, self.top_k >= 0, "at least 0, where 0 is off")?;
        for &(id, bias) in &self.logit_bias {
            if id.index() >= vocab_size {
                return Err(ParamsError {
                    field: "logit_bias",
                    message: format!("id {id} is outside the vocabulary; use ids below {vocab_size}"),
                });
            }
            check("logit_bias", bias, bias.is_finite(), "finite")?;
        }
        at_least_zero("repetition_penalty", self.repetition_penalty)?;
        within("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        for (field, size) in [
            ("repetition_context_size", self.repetition_context_size),
            ("presence_context_size", self.presence_context_size),
            ("frequency_context_size", self.frequency_context_size),
        ] {
            check(field, size, size >= 0, "at least 0, where 0 is the whole history")?;
        }
        Ok(())
    }

    /// Whether the most likely token is taken and no noise is used.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether the repetition penalty changes logits.
    pub(crate) fn repeats_cost(&self) -> bool {
        self.repetition_penalty != 0.0 && self.repetition_penalty != 1.0
    }
}

/// A size or a count, in range by validation.
pub(crate) fn count(size: i64) -> usize {
    usize::try_from(size).unwrap_or(if size < 0 { 0 } else { usize::MAX })
}

fn at_least_zero(field: &'static str, value: f64) -> Result<(), ParamsError> {
    check(field, value, value.is_finite() && value >= 0.0, "finite and at least 0")
}

fn within(field: &'static str, value: f64, low: f64, high: f64) -> Result<(), ParamsError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(ParamsError { field, message: format!("{value} is out of range; use a number in [{low}, {high}]") })
}

fn check(field: &'static str, value: impl ToString, good: bool, range: &str) -> Result<(), ParamsError> {
    if good {
        return Ok(());
    }
    Err(ParamsError {
        field,
        message: format!("{} is out of range; use a number that is {range}", value.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut SamplingParams)) -> Option<ParamsError> {
        let mut params = SamplingParams::default();
        change(&mut params);
        params.validate(8).err()
    }

    #[test]
    fn defaults_are_neutral_and_valid() {
        let params = SamplingParams::default();
        assert_eq!(params.validate(0), Ok(()));
        assert!(!params.repeats_cost() && !params.is_greedy());
    }

    #[test]
    fn b_14_the_default_threshold_is_a_tenth_and_whole_numbers_are_fine() {
        assert_eq!(SamplingParams::default().xtc_threshold, 0.1);
        for probability in [0, 1] {
            assert_eq!(error(|p| p.xtc_probability = probability.into()), None);
        }
    }

    #[test]
    fn the_ends_of_every_range_are_valid() {
        assert_eq!(error(|p| p.temperature = 0.0), None);
        assert_eq!(error(|p| p.top_p = 1e-7), None);
        assert_eq!(error(|p| p.min_p = 1.0), None);
        assert_eq!(error(|p| p.xtc_threshold = 0.5), None);
        assert_eq!(error(|p| p.top_k = i64::MAX), None);
        assert_eq!(error(|p| p.repetition_penalty = 0.0), None);
        assert_eq!(error(|p| p.presence_penalty = -2.0), None);
        assert_eq!(error(|p| p.frequency_penalty = 2.0), None);
        assert_eq!(error(|p| p.logit_bias = vec![(TokenId(7), -1e30)]), None);
    }

    #[test]
    fn b_20_a_negative_window_is_rejected() {
        assert_eq!(error(|p| p.repetition_context_size = -1).unwrap().field(), "repetition_context_size");
        assert_eq!(error(|p| p.presence_context_size = -1).unwrap().field(), "presence_context_size");
        assert_eq!(error(|p| p.frequency_context_size = -1).unwrap().field(), "frequency_context_size");
    }

    #[test]
    fn what_is_out_of_range_is_named_even_at_temperature_0() {
        let field = |change: fn(&mut SamplingParams)| {
            error(|p| {
                change(p);
                if p.temperature == 1.0 {
                    p.temperature = 0.0;
                }
            })
            .map(|error| error.field())
        };
        assert_eq!(field(|p| p.temperature = -0.1), Some("temperature"));
        assert_eq!(field(|p| p.temperature = f64::INFINITY), Some("temperature"));
        assert_eq!(field(|p| p.temperature = f64::NAN), Some("temperature"));
        assert_eq!(field(|p| p.top_p = 1.1), Some("top_p"));
        assert_eq!(field(|p| p.top_p = f64::NAN), Some("top_p"));
        assert_eq!(field(|p| p.min_p = -0.1), Some("min_p"));
        assert_eq!(field(|p| p.min_tokens_to_keep = 0), Some("min_tokens_to_keep"));
        assert_eq!(field(|p| p.xtc_probability = 1.1), Some("xtc_probability"));
        assert_eq!(field(|p| p.xtc_threshold = 0.6), Some("xtc_threshold"));
        assert_eq!(field(|p| p.top_k = -1), Some("top_k"));
        assert_eq!(field(|p| p.logit_bias = vec![(TokenId(8), 0.0)]), Some("logit_bias"));
        assert_eq!(field(|p| p.logit_bias = vec![(TokenId(1), f64::NAN)]), Some("logit_bias"));
        assert_eq!(field(|p| p.repetition_penalty = -1.0), Some("repetition_penalty"));
        assert_eq!(field(|p| p.presence_penalty = 2.1), Some("presence_penalty"));
        assert_eq!(field(|p| p.frequency_penalty = -2.1), Some("frequency_penalty"));
    }

    #[test]
    fn a_top_p_of_0_is_rejected_with_a_hint() {
        assert_eq!(
            error(|p| p.top_p = 0.0).unwrap().to_string(),
            "top_p: 0 means off to some and greedy to others; use 1 for off or `temperature` 0 for greedy"
        );
        assert_eq!(
            error(|p| p.min_p = 2.0).unwrap().to_string(),
            "min_p: 2 is out of range; use a number in [0, 1]"
        );
    }
}

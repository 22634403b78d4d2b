//! One step of a record, as it stands in the file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The state of a population after one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The number of the step, from 1.
    pub step: u32,
    /// What came before it.
    pub mode: Mode,
    /// In [`Mode::Resample`], the parent of each particle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ancestors: Option<Vec<usize>>,
    /// The particles, by slot.
    pub particles: Vec<ParticleRecord>,
}

impl StepRecord {
    /// The slot that particle `i` comes from.
    ///
    /// # Panics
    /// If the population resampled and is smaller than that.
    #[must_use]
    pub fn parent(&self, i: usize) -> usize {
        self.ancestors.as_ref().map_or(i, |ancestors| ancestors[i])
    }
}

/// What came before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing: it is the first.
    Init,
    /// A step.
    SmcStep,
    /// A step and a resampling.
    Resample,
}

/// A particle after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParticleRecord {
    /// Its context.
    #[serde(flatten)]
    pub contents: Contents,
    /// Its log-weight in nats; `-inf` if it is dead.
    #[serde(serialize_with = "to_text", deserialize_with = "log_weight")]
    pub logweight: f64,
    /// Its log-weight minus its parent's recorded one; 0 if both are `-inf`.
    #[serde(serialize_with = "to_text", deserialize_with = "increment")]
    pub weight_incr: f64,
}

/// A context, in tokens as [`escape`](super::escape) writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contents {
    /// What the step added to the parent's context.
    #[serde(rename = "contents_incr")]
    Increment(String),
    /// The whole context; `<<<` and `>>>` may mark what is new.
    #[serde(rename = "contents")]
    Full(String),
}

/// A number in its shortest exact form.
fn to_text<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if *number == f64::NEG_INFINITY {
        return serializer.serialize_str("-Infinity");
    }
    serializer.collect_str(&format_args!("{number:?}"))
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| serde::de::Error::custom(format!("`{text}` is no number")))
}

/// NaN, which other writers give the weight of a particle that died, is read as `-inf`.
fn log_weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number(deserializer).map(|weight| if weight.is_nan() { f64::NEG_INFINITY } else { weight })
}

/// NaN, which other writers give the difference of two dead weights, is read as 0.
fn increment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number(deserializer).map(|weight| if weight.is_nan() { 0.0 } else { weight })
}

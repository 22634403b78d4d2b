//! Named figures with their spread.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Measurements by name, one for each round.
#[derive(Debug, Default)]
pub(crate) struct Figures(BTreeMap<String, Vec<f64>>);

/// The median of a figure's rounds, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Figures {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.entry(name.into()).or_default().push(value);
    }

    pub(crate) fn summary(&self, name: &str) -> Option<Summary> {
        self.0.get(name).map(|values| summary(values))
    }

    /// One object: each name with median, min, max and the number of rounds.
    pub(crate) fn json(&self) -> Value {
        let figures = self.0.iter().map(|(name, values)| {
            let Summary { median, min, max } = summary(values);
            (name.clone(), json!({ "median": median, "min": min, "max": max, "rounds": values.len() }))
        });
        Value::Object(figures.collect())
    }
}

fn summary(values: &[f64]) -> Summary {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (sorted.first().copied(), sorted.last().copied());
    Summary { median: median(&mut sorted), min: min.unwrap_or(f64::NAN), max: max.unwrap_or(f64::NAN) }
}

/// The median; NaN of nothing.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => values[n / 2],
        _ => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let mut figures = Figures::default();
        for value in [3.0, 1.0, 10.0, 2.0] {
            figures.add("x", value);
        }
        assert_eq!(figures.summary("x"), Some(Summary { median: 2.5, min: 1.0, max: 10.0 }));
        assert_eq!(figures.json()["x"]["rounds"], 4);
        assert!(figures.summary("y").is_none());
    }
}

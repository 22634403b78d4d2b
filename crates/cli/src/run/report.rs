//! What a run found, as a table or as JSON.

use lockstep::control::{Sequences, weights};
use lockstep::engine::TokenId;
use lockstep::engine::text::Tokenizer;
use lockstep::model::Loaded;
use serde_json::{Value, json};

use crate::table::table;

pub(crate) struct Report<'a> {
    pub(crate) sequences: Sequences,
    pub(crate) seed: u64,
    pub(crate) tokens: usize,
    pub(crate) seconds: f64,
    pub(crate) forwards: u64,
    pub(crate) interrupted: bool,
    pub(crate) model: &'a Loaded,
}

/// A distinct text of the population.
struct Text {
    text: String,
    probability: f64,
    log_weight: f64,
    count: usize,
}

/// The distinct texts by descending probability: the log-weight is that of all their particles.
fn texts(sequences: &Sequences, tokenizer: &Tokenizer) -> Vec<Text> {
    let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
    for (context, log_weight) in sequences.iter() {
        if log_weight == f64::NEG_INFINITY {
            continue;
        }
        let tokens: Vec<TokenId> = context.iter().copied().filter(|token| !token.is_eos()).collect();
        let text = String::from_utf8_lossy(&tokenizer.decode_with_special(&tokens)).into_owned();
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, weights)) => weights.push(log_weight),
            None => groups.push((text, vec![log_weight])),
        }
    }
    let log_total = sequences.log_total();
    let mut texts: Vec<Text> = groups
        .into_iter()
        .map(|(text, weights)| {
            let log_weight = weights::log_total(&weights);
            Text { text, probability: (log_weight - log_total).exp(), log_weight, count: weights.len() }
        })
        .collect();
    texts.sort_by(|a, b| b.log_weight.total_cmp(&a.log_weight));
    texts
}

/// Adds to `object` what a population says.
pub(crate) fn add_population(object: &mut Value, sequences: &Sequences, tokenizer: &Tokenizer) {
    let text = |text: Text| {
        json!({
            "text": text.text,
            "probability": text.probability,
            "log_weight": text.log_weight,
            "count": text.count,
        })
    };
    object["texts"] = texts(sequences, tokenizer).into_iter().map(text).collect();
    // JSON has no -inf: a population without a living particle has null evidence.
    object["log_ml"] = Some(sequences.log_ml()).filter(|log_ml| log_ml.is_finite()).into();
    object["ess"] = sequences.ess().into();
    object["n_resamples"] = sequences.n_resamples().into();
}

impl Report<'_> {
    fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    pub(crate) fn json(&self) -> Value {
        let mut object = json!({});
        add_population(&mut object, &self.sequences, &self.model.tokenizer);
        object["forwards"] = self.forwards.into();
        object["tokens"] = self.tokens.into();
        object["tokens_per_second"] = self.tokens_per_second().into();
        object["seed"] = self.seed.into();
        object["model"] = self.model.name.clone().into();
        object
    }

    pub(crate) fn table(&self) -> String {
        let texts = texts(&self.sequences, &self.model.tokenizer);
        let mut lines = Vec::new();
        if texts.is_empty() {
            lines.push("every particle died: nothing that the model can say satisfies the request".into());
        } else {
            let mut table = table(["probability", "log-weight", "count", "text"], 3);
            for text in &texts {
                table.add_row([
                    format!("{:.4}", text.probability),
                    format!("{:.3}", text.log_weight),
                    text.count.to_string(),
                    format!("{:?}", text.text),
                ]);
            }
            lines.push(table.to_string());
        }
        let n = self.sequences.len();
        let resamples = self.sequences.n_resamples();
        lines.push(format!(
            "log_ml {:.4}   ess {:.2} of {n}   resampled {resamples}x   forwards {}   tokens {}   {:.0} tokens/s   seed {}",
            self.sequences.log_ml(),
            self.sequences.ess(),
            self.forwards,
            self.tokens,
            self.tokens_per_second(),
            self.seed,
        ));
        if self.sequences.n_failed() > 0 {
            lines.push(format!("{} particles died of unusable logits", self.sequences.n_failed()));
        }
        if self.interrupted {
            lines.push("interrupted: texts that had not ended are shown as far as they got".into());
        }
        lines.join("\n")
    }
}

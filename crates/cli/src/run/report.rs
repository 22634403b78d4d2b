//! What a run found, as a table or as JSON.

use lockstep::control::{Sequences, weights};
use lockstep::engine::TokenId;
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

impl Report<'_> {
    /// The distinct texts by descending probability: the log-weight is that of all their particles.
    fn texts(&self) -> Vec<Text> {
        let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
        for (context, log_weight) in self.sequences.iter() {
            if log_weight == f64::NEG_INFINITY {
                continue;
            }
            let tokens: Vec<TokenId> = context.iter().copied().filter(|token| !token.is_eos()).collect();
            let bytes = self.model.tokenizer.decode_with_special(&tokens);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            match groups.iter_mut().find(|(known, _)| *known == text) {
                Some((_, weights)) => weights.push(log_weight),
                None => groups.push((text, vec![log_weight])),
            }
        }
        let log_total = self.sequences.log_total();
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

    fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    pub(crate) fn json(&self) -> Value {
        let texts: Vec<Value> = self
            .texts()
            .into_iter()
            .map(|text| {
                json!({
                    "text": text.text,
                    "probability": text.probability,
                    "log_weight": text.log_weight,
                    "count": text.count,
                })
            })
            .collect();
        // JSON has no -inf: a population without a living particle has null evidence.
        json!({
            "texts": texts,
            "log_ml": Some(self.sequences.log_ml()).filter(|log_ml| log_ml.is_finite()),
            "ess": self.sequences.ess(),
            "n_resamples": self.sequences.n_resamples(),
            "forwards": self.forwards,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens_per_second(),
            "seed": self.seed,
            "model": self.model.name,
        })
    }

    pub(crate) fn table(&self) -> String {
        let texts = self.texts();
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

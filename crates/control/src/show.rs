//! Populations for people.

use std::fmt;

use lockstep_engine::vocab::Vocabulary;

use crate::record::escape;
use crate::sequences::Sequences;

impl Sequences {
    /// The particles by descending weight, one a line, with their probabilities, log-weights and
    /// tokens as a [record](crate::record) writes them; then the
    /// [decoded posterior](Self::decoded_posterior), if there is one.
    #[must_use]
    pub fn show<'a>(&'a self, vocab: &'a Vocabulary) -> impl fmt::Display + 'a {
        Shown { sequences: self, vocab }
    }
}

struct Shown<'a> {
    sequences: &'a Sequences,
    vocab: &'a Vocabulary,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let probabilities = self.sequences.normalized_weights();
        let mut particles: Vec<_> = self.sequences.iter().zip(&probabilities).collect();
        particles.sort_by(|((_, a), _), ((_, b), _)| b.total_cmp(a));
        write!(f, "probability   log-weight  tokens")?;
        for ((context, log_weight), probability) in particles {
            write!(f, "\n{probability:>11.6} {log_weight:>12.4}  {}", escape(context, self.vocab))?;
        }
        let texts = self.sequences.decoded_posterior(|token| self.vocab.bytes_of(token));
        if !texts.is_empty() {
            write!(f, "\n\nprobability  text")?;
        }
        for (text, probability) in texts {
            write!(f, "\n{probability:>11.6}  {text:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lockstep_engine::testkit::vocabulary;
    use lockstep_sample::TokenId;

    use super::*;

    #[test]
    fn smc_24_particles_are_shown_by_descending_weight() {
        let (a, b, end) = (TokenId(0), TokenId(1), TokenId::EOS);
        let contexts = vec![vec![a, end], vec![b], vec![b, b, end], vec![a, end], vec![b, end]];
        let weights = [1.0, 3.0, 4.0, 2.0, 0.0_f64].map(f64::ln);
        let sequences = Sequences::new(contexts, weights.to_vec()).unwrap();
        let shown = sequences.show(&vocabulary(&["a", "b c"], &[])).to_string();
        let expected = "\
probability   log-weight  tokens
   0.400000       1.3863  b␣c|b␣c|EOS
   0.300000       1.0986  b␣c
   0.200000       0.6931  a|EOS
   0.100000       0.0000  a|EOS
   0.000000         -inf  b␣c|EOS

probability  text
   0.571429  \"b cb c\"
   0.428571  \"a\"";
        assert_eq!(shown, expected);
        let none = Sequences::new(vec![], vec![]).unwrap();
        assert_eq!(none.show(&vocabulary(&["a"], &[])).to_string(), "probability   log-weight  tokens");
    }
}

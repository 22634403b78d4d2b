//! One-token potentials, a constrained model, and keyed draws.

use std::num::NonZero;
use std::sync::{Arc, Mutex};

use lockstep_control::potential::{Claims, Coerced, FromSequences, Potential, Run, SequencePotential};
use lockstep_control::sampler::{Sampled, SamplerCursor, TokenSampler};
use lockstep_control::{BoolFsa, Chooser, ControlError, Keyed, Product, PromptedLlm};
use lockstep_engine::testkit::{ScriptedModel, vocabulary};
use lockstep_engine::vocab::Vocabulary;
use lockstep_engine::{Engine, EngineConfig};
use lockstep_sample::{DrawKey, ProblemKey, TokenId};

pub(crate) const DEAD: f64 = f64::NEG_INFINITY;

pub(crate) fn key(seed: u64, particle: u32, step: u32) -> DrawKey {
    DrawKey::new(ProblemKey::new(seed, 0), particle, step, 0)
}

pub(crate) fn keys(seed: u64, n: u32) -> Vec<DrawKey> {
    (0..n).map(|particle| key(seed, particle, 1)).collect()
}

/// One draw of each of the first rows, one for each key.
pub(crate) fn sample(
    cursor: &mut dyn SamplerCursor,
    keys: &[DrawKey],
    chooser: &mut dyn Chooser,
) -> Vec<Sampled> {
    let rows: Vec<usize> = (0..keys.len()).collect();
    cursor.sample(&rows, keys, &mut || {}, chooser).into_iter().map(Result::unwrap).collect()
}

/// One keyed draw of the empty sequence for each key.
pub(crate) fn sample_start(sampler: &dyn TokenSampler, keys: &[DrawKey]) -> Vec<Sampled> {
    let mut cursor = sampler.open(keys.len(), &Run::default()).unwrap();
    sample(&mut *cursor, keys, &mut Keyed::default())
}

/// A potential of one token: given next-token log-weights, the end's last. Nothing follows a token.
/// It notes what it is asked about.
pub(crate) struct Table {
    pub(crate) vocab: Arc<Vocabulary>,
    pub(crate) claims: Claims,
    pub(crate) log_weights: Vec<f64>,
    pub(crate) asked: Arc<Mutex<Vec<TokenId>>>,
}

impl Table {
    pub(crate) fn new(vocab: &Arc<Vocabulary>, log_weights: &[f64]) -> Self {
        assert_eq!(vocab.row_len(), log_weights.len());
        let log_weights = log_weights.to_vec();
        Self { vocab: Arc::clone(vocab), claims: Claims::default(), log_weights, asked: Arc::default() }
    }

    /// Accepts the tokens at these positions.
    pub(crate) fn accepting(vocab: &Arc<Vocabulary>, positions: &[usize]) -> Self {
        let mut log_weights = vec![DEAD; vocab.row_len()];
        positions.iter().for_each(|position| log_weights[*position] = 0.0);
        Self { claims: Claims { boolean: true, ..Claims::default() }, ..Self::new(vocab, &log_weights) }
    }

    fn weigh(&self, token: TokenId) -> f64 {
        self.asked.lock().unwrap().push(token);
        self.log_weights[self.vocab.position_of(token)]
    }

    pub(crate) fn potential(self) -> Arc<dyn Potential> {
        Arc::new(FromSequences::new(self))
    }
}

impl SequencePotential for Table {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn claims(&self) -> Claims {
        self.claims
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok(match context {
            [] => 0.0,
            [token] => self.weigh(*token),
            _ => DEAD,
        })
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok(if context.is_empty() { self.weigh(TokenId::EOS) } else { DEAD })
    }
}

/// A vocabulary of `n` tokens; the end is at position `n`.
pub(crate) fn numbered(n: usize) -> Arc<Vocabulary> {
    let texts: Vec<String> = (0..n).map(|i| format!("<{i}>")).collect();
    vocabulary(&texts.iter().map(String::as_str).collect::<Vec<_>>(), &[])
}

/// A model whose logits depend on the last two tokens, over a vocabulary with two ends.
pub(crate) fn model() -> (impl Fn(&[TokenId]) -> Vec<f32> + Clone + Send + 'static, Arc<Vocabulary>) {
    let texts = ["a", "b", "ab", "<end>", "ba", "a", "c", "</s>", "bb", "é"];
    let script = move |history: &[TokenId]| {
        let seen = history.iter().rev().take(2).fold(1, |seen, token| seen * 31 + token.0 + 7);
        (0..texts.len() as u32).map(|i| ((seen * (2 * i + 3)) % 101) as f32 / 25.0 - 2.0).collect()
    };
    (script, vocabulary(&texts, &[3, 7]))
}

/// The model at a temperature, its constraint coerced to its tokens, and their product.
pub(crate) fn constrained(
    pattern: &str,
    temperature: f64,
    threads: Option<NonZero<usize>>,
) -> (Arc<dyn Potential>, Arc<dyn Potential>, Arc<dyn Potential>) {
    let (script, vocab) = model();
    let config = EngineConfig { threads, ..EngineConfig::default() };
    let engine = Engine::start(ScriptedModel::new(vocab.len(), script), config);
    let llm = PromptedLlm::new(engine, Arc::clone(&vocab), &[TokenId(6)]).unwrap();
    let llm: Arc<dyn Potential> = Arc::new(llm.with_temperature(temperature).unwrap());
    let fsa = Arc::new(BoolFsa::from_regex(pattern).unwrap());
    let constraint: Arc<dyn Potential> = Arc::new(Coerced::new(fsa, vocab).unwrap());
    let product = Arc::new(Product::new(Arc::clone(&llm), Arc::clone(&constraint)).unwrap());
    (llm, constraint, product)
}

//! Potentials given by a function of the whole sequence, models with a memory, and comparisons.

use std::num::NonZero;
use std::sync::Arc;

use lockstep_control::ControlError;
use lockstep_control::potential::{Claims, FromSequences, Potential, Run, SequencePotential};
use lockstep_control::testkit::Tolerance;
use lockstep_engine::testkit::ScriptedModel;
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_engine::{Engine, EngineConfig, StragglerWait};
use lockstep_sample::{EosSet, TokenId, math};

pub(crate) const DEAD: f64 = f64::NEG_INFINITY;

/// A potential given by one function of a sequence and whether it has ended.
pub(crate) struct Function<F> {
    vocab: Arc<Vocabulary>,
    claims: Claims,
    weigh: F,
}

impl<F: Fn(&[TokenId], bool) -> f64 + Send + Sync> SequencePotential for Function<F> {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn claims(&self) -> Claims {
        self.claims
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok((self.weigh)(context, false))
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok((self.weigh)(context, true))
    }
}

pub(crate) fn function<F>(vocab: &Arc<Vocabulary>, claims: Claims, weigh: F) -> Arc<dyn Potential>
where
    F: Fn(&[TokenId], bool) -> f64 + Send + Sync + 'static,
{
    Arc::new(FromSequences::new(Function { vocab: Arc::clone(vocab), claims, weigh }))
}

/// Weights of byte strings: `complete` is a string's own, `prefix` the total of those that extend.
pub(crate) fn byte_set(strings: &'static [(&'static str, f64)]) -> Arc<dyn Potential> {
    let claims = Claims { tight: true, mass_exact: true, monotone: true, ..Claims::default() };
    function(&Vocabulary::bytes(), claims, |context, ended| {
        let context: Vec<u8> = context.iter().map(|byte| byte.0 as u8).collect();
        let counts = |text: &&(&str, f64)| {
            if ended { text.0.as_bytes() == context } else { text.0.as_bytes().starts_with(&context) }
        };
        math::ln(strings.iter().filter(counts).map(|(_, weight)| weight).sum())
    })
}

/// The symbols of some bytes in the byte vocabulary.
pub(crate) fn bytes(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
}

/// Ids as tokens.
pub(crate) fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().map(|id| TokenId(*id)).collect()
}

/// `symbols`, and ids that are no members: the end-of-sequence ids and one id too many.
pub(crate) fn and_strangers(symbols: &[TokenId], vocab: &Vocabulary) -> Vec<TokenId> {
    let strangers = (0..=vocab.len() as u32).map(TokenId).filter(|id| !vocab.is_member(*id));
    symbols.iter().copied().chain(strangers).collect()
}

/// All members of a vocabulary.
pub(crate) fn members(vocab: &Vocabulary) -> Vec<TokenId> {
    (0..vocab.len() as u32).map(TokenId).filter(|id| vocab.is_member(*id)).collect()
}

/// A vocabulary of `texts`, those at `special` special, the set `eos` ending sequences.
pub(crate) fn vocabulary(texts: &[&str], special: &[u32], eos: &[u32]) -> Arc<Vocabulary> {
    let token = |(text, id): (&&str, u32)| TokenEntry {
        bytes: text.as_bytes().to_vec(),
        special: special.contains(&id) || eos.contains(&id),
    };
    Vocabulary::new(texts.iter().zip(0..).map(token).collect(), EosSet::new(eos.iter().copied())).unwrap()
}

/// Logits that depend on the whole history.
pub(crate) fn with_memory(n: usize) -> impl Fn(&[TokenId]) -> Vec<f32> + Clone + Send + 'static {
    move |history| {
        let mut state = history.iter().fold(17_u64, |state, token| {
            (state ^ u64::from(token.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
        });
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u32 << 22) as f32 - 2.0
        };
        (0..n).map(|_| next()).collect()
    }
}

pub(crate) fn start(model: ScriptedModel) -> Engine {
    let config = EngineConfig {
        straggler_wait: StragglerWait::Unlimited,
        threads: NonZero::new(1),
        ..EngineConfig::default()
    };
    Engine::start(model, config)
}

/// Fails unless two potentials give all `contexts` equal weights and rows.
pub(crate) fn assert_equal(
    a: &dyn Potential,
    b: &dyn Potential,
    contexts: &[Vec<TokenId>],
    tolerance: Tolerance,
) {
    let run = Run::default();
    let rows: Vec<usize> = (0..contexts.len()).collect();
    let spans: Vec<&[TokenId]> = contexts.iter().map(Vec::as_slice).collect();
    let values = |potential: &dyn Potential| {
        let mut cursor = potential.open(contexts.len(), &run).unwrap();
        let _ = cursor.advance(&rows, &spans);
        let (prefix, complete) = (cursor.score(&rows), cursor.complete(&rows));
        let next = cursor.logw_next(&rows);
        let mut values = Vec::with_capacity(rows.len());
        for ((prefix, complete), row) in prefix.into_iter().zip(complete).zip(next) {
            let row = row.unwrap();
            let entries = (0..potential.vocab().row_len()).map(|position| row.at(position));
            values
                .push([prefix.unwrap(), complete.unwrap()].into_iter().chain(entries).collect::<Vec<f64>>());
        }
        values
    };
    for ((a, b), context) in values(a).into_iter().zip(values(b)).zip(contexts) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(&b).all(|(a, b)| tolerance.close(*a, *b)), "{context:?}: {a:?} {b:?}");
    }
}

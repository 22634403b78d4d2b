//! A model whose logits tell the whole history, and rows of all kinds of settings.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use lockstep_engine::generation::{Constraint, Generated, RowSpec};
use lockstep_engine::row::{Reply, RowRequest, Wish};
use lockstep_engine::testkit::{ScriptedModel, vocabulary};
use lockstep_engine::vocab::Vocabulary;
use lockstep_engine::{
    Engine, EngineConfig, FinishReason, Party, RowLimits, Sequence, StragglerWait, TokenId,
};
use lockstep_sample::{Bitset, LogitsProcessor, LogprobMode, LogprobRequest, SampleError, SamplingParams};

/// Ids of the vocabulary; the last is the end.
pub(crate) const IDS: usize = 12;
pub(crate) const EOS: u32 = 11;

pub(crate) fn vocab() -> Arc<Vocabulary> {
    vocabulary(&["a", "b", "c", "d", "e", "f", "g", "h", "i", " ", "\n", "$"], &[EOS])
}

/// Logits in (-3, 3) that are a hash of all of `history`.
pub(crate) fn script(history: &[TokenId]) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for token in history {
        state = (state ^ u64::from(token.0 + 1)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29);
    }
    (0..IDS as u64)
        .map(|id| {
            let mixed = (state ^ (id << 40)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1 << 24) as f32 * 6.0 - 3.0
        })
        .collect()
}

pub(crate) fn model() -> ScriptedModel {
    ScriptedModel::new(IDS, script)
}

/// Forwards wait for every party, so that a [`Clock`] sets the pace.
pub(crate) fn config() -> EngineConfig {
    EngineConfig {
        straggler_wait: StragglerWait::Unlimited,
        threads: NonZero::new(2),
        kv_bytes: Some(100_000),
        ..EngineConfig::default()
    }
}

/// A party that the engine waits for: as long as it lives, and nothing on its thread waits for a row,
/// a step is a tick.
pub(crate) struct Clock {
    // Dropped before the party leaves, so that it is freed before the engine goes on.
    seq: Sequence,
    party: Party,
}

impl Clock {
    pub(crate) fn new(engine: &Engine) -> Self {
        let party = engine.party();
        Self { seq: party.open(None), party }
    }

    /// One step of the engine. Returns a weight, which tells the party's own history.
    pub(crate) fn tick(&self) -> f64 {
        let request = RowRequest {
            seq: self.seq.id(),
            tokens: vec![TokenId(1)],
            temperature: 1.0,
            vocab: vocab(),
            wishes: vec![Wish::Tokens(vec![TokenId(2)])],
        };
        let mut answers = self.party.submit(vec![request]).unwrap().wait();
        let Ok(Reply::Tokens(weights)) = answers.remove(0).remove(0) else { panic!() };
        weights[0]
    }

    /// Frees its sequence. The engine waits on for the party.
    pub(crate) fn stop(self) -> Party {
        self.party
    }
}

pub(crate) fn limits(decode: usize, prefill: usize) -> EngineConfig {
    EngineConfig { limits: RowLimits::new(decode, prefill).unwrap(), ..config() }
}

pub(crate) fn start() -> Engine {
    Engine::start(model(), config())
}

pub(crate) fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

/// A prompt of `n` tokens that no other `which` has.
pub(crate) fn prompt(which: u32, n: usize) -> Vec<TokenId> {
    (0..n as u32).map(|i| TokenId((i * (which + 3) + which) % 10)).collect()
}

/// Plain sampling of up to `max_tokens` tokens, with a seed.
pub(crate) fn spec(which: u32, n: usize, max_tokens: usize) -> RowSpec {
    RowSpec { seed: Some(u64::from(which)), max_tokens, ..RowSpec::new(vocab(), prompt(which, n)) }
}

/// A row unlike its neighbours: settings, penalties, constraint, processor, limit, stops by `which`.
pub(crate) fn mixed(which: u32) -> RowSpec {
    let f = f64::from(which);
    let params = SamplingParams {
        temperature: if which % 7 == 3 { 0.0 } else { 0.5 + 0.1 * (f % 9.0) },
        top_p: [1.0, 0.9, 0.7][which as usize % 3],
        top_k: i64::from(which % 5) * 2,
        min_p: [0.0, 0.05][which as usize % 2],
        xtc_probability: [0.0, 0.5][which as usize / 2 % 2],
        repetition_penalty: [1.0, 1.3][which as usize / 3 % 2],
        frequency_penalty: [0.0, 0.4][which as usize / 4 % 2],
        logit_bias: if which % 6 == 1 { vec![(TokenId(which % 9), 1.5)] } else { vec![] },
        ..SamplingParams::default()
    };
    RowSpec {
        params,
        constraint: (which % 4 == 2).then(|| Box::new(NoRepeats::default()) as Box<dyn Constraint>),
        processors: if which % 8 == 5 { vec![Box::new(Favour(which % 9))] } else { vec![] },
        logprobs: which.is_multiple_of(3).then_some(LogprobRequest { mode: LogprobMode::Processed, top: 2 }),
        stop: if which % 5 == 4 { vec!["ab".into(), "c".into()] } else { vec![] },
        min_tokens: which as usize % 3,
        ignore_eos: which % 10 == 9,
        ..spec(which, 1 + which as usize % 6, 3 + which as usize % 8)
    }
}

/// No token comes twice in a row.
#[derive(Default)]
pub(crate) struct NoRepeats(Option<TokenId>);

impl Constraint for NoRepeats {
    fn mask(&mut self) -> Result<Arc<Bitset>, String> {
        let mut mask = Bitset::full(IDS);
        if let Some(last) = self.0 {
            mask.remove(last.index());
        }
        Ok(Arc::new(mask))
    }

    fn accept(&mut self, token: TokenId) -> Result<(), String> {
        self.0 = Some(token);
        Ok(())
    }
}

/// Adds 1 to one id's logit.
pub(crate) struct Favour(pub(crate) u32);

impl LogitsProcessor for Favour {
    fn process(&mut self, _: &[TokenId], logits: &mut [f32]) -> Result<(), SampleError> {
        logits[self.0 as usize] += 1.0;
        Ok(())
    }
}

/// Notes the histories that it is shown.
pub(crate) struct Recorder(pub(crate) Arc<Mutex<Vec<Vec<TokenId>>>>);

impl LogitsProcessor for Recorder {
    fn process(&mut self, history: &[TokenId], _: &mut [f32]) -> Result<(), SampleError> {
        self.0.lock().unwrap().push(history.to_vec());
        Ok(())
    }
}

/// What a row gives, whatever it took: tokens, their numbers, text, and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Result_ {
    pub(crate) ids: Vec<TokenId>,
    logps: Vec<u64>,
    logprobs: Vec<Option<lockstep_sample::Logprobs>>,
    pub(crate) text: String,
    pub(crate) reason: &'static str,
}

pub(crate) fn result(generated: &Generated) -> Result_ {
    Result_ {
        ids: generated.ids(),
        logps: generated.tokens.iter().map(|token| token.logp.to_bits()).collect(),
        logprobs: generated.tokens.iter().map(|token| token.logprobs.clone()).collect(),
        text: generated.text.clone(),
        reason: generated.finished.reason.name(),
    }
}

/// The row of `spec` alone, on an engine of its own.
pub(crate) fn alone(spec: RowSpec) -> Result_ {
    let engine = start();
    result(&engine.submit(vec![spec]).unwrap().remove(0).wait())
}

/// All rows together.
pub(crate) fn together(engine: &Engine, specs: Vec<RowSpec>) -> Vec<Result_> {
    let streams = engine.submit(specs).unwrap();
    streams.into_iter().map(|stream| result(&stream.wait())).collect()
}

/// The engine's steps in which a row drew.
pub(crate) fn steps(generated: &Generated) -> Vec<u64> {
    generated.tokens.iter().map(|token| token.step).collect()
}

pub(crate) fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> usize {
    items.into_iter().collect::<BTreeSet<T>>().len()
}

pub(crate) fn error_text(generated: &Generated) -> String {
    match &generated.finished.reason {
        FinishReason::Error(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

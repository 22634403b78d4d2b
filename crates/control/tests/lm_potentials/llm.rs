//! The settings of a prompted model: end-of-sequence strings, adapters.

use std::sync::Arc;

use lockstep_control::potential::{Potential, Run, Status};
use lockstep_control::{ErrorKind, PromptedLlm};
use lockstep_engine::TokenId;
use lockstep_engine::model::{BatchItem, Capabilities, LogitsSink, Model, ModelError, SeqId};
use lockstep_engine::testkit::ScriptedModel;
use lockstep_engine::{Engine, EngineConfig};

use crate::support::{ids, start, vocabulary, with_memory};

const TEXTS: [&str; 6] = ["a", "b", "<end>", "b", "c", "<stop>"];

fn llm(model: ScriptedModel) -> PromptedLlm {
    PromptedLlm::new(start(model), vocabulary(&TEXTS, &[2, 5], &[2]), &ids(&[0])).unwrap()
}

#[test]
fn end_of_sequence_strings_select_every_token_with_those_bytes() {
    let script = with_memory(6);
    let llm = llm(ScriptedModel::new(6, script.clone()));
    let row = |llm: &PromptedLlm| {
        llm.open(1, &Run::default()).unwrap().logw_next(&[0]).remove(0).unwrap().to_dense()
    };
    let logits: Vec<f64> = script(&ids(&[0])).into_iter().map(f64::from).collect();
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    let stopping = llm.clone().with_eos_byte_strings(&["<stop>", "b"]).unwrap();
    assert_eq!(stopping.vocab().eos().ids(), [1, 3, 5]);
    assert!(stopping.vocab().same_tokens(llm.vocab()));
    let mass: f64 = [1, 3, 5].map(|id: usize| logits[id].exp()).iter().sum();
    let row_of_three = row(&stopping);
    assert!((row_of_three[1] - (mass / total).ln()).abs() < 1e-9, "{row_of_three:?}");
    assert_eq!([row_of_three[3], row_of_three[5]], [f64::NEG_INFINITY; 2]);
    assert!((row_of_three[2] - (logits[2] - total.ln())).abs() < 1e-9, "the old end is a token now");
    let endless = llm.clone().with_eos_byte_strings::<&str>(&[]).unwrap();
    assert!(!endless.claims().tight && endless.vocab().eos().ids().is_empty());

    let refusal = |strings: &[&str]| llm.clone().with_eos_byte_strings(strings).unwrap_err();
    assert_eq!(
        refusal(&["a", "x\n"]).to_string(),
        "eos_byte_strings[1]: `x\\n` is no token of the vocabulary: give a token's whole text"
    );
    assert_eq!(
        refusal(&["b", "a", "b"]).to_string(),
        "eos_byte_strings[2]: `b` is given twice: name each string once"
    );
    assert_eq!(refusal(&["x"]).kind(), ErrorKind::Argument);
}

#[test]
fn an_adapter_that_the_model_lacks_fails_the_rows() {
    let llm = llm(ScriptedModel::new(6, with_memory(6)));
    assert_eq!(llm.adapter(), None);
    let adapted = llm.clone().with_adapter("poet").spawn(&ids(&[1])).unwrap();
    assert_eq!(adapted.adapter(), Some("poet"), "it belongs to the model, not to the prompt");
    let mut cursor = adapted.open(2, &Run::default()).unwrap();
    let error = cursor.logw_next(&[0]).remove(0).unwrap_err();
    assert_eq!(error.to_string(), "model: no adapter `poet`");
    assert!(!error.is_recoverable());
    let Status::Failed(error) = cursor.advance(&[1], &[&ids(&[0])]).remove(0) else {
        panic!("the other row has the adapter too")
    };
    assert!(error.to_string().contains("`poet`"));
}

/// A scripted model that has one adapter, which is the model under another script.
struct Adapted {
    plain: ScriptedModel,
    poet: ScriptedModel,
}

impl Model for Adapted {
    fn capabilities(&self) -> &Capabilities {
        self.plain.capabilities()
    }
    fn open(&mut self, seq: SeqId, adapter: Option<&str>) -> Result<(), ModelError> {
        match adapter {
            Some("poet") => self.poet.open(seq, None),
            other => self.plain.open(seq, other),
        }
    }
    fn fork(&mut self, parent: SeqId, child: SeqId) -> Result<(), ModelError> {
        let model = if self.poet.len(parent).is_some() { &mut self.poet } else { &mut self.plain };
        model.fork(parent, child)
    }
    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), ModelError> {
        let model = if self.poet.len(seq).is_some() { &mut self.poet } else { &mut self.plain };
        model.truncate(seq, len)
    }
    fn free(&mut self, seq: SeqId) {
        self.plain.free(seq);
        self.poet.free(seq);
    }
    fn len(&self, seq: SeqId) -> Option<usize> {
        self.plain.len(seq).or_else(|| self.poet.len(seq))
    }
    fn forward(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn LogitsSink) -> Result<(), ModelError> {
        for item in batch {
            let model = if self.poet.len(item.seq).is_some() { &mut self.poet } else { &mut self.plain };
            model.forward(std::slice::from_ref(item), sink)?;
        }
        Ok(())
    }
}

#[test]
fn rows_with_an_adapter_and_without_run_side_by_side() {
    let opposite = |history: &[TokenId]| with_memory(6)(history).into_iter().map(|logit| -logit).collect();
    let model =
        Adapted { plain: ScriptedModel::new(6, with_memory(6)), poet: ScriptedModel::new(6, opposite) };
    let engine = Engine::start(model, EngineConfig::default());
    let vocab = vocabulary(&TEXTS, &[2, 5], &[2]);
    let plain = PromptedLlm::new(engine, Arc::clone(&vocab), &ids(&[0])).unwrap();
    let poet = plain.clone().with_adapter("poet");
    let run = Run::default();
    let alone = |script: ScriptedModel| {
        let llm = PromptedLlm::new(start(script), Arc::clone(&vocab), &ids(&[0])).unwrap();
        let mut cursor = llm.open(1, &Run::default()).unwrap();
        let _ = cursor.advance(&[0], &[&ids(&[1])]);
        cursor.logw_next(&[0]).remove(0).unwrap().to_dense()
    };
    let (mut a, mut b) = (plain.open(1, &run).unwrap(), poet.open(1, &run).unwrap());
    let _ = (a.advance(&[0], &[&ids(&[1])]), b.advance(&[0], &[&ids(&[1])]));
    let rows = [&mut a, &mut b].map(|cursor| cursor.logw_next(&[0]).remove(0).unwrap().to_dense());
    assert_ne!(rows[0], rows[1]);
    assert_eq!(rows, [alone(ScriptedModel::new(6, with_memory(6))), alone(ScriptedModel::new(6, opposite))]);
}

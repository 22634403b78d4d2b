//! The model behind a guard: a panic in it is an error, and after a fatal error it is left alone.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Shared;
use crate::model::{BatchItem, Capabilities, LogitsSink, Model, ModelError, ModelErrorKind, SeqId};
use crate::sync::Arc;

/// A model that never panics. Once it has failed for good ([`Shared::failure`]), nothing reaches it
/// any more.
pub(super) struct Guarded {
    model: Box<dyn Model>,
    capabilities: Capabilities,
    shared: Arc<Shared>,
}

impl Guarded {
    pub(super) fn new(model: Box<dyn Model>, shared: Arc<Shared>) -> Self {
        Self { capabilities: shared.capabilities.clone(), model, shared }
    }
}

/// Calls the model, unless it has failed for good; notes if it does now.
fn call<T>(shared: &Shared, call: impl FnOnce() -> Result<T, ModelError>) -> Result<T, ModelError> {
    if let Some(why) = shared.why_failed() {
        return Err(ModelError::new(ModelErrorKind::Fatal, why));
    }
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = format!("the model panicked: {}", panic_text(&*panic));
        Err(ModelError::new(ModelErrorKind::Fatal, message))
    });
    if let Err(error) = &outcome
        && error.kind() == ModelErrorKind::Fatal
    {
        shared.fail(error.to_string());
    }
    outcome
}

impl Model for Guarded {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&mut self, seq: SeqId, adapter: Option<&str>) -> Result<(), ModelError> {
        call(&self.shared, || self.model.open(seq, adapter))
    }

    fn fork(&mut self, parent: SeqId, child: SeqId) -> Result<(), ModelError> {
        call(&self.shared, || self.model.fork(parent, child))
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), ModelError> {
        call(&self.shared, || self.model.truncate(seq, len))
    }

    fn free(&mut self, seq: SeqId) {
        // Whoever needs the model next learns of its failure.
        let _ = call(&self.shared, || {
            self.model.free(seq);
            Ok(())
        });
    }

    fn len(&self, seq: SeqId) -> Option<usize> {
        call(&self.shared, || Ok(self.model.len(seq))).ok().flatten()
    }

    fn forward(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn LogitsSink) -> Result<(), ModelError> {
        call(&self.shared, || self.model.forward(batch, sink))
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

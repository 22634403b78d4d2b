//! Who listens to what is told by `tracing`.

use std::sync::{Arc, Mutex};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the level of all that is said.
#[derive(Clone, Default)]
pub(crate) struct Listener(Arc<Mutex<Vec<Level>>>);

impl Listener {
    /// The levels of what was said so far, in order.
    pub(crate) fn said(&self) -> Vec<Level> {
        self.0.lock().unwrap().clone()
    }
}

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

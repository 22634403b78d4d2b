//! Settings of an engine.

use std::num::NonZero;
use std::time::Duration;

/// How long a forward waits for busy parties once a row is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StragglerWait {
    /// The smaller of a quarter of the median forward and 20 ms.
    #[default]
    Adaptive,
    /// As long as it takes. Right for parties that belong together, such as one program's runs.
    Unlimited,
    /// This long.
    Fixed(Duration),
}

/// Settings of an engine.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// How long to wait for stragglers.
    pub straggler_wait: StragglerWait,
    /// Bytes of KV memory that reservations may take in all; `None` is 8 GiB.
    pub kv_bytes: Option<usize>,
    /// Threads of the draw pass; `None` is as many as the machine has.
    pub threads: Option<NonZero<usize>>,
}

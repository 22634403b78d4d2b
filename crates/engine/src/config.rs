//! Settings of an engine.

use std::num::NonZero;
use std::time::Duration;

use crate::error::EngineError;

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
    /// Bytes of KV memory that reservations and stored prompts may take in all; `None` is 8 GiB.
    pub kv_bytes: Option<usize>,
    /// Bytes of it that stored prompts may take, 0 for none; `None` is a quarter.
    pub prompt_cache_bytes: Option<usize>,
    /// Threads of the draw pass; `None` is as many as the machine has.
    pub threads: Option<NonZero<usize>>,
    /// How many generating rows run at once.
    pub limits: RowLimits,
    /// Prompt tokens a step, of all rows together; `None` is what takes about as long as two decode
    /// steps, measured, but at least 32, and all of them while nothing decodes.
    pub prefill_step_tokens: Option<NonZero<usize>>,
}

/// How many generating rows run at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowLimits {
    decode: usize,
    prefill: usize,
    group_share: f64,
}

impl Default for RowLimits {
    fn default() -> Self {
        Self { decode: 32, prefill: 8, group_share: 1.0 }
    }
}

impl RowLimits {
    /// At most `max_decode_rows` (default 32) rows that read or generate, and `max_prefill_rows`
    /// (default 8) of them that still read their prompts.
    ///
    /// # Errors
    /// If one of them is 0, or the second is larger than the first.
    pub fn new(max_decode_rows: usize, max_prefill_rows: usize) -> Result<Self, EngineError> {
        let error = |field, message: String| Err(EngineError::Config { field, message });
        if max_decode_rows == 0 {
            return error("max_decode_rows", "is 0: at least 1 row must be able to run".into());
        }
        if max_prefill_rows == 0 {
            return error("max_prefill_rows", "is 0: at least 1 row must be able to read its prompt".into());
        }
        if max_prefill_rows > max_decode_rows {
            return error(
                "max_prefill_rows",
                format!(
                    "{max_prefill_rows} exceeds `max_decode_rows` = {max_decode_rows}, which counts these rows too: \
                     lower it or raise `max_decode_rows`"
                ),
            );
        }
        Ok(Self { decode: max_decode_rows, prefill: max_prefill_rows, ..Self::default() })
    }

    /// The share of the KV memory that one group or run may reserve, in (0, 1]; default 1.
    ///
    /// # Errors
    /// If it is outside that range.
    pub fn with_group_share(self, max_group_share: f64) -> Result<Self, EngineError> {
        if max_group_share > 0.0 && max_group_share <= 1.0 {
            return Ok(Self { group_share: max_group_share, ..self });
        }
        let message = format!("{max_group_share} is out of range: use a number in (0, 1]");
        Err(EngineError::Config { field: "max_group_share", message })
    }

    /// The most rows that read or generate.
    #[must_use]
    pub fn max_decode_rows(&self) -> usize {
        self.decode
    }

    /// The most rows that read their prompts.
    #[must_use]
    pub fn max_prefill_rows(&self) -> usize {
        self.prefill
    }

    /// The share of the KV memory that one group or run may reserve.
    #[must_use]
    pub fn max_group_share(&self) -> f64 {
        self.group_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_30_a_prefill_limit_above_the_decode_limit_is_a_configuration_error() {
        let error = RowLimits::new(1, 8).unwrap_err().to_string();
        assert!(error.starts_with("max_prefill_rows: 8 exceeds `max_decode_rows` = 1"), "{error}");
        assert!(RowLimits::new(0, 0).is_err() && RowLimits::new(4, 0).is_err());
        let limits = RowLimits::new(8, 8).unwrap();
        assert_eq!((limits.max_decode_rows(), limits.max_prefill_rows()), (8, 8));
        for share in [0.0, 1.5, f64::NAN] {
            assert!(limits.with_group_share(share).is_err());
        }
    }
}

//! Hyperparameters, read from a file's metadata and checked.

use crate::error::{LoadError, Problem};
use crate::gguf::Gguf;
use crate::kv::KvShape;

/// The numbers that shape a network. Widths are multiples of 16, the lanes of a panel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hyper {
    /// Blocks.
    pub(crate) layers: usize,
    /// Width of the residual stream.
    pub(crate) embedding: usize,
    /// Width of the gated layer.
    pub(crate) feed_forward: usize,
    /// Query heads, a multiple of `kv_heads`.
    pub(crate) heads: usize,
    /// Key and value heads.
    pub(crate) kv_heads: usize,
    /// Width of a head.
    pub(crate) head_dim: usize,
    /// The longest sequence, in tokens.
    pub(crate) context: usize,
    /// Base of the rotary frequencies.
    pub(crate) rope_base: f32,
    /// Added to the mean square in norms.
    pub(crate) norm_eps: f32,
}

/// No width, count or length of a real model comes near it, and products of three stay in range.
const MOST: u64 = 1 << 20;

impl Hyper {
    /// Reads and checks the keys `llama.*`.
    pub(crate) fn read(gguf: &Gguf) -> Result<Self, LoadError> {
        let fail = |problem| LoadError::new(gguf.path(), problem);
        let architecture = gguf.str("general.architecture")?;
        if architecture != "llama" {
            return Err(fail(Problem::Architecture(architecture.to_owned())));
        }
        refuse_variants(gguf)?;
        let heads = gguf.u64("llama.attention.head_count")?;
        let embedding = gguf.u64("llama.embedding_length")?;
        let number = |key: &str, value: u64| {
            if (1..=MOST).contains(&value) {
                return Ok(usize::try_from(value).expect("at most 2^20"));
            }
            let wants = format!("a number from 1 to {MOST} is needed");
            Err(fail(Problem::Key { key: key.to_owned(), value: value.to_string(), wants }))
        };
        let read = |key: &str| number(key, gguf.u64(key)?);
        let or = |key: &str, value: u64| number(key, gguf.opt_u64(key)?.unwrap_or(value));
        let hyper = Self {
            layers: read("llama.block_count")?,
            embedding: read("llama.embedding_length")?,
            feed_forward: read("llama.feed_forward_length")?,
            heads: read("llama.attention.head_count")?,
            kv_heads: or("llama.attention.head_count_kv", heads)?,
            head_dim: or("llama.attention.key_length", embedding / heads.max(1))?,
            context: usize::try_from(gguf.u64("llama.context_length")?.min(MOST * 16)).expect("at most 2^24"),
            rope_base: gguf.opt_f32("llama.rope.freq_base")?.unwrap_or(10_000.0),
            norm_eps: gguf.f32("llama.attention.layer_norm_rms_epsilon")?,
        };
        for key in ["llama.attention.value_length", "llama.rope.dimension_count"] {
            if let Some(value) = gguf.opt_u64(key)?
                && value != hyper.head_dim as u64
            {
                let wants = format!("only the width of a head, {}, is supported", hyper.head_dim);
                return Err(fail(Problem::Key { key: key.to_owned(), value: value.to_string(), wants }));
            }
        }
        hyper.check().map_err(fail)?;
        Ok(hyper)
    }

    /// Checks how the numbers go together.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let problem = |key: &str, value: String, wants: &str| {
            Err(Problem::Key { key: format!("llama.{key}"), value, wants: wants.to_owned() })
        };
        for (key, value) in [
            ("embedding_length", self.embedding),
            ("feed_forward_length", self.feed_forward),
            ("attention.key_length", self.head_dim),
        ] {
            if value == 0 || !value.is_multiple_of(16) {
                return problem(key, value.to_string(), "only multiples of 16 are supported");
            }
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            let wants = format!("a divisor of attention.head_count {} is needed", self.heads);
            return problem("attention.head_count_kv", self.kv_heads.to_string(), &wants);
        }
        if self.context == 0 {
            return problem("context_length", "0".to_owned(), "at least 1 is needed");
        }
        if !(self.rope_base.is_finite() && self.rope_base > 0.0) {
            return problem("rope.freq_base", self.rope_base.to_string(), "a positive number is needed");
        }
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            let value = self.norm_eps.to_string();
            return problem("attention.layer_norm_rms_epsilon", value, "a number of at least 0 is needed");
        }
        Ok(())
    }

    /// What a token leaves in memory.
    pub(crate) fn kv_shape(&self) -> KvShape {
        KvShape { layers: self.layers, kv_heads: self.kv_heads, head_dim: self.head_dim }
    }
}

/// Refuses what would be computed wrongly if it were passed over.
fn refuse_variants(gguf: &Gguf) -> Result<(), LoadError> {
    let fail = |key: &str, value: String, wants: &str| {
        let (key, wants) = (key.to_owned(), wants.to_owned());
        Err(LoadError::new(gguf.path(), Problem::Key { key, value, wants }))
    };
    for key in ["llama.expert_count", "llama.attention.sliding_window"] {
        if let Some(value @ 1..) = gguf.opt_u64(key)? {
            return fail(key, value.to_string(), "it is not supported");
        }
    }
    let key = "llama.rope.scaling.type";
    match gguf.opt_str(key)? {
        None | Some("none") => Ok(()),
        Some(value) => {
            let value = value.escape_debug().take(80).collect();
            fail(key, value, "scaled rotary positions are not supported")
        }
    }
}

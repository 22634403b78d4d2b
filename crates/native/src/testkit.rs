//! A tiny model with random weights, made in memory: the exact model of tests.
//!
//! ```
//! use lockstep_engine::model::Model;
//! use lockstep_native::testkit::{TinyOptions, tiny_model};
//!
//! let model = tiny_model(7, TinyOptions { vocab: 24, ..TinyOptions::default() });
//! assert_eq!(model.capabilities().vocab_size, 24);
//! ```
//!
//! The weights are f32, depend on the seed and the options alone, and are loaded and run by the
//! same code as a file's. They are drawn evenly from `±sqrt(3 / inputs)`, so that activations keep
//! their size, but for the embedding, whose entries in `±4 sqrt(3 / width)` spread the logits
//! over a few nats.

use std::path::Path;

use crate::arch::llama::{Hyper, Tensors};
use crate::error::LoadError;
use crate::gguf::{Tensor, TensorType};
use crate::model::{NativeModel, NativeOptions};

/// The shape of a tiny model.
#[derive(Clone, Copy, Debug)]
pub struct TinyOptions {
    /// Tokens. Default 32.
    pub vocab: usize,
    /// Blocks. Default 2.
    pub layers: usize,
    /// Query heads of width 16, a multiple of `kv_heads`. Default 4.
    pub heads: usize,
    /// Key and value heads. Default 2.
    pub kv_heads: usize,
    /// Width of the residual stream, a multiple of 16. Default 32.
    pub embedding: usize,
    /// Width of the gated layer, a multiple of 16. Default 64.
    pub feed_forward: usize,
    /// The longest sequence, in tokens. Default 256.
    pub context: usize,
    /// Threads that compute. Default 1.
    pub threads: usize,
}

impl Default for TinyOptions {
    fn default() -> Self {
        Self {
            vocab: 32,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            embedding: 32,
            feed_forward: 64,
            context: 256,
            threads: 1,
        }
    }
}

/// The tiny model of `seed` and `options`.
///
/// # Panics
/// If the options contradict what they are documented to be.
#[must_use]
pub fn tiny_model(seed: u64, options: TinyOptions) -> NativeModel {
    const HEAD_DIM: usize = 16;
    let hyper = Hyper {
        layers: options.layers,
        embedding: options.embedding,
        feed_forward: options.feed_forward,
        heads: options.heads,
        kv_heads: options.kv_heads,
        head_dim: HEAD_DIM,
        context: options.context,
        rope_base: 10_000.0,
        norm_eps: 1e-5,
    };
    hyper.check().expect("options as documented");
    assert!(options.vocab > 0 && options.layers > 0, "a vocabulary and a block");

    let (width, feed_forward) = (options.embedding, options.feed_forward);
    let (q, kv) = (options.heads * HEAD_DIM, options.kv_heads * HEAD_DIM);
    let mut parts = vec![
        ("token_embd.weight".to_owned(), vec![width, options.vocab]),
        ("output_norm.weight".to_owned(), vec![width]),
    ];
    for layer in 0..options.layers {
        for (part, shape) in [
            ("attn_norm", vec![width]),
            ("attn_q", vec![width, q]),
            ("attn_k", vec![width, kv]),
            ("attn_v", vec![width, kv]),
            ("attn_output", vec![q, width]),
            ("ffn_norm", vec![width]),
            ("ffn_gate", vec![width, feed_forward]),
            ("ffn_up", vec![width, feed_forward]),
            ("ffn_down", vec![feed_forward, width]),
        ] {
            parts.push((format!("blk.{layer}.{part}.weight"), shape));
        }
    }
    let mut state = seed;
    let data: Vec<Vec<u8>> = parts.iter().map(|(name, shape)| weights(&mut state, name, shape)).collect();
    let tensors: Tensors<'_> = parts
        .iter()
        .zip(&data)
        .map(|((name, shape), data)| (name.clone(), Tensor { name, shape, ty: TensorType::F32, data }))
        .collect();
    let native = NativeOptions::default().threads(options.threads);
    NativeModel::from_tensors(hyper, tensors, native, |problem| {
        LoadError::new(Path::new("tiny model"), problem)
    })
    .expect("tensors of the shapes that the loader asks for")
}

/// The little-endian values of one tensor.
fn weights(state: &mut u64, name: &str, shape: &[usize]) -> Vec<u8> {
    let n = shape.iter().product();
    let bound = if name.starts_with("token_embd") { 4.0 } else { 1.0 } * (3.0 / shape[0] as f32).sqrt();
    let value = |_| {
        // 24 bits of a uniform on [-1, 1).
        let uniform = (splitmix(state) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let value = if shape.len() == 1 { 1.0 + 0.25 * uniform } else { bound * uniform };
        value.to_le_bytes()
    };
    (0..n).flat_map(value).collect()
}

/// One step of the SplitMix64 generator.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

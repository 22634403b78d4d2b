//! Files that are well formed but hold no model we run: an error that names what is wrong.
#![allow(clippy::unwrap_used)] // helpers of tests, where a panic is the report

use std::io::Write as _;

use lockstep_engine::model::Model;
use lockstep_native::gguf::Gguf;
use lockstep_native::{NativeModel, NativeOptions};

const F32: u32 = 0;
const F16: u32 = 1;
const Q4_1: u32 = 3;

/// A file as keys and tensors that a test can change.
struct File {
    keys: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<u64>, u32)>,
}

#[derive(Clone)]
enum Value {
    U32(u32),
    F32(f32),
    Str(&'static str),
}

/// A model of one block: width 32, 2 heads of 16, one key and value head, 48 in the gated layer.
fn good() -> File {
    let keys = [
        ("general.architecture", Value::Str("llama")),
        ("llama.block_count", Value::U32(1)),
        ("llama.context_length", Value::U32(64)),
        ("llama.embedding_length", Value::U32(32)),
        ("llama.feed_forward_length", Value::U32(64)),
        ("llama.attention.head_count", Value::U32(2)),
        ("llama.attention.head_count_kv", Value::U32(1)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
    ];
    let tensors: [(&str, &[u64], u32); 11] = [
        ("token_embd.weight", &[32, 10], F32),
        ("output_norm.weight", &[32], F32),
        ("blk.0.attn_norm.weight", &[32], F32),
        ("blk.0.attn_q.weight", &[32, 32], Q4_1),
        ("blk.0.attn_k.weight", &[32, 16], F32),
        ("blk.0.attn_v.weight", &[32, 16], F32),
        ("blk.0.attn_output.weight", &[32, 32], F32),
        ("blk.0.ffn_norm.weight", &[32], F32),
        ("blk.0.ffn_gate.weight", &[32, 64], F32),
        ("blk.0.ffn_up.weight", &[32, 64], F32),
        ("blk.0.ffn_down.weight", &[64, 32], F32),
    ];
    File {
        keys: keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        tensors: tensors.into_iter().map(|(name, shape, ty)| (name.to_owned(), shape.to_vec(), ty)).collect(),
    }
}

impl File {
    fn key(mut self, key: &str, value: Value) -> Self {
        self.keys.retain(|(k, _)| k != key);
        self.keys.push((key.to_owned(), value));
        self
    }

    fn tensor(mut self, name: &str, shape: &[u64], ty: u32) -> Self {
        self.tensors.retain(|(n, ..)| n != name);
        self.tensors.push((name.to_owned(), shape.to_vec(), ty));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.keys.retain(|(k, _)| k != name);
        self.tensors.retain(|(n, ..)| n != name);
        self
    }

    /// Every byte of tensor data is `fill`.
    fn load(&self, fill: u8) -> Result<NativeModel, String> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.as_bytes());
        };
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            text(&mut bytes, key);
            match value {
                Value::U32(v) => bytes.extend([4_u32.to_le_bytes(), v.to_le_bytes()].concat()),
                Value::F32(v) => bytes.extend([6_u32.to_le_bytes(), v.to_le_bytes()].concat()),
                Value::Str(v) => {
                    bytes.extend(8_u32.to_le_bytes());
                    text(&mut bytes, v);
                }
            }
        }
        let mut offset = 0_u64;
        for (name, shape, ty) in &self.tensors {
            text(&mut bytes, name);
            bytes.extend((shape.len() as u32).to_le_bytes());
            shape.iter().for_each(|ne| bytes.extend(ne.to_le_bytes()));
            bytes.extend(ty.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            let values: u64 = shape.iter().product();
            let size = match *ty {
                F32 => values * 4,
                F16 => values * 2,
                _ => values / 32 * 20,
            };
            offset += size.next_multiple_of(32);
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.resize(bytes.len() + usize::try_from(offset).unwrap(), fill);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let gguf = Gguf::open(file.path()).unwrap();
        NativeModel::load(&gguf, NativeOptions::default().threads(2)).map_err(|error| {
            let line = error.to_string();
            assert!(
                line.starts_with(&format!("{}: ", file.path().display())) && !line.contains('\n'),
                "{line}"
            );
            line
        })
    }
}

#[test]
fn native_load_takes_a_small_file_as_it_is() {
    let model = good().load(0).unwrap();
    assert_eq!((model.capabilities().vocab_size, model.capabilities().context_length), (10, 64));
    // Keys and values of one block and one head of 16, in f32.
    assert_eq!(model.capabilities().kv_bytes_per_token, 2 * 16 * 4);
    let blocks = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64;
    assert_eq!(model.multiply_adds_per_token(), blocks + 32 * 10);
    assert!(good().tensor("output.weight", &[32, 10], Q4_1).load(0).is_ok(), "an output of its own");
}

#[test]
fn native_load_names_the_key_that_is_wrong() {
    let u = Value::U32;
    for (file, message) in [
        (
            good().key("general.architecture", Value::Str("gemma3")),
            "general.architecture is `gemma3`, and only `llama`",
        ),
        (good().without("llama.embedding_length"), "the key `llama.embedding_length` is missing"),
        (good().key("llama.block_count", u(0)), "llama.block_count is 0"),
        (good().key("llama.block_count", u(u32::MAX)), "llama.block_count is 4294967295"),
        (good().key("llama.attention.head_count", u(0)), "llama.attention.head_count is 0"),
        (good().key("llama.attention.head_count_kv", u(3)), "a divisor of attention.head_count 2 is needed"),
        (
            good().key("llama.embedding_length", u(40)),
            "llama.embedding_length is 40, and only multiples of 16",
        ),
        (
            good().key("llama.attention.head_count", u(4)),
            "llama.attention.key_length is 8, and only multiples",
        ),
        (good().key("llama.rope.dimension_count", u(8)), "llama.rope.dimension_count is 8, and only"),
        (good().key("llama.rope.scaling.type", Value::Str("yarn")), "llama.rope.scaling.type is yarn"),
        (good().key("llama.expert_count", u(8)), "llama.expert_count is 8"),
        (good().key("llama.context_length", u(0)), "llama.context_length is 0"),
        (good().key("llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)), "epsilon is NaN"),
        (good().key("llama.rope.freq_base", Value::F32(-1.0)), "llama.rope.freq_base is -1"),
    ] {
        let error = file.load(0).unwrap_err();
        assert!(error.contains(message), "{error}\nshould say: {message}");
    }
}

#[test]
fn native_load_names_the_tensor_that_is_wrong() {
    let q = "blk.0.attn_q.weight";
    for (file, message) in [
        (good().without(q), "the tensor `blk.0.attn_q.weight` is missing"),
        (good().key("llama.block_count", Value::U32(2)), "the tensor `blk.1.attn_norm.weight` is missing"),
        (
            good().tensor(q, &[32, 48], F32),
            "the tensor `blk.0.attn_q.weight` has the shape [32, 48], not [32, 32]",
        ),
        (good().tensor(q, &[32], F32), "has the shape [32], not [32, 32]"),
        (
            good().tensor(q, &[32, 32], F16),
            "`blk.0.attn_q.weight` is of type F16, and only F32, Q4_1 and Q8_0",
        ),
        (good().tensor("output_norm.weight", &[32], F16), "is of type F16, and only F32 norms"),
        (good().tensor("token_embd.weight", &[64, 10], F32), "`token_embd.weight` has the shape [64, 10]"),
        (good().tensor("output.weight", &[32, 11], F32), "the shape [32, 11], not [32, 10]"),
        (good().tensor("rope_freqs.weight", &[8], F32), "the tensor `rope_freqs.weight` is not part"),
        (good().tensor("blk.0.attn_q.bias", &[32], F32), "the tensor `blk.0.attn_q.bias` is not part"),
    ] {
        let error = file.load(0).unwrap_err();
        assert!(error.contains(message), "{error}\nshould say: {message}");
    }
    // 0x7c7c is a NaN among halves.
    let error = good().load(0x7c).unwrap_err();
    assert!(error.contains("the tensor `blk.0.attn_q.weight` holds a scale that is not finite"), "{error}");
}

//! What a GGUF file says of its tokenizer and its chats.

use lockstep_engine::text::TokenizerSpec;

use super::error::Problem;
use super::{Gguf, GgufError};

/// The type of an ordinary token: what every token is in a file that gives no types.
const ORDINARY: i32 = 1;

/// The tokenizer that `gguf` describes. The end-of-sequence set is its one `eos_token_id`, or empty
/// if there is none.
///
/// # Errors
/// If a key that every tokenizer has is missing, or one is of the wrong type.
pub fn tokenizer_spec(gguf: &Gguf) -> Result<TokenizerSpec, GgufError> {
    let tokens = gguf.strings("tokenizer.ggml.tokens")?.to_vec();
    let types = "tokenizer.ggml.token_type";
    let token_types = match gguf.value(types) {
        Some(_) => gguf.i32s(types)?.to_vec(),
        None => vec![ORDINARY; tokens.len()],
    };
    Ok(TokenizerSpec {
        model: gguf.str("tokenizer.ggml.model")?.to_owned(),
        pre: gguf.str("tokenizer.ggml.pre")?.to_owned(),
        token_types,
        merges: gguf.strings("tokenizer.ggml.merges")?.to_vec(),
        eos: id(gguf, "tokenizer.ggml.eos_token_id")?.into_iter().collect(),
        bos: id(gguf, "tokenizer.ggml.bos_token_id")?,
        add_bos: gguf.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(false),
        tokens,
    })
}

/// The source of the chat template in `gguf`, if it has one.
///
/// # Errors
/// If the key is there and is no string.
pub fn chat_template(gguf: &Gguf) -> Result<Option<&str>, GgufError> {
    gguf.opt_str("tokenizer.chat_template")
}

fn id(gguf: &Gguf, key: &str) -> Result<Option<u32>, GgufError> {
    let Some(id) = gguf.opt_u64(key)? else { return Ok(None) };
    let wrong = || Problem::KeyType {
        key: key.to_owned(),
        has: format!("the integer {id}"),
        want: "a token id of 32 bits",
    };
    u32::try_from(id).map(Some).map_err(|_| GgufError::new(gguf.path(), wrong()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::test_file::Builder;
    use super::*;

    fn open(builder: Builder) -> Gguf {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&builder.finish()).unwrap();
        Gguf::open(file.path()).unwrap()
    }

    fn least() -> Builder {
        Builder::new()
            .str("tokenizer.ggml.model", "gpt2")
            .str("tokenizer.ggml.pre", "smollm")
            .strings("tokenizer.ggml.tokens", &["a", "b", "ab"])
            .strings("tokenizer.ggml.merges", &["a b"])
    }

    #[test]
    fn what_a_file_leaves_out_has_a_default() {
        let gguf = open(least());
        let spec = tokenizer_spec(&gguf).unwrap();
        assert_eq!((spec.model.as_str(), spec.pre.as_str()), ("gpt2", "smollm"));
        assert_eq!((spec.tokens.len(), spec.token_types.as_slice()), (3, &[1, 1, 1][..]));
        assert_eq!((spec.eos.len(), spec.bos, spec.add_bos), (0, None, false));
        assert_eq!(chat_template(&gguf).unwrap(), None);
    }

    #[test]
    fn what_a_file_says_is_taken() {
        let types: Vec<u8> = [1_i32, 1, 3].iter().flat_map(|ty| ty.to_le_bytes()).collect();
        let gguf = open(
            least()
                .array("tokenizer.ggml.token_type", 5, 3, &types)
                .u32("tokenizer.ggml.eos_token_id", 2)
                .u32("tokenizer.ggml.bos_token_id", 1)
                .raw("tokenizer.ggml.add_bos_token", 7, &[1])
                .str("tokenizer.chat_template", "{{ 1 }}"),
        );
        let spec = tokenizer_spec(&gguf).unwrap();
        assert_eq!((spec.token_types, spec.merges), (vec![1, 1, 3], vec!["a b".to_owned()]));
        assert_eq!((spec.eos, spec.bos, spec.add_bos), (vec![2], Some(1), true));
        assert_eq!(chat_template(&gguf).unwrap(), Some("{{ 1 }}"));
    }

    #[test]
    fn an_id_beyond_32_bits_and_a_missing_key_are_named() {
        let gguf = open(least().raw("tokenizer.ggml.eos_token_id", 10, &[0xff; 8]));
        let error = tokenizer_spec(&gguf).unwrap_err().to_string();
        assert!(
            error.contains("`tokenizer.ggml.eos_token_id` is the integer 18446744073709551615"),
            "{error}"
        );
        let error = tokenizer_spec(&open(Builder::new())).unwrap_err().to_string();
        assert!(error.ends_with("the key `tokenizer.ggml.tokens` is missing"), "{error}");
    }
}

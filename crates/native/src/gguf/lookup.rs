//! Typed lookups in a file's metadata.
//!
//! `x(key)` asks for a key that must be there; `opt_x(key)` gives `None` if it is not. Both refuse a
//! value of another type: a file that means something else must not be read as something.

use super::error::Problem;
use super::{Array, Gguf, GgufError, Value};

impl Gguf {
    /// The value of `key`, whatever its type.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.header.values.get(key)
    }

    /// The non-negative integer under `key`, of any integer type.
    ///
    /// # Errors
    /// If the key is missing, or is no integer, or is negative.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        self.required(key, self.opt_u64(key)?)
    }

    /// Like [`u64`](Self::u64), `None` if the key is missing.
    ///
    /// # Errors
    /// If the key is there and is no integer, or is negative.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "a non-negative integer", Value::as_u64)
    }

    /// The float under `key`; one of 64 bits is rounded.
    ///
    /// # Errors
    /// If the key is missing or is no float.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        self.required(key, self.opt_f32(key)?)
    }

    /// Like [`f32`](Self::f32), `None` if the key is missing.
    ///
    /// # Errors
    /// If the key is there and is no float.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a float", |value| match *value {
            Value::F32(v) => Some(v),
            #[allow(clippy::cast_possible_truncation)]
            Value::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    /// The truth value under `key`.
    ///
    /// # Errors
    /// If the key is missing or is no bool.
    pub fn bool(&self, key: &str) -> Result<bool, GgufError> {
        self.required(key, self.opt_bool(key)?)
    }

    /// Like [`bool`](Self::bool), `None` if the key is missing.
    ///
    /// # Errors
    /// If the key is there and is no bool.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a bool", |value| if let Value::Bool(v) = value { Some(*v) } else { None })
    }

    /// The text under `key`.
    ///
    /// # Errors
    /// If the key is missing or is no string.
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        self.required(key, self.opt_str(key)?)
    }

    /// Like [`str`](Self::str), `None` if the key is missing.
    ///
    /// # Errors
    /// If the key is there and is no string.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(
            key,
            "a string",
            |value| if let Value::String(v) = value { Some(v.as_str()) } else { None },
        )
    }

    /// The array of texts under `key`.
    ///
    /// # Errors
    /// If the key is missing or is no array of strings.
    pub fn strings(&self, key: &str) -> Result<&[String], GgufError> {
        self.required(key, self.opt_strings(key)?)
    }

    /// Like [`strings`](Self::strings), `None` if the key is missing.
    ///
    /// # Errors
    /// If the key is there and is no array of strings.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::String(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// The array of 32-bit integers under `key`, such as `tokenizer.ggml.token_type`.
    ///
    /// # Errors
    /// If the key is missing or is no array of 32-bit signed integers.
    pub fn i32s(&self, key: &str) -> Result<&[i32], GgufError> {
        let found = self.typed(key, "an array of i32", |value| match value {
            Value::Array(Array::I32(v)) => Some(v.as_slice()),
            _ => None,
        })?;
        self.required(key, found)
    }

    /// The array of 32-bit floats under `key`, such as `tokenizer.ggml.scores`.
    ///
    /// # Errors
    /// If the key is missing or is no array of 32-bit floats.
    pub fn f32s(&self, key: &str) -> Result<&[f32], GgufError> {
        let found = self.typed(key, "an array of f32", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })?;
        self.required(key, found)
    }

    fn required<T>(&self, key: &str, found: Option<T>) -> Result<T, GgufError> {
        found.ok_or_else(|| GgufError::new(&self.path, Problem::NoKey(key.to_owned())))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        want: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let wrong = || Problem::KeyType { key: key.to_owned(), has: value.describe(), want };
        read(value).map(Some).ok_or_else(|| GgufError::new(&self.path, wrong()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::test_file::sample;
    use super::*;

    #[test]
    fn lookups_take_the_right_type_only_and_name_the_key() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&sample()).unwrap();
        let gguf = Gguf::open(file.path()).unwrap();
        let message =
            |error: GgufError| error.to_string().replacen(&format!("{}: ", file.path().display()), "", 1);

        assert_eq!(gguf.u64("llama.block_count").unwrap(), 2);
        assert_eq!(gguf.u64("test.i64").unwrap(), 7);
        assert_eq!(gguf.f32("llama.rope.freq_base").unwrap().to_bits(), 1e5_f32.to_bits());
        assert_eq!(gguf.f32("test.f64").unwrap().to_bits(), 0.5_f32.to_bits());
        assert!(gguf.bool("test.bool").unwrap());
        assert_eq!(gguf.strings("tokenizer.ggml.tokens").unwrap(), ["a", "Ġ", ""]);
        assert_eq!(gguf.i32s("tokenizer.ggml.token_type").unwrap(), [1, 1, 3]);
        assert_eq!(gguf.f32s("tokenizer.ggml.scores").unwrap(), [0.0, -1.5, -2.0]);
        assert_eq!(gguf.value("test.nested"), Some(&Value::Array(Array::Array(vec![Array::U8(vec![1, 2])]))));

        assert_eq!(message(gguf.u64("no").unwrap_err()), "the key `no` is missing");
        assert_eq!(
            message(gguf.u64("test.i8").unwrap_err()),
            "the key `test.i8` is the integer -1, not a non-negative integer"
        );
        assert_eq!(
            message(gguf.opt_str("llama.block_count").unwrap_err()),
            "the key `llama.block_count` is the integer 2, not a string"
        );
        assert_eq!(
            message(gguf.strings("tokenizer.ggml.scores").unwrap_err()),
            "the key `tokenizer.ggml.scores` is an array of f32, not an array of strings"
        );
        assert_eq!(gguf.opt_u64("no").unwrap(), None);
        assert_eq!(gguf.opt_f32("no").unwrap(), None);
        assert_eq!(gguf.opt_bool("no").unwrap(), None);
        assert_eq!(gguf.opt_str("no").unwrap(), None);
        assert_eq!(gguf.opt_strings("no").unwrap(), None);
    }
}

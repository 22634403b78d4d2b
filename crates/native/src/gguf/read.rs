//! The bounds-checked cursor that everything in a GGUF file is read with.

use super::error::Problem;
use super::value::{Array, Value};

/// Nested arrays are legal and unused; this bounds the recursion.
const NESTING_LIMIT: usize = 4;

/// A position in a file's bytes. Every read says what it is for, so that a file that ends early
/// names what is missing.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Fails unless `count` things of at least `each` bytes can still follow.
    pub(super) fn check_room(
        &self,
        count: u64,
        each: usize,
        what: &dyn Fn() -> String,
    ) -> Result<(), Problem> {
        let need = u128::from(count) * each as u128;
        if need <= (self.bytes.len() - self.at) as u128 {
            return Ok(());
        }
        Err(Problem::Truncated {
            what: what(),
            start: self.at as u128,
            end: self.at as u128 + need,
            len: self.bytes.len(),
        })
    }

    fn take(&mut self, n: u64, what: &dyn Fn() -> String) -> Result<&'a [u8], Problem> {
        self.check_room(n, 1, what)?;
        let n = usize::try_from(n).expect("no more than the bytes that are left");
        let taken = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &dyn Fn() -> String) -> Result<[u8; N], Problem> {
        let bytes = self.take(N as u64, what)?;
        Ok(bytes.try_into().expect("took exactly N bytes"))
    }

    pub(super) fn u32(&mut self, what: &dyn Fn() -> String) -> Result<u32, Problem> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &dyn Fn() -> String) -> Result<u64, Problem> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(super) fn string(&mut self, what: &dyn Fn() -> String) -> Result<&'a str, Problem> {
        let len = self.u64(what)?;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| Problem::Utf8 { what: what() })
    }

    fn bool(&mut self, what: &dyn Fn() -> String) -> Result<bool, Problem> {
        match self.array(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => Err(Problem::Bool { what: what(), byte }),
        }
    }

    /// A value of the type that the file gives by number.
    pub(super) fn value(&mut self, what: &dyn Fn() -> String) -> Result<Value, Problem> {
        let ty = self.u32(what)?;
        Ok(match ty {
            0 => Value::U8(u8::from_le_bytes(self.array(what)?)),
            1 => Value::I8(i8::from_le_bytes(self.array(what)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            4 => Value::U32(self.u32(what)?),
            5 => Value::I32(i32::from_le_bytes(self.array(what)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(what)?)),
            7 => Value::Bool(self.bool(what)?),
            8 => Value::String(self.string(what)?.to_owned()),
            9 => Value::Array(self.values(1, what)?),
            10 => Value::U64(self.u64(what)?),
            11 => Value::I64(i64::from_le_bytes(self.array(what)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(what)?)),
            _ => return Err(Problem::ValueType { what: what(), ty }),
        })
    }

    fn values(&mut self, depth: usize, what: &dyn Fn() -> String) -> Result<Array, Problem> {
        let ty = self.u32(what)?;
        let count = self.u64(what)?;
        Ok(match ty {
            0 => Array::U8(self.numbers(count, what, u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(count, what, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(count, what, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(count, what, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(count, what, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(count, what, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(count, what, f32::from_le_bytes)?),
            7 => Array::Bool(self.items(count, 1, what, |reader| reader.bool(what))?),
            8 => Array::String(self.items(count, 8, what, |reader| reader.string(what).map(str::to_owned))?),
            9 if depth == NESTING_LIMIT => {
                return Err(Problem::Nesting { what: what(), limit: NESTING_LIMIT });
            }
            9 => Array::Array(self.items(count, 12, what, |reader| reader.values(depth + 1, what))?),
            10 => Array::U64(self.numbers(count, what, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(count, what, i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(count, what, f64::from_le_bytes)?),
            _ => return Err(Problem::ValueType { what: what(), ty }),
        })
    }

    fn numbers<const N: usize, T>(
        &mut self,
        count: u64,
        what: &dyn Fn() -> String,
        convert: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Problem> {
        self.check_room(count, N, what)?;
        let bytes = self.take(count * N as u64, what)?;
        Ok(bytes.as_chunks().0.iter().copied().map(convert).collect())
    }

    /// `count` items that each take at least `each` bytes.
    fn items<T>(
        &mut self,
        count: u64,
        each: usize,
        what: &dyn Fn() -> String,
        mut read: impl FnMut(&mut Self) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        self.check_room(count, each, what)?;
        // Collecting through a `Result` grows with what was read, so a false count costs nothing.
        (0..count).map(|_| read(self)).collect()
    }
}

//! Metadata values.

/// A metadata value, as the file types it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An 8-bit unsigned integer.
    U8(u8),
    /// An 8-bit integer.
    I8(i8),
    /// A 16-bit unsigned integer.
    U16(u16),
    /// A 16-bit integer.
    I16(i16),
    /// A 32-bit unsigned integer.
    U32(u32),
    /// A 32-bit integer.
    I32(i32),
    /// A 64-bit unsigned integer.
    U64(u64),
    /// A 64-bit integer.
    I64(i64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// An array of values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// 8-bit unsigned integers.
    U8(Vec<u8>),
    /// 8-bit integers.
    I8(Vec<i8>),
    /// 16-bit unsigned integers.
    U16(Vec<u16>),
    /// 16-bit integers.
    I16(Vec<i16>),
    /// 32-bit unsigned integers.
    U32(Vec<u32>),
    /// 32-bit integers.
    I32(Vec<i32>),
    /// 64-bit unsigned integers.
    U64(Vec<u64>),
    /// 64-bit integers.
    I64(Vec<i64>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    String(Vec<String>),
    /// Arrays, of whatever types.
    Array(Vec<Array>),
}

impl Value {
    /// The value as a non-negative integer, if it is one, of whatever width.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// What the value is, for a message: its type, and itself if it is a number.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::U8(v) => format!("the integer {v}"),
            Self::I8(v) => format!("the integer {v}"),
            Self::U16(v) => format!("the integer {v}"),
            Self::I16(v) => format!("the integer {v}"),
            Self::U32(v) => format!("the integer {v}"),
            Self::I32(v) => format!("the integer {v}"),
            Self::U64(v) => format!("the integer {v}"),
            Self::I64(v) => format!("the integer {v}"),
            Self::F32(v) => format!("the float {v}"),
            Self::F64(v) => format!("the float {v}"),
            Self::Bool(v) => format!("the bool {v}"),
            Self::String(_) => "a string".into(),
            Self::Array(array) => format!("an array of {}", array.element_type()),
        }
    }
}

impl Array {
    fn element_type(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(_) => "array",
        }
    }
}

//! Tensor types, and where tensors lie.

use std::fmt;
use std::ops::Range;

/// How a tensor's values are stored: ggml's types.
///
/// `Display` gives the names that ggml's tools use, such as `Q4_1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// 32-bit floats.
    F32,
    /// IEEE 16-bit floats.
    F16,
    /// bfloat16.
    BF16,
    /// Blocks of 32: f16 scale, 4-bit values.
    Q4_0,
    /// Blocks of 32: f16 scale and minimum, 4-bit values.
    Q4_1,
    /// Blocks of 32: f16 scale, 5-bit values.
    Q5_0,
    /// Blocks of 32: f16 scale and minimum, 5-bit values.
    Q5_1,
    /// Blocks of 32: f16 scale, 8-bit values.
    Q8_0,
    /// Blocks of 256 of 2 bits.
    Q2K,
    /// Blocks of 256 of 3 bits.
    Q3K,
    /// Blocks of 256 of 4 bits.
    Q4K,
    /// Blocks of 256 of 5 bits.
    Q5K,
    /// Blocks of 256 of 6 bits.
    Q6K,
    /// Any other, by ggml's number. Such a tensor is listed but cannot be read.
    Other(u32),
}

impl TensorType {
    pub(super) const fn from_id(id: u32) -> Self {
        match id {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            10 => Self::Q2K,
            11 => Self::Q3K,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::BF16,
            other => Self::Other(other),
        }
    }

    /// Values in a block and bytes that a block takes; a plain type has blocks of one value.
    /// `None` for [`Other`](Self::Other).
    #[must_use]
    pub const fn block(self) -> Option<(usize, usize)> {
        Some(match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2K => (256, 84),
            Self::Q3K => (256, 110),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
            Self::Other(_) => return None,
        })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Other(16) => "IQ2_XXS",
            Self::Other(17) => "IQ2_XS",
            Self::Other(18) => "IQ3_XXS",
            Self::Other(19) => "IQ1_S",
            Self::Other(20) => "IQ4_NL",
            Self::Other(21) => "IQ3_S",
            Self::Other(22) => "IQ2_S",
            Self::Other(23) => "IQ4_XS",
            Self::Other(29) => "IQ1_M",
            Self::Other(39) => "MXFP4",
            Self::Other(id) => return write!(f, "ggml type {id}"),
        };
        f.write_str(name)
    }
}

/// What a file says of a tensor.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its name, unique in the file.
    pub name: String,
    /// Values along each dimension, one to four, none zero, in GGUF's order: the contiguous one
    /// (ne0, a weight's input dimension) first.
    pub shape: Vec<usize>,
    /// How its values are stored.
    pub ty: TensorType,
    /// Its bytes in the file; `None` if the type is not known.
    pub(super) range: Option<Range<usize>>,
}

/// A tensor with its data.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// As [`TensorInfo::shape`]: ne0, the contiguous input dimension, first.
    pub shape: &'a [usize],
    /// How its values are stored; never [`TensorType::Other`].
    pub ty: TensorType,
    /// Exactly the bytes that type and shape need: rows of `shape[0]` values, each whole blocks.
    /// They begin at a multiple of 8 bytes.
    pub data: &'a [u8],
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name)
            .field("shape", &self.shape)
            .field("ty", &self.ty)
            .field("bytes", &self.data.len())
            .finish()
    }
}

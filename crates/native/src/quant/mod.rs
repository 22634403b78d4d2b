//! Weights as the kernels want them: repacked at load, still quantised.
//!
//! A matrix of `outputs x inputs` becomes panels of 16 outputs, which are the lanes; a panel holds
//! its values in ascending order of the input. Outputs past the last are zero. A format is one file
//! here: how its blocks are packed, and how a run of inputs becomes f32.

mod q4_1;
mod q8_0;

use rayon::prelude::*;

use crate::gguf::{Tensor, TensorType};
use crate::kernels::{F32x16, Isa, Kernel, Simd, Store, U32x16};

/// Values in a quantised block.
const BLOCK: usize = 32;

/// A packed matrix.
#[derive(Debug)]
pub(crate) struct Packed {
    inputs: usize,
    outputs: usize,
    data: Data,
}

#[derive(Debug)]
enum Data {
    F32(Vec<F32x16>),
    Q4_1(Vec<U32x16>),
    Q8_0(Vec<U32x16>),
}

/// Why a tensor cannot be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackError {
    /// No format for this type.
    Type(TensorType),
    /// A scale that is infinite or NaN.
    Scale,
}

impl Packed {
    /// Packs a two-dimensional tensor `[inputs, outputs]`; `inputs` is a multiple of 16.
    pub(crate) fn pack(tensor: &Tensor<'_>) -> Result<Self, PackError> {
        let (inputs, outputs) = (tensor.shape[0], tensor.shape[1]);
        let row_bytes = tensor.data.len() / outputs;
        let source = Source { data: tensor.data, row_bytes };
        let data = match tensor.ty {
            TensorType::F32 => Data::F32(pack_panels(inputs, outputs, F32x16::ZERO, |lane, row, panel| {
                for (line, bytes) in panel.iter_mut().zip(source.row(row).as_chunks::<4>().0) {
                    line.0[lane] = f32::from_le_bytes(*bytes);
                }
                Ok(())
            })?),
            TensorType::Q4_1 => Data::Q4_1(pack_panels(
                q4_1::panel_lines(inputs),
                outputs,
                U32x16::ZERO,
                |lane, row, panel| q4_1::pack(source.row(row), lane, panel),
            )?),
            TensorType::Q8_0 => Data::Q8_0(pack_panels(
                q8_0::panel_lines(inputs),
                outputs,
                U32x16::ZERO,
                |lane, row, panel| q8_0::pack(source.row(row), lane, panel),
            )?),
            other => return Err(PackError::Type(other)),
        };
        Ok(Self { inputs, outputs, data })
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Panels of 16 outputs, the last one padded.
    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(16)
    }

    /// The lines of a panel, if they are f32 as they lie.
    #[inline(always)]
    pub(crate) fn plain(&self, panel: usize) -> Option<&[F32x16]> {
        match &self.data {
            Data::F32(lines) => Some(&lines[panel * self.inputs..(panel + 1) * self.inputs]),
            _ => None,
        }
    }

    /// Hands the weights of `P` panels and the inputs `from..from + n` to `to`, in ascending order
    /// of the input, the panels taking turns. `from` is a multiple of 64; so is `n`, but at the end.
    #[inline(always)]
    pub(crate) fn unpack<S: Simd, const P: usize, T: Octets<S>>(
        &self,
        s: S,
        panel: usize,
        from: usize,
        n: usize,
        to: &mut T,
    ) {
        debug_assert!(from.is_multiple_of(2 * BLOCK) && from + n <= self.inputs, "whole pairs of blocks");
        match &self.data {
            Data::F32(lines) => {
                unpack_plain::<S, P, T>(s, &lines[panel * self.inputs..], self.inputs, from, n, to)
            }
            Data::Q4_1(lines) => {
                let stride = q4_1::panel_lines(self.inputs);
                q4_1::unpack::<S, P, T>(s, &lines[panel * stride..], stride, from, n, to);
            }
            Data::Q8_0(lines) => {
                let stride = q8_0::panel_lines(self.inputs);
                q8_0::unpack::<S, P, T>(s, &lines[panel * stride..], stride, from, n, to);
            }
        }
    }

    /// The weights of one output: what an embedding looks up. `panel` is scratch.
    pub(crate) fn row<'a>(
        &self,
        isa: Isa,
        output: usize,
        panel: &'a mut Vec<F32x16>,
    ) -> impl Iterator<Item = f32> + use<'a> {
        panel.resize(self.inputs, F32x16::ZERO);
        isa.run(Unpack { weights: self, panel: output / 16, out: panel });
        panel.iter().map(move |line| line.0[output % 16])
    }
}

/// What is done with weights as they are unpacked.
pub(crate) trait Octets<S: Simd> {
    /// Takes the weights of 8 consecutive inputs of the `panel`-th panel asked for; `octet` counts
    /// eights from the first input asked for.
    fn take(&mut self, s: S, panel: usize, octet: usize, weights: impl Weights<S>);
}

/// The weights of an octet, unpacked one by one as they are asked for, so that few registers hold
/// them.
pub(crate) trait Weights<S: Simd> {
    /// The next of the eight.
    fn next(&mut self, s: S) -> S::F;
}

/// Asks for the lines that the next panels' turn will need.
#[inline(always)]
fn prefetch<S: Simd, T>(s: S, lines: &[T], at: usize, n: usize) {
    if let Some(lines) = lines.get(at..at + n) {
        for line in lines {
            s.prefetch(line);
        }
    }
}

/// [`Packed::unpack`] of f32; panels are `stride` lines apart.
#[inline(always)]
fn unpack_plain<S: Simd, const P: usize, T: Octets<S>>(
    s: S,
    lines: &[F32x16],
    stride: usize,
    from: usize,
    n: usize,
    to: &mut T,
) {
    for octet in 0..n / 8 {
        for p in 0..P {
            let at = p * stride + from + octet * 8;
            prefetch(s, lines, at + P * stride, 8);
            to.take(s, p, octet, Plain(&lines[at..at + 8]));
        }
    }
}

struct Plain<'a>(&'a [F32x16]);

impl<S: Simd> Weights<S> for Plain<'_> {
    #[inline(always)]
    fn next(&mut self, s: S) -> S::F {
        let (line, rest) = self.0.split_first().expect("eight weights");
        self.0 = rest;
        s.load(line)
    }
}

/// A whole panel as f32.
struct Unpack<'a> {
    weights: &'a Packed,
    panel: usize,
    out: &'a mut [F32x16],
}

impl Kernel for Unpack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.weights.unpack::<S, 1, _>(s, self.panel, 0, self.out.len(), &mut Store(self.out));
    }
}

/// The rows of a tensor's data, one for each output.
#[derive(Clone, Copy)]
struct Source<'a> {
    data: &'a [u8],
    row_bytes: usize,
}

impl<'a> Source<'a> {
    fn row(self, output: usize) -> &'a [u8] {
        &self.data[output * self.row_bytes..(output + 1) * self.row_bytes]
    }
}

/// Fills panels of `lines` lines in parallel; `pack(lane, output, panel)` writes one output's lane.
fn pack_panels<T: Copy + Send + Sync>(
    lines: usize,
    outputs: usize,
    zero: T,
    pack: impl Fn(usize, usize, &mut [T]) -> Result<(), PackError> + Sync,
) -> Result<Vec<T>, PackError> {
    let mut data = vec![zero; lines * outputs.div_ceil(16)];
    data.par_chunks_mut(lines).enumerate().try_for_each(|(index, panel)| {
        for lane in 0..16.min(outputs - index * 16) {
            pack(lane, index * 16 + lane, panel)?;
        }
        Ok(())
    })?;
    Ok(data)
}

/// The f16 at the start of `bytes`, as bits; an infinity or NaN is an error.
fn scale(bytes: [u8; 2]) -> Result<u32, PackError> {
    let half = u16::from_le_bytes(bytes);
    if half & 0x7c00 == 0x7c00 { Err(PackError::Scale) } else { Ok(u32::from(half)) }
}

/// The finite f16 in the low half of every word, as f32. The high halves are ignored.
#[inline(always)]
fn half_to_f32<S: Simd>(s: S, words: S::U) -> S::F {
    // Exponent and mantissa move to their places in an f32, whose exponent is then 112 too small;
    // the product with 2^112 is exact, for subnormal halves too.
    let magnitude = s.float(s.shl::<13>(s.and(words, s.splat_u(0x7fff))));
    let magnitude = s.mul(magnitude, s.splat(f32::from_bits((127 + 112) << 23)));
    let sign = s.shl::<16>(s.and(words, s.splat_u(0x8000)));
    s.float(s.or(s.bits(magnitude), sign))
}

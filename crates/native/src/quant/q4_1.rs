//! Q4_1: blocks of 32 values `q * d + m`, q in 0 ..= 15, d and m in f16.
//!
//! A packed block is 5 lines. Line 0: d in the low half of each lane's word, m in the high half.
//! Lines 1 to 4: the q of 8 consecutive inputs each, the first in the lowest four bits.

use crate::kernels::{Simd, U32x16};

use super::{BLOCK, Octets, PackError, Weights, half_to_f32, prefetch, scale};

const BLOCK_LINES: usize = 5;
const BLOCK_BYTES: usize = 20;

/// Lines of a panel.
pub(super) const fn panel_lines(inputs: usize) -> usize {
    inputs / BLOCK * BLOCK_LINES
}

/// Writes the blocks of one output into its lane of a zeroed panel.
pub(super) fn pack(row: &[u8], lane: usize, panel: &mut [U32x16]) -> Result<(), PackError> {
    for (block, lines) in row.as_chunks::<BLOCK_BYTES>().0.iter().zip(panel.chunks_exact_mut(BLOCK_LINES)) {
        let (d, m) = (scale([block[0], block[1]])?, scale([block[2], block[3]])?);
        lines[0].0[lane] = d | m << 16;
        // A byte of the file holds values i (low) and i + 16 (high).
        for (i, byte) in block[4..].iter().enumerate() {
            let (low, high) = (u32::from(byte & 15), u32::from(byte >> 4));
            lines[1 + i / 8].0[lane] |= low << (i % 8 * 4);
            lines[3 + i / 8].0[lane] |= high << (i % 8 * 4);
        }
    }
    Ok(())
}

/// [`Packed::unpack`](super::Packed::unpack) of this format; panels are `stride` lines apart.
#[inline(always)]
pub(super) fn unpack<S: Simd, const P: usize, T: Octets<S>>(
    s: S,
    lines: &[U32x16],
    stride: usize,
    from: usize,
    n: usize,
    to: &mut T,
) {
    for block in 0..n / BLOCK {
        let at = (from / BLOCK + block) * BLOCK_LINES;
        let mut scales = [(s.splat(0.0), s.splat(0.0)); P];
        for (p, scale) in scales.iter_mut().enumerate() {
            prefetch(s, lines, (P + p) * stride + at, BLOCK_LINES);
            let words = s.load_u(&lines[p * stride + at]);
            *scale = (half_to_f32(s, words), half_to_f32(s, s.shr::<16>(words)));
        }
        for i in 0..4 {
            for (p, &(d, m)) in scales.iter().enumerate() {
                let q = s.load_u(&lines[p * stride + at + 1 + i]);
                to.take(s, p, block * 4 + i, Nibbles::<S> { q, d, m });
            }
        }
    }
}

/// Eight weights, the next one's q in the lowest four bits.
struct Nibbles<S: Simd> {
    q: S::U,
    d: S::F,
    m: S::F,
}

impl<S: Simd> Weights<S> for Nibbles<S> {
    #[inline(always)]
    fn next(&mut self, s: S) -> S::F {
        let q = s.to_f32(s.and(self.q, s.splat_u(15)));
        self.q = s.shr::<4>(self.q);
        s.fma(q, self.d, self.m)
    }
}

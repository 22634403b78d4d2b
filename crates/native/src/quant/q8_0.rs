//! Q8_0: blocks of 32 values `q * d`, q in -128 ..= 127, d in f16.
//!
//! Two packed blocks are 17 lines. Line 0: the first block's d in the low half of each lane's word,
//! the second's in the high half. Then 8 lines for each: the q of 4 consecutive inputs a line, the
//! first in the lowest byte. An odd last block leaves its partner's lines zero.

use crate::kernels::{Simd, U32x16};

use super::{BLOCK, Octets, PackError, Weights, half_to_f32, prefetch, scale};

const PAIR_LINES: usize = 17;
const BLOCK_BYTES: usize = 34;

/// Lines of a panel.
pub(super) const fn panel_lines(inputs: usize) -> usize {
    inputs.div_ceil(2 * BLOCK) * PAIR_LINES
}

/// Writes the blocks of one output into its lane of a zeroed panel.
pub(super) fn pack(row: &[u8], lane: usize, panel: &mut [U32x16]) -> Result<(), PackError> {
    for (index, block) in row.as_chunks::<BLOCK_BYTES>().0.iter().enumerate() {
        let lines = &mut panel[index / 2 * PAIR_LINES..][..PAIR_LINES];
        lines[0].0[lane] |= scale([block[0], block[1]])? << (index % 2 * 16);
        let quants = &mut lines[1 + index % 2 * 8..][..8];
        for (line, bytes) in quants.iter_mut().zip(block[2..].as_chunks::<4>().0) {
            line.0[lane] = u32::from_le_bytes(*bytes);
        }
    }
    Ok(())
}

/// [`Packed::unpack`](super::Packed::unpack) of this format; panels are `stride` lines apart and
/// `from` is a multiple of 64.
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
        let at = (from / (2 * BLOCK) + block / 2) * PAIR_LINES;
        let mut scales = [s.splat(0.0); P];
        for (p, scale) in scales.iter_mut().enumerate() {
            prefetch(s, lines, (P + p) * stride + at + block % 2 * 9, 9 - block % 2);
            let words = s.load_u(&lines[p * stride + at]);
            *scale = half_to_f32(s, if block % 2 == 0 { words } else { s.shr::<16>(words) });
        }
        for i in 0..4 {
            for (p, &d) in scales.iter().enumerate() {
                let at = p * stride + at + 1 + block % 2 * 8 + 2 * i;
                let (q, then) = (s.load_u(&lines[at]), s.load_u(&lines[at + 1]));
                to.take(s, p, block * 4 + i, Bytes::<S> { q, then, d, taken: 0 });
            }
        }
    }
}

/// Eight weights, the next one's q in the lowest byte of `q`, the last four in `then`.
struct Bytes<S: Simd> {
    q: S::U,
    then: S::U,
    d: S::F,
    taken: usize,
}

impl<S: Simd> Weights<S> for Bytes<S> {
    #[inline(always)]
    fn next(&mut self, s: S) -> S::F {
        if self.taken == 4 {
            self.q = self.then;
        }
        self.taken += 1;
        let q = s.to_f32(s.sar::<24>(s.shl::<24>(self.q)));
        self.q = s.shr::<8>(self.q);
        s.mul(q, self.d)
    }
}

//! Q8_0: blocks of 32 values `q * d`, q in -128 ..= 127, d in f16.
//!
//! Two packed blocks are 17 lines. Line 0: the first block's d in the low half of each lane's word,
//! the second's in the high half. Then 8 lines for each: the q of 4 consecutive inputs a line, the
//! first in the lowest byte. An odd last block leaves its partner's lines zero.

use crate::kernels::{F32x16, Simd, U32x16};

use super::{BLOCK, PackError, half_to_f32, scale};

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

/// The weights of the inputs from `from` on, a multiple of 64.
#[inline(always)]
pub(super) fn dequantise<S: Simd>(s: S, panel: &[U32x16], from: usize, out: &mut [F32x16]) {
    let pairs = panel[from / (2 * BLOCK) * PAIR_LINES..].as_chunks::<PAIR_LINES>().0;
    for (pair, out) in pairs.iter().zip(out.chunks_mut(2 * BLOCK)) {
        let scales = s.load_u(&pair[0]);
        let mut d = half_to_f32(s, scales);
        for (half, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let (quads, _) = out.as_chunks_mut::<4>();
            for i in 0..8 {
                let q = s.load_u(&pair[1 + half * 8 + i]);
                let out = &mut quads[i];
                s.store(s.mul(s.to_f32(s.sar::<24>(s.shl::<24>(q))), d), &mut out[0]);
                s.store(s.mul(s.to_f32(s.sar::<24>(s.shl::<16>(q))), d), &mut out[1]);
                s.store(s.mul(s.to_f32(s.sar::<24>(s.shl::<8>(q))), d), &mut out[2]);
                s.store(s.mul(s.to_f32(s.sar::<24>(q)), d), &mut out[3]);
            }
            d = half_to_f32(s, s.shr::<16>(scales));
        }
    }
}

//! Q4_1: blocks of 32 values `q * d + m`, q in 0 ..= 15, d and m in f16.
//!
//! A packed block is 5 lines. Line 0: d in the low half of each lane's word, m in the high half.
//! Lines 1 to 4: the q of 8 consecutive inputs each, the first in the lowest four bits.

use crate::kernels::{F32x16, Simd, U32x16};

use super::{BLOCK, PackError, half_to_f32, scale};

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

/// The weights of the inputs from `from` on, a multiple of 32.
#[inline(always)]
pub(super) fn dequantise<S: Simd>(s: S, panel: &[U32x16], from: usize, out: &mut [F32x16]) {
    let blocks = panel[from / BLOCK * BLOCK_LINES..].as_chunks::<BLOCK_LINES>().0;
    for (block, out) in blocks.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let scales = s.load_u(&block[0]);
        let (d, m) = (half_to_f32(s, scales), half_to_f32(s, s.shr::<16>(scales)));
        let (octets, _) = out.as_chunks_mut::<8>();
        for i in 0..4 {
            let q = s.load_u(&block[1 + i]);
            let out = &mut octets[i];
            let mask = s.splat_u(15);
            s.store(s.fma(s.to_f32(s.and(q, mask)), d, m), &mut out[0]);
            s.store(s.fma(s.to_f32(s.and(s.shr::<4>(q), mask)), d, m), &mut out[1]);
            s.store(s.fma(s.to_f32(s.and(s.shr::<8>(q), mask)), d, m), &mut out[2]);
            s.store(s.fma(s.to_f32(s.and(s.shr::<12>(q), mask)), d, m), &mut out[3]);
            s.store(s.fma(s.to_f32(s.and(s.shr::<16>(q), mask)), d, m), &mut out[4]);
            s.store(s.fma(s.to_f32(s.and(s.shr::<20>(q), mask)), d, m), &mut out[5]);
            s.store(s.fma(s.to_f32(s.and(s.shr::<24>(q), mask)), d, m), &mut out[6]);
            s.store(s.fma(s.to_f32(s.shr::<28>(q)), d, m), &mut out[7]);
        }
    }
}

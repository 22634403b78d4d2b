//! One look at a row: is it sound, where are its large logits.

use crate::normalizer::{RowError, is_non_finite};
use crate::simd::{self, Kernel};
use crate::visits;

/// Ids a block.
pub(super) const BLOCK: usize = 64;
const LANES: usize = 16;

/// The largest logit of a row and of each block of it, so that what looks for large logits can pass
/// over the rest.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) max: f32,
    pub(super) blocks: Vec<f32>,
}

impl Scan {
    /// Reads `logits`, in place of what was read before.
    ///
    /// # Errors
    /// As [`Normalizer::of`](crate::Normalizer::of).
    pub(crate) fn read(&mut self, logits: &[f32]) -> Result<(), RowError> {
        self.blocks.clear();
        self.blocks.resize(logits.len().div_ceil(BLOCK), f32::NEG_INFINITY);
        let (max, non_finite) = simd::run(Maxima { logits, blocks: &mut self.blocks });
        if non_finite {
            let id = logits.iter().position(|&l| is_non_finite(l)).expect("the scan met one");
            return Err(RowError::NonFinite { id: id as u32 });
        }
        if max == f32::NEG_INFINITY {
            return Err(RowError::EmptySupport);
        }
        self.max = max;
        Ok(())
    }

    /// The lowest id of the largest logit.
    pub(crate) fn argmax(&self, logits: &[f32]) -> u32 {
        let block = self.blocks.iter().position(|&max| max == self.max).expect("some block has the maximum");
        let start = block * BLOCK;
        let i = logits[start..].iter().position(|&l| l == self.max).expect("this block has the maximum");
        (start + i) as u32
    }
}

struct Maxima<'a> {
    logits: &'a [f32],
    blocks: &'a mut [f32],
}

impl Kernel for Maxima<'_> {
    type Output = (f32, bool);

    #[inline(always)]
    fn run(self) -> (f32, bool) {
        visits::looks(self.logits.len());
        let mut max = f32::NEG_INFINITY;
        let mut bad = [0_u32; LANES];
        for (block, logits) in self.blocks.iter_mut().zip(self.logits.chunks(BLOCK)) {
            let mut lanes = [f32::NEG_INFINITY; LANES];
            let (chunks, rest) = logits.as_chunks::<LANES>();
            for chunk in chunks {
                for lane in 0..LANES {
                    let l = chunk[lane];
                    bad[lane] |= u32::from(is_non_finite(l));
                    lanes[lane] = larger(l, lanes[lane]);
                }
            }
            for (lane, &l) in rest.iter().enumerate() {
                bad[lane] |= u32::from(is_non_finite(l));
                lanes[lane] = larger(l, lanes[lane]);
            }
            let mut width = LANES;
            while width > 1 {
                width /= 2;
                for lane in 0..width {
                    lanes[lane] = larger(lanes[lane + width], lanes[lane]);
                }
            }
            *block = lanes[0];
            max = larger(lanes[0], max);
        }
        (max, bad.iter().any(|&bad| bad != 0))
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

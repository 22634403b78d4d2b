//! The weights of a row of logits, written out block by block as they are read.

use super::row::RowDraw;
use crate::blocks::{BLOCK, Block, Positions, Scratch, Source};
use crate::normalizer::Normalizer;
use crate::token::TokenId;

/// A row's weights: those of its [`Normalizer`], with the end-of-sequence set folded into its lowest id,
/// and what the mask forbids at `-inf`.
pub(super) struct Written<'a> {
    row: &'a RowDraw<'a>,
    normalizer: Normalizer,
    /// The weight of the end-of-sequence set.
    end: f64,
}

impl<'a> Written<'a> {
    pub(super) fn of(row: &'a RowDraw<'a>, normalizer: Normalizer) -> Self {
        Self { row, normalizer, end: normalizer.eos(row.logits, row.eos) }
    }

    /// The weight at a position, be it allowed or not.
    pub(super) fn weight(&self, position: u32) -> f64 {
        if self.row.eos.lowest() == Some(position) {
            self.end
        } else if self.row.eos.contains(position) {
            f64::NEG_INFINITY
        } else {
            self.normalizer.logw(self.row.logits[position as usize])
        }
    }

    /// What stands at a position.
    pub(super) fn token(&self, position: u32) -> TokenId {
        if self.row.eos.lowest() == Some(position) { TokenId::EOS } else { TokenId(position) }
    }
}

impl Source for Written<'_> {
    #[inline(always)]
    fn next<'s>(&'s self, cursor: &mut usize, scratch: &'s mut Scratch<f64>) -> Option<Block<'s>> {
        let RowDraw { logits, eos, mask, .. } = *self.row;
        let first = *cursor;
        let logits = &logits[first..(first + BLOCK).min(logits.len())];
        let out = &mut scratch[..logits.len()];
        *cursor = first + logits.len();
        for (out, &l) in out.iter_mut().zip(logits) {
            *out = self.normalizer.logw(l);
        }
        for &id in eos.ids() {
            if let Some(out) = (id as usize).checked_sub(first).and_then(|i| out.get_mut(i)) {
                *out = self.weight(id);
            }
        }
        if let Some(mask) = mask {
            for (id, out) in (first..).zip(&mut *out) {
                *out = if mask.contains(id) { *out } else { f64::NEG_INFINITY };
            }
        }
        (!out.is_empty()).then_some(Block {
            positions: Positions::Run(first as u32),
            log_weights: out,
            first,
        })
    }
}

//! One row of next-token log-weights, in the cheapest true form.
//!
//! Entries are addressed by *position*: a token's id; the end of sequence sits at
//! [`Vocabulary::eos_position`](lockstep_engine::vocab::Vocabulary::eos_position). All forms of a
//! row give equal numbers, bit for bit, in every sum and draw. A model's row, whole or under a mask,
//! knows its total better than a sum of its rounded weights would tell it: that is the one which an
//! engine's draw returns.

use std::borrow::Cow;
use std::sync::Arc;

use lockstep_engine::row::LogitRow;
use lockstep_sample::{Bitset, DrawKey, DrawMethod, Drawn, TokenId, Weights, draw, log_total};

use super::RowResult;
use crate::error::{ControlError, ErrorKind};

/// A row of log-weights (nats) over a vocabulary's positions. Absent entries are `-inf`.
#[derive(Clone, Debug)]
pub struct Row(Form);

#[derive(Clone, Debug)]
enum Form {
    /// A model's row, still where the forward put it.
    Logits(LogitRow),
    /// A model's row under a mask over its positions.
    Masked(LogitRow, Arc<Bitset>),
    Dense(Arc<[f64]>),
    /// Ascending positions and their log-weights.
    Sparse(Arc<[u32]>, Arc<[f64]>),
    /// 0 where the bit is set.
    Bits(Arc<Bitset>),
}

impl Row {
    /// A row without live entries.
    #[must_use]
    pub fn dead() -> Self {
        Self(Form::Sparse(Arc::new([]), Arc::new([])))
    }

    /// A model's row.
    #[must_use]
    pub fn logits(row: LogitRow) -> Self {
        Self(Form::Logits(row))
    }

    /// One log-weight for each position.
    #[must_use]
    pub fn dense(log_weights: impl Into<Arc<[f64]>>) -> Self {
        Self(Form::Dense(log_weights.into()))
    }

    /// The listed positions, ascending; all others are `-inf`.
    #[must_use]
    pub fn sparse(positions: impl Into<Arc<[u32]>>, log_weights: impl Into<Arc<[f64]>>) -> Self {
        Self(Form::Sparse(positions.into(), log_weights.into()))
    }

    /// Weight 1 at each set bit, 0 elsewhere.
    #[must_use]
    pub fn bits(allowed: Arc<Bitset>) -> Self {
        Self(Form::Bits(allowed))
    }

    /// The log-weight at `position`.
    #[must_use]
    pub fn at(&self, position: usize) -> f64 {
        match &self.0 {
            Form::Logits(row) => row.logw_at(position),
            Form::Masked(row, allowed) if allowed.contains(position) => row.logw_at(position),
            Form::Masked(..) => f64::NEG_INFINITY,
            Form::Dense(weights) => weights.get(position).copied().unwrap_or(f64::NEG_INFINITY),
            Form::Sparse(positions, weights) => u32::try_from(position)
                .ok()
                .and_then(|position| positions.binary_search(&position).ok())
                .map_or(f64::NEG_INFINITY, |i| weights[i]),
            Form::Bits(allowed) => {
                if position < allowed.len() && allowed.contains(position) {
                    0.0
                } else {
                    f64::NEG_INFINITY
                }
            }
        }
    }

    /// One past the last position that may be live.
    pub(crate) fn reach(&self) -> usize {
        match &self.0 {
            Form::Logits(row) | Form::Masked(row, _) => row.vocab().row_len(),
            Form::Dense(weights) => weights.len(),
            Form::Sparse(positions, _) => positions.last().map_or(0, |last| *last as usize + 1),
            Form::Bits(allowed) => allowed.iter().last().map_or(0, |last| last + 1),
        }
    }

    /// Whether it is a row over `row_len` positions.
    ///
    /// # Errors
    /// If it is dense and of another length, or lists a position that there is not.
    pub(crate) fn check_len(&self, row_len: usize) -> RowResult<()> {
        let (fits, has) = match &self.0 {
            Form::Logits(row) | Form::Masked(row, _) => {
                (row.vocab().row_len() == row_len, row.vocab().row_len())
            }
            Form::Dense(weights) => (weights.len() == row_len, weights.len()),
            Form::Sparse(..) | Form::Bits(_) => (self.reach() <= row_len, self.reach()),
        };
        if fits {
            return Ok(());
        }
        let message = format!("a row of next-token weights has {has} positions, its vocabulary {row_len}");
        Err(ControlError::new(ErrorKind::Contract, message))
    }

    /// The entrywise product of two rows of one vocabulary: log-weights add, `-inf` wins.
    ///
    /// Only entries that the sparser row lists are read of the other.
    #[must_use]
    pub fn product(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (Form::Bits(a), Form::Bits(b)) => Self::bits(both(a, b)),
            (Form::Logits(row), Form::Bits(allowed)) | (Form::Bits(allowed), Form::Logits(row)) => {
                Self(Form::Masked(row.clone(), Arc::clone(allowed)))
            }
            (Form::Masked(row, a), Form::Bits(b)) | (Form::Bits(b), Form::Masked(row, a)) => {
                Self(Form::Masked(row.clone(), both(a, b)))
            }
            (Form::Sparse(positions, weights), _) => other.restrict(positions, Some(weights)),
            (_, Form::Sparse(positions, weights)) => self.restrict(positions, Some(weights)),
            (Form::Masked(row, allowed), _) => written(row, allowed).product(other),
            (_, Form::Masked(row, allowed)) => self.product(&written(row, allowed)),
            (Form::Bits(allowed), _) => other.restrict(&listed(allowed), None),
            (_, Form::Bits(allowed)) => self.restrict(&listed(allowed), None),
            _ => {
                let (mut sum, other) = (self.to_dense(), other.to_dense());
                for (w, v) in sum.iter_mut().zip(other.iter()) {
                    *w = add(*w, *v);
                }
                Self::dense(sum)
            }
        }
    }

    /// The live ones of `positions`, times `factors` if there are any.
    fn restrict(&self, positions: &[u32], factors: Option<&[f64]>) -> Self {
        let (mut kept, mut weights) =
            (Vec::with_capacity(positions.len()), Vec::with_capacity(positions.len()));
        for (i, &position) in positions.iter().enumerate() {
            let own = self.at(position as usize);
            let weight = factors.map_or(own, |factors| add(own, factors[i]));
            if weight > f64::NEG_INFINITY {
                kept.push(position);
                weights.push(weight);
            }
        }
        Self::sparse(kept, weights)
    }

    /// The row as one log-weight for each position. Sparse rows and bit sets end with their last
    /// live position or bit.
    #[must_use]
    pub fn to_dense(&self) -> Vec<f64> {
        match &self.0 {
            Form::Logits(row) => {
                let mut out = vec![0.0; row.vocab().row_len()];
                row.fill(&mut out);
                out
            }
            Form::Masked(row, allowed) => written(row, allowed).to_dense(),
            Form::Dense(weights) => weights.to_vec(),
            Form::Sparse(positions, weights) => {
                let len = positions.last().map_or(0, |last| *last as usize + 1);
                let mut out = vec![f64::NEG_INFINITY; len];
                for (position, weight) in positions.iter().zip(weights.iter()) {
                    out[*position as usize] = *weight;
                }
                out
            }
            Form::Bits(allowed) => {
                let mut out = vec![f64::NEG_INFINITY; allowed.len()];
                for position in allowed.iter() {
                    out[position] = 0.0;
                }
                out
            }
        }
    }

    /// The row's entries for sums, draws and orders.
    #[must_use]
    pub fn entries(&self) -> Entries<'_> {
        match &self.0 {
            Form::Logits(_) => Entries { positions: None, log_weights: Cow::Owned(self.to_dense()) },
            Form::Masked(row, allowed) => {
                let (positions, log_weights) = live(row, allowed);
                Entries { positions: Some(Cow::Owned(positions)), log_weights: Cow::Owned(log_weights) }
            }
            Form::Dense(weights) => Entries { positions: None, log_weights: Cow::Borrowed(weights) },
            Form::Sparse(positions, weights) => {
                Entries { positions: Some(Cow::Borrowed(positions)), log_weights: Cow::Borrowed(weights) }
            }
            Form::Bits(allowed) => {
                let positions = listed(allowed);
                let log_weights = Cow::Owned(vec![0.0; positions.len()]);
                Entries { positions: Some(Cow::Owned(positions)), log_weights }
            }
        }
    }

    /// The logarithm of the row's sum; of a model's row, which is normalised, exactly 0.
    #[must_use]
    pub fn log_total(&self) -> f64 {
        self.known_total().unwrap_or_else(|| log_total(self.entries().weights()))
    }

    /// The total of a model's row, as an engine's draw returns it.
    fn known_total(&self) -> Option<f64> {
        match &self.0 {
            Form::Logits(_) => Some(0.0),
            Form::Masked(row, allowed) => Some(row.log_mass(allowed)),
            _ => None,
        }
    }

    /// A position drawn in proportion to the row's weights, restricted to `mask`. `eos_position`
    /// tells which position is the end. `None` if nothing is live.
    #[must_use]
    pub fn draw(
        &self,
        eos_position: usize,
        mask: Option<&Arc<Bitset>>,
        method: DrawMethod,
        key: &DrawKey,
    ) -> Option<Drawn> {
        let masked = mask.map(|mask| self.product(&Self::bits(Arc::clone(mask))));
        let row = masked.as_ref().unwrap_or(self);
        let entries = row.entries();
        let pick = draw(entries.weights(), method, key)?;
        let position = entries.position(pick.index);
        let token =
            if position == eos_position { TokenId::EOS } else { TokenId(u32::try_from(position).ok()?) };
        let log_mass = row.known_total().unwrap_or(pick.log_total);
        Some(Drawn { token, log_mass, logp: entries.log_weights[pick.index] - log_mass })
    }
}

/// A row's entries, borrowed where the row has them in that form.
#[derive(Debug)]
pub struct Entries<'a> {
    positions: Option<Cow<'a, [u32]>>,
    log_weights: Cow<'a, [f64]>,
}

impl Entries<'_> {
    /// The entries as the draw kernels take them.
    #[must_use]
    pub fn weights(&self) -> Weights<'_> {
        match &self.positions {
            Some(positions) => Weights::listed(positions, &self.log_weights),
            None => Weights::dense(&self.log_weights),
        }
    }

    /// The log-weights, `-inf` ones included.
    #[must_use]
    pub fn log_weights(&self) -> &[f64] {
        &self.log_weights
    }

    /// The position of entry `index`.
    #[must_use]
    pub fn position(&self, index: usize) -> usize {
        self.positions.as_ref().map_or(index, |positions| positions[index] as usize)
    }
}

/// Addition of log-weights: `-inf` plus anything is `-inf`.
pub(crate) fn add(a: f64, b: f64) -> f64 {
    if a == f64::NEG_INFINITY || b == f64::NEG_INFINITY { f64::NEG_INFINITY } else { a + b }
}

fn both(a: &Bitset, b: &Bitset) -> Arc<Bitset> {
    let mut both = a.clone();
    both.intersect(b);
    Arc::new(both)
}

/// The live positions of a model's row under a mask, and their log-weights.
fn live(row: &LogitRow, allowed: &Bitset) -> (Vec<u32>, Vec<f64>) {
    let entries = listed(allowed).into_iter().map(|position| (position, row.logw_at(position as usize)));
    entries.filter(|(_, weight)| *weight > f64::NEG_INFINITY).unzip()
}

/// A model's row under a mask, written out.
fn written(row: &LogitRow, allowed: &Bitset) -> Row {
    let (positions, weights) = live(row, allowed);
    Row::sparse(positions, weights)
}

fn listed(allowed: &Bitset) -> Vec<u32> {
    allowed.iter().filter_map(|position| u32::try_from(position).ok()).collect()
}

#[cfg(test)]
mod tests {
    use lockstep_sample::ProblemKey;
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 6;

    /// The row of these weights in every form that can say it.
    fn forms(weights: &[f64]) -> Vec<Row> {
        let live = || (0..weights.len()).filter(|at| weights[*at] > f64::NEG_INFINITY);
        let positions: Vec<u32> = live().map(|at| at as u32).collect();
        let listed: Vec<f64> = live().map(|at| weights[at]).collect();
        let mut forms = vec![Row::dense(weights.to_vec())];
        if listed.iter().all(|weight| *weight == 0.0) {
            forms.push(Row::bits(Arc::new(Bitset::from_ids(LEN, positions.iter().copied()))));
        }
        forms.push(Row::sparse(positions, listed));
        forms
    }

    fn bits(row: &Row) -> Vec<u64> {
        (0..LEN).map(|position| row.at(position).to_bits()).collect()
    }

    fn weights() -> impl Strategy<Value = Vec<f64>> {
        let binary = prop::sample::select(vec![0.0, f64::NEG_INFINITY]);
        let any = prop_oneof![Just(f64::NEG_INFINITY), -9.0..3.0_f64];
        prop_oneof![prop::collection::vec(binary, LEN), prop::collection::vec(any, LEN)]
    }

    proptest! {
        #[test]
        fn all_forms_of_a_row_give_equal_numbers(
            a in weights(), b in weights(), mask in prop::collection::vec(0..LEN as u32, 0..LEN),
        ) {
            let product: Vec<f64> = a.iter().zip(&b).map(|(a, b)| add(*a, *b)).collect();
            let mask = Arc::new(Bitset::from_ids(LEN, mask));
            let draw = |row: &Row, mask, particle| {
                let key = DrawKey::new(ProblemKey::new(0, 0), particle, 0, 0);
                row.draw(LEN - 1, mask, DrawMethod::default(), &key)
            };
            let (first, second) = (forms(&a), forms(&b));
            for row in &first {
                prop_assert_eq!(bits(row), bits(&first[0]));
                prop_assert_eq!(bits(&Row::dense(row.to_dense())), bits(&first[0]));
                prop_assert_eq!(row.log_total().to_bits(), first[0].log_total().to_bits());
                for particle in 0..4 {
                    prop_assert_eq!(draw(row, None, particle), draw(&first[0], None, particle));
                    prop_assert_eq!(draw(row, Some(&mask), particle), draw(&first[0], Some(&mask), particle));
                }
                for other in &second {
                    prop_assert_eq!(bits(&row.product(other)), bits(&Row::dense(product.clone())));
                }
            }
        }
    }
}

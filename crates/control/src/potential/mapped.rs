//! A potential read through another vocabulary that has some of the same tokens.
//!
//! Only ids are translated. A token that the inner vocabulary lacks becomes an id that is no member
//! there, which every cursor treats as the contract says: its weight is `-inf`, and it kills a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, Drawn, TokenId};

use super::spelling::stranger;
use super::{
    Answer, Claims, Cursor, Demands, Draws, Potential, Row, RowResult, Run, Status, Ticket, Want, entrywise,
};
use crate::error::ControlError;

/// Which token of an outer vocabulary is which of an inner one. Tokens with equal bytes match in
/// order, each once; special tokens match special ones of the same text. The end is the end.
pub(super) struct Mapping {
    outer: Arc<Vocabulary>,
    /// For each outer id its inner one, or one that is no member.
    inner_ids: Vec<TokenId>,
    /// For each inner position its outer one.
    positions: Vec<Option<u32>>,
    /// The outer ids that both have.
    common: Arc<Bitset>,
    /// How many tokens the outer and the inner vocabulary have.
    sizes: [usize; 2],
    /// The inner positions of the common tokens and the end.
    inner_common: Arc<Bitset>,
    inner_end: usize,
    /// An id that is no member of the inner vocabulary.
    stranger: TokenId,
}

impl Mapping {
    pub(super) fn new(outer: Arc<Vocabulary>, inner: &Vocabulary) -> Self {
        let mut by_text: BTreeMap<(bool, &[u8]), Vec<TokenId>> = BTreeMap::new();
        // From behind, so that the lowest of equal ones is taken first.
        for id in members(inner).rev() {
            by_text.entry((inner.is_special(id), inner.text_of(id))).or_default().push(id);
        }
        let stranger = stranger(inner);
        let mut inner_ids = vec![stranger; outer.len()];
        let mut positions = vec![None; inner.row_len()];
        let (mut common, mut inner_common) = (Bitset::new(outer.row_len()), Bitset::new(inner.row_len()));
        for id in members(&outer) {
            let alike = by_text.get_mut(&(outer.is_special(id), outer.text_of(id)));
            if let Some(other) = alike.and_then(Vec::pop) {
                inner_ids[id.index()] = other;
                positions[other.index()] = Some(id.0);
                common.insert(id.index());
                inner_common.insert(other.index());
            }
        }
        let inner_end = inner.eos_position();
        positions[inner_end] = u32::try_from(outer.eos_position()).ok();
        inner_common.insert(inner_end);
        Self {
            sizes: [members(&outer).count(), members(inner).count()],
            common: Arc::new(common),
            inner_common: Arc::new(inner_common),
            outer,
            inner_ids,
            positions,
            inner_end,
            stranger,
        }
    }

    /// The outer ids that both vocabularies have.
    pub(super) fn common(&self) -> &Arc<Bitset> {
        &self.common
    }

    /// How many tokens the outer and the inner vocabulary have.
    pub(super) fn sizes(&self) -> [usize; 2] {
        self.sizes
    }

    fn inward(&self, token: TokenId) -> TokenId {
        if token.is_eos() {
            return token;
        }
        self.inner_ids.get(token.index()).copied().unwrap_or(self.stranger)
    }

    fn outward(&self, row: &Row) -> Row {
        let entries = row.entries();
        let outer = |i: usize| self.positions.get(entries.position(i)).copied().flatten();
        let weights = entries.log_weights().iter().enumerate();
        let live = weights.filter_map(|(i, weight)| Some((outer(i)? as usize, *weight)));
        entrywise::collect(self.outer.row_len(), live)
    }

    /// The inner positions among `allowed`, outer ones.
    fn inward_mask(&self, allowed: &Bitset) -> Arc<Bitset> {
        let mut inner = Bitset::new(self.positions.len());
        let end = self.outer.eos_position();
        for position in allowed.iter() {
            if position == end {
                inner.insert(self.inner_end);
            } else if self.common.contains(position) {
                inner.insert(self.inner_ids[position].index());
            }
        }
        Arc::new(inner)
    }

    fn outward_mask(&self, allowed: &Bitset) -> Arc<Bitset> {
        let mut outer = Bitset::new(self.outer.row_len());
        for position in allowed.iter().filter_map(|position| self.positions[position]) {
            outer.insert(position as usize);
        }
        Arc::new(outer)
    }

    fn outward_token(&self, token: TokenId) -> TokenId {
        if token.is_eos() {
            return token;
        }
        TokenId(self.positions[token.index()].expect("only common tokens may be drawn"))
    }
}

fn members(vocab: &Vocabulary) -> impl DoubleEndedIterator<Item = TokenId> + '_ {
    let ids = (0..vocab.len()).map(|id| TokenId(u32::try_from(id).expect("ids have 32 bits")));
    ids.filter(|id| vocab.is_member(*id))
}

/// A potential over the tokens that it has in common with another vocabulary.
pub(super) struct Mapped {
    inner: Arc<dyn Potential>,
    mapping: Arc<Mapping>,
}

impl Mapped {
    pub(super) fn new(inner: Arc<dyn Potential>, mapping: Mapping) -> Self {
        Self { inner, mapping: Arc::new(mapping) }
    }
}

impl Potential for Mapped {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.mapping.outer
    }

    fn claims(&self) -> Claims {
        let inner = self.inner.claims();
        let common = self.mapping.common.count();
        let [outer_has_more, inner_has_more] = self.mapping.sizes.map(|size| size > common);
        Claims {
            // A completion, or some of the mass, may need a token that is not common.
            tight: inner.tight && !inner_has_more,
            mass_exact: inner.mass_exact && !inner_has_more,
            // An outer token that is not common kills a prefix.
            terminal_only: inner.terminal_only && !outer_has_more,
            ..inner
        }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let inner = self.inner.open(n, run)?;
        Ok(Box::new(MappedCursor { inner, mapping: Arc::clone(&self.mapping) }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.inner.demand(n, max_tokens, demands)
    }
}

/// The inner cursor, asked and answered in other ids. Draws stay draws, masks stay masks.
struct MappedCursor {
    inner: Box<dyn Cursor>,
    mapping: Arc<Mapping>,
}

impl Cursor for MappedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let mapping = Arc::clone(&self.mapping);
        let want = match want {
            Want::Tokens(tokens) => {
                let inward = |tokens: Vec<TokenId>| tokens.into_iter().map(|token| mapping.inward(token));
                Want::Tokens(tokens.into_iter().map(|tokens| inward(tokens).collect()).collect())
            }
            // Only what both have may be drawn.
            Want::Draw(draws) => {
                let masks = match &draws.masks {
                    Some(masks) => masks.iter().map(|mask| mapping.inward_mask(mask)).collect(),
                    None => vec![Arc::clone(&mapping.inner_common); rows.len()],
                };
                Want::Draw(Draws { masks: Some(masks), ..draws })
            }
            other => other,
        };
        let ticket = self.inner.request(rows, want);
        Ticket::deferred(move || {
            let outward = |answer: RowResult<Answer>| {
                Ok(match answer? {
                    Answer::Row(row) => Answer::Row(mapping.outward(&row)),
                    Answer::Draw(drawn) => Answer::Draw(
                        drawn.map(|drawn| Drawn { token: mapping.outward_token(drawn.token), ..drawn }),
                    ),
                    other => other,
                })
            };
            ticket.wait().into_iter().map(outward).collect()
        })
    }

    fn draws(&self) -> bool {
        self.inner.draws()
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        let masks = self.inner.masks(rows)?;
        Some(masks.iter().map(|mask| self.mapping.outward_mask(mask)).collect())
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let inward = |span: &&[TokenId]| span.iter().map(|token| self.mapping.inward(*token)).collect();
        let spans: Vec<Vec<TokenId>> = spans.iter().map(inward).collect();
        let spans: Vec<&[TokenId]> = spans.iter().map(Vec::as_slice).collect();
        self.inner.advance(rows, &spans)
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.score(rows)
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.complete(rows)
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.inner.select(ancestors);
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self { inner: self.inner.fork(rows), mapping: Arc::clone(&self.mapping) })
    }

    fn release(&mut self, rows: &[usize]) {
        self.inner.release(rows);
    }
}

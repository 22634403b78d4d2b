//! Units: groups of tokens, groups of such groups, and so on.
//!
//! A context stays flat tokens, for everybody who reads tokens. Beside it, [`UnitEnds`] tell how the
//! tokens group. The end of a sequence belongs to no unit.

use lockstep_sample::TokenId;

/// How the tokens of a sequence group into units, level by level, innermost first.
///
/// Level 0 has, for each unit of tokens, how many tokens there are up to its end; level k has the
/// same of the units of level k − 1. No levels at all: every token stands for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UnitEnds(Vec<Vec<usize>>);

impl UnitEnds {
    /// No levels.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// How many levels there are: 0 for tokens, 1 for units of tokens, 2 for units of those.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    /// How many items the outermost level has; of `tokens` tokens.
    #[must_use]
    pub fn count(&self, tokens: usize) -> usize {
        self.0.last().map_or(tokens, Vec::len)
    }

    /// Appends a unit to a sequence that has `tokens` tokens so far.
    pub(crate) fn push(&mut self, tokens: usize, unit: &Unit) {
        let mut below = tokens;
        self.0.resize(self.0.len().max(unit.inner.depth() + 1), Vec::new());
        for (k, level) in self.0.iter_mut().enumerate() {
            let before = level.len();
            match unit.inner.0.get(k) {
                Some(ends) => level.extend(ends.iter().map(|end| below + end)),
                // The unit itself: after all of it.
                None => level.push(below + unit.inner.count(unit.tokens.len())),
            }
            below = before;
        }
    }

    /// For each unit of tokens, how many tokens there are up to its end.
    pub(crate) fn of_tokens(&self) -> &[usize] {
        self.0.first().map_or(&[], Vec::as_slice)
    }

    /// How many units each level has: a state to return to.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.0.iter().map(Vec::len).collect()
    }

    /// Returns to the state that had these counts.
    pub(crate) fn truncate(&mut self, counts: &[usize]) {
        self.0.truncate(counts.len());
        self.0.iter_mut().zip(counts).for_each(|(level, count)| level.truncate(*count));
    }

    /// The tokens of `context`, grouped.
    #[must_use]
    pub fn nest(&self, context: &[TokenId]) -> Vec<Nested> {
        let (tokens, end) = match context.split_last() {
            Some((last, tokens)) if last.is_eos() => (tokens, Some(Nested::Token(*last))),
            _ => (context, None),
        };
        let mut items: Vec<Nested> = tokens.iter().copied().map(Nested::Token).collect();
        for level in &self.0 {
            let mut below = items.into_iter();
            let mut from = 0;
            items = level
                .iter()
                .map(|end| {
                    let unit = below.by_ref().take(end - from).collect();
                    from = *end;
                    Nested::Unit(unit)
                })
                .collect();
        }
        items.extend(end);
        items
    }
}

/// A token, or a unit of several items.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Nested {
    /// A token, or the end.
    Token(TokenId),
    /// What a unit is made of.
    Unit(Vec<Nested>),
}

/// The flat tokens of nested items.
#[must_use]
pub fn flatten_units(items: &[Nested]) -> Vec<TokenId> {
    let mut tokens = Vec::new();
    for item in items {
        match item {
            Nested::Token(token) => tokens.push(*token),
            Nested::Unit(items) => tokens.extend(flatten_units(items)),
        }
    }
    tokens
}

/// One unit: its tokens, without the end, and how these group inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Flat.
    pub tokens: Vec<TokenId>,
    /// No levels for a unit of tokens.
    pub inner: UnitEnds,
}

impl Unit {
    /// How many subunits it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.count(self.tokens.len())
    }

    /// Whether it has no subunits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a token as a subunit.
    pub(crate) fn push_token(&mut self, token: TokenId) {
        self.tokens.push(token);
    }

    /// Appends a unit as a subunit.
    pub(crate) fn push_unit(&mut self, unit: &Self) {
        self.inner.push(self.tokens.len(), unit);
        self.tokens.extend(&unit.tokens);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.inner.0.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(ids: &[u32]) -> Unit {
        Unit { tokens: ids.iter().copied().map(TokenId).collect(), inner: UnitEnds::none() }
    }

    fn nested(ids: &[u32]) -> Nested {
        Nested::Unit(ids.iter().map(|id| Nested::Token(TokenId(*id))).collect())
    }

    #[test]
    fn units_nest_as_they_were_appended() {
        // [[1, 2], []], then [[3]], then the end.
        let mut first = Unit::default();
        first.push_unit(&unit(&[1, 2]));
        first.push_unit(&unit(&[]));
        let mut second = Unit::default();
        second.push_unit(&unit(&[3]));
        assert_eq!((first.len(), second.len()), (2, 1));

        let (mut context, mut ends) = (Vec::new(), UnitEnds::none());
        for unit in [&first, &second] {
            ends.push(context.len(), unit);
            context.extend(&unit.tokens);
        }
        context.push(TokenId::EOS);
        let expected = vec![
            Nested::Unit(vec![nested(&[1, 2]), nested(&[])]),
            Nested::Unit(vec![nested(&[3])]),
            Nested::Token(TokenId::EOS),
        ];
        assert_eq!((ends.depth(), ends.nest(&context)), (2, expected.clone()));
        assert_eq!(flatten_units(&expected), context);
        let before = ends.clone();
        let counts = ends.counts();
        ends.push(context.len() - 1, &second);
        assert_ne!(ends, before);
        ends.truncate(&counts);
        assert_eq!(ends, before);
        assert_eq!(before.of_tokens(), [2, 2, 3]);
        first.clear();
        assert!(first.is_empty() && first.tokens.is_empty());
    }

    #[test]
    fn tokens_without_levels_stand_for_themselves() {
        let context = [TokenId(4), TokenId(5), TokenId::EOS];
        assert_eq!(UnitEnds::none().nest(&context), context.map(Nested::Token));
        assert_eq!(UnitEnds::none().count(2), 2);
    }
}

//! The merges of byte-level BPE, by token id.

use std::collections::{HashMap, HashSet};

use lockstep_sample::TokenId;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use super::error::{Problem, one_line};
use super::tokenizer::ORDINARY;

/// Two adjacent tokens that become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The token on the left.
    pub left: TokenId,
    /// The token on the right.
    pub right: TokenId,
    /// The token that they become.
    pub merged: TokenId,
}

/// The merges over the tokens that text may become, the one to apply first first; of equal texts
/// the lowest id.
pub(super) fn bpe(tokens: &[String], types: &[i32], merges: &[String]) -> Result<(BPE, Vec<Merge>), Problem> {
    let mut vocab = Vocab::default();
    for (id, (text, ty)) in (0..).zip(tokens.iter().zip(types)) {
        if *ty == ORDINARY {
            vocab.entry(text.clone()).or_insert(id);
        }
    }
    let all: HashSet<&str> = tokens.iter().map(String::as_str).collect();
    let mut kept = Merges::with_capacity(merges.len());
    let mut by_id = Vec::with_capacity(merges.len());
    for (index, merge) in merges.iter().enumerate() {
        let (a, b) = match merge.split_once(' ') {
            Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(' ') => (a, b),
            _ => return Err(Problem::Merge { index, text: merge.clone() }),
        };
        let merged = [a, b].concat();
        if let Some(token) = [a, b, &merged].into_iter().find(|token| !all.contains(token)) {
            return Err(Problem::MergeToken { index, token: token.to_owned() });
        }
        // A merge that makes a token which is not ordinary would make special tokens of text.
        if let [Some(&left), Some(&right), Some(&merged)] = [a, b, &merged].map(|token| vocab.get(token)) {
            kept.push((a.to_owned(), b.to_owned()));
            by_id.push(Merge { left: TokenId(left), right: TokenId(right), merged: TokenId(merged) });
        }
    }
    let built = BPE::builder().vocab_and_merges(vocab, kept).build();
    Ok((built.map_err(|error| Problem::Bpe(one_line(&error.to_string())))?, last_of_each(by_id)))
}

/// Of a pair that is listed twice only the last listing counts.
fn last_of_each(merges: Vec<Merge>) -> Vec<Merge> {
    let last: HashMap<(TokenId, TokenId), usize> =
        merges.iter().enumerate().map(|(i, merge)| ((merge.left, merge.right), i)).collect();
    let counts = |(i, merge): &(usize, Merge)| last[&(merge.left, merge.right)] == *i;
    merges.into_iter().enumerate().filter(counts).map(|(_, merge)| merge).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Tokenizer, TokenizerSpec};
    use super::*;

    #[test]
    fn merges_are_told_by_lowest_ids_and_last_listings() {
        let texts = ["a", "b", "c", "a", "ab", "bc", "<s>", "ab", "<u>", "<u>"];
        let tokenizer = Tokenizer::new(TokenizerSpec {
            model: "gpt2".into(),
            pre: "gpt-2".into(),
            tokens: texts.map(str::to_owned).to_vec(),
            token_types: vec![1, 1, 1, 1, 1, 1, 3, 1, 4, 4],
            merges: ["a b", "b c", "a b"].map(str::to_owned).to_vec(),
            ..TokenizerSpec::default()
        })
        .unwrap();
        let merge = |left, right, merged| Merge {
            left: TokenId(left),
            right: TokenId(right),
            merged: TokenId(merged),
        };
        assert_eq!(tokenizer.merges(), [merge(1, 2, 5), merge(0, 1, 4)]);
        assert_eq!(tokenizer.encode("abc", false).unwrap(), [TokenId(0), TokenId(5)], "as it merges");
        assert_eq!([tokenizer.byte(b'a'), tokenizer.byte(b'z')], [Some(TokenId(0)), None]);
        assert_eq!(tokenizer.whole(), [TokenId(8)]);
    }
}

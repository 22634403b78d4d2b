//! The best way to cut a beam's partial tokens into whole ones.
//!
//! A search by descending mass: probabilities never rise as tokens are added, so the first way that
//! uses up its bytes has most mass. It asks for one row of the model at a time.

use lockstep_sample::TokenId;

use super::beam::{Hypothesis, ROOT, Reads};

/// The most rows that one search asks for. Beyond it the bytes stay refused.
const LIMIT: usize = 64;

/// Tokens, the last of them maybe not read yet, and the bytes still to be cut.
#[derive(Clone, Debug)]
struct Cut {
    history: usize,
    token: Option<TokenId>,
    logw: f64,
    rest: Vec<u8>,
}

/// A search under way.
#[derive(Clone, Debug)]
pub(super) struct Search {
    cuts: Vec<Cut>,
    /// The best one, whose row is being asked for.
    chosen: Option<Cut>,
    asked: usize,
}

impl Search {
    /// From a beam of hypotheses inside a token.
    pub(super) fn new(reads: &Reads, beam: &[Hypothesis]) -> Self {
        let mut this = Self { cuts: Vec::new(), chosen: None, asked: 0 };
        for hypothesis in beam {
            let cut = Cut {
                history: hypothesis.history,
                token: None,
                logw: hypothesis.logw,
                rest: hypothesis.partial.clone(),
            };
            this.cut(reads, cut);
        }
        this
    }

    /// The history and the token whose row is needed next; none if the search has failed.
    pub(super) fn next(&mut self) -> Option<(usize, TokenId)> {
        self.asked += 1;
        let best = (0..self.cuts.len())
            .reduce(|best, other| if self.cuts[other].logw > self.cuts[best].logw { other } else { best })?;
        let cut = self.cuts.remove(best);
        let asked = cut.token.map(|token| (cut.history, token));
        self.chosen = Some(cut);
        asked.filter(|_| self.asked <= LIMIT)
    }

    /// Goes on once what was asked for has been read as `history`. The found hypothesis, if that
    /// was it.
    pub(super) fn go_on(&mut self, reads: &Reads, history: usize) -> Option<Hypothesis> {
        let cut = Cut { history, ..self.chosen.take()? };
        if cut.rest.is_empty() {
            return Some(Hypothesis::at_root(history, cut.logw));
        }
        self.cut(reads, cut);
        None
    }

    /// Adds every token that the rest of `cut` begins with.
    fn cut(&mut self, reads: &Reads, cut: Cut) {
        let mut node = ROOT;
        for (at, byte) in cut.rest.iter().enumerate() {
            let Some(child) = reads.child(node, *byte) else { return };
            node = child;
            for (token, logw) in reads.whole(cut.history, node, cut.logw) {
                let rest = cut.rest[at + 1..].to_vec();
                self.cuts.push(Cut { history: cut.history, token: Some(token), logw, rest });
            }
        }
    }
}

//! Hypotheses, the row that they give, and what a byte leaves of them.

use std::sync::Arc;

use lockstep_engine::vocab::TokenTrie;
use lockstep_sample::{TokenId, math};

use super::BeamParams;
use crate::potential::Row;
use crate::potential::row::add;

/// Whole tokens and the bytes of the next.
#[derive(Clone, Debug)]
pub(super) struct Hypothesis {
    /// The row of the model's cursor that has read the tokens.
    pub(super) history: usize,
    /// Their log-probability.
    pub(super) logw: f64,
    /// The bytes of the next token, and their node.
    pub(super) partial: Vec<u8>,
    pub(super) node: usize,
    /// With the tokens below the node, as a logarithm.
    pub(super) mass: f64,
}

/// Where the bytes stand after which nothing of a token has been read.
pub(super) const ROOT: usize = 0;

/// Where the end stands in a row over bytes.
const EOS: usize = 256;

/// A beam extended, and what it says of the next byte.
#[derive(Clone, Debug)]
pub(super) struct Extended {
    pub(super) hypotheses: Vec<Hypothesis>,
    /// What weighs the bytes that all of them refuse.
    pub(super) healed: Option<Hypothesis>,
    /// Log-weights of the bytes and the end.
    pub(super) row: Row,
}

/// What the model has told, by history: the rows of its cursor.
#[derive(Clone, Debug)]
pub(super) struct Reads {
    pub(super) trie: Arc<TokenTrie>,
    pub(super) eos_position: usize,
    /// The weights after each history, where they have been asked for.
    pub(super) rows: Vec<Option<Row>>,
}

impl Reads {
    /// The weights after `history`.
    pub(super) fn row(&self, history: usize) -> &Row {
        self.rows[history].as_ref().expect("a hypothesis goes on only once its history has been read")
    }

    /// The node of one more byte, if any token goes on with it.
    pub(super) fn child(&self, node: usize, byte: u8) -> Option<usize> {
        self.children(node).find(|child| self.trie.nodes()[*child].byte() == byte)
    }

    fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.trie.nodes()[node].end();
        let sibling = move |child: usize| (child < end).then_some(child);
        std::iter::successors(sibling(node + 1), move |child| sibling(self.trie.nodes()[*child].end()))
    }

    /// The tokens that end at `node`, and the log-probability with each after `history`, whose own
    /// is `logw`.
    pub(super) fn whole(&self, history: usize, node: usize, logw: f64) -> Vec<(TokenId, f64)> {
        let ids = &self.trie.ids()[self.trie.nodes()[node].ids()];
        let with = ids.iter().map(|id| (*id, add(logw, self.row(history).at(id.index()))));
        with.filter(|(_, logw)| *logw > f64::NEG_INFINITY).collect()
    }

    /// The logarithm of the mass, after `history`, of all tokens at and below `node`.
    fn log_mass(&self, history: usize, node: usize) -> f64 {
        let (nodes, row) = (self.trie.nodes(), self.row(history));
        let below = nodes[node].ids().start..nodes[nodes[node].end() - 1].ids().end;
        math::ln(self.trie.ids()[below].iter().map(|id| math::exp(row.at(id.index()))).sum())
    }
}

impl Hypothesis {
    /// Nothing of a token after some tokens.
    pub(super) fn at_root(history: usize, logw: f64) -> Self {
        Self { history, logw, partial: Vec::new(), node: ROOT, mass: logw }
    }

    /// With one more byte, if any mass is there.
    fn after(&self, reads: &Reads, byte: u8) -> Option<Self> {
        let node = reads.child(self.node, byte)?;
        let mass = add(self.logw, reads.log_mass(self.history, node));
        let partial = [self.partial.as_slice(), &[byte]].concat();
        (mass > f64::NEG_INFINITY).then_some(Self { node, mass, partial, ..*self })
    }

    /// The tokens that end with the bytes read of them, and the log-probability with each.
    pub(super) fn ends(&self, reads: &Reads) -> Vec<(TokenId, f64)> {
        if self.node == ROOT { Vec::new() } else { reads.whole(self.history, self.node, self.logw) }
    }

    /// Adds its log-masses to those of the bytes and the end that are wanted.
    fn weigh(&self, reads: &Reads, terms: &mut [Vec<f64>], wanted: impl Fn(usize) -> bool) {
        for child in reads.children(self.node) {
            let byte = usize::from(reads.trie.nodes()[child].byte());
            if wanted(byte) {
                terms[byte].push(add(self.logw, reads.log_mass(self.history, child)));
            }
        }
        if self.node == ROOT && wanted(EOS) {
            terms[EOS].push(add(self.logw, reads.row(self.history).at(reads.eos_position)));
        }
    }
}

impl Extended {
    pub(super) fn new(reads: &Reads, hypotheses: Vec<Hypothesis>, healed: Option<Hypothesis>) -> Self {
        let mut terms = vec![Vec::new(); EOS + 1];
        for hypothesis in &hypotheses {
            hypothesis.weigh(reads, &mut terms, |_| true);
        }
        let mut weights: Vec<f64> = terms.iter().map(|terms| math::log_sum_exp(terms)).collect();
        if let Some(healed) = &healed {
            let mut terms = vec![Vec::new(); EOS + 1];
            healed.weigh(reads, &mut terms, |at| weights[at] == f64::NEG_INFINITY);
            for (weight, terms) in weights.iter_mut().zip(&terms).filter(|(_, terms)| !terms.is_empty()) {
                *weight = math::log_sum_exp(terms);
            }
        }
        let total = math::log_sum_exp(&weights);
        let normalised = weights.into_iter().map(|w| if w == f64::NEG_INFINITY { w } else { w - total });
        Self { row: Row::dense(normalised.collect::<Vec<f64>>()), hypotheses, healed }
    }

    /// The beam after one more byte, pruned.
    pub(super) fn after(&self, reads: &Reads, params: &BeamParams, byte: u8) -> Vec<Hypothesis> {
        let step = |from: &[Hypothesis]| -> Vec<Hypothesis> {
            from.iter().filter_map(|hypothesis| hypothesis.after(reads, byte)).collect()
        };
        let mut beam = step(&self.hypotheses);
        if beam.is_empty() {
            beam = step(self.healed.as_slice());
        }
        // Stable, so that equals stay in the order in which they came about.
        beam.sort_by(|a, b| b.mass.total_cmp(&a.mass));
        beam.truncate(params.k);
        let masses: Vec<f64> = beam.iter().map(|hypothesis| hypothesis.mass).collect();
        let least = math::log_sum_exp(&masses) + math::ln(params.prune_threshold);
        let enough = 1 + masses.iter().skip(1).take_while(|mass| **mass >= least).count();
        beam.truncate(enough);
        beam
    }
}

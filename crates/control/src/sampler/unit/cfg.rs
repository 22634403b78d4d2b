//! Units that are complete by a grammar.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_grammar::{Cfg, CfgOptions, Limits, ParseTree};
use lockstep_sample::TokenId;

use super::boundary::{Boundary, UnitSoFar};
use crate::error::ControlError;
use crate::potential::RowResult;

/// What is done with bytes that are no UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodeErrors {
    /// They are left out.
    #[default]
    Ignore,
    /// They become the replacement character, once for each faulty stretch.
    Replace,
    /// The text is not complete.
    Strict,
}

/// Settings of a [`CfgBoundary`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CfgBoundaryOptions {
    /// The rule that units are derived from. Default `start`.
    pub start_rule: String,
    /// The rules, or aliases, that the root of a unit's tree must be one of; `None` allows all.
    pub complete_rules: Option<BTreeSet<String>>,
    /// Units of fewer subunits are not looked at. Default 2.
    pub min_length: usize,
    /// What is done with bytes that are no UTF-8.
    pub decode_errors: DecodeErrors,
}

impl Default for CfgBoundaryOptions {
    fn default() -> Self {
        Self {
            start_rule: "start".to_owned(),
            complete_rules: None,
            min_length: 2,
            decode_errors: DecodeErrors::default(),
        }
    }
}

/// Met once the unit's text is derived by a grammar, in the notation of [`Cfg::from_lark`].
///
/// Every look parses the unit from its start: units are short.
#[derive(Clone, Debug)]
pub struct CfgBoundary {
    cfg: Arc<Cfg>,
    options: CfgBoundaryOptions,
}

impl CfgBoundary {
    /// Ends units that `grammar` derives.
    ///
    /// # Errors
    /// If the grammar is none, or a complete rule is not in it.
    pub fn new(grammar: &str, options: CfgBoundaryOptions) -> Result<Self, ControlError> {
        let cfg_options = CfgOptions { start: options.start_rule.clone(), limits: Limits::default() };
        let cfg = Cfg::from_lark(grammar, &cfg_options)
            .map_err(|error| ControlError::argument(format!("grammar: {error}")))?;
        let mut complete = options.complete_rules.iter().flatten();
        if let Some(unknown) = complete.find(|rule| !cfg.has_name(rule)) {
            let message = format!("complete_rules: `{unknown}` is no rule, alias or terminal of the grammar");
            return Err(ControlError::argument(message));
        }
        Ok(Self { cfg: Arc::new(cfg), options })
    }

    /// The tree of a text; `None` if the grammar does not derive it.
    #[must_use]
    pub fn parse_tree(&self, text: &str) -> Option<ParseTree> {
        self.cfg.parse(text)
    }

    /// The text of some tokens, the end left out; `None` if it is not one.
    fn decoded(&self, tokens: &[TokenId], vocab: &Vocabulary) -> Option<String> {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| vocab.bytes_of(*token)).copied().collect();
        match self.options.decode_errors {
            DecodeErrors::Ignore => Some(bytes.utf8_chunks().map(|chunk| chunk.valid()).collect()),
            DecodeErrors::Replace => Some(String::from_utf8_lossy(&bytes).into_owned()),
            DecodeErrors::Strict => String::from_utf8(bytes).ok(),
        }
    }
}

impl Boundary for CfgBoundary {
    fn is_met(&self, so_far: &UnitSoFar<'_>) -> RowResult<bool> {
        let ends = so_far.last.iter().any(|token| token.is_eos());
        let len = so_far.buffer.len() - usize::from(ends);
        if len < self.options.min_length {
            return Ok(false);
        }
        let Some(text) = self.decoded(&so_far.buffer.tokens, so_far.vocab) else { return Ok(false) };
        Ok(match &self.options.complete_rules {
            None => self.cfg.accepts(&text),
            Some(complete) => self.cfg.parse(&text).is_some_and(|tree| complete.contains(&tree.rule)),
        })
    }
}

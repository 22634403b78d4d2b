//! What a generating row is asked to do, and whether it can be.

use std::sync::Arc;

use lockstep_sample::{LogitsProcessor, LogprobRequest, SamplingParams, SharedSampler, TokenId};

use super::constraint::Constraint;
use super::continuation::Continuation;
use crate::config::RowLimits;
use crate::model::Capabilities;
use crate::scheduler::Command;
use crate::sync::{Sender, Weak};
use crate::vocab::Vocabulary;

/// A row to generate. [`RowSpec::new`] is plain sampling from the model.
#[derive(Debug)]
pub struct RowSpec {
    /// The tokens to continue, at least one.
    pub prompt: Vec<TokenId>,
    /// The ids that count (logits beyond its length are padding) and the end-of-sequence set.
    pub vocab: Arc<Vocabulary>,
    /// How tokens are drawn.
    pub params: SamplingParams,
    /// Fixes the row's noise; `None` takes a seed from the operating system, and tells it in
    /// [`Finished::seed`](super::Finished::seed).
    pub seed: Option<u64>,
    /// Tells rows of one seed apart, such as the choices of one request. Default 0.
    pub choice: u32,
    /// The most tokens to draw, the end included. 0 draws nothing. Default 512.
    pub max_tokens: usize,
    /// Tokens before which nothing stops the row. Default 0.
    pub min_tokens: usize,
    /// Whether an end of sequence is a token as any other. Default false.
    pub ignore_eos: bool,
    /// Further ids that stop the row. Default none.
    pub stop_token_ids: Vec<TokenId>,
    /// Texts that stop the row, none of them empty. Default none.
    pub stop: Vec<String>,
    /// Whether the text keeps the stop string that ended it. Default false.
    pub include_stop_str_in_output: bool,
    /// Log-probabilities wanted of each drawn token.
    pub logprobs: Option<LogprobRequest>,
    /// If given: log-probabilities of the prompt's tokens under the model, with so many
    /// alternatives each.
    pub prompt_logprobs: Option<usize>,
    /// The ids that XTC spares; `None` is every end of sequence and the line break.
    pub xtc_special_ids: Option<Vec<TokenId>>,
    /// What the tokens must obey.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Applied in order after bias and penalties, before masks.
    pub processors: Vec<Box<dyn LogitsProcessor>>,
    /// Chooses the tokens in place of `params`, of which then only bias and penalties count.
    pub sampler: Option<SharedSampler>,
    /// An adapter of the model.
    pub adapter: Option<String>,
    /// The row to go on from; its pending token and then `prompt` are fed.
    pub continues: Option<Continuation>,
    /// Whether [`Finished::continuation`](super::Finished::continuation) is wanted. Default false.
    pub keep: bool,
}

impl RowSpec {
    /// Continues `prompt` with tokens of `vocab`.
    #[must_use]
    pub fn new(vocab: Arc<Vocabulary>, prompt: Vec<TokenId>) -> Self {
        Self {
            prompt,
            vocab,
            params: SamplingParams::default(),
            seed: None,
            choice: 0,
            max_tokens: 512,
            min_tokens: 0,
            ignore_eos: false,
            stop_token_ids: Vec::new(),
            stop: Vec::new(),
            include_stop_str_in_output: false,
            logprobs: None,
            prompt_logprobs: None,
            xtc_special_ids: None,
            constraint: None,
            processors: Vec::new(),
            sampler: None,
            adapter: None,
            continues: None,
            keep: false,
        }
    }

    /// Tokens before the first draw.
    pub(crate) fn prompt_len(&self) -> usize {
        let continued =
            self.continues.as_ref().map_or(0, |c| c.held.len() + usize::from(c.pending.is_some()));
        continued + self.prompt.len()
    }

    /// Tokens of the row at its longest.
    pub(crate) fn longest(&self) -> usize {
        self.prompt_len() + self.max_tokens
    }
}

/// A field and what is wrong with it.
type Refusal = (&'static str, String);

/// Checks a row that comes alone (`group` of 1) or in a group.
pub(crate) fn check(
    spec: &RowSpec,
    group: &[RowSpec],
    capabilities: &Capabilities,
    limits: &RowLimits,
    kv_bytes: usize,
    engine: &Weak<Sender<Command>>,
) -> Result<(), Refusal> {
    let vocab = &spec.vocab;
    if vocab.len() > capabilities.vocab_size {
        let message = format!("has {} ids but the model has {}", vocab.len(), capabilities.vocab_size);
        return Err(("vocab", message));
    }
    spec.params.validate(vocab.len()).map_err(|error| (error.field(), error.message().to_owned()))?;
    if spec.continues.as_ref().is_some_and(|continued| !continued.sequence.belongs_to(engine)) {
        return Err(("continues", "is a row of another engine: submit it to its own".into()));
    }
    check_tokens(spec, capabilities)?;
    if spec.min_tokens > spec.max_tokens {
        let message = format!("{} exceeds `max_tokens` = {}", spec.min_tokens, spec.max_tokens);
        return Err(("min_tokens", message));
    }
    if let Some(at) = spec.stop.iter().position(String::is_empty) {
        return Err((
            "stop",
            format!("string {at} is empty, and would stop every row at once: leave it out"),
        ));
    }
    check_group(spec, group, limits)?;
    let longest = worst_case(group, capabilities);
    let most = if group.len() > 1 { (kv_bytes as f64 * limits.max_group_share()) as usize } else { kv_bytes };
    if longest > most {
        let message = format!(
            "the row may take {longest} bytes of KV memory, and {most} are all there are: ask for fewer tokens or \
             raise `kv_bytes`"
        );
        return Err(("max_tokens", message));
    }
    Ok(())
}

/// Bytes that the rows of a group may take: their prompt once, and what each draws after it.
pub(crate) fn worst_case(group: &[RowSpec], capabilities: &Capabilities) -> usize {
    let [spec] = group else {
        let prompt = group[0].prompt_len();
        // A row's first token may copy the page that its prompt ends in.
        let own = group.iter().map(|spec| {
            capabilities.kv_bytes(prompt + spec.max_tokens) - capabilities.shared_kv_bytes(prompt)
        });
        return capabilities.kv_bytes(prompt) + own.sum::<usize>();
    };
    let held = spec.continues.as_ref().map_or(0, |continued| continued.reservation.bytes());
    capabilities.kv_bytes(spec.longest()).saturating_sub(held)
}

fn check_tokens(spec: &RowSpec, capabilities: &Capabilities) -> Result<(), Refusal> {
    let ids = spec.vocab.len();
    let pending = spec.continues.as_ref().is_some_and(|continued| continued.pending.is_some());
    if spec.prompt.is_empty() && !pending {
        return Err(("prompt", "is empty: give at least one token to continue".into()));
    }
    for (field, tokens) in [("prompt", &spec.prompt), ("stop_token_ids", &spec.stop_token_ids)] {
        if let Some(bad) = tokens.iter().find(|token| token.index() >= ids) {
            return Err((field, format!("{bad} is no token of the model ({ids} ids)")));
        }
    }
    if spec.longest() > capabilities.context_length {
        let message = format!(
            "{} tokens and up to {} more are longer than the model's context of {}: shorten the prompt or lower \
             `max_tokens`",
            spec.prompt_len(),
            spec.max_tokens,
            capabilities.context_length
        );
        return Err(("prompt", message));
    }
    if let Some(continued) = &spec.continues {
        if continued.adapter != spec.adapter {
            return Err(("adapter", "differs from that of the row that is continued".into()));
        }
        if spec.prompt_logprobs.is_some() {
            let message = "the tokens of a continued row are not read again: ask for them in the first row";
            return Err(("prompt_logprobs", message.into()));
        }
    }
    Ok(())
}

fn check_group(spec: &RowSpec, group: &[RowSpec], limits: &RowLimits) -> Result<(), Refusal> {
    if group.len() == 1 {
        return Ok(());
    }
    if group.len() > limits.max_decode_rows() {
        let message = format!(
            "a group of {} rows exceeds `max_decode_rows` = {}",
            group.len(),
            limits.max_decode_rows()
        );
        return Err(("group", message));
    }
    if spec.prompt != group[0].prompt || spec.adapter != group[0].adapter {
        return Err(("prompt", "differs within a group, whose rows share one prompt and adapter".into()));
    }
    if spec.continues.is_some() || spec.keep {
        return Err((
            "keep",
            "rows of a group can neither continue nor be continued: submit them alone".into(),
        ));
    }
    if spec.max_tokens == 0 {
        return Err(("max_tokens", "is 0, which a row of a group cannot be: submit it alone".into()));
    }
    if spec.prompt_logprobs.is_some() {
        return Err(("prompt_logprobs", "a group has none: submit a row alone".into()));
    }
    Ok(())
}

//! What is continued, and what came of it.

use lockstep::engine::generation::Usage;
use lockstep::engine::text::Message;
use lockstep::engine::{Generated, TokenId};
use lockstep::model::Loaded;
use serde_json::{Value, json};

use crate::error::CliError;

/// A text to continue.
pub(super) enum Text {
    /// As it is.
    Plain(String),
    /// What was said in a chat.
    Chat(Vec<Message>),
}

impl Text {
    /// `prompt`, or a chat in which a user says it.
    pub(super) fn of_prompt(prompt: String, chat: bool) -> Self {
        if chat {
            Self::Chat(vec![Message { role: "user".into(), content: prompt }])
        } else {
            Self::Plain(prompt)
        }
    }

    /// Its tokens for `model`.
    pub(super) fn tokens(&self, model: &Loaded) -> Result<Vec<TokenId>, CliError> {
        let tokens = match self {
            Self::Plain(text) => model.prompt_tokens(text)?,
            Self::Chat(messages) => model.chat_tokens(messages)?,
        };
        if tokens.is_empty() {
            return Err(CliError::usage("--prompt", "is empty: the model needs some text to start from"));
        }
        Ok(tokens)
    }
}

/// A result as one object. It tells nothing that depends on what else was generated.
pub(super) fn result(model: &Loaded, id: Option<&Value>, generated: &Generated) -> Value {
    let finished = &generated.finished;
    let Usage { prompt_tokens, drawn_tokens, .. } = finished.usage;
    let mut result = json!({});
    if let Some(id) = id {
        result["id"] = id.clone();
    }
    result["text"] = generated.text.clone().into();
    result["finish_reason"] = finished.reason.name().into();
    result["seed"] = finished.seed.into();
    result["prompt_tokens"] = prompt_tokens.into();
    result["completion_tokens"] = drawn_tokens.into();
    result["token_ids"] = generated.ids().iter().map(|id| id.0).collect();
    if generated.tokens.iter().any(|token| token.logprobs.is_some()) {
        result["logprobs"] = logprobs(model, generated);
    }
    result
}

/// Log-probabilities (nats) of the tokens and their alternatives; null is impossible.
fn logprobs(model: &Loaded, generated: &Generated) -> Value {
    let vocab = model.tokenizer.vocabulary();
    let entry = |id: TokenId, logprob: f64| {
        let logprob = logprob.is_finite().then_some(logprob);
        json!({ "id": id.0, "token": vocab.display(id), "logprob": logprob })
    };
    let tokens = generated.tokens.iter().filter_map(|token| {
        let logprobs = token.logprobs.as_ref()?;
        let mut shown = entry(token.token, logprobs.token);
        shown["top"] = logprobs.top.iter().map(|(id, logprob)| entry(*id, *logprob)).collect();
        Some(shown)
    });
    tokens.collect()
}

//! What becomes of a generating row, as its submitter sees it.

use std::convert::Infallible;
use std::fmt;

use lockstep_sample::{Logprobs, TokenId};

use super::continuation::Continuation;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::party::Blocked;
use crate::sync::{Receiver, Sender};

/// A generating row. Ids are consecutive from 0 in the order of submission and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}", self.0)
    }
}

/// Something that happened to a row.
#[derive(Debug)]
pub enum RowEvent {
    /// It drew a token.
    Token(RowToken),
    /// It is done; nothing follows.
    Finished(Finished),
}

impl RowEvent {
    /// The text that is certain since this event and was not before; the texts of all events are the
    /// row's text.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Token(token) => &token.text,
            Self::Finished(finished) => &finished.text,
        }
    }
}

/// A drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct RowToken {
    /// The token.
    pub token: TokenId,
    /// Its log-probability (nats) under the distribution it was drawn from.
    pub logp: f64,
    /// The text that is certain by now and was not before; often empty, while stop strings or
    /// incomplete characters are open.
    pub text: String,
    /// What the spec asked for.
    pub logprobs: Option<Logprobs>,
    /// The engine's step in which it was drawn.
    pub step: u64,
}

/// How a row ended.
#[derive(Debug)]
pub struct Finished {
    /// Why.
    pub reason: FinishReason,
    /// The rest of its text.
    pub text: String,
    /// The seed of its draws: the spec's, or the one it was given.
    pub seed: u64,
    /// What it took.
    pub usage: Usage,
    /// If asked for: of each token of the prompt but the first.
    pub prompt_logprobs: Option<Vec<Logprobs>>,
    /// If asked for, and if it ended with its state whole.
    pub continuation: Option<Continuation>,
}

/// Why a row ended.
#[derive(Clone, Debug)]
pub enum FinishReason {
    /// It drew an end or wrote a stop string.
    Stop(StoppedBy),
    /// It drew as many tokens as it may.
    Length,
    /// Its submitter wanted no more of it.
    Cancelled,
    /// It failed; other rows did not.
    Error(EngineError),
}

impl FinishReason {
    /// `stop`, `length`, `cancelled` or `error`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stop(_) => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Error(_) => "error",
        }
    }
}

/// What stopped a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedBy {
    /// A token: an end of sequence, or one of the spec's.
    Token(TokenId),
    /// The stop string of this index.
    Text(usize),
}

/// Tokens that a row took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens before the first draw, those of a continued row included.
    pub prompt_tokens: usize,
    /// Tokens of them that were not fed for it, because a stored prompt, a continued row or another
    /// row of its group held them.
    pub cached_tokens: usize,
    /// Tokens drawn, the end included.
    pub drawn_tokens: usize,
}

/// All of a row.
#[derive(Debug)]
pub struct Generated {
    /// Its drawn tokens.
    pub tokens: Vec<RowToken>,
    /// Its text.
    pub text: String,
    /// How it ended.
    pub finished: Finished,
}

impl Generated {
    /// The drawn ids.
    #[must_use]
    pub fn ids(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|token| token.token).collect()
    }
}

/// The events of one row, as they happen. Dropping it cancels the row.
#[derive(Debug)]
pub struct RowStream {
    id: RowId,
    events: Receiver<RowEvent>,
    engine: Engine,
    open: bool,
}

/// The other end of a row's stream.
pub(crate) type Events = Sender<RowEvent>;

impl RowStream {
    pub(crate) fn new(id: RowId, events: Receiver<RowEvent>, engine: Engine) -> Self {
        Self { id, events, engine, open: true }
    }

    /// The row.
    #[must_use]
    pub fn id(&self) -> RowId {
        self.id
    }

    /// Whether the row's last event is still to come.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The next event, if one is there already.
    pub fn try_next(&mut self) -> Option<RowEvent> {
        let event = self.events.try_recv().ok()?;
        self.note(&event);
        Some(event)
    }

    /// Ends the row before the next forward. Its stream still tells how it ended.
    pub fn cancel(&self) {
        self.engine.cancel(&[self.id]);
    }

    /// Blocks until the row is done.
    #[must_use]
    pub fn wait(self) -> Generated {
        let Ok(generated) = self.wait_with(|_| Ok::<(), Infallible>(()));
        generated
    }

    /// Blocks until the row is done, and shows `each` its events as they happen.
    ///
    /// # Errors
    /// That of `each`; the row is cancelled then.
    pub fn wait_with<E>(mut self, mut each: impl FnMut(&RowEvent) -> Result<(), E>) -> Result<Generated, E> {
        let (mut tokens, mut text) = (Vec::new(), String::new());
        loop {
            let event = self.next().expect("a stream ends with how its row ended");
            each(&event)?;
            text.push_str(event.text());
            match event {
                RowEvent::Token(token) => tokens.push(token),
                RowEvent::Finished(finished) => return Ok(Generated { tokens, text, finished }),
            }
        }
    }

    fn note(&mut self, event: &RowEvent) {
        self.open &= !matches!(event, RowEvent::Finished(_));
    }
}

impl Iterator for RowStream {
    type Item = RowEvent;

    /// Blocks until the next event; `None` after the last. While it blocks, the calling thread's
    /// parties count as waiting.
    fn next(&mut self) -> Option<RowEvent> {
        if !self.open {
            return None;
        }
        if let Some(event) = self.try_next() {
            return Some(event);
        }
        let blocked = Blocked::here();
        let event = self.events.recv();
        blocked.resume();
        // The engine's thread answers every row before it ends, unless it is torn down.
        let event = event.unwrap_or_else(|_| {
            RowEvent::Finished(Finished {
                reason: FinishReason::Error(EngineError::Stopped("its thread has ended".into())),
                text: String::new(),
                seed: 0,
                usage: Usage::default(),
                prompt_logprobs: None,
                continuation: None,
            })
        });
        self.note(&event);
        Some(event)
    }
}

impl Drop for RowStream {
    fn drop(&mut self) {
        if self.open {
            self.cancel();
        }
    }
}

//! `lockstep generate --prompts`: the lines of a file through one engine, results in their order.
//!
//! Lines are handed to the engine some way ahead of the one that is waited for, so that it never
//! runs short of rows; a line's result is the same alone and in any company.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lockstep::engine::generation::RowId;
use lockstep::engine::text::Message;
use lockstep::engine::{FinishReason, RowEvent, RowStream};
use lockstep::model::Loaded;
use serde_json::{Map, Value};

use super::load;
use super::settings::{self, FIELDS, Settings};
use super::text::{self, Text};
use crate::args::GenerateArgs;
use crate::error::CliError;
use crate::input;
use crate::interrupt::{self, INTERRUPTED};
use crate::jsonl::{self, Line, Output, failure, flag, text as string, unknown, wrong};
use crate::progress::LinesProgress;

/// Lines ahead of the first unfinished one, as a multiple of those that run at once.
const AHEAD: usize = 8;

/// What a line asks for.
type Asked = (Text, Settings);

/// A line that was handed over, or refused.
struct Pending {
    number: usize,
    id: Value,
    row: Result<RowStream, CliError>,
}

/// Continues the prompts of the file at `path`; `defaults` holds what lines do not say.
pub(super) fn generate(path: &str, defaults: &GenerateArgs) -> Result<ExitCode, CliError> {
    let text = input::file("--prompts", path)?;
    let lines = jsonl::lines("--prompts", &text, |fields| asked(fields, defaults))?;
    let all = lines.len();
    let mut output = match &defaults.many.out {
        Some(out) => Output::file(out, defaults.many.resume, path)?,
        None => Output::stdout(),
    };
    let mut lines: VecDeque<Line<Asked>> = lines.into_iter().filter(|line| !output.has(&line.id)).collect();
    let progress = LinesProgress::new("prompts", all, all - lines.len());
    // A file without a sound line needs no model.
    let batch = defaults.many.batch.get();
    let model = match lines.iter().any(|line| line.asked.is_ok()) {
        true => Some(load(defaults, batch)?),
        false => None,
    };
    let interrupted = interrupt::flag()?;
    let mut flow = Flow { model, interrupted: Arc::clone(&interrupted), submitted: Arc::default(), progress };
    flow.cancel_on_interrupt();
    let mut pending: VecDeque<Pending> = VecDeque::new();
    loop {
        while pending.len() < AHEAD * batch && !interrupted.load(Ordering::SeqCst) {
            let Some(line) = lines.pop_front() else { break };
            pending.push_back(flow.hand_over(line));
        }
        let Some(first) = pending.pop_front() else { break };
        let Some(result) = flow.wait(first) else { break };
        flow.progress.aside(|| output.add(&result))?;
    }
    flow.progress.finish();
    if interrupted.load(Ordering::SeqCst) {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match flow.progress.failures() {
        0 => Ok(ExitCode::SUCCESS),
        n => Err(CliError::failed(format!("{n} of {all} prompts failed: their results say why"))),
    }
}

struct Flow {
    model: Option<Loaded>,
    interrupted: Arc<AtomicBool>,
    submitted: Arc<AtomicU64>,
    progress: LinesProgress,
}

impl Flow {
    fn model(&self) -> &Loaded {
        self.model.as_ref().expect("a sound line has brought the model up")
    }

    /// Whoever waits for a row when Ctrl-C comes is told that it ended.
    fn cancel_on_interrupt(&self) {
        let Some(model) = &self.model else { return };
        let (engine, submitted) = (model.engine.clone(), Arc::clone(&self.submitted));
        interrupt::then(move || {
            let rows: Vec<RowId> = (0..submitted.load(Ordering::SeqCst)).map(RowId).collect();
            engine.cancel(&rows);
        });
    }

    fn hand_over(&self, line: Line<Asked>) -> Pending {
        let Line { number, id, asked } = line;
        let row = asked.and_then(|(text, settings)| {
            let model = self.model();
            let spec = settings.spec(model, text.tokens(model)?)?;
            let row = model.engine.submit(vec![spec]).map_err(|error| settings::refused(&error))?.remove(0);
            self.submitted.store(row.id().0 + 1, Ordering::SeqCst);
            Ok(row)
        });
        if let Ok(row) = &row
            && self.interrupted.load(Ordering::SeqCst)
        {
            row.cancel();
        }
        Pending { number, id, row }
    }

    /// The result of a line; `None` if it was interrupted.
    fn wait(&mut self, pending: Pending) -> Option<Value> {
        let Pending { number, id, row } = pending;
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                self.progress.failed();
                return Some(failure(&id, number, &error));
            }
        };
        let Ok(generated) = row.wait_with(|event| -> Result<(), Infallible> {
            if let RowEvent::Token(_) = event {
                self.progress.step(1);
            }
            Ok(())
        });
        match &generated.finished.reason {
            FinishReason::Cancelled => None,
            FinishReason::Error(error) => {
                self.progress.failed();
                Some(failure(&id, number, &CliError::failed(error)))
            }
            FinishReason::Stop(_) | FinishReason::Length => {
                self.progress.solved();
                Some(text::result(self.model(), Some(&id), &generated))
            }
        }
    }
}

/// What a line asks for, which takes from `defaults` what it does not say.
fn asked(fields: &Map<String, Value>, defaults: &GenerateArgs) -> Result<Asked, CliError> {
    let mut args = defaults.settings.clone();
    let (mut prompt, mut chat, mut messages) = (defaults.prompt.clone(), defaults.chat, None);
    for (field, value) in fields {
        match field.as_str() {
            "prompt" => prompt = Some(string(field, value)?),
            "chat" => chat = flag(field, value)?,
            "messages" => messages = Some(said(field, value)?),
            _ if settings::set(&mut args, field, value)? => {}
            _ => {
                let own = ["id", "prompt", "chat", "messages"];
                return Err(unknown(field, &[&own[..], &FIELDS[..]].concat()));
            }
        }
    }
    let text = match (messages, prompt) {
        (Some(_), Some(_)) if fields.contains_key("prompt") => {
            return Err(CliError::usage("messages", "comes with `prompt`: give one of them"));
        }
        (Some(messages), _) => Text::Chat(messages),
        (None, Some(prompt)) => Text::of_prompt(prompt, chat),
        (None, None) => return Err(CliError::usage("prompt", "is missing: give it, or `messages`")),
    };
    Ok((text, Settings::new(&args)?))
}

/// The messages of a chat.
fn said(field: &str, value: &Value) -> Result<Vec<Message>, CliError> {
    let expected = "a list of messages, such as [{\"role\": \"user\", \"content\": \"Hi\"}]";
    let messages = value.as_array().filter(|messages| !messages.is_empty());
    let message = |value: &Value| {
        let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        let known = value.as_object()?.keys().all(|key| key == "role" || key == "content");
        known.then_some(Message { role: text("role")?, content: text("content")? })
    };
    let messages: Option<Vec<Message>> = messages.and_then(|messages| messages.iter().map(message).collect());
    messages.ok_or_else(|| wrong(field, value, expected))
}

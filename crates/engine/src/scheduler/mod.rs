//! The one thread that owns the model and turns ready rows into forwards.
//!
//! A tick: gather every row that is ready, let waiting ones in; one forward (several, if the rows
//! exceed a batch); one draw pass for everything that is asked of its logits; deliver. User code
//! never runs here.

mod batch;
mod forward;
mod guarded;
mod pace;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use batch::{Owner, Part, cut};
use forward::Step;
use guarded::Guarded;
pub(crate) use guarded::panic_text;
use pace::Pace;

use crate::config::{EngineConfig, StragglerWait};
use crate::draw_pass::DrawPass;
use crate::error::EngineError;
use crate::generation::{Group, Purpose, RowId, Rows, Worked};
use crate::kv::KvBudget;
use crate::model::{Capabilities, Model, ModelError, ModelErrorKind, SeqId};
use crate::party::Parties;
use crate::row::RowRequest;
use crate::stats::Stats;
use crate::sync::{
    Arc, AtomicU64, Mutex, PoisonError, Receiver, RecvTimeoutError, Sender, Weak, recv_deadline,
};
use crate::ticket::QueuedRow;

/// What the scheduler shares with its handles.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) capabilities: Capabilities,
    pub(crate) parties: Arc<Parties>,
    pub(crate) stats: Arc<Mutex<Stats>>,
    pub(crate) kv: Arc<KvBudget>,
    pub(crate) next_seq: Arc<AtomicU64>,
    /// Why the engine can serve nobody any more.
    failed: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn new(capabilities: Capabilities, parties: Arc<Parties>, kv: Arc<KvBudget>) -> Self {
        Self {
            capabilities,
            parties,
            stats: Arc::default(),
            kv,
            next_seq: Arc::new(AtomicU64::new(0)),
            failed: Mutex::default(),
        }
    }

    /// The error that everybody gets once the engine has failed.
    pub(crate) fn failure(&self) -> Option<EngineError> {
        self.why_failed().map(EngineError::Stopped)
    }

    fn why_failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on the engine serves nobody.
    pub(crate) fn fail(&self, why: String) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// What reaches the scheduler, in order.
#[derive(Debug)]
pub(crate) enum Command {
    Open {
        seq: SeqId,
        adapter: Option<String>,
    },
    Fork {
        parent: SeqId,
        child: SeqId,
    },
    Truncate {
        seq: SeqId,
        len: usize,
    },
    Free(SeqId),
    Rows(Vec<QueuedRow>),
    /// Generating rows, in groups that enter whole.
    Generate(Vec<Group>),
    Cancel(Vec<RowId>),
    /// Code of a row's own is done.
    Worked(Worked),
    /// A party's state changed, or memory was given back: look again.
    Poke,
}

pub(crate) struct Scheduler {
    model: Guarded,
    queue: Receiver<Command>,
    shared: Arc<Shared>,
    straggler_wait: StragglerWait,
    prefill_step_tokens: Option<usize>,
    draws: DrawPass,
    rows: Rows,
    /// Parties' rows that are ready.
    ready: Vec<QueuedRow>,
    /// Since when anything is.
    ready_since: Option<Instant>,
    /// Sequences that could not be opened, and why.
    refused: BTreeMap<SeqId, ModelError>,
    pace: Pace,
    /// Steps so far.
    step: u64,
}

impl Scheduler {
    pub(crate) fn new(
        model: Box<dyn Model>,
        queue: Receiver<Command>,
        shared: Arc<Shared>,
        commands: Weak<Sender<Command>>,
        config: &EngineConfig,
    ) -> Self {
        let capabilities = shared.capabilities.clone();
        let cache_bytes = config.prompt_cache_bytes.unwrap_or(shared.kv.limit() / 4);
        let (kv, next_seq) = (Arc::clone(&shared.kv), Arc::clone(&shared.next_seq));
        let stats = Arc::clone(&shared.stats);
        let rows = Rows::new(config.limits, cache_bytes, capabilities, kv, next_seq, stats, commands);
        Self {
            draws: DrawPass::new(shared.capabilities.vocab_size, config.threads),
            model: Guarded::new(model, Arc::clone(&shared)),
            queue,
            shared,
            straggler_wait: config.straggler_wait,
            prefill_step_tokens: config.prefill_step_tokens.map(std::num::NonZero::get),
            rows,
            ready: Vec::new(),
            ready_since: None,
            refused: BTreeMap::new(),
            pace: Pace::default(),
            step: 0,
        }
    }

    /// Serves until every handle is gone.
    pub(crate) fn run(mut self) {
        while self.gather() {
            let requests = std::mem::take(&mut self.ready);
            self.ready_since = None;
            self.shared.parties.note_start();
            self.rows.note_start();
            self.step(requests);
        }
        let gone = EngineError::Stopped("every handle of it is gone".into());
        self.rows.end_all(&gone, &mut self.model);
    }

    /// Takes commands until a forward should start; false when nobody is left to serve.
    fn gather(&mut self) -> bool {
        loop {
            // Before the queue is emptied: a party submits before it waits, so whoever waits by now
            // has its rows in there.
            let parties = self.shared.parties.any_expected();
            if let Ok(command) = self.queue.try_recv() {
                self.apply(command);
                continue;
            }
            self.rows.admit(&mut self.model);
            if self.ready.is_empty() && !self.rows.any_ready() {
                self.ready_since = None;
                let start = Instant::now();
                let Ok(command) = self.queue.recv() else { return false };
                self.stat(|stats| stats.idle_time += start.elapsed());
                self.apply(command);
                continue;
            }
            let since = *self.ready_since.get_or_insert_with(Instant::now);
            if !parties && !self.rows.any_expected() {
                return true;
            }
            // Rows are waited for as stragglers are, even where parties are waited for without limit:
            // whose code hangs must not hold up the others.
            let next = match self.straggler_wait {
                StragglerWait::Unlimited if parties => self.queue.recv().map_err(RecvTimeoutError::from),
                StragglerWait::Fixed(wait) => recv_deadline(&self.queue, since + wait),
                StragglerWait::Adaptive | StragglerWait::Unlimited => {
                    recv_deadline(&self.queue, since + self.pace.straggler_wait())
                }
            };
            match next {
                Ok(command) => self.apply(command),
                Err(RecvTimeoutError::Timeout) => {
                    self.stat(|stats| stats.straggler_waits += 1);
                    return true;
                }
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Open { seq, adapter } => {
                let opened = self.model.open(seq, adapter.as_deref());
                self.note_refusal(seq, opened);
            }
            Command::Fork { parent, child } => {
                let forked = match self.refused.get(&parent) {
                    Some(refusal) => Err(refusal.clone()),
                    None => self.model.fork(parent, child),
                };
                self.note_refusal(child, forked);
            }
            Command::Truncate { seq, len } => {
                let cut = self.model.truncate(seq, len);
                self.note_refusal(seq, cut);
            }
            Command::Free(seq) => {
                let error = || {
                    ModelError::new(ModelErrorKind::Sequence, "the sequence was dropped before its forward")
                };
                for row in self.ready.extract_if(.., |row| row.request.seq == seq) {
                    row.fail(&error().into());
                }
                if self.refused.remove(&seq).is_none() {
                    self.model.free(seq);
                }
            }
            Command::Rows(rows) => self.ready.extend(rows),
            Command::Generate(groups) => {
                groups.into_iter().for_each(|group| self.rows.submit(group));
                self.end_rows_if_failed();
            }
            Command::Cancel(ids) => self.rows.cancel(&ids, &mut self.model),
            Command::Worked(worked) => self.rows.take_back(worked, self.step, &mut self.model),
            Command::Poke => {}
        }
    }

    fn note_refusal(&mut self, seq: SeqId, outcome: Result<(), ModelError>) {
        if let Err(error) = outcome {
            self.refused.insert(seq, error);
        }
    }

    /// Serves parties' `requests` and whatever generating rows are ready: plans batches, runs them,
    /// and delivers all answers at the end, so that everybody who was served is at work again before
    /// the next forward is considered.
    fn step(&mut self, requests: Vec<QueuedRow>) {
        self.step += 1;
        let mut seen = BTreeSet::new();
        let mut step = Step {
            answers: requests
                .iter()
                .map(|row| {
                    let first = seen.insert(row.request.seq);
                    self.refuse(&row.request, first).map(|error| row.request.all_fail(&error))
                })
                .collect(),
            requests,
            got: Vec::new(),
            failed: BTreeSet::new(),
        };
        let feeds = self.rows.plan(self.prefill_budget());
        let generating = feeds.iter().map(|feed| (Owner::Row(*feed), feed.start, feed.end));
        let asked = step.requests.iter().enumerate().filter(|(at, _)| step.answers[*at].is_none());
        let asked = asked.map(|(at, row)| (Owner::Request(at), 0, row.request.tokens.len()));
        let batches = cut(generating.chain(asked), self.model.capabilities().max_batch_tokens);
        let mut drew = self.draw_held(&mut step);
        for batch in batches {
            // Whose earlier chunk failed has its answer already.
            let parts: Vec<Part> = batch.into_iter().filter(|part| !step.has_failed(&part.owner)).collect();
            if !parts.is_empty() {
                drew |= self.forward(&parts, &mut step);
            }
        }
        self.stat(|stats| {
            stats.steps += 1;
            stats.rows += (step.requests.len() + feeds.len()) as u64;
            stats.draw_passes += u64::from(drew);
        });
        let Step { answers, requests, got, .. } = step;
        requests.iter().for_each(QueuedRow::resume);
        for (row, answer) in requests.into_iter().zip(answers) {
            row.answer(answer.unwrap_or_default());
        }
        self.rows.settle(got, self.step, &mut self.model);
        self.end_rows_if_failed();
    }

    /// Prompt tokens that the next step may feed.
    fn prefill_budget(&self) -> usize {
        match self.prefill_step_tokens {
            Some(tokens) => tokens,
            None if self.rows.any_decoding() || !self.ready.is_empty() => self.pace.prefill_tokens(),
            None => self.model.capabilities().max_batch_tokens,
        }
    }

    /// Draws for rows whose logits waited for their masks. Returns whether there were any.
    fn draw_held(&mut self, step: &mut Step) -> bool {
        let held = self.rows.held();
        if held.is_empty() {
            return false;
        }
        let rows: Vec<_> = held.iter().filter_map(|(at, held)| Some((self.rows.row(*at)?, held))).collect();
        let got = self.draws.draw_held(&rows);
        step.got.extend(held.iter().map(|(at, _)| Purpose::Draw(*at)).zip(got));
        true
    }

    /// Once the model cannot go on, generating rows end.
    fn end_rows_if_failed(&mut self) {
        if let Some(failure) = self.shared.failure() {
            self.rows.end_all(&failure, &mut self.model);
        }
    }

    /// Why a row cannot be served at all.
    fn refuse(&self, request: &RowRequest, first: bool) -> Option<EngineError> {
        if !first {
            let message = format!("sequence {} already has a row in this step", request.seq.0);
            return Some(ModelError::new(ModelErrorKind::Sequence, message).into());
        }
        if let Some(failure) = self.shared.failure() {
            return Some(failure);
        }
        if let Some(refusal) = self.refused.get(&request.seq) {
            return Some(refusal.clone().into());
        }
        let context = self.model.capabilities().context_length;
        let held = self.model.len(request.seq).unwrap_or(0);
        (held + request.tokens.len() > context).then(|| {
            let message = format!(
                "the sequence would be {} tokens long but the model's context is {context}",
                held + request.tokens.len()
            );
            ModelError::new(ModelErrorKind::Limit, message).into()
        })
    }

    fn stat(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

//! The one thread that owns the model and turns ready rows into forwards.
//!
//! A tick: gather every row that is ready; one forward (several, if the rows exceed a batch);
//! answer all wishes in one draw pass; deliver. User code never runs here.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::config::{EngineConfig, StragglerWait};
use crate::draw_pass::{DrawPass, Due};
use crate::error::EngineError;
use crate::kv::KvBudget;
use crate::model::{BatchItem, Capabilities, Model, ModelError, ModelErrorKind, SeqId, Wanted};
use crate::party::Parties;
use crate::row::{RowRequest, RowResult};
use crate::stats::Stats;
use crate::ticket::Slot;

/// What the scheduler shares with its handles.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) capabilities: Capabilities,
    pub(crate) parties: Arc<Parties>,
    pub(crate) stats: Mutex<Stats>,
    pub(crate) kv: Arc<KvBudget>,
    pub(crate) next_seq: AtomicU64,
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
    /// A party's state changed: look again.
    Poke,
}

/// A row that waits for a forward, and where its answers go.
#[derive(Debug)]
pub(crate) struct QueuedRow {
    pub(crate) index: usize,
    pub(crate) request: RowRequest,
    pub(crate) slot: Arc<Slot>,
}

pub(crate) struct Scheduler {
    model: Box<dyn Model>,
    queue: Receiver<Command>,
    shared: Arc<Shared>,
    straggler_wait: StragglerWait,
    draws: DrawPass,
    ready: Vec<QueuedRow>,
    ready_since: Instant,
    /// Sequences that could not be opened, and why.
    refused: BTreeMap<SeqId, ModelError>,
    recent: VecDeque<Duration>,
    failed: Option<String>,
}

/// Forwards that the median is taken of.
const RECENT: usize = 31;
const LONGEST_STRAGGLER_WAIT: Duration = Duration::from_millis(20);

impl Scheduler {
    pub(crate) fn new(
        model: Box<dyn Model>,
        queue: Receiver<Command>,
        shared: Arc<Shared>,
        config: &EngineConfig,
    ) -> Self {
        let width = model.capabilities().vocab_size;
        Self {
            model,
            queue,
            shared,
            straggler_wait: config.straggler_wait,
            draws: DrawPass::new(width, config.threads),
            ready: Vec::new(),
            ready_since: Instant::now(),
            refused: BTreeMap::new(),
            recent: VecDeque::with_capacity(RECENT),
            failed: None,
        }
    }

    /// Serves until every handle is gone.
    pub(crate) fn run(mut self) {
        while self.gather() {
            let rows = std::mem::take(&mut self.ready);
            self.shared.parties.note_start();
            self.step(rows);
        }
    }

    /// Takes commands until a forward should start; false when nobody is left to serve.
    fn gather(&mut self) -> bool {
        loop {
            while let Ok(command) = self.queue.try_recv() {
                self.apply(command);
            }
            if self.ready.is_empty() {
                let start = Instant::now();
                let Ok(command) = self.queue.recv() else { return false };
                self.stat(|stats| stats.idle_time += start.elapsed());
                self.apply(command);
                continue;
            }
            if !self.shared.parties.any_expected() {
                return true;
            }
            let next = match self.straggler_deadline() {
                None => self.queue.recv().map_err(RecvTimeoutError::from),
                Some(deadline) => self.queue.recv_deadline(deadline),
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

    fn straggler_deadline(&self) -> Option<Instant> {
        let wait = match self.straggler_wait {
            StragglerWait::Unlimited => return None,
            StragglerWait::Fixed(wait) => wait,
            StragglerWait::Adaptive => {
                let mut recent: Vec<Duration> = self.recent.iter().copied().collect();
                recent.sort_unstable();
                let median = recent.get(recent.len() / 2).copied();
                median.map_or(LONGEST_STRAGGLER_WAIT, |median| (median / 4).min(LONGEST_STRAGGLER_WAIT))
            }
        };
        Some(self.ready_since + wait)
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Open { seq, adapter } => {
                let opened = guarded(|| self.model.open(seq, adapter.as_deref()));
                self.note_refusal(seq, opened);
            }
            Command::Fork { parent, child } => {
                let forked = match self.refused.get(&parent) {
                    Some(refusal) => Err(refusal.clone()),
                    None => guarded(|| self.model.fork(parent, child)),
                };
                self.note_refusal(child, forked);
            }
            Command::Truncate { seq, len } => {
                let cut = guarded(|| self.model.truncate(seq, len));
                self.note_refusal(seq, cut);
            }
            Command::Free(seq) => {
                if self.refused.remove(&seq).is_none() {
                    self.ready.retain(|row| row.request.seq != seq);
                    self.model.free(seq);
                }
            }
            Command::Rows(rows) => {
                if self.ready.is_empty() {
                    self.ready_since = Instant::now();
                }
                self.ready.extend(rows);
            }
            Command::Poke => {}
        }
    }

    fn note_refusal(&mut self, seq: SeqId, outcome: Result<(), ModelError>) {
        if let Err(error) = outcome {
            self.refused.insert(seq, error);
        }
    }

    /// Serves `rows`: plans batches, runs them, and delivers all answers at the end, so that
    /// everybody who was served is at work again before the next forward is considered.
    fn step(&mut self, rows: Vec<QueuedRow>) {
        let mut seen = BTreeSet::new();
        let mut answers: Vec<Option<Vec<RowResult>>> = rows
            .iter()
            .map(|row| {
                let first = seen.insert(row.request.seq);
                self.refuse(&row.request, first).map(|error| all_fail(&row.request, &error))
            })
            .collect();
        let mut served_wishes = false;
        for batch in plan(&rows, &answers, self.model.capabilities().max_batch_tokens) {
            // A row whose earlier chunk failed has its answer already.
            let parts: Vec<&Part> = batch.iter().filter(|part| answers[part.row].is_none()).collect();
            if !parts.is_empty() {
                served_wishes |= self.forward(&rows, &parts, &mut answers);
            }
        }
        self.stat(|stats| {
            stats.steps += 1;
            stats.rows += rows.len() as u64;
            stats.draw_passes += u64::from(served_wishes);
        });
        for (row, answer) in rows.iter().zip(answers) {
            row.slot.answer(row.index, answer.unwrap_or_default());
        }
    }

    /// Why a row cannot be served at all.
    fn refuse(&self, request: &RowRequest, first: bool) -> Option<EngineError> {
        if !first {
            let message = format!("sequence {} already has a row in this step", request.seq.0);
            return Some(ModelError::new(ModelErrorKind::Sequence, message).into());
        }
        if let Some(why) = &self.failed {
            return Some(EngineError::Stopped(why.clone()));
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

    /// One call of the model. Returns whether a wish was answered.
    fn forward(
        &mut self,
        rows: &[QueuedRow],
        parts: &[&Part],
        answers: &mut [Option<Vec<RowResult>>],
    ) -> bool {
        let batch: Vec<BatchItem<'_>> = parts
            .iter()
            .map(|part| BatchItem {
                seq: rows[part.row].request.seq,
                tokens: &rows[part.row].request.tokens[part.start..part.end],
                wanted: if part.last { Wanted::Last } else { Wanted::None },
            })
            .collect();
        let due: Vec<Due<'_>> = parts
            .iter()
            .filter(|part| part.last)
            .map(|part| Due { row: part.row, request: &rows[part.row].request })
            .collect();
        let start = Instant::now();
        let drawn_before = self.draws.time();
        let mut sink = self.draws.sink(&due, answers);
        let model = &mut self.model;
        let outcome = guarded(|| model.forward(&batch, &mut sink));
        let spent = start.elapsed();
        let drawing = self.draws.time() - drawn_before;
        let forward_time = spent.saturating_sub(drawing);
        if let Err(error) = outcome {
            for part in parts {
                answers[part.row] = Some(all_fail(&rows[part.row].request, &error.clone().into()));
            }
            if error.kind() == ModelErrorKind::Fatal {
                self.failed = Some(error.to_string());
            }
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(forward_time);
        let tokens: usize = batch.iter().map(|item| item.tokens.len()).sum();
        self.stat(|stats| {
            stats.forwards += 1;
            stats.tokens += tokens as u64;
            stats.forward_time += forward_time;
            stats.draw_time += drawing;
        });
        !due.is_empty()
    }

    fn stat(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A row's share of one batch: `tokens[start..end]`; `last` if that is the end of them.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    row: usize,
    start: usize,
    end: usize,
    last: bool,
}

/// Cuts the unanswered rows into batches of at most `limit` tokens, long rows into chunks. A row's
/// chunks lie in consecutive batches, so no sequence occurs twice in one.
fn plan(rows: &[QueuedRow], answers: &[Option<Vec<RowResult>>], limit: usize) -> Vec<Vec<Part>> {
    let mut batches = vec![Vec::new()];
    let mut room = limit;
    for (row, queued) in rows.iter().enumerate().filter(|(row, _)| answers[*row].is_none()) {
        let n = queued.request.tokens.len();
        let mut start = 0;
        while start < n {
            if room == 0 {
                batches.push(Vec::new());
                room = limit;
            }
            let end = n.min(start + room);
            room -= end - start;
            if let Some(batch) = batches.last_mut() {
                batch.push(Part { row, start, end, last: end == n });
            }
            start = end;
        }
    }
    batches
}

fn all_fail(request: &RowRequest, error: &EngineError) -> Vec<RowResult> {
    request.wishes.iter().map(|_| Err(error.clone())).collect()
}

/// Runs model code; a panic there is a fatal error, not the end of the thread that must answer.
fn guarded(call: impl FnOnce() -> Result<(), ModelError>) -> Result<(), ModelError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(ModelError::new(ModelErrorKind::Fatal, format!("the model panicked: {}", panic_text(&*panic))))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

//! The engine's handle: parties, sequences, submissions.
//!
//! ```text
//! let engine = Engine::start(model, EngineConfig::default());
//! let party = engine.party();
//! let seq = party.open(None);
//! let ticket = party.submit(vec![RowRequest { seq: seq.id(), .. }])?;   // never blocks
//! let answers = ticket.wait();
//! ```
//!
//! Everything a party does reaches the scheduler through one queue, in order.

use crate::config::{EngineConfig, RowLimits};
use crate::error::EngineError;
use crate::generation::{self, Group, RowId, RowSpec, RowStream};
use crate::kv::{KvBudget, Reservation};
use crate::model::{Capabilities, Model, SeqId};
use crate::party::{Blocked, Parties, PartyId};
use crate::row::{RowRequest, Wish};
use crate::scheduler::{Command, Scheduler, Shared};
use crate::stats::Stats;
use crate::sync::{Arc, Mutex, Ordering, PoisonError, Sender, mpsc, thread};
use crate::ticket::{Ticket, Waits};

/// A running engine. Clones are the same engine; it ends when the last handle is gone.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    limits: RowLimits,
    /// The id of the next generating row. Locked while rows are submitted, so that they line up in
    /// the order of their ids.
    next_row: Arc<Mutex<u64>>,
    commands: Arc<Sender<Command>>,
}

impl Engine {
    /// Moves `model` to a thread of its own and serves it.
    #[must_use]
    pub fn start(model: impl Model + 'static, config: EngineConfig) -> Self {
        let (commands, queue) = mpsc::channel();
        let commands = Arc::new(commands);
        // What the scheduler holds must not keep its queue open: it ends with the queue.
        let handle = Arc::downgrade(&commands);
        let wake = {
            let handle = handle.clone();
            move || {
                if let Some(commands) = handle.upgrade() {
                    let _ = commands.send(Command::Poke);
                }
            }
        };
        let parties = Arc::new(Parties::new(wake.clone()));
        let kv = KvBudget::new(config.kv_bytes.unwrap_or(8 << 30), wake);
        let shared = Arc::new(Shared::new(model.capabilities().clone(), parties, kv));
        let scheduler = Scheduler::new(Box::new(model), queue, Arc::clone(&shared), handle, &config);
        thread::Builder::new()
            .name("lockstep-engine".into())
            .spawn(move || scheduler.run())
            .expect("the operating system can start a thread");
        Self { shared, limits: config.limits, next_row: Arc::default(), commands }
    }

    /// What the model can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of KV memory reserved at the moment.
    #[must_use]
    pub fn reserved_kv_bytes(&self) -> usize {
        self.shared.kv.reserved()
    }

    /// Bytes of KV memory that stored prompts take at the moment.
    #[must_use]
    pub fn stored_kv_bytes(&self) -> usize {
        self.shared.kv.stored()
    }

    /// Lines rows up to generate, all of them or none. Never blocks; the streams come in the order
    /// of the specs.
    ///
    /// # Errors
    /// [`EngineError::Request`] naming the row and field, [`EngineError::Stopped`].
    pub fn submit(&self, specs: Vec<RowSpec>) -> Result<Vec<RowStream>, EngineError> {
        let groups = specs.into_iter().map(|spec| vec![spec]).collect();
        self.submit_groups(groups)
    }

    /// Lines up rows that share one prompt, such as the choices of a request, to enter together: the
    /// prompt is read once, and memory is set aside for all of them at once.
    ///
    /// # Errors
    /// As for [`Self::submit`]; if the prompts or adapters differ.
    pub fn submit_group(&self, specs: Vec<RowSpec>) -> Result<Vec<RowStream>, EngineError> {
        if specs.is_empty() {
            return Ok(Vec::new());
        }
        self.submit_groups(vec![specs])
    }

    fn submit_groups(&self, groups: Vec<Vec<RowSpec>>) -> Result<Vec<RowStream>, EngineError> {
        let mut index = 0;
        let handle = Arc::downgrade(&self.commands);
        for group in &groups {
            for spec in group {
                let Shared { capabilities, kv, .. } = &*self.shared;
                generation::check(spec, group, capabilities, &self.limits, kv.limit(), &handle)
                    .map_err(|(field, message)| EngineError::Request { index, field, message })?;
                index += 1;
            }
        }
        if let Some(failure) = self.shared.failure() {
            return Err(failure);
        }
        let seeds = groups.iter().flatten().map(|spec| match spec.seed {
            Some(seed) => Ok(seed),
            None => getrandom::u64().map_err(|error| EngineError::Seed(error.to_string())),
        });
        let mut seeds = seeds.collect::<Result<Vec<u64>, EngineError>>()?.into_iter();
        let mut streams = Vec::with_capacity(index);
        let mut next_row = self.next_row.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = |spec: RowSpec, seed| {
            let id = RowId(*next_row);
            *next_row += 1;
            let (events, receiver) = mpsc::channel();
            streams.push(RowStream::new(id, receiver, self.clone()));
            generation::Slot::new(id, spec, seed, events)
        };
        let groups = groups
            .into_iter()
            .map(|specs| Group {
                bytes: generation::worst_case(&specs, &self.shared.capabilities),
                slots: specs.into_iter().zip(&mut seeds).map(|(spec, seed)| place(spec, seed)).collect(),
                place: None,
            })
            .collect();
        self.send(Command::Generate(groups));
        drop(next_row);
        Ok(streams)
    }

    /// Ends generating rows before the next forward, in line or at work. Ids that are done or
    /// unknown are ignored.
    pub fn cancel(&self, rows: &[RowId]) {
        self.send(Command::Cancel(rows.to_vec()));
    }

    /// Sets memory for `tokens` tokens of sequences aside, waiting its turn.
    ///
    /// # Errors
    /// [`EngineError::TooLarge`] if that never fits.
    pub fn reserve(&self, tokens: usize) -> Result<Reservation, EngineError> {
        let bytes = tokens.saturating_mul(self.shared.capabilities.kv_bytes_per_token);
        let most = (self.shared.kv.limit() as f64 * self.limits.max_group_share()) as usize;
        if bytes > most {
            return Err(EngineError::TooLarge { needed: bytes, limit: most });
        }
        // Whoever need not wait stays busy throughout, and others' forwards wait for it.
        if let Some(reservation) = self.shared.kv.reserve_now(bytes) {
            return Ok(reservation);
        }
        let blocked = Blocked::here();
        let reservation = self.shared.kv.reserve(bytes);
        blocked.resume();
        reservation
    }

    /// Joins as a new party, busy on the calling thread until it waits.
    #[must_use]
    pub fn party(&self) -> Party {
        Party { id: self.shared.parties.join(), engine: self.clone(), waits: Waits::default() }
    }

    /// A number that no other living engine has: an order in which to take several.
    #[must_use]
    pub fn number(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Whether two handles are the same engine.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn next_seq(&self) -> SeqId {
        SeqId(self.shared.next_seq.fetch_add(1, Ordering::Relaxed))
    }

    fn send(&self, command: Command) {
        // A stopped scheduler has answered everything; new submissions learn of it in `submit`.
        let _ = self.commands.send(command);
    }
}

/// Whoever submits rows step by step: a run, a user's loop. It leaves when dropped.
#[derive(Debug)]
pub struct Party {
    id: PartyId,
    engine: Engine,
    waits: Waits,
}

impl Party {
    /// Opens an empty sequence, with an adapter if the model has one of that name. A model's
    /// refusal is the answer to the first row submitted for it.
    #[must_use]
    pub fn open(&self, adapter: Option<&str>) -> Sequence {
        let id = self.engine.next_seq();
        self.engine.send(Command::Open { seq: id, adapter: adapter.map(str::to_owned) });
        Sequence { id, engine: self.engine.clone() }
    }

    /// Hands rows to the next forward. Never blocks; all or nothing.
    ///
    /// A sequence may have one unanswered row at a time, and must not be forked meanwhile.
    ///
    /// # Errors
    /// [`EngineError::Request`] naming the row and field, [`EngineError::Stopped`],
    /// [`EngineError::Cancelled`].
    pub fn submit(&self, rows: Vec<RowRequest>) -> Result<Ticket, EngineError> {
        for (index, row) in rows.iter().enumerate() {
            check(row, &self.engine.shared.capabilities)
                .map_err(|(field, message)| EngineError::Request { index, field, message })?;
        }
        self.engine.shared.parties.touch(self.id);
        let parties = Arc::clone(&self.engine.shared.parties);
        let (ticket, rows) = Ticket::new(rows, parties, self.id);
        self.waits.note(&ticket)?;
        self.engine
            .commands
            .send(Command::Rows(rows))
            .map_err(|_| EngineError::Stopped("its thread has ended".into()))?;
        Ok(ticket)
    }

    /// Ends all waits of the party with [`EngineError::Cancelled`], from any thread; whatever it
    /// submits from now on ends so too. Its sequences stay until they are dropped.
    pub fn cancel(&self) {
        self.waits.cancel();
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.engine.shared.parties.leave(self.id);
    }
}

/// A sequence of the model, freed when this is dropped.
#[derive(Debug)]
pub struct Sequence {
    id: SeqId,
    engine: Engine,
}

impl Sequence {
    /// Its id in requests.
    #[must_use]
    pub fn id(&self) -> SeqId {
        self.id
    }

    /// A copy that shares memory until one of the two changes.
    #[must_use]
    pub fn fork(&self) -> Self {
        let child = self.engine.next_seq();
        self.engine.send(Command::Fork { parent: self.id, child });
        Self { id: child, engine: self.engine.clone() }
    }

    /// Forgets all but the first `len` tokens.
    pub fn truncate(&self, len: usize) {
        self.engine.send(Command::Truncate { seq: self.id, len });
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.engine.send(Command::Free(self.id));
    }
}

fn check(row: &RowRequest, capabilities: &Capabilities) -> Result<(), (&'static str, String)> {
    if row.tokens.is_empty() {
        return Err(("tokens", "is empty: a row feeds at least one token".into()));
    }
    if row.tokens.len() > capabilities.context_length {
        return Err((
            "tokens",
            format!(
                "{} tokens are longer than the model's context of {}: shorten the prompt",
                row.tokens.len(),
                capabilities.context_length
            ),
        ));
    }
    if let Some(bad) = row.tokens.iter().find(|token| token.index() >= capabilities.vocab_size) {
        return Err(("tokens", format!("{bad} is no token of the model ({} ids)", capabilities.vocab_size)));
    }
    if !(row.temperature.is_finite() && row.temperature > 0.0) {
        return Err(("temperature", format!("{} must be finite and greater than 0", row.temperature)));
    }
    for wish in &row.wishes {
        if let Wish::Draw { mask: Some(mask), .. } = wish
            && mask.len() != row.vocab.row_len()
        {
            return Err((
                "mask",
                format!("has {} positions but the row has {}", mask.len(), row.vocab.row_len()),
            ));
        }
    }
    Ok(())
}

//! Who may enter, and what becomes of the memory of those who leave.

use lockstep_sample::TokenId;

use super::prompt_cache::{Gone, Hit};
use super::rows::{Group, Rows};
use super::slot::Stage;
use super::stream::FinishReason;
use crate::kv::{Place, Reservation};
use crate::model::{Model, ModelError, SeqId};
use crate::sync::{Arc, Mutex, PoisonError};

impl Rows {
    /// Rows that enter together join the line.
    pub(crate) fn submit(&mut self, mut group: Group) {
        if group.slots.len() == 1 && group.slots[0].is_done_already() {
            self.count(|stats| stats.finished_length += 1);
            group.slots[0].finish(FinishReason::Length, None);
            return;
        }
        self.queue.push_back(group);
    }

    /// Lets in, in order, whoever there is a place and memory for; nobody overtakes.
    pub(crate) fn admit(&mut self, model: &mut dyn Model) {
        self.relieve(model);
        while let Some(group) = self.queue.front() {
            let prefilling = self.active.iter().filter(|slot| slot.stage == Stage::Prefill).count();
            let has_place = self.active.len() + group.slots.len() <= self.limits.max_decode_rows()
                && prefilling < self.limits.max_prefill_rows();
            if !has_place || !self.admit_head(model) {
                return;
            }
        }
    }

    /// Stored prompts make way for whoever waits for memory.
    fn relieve(&mut self, model: &mut dyn Model) {
        while self.kv.shortage().is_some() {
            let Some(gone) = self.cache.evict() else { return };
            self.forget(gone, model);
        }
    }

    /// Takes memory for the head of the line; false if it must wait.
    fn admit_head(&mut self, model: &mut dyn Model) -> bool {
        let group = &self.queue[0];
        let (slot, bytes) = (&group.slots[0], group.bytes);
        let place = group.place.unwrap_or_else(|| self.kv.line_up(bytes));
        let looks = self.cache.is_on() && slot.continues.is_none() && slot.score.is_none();
        let hit = slot.row.as_ref().filter(|_| looks).and_then(|row| {
            let hit = self.cache.find(slot.adapter.as_deref(), row.history.tokens())?;
            self.cache.pin(hit.entry);
            Some(hit)
        });
        let less = hit.map_or(0, |hit| self.capabilities.shared_kv_bytes(hit.len));
        let mut taken =
            self.take(place, bytes.saturating_sub(less), model).map(|reservation| (reservation, hit));
        if taken.is_none()
            && let Some(hit) = hit
        {
            // What it would share may be in its own way.
            self.cache.unpin(hit.entry);
            taken = self.take(place, bytes, model).map(|reservation| (reservation, None));
        }
        let Some((reservation, hit)) = taken else {
            self.queue[0].place = Some(place);
            return false;
        };
        let group = self.queue.pop_front().expect("the head was looked at");
        self.enter(group, reservation, hit, model);
        true
    }

    /// Takes `bytes` at `place`, at the cost of stored prompts if need be.
    fn take(&mut self, place: Place, bytes: usize, model: &mut dyn Model) -> Option<Reservation> {
        loop {
            if let Some(reservation) = self.kv.try_take(place, bytes) {
                return Some(reservation);
            }
            self.kv.shortage()?;
            let gone = self.cache.evict()?;
            self.forget(gone, model);
        }
    }

    /// A group that has its memory starts to read.
    fn enter(&mut self, group: Group, mut reservation: Reservation, hit: Option<Hit>, model: &mut dyn Model) {
        let first = self.active.len();
        self.active.extend(group.slots);
        let slot = &mut self.active[first];
        let opened = match slot.continues.take() {
            Some(continued) => {
                slot.fed = continued.held.len();
                reservation.absorb(continued.reservation);
                Ok(continued.sequence.into_id())
            }
            None => self.open(first, hit, model),
        };
        let reservation = Arc::new(Mutex::new(reservation));
        let slot = &mut self.active[first];
        slot.cached = slot.fed;
        slot.pin = hit.map(|hit| hit.entry);
        for (at, slot) in self.active.iter_mut().enumerate().skip(first) {
            slot.reservation = Some(Arc::clone(&reservation));
            slot.stage = if at == first { Stage::Prefill } else { Stage::Follow };
        }
        match opened {
            Ok(seq) => {
                self.active[first].seq = Some(seq);
                let cached = self.active[first].cached as u64;
                self.count(|stats| stats.cached_tokens += cached);
                (first..self.active.len()).for_each(|at| self.start_constraint(at));
            }
            Err(error) => {
                for at in (first..self.active.len()).rev() {
                    self.end(at, FinishReason::Error(error.clone().into()), model);
                }
                self.sweep();
            }
        }
    }

    /// A sequence for the row at `at`, with what is stored of its prompt.
    fn open(&mut self, at: usize, hit: Option<Hit>, model: &mut dyn Model) -> Result<SeqId, ModelError> {
        let seq = self.new_seq();
        let slot = &mut self.active[at];
        let Some(hit) = hit else {
            model.open(seq, slot.adapter.as_deref())?;
            return Ok(seq);
        };
        model.fork(hit.seq, seq)?;
        if model.len(seq).is_some_and(|len| len > hit.len)
            && let Err(error) = model.truncate(seq, hit.len)
        {
            model.free(seq);
            return Err(error);
        }
        slot.fed = hit.len;
        Ok(seq)
    }

    /// Stores the prompt that the row at `at` has just read, for whoever comes with the same while it
    /// is at work. Its pages move from the row's memory to the stored ones.
    pub(super) fn store_prompt(&mut self, at: usize, model: &mut dyn Model) {
        let slot = &self.active[at];
        if !self.cache.is_on() || slot.has_ended || slot.cached > 0 {
            return;
        }
        let Some((row, parent)) = slot.row.as_ref().zip(slot.seq) else { return };
        let Some(reservation) = slot.reservation.clone() else { return };
        let tokens = row.history.tokens()[..slot.prompt_len].to_vec();
        let adapter = slot.adapter.clone();
        let bytes = self.capabilities.kv_bytes(tokens.len());
        if !self.make_room(adapter.as_deref(), &tokens, bytes, model) {
            return;
        }
        let seq = self.new_seq();
        if model.fork(parent, seq).is_err() {
            return;
        }
        let shared = self.capabilities.shared_kv_bytes(tokens.len());
        if !reservation.lock().unwrap_or_else(PoisonError::into_inner).store(shared, bytes) {
            model.free(seq);
            return;
        }
        let (entry, gone) = self.cache.insert(adapter.as_deref(), tokens, seq, bytes);
        self.cache.pin(entry);
        self.active[at].pin = Some(entry);
        gone.into_iter().for_each(|gone| self.forget(gone, model));
    }

    /// Stores a sequence that nobody else needs, or frees it.
    pub(super) fn store(
        &mut self,
        adapter: Option<&str>,
        tokens: Vec<TokenId>,
        seq: SeqId,
        model: &mut dyn Model,
    ) {
        let bytes = self.capabilities.kv_bytes(tokens.len());
        if !self.make_room(adapter, &tokens, bytes, model) || !self.kv.store(bytes) {
            model.free(seq);
            return;
        }
        let (_, gone) = self.cache.insert(adapter, tokens, seq, bytes);
        gone.into_iter().for_each(|gone| self.forget(gone, model));
    }

    /// Whether there is room in the cache for these tokens, and use for them.
    fn make_room(
        &mut self,
        adapter: Option<&str>,
        tokens: &[TokenId],
        bytes: usize,
        model: &mut dyn Model,
    ) -> bool {
        if !self.cache.is_on() || !self.cache.wants(adapter, tokens, bytes) {
            return false;
        }
        let Some(gone) = self.cache.make_room(bytes) else { return false };
        gone.into_iter().for_each(|gone| self.forget(gone, model));
        true
    }

    fn forget(&mut self, gone: Gone, model: &mut dyn Model) {
        model.free(gone.seq);
        self.kv.unstore(gone.bytes);
    }
}

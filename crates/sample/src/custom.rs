//! Rows with third-party samplers or processors.
//!
//! Their code runs on the calling thread, in row order, one panic guard a call. What is ours (the
//! guard, penalties, masks, rows without a sampler of their own) is as in the sampler chain.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::chain::{self, ChainRow, Sampled};
use crate::logprobs::LogprobMode;
use crate::normalizer::{self, Normalizer};
use crate::penalties;
use crate::sampler::{
    Independence, LogitsProcessor, LogprobRow, LogprobRows, NoiseRow, RowNoise, RowSampler, SampleError,
    SharedSampler,
};
use crate::token::TokenId;

/// A row with code of its own.
#[derive(Debug)]
pub struct CustomRow<'a> {
    /// Logits, settings, history, masks, key. With a sampler of its own, of the settings only bias
    /// and penalties count.
    pub row: ChainRow<'a>,
    /// Applied in order after bias and penalties, before masks.
    pub processors: &'a mut [Box<dyn LogitsProcessor>],
    /// What chooses the token; `None` is the sampler chain.
    pub sampler: Option<SharedSampler>,
}

/// What became of a pass over custom rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomPass {
    /// By row. With a sampler of its own, a row's `logp` is that of the processed distribution, which
    /// also stands for [`LogprobMode::Final`]: what the sampler drew from is not known.
    pub rows: Vec<Result<Sampled, SampleError>>,
    /// Calls of sampler objects and processors, repeated ones included.
    pub opaque_calls: u64,
}

/// Samples rows that have samplers or processors of their own.
///
/// Rows that share a [`Independence::Stacked`] sampler object are drawn in one call; if that fails,
/// one by one. An error or panic ends only its row.
///
/// # Panics
/// If a row's `vocab_size` exceeds its logits.
#[must_use]
pub fn sample_custom_rows(rows: &mut [CustomRow<'_>]) -> CustomPass {
    let mut opaque_calls = 0;
    let processed: Vec<_> = rows.iter_mut().map(|row| Processed::of(row, &mut opaque_calls)).collect();
    let mut results: Vec<Option<Result<Sampled, SampleError>>> = rows
        .iter()
        .zip(&processed)
        .map(|(row, processed)| match processed {
            Err(error) => Some(Err(error.clone())),
            Ok(_) if row.sampler.is_some() => None,
            Ok(processed) => Some(processed.choose(&row.row)),
        })
        .collect();
    for group in groups(rows, &processed) {
        let stacked: Vec<_> = group
            .members
            .iter()
            .map(|&at| (&rows[at].row, processed[at].as_ref().expect("failed rows join no group")))
            .collect();
        for (&at, result) in group.members.iter().zip(group.draw(&stacked, &mut opaque_calls)) {
            results[at] = Some(result);
        }
    }
    let rows =
        results.into_iter().map(|result| result.expect("a row has failed, chosen or a group")).collect();
    CustomPass { rows, opaque_calls }
}

/// A row after stages 2 and 3.
struct Processed {
    logits: Vec<f32>,
    log_mass: f64,
    normalizer: Normalizer,
}

impl Processed {
    fn of(row: &mut CustomRow<'_>, calls: &mut u64) -> Result<Self, SampleError> {
        let CustomRow { row, processors, .. } = row;
        normalizer::finite_max(row.real())?;
        let mut logits = row.real().to_vec();
        penalties::apply(row.params, row.history, &mut logits);
        for processor in processors.iter_mut() {
            *calls += 1;
            caught(|| processor.process(row.history.tokens(), &mut logits))?;
        }
        let log_mass = chain::mask(row, &mut logits)?;
        let normalizer = Normalizer::of(&logits, 1.0)?;
        Ok(Self { logits, log_mass, normalizer })
    }

    /// The sampler chain from here on.
    fn choose(&self, row: &ChainRow<'_>) -> Result<Sampled, SampleError> {
        let choose = |workspace: &mut _| chain::choose(row, &self.logits, self.log_mass, workspace);
        Ok(chain::with_workspace(choose)?)
    }

    fn row(&self) -> LogprobRow<'_> {
        LogprobRow { logits: &self.logits, normalizer: self.normalizer }
    }
}

/// Rows that one call may draw.
struct Group<'a> {
    sampler: &'a SharedSampler,
    vocab_size: usize,
    independence: Independence,
    members: Vec<usize>,
}

/// The groups in the order of their first rows.
fn groups<'a>(rows: &'a [CustomRow<'_>], processed: &[Result<Processed, SampleError>]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let (Some(sampler), Ok(_)) = (&row.sampler, &processed[at]) else { continue };
        let vocab_size = row.row.vocab_size;
        let found = groups.iter_mut().find(|group| {
            group.independence == Independence::Stacked
                && group.vocab_size == vocab_size
                && Arc::ptr_eq(group.sampler, sampler)
        });
        if let Some(group) = found {
            group.members.push(at);
            continue;
        }
        // Who cannot say is drawn row by row, where the panic is met again and told.
        let independence = caught(|| Ok(lock(sampler).independence())).unwrap_or_default();
        groups.push(Group { sampler, vocab_size, independence, members: vec![at] });
    }
    groups
}

impl Group<'_> {
    /// The results of the members.
    fn draw(
        &self,
        rows: &[(&ChainRow<'_>, &Processed)],
        calls: &mut u64,
    ) -> Vec<Result<Sampled, SampleError>> {
        match self.call(rows, calls) {
            Ok(tokens) => rows
                .iter()
                .zip(tokens)
                .map(|((row, processed), token)| answer(row, processed, token))
                .collect(),
            Err(error) if rows.len() == 1 => vec![Err(error)],
            Err(_) => rows.iter().flat_map(|row| self.draw(&[*row], calls)).collect(),
        }
    }

    /// One call.
    fn call(
        &self,
        rows: &[(&ChainRow<'_>, &Processed)],
        calls: &mut u64,
    ) -> Result<Vec<TokenId>, SampleError> {
        *calls += 1;
        let logprobs: Vec<LogprobRow<'_>> = rows.iter().map(|(_, processed)| processed.row()).collect();
        let mut noise: Vec<NoiseRow> = rows.iter().map(|(row, _)| NoiseRow::new(row.key)).collect();
        let mut out = vec![TokenId::EOS; rows.len()];
        caught(|| {
            lock(self.sampler).draw(LogprobRows::new(&logprobs), &mut RowNoise::new(&mut noise), &mut out)
        })?;
        Ok(out)
    }
}

/// The result of a row whose sampler chose `token`.
fn answer(row: &ChainRow<'_>, processed: &Processed, token: TokenId) -> Result<Sampled, SampleError> {
    let token = processed.row().check(token)?;
    let logp = processed.normalizer.logw(processed.logits[token.index()]);
    let logprobs = match row.logprobs {
        None => None,
        Some(request) => {
            let logits = if request.mode == LogprobMode::Raw { row.real() } else { &processed.logits };
            Some(chain::with_workspace(|workspace| workspace.logprobs(logits, token, request.top))?)
        }
    };
    Ok(Sampled { token, logp, log_mass: processed.log_mass, logprobs })
}

/// The sampler, also after it panicked: whether it is still of use is its own to say.
fn lock(sampler: &SharedSampler) -> MutexGuard<'_, dyn RowSampler + 'static> {
    sampler.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs third-party code.
fn caught<T>(code: impl FnOnce() -> Result<T, SampleError>) -> Result<T, SampleError> {
    // Whatever a panic leaves half-written is dropped with the row, or belongs to the third party.
    catch_unwind(AssertUnwindSafe(code))
        .unwrap_or_else(|payload| Err(SampleError::Panicked(message(&*payload))))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

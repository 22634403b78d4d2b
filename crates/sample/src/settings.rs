//! Settings wrapped as a sampler object, one object for equal settings.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::chain::{self, ChainRow, Choice};
use crate::history::History;
use crate::params::{ParamsError, SamplingParams};
use crate::sampler::{Independence, LogprobRows, RowNoise, RowSampler, SampleError, SharedSampler};
use crate::token::TokenId;

/// Objects that are kept; one more, and all are forgotten.
const CAPACITY: usize = 256;

/// A [`RowSampler`] that does what the sampler chain does with `params` from its greedy stage on,
/// with the same tokens. `special_ids` are the ids that XTC spares, in any order.
///
/// Equal settings and ids give the same object, as long as it is kept: at most 256 are, and then all
/// are forgotten. Bias and penalties come before a sampler's input and are the row's own matter.
///
/// # Errors
/// As [`SamplingParams::validate`], biased ids excepted.
pub fn make_sampler(params: &SamplingParams, special_ids: &[TokenId]) -> Result<SharedSampler, ParamsError> {
    static OBJECTS: Mutex<BTreeMap<Vec<u64>, SharedSampler>> = Mutex::new(BTreeMap::new());

    params.validate(usize::MAX)?;
    let mut special_ids = special_ids.to_vec();
    special_ids.sort_unstable();
    special_ids.dedup();
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = key(params, &special_ids);
    if let Some(object) = objects.get(&key) {
        return Ok(Arc::clone(object));
    }
    if objects.len() == CAPACITY {
        objects.clear();
    }
    let object: SharedSampler = Arc::new(Mutex::new(SettingsSampler { params: params.clone(), special_ids }));
    objects.insert(key, Arc::clone(&object));
    Ok(object)
}

/// Every setting and id.
fn key(params: &SamplingParams, special_ids: &[TokenId]) -> Vec<u64> {
    let SamplingParams {
        temperature,
        top_p,
        min_p,
        min_tokens_to_keep,
        xtc_probability,
        xtc_threshold,
        top_k,
        temperature_first,
        draw_method,
        logit_bias,
        repetition_penalty,
        repetition_context_size,
        presence_penalty,
        presence_context_size,
        frequency_penalty,
        frequency_context_size,
    } = params;
    // Adding 0 makes −0 the 0 that it equals.
    let bits = |x: &f64| (x + 0.0).to_bits();
    let mut key = vec![u64::from(*temperature_first), *draw_method as u64, logit_bias.len() as u64];
    key.extend(
        [temperature, top_p, min_p, xtc_probability, xtc_threshold, repetition_penalty, presence_penalty]
            .into_iter()
            .chain([frequency_penalty])
            .map(bits),
    );
    key.extend(
        [min_tokens_to_keep, top_k, repetition_context_size, presence_context_size, frequency_context_size]
            .map(|size| *size as u64),
    );
    key.extend(logit_bias.iter().flat_map(|(id, bias)| [u64::from(id.0), bits(bias)]));
    key.extend(special_ids.iter().map(|id| u64::from(id.0)));
    key
}

struct SettingsSampler {
    params: SamplingParams,
    special_ids: Vec<TokenId>,
}

impl RowSampler for SettingsSampler {
    fn independence(&self) -> Independence {
        Independence::Stacked
    }

    fn draw(
        &mut self,
        rows: LogprobRows<'_>,
        noise: &mut RowNoise<'_>,
        out: &mut [TokenId],
    ) -> Result<(), SampleError> {
        // One by one: a thread that waited for others here would hold the object's lock meanwhile,
        // and could pick up work that needs it.
        let history = History::default();
        for (at, out) in out.iter_mut().enumerate() {
            let logits = rows.logits(at);
            let row = ChainRow {
                logits,
                vocab_size: logits.len(),
                params: &self.params,
                history: &history,
                special_ids: &self.special_ids,
                mask: None,
                banned: &[],
                key: noise.row_key(at),
                logprobs: None,
            };
            *out = chain::with_workspace(|workspace| Choice::of(&row, logits, workspace))?.token;
        }
        Ok(())
    }
}

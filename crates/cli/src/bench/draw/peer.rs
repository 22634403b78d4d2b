//! An independent sampler for one row, if it is built in.
//!
//! It is `llm-samplers`, which can be told to put its temperature last, as Lockstep does.

use lockstep::sample::{SamplingParams, TokenId};

/// What stands for this contender.
#[cfg(feature = "peers")]
pub(super) const NAME: &str = "llm-samplers 0.0.7";
#[cfg(not(feature = "peers"))]
pub(super) const NAME: &str = "not built: --features peers";

/// The token it draws from `logits`; `None` if it is not built in, or has no such settings.
///
/// Its law is ours where there are temperature, top-p and min-p alone; its noise is its own.
#[cfg(not(feature = "peers"))]
pub(super) fn sample(_: &[f32], _: &SamplingParams, _: u32) -> Option<TokenId> {
    None
}

#[cfg(feature = "peers")]
pub(super) fn sample(logits: &[f32], params: &SamplingParams, step: u32) -> Option<TokenId> {
    use llm_samplers::prelude::*;
    use rand::SeedableRng;

    let plain = SamplingParams {
        temperature: params.temperature,
        top_p: params.top_p,
        min_p: params.min_p,
        ..SamplingParams::default()
    };
    if *params != plain {
        return None;
    }
    let noise = rand::rngs::StdRng::seed_from_u64(step.into());
    let mut resources = SimpleSamplerResources::new(Some(Box::new(noise)), None);
    let mut chain = SamplerChain::new();
    if params.is_greedy() {
        chain.push_sampler(SampleGreedy::new());
    } else {
        if params.top_p < 1.0 {
            chain.push_sampler(SampleTopP::new(params.top_p as f32, 1));
        }
        if params.min_p > 0.0 {
            chain.push_sampler(SampleMinP::new(params.min_p as f32, 1));
        }
        chain.push_sampler(SampleTemperature::new(params.temperature as f32));
        chain.push_sampler(SampleRandDistrib::new());
    }
    let mut row = Logits::try_from_iter(logits.iter().copied()).ok()?;
    chain.sample_token(&mut resources, &mut row).ok().flatten().map(TokenId)
}

#[cfg(all(test, feature = "peers"))]
mod tests {
    use super::*;

    #[test]
    fn it_draws_from_the_same_support() {
        let logits = [0.4_f32, 0.3, 0.2, 0.1].map(f32::ln);
        let params =
            SamplingParams { top_p: 0.65, min_p: 0.5, temperature: 2.0, ..SamplingParams::default() };
        let mut drawn: Vec<u32> =
            (0..200).map(|step| sample(&logits, &params, step).expect("it has these settings").0).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [0, 1]);
        let greedy = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        assert_eq!(sample(&logits, &greedy, 0), Some(TokenId(0)));
        assert_eq!(sample(&logits, &SamplingParams { top_k: 2, ..greedy }, 0), None);
    }
}

//! Samplers of units, runs over them, and a sampler that counts its draws.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockstep_control::potential::{Demands, RowResult, Run, Status};
use lockstep_control::sampler::{
    Boundary, FixedLengthBoundary, MultiTokenUnitSampler, Sampled, SamplerCursor, TokenSampler, UnitSoFar,
};
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{
    Chooser, ControlError, ErrorKind, Nested, Sequences, Smc, SmcOptions, Unit, UnitEnds,
};
use lockstep_engine::testkit::vocabulary;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, TokenId};

pub(super) fn units(
    subunits: impl TokenSampler + 'static,
    boundary: impl Boundary + 'static,
    cap: usize,
) -> MultiTokenUnitSampler {
    MultiTokenUnitSampler::new(Arc::new(subunits), Arc::new(boundary), cap).unwrap()
}

pub(super) fn fixed(n: usize) -> FixedLengthBoundary {
    FixedLengthBoundary::new(n).unwrap()
}

pub(super) fn options(n: usize, ess_threshold: f64, max_tokens: usize) -> SmcOptions {
    SmcOptions { n_particles: n, ess_threshold, max_tokens, seed: Some(1), ..SmcOptions::default() }
}

pub(super) fn run(sampler: impl TokenSampler + 'static, options: &SmcOptions) -> Sequences {
    Smc::new(Arc::new(sampler), None).unwrap().run(options).unwrap()
}

/// A buffer of tokens as a boundary sees it, the last subunit being the last `last` tokens.
pub(super) fn so_far<'a>(buffer: &'a Unit, last: usize, logw: f64, vocab: &'a Vocabulary) -> UnitSoFar<'a> {
    static NONE: std::sync::OnceLock<UnitEnds> = std::sync::OnceLock::new();
    let context: (&[TokenId], &UnitEnds) = (&[], NONE.get_or_init(UnitEnds::none));
    let last = &buffer.tokens[buffer.tokens.len() - last..];
    UnitSoFar { context, buffer, last, logw, critic: 0.0, vocab }
}

pub(super) fn buffer(ids: &[u32]) -> Unit {
    let token = |id: &u32| if *id == 99 { TokenId::EOS } else { TokenId(*id) };
    Unit { tokens: ids.iter().map(token).collect(), inner: UnitEnds::none() }
}

/// The lengths of a nested context's units, the end left out.
pub(super) fn lengths(context: &[Nested]) -> Vec<usize> {
    let length = |item: &Nested| match item {
        Nested::Unit(items) => Some(items.len()),
        Nested::Token(token) => {
            assert!(token.is_eos());
            None
        }
    };
    context.iter().filter_map(length).collect()
}

pub(super) fn letters(n: usize) -> WeightedSet {
    let strings: Vec<(String, f64)> = (0..1_u32 << n)
        .flat_map(|bits| (0..=n).map(move |len| (bits, len)))
        .filter(|(bits, len)| bits >> len == 0)
        .map(|(bits, len)| {
            (
                (0..len).map(|i| if bits >> i & 1 == 1 { 'b' } else { 'a' }).collect(),
                1.0 + f64::from(bits % 5),
            )
        })
        .collect();
    let strings: Vec<(&str, f64)> = strings.iter().map(|(text, w)| (text.as_str(), *w)).collect();
    WeightedSet::new("ab", &strings)
}

/// Draws token 0 with log-weight -0.25, and counts its draws; the third one fails if it is to.
#[derive(Clone)]
pub(super) struct Counting {
    vocab: Arc<Vocabulary>,
    pub(super) draws: Arc<AtomicUsize>,
    fails: bool,
}

struct CountingCursor(Counting);

impl TokenSampler for Counting {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn open(&self, _n: usize, _run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError> {
        Ok(Box::new(CountingCursor(self.clone())))
    }
    fn demand(&self, _n: usize, _max_tokens: usize, _demands: &mut Demands) -> Result<(), ControlError> {
        Ok(())
    }
}

impl SamplerCursor for CountingCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        Ok(0.0)
    }
    fn sample(
        &mut self,
        rows: &[usize],
        _keys: &[DrawKey],
        others: &mut dyn FnMut(),
        _chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        others();
        let draw = self.0.draws.fetch_add(1, Ordering::SeqCst) + 1;
        let drawn = if self.0.fails && draw == 3 {
            Err(ControlError::new(ErrorKind::Custom, "the third is broken"))
        } else {
            Ok(Sampled { token: Some(TokenId(0)), logw: -0.25, logp: Some(-1.0) })
        };
        vec![drawn; rows.len()]
    }
    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        others();
        vec![Ok(-2.0); rows.len()]
    }
    fn advance(&mut self, rows: &[usize], _tokens: &[TokenId]) -> Vec<Status> {
        rows.iter().map(|_| Status::Live).collect()
    }
    fn select(&mut self, _ancestors: &[usize]) {}
    fn release(&mut self, _rows: &[usize]) {}
}

pub(super) fn counting(fails: bool) -> Counting {
    Counting { vocab: vocabulary(&["a", "b"], &[]), draws: Arc::default(), fails }
}

//! Acceptance cases of sequential Monte Carlo that need no real model.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockstep_control::potential::{
    Claims, Coerced, Demands, FromSequences, Potential, RowResult, Run, SequencePotential, Status,
};
use lockstep_control::sampler::{Direct, Sampled, SamplerCursor, TokenSampler};
use lockstep_control::testkit::{Enumerator, WeightedSet};
use lockstep_control::{Chooser, ControlError, ErrorKind, Resampling, Sequences, Smc, SmcOptions, Step};
use lockstep_engine::testkit::vocabulary;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, TokenId};

const DEAD: f64 = f64::NEG_INFINITY;

/// Draws token `particle % 2`, with weights given by (step, particle); EOS weighs `eos`. From step
/// `ends_at` on it draws EOS.
#[derive(Clone)]
struct Scripted {
    vocab: Arc<Vocabulary>,
    start: f64,
    eos: f64,
    ends_at: u32,
    weights: Arc<dyn Fn(u32, usize) -> f64 + Send + Sync>,
    sample_calls: Arc<AtomicUsize>,
}

impl Scripted {
    fn new(start: f64, eos: f64, weights: impl Fn(u32, usize) -> f64 + Send + Sync + 'static) -> Self {
        Self {
            vocab: vocabulary(&["a", "b"], &[]),
            start,
            eos,
            ends_at: u32::MAX,
            weights: Arc::new(weights),
            sample_calls: Arc::default(),
        }
    }

    fn ending_at(self, step: u32) -> Self {
        Self { ends_at: step, ..self }
    }
}

struct ScriptedCursor(Scripted);

impl TokenSampler for Scripted {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn open(&self, _n: usize, _run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError> {
        Ok(Box::new(ScriptedCursor(self.clone())))
    }
    fn demand(&self, _n: usize, _max_tokens: usize, _demands: &mut Demands) -> Result<(), ControlError> {
        Ok(())
    }
}

impl SamplerCursor for ScriptedCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        Ok(self.0.start)
    }
    fn sample(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        others: &mut dyn FnMut(),
        _chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        self.0.sample_calls.fetch_add(1, Ordering::SeqCst);
        others();
        let one = |(row, key): (&usize, &DrawKey)| {
            let token = if key.step >= self.0.ends_at { TokenId::EOS } else { TokenId((*row % 2) as u32) };
            Ok(Sampled { token: Some(token), logw: (self.0.weights)(key.step, *row), logp: None })
        };
        rows.iter().zip(keys).map(one).collect()
    }
    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        others();
        rows.iter().map(|_| Ok(self.0.eos)).collect()
    }
    fn advance(&mut self, rows: &[usize], _tokens: &[TokenId]) -> Vec<Status> {
        rows.iter().map(|_| Status::Live).collect()
    }
    fn select(&mut self, _ancestors: &[usize]) {}
    fn release(&mut self, _rows: &[usize]) {}
}

/// A critic given by a function of the text so far, which counts its calls.
struct Critic<F> {
    vocab: Arc<Vocabulary>,
    claims: Claims,
    weigh: F,
    calls: Arc<AtomicUsize>,
}

fn critic<F>(vocab: &Arc<Vocabulary>, weigh: F) -> Critic<F>
where
    F: Fn(&[TokenId], bool) -> f64 + Send + Sync,
{
    Critic { vocab: Arc::clone(vocab), claims: Claims::default(), weigh, calls: Arc::default() }
}

impl<F: Fn(&[TokenId], bool) -> f64 + Send + Sync> SequencePotential for Critic<F> {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn claims(&self) -> Claims {
        self.claims
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        // The empty sequence is asked for once when a cursor opens.
        if context.is_empty() || self.claims.terminal_only {
            return Ok(0.0);
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok((self.weigh)(context, false))
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok((self.weigh)(context, true))
    }
}

fn options(n: usize, ess_threshold: f64, max_tokens: usize) -> SmcOptions {
    SmcOptions { n_particles: n, ess_threshold, max_tokens, seed: Some(1), ..SmcOptions::default() }
}

fn run(sampler: impl TokenSampler + 'static, options: &SmcOptions) -> Sequences {
    Smc::new(Arc::new(sampler), None).unwrap().run(options).unwrap()
}

fn steps(smc: &Smc, options: &SmcOptions) -> (Vec<Step>, Sequences) {
    let mut run = smc.start(options).unwrap();
    let steps = run.by_ref().map(Result::unwrap).collect();
    (steps, run.sequences())
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

fn texts(sequences: &Sequences) -> Vec<String> {
    let spell = |context: &Vec<TokenId>| {
        context.iter().map(|t| if t.is_eos() { "$".into() } else { t.0.to_string() }).collect::<String>()
    };
    sequences.contexts().iter().map(spell).collect()
}

#[test]
fn smc_01_scripted_sampler_and_forced_eos() {
    let sampler = Scripted::new(0.1, -2.0, |_, _| -0.3);
    let sequences = run(sampler.clone(), &options(1, 0.5, 4));
    let (context, weight) = sequences.get(0).unwrap();
    assert_eq!(context, [TokenId(0), TokenId(0), TokenId(0), TokenId::EOS]);
    assert!(close(weight, 0.1 - 0.9 - 2.0), "{weight}");
    assert_eq!(sampler.sample_calls.load(Ordering::SeqCst), 3);

    let forced = Scripted::new(0.1, -2.0, |_, _| -0.3);
    let sequences = run(forced.clone(), &options(2, 0.5, 1));
    assert_eq!(texts(&sequences), ["$", "$"]);
    assert_eq!(forced.sample_calls.load(Ordering::SeqCst), 0);
}

#[test]
fn smc_02_terminate_when_ends_without_a_correction() {
    let sampler = Scripted::new(0.2, -9.0, |_, _| -0.4);
    let terminate_when: lockstep_control::smc::TerminateWhen = Arc::new(|context| context.len() == 3);
    let options = SmcOptions { terminate_when: Some(terminate_when), ..options(1, 0.5, 9) };
    let sequences = run(sampler, &options);
    let (context, weight) = sequences.get(0).unwrap();
    assert_eq!(context.len(), 4);
    assert!(context[3].is_eos() && close(weight, -1.0), "{weight}");
}

#[test]
fn smc_03_weights_at_the_limit_are_the_ends() {
    let set = || Arc::new(WeightedSet::new("abc", &[("", 1.0), ("a", 2.0), ("ab", 3.0)])).as_ref().clone();
    let smc = Smc::new(Arc::new(Direct::new(set().potential())), None).unwrap();
    let enumerator = Enumerator::default();
    let (mut mean, mut early) = (0.0, 0.0);
    loop {
        let mut run = smc.start_with(&options(1, 0.5, 2), Box::new(enumerator.start())).unwrap();
        run.by_ref().for_each(|step| assert!(step.is_ok()));
        let sequences = run.sequences();
        let (context, weight) = sequences.get(0).unwrap();
        let p = enumerator.log_probability().exp();
        mean += p * weight.exp();
        if context.len() == 1 {
            assert!(close(weight, 6_f64.ln()), "{weight}");
            early += p;
        } else {
            assert!((weight - 0.875_468_7).abs() < 1e-7, "{weight}");
        }
        if !enumerator.next_leaf() {
            break;
        }
    }
    assert!(close(early, 1.0 / 6.0) && close(mean, 3.0), "{early} {mean}");

    let forced = smc.run(&options(5, 0.5, 1)).unwrap();
    assert!(texts(&forced).iter().all(|text| text == "$"));
    assert_eq!(forced.log_ml(), 0.0);
}

#[test]
fn smc_04_direct_without_a_critic_has_no_variance() {
    let set = WeightedSet::new("01", &[("0", 3.0), ("00", 2.0), ("1", 1.0)]).potential();
    let smc = Smc::new(Arc::new(Direct::new(set)), None).unwrap();
    for scheme in
        [Resampling::Multinomial, Resampling::Stratified, Resampling::Systematic, Resampling::Residual]
    {
        for ess_threshold in [0.0, 0.5, 0.9, 1.0] {
            for seed in 0..5 {
                let options =
                    SmcOptions { resampling: scheme, seed: Some(seed), ..options(7, ess_threshold, 3) };
                let sequences = smc.run(&options).unwrap();
                assert!(close(sequences.log_ml(), 6_f64.ln()), "{scheme} {}", sequences.log_ml());
            }
        }
    }
}

#[test]
fn smc_05_the_evidence_estimate_is_unbiased_by_enumeration() {
    let set = WeightedSet::new("01", &[("0", 3.0), ("00", 2.0), ("1", 1.0)]);
    let critic = WeightedSet::new("01", &[("0", 1.0), ("00", 2.0), ("1", 3.0)]);
    let smc = Smc::new(Arc::new(Direct::new(set.potential())), Some(critic.potential())).unwrap();
    for ess_threshold in [0.0, 0.5, 0.9, 1.0] {
        let enumerator = Enumerator::default();
        let (mut mean, mut total, mut resampled) = (0.0, 0.0, false);
        loop {
            let mut run =
                smc.start_with(&options(2, ess_threshold, 3), Box::new(enumerator.start())).unwrap();
            run.by_ref().for_each(|step| assert!(step.is_ok()));
            let p = enumerator.log_probability().exp();
            mean += p * run.sequences().log_ml().exp();
            resampled |= run.sequences().n_resamples() > 0;
            total += p;
            if !enumerator.next_leaf() {
                break;
            }
        }
        assert!(close(total, 1.0));
        assert!((mean - 10.0).abs() < 1e-11, "threshold {ess_threshold}: {mean}");
        // The least even population that is not finished has an ESS of 1.8.
        assert_eq!(resampled, ess_threshold > 0.9, "threshold {ess_threshold}");
    }
}

/// Takes the most likely option, ties to the lowest.
struct Greedy;

impl Chooser for Greedy {
    fn keyed(&self) -> Option<lockstep_sample::DrawMethod> {
        None
    }
    fn draw(
        &mut self,
        row: &lockstep_control::potential::Row,
        eos_position: usize,
        _key: &DrawKey,
    ) -> Option<lockstep_sample::Drawn> {
        let weights = row.to_dense();
        let best = (0..weights.len()).rev().max_by(|a, b| weights[*a].total_cmp(&weights[*b]))?;
        let log_mass = row.log_total();
        let token = if best == eos_position { TokenId::EOS } else { TokenId(best as u32) };
        Some(lockstep_sample::Drawn { token, log_mass, logp: weights[best] - log_mass })
    }
    fn ancestors(&mut self, _: Resampling, weights: &[f64], _: &DrawKey) -> Vec<usize> {
        (0..weights.len()).collect()
    }
}

#[test]
fn smc_06_twisted_and_terminal_only_agree_without_resampling() {
    let sampler = || WeightedSet::new("ab", &[("aab", 3.0), ("b", 1.0)]);
    let critic = || WeightedSet::new("ab", &[("aab", 2.0), ("b", 5.0)]);
    // The terminal-only form of the same critic.
    let terminal = {
        let inner = critic();
        let vocab = Arc::clone(inner.vocab());
        Critic {
            claims: Claims { terminal_only: true, ..Claims::default() },
            ..self::critic(&vocab, move |context: &[TokenId], _| inner.complete(context).unwrap())
        }
    };
    let critics: [Arc<dyn Potential>; 2] = [critic().potential(), Arc::new(FromSequences::new(terminal))];
    for critic in critics {
        let smc = Smc::new(Arc::new(Direct::new(sampler().potential())), Some(critic)).unwrap();
        let mut run = smc.start_with(&options(1, 0.5, 9), Box::new(Greedy)).unwrap();
        run.by_ref().for_each(|step| assert!(step.is_ok()));
        let sequences = run.sequences();
        assert_eq!(texts(&sequences), ["001$"]);
        assert!(close(sequences.log_weights()[0], 8_f64.ln()), "{:?}", sequences.log_weights());
    }
}

#[test]
fn smc_07_a_critic_that_need_not_twist_is_called_once_a_sequence() {
    let sampler = || Scripted::new(0.0, 0.0, |_, _| -0.1);
    let vocab = sampler().vocab;
    let calls = Arc::new(AtomicUsize::new(0));
    let make = |terminal_only| Critic {
        claims: Claims { terminal_only, ..Claims::default() },
        calls: Arc::clone(&calls),
        ..critic(&vocab, |context: &[TokenId], _| -(context.len() as f64))
    };
    let count = |critic: Arc<dyn Potential>, ess_threshold| {
        calls.store(0, Ordering::SeqCst);
        let smc = Smc::new(Arc::new(sampler()), Some(critic)).unwrap();
        let sequences = smc.run(&options(6, ess_threshold, 5)).unwrap();
        assert!(sequences.log_weights().iter().all(|w| w.is_finite()));
        calls.load(Ordering::SeqCst)
    };
    assert_eq!(count(Arc::new(FromSequences::new(make(false))), 0.0), 6);
    assert_eq!(count(Arc::new(FromSequences::new(make(true))), 0.5), 6);
    assert!(count(Arc::new(FromSequences::new(make(false))), 0.5) > 6);

    // Coerced from bytes to the sampler's tokens it stays terminal-only.
    let over_bytes = Critic {
        claims: Claims { terminal_only: true, ..Claims::default() },
        calls: Arc::clone(&calls),
        ..critic(&Vocabulary::bytes(), |context: &[TokenId], _| -(context.len() as f64))
    };
    let coerced = Coerced::new(Arc::new(FromSequences::new(over_bytes)), Arc::clone(&vocab)).unwrap();
    assert!(coerced.claims().terminal_only);
    assert_eq!(count(Arc::new(coerced), 0.5), 6);
}

#[test]
fn smc_08_nan_kills_the_particle_and_plus_infinity_ends_the_run() {
    let sampler = Scripted::new(0.0, 0.0, |step, i| if step == 1 && i == 2 { f64::NAN } else { -0.5 });
    let sequences = run(sampler, &options(4, 0.0, 3));
    let weights = sequences.log_weights();
    assert_eq!(weights[2], DEAD);
    assert!([0, 1, 3].iter().all(|i| close(weights[*i], -1.0)), "{weights:?}");

    let all = run(Scripted::new(0.0, 0.0, |_, _| f64::NAN), &options(4, 0.5, 3));
    assert!(all.log_weights().iter().all(|w| *w == DEAD));

    let infinite = Scripted::new(0.0, 0.0, |_, i| if i == 1 { f64::INFINITY } else { 0.0 });
    let error = Smc::new(Arc::new(infinite), None).unwrap().run(&options(2, 0.5, 3)).unwrap_err();
    assert_eq!(error.to_string(), "a potential returned +inf, which violates the potential contract");

    let start = Scripted::new(DEAD, 0.0, |_, _| 0.0);
    let error = Smc::new(Arc::new(start), None).unwrap().run(&options(2, 0.5, 3)).unwrap_err();
    assert_eq!(error.to_string(), "start weight is -inf");
}

#[test]
fn smc_09_a_population_that_dies_at_once_returns_normally() {
    let sequences = run(Scripted::new(0.0, 0.0, |_, _| DEAD), &options(4, 0.5, 5));
    assert_eq!(sequences.len(), 4);
    assert!(sequences.log_weights().iter().all(|w| *w == DEAD));
    assert_eq!(sequences.log_ml(), DEAD);
    assert_eq!(sequences.ess(), 0.0);
}

#[test]
fn smc_10_the_threshold_decides_whether_a_step_resamples() {
    let smc = |weights: [f64; 4]| {
        let sampler = Scripted::new(0.0, 0.0, move |step, i| if step == 1 { weights[i] } else { 0.0 });
        Smc::new(Arc::new(sampler), None).unwrap()
    };
    let first = |weights, threshold| steps(&smc(weights), &options(4, threshold, 3)).0.remove(0);
    assert!(first([0.0, -1.0, -2.0, -3.0], 0.5).ancestors.is_none());
    assert!(first([0.0, -1.0, -2.0, -3.0], 0.6).ancestors.is_some());
    assert!((first([0.0, -1.0, -2.0, -3.0], 0.5).ess - 2.086_110_8).abs() < 1e-7);
    assert!(first([0.0, 0.0, -20.0, -20.0], 0.5).ancestors.is_none());
}

#[test]
fn smc_11_equal_weights_never_resample_a_run() {
    for weight in [-1.3, -100.7] {
        for n in [1, 2, 3, 7, 64, 1000] {
            let sequences = run(Scripted::new(0.0, weight, move |_, _| weight), &options(n, 1.0, 3));
            assert_eq!(sequences.n_resamples(), 0, "{n}");
        }
    }
}

#[test]
fn smc_12_after_a_resampling_all_weights_are_the_mean_and_twists_give_ratios() {
    // Step 1 spreads the weights; the critic is -1 per token so far.
    let sampler = Scripted::new(0.0, 0.0, |step, i| if step == 1 { -3.0 * i as f64 } else { -0.25 });
    let critic = critic(&sampler.vocab, |context: &[TokenId], _| -(context.len() as f64));
    let smc = Smc::new(Arc::new(sampler), Some(Arc::new(FromSequences::new(critic)))).unwrap();
    let mut run = smc.start(&options(4, 0.9, 4)).unwrap();
    let step = run.next().unwrap().unwrap();
    assert!(step.ancestors.is_some());
    let before: Vec<f64> = (0..4).map(|i| -3.0 * f64::from(i) - 1.0).collect();
    let mean = lockstep_control::weights::log_mean(&before);
    let weights = run.sequences().log_weights().to_vec();
    assert!(weights.iter().all(|w| close(*w, mean)), "{weights:?} {mean}");
    // The next increment is the sampler's and the critic's ratio, -1.
    let step = run.next().unwrap().unwrap();
    assert!(step.ancestors.is_none());
    let weights = run.sequences().log_weights().to_vec();
    assert!(weights.iter().all(|w| close(*w, mean - 0.25 - 1.0)), "{weights:?} {mean}");
}

#[test]
fn smc_13_a_finished_population_is_not_resampled() {
    let sampler = Scripted::new(0.0, 0.0, |_, i| if i < 4 { 0.0 } else { -20.0 }).ending_at(1);
    let (steps, sequences) = steps(&Smc::new(Arc::new(sampler), None).unwrap(), &options(8, 0.9, 5));
    assert_eq!(steps.len(), 1);
    assert!(steps[0].ancestors.is_none());
    let weights = sequences.log_weights();
    assert_eq!(weights, [0.0, 0.0, 0.0, 0.0, -20.0, -20.0, -20.0, -20.0]);
}

#[test]
fn a_recoverable_error_costs_one_particle_and_a_fatal_one_the_run() {
    let vocab = vocabulary(&["a", "b"], &[]);
    let fail = |kind| {
        let failing = Mutex::new(kind);
        struct Failing(Arc<Vocabulary>, Mutex<ErrorKind>);
        impl SequencePotential for Failing {
            fn vocab(&self) -> &Arc<Vocabulary> {
                &self.0
            }
            fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
                if context == [TokenId(1)] {
                    return Err(ControlError::new(*self.1.lock().unwrap(), "broken"));
                }
                Ok(0.0)
            }
            fn complete(&self, _: &[TokenId]) -> Result<f64, ControlError> {
                Ok(0.0)
            }
        }
        let critic = FromSequences::new(Failing(Arc::clone(&vocab), failing));
        Smc::new(Arc::new(Scripted::new(0.0, 0.0, |_, _| 0.0)), Some(Arc::new(critic))).unwrap()
    };
    let sequences = fail(ErrorKind::Row).run(&options(4, 0.01, 3)).unwrap();
    assert_eq!(sequences.n_failed(), 2);
    assert_eq!(sequences.log_weights(), [0.0, DEAD, 0.0, DEAD]);
    assert_eq!(fail(ErrorKind::Custom).run(&options(4, 0.01, 3)).unwrap_err().to_string(), "broken");
}

#[test]
fn options_out_of_range_are_errors_before_any_work() {
    let smc = Smc::new(Arc::new(Scripted::new(0.0, 0.0, |_, _| 0.0)), None).unwrap();
    for (bad, field) in [
        (options(0, 0.5, 3), "n_particles"),
        (options(1, 0.5, 0), "max_tokens"),
        (options(1, 1.5, 3), "ess_threshold"),
        (options(1, f64::NAN, 3), "ess_threshold"),
    ] {
        let error = smc.run(&bad).unwrap_err();
        assert!(error.kind() == ErrorKind::Argument && error.to_string().starts_with(field), "{error}");
    }
}

//! Conditional SMC, by enumeration of every choice.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

#[path = "shared/leaves.rs"]
mod leaves;

use std::sync::Arc;

use lockstep_control::potential::{
    Answer, Cursor, Demands, FromSequences, Potential, Row, RowResult, Run, SequencePotential, Status, Want,
};
use lockstep_control::sampler::{Sampled, SamplerCursor, TokenSampler};
use lockstep_control::smc::TerminateWhen;
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{
    Awrs, AwrsOptions, BoolFsa, Chooser, Coerced, ControlError, Direct, ErrorKind, PromptedLlm, Resampling,
    Retained, Smc, SmcOptions,
};
use lockstep_engine::testkit::{ScriptedModel, vocabulary};
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_engine::{Engine, EngineConfig};
use lockstep_sample::{DrawKey, DrawMethod, Drawn, EosSet, TokenId};

use leaves::leaves;

const EOS: TokenId = TokenId::EOS;
const STRINGS: [(&str, f64); 3] = [("0", 3.0), ("00", 2.0), ("1", 1.0)];

fn target() -> Arc<dyn Potential> {
    WeightedSet::new("01", &STRINGS).potential()
}

/// The critic of case 5.
fn critic() -> Arc<dyn Potential> {
    WeightedSet::new("01", &[("0", 1.0), ("00", 2.0), ("1", 3.0)]).potential()
}

fn smc(sampler: impl TokenSampler + 'static, critic: Option<Arc<dyn Potential>>) -> Smc {
    Smc::new(Arc::new(sampler), critic).unwrap()
}

fn options(n: usize, ess_threshold: f64, max_tokens: usize) -> SmcOptions {
    SmcOptions { n_particles: n, ess_threshold, max_tokens, seed: Some(1), ..SmcOptions::default() }
}

fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).chain([EOS]).collect()
}

/// What the target gives each path, increments included: all runs of one particle.
fn paths(smc: &Smc, options: &SmcOptions) -> Vec<(Retained, f64)> {
    let options = SmcOptions { n_particles: 1, ess_threshold: 0.0, ..options.clone() };
    let mut paths = Vec::new();
    leaves(
        |chooser| smc.start_with(&options, chooser).unwrap(),
        |run, p| {
            let sequences = run.sequences();
            let weight = sequences.log_weights()[0];
            if weight > f64::NEG_INFINITY {
                paths.push((sequences.retained(0).unwrap(), p * weight.exp()));
            }
        },
    );
    paths
}

/// The mass Z of the target, and `E[1/Ẑ]` of conditional runs on paths drawn from it.
fn z_and_mean_inverse(smc: &Smc, options: &SmcOptions) -> (f64, f64) {
    let paths = paths(smc, options);
    let z: f64 = paths.iter().map(|(_, mass)| mass).sum();
    let mut mean = 0.0;
    for (path, mass) in &paths {
        leaves(
            |chooser| smc.conditional_with(path, options, chooser).unwrap(),
            |run, p| {
                let sequences = run.sequences();
                assert_eq!(sequences.contexts()[0], path.tokens());
                mean += mass / z * p * (-sequences.log_ml()).exp();
            },
        );
    }
    (z, mean)
}

fn assert_unbiased(smc: &Smc, options: &SmcOptions, z: f64) {
    let (mass, mean) = z_and_mean_inverse(smc, options);
    assert!((mass - z).abs() < 1e-12 * z, "{options:?}: {mass}");
    assert!((mean - 1.0 / z).abs() < 1e-12 / z, "{options:?}: {mean}");
}

#[test]
fn smc_30_the_mean_of_the_inverse_estimate_is_a_tenth() {
    let smc = smc(Direct::new(target()), Some(critic()));
    for ess_threshold in [0.0, 0.5, 0.9, 0.95, 1.0] {
        for n in [1, 2, 3] {
            assert_unbiased(&smc, &options(n, ess_threshold, 3), 10.0);
        }
    }
}

#[test]
fn smc_30_under_a_proposal_a_limit_and_a_terminal_condition() {
    let proposal = WeightedSet::new("01", &[("0", 1.0), ("00", 1.0), ("1", 4.0)]).potential();
    let proposed = smc(Direct::with_proposal(target(), proposal).unwrap(), Some(critic()));
    assert_unbiased(&proposed, &options(2, 1.0, 3), 10.0);
    // At most one token and the end: {0: 3·1, 1: 1·3}.
    let direct = smc(Direct::new(target()), Some(critic()));
    assert_unbiased(&direct, &options(2, 1.0, 2), 6.0);
    // A sequence ends at once after a `1`, or after two tokens: the same sequences and weights.
    let ends: TerminateWhen = Arc::new(|context| context.contains(&TokenId(1)) || context.len() == 2);
    let ended = SmcOptions { terminate_when: Some(ends), ..options(2, 1.0, 3) };
    assert_unbiased(&direct, &ended, 10.0);
}

/// Direct sampling whose weights have a random factor of 1/2 or 3/2.
#[derive(Clone)]
struct Noisy {
    target: Arc<dyn Potential>,
    /// The step in which slot 0 fails.
    fails_in: u32,
}

fn noisy() -> Noisy {
    Noisy { target: target(), fails_in: u32::MAX }
}

struct NoisyCursor(Box<dyn Cursor>, Noisy);

impl TokenSampler for Noisy {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.target.vocab()
    }
    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError> {
        Ok(Box::new(NoisyCursor(self.target.open(n, run)?, self.clone())))
    }
    fn demand(&self, _: usize, _: usize, _: &mut Demands) -> Result<(), ControlError> {
        Ok(())
    }
}

impl SamplerCursor for NoisyCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        self.0.score(&[0]).remove(0)
    }
    fn sample(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        let answers = self.0.request(rows, Want::Row).wait();
        others();
        let one = |(answer, key): (RowResult<Answer>, &DrawKey)| {
            if key.particle == 0 && key.step == self.1.fails_in {
                return Err(ControlError::new(ErrorKind::Row, "no logits"));
            }
            let Some(drawn) = chooser.draw(&answer?.into_row(), self.1.vocab().eos_position(), key) else {
                return Ok(Sampled::DEAD);
            };
            let noise = chooser.draw(&Row::dense([0.5_f64.ln(), 0.5_f64.ln()]), 9, key).unwrap();
            let factor = f64::from(noise.token.0) + 0.5;
            Ok(Sampled { token: Some(drawn.token), logw: drawn.log_mass + factor.ln(), logp: None })
        };
        answers.into_iter().zip(keys).map(one).collect()
    }
    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        others();
        let weights = self.0.probe(rows, vec![vec![EOS]; rows.len()]);
        weights.into_iter().map(|weights| Ok(weights?[0])).collect()
    }
    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status> {
        let spans: Vec<&[TokenId]> = tokens.iter().map(std::slice::from_ref).collect();
        self.0.advance(rows, &spans)
    }
    fn select(&mut self, ancestors: &[usize]) {
        self.0.select(ancestors);
    }
    fn release(&mut self, rows: &[usize]) {
        self.0.release(rows);
    }
}

#[test]
fn smc_30_weights_that_are_random_given_the_token_are_those_of_the_draw() {
    let noisy = smc(noisy(), Some(critic()));
    for (ess_threshold, max_tokens, z) in [(0.0, 3, 10.0), (1.0, 3, 10.0), (1.0, 2, 6.0)] {
        assert_unbiased(&noisy, &options(2, ess_threshold, max_tokens), z);
    }
    // Weights drawn anew for the path, each noise as likely as any other, would bias the estimate.
    let options = options(1, 0.0, 3);
    let paths = paths(&noisy, &options);
    let inverse = |path: &Retained| {
        let run = noisy.conditional(path, &options).unwrap();
        (-run.finish().unwrap().log_ml()).exp()
    };
    let mean_inverse: f64 = paths
        .iter()
        .map(|(path, mass)| {
            let anew: Vec<f64> = paths
                .iter()
                .filter(|(other, _)| other.tokens() == path.tokens())
                .map(|(other, _)| inverse(other))
                .collect();
            mass / 10.0 * anew.iter().sum::<f64>() / anew.len() as f64
        })
        .sum();
    assert!((mean_inverse - 0.1).abs() > 1e-3, "{mean_inverse}");
}

#[test]
fn smc_30_a_path_whose_row_fails_ends_the_run() {
    let options = options(4, 0.5, 3);
    let drawn = smc(noisy(), None).run(&options).unwrap();
    let i = (0..4).find(|i| drawn.contexts()[*i].len() > 2).unwrap();
    let failing = smc(Noisy { fails_in: 2, ..noisy() }, None);
    let run = failing.conditional(&drawn.retained(i).unwrap(), &options).unwrap();
    assert!(run.finish().unwrap_err().to_string().starts_with("retained: its weight is -inf after step 2"));
}

const TEXTS: [&str; 5] = ["a", "b", "c", "ab", "$"];

fn llm() -> (Arc<PromptedLlm>, Arc<lockstep_engine::testkit::ForwardLog>) {
    let model = ScriptedModel::new(5, |history: &[TokenId]| {
        let seen = |t: u32| history.iter().filter(|token| token.0 == t).count() as f32;
        (0..5).map(|t| 0.3 * seen(t) + if t == 4 { 0.2 * history.len() as f32 - 2.0 } else { 0.0 }).collect()
    });
    let log = model.log();
    let engine = Engine::start(model, EngineConfig::default());
    (Arc::new(PromptedLlm::new(engine, vocabulary(&TEXTS, &[4]), &[TokenId(0)]).unwrap()), log)
}

fn constraint() -> Arc<dyn Potential> {
    let fsa = BoolFsa::from_regex("[abc]{2,9}").unwrap();
    Arc::new(Coerced::new(Arc::new(fsa), vocabulary(&TEXTS, &[4])).unwrap())
}

#[test]
fn smc_30_a_forced_step_weighs_as_the_draw_did_and_shares_its_forward() {
    let (llm, log) = llm();
    let target = lockstep_control::Product::new(llm.clone(), constraint()).unwrap();
    let smc = smc(Direct::new(Arc::new(target)), None);
    let options = options(8, 0.0, 9);
    let drawn = smc.run(&options).unwrap();
    for i in 0..8 {
        let path = drawn.retained(i).unwrap();
        assert_eq!(path.increments().unwrap().len(), path.tokens().len());
        let before = log.forwards();
        let mut run = smc.conditional(&path, &SmcOptions { seed: Some(2), ..options.clone() }).unwrap();
        let steps = run.by_ref().map(Result::unwrap).count();
        assert_eq!(log.forwards() - before, steps as u64);
        let (context, weight) = (&run.sequences().contexts()[0].clone(), run.sequences().log_weights()[0]);
        assert_eq!(context, path.tokens());
        assert_eq!(weight.to_bits(), drawn.log_weights()[i].to_bits());
    }
}

#[test]
fn smc_30_the_path_keeps_its_slot_and_gets_the_weight_of_all() {
    let (llm, _) = llm();
    let critic = PromptedLlm::spawn(&llm, &[TokenId(2), TokenId(1)]).unwrap();
    let smc = smc(Direct::new(llm), Some(Arc::new(critic)));
    let options = options(8, 1.0, 9);
    let drawn = smc.run(&options).unwrap();
    let longest = (0..8).max_by_key(|i| drawn.contexts()[*i].len()).unwrap();
    let path = drawn.retained(longest).unwrap();
    let mut run = smc.conditional(&path, &options).unwrap();
    let (mut resampled, mut copies) = (0, 0);
    while let Some(step) = run.next() {
        let sequences = run.sequences();
        assert!(path.tokens().starts_with(&sequences.contexts()[0]));
        if let Some(ancestors) = step.unwrap().ancestors {
            resampled += 1;
            assert!(ancestors[0] == 0 && ancestors.len() == 8 && ancestors.is_sorted());
            copies += ancestors[1..].iter().filter(|ancestor| **ancestor == 0).count();
            let weights = sequences.log_weights();
            assert!(weights.iter().all(|weight| (weight - weights[0]).abs() < 1e-12), "{weights:?}");
        }
    }
    assert!(resampled > 2 && copies > 0, "{resampled} {copies}");
    assert_eq!(run.sequences().contexts()[0], path.tokens());
}

fn refusal(smc: &Smc, path: &Retained, options: &SmcOptions) -> String {
    let error = smc.conditional(path, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    error.to_string()
}

#[test]
fn smc_30_awrs_paths_carry_their_increments_or_are_refused() {
    let (llm, log) = llm();
    let awrs = smc(Awrs::new(llm, constraint(), AwrsOptions::default()).unwrap(), None);
    let options = options(6, 0.0, 9);
    let drawn = awrs.run(&options).unwrap();
    let path = drawn.retained(0).unwrap();
    let bare = Retained::new(path.tokens().to_vec());
    assert!(refusal(&awrs, &bare, &options).starts_with("retained: has no increments"));
    let short = bare.with_increments(vec![0.0]);
    assert!(refusal(&awrs, &short, &options).starts_with("retained: has 1 increments for "));

    let before = log.forwards();
    let mut run = awrs.conditional(&path, &options).unwrap();
    let steps = run.by_ref().map(Result::unwrap).count();
    assert_eq!(log.forwards() - before, steps as u64);
    assert_eq!(run.sequences().contexts()[0], path.tokens());
    assert_eq!(run.sequences().log_weights()[0].to_bits(), drawn.log_weights()[0].to_bits());

    // An end that was forced has no weight of a draw.
    let limit = SmcOptions { max_tokens: 3, ..options.clone() };
    let forced = awrs.run(&limit).unwrap();
    let i = (0..6).find(|i| forced.contexts()[*i].len() == 3 && forced.retained(*i).is_ok()).unwrap();
    let path = forced.retained(i).unwrap();
    assert!(refusal(&awrs, &path, &options).contains("was ended by max_tokens = 3"));
    assert_eq!(awrs.conditional(&path, &limit).unwrap().finish().unwrap().contexts()[0], path.tokens());
}

#[test]
fn smc_30_paths_that_cannot_be_retained() {
    let smc = smc(Direct::new(target()), Some(critic()));
    let path = |ids: &[u32]| Retained::new(tokens(ids));
    let given = options(2, 0.5, 3);
    for (path, refused) in [
        (Retained::new(vec![TokenId(0)]), "retained: does not end in EOS"),
        (Retained::new(vec![]), "retained: does not end in EOS"),
        (Retained::new(vec![TokenId(0), EOS, EOS]), "retained: EOS is no token"),
        (path(&[0, 7]), "retained: 7 is no token"),
        (path(&[0, 0, 0]), "retained: is 4 tokens long"),
    ] {
        let message = refusal(&smc, &path, &given);
        assert!(message.starts_with(refused), "{message}");
    }
    for scheme in [Resampling::Stratified, Resampling::Systematic, Resampling::Residual] {
        let message = refusal(&smc, &path(&[0]), &SmcOptions { resampling: scheme, ..given.clone() });
        assert!(message.starts_with("resampling_method: ") && message.contains(&scheme.to_string()));
    }
    let ends: TerminateWhen = Arc::new(|context| context.len() == 1);
    let ended = SmcOptions { terminate_when: Some(ends), ..given.clone() };
    assert_eq!(refusal(&smc, &path(&[0, 0]), &ended), "retained: terminate_when ends it after 1 tokens");
    assert!(smc.conditional(&path(&[0]), &ended).is_ok());
    assert!(
        refusal(&smc, &path(&[0]), &SmcOptions { n_particles: 0, ..given.clone() }).contains("n_particles")
    );

    // Without mass under the target, the proposal or the critic.
    let death =
        |smc: &Smc, path: &Retained| smc.conditional(path, &given).unwrap().finish().unwrap_err().to_string();
    assert!(death(&smc, &path(&[1, 0])).starts_with("retained: its weight is -inf after step 2"));
    let proposal = WeightedSet::new("01", &[("0", 1.0), ("00", 1.0)]).potential();
    let proposed = self::smc(Direct::with_proposal(target(), proposal).unwrap(), None);
    assert!(death(&proposed, &path(&[1])).starts_with("retained: its weight is -inf after step 1"));
    let strict = WeightedSet::new("01", &[("0", 1.0)]).potential();
    let criticised = self::smc(Direct::new(target()), Some(strict));
    assert!(death(&criticised, &path(&[0, 0])).starts_with("retained: its weight is -inf after step 2"));
}

#[test]
fn particles_that_are_dead_or_unfinished_give_no_path() {
    let smc = smc(Direct::new(target()), None);
    let mut run = smc.start(&options(2, 0.5, 3)).unwrap();
    run.next().unwrap().unwrap();
    let message = run.sequences().retained(0).unwrap_err().to_string();
    assert_eq!(message, "particle 0 cannot be retained: it has not ended");
    let message = run.sequences().retained(2).unwrap_err().to_string();
    assert_eq!(message, "particle 2 cannot be retained: there is no such particle");
    let dead = lockstep_control::Sequences::new(vec![tokens(&[0])], vec![f64::NEG_INFINITY]).unwrap();
    assert!(dead.retained(0).unwrap_err().to_string().ends_with("its weight is -inf"));
    // A population that no run made has no increments.
    let given = lockstep_control::Sequences::new(vec![tokens(&[0])], vec![0.0]).unwrap();
    assert_eq!(given.retained(0).unwrap(), Retained::new(tokens(&[0])));
}

/// Draws nothing.
struct Forbidden;

impl Chooser for Forbidden {
    fn keyed(&self) -> Option<DrawMethod> {
        None
    }
    fn draw(&mut self, _: &Row, _: usize, _: &DrawKey) -> Option<Drawn> {
        panic!("a forced step draws nothing")
    }
    fn ancestors(&mut self, _: Resampling, _: &[f64], _: &DrawKey) -> Vec<usize> {
        panic!("slot 0 is not resampled")
    }
}

/// Every token and the end weigh the same.
struct Even(Arc<Vocabulary>);

impl SequencePotential for Even {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.0
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok(-(context.len() as f64))
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        self.prefix(context)
    }
}

#[test]
fn smc_30_a_forced_step_at_150_000_tokens_draws_from_no_chart() {
    let entry = |i: u32| TokenEntry { bytes: i.to_le_bytes().to_vec(), special: false };
    let vocab = Vocabulary::new((0..150_000).map(entry).collect(), EosSet::new([])).unwrap();
    let even: Arc<dyn Potential> = Arc::new(FromSequences::new(Even(vocab)));
    for sampler in
        [Direct::new(Arc::clone(&even)), Direct::with_proposal(even.clone(), even.clone()).unwrap()]
    {
        let smc = smc(sampler, None);
        let path = Retained::new(tokens(&[149_999, 7]));
        let run = smc.conditional_with(&path, &options(1, 1.0, 5), Box::new(Forbidden)).unwrap();
        let sequences = run.finish().unwrap();
        assert_eq!(sequences.contexts()[0], path.tokens());
        let step = (150_000.0 * (-1.0_f64).exp() + 1.0).ln();
        assert!((sequences.log_weights()[0] - 3.0 * step).abs() < 1e-9);
    }
}

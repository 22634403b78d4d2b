//! The population loop against brute force: on small languages every run, with every outcome of
//! every draw and resampling, is enumerated, and each sequence gets its exact mass on average.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

#[path = "shared/leaves.rs"]
mod leaves;

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_control::potential::{Claims, FromSequences, Potential, SequencePotential};
use lockstep_control::smc::TerminateWhen;
use lockstep_control::testkit::{Enumerator, WeightedSet};
use lockstep_control::{Chooser, ControlError, Direct, Resampling, Retained, Smc, SmcOptions};
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, POPULATION, ProblemKey, TokenId};
use proptest::prelude::*;

use leaves::leaves;

/// All strings of up to two characters.
const STRINGS: [&str; 7] = ["", "a", "b", "aa", "ab", "ba", "bb"];
const SCHEMES: [Resampling; 4] =
    [Resampling::Multinomial, Resampling::Stratified, Resampling::Systematic, Resampling::Residual];

fn set(weights: &[u8; 7]) -> WeightedSet {
    let weighted: Vec<(&str, f64)> = STRINGS.into_iter().zip(weights.map(f64::from)).collect();
    WeightedSet::new("ab", &weighted)
}

/// A critic that scores complete sequences only.
struct TerminalOnly(WeightedSet);

impl SequencePotential for TerminalOnly {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.0.vocab()
    }
    fn claims(&self) -> Claims {
        Claims { terminal_only: true, ..Claims::default() }
    }
    fn prefix(&self, _: &[TokenId]) -> Result<f64, ControlError> {
        Ok(0.0)
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        self.0.complete(context)
    }
}

#[derive(Clone, Copy, Debug)]
enum CriticKind {
    None,
    Twisting,
    TerminalOnly,
}

#[derive(Clone, Debug)]
struct Case {
    target: [u8; 7],
    critic: [u8; 7],
    kind: CriticKind,
    proposal: Option<[u8; 7]>,
    /// Ends a sequence once it is one of these strings.
    ends: Option<[bool; 7]>,
    max_tokens: usize,
    ess_threshold: f64,
}

fn spell(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(u32::from(byte - b'a'))).collect()
}

impl Case {
    fn terminate_when(&self) -> Option<TerminateWhen> {
        let ends = self.ends?;
        Some(Arc::new(move |context| (0..7).any(|i| ends[i] && spell(STRINGS[i]) == context)))
    }

    fn smc(&self) -> Smc {
        let target: Arc<dyn Potential> = set(&self.target).potential();
        let sampler = match &self.proposal {
            None => Direct::new(target),
            Some(proposal) => Direct::with_proposal(target, set(proposal).potential()).unwrap(),
        };
        let critic: Option<Arc<dyn Potential>> = match self.kind {
            CriticKind::None => None,
            CriticKind::Twisting => Some(set(&self.critic).potential()),
            CriticKind::TerminalOnly => Some(Arc::new(FromSequences::new(TerminalOnly(set(&self.critic))))),
        };
        Smc::new(Arc::new(sampler), critic).unwrap()
    }

    fn options(&self, n: usize, scheme: Resampling) -> SmcOptions {
        SmcOptions {
            n_particles: n,
            ess_threshold: self.ess_threshold,
            max_tokens: self.max_tokens,
            resampling: scheme,
            seed: Some(1),
            terminate_when: self.terminate_when(),
            ..SmcOptions::default()
        }
    }

    /// The mass of each sequence, from the definition.
    fn masses(&self) -> BTreeMap<Vec<TokenId>, f64> {
        let (target, critic) = (set(&self.target), set(&self.critic));
        let ends = self.terminate_when();
        let ended =
            |context: &[TokenId]| !context.is_empty() && ends.as_ref().is_some_and(|ends| ends(context));
        let mut masses = BTreeMap::new();
        for text in STRINGS {
            let context = spell(text);
            let early = (1..context.len()).any(|n| ended(&context[..n]));
            if early || context.len() >= self.max_tokens {
                continue;
            }
            let own = if ended(&context) { target.prefix(&context) } else { target.complete(&context) };
            let factor = match self.kind {
                CriticKind::None => 0.0,
                _ => critic.complete(&context).unwrap(),
            };
            let mass = (own.unwrap() + factor).exp();
            if mass > 0.0 {
                masses.insert([context, vec![TokenId::EOS]].concat(), mass);
            }
        }
        masses
    }
}

/// The mean over all runs of the mass that the population gives each sequence.
fn mean_masses(case: &Case, n: usize, scheme: Resampling) -> BTreeMap<Vec<TokenId>, f64> {
    let (smc, options) = (case.smc(), case.options(n, scheme));
    let mut means = BTreeMap::new();
    leaves(
        |chooser| smc.start_with(&options, chooser).unwrap(),
        |run, p| {
            for (context, weight) in run.sequences().iter().filter(|(_, weight)| *weight > f64::NEG_INFINITY)
            {
                *means.entry(context.to_vec()).or_insert(0.0) += p * weight.exp() / n as f64;
            }
        },
    );
    means
}

fn assert_masses(actual: &BTreeMap<Vec<TokenId>, f64>, expected: &BTreeMap<Vec<TokenId>, f64>, what: &str) {
    for context in actual.keys().chain(expected.keys()) {
        let [a, e] = [actual, expected].map(|masses| masses.get(context).copied().unwrap_or(0.0));
        assert!((a - e).abs() < 1e-9 * e.max(1.0), "{what}: {context:?} has {a}, not {e}");
    }
}

fn case() -> impl Strategy<Value = Case> {
    let weights = |least: u8| prop::array::uniform7(least..4_u8);
    let kind = prop::sample::select(vec![CriticKind::None, CriticKind::Twisting, CriticKind::TerminalOnly]);
    (
        weights(0).prop_filter("a language has mass", |weights| weights.iter().any(|weight| *weight > 0)),
        weights(0),
        kind,
        prop::option::weighted(0.3, weights(1)),
        prop::option::weighted(0.3, prop::array::uniform7(any::<bool>())),
        1..=3_usize,
        prop::sample::select(vec![0.0, 0.5, 0.8, 0.9, 0.99, 1.0]),
    )
        .prop_map(|(target, critic, kind, proposal, ends, max_tokens, ess_threshold)| Case {
            target,
            critic,
            kind,
            proposal,
            ends,
            max_tokens,
            ess_threshold,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_sequence_gets_its_mass_on_average(case in case(), scheme in prop::sample::select(SCHEMES.to_vec())) {
        let expected = case.masses();
        for n in 1..=2 {
            assert_masses(&mean_masses(&case, n, scheme), &expected, &format!("{n} particles, {scheme}"));
        }
    }

    #[test]
    fn conditional_runs_on_exact_paths_have_the_inverse_mass_on_average(case in case()) {
        // Times the probability that a plain run has any weight at all, 1 unless all can die.
        let masses = case.masses();
        let z: f64 = masses.values().sum();
        let (smc, options) = (case.smc(), case.options(2, Resampling::Multinomial));
        let (mut mean, mut alive) = (0.0, 0.0);
        leaves(
            |chooser| smc.start_with(&options, chooser).unwrap(),
            |run, p| alive += if run.sequences().log_ml() > f64::NEG_INFINITY { p } else { 0.0 },
        );
        for (tokens, mass) in &masses {
            let path = Retained::new(tokens.clone());
            leaves(
                |chooser| smc.conditional_with(&path, &options, chooser).unwrap(),
                |run, p| mean += mass / z * p * (-run.sequences().log_ml()).exp(),
            );
        }
        prop_assert!(masses.is_empty() || (mean * z - alive).abs() < 1e-9, "{mean} for {z}, {alive}");
    }
}

/// Uneven weights, a critic that changes its mind, and three particles, so that schemes differ.
fn uneven() -> Case {
    Case {
        target: [1, 3, 2, 1, 3, 0, 2],
        critic: [3, 1, 0, 3, 1, 2, 3],
        kind: CriticKind::Twisting,
        proposal: None,
        ends: None,
        max_tokens: 3,
        ess_threshold: 1.0,
    }
}

#[test]
fn three_particles_under_every_scheme() {
    let case = Case { max_tokens: 2, ..uneven() };
    for scheme in SCHEMES {
        assert_masses(&mean_masses(&case, 3, scheme), &case.masses(), &scheme.to_string());
    }
}

/// The enumeration of a scheme is the scheme: frequencies over keys agree with its probabilities.
/// 20,000 keys: a frequency has a standard deviation of at most .0036, and .018 is five of them, so
/// a false alarm has odds below 1e-4 over all outcomes. The keys are fixed.
#[test]
fn the_enumerated_outcomes_of_a_scheme_have_its_frequencies() {
    let weights = [0.55, 0.25, 0.0, 0.2];
    let unused = DrawKey::new(ProblemKey::new(0, 0), POPULATION, 0, 0);
    for scheme in SCHEMES {
        let enumerator = Enumerator::default();
        let mut outcomes: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
        loop {
            let ancestors = enumerator.start().ancestors(scheme, &weights, &unused);
            *outcomes.entry(ancestors).or_insert(0.0) += enumerator.log_probability().exp();
            if !enumerator.next_leaf() {
                break;
            }
        }
        let total: f64 = outcomes.values().sum();
        assert!((total - 1.0).abs() < 1e-12 && outcomes.len() > 1, "{scheme}: {outcomes:?}");
        for step in 0..20_000 {
            let key = DrawKey::new(ProblemKey::new(5, 0), POPULATION, step, 0);
            let ancestors = scheme.ancestors(&weights, &mut |position| key.uniform(position));
            *outcomes.get_mut(&ancestors).unwrap() -= 1.0 / 20_000.0;
        }
        assert!(outcomes.values().all(|difference| difference.abs() < 0.018), "{scheme}: {outcomes:?}");
    }
}

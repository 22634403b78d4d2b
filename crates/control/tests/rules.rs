//! Rules of the population loop at its edges.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

#[path = "shared/listener.rs"]
mod listener;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockstep_control::potential::{FromSequences, Potential, SequencePotential};
use lockstep_control::smc::TerminateWhen;
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{ControlError, Direct, ErrorKind, Smc, SmcOptions};
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, POPULATION, ProblemKey, TokenId};
use tracing::Level;

use listener::Listener;

const EOS: TokenId = TokenId::EOS;

/// Any string of `a` and `b`: each next token and the end weigh the same.
struct Any<F>(Arc<Vocabulary>, F);

impl<F: Fn(&[TokenId], bool) -> Result<f64, ControlError> + Send + Sync> SequencePotential for Any<F> {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.0
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        (self.1)(context, false)
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        (self.1)(context, true)
    }
}

fn potential<F>(weigh: F) -> Arc<dyn Potential>
where
    F: Fn(&[TokenId], bool) -> Result<f64, ControlError> + Send + Sync + 'static,
{
    let vocab = Arc::clone(WeightedSet::new("ab", &[]).vocab());
    Arc::new(FromSequences::new(Any(vocab, weigh)))
}

fn smc(critic: Option<Arc<dyn Potential>>) -> Smc {
    Smc::new(Arc::new(Direct::new(potential(|_, _| Ok(0.0)))), critic).unwrap()
}

fn options(n: usize, max_tokens: usize) -> SmcOptions {
    SmcOptions { n_particles: n, max_tokens, seed: Some(4), ..SmcOptions::default() }
}

#[test]
fn smc_02_the_condition_sees_each_context_once_and_never_one_that_has_ended() {
    let seen: Arc<Mutex<Vec<Vec<TokenId>>>> = Arc::default();
    let log = Arc::clone(&seen);
    let ends: TerminateWhen = Arc::new(move |context| {
        log.lock().unwrap().push(context.to_vec());
        context.len() == 3
    });
    let sequences = smc(None)
        .run(&SmcOptions { terminate_when: Some(ends), ess_threshold: 0.0, ..options(40, 9) })
        .unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|context| !context.is_empty() && !context.contains(&EOS)));
    // Every token of every particle, and nothing else.
    let tokens: usize = sequences.contexts().iter().map(|context| context.len() - 1).sum();
    assert_eq!(seen.len(), tokens);
    assert!(sequences.contexts().iter().any(|context| context.len() == 4));
    assert!(sequences.contexts().iter().all(|context| context.len() <= 4 && context.last() == Some(&EOS)));
    // Three draws among two tokens and the end, each of weight 3; no correction for the end.
    for (context, weight) in sequences.iter() {
        let draws = context.len().min(3);
        assert!((weight - draws as f64 * 3_f64.ln()).abs() < 1e-12);
    }
}

#[test]
fn smc_02_a_condition_met_at_the_limit_changes_nothing() {
    // With one token left the end is forced, and the condition is not asked.
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let ends: TerminateWhen = Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        true
    });
    let options = SmcOptions { terminate_when: Some(ends), ..options(3, 1) };
    let sequences = smc(None).run(&options).unwrap();
    assert_eq!(sequences.contexts(), vec![vec![EOS]; 3]);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn smc_02_a_sequence_that_a_condition_ends_is_settled_as_complete() {
    let asked: Arc<Mutex<Vec<(usize, bool)>>> = Arc::default();
    let log = Arc::clone(&asked);
    let critic = potential(move |context, complete| {
        log.lock().unwrap().push((context.len(), complete));
        Ok(if complete { -1.0 } else { -5.0 * context.len() as f64 })
    });
    let ends: TerminateWhen = Arc::new(|_| true);
    let options = SmcOptions { terminate_when: Some(ends), ..options(8, 9) };
    let sequences = smc(Some(critic)).run(&options).unwrap();
    // One step: token and end together, or the end alone; only complete weights count.
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|(length, complete)| *complete || *length == 0), "{asked:?}");
    assert!(sequences.contexts().iter().any(|context| context.len() == 2));
    assert!(sequences.log_weights().iter().all(|weight| (weight - (3_f64.ln() - 1.0)).abs() < 1e-12));
}

#[test]
fn a_step_that_fails_leaves_the_population_as_it_was() {
    let failing = |at: usize| {
        potential(move |context, _| match context.len() == at {
            true => Err(ControlError::new(ErrorKind::Custom, "too long")),
            false => Ok(-0.7 * context.iter().filter(|token| token.0 == 1).count() as f64),
        })
    };
    let options = SmcOptions { ess_threshold: 0.9, ..options(20, 9) };
    let mut whole = smc(Some(failing(100))).start(&options).unwrap();
    let mut broken = smc(Some(failing(3))).start(&options).unwrap();
    for _ in 0..2 {
        whole.next().unwrap().unwrap();
        broken.next().unwrap().unwrap();
    }
    assert_eq!(broken.next().unwrap().unwrap_err().to_string(), "too long");
    assert!(broken.next().is_none());
    assert_eq!(broken.sequences(), whole.sequences());
}

#[test]
fn picks_from_the_final_population_have_a_key_of_their_own() {
    let sequences = smc(None).run(&SmcOptions { problem: 6, ..options(5, 4) }).unwrap();
    let key = DrawKey::new(ProblemKey::new(4, 6), POPULATION, 0, 1);
    assert_eq!(sequences.pick_key(), Some(key));
    assert_eq!(sequences.sample(9, &sequences.pick_key().unwrap()).len(), 9);
    assert_eq!(lockstep_control::Sequences::new(vec![], vec![]).unwrap().pick_key(), None);
}

#[test]
fn what_a_run_says_is_told_to_who_listens_and_changes_nothing() {
    let critic = || {
        potential(|context, _| match context {
            [TokenId(1)] => Err(ControlError::new(ErrorKind::Row, "unusable")),
            _ => Ok(0.0),
        })
    };
    let quiet = smc(Some(critic())).run(&options(12, 4)).unwrap();
    let listener = Listener::default();
    let loud = tracing::subscriber::with_default(listener.clone(), || {
        smc(Some(critic())).run(&options(12, 4)).unwrap()
    });
    assert_eq!(loud, quiet);
    assert!(loud.n_failed() > 0);
    let said = listener.said();
    let count = |level: Level| said.iter().filter(|said| **said == level).count();
    assert_eq!(count(Level::WARN), loud.n_failed());
    assert!(count(Level::DEBUG) > 1);
    assert_eq!(count(Level::TRACE), 12 * count(Level::DEBUG));
}

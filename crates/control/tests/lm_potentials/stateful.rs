//! Potentials made of states that read symbol by symbol.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockstep_control::potential::{Claims, ParticleState, Potential, Run, Stateful, Status};
use lockstep_control::testkit::{
    Tolerance, assert_claims, assert_contract, assert_cursor, assert_soundness, assert_sparse, words,
};
use lockstep_control::{ControlError, ErrorKind};
use lockstep_engine::TokenId;
use lockstep_engine::vocab::Vocabulary;

use crate::support::{DEAD, and_strangers, assert_equal, bytes, function, members, vocabulary};

/// What states were asked, all together.
#[derive(Default)]
struct Count {
    read: AtomicUsize,
    cloned: AtomicUsize,
}

/// Balanced parentheses: each level halves the weight, the end needs all of them closed.
struct Depth {
    depth: u32,
    weight: f64,
    count: Arc<Count>,
}

impl ParticleState for Depth {
    fn update(&mut self, new: &[TokenId]) -> Result<(), ControlError> {
        self.count.read.fetch_add(new.len(), Ordering::SeqCst);
        for token in new {
            match u8::try_from(token.0) {
                Ok(b'(') => (self.depth, self.weight) = (self.depth + 1, self.weight - 2.0_f64.ln()),
                Ok(b')') if self.depth > 0 => self.depth -= 1,
                Ok(b')') => self.weight = DEAD,
                Ok(b'!') => panic!("no exclamations"),
                Ok(b'?') => return Err(ControlError::new(ErrorKind::Custom, "no questions")),
                Ok(b'n') => self.weight = f64::NAN,
                _ => {}
            }
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<(), ControlError> {
        if self.depth > 0 {
            self.weight = DEAD;
        }
        Ok(())
    }
    fn score(&self) -> f64 {
        self.weight
    }
    fn clone_box(&self) -> Box<dyn ParticleState> {
        self.count.cloned.fetch_add(1, Ordering::SeqCst);
        Box::new(Self { count: Arc::clone(&self.count), ..*self })
    }
}

fn parentheses(claims: Claims) -> (Stateful, Arc<Count>) {
    let count = Arc::<Count>::default();
    let of = Arc::clone(&count);
    let start = move || -> Box<dyn ParticleState> {
        Box::new(Depth { depth: 0, weight: 0.0, count: Arc::clone(&of) })
    };
    (Stateful::new(Vocabulary::bytes(), claims, start).unwrap(), count)
}

#[test]
fn states_keep_the_contract_and_agree_with_whole_contexts() {
    let claims = Claims { tight: true, monotone: true, ..Claims::default() };
    let (potential, _) = parentheses(claims);
    let reference = function(&Vocabulary::bytes(), claims, |context, ended| {
        let (mut depth, mut weight) = (0_i32, 0.0);
        for token in context {
            match token.0 as u8 {
                b'(' => (depth, weight) = (depth + 1, weight - 2.0_f64.ln()),
                b')' if depth > 0 => depth -= 1,
                b')' => weight = DEAD,
                _ => {}
            }
        }
        if ended && depth > 0 { DEAD } else { weight }
    });
    let symbols = bytes("(a)");
    let contexts = words(&symbols, 3);
    // Other bytes make this state fail or panic, so rows are only compared where it does not.
    let small = vocabulary(&["x"], &[], &[]);
    let few =
        Stateful::new(small, claims, || Box::new(Depth { depth: 0, weight: 0.0, count: Arc::default() }));
    let few = few.unwrap();
    assert_contract(&few, &words(&members(few.vocab()), 3), Tolerance::EXACT);
    assert_sparse(&few, &words(&members(few.vocab()), 3));
    for seed in 0..6 {
        let symbols = and_strangers(&members(few.vocab()), few.vocab());
        assert_cursor(&few, &symbols, 60, seed, Tolerance::WEIGHTED);
    }
    let run = Run::default();
    for context in &contexts {
        let values = |potential: &dyn Potential| {
            let mut cursor = potential.open(1, &run).unwrap();
            let _ = cursor.advance(&[0], &[context]);
            let probed = cursor.probe(&[0], vec![[symbols.as_slice(), &[TokenId::EOS]].concat()]);
            (
                cursor.score(&[0]).remove(0).unwrap(),
                cursor.complete(&[0]).remove(0).unwrap(),
                probed[0].clone().unwrap(),
            )
        };
        assert_eq!(values(&potential), values(&*reference), "{context:?}");
    }
    assert_soundness(&potential, &symbols, 3);
    assert_claims(&potential, &symbols, 3, 3, Tolerance::WEIGHTED);
    assert_equal(&few, &few.clone(), &words(&members(few.vocab()), 2), Tolerance::EXACT);
}

#[test]
fn potentials_16_a_hundred_steps_of_one_byte_read_a_hundred_bytes() {
    let (potential, count) = parentheses(Claims::default());
    let mut cursor = potential.open(1, &Run::default()).unwrap();
    for step in 0..100 {
        let _ = cursor.advance(&[0], &[&bytes(if step % 2 == 0 { "(" } else { ")" })]);
        assert!(cursor.score(&[0]).remove(0).unwrap() < 0.0);
    }
    assert_eq!(count.read.load(Ordering::SeqCst), 100);
    assert_eq!(count.cloned.load(Ordering::SeqCst), 0, "nobody shares the row's state");
}

#[test]
fn a_state_is_cloned_only_where_copies_part() {
    let (potential, count) = parentheses(Claims::default());
    let cloned = || count.cloned.load(Ordering::SeqCst);
    let mut cursor = potential.open(1, &Run::default()).unwrap();
    let _ = cursor.advance(&[0], &[&bytes("((")]);
    cursor.select(&[0, 0, 0, 0]);
    let fork = cursor.fork(&[0, 1]);
    assert_eq!(cloned(), 0, "a selection copies bookkeeping only");
    drop(fork);
    let _ = cursor.advance(&[2], &[&bytes(")")]);
    assert_eq!(cloned(), 1);
    let _ = cursor.advance(&[2], &[&bytes(")")]);
    assert_eq!(cloned(), 1, "it has a state of its own now");
    let complete: Vec<f64> = cursor.complete(&[0, 2]).into_iter().map(Result::unwrap).collect();
    assert_eq!(complete, [DEAD, -4.0_f64.ln()]);
}

#[test]
fn what_goes_wrong_in_a_state_is_its_rows_error() {
    let (potential, _) = parentheses(Claims::default());
    let mut cursor = potential.open(4, &Run::default()).unwrap();
    let spans = ["!", "?", "n", "("].map(bytes);
    let spans: Vec<&[TokenId]> = spans.iter().map(Vec::as_slice).collect();
    let rows = [0, 1, 2, 3];
    let statuses = cursor.advance(&rows, &spans);
    let texts: Vec<String> = statuses
        .iter()
        .map(|status| match status {
            Status::Failed(error) => error.to_string(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        texts,
        [
            "the potential panicked: no exclamations",
            "no questions",
            "a state's score is NaN: a log-weight is finite or -inf",
            "Live",
        ]
    );
    let scores = cursor.score(&rows);
    assert!(scores[..3].iter().all(Result::is_err) && scores[3].is_ok());
    let dead =
        || -> Box<dyn ParticleState> { Box::new(Depth { depth: 0, weight: DEAD, count: Arc::default() }) };
    let refused = Stateful::new(Vocabulary::bytes(), Claims::default(), dead).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Contract);
}

#[test]
fn a_row_that_has_ended_keeps_its_weight() {
    let (potential, _) = parentheses(Claims::default());
    let mut cursor = potential.open(1, &Run::default()).unwrap();
    let ended = [bytes("()").as_slice(), &[TokenId::EOS]].concat();
    assert!(matches!(cursor.advance(&[0], &[&ended])[..], [Status::Live]));
    assert!(matches!(cursor.advance(&[0], &[&bytes("(")])[..], [Status::Failed(_)]));
    assert_eq!(cursor.score(&[0]).remove(0).unwrap(), -2.0_f64.ln());
    assert!(cursor.complete(&[0]).remove(0).is_err());
}

//! What breaks a law is caught, by the assertion of that law.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_control::ControlError;
use lockstep_control::potential::{
    Answer, Claims, Cursor, Potential, Row, RowResult, Run, Status, Ticket, Want,
};
use lockstep_control::testkit::{
    Tolerance, WeightedSet, assert_autoreg_fact, assert_batch_consistency, assert_claims, assert_cursor,
    assert_logw_next_consistency, assert_soundness, assert_sparse, assert_tight, words,
};
use lockstep_engine::testkit::vocabulary;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use crate::support::{DEAD, function, ids};

/// What an assertion panics with.
fn violation(assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).expect_err("a broken law is caught");
    *panic.downcast::<String>().expect("the kit's message")
}

fn assert_violates(law: &str, assertion: impl FnOnce()) {
    let message = violation(assertion);
    assert!(message.starts_with(&format!("{law} is violated after [")), "{message}");
}

fn ab() -> Arc<Vocabulary> {
    vocabulary(&["a", "b"], &[])
}

/// A potential over a and b with a claim, by a function of the sequence and whether it has ended.
fn claiming(
    claims: Claims,
    weigh: impl Fn(&[TokenId], bool) -> f64 + Send + Sync + 'static,
) -> Arc<dyn Potential> {
    function(&ab(), claims, weigh)
}

#[test]
fn values_that_no_weight_may_be_are_caught() {
    for value in [f64::INFINITY, f64::NAN] {
        let potential =
            claiming(
                Claims::default(),
                move |context, ended| {
                    if !ended && context == ids(&[0, 1]) { value } else { 0.0 }
                },
            );
        assert_violates("logw_next consistency", || {
            assert_logw_next_consistency(&*potential, &words(&ids(&[0, 1]), 1), Tolerance::MODEL);
        });
    }
    let empty = claiming(Claims::default(), |_, _| DEAD);
    assert_violates("logw_next consistency", || {
        assert_logw_next_consistency(&*empty, &[vec![]], Tolerance::MODEL);
    });
}

#[test]
fn a_value_that_changes_from_call_to_call_is_caught() {
    let calls = AtomicU64::new(0);
    let potential = claiming(Claims::default(), move |_, _| calls.fetch_add(1, Ordering::SeqCst) as f64);
    assert_violates("logw_next consistency", || {
        assert_logw_next_consistency(&*potential, &[vec![]], Tolerance::WEIGHTED);
    });
    assert_violates("batch consistency", || assert_batch_consistency(&*potential, &[vec![], vec![]]));
}

#[test]
fn an_unsound_potential_is_caught() {
    let extension = claiming(Claims::default(), |context, _| if context == ids(&[0]) { DEAD } else { 0.0 });
    assert_violates("soundness", || assert_soundness(&*extension, &ids(&[0, 1]), 2));
    let completion =
        claiming(
            Claims::default(),
            |context, ended| {
                if !ended && context.contains(&TokenId(1)) { DEAD } else { 0.0 }
            },
        );
    assert_violates("soundness", || assert_soundness(&*completion, &ids(&[0, 1]), 2));
    assert_soundness(&*completion, &ids(&[0]), 3);
}

#[test]
fn a_live_prefix_without_completion_is_caught() {
    let claims = Claims { tight: true, ..Claims::default() };
    // After b it goes on for ever; after a it ends with aab.
    let potential = claiming(claims, |context, ended| {
        let ends = context == ids(&[0, 0, 1]);
        let live = context.contains(&TokenId(1)) && !context.contains(&TokenId(0))
            || ids(&[0, 0, 1]).starts_with(context);
        if live && (!ended || ends) { 0.0 } else { DEAD }
    });
    assert_tight(&*potential, &ids(&[0, 1]), 0, 3);
    assert_violates("tightness", || assert_tight(&*potential, &ids(&[0, 1]), 0, 2));
    assert_violates("tightness", || assert_tight(&*potential, &ids(&[0, 1]), 1, 5));
    assert_violates("tightness", || {
        assert_claims(&*potential, &ids(&[0, 1]), 1, 5, Tolerance::EXACT);
    });
}

#[test]
fn false_claims_are_caught() {
    let none = Claims::default();
    let length = |context: &[TokenId]| context.len() as f64;
    let cases = [
        ("boolean", Claims { boolean: true, ..none }, claiming(none, move |c, _| -length(c))),
        (
            "boolean",
            Claims { boolean: true, ..none },
            claiming(none, |_, ended| if ended { -1.0 } else { 0.0 }),
        ),
        // Two tokens and the end, each of weight ½.
        (
            "mass-exact",
            Claims { mass_exact: true, ..none },
            claiming(none, move |c, ended| (length(c) + f64::from(u8::from(ended))) * 0.5_f64.ln()),
        ),
        (
            "monotone",
            Claims { monotone: true, ..none },
            claiming(none, move |c, _| if c.len() > 1 { 0.5 } else { 0.0 }),
        ),
        ("terminal-only", Claims { terminal_only: true, ..none }, claiming(none, move |c, _| -length(c))),
        (
            "terminal-only",
            Claims { terminal_only: true, ..none },
            claiming(none, |c, _| if c.contains(&TokenId(1)) { DEAD } else { 0.0 }),
        ),
    ];
    for (name, claims, potential) in cases {
        // What it does not claim is not asked.
        assert_claims(&*potential, &ids(&[0, 1]), 2, 2, Tolerance::WEIGHTED);
        let claimant = Faulty { inner: potential, claims, fault: Fault::None };
        assert_violates(&format!("the claim {name}"), || {
            assert_claims(&claimant, &ids(&[0, 1]), 2, 2, Tolerance::WEIGHTED);
        });
    }
}

#[test]
fn a_broken_cursor_is_caught() {
    let symbols = ids(&[0, 1]);
    let set = || WeightedSet::new("ab", &[("", 1.0), ("a", 2.0), ("ab", 3.0), ("bb", 0.5)]).potential();
    let faulty = |fault| Faulty { inner: set(), claims: Claims::default(), fault };
    assert_cursor(&faulty(Fault::None), &symbols, 60, 1, Tolerance::WEIGHTED);
    for fault in [Fault::Row, Fault::Probe] {
        assert_violates("logw_next consistency", || {
            assert_logw_next_consistency(&faulty(fault), &words(&symbols, 1), Tolerance::WEIGHTED);
        });
    }
    assert_violates("autoregressive factorisation", || {
        assert_autoreg_fact(&faulty(Fault::Row), &words(&symbols, 1), Tolerance::WEIGHTED);
    });
    assert_violates("batch consistency", || {
        assert_batch_consistency(&faulty(Fault::Batch), &words(&symbols, 1));
    });
    assert_sparse(&faulty(Fault::None), &words(&symbols, 2));
    let faults = [
        (Fault::Unlisted, "is not listed, but the weight after it is"),
        (Fault::Dead, "is listed, but dead"),
        (Fault::Order, "is listed after"),
        (Fault::Mask, "the mask has position 0 wrong"),
    ];
    for (fault, says) in faults {
        let message = violation(|| assert_sparse(&faulty(fault), &words(&symbols, 2)));
        assert!(message.starts_with("sparseness is violated after [") && message.contains(says), "{message}");
    }
    for fault in [Fault::Select, Fault::Fork, Fault::Release, Fault::Status, Fault::Score] {
        assert_violates("agreement of cursor and whole contexts", || {
            assert_cursor(&faulty(fault), &symbols, 60, 1, Tolerance::WEIGHTED);
        });
    }
}

/// What a [`Faulty`] cursor does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Rows are a little off.
    Row,
    /// Probes are a little off.
    Probe,
    /// The last bits of a row depend on how many rows were asked for.
    Batch,
    /// The last live entry is left out of rows.
    Unlisted,
    /// A dead entry is listed.
    Dead,
    /// Rows list their entries backwards.
    Order,
    /// Masks allow the second position alone.
    Mask,
    /// Selection turns the ancestors around.
    Select,
    /// A fork turns its rows around.
    Fork,
    /// Released rows live on.
    Release,
    /// Every row is said to be live.
    Status,
    /// Row 0 is scored as row 1.
    Score,
}

/// A potential whose cursor has a fault.
struct Faulty {
    inner: Arc<dyn Potential>,
    claims: Claims,
    fault: Fault,
}

struct FaultyCursor {
    inner: Box<dyn Cursor>,
    row_len: usize,
    fault: Fault,
}

impl Potential for Faulty {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.inner.vocab()
    }
    fn claims(&self) -> Claims {
        self.claims
    }
    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let (inner, row_len) = (self.inner.open(n, run)?, self.inner.vocab().row_len());
        Ok(Box::new(FaultyCursor { inner, row_len, fault: self.fault }))
    }
}

/// A sparse row of what lives, but for the fault; none for faults of other kinds.
fn listing(weights: &[f64], fault: Fault) -> Option<Row> {
    let mut listed: Vec<usize> = (0..weights.len()).filter(|at| weights[*at] > DEAD).collect();
    match fault {
        Fault::Unlisted => drop(listed.pop()),
        Fault::Dead => {
            listed.extend((0..weights.len()).find(|at| weights[*at] == DEAD));
            listed.sort_unstable();
        }
        Fault::Order => listed.reverse(),
        _ => return None,
    }
    let positions: Vec<u32> = listed.iter().map(|at| *at as u32).collect();
    Some(Row::sparse(positions, listed.iter().map(|at| weights[*at]).collect::<Vec<f64>>()))
}

impl FaultyCursor {
    fn reversed(&self, rows: &[usize], fault: Fault) -> Vec<usize> {
        if self.fault == fault { rows.iter().rev().copied().collect() } else { rows.to_vec() }
    }
}

impl Cursor for FaultyCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let off = match (self.fault, &want) {
            (Fault::Row, Want::Row) | (Fault::Probe, Want::Tokens(_)) => 1e-6,
            (Fault::Batch, _) => (rows.len() - 1) as f64 * f64::EPSILON,
            _ => 0.0,
        };
        let (row_len, fault) = (self.row_len, self.fault);
        let answers = self.inner.request(rows, want).wait().into_iter().map(move |answer| {
            Ok(match answer? {
                Answer::Row(row) => {
                    let weights = (0..row_len).map(|at| row.at(at) + off).collect::<Vec<f64>>();
                    Answer::Row(listing(&weights, fault).unwrap_or_else(|| Row::dense(weights)))
                }
                Answer::Tokens(weights) => Answer::Tokens(weights.into_iter().map(|w| w + off).collect()),
                other => other,
            })
        });
        Ticket::ready(answers.collect())
    }
    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        let second = || Arc::new(Bitset::from_ids(self.row_len, [1]));
        (self.fault == Fault::Mask).then(|| rows.iter().map(|_| second()).collect())
    }
    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let statuses = self.inner.advance(rows, spans);
        if self.fault == Fault::Status { vec![Status::Live; rows.len()] } else { statuses }
    }
    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let swap = |row: &usize| {
            if self.fault == Fault::Score && *row == 0 && self.inner.len() > 1 { 1 } else { *row }
        };
        let rows: Vec<usize> = rows.iter().map(swap).collect();
        self.inner.score(&rows)
    }
    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.complete(rows)
    }
    fn select(&mut self, ancestors: &[usize]) {
        let ancestors = self.reversed(ancestors, Fault::Select);
        self.inner.select(&ancestors);
    }
    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        let inner = self.inner.fork(&self.reversed(rows, Fault::Fork));
        Box::new(Self { inner, row_len: self.row_len, fault: self.fault })
    }
    fn release(&mut self, rows: &[usize]) {
        if self.fault != Fault::Release {
            self.inner.release(rows);
        }
    }
}

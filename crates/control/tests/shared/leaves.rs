//! Runs under every choice that they may make.

use lockstep_control::testkit::Enumerator;
use lockstep_control::{Chooser, SmcRun};

/// Every leaf of the tree of a run's choices: the run at its end, and the leaf's probability.
pub(crate) fn leaves(start: impl Fn(Box<dyn Chooser>) -> SmcRun, mut see: impl FnMut(SmcRun, f64)) {
    let enumerator = Enumerator::default();
    let mut total = 0.0;
    loop {
        let mut run = start(Box::new(enumerator.start()));
        run.by_ref().for_each(|step| assert!(step.is_ok(), "{step:?}"));
        let p = enumerator.log_probability().exp();
        total += p;
        see(run, p);
        if !enumerator.next_leaf() {
            break;
        }
    }
    assert!((total - 1.0).abs() < 1e-12, "{total}");
}

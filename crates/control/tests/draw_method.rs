//! The draw method of the process, in a process of its own.
#![allow(clippy::unwrap_used)] // also in the helpers of tests

use lockstep_control::testkit::WeightedSet;
use lockstep_control::{Direct, SmcOptions, TokenSampler, draw_method, set_draw_method};
use lockstep_sample::{DRAW_METHODS, DrawMethod};

#[test]
fn the_process_has_a_default_draw_method() {
    let set = WeightedSet::new("ab", &[("a", 1.0), ("ab", 2.0), ("bb", 3.0), ("", 1.0)]).potential();
    let run = |draw_method| {
        let seeded = SmcOptions { n_particles: 30, seed: Some(6), ..SmcOptions::default() };
        let options = match draw_method {
            None => seeded,
            Some(draw_method) => SmcOptions { draw_method, ..seeded },
        };
        Direct::new(set.clone()).smc(None, &options).unwrap()
    };
    assert_eq!((draw_method(), SmcOptions::default().draw_method), (DrawMethod::GumbelMax, draw_method()));
    let (before, expected) = (run(None), run(Some(DrawMethod::InverseCdf)));
    assert_ne!(before, expected);

    let error = set_draw_method("softmax").unwrap_err().to_string();
    assert!(DRAW_METHODS.iter().all(|name| error.contains(name)) && error.contains("`softmax`"), "{error}");
    assert_eq!(run(None), before);

    set_draw_method("inverse_cdf").unwrap();
    assert_eq!(draw_method(), DrawMethod::InverseCdf);
    assert_eq!(run(None), expected);
    // Who names a method gets it.
    assert_eq!(run(Some(DrawMethod::GumbelMax)), before);
}

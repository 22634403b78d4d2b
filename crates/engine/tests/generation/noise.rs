//! Seeds: the same noise whatever shares the batch.

use std::num::NonZero;

use lockstep_engine::{Engine, EngineConfig, RowSpec, RowStream};

use crate::support::{alone, config, mixed, model, result, spec, start, together};

fn seeded() -> RowSpec {
    RowSpec { ignore_eos: true, ..spec(42, 7, 12) }
}

#[test]
fn b_26_a_seeded_row_draws_the_same_in_every_batch() {
    let reference = alone(seeded());
    for threads in [1, 2, 8] {
        for n in [1, 3, 8, 31] {
            let config = EngineConfig { threads: NonZero::new(threads), ..config() };
            let engine = Engine::start(model(), config);
            let mut specs: Vec<RowSpec> = (0..n).map(mixed).collect();
            specs.insert(n as usize / 2, seeded());
            assert_eq!(together(&engine, specs)[n as usize / 2], reference);
            // Again, with its prompt stored.
            let again = engine.submit(vec![seeded()]).unwrap().remove(0).wait();
            assert_eq!((result(&again), again.finished.usage.cached_tokens), (reference.clone(), 6));
        }
    }
}

#[test]
fn b_26_a_seeded_row_joins_late_and_its_neighbours_leave() {
    let reference = alone(seeded());
    let engine = start();
    let long = |which| RowSpec { ignore_eos: true, ..spec(which, 4, 500) };
    let mut others = engine.submit((0..5).map(long).collect()).unwrap();
    for other in &mut others {
        other.next();
        other.next();
    }
    let stream = engine.submit(vec![seeded()]).unwrap().remove(0);
    let mut ids = Vec::new();
    for event in stream {
        if let lockstep_engine::RowEvent::Token(token) = event {
            ids.push(token.token);
        }
        others.pop();
    }
    assert_eq!(ids, reference.ids);
}

#[test]
fn b_27_rows_without_a_seed_differ_and_seed_0_is_a_seed() {
    let engine = start();
    let unseeded = || RowSpec { seed: None, ignore_eos: true, ..spec(1, 3, 40) };
    let zero = || RowSpec { seed: Some(0), ..unseeded() };
    let specs = vec![unseeded(), unseeded(), zero(), unseeded(), zero()];
    let generated: Vec<_> = engine.submit(specs).unwrap().into_iter().map(RowStream::wait).collect();
    let ids: Vec<_> = generated.iter().map(lockstep_engine::Generated::ids).collect();
    assert!(ids[0] != ids[1] && ids[2] != ids[3] && ids[0] != ids[2]);
    assert_eq!(ids[2], ids[4]);
    // The seed that a row was given draws the same again.
    let told = RowSpec { seed: Some(generated[0].finished.seed), ..unseeded() };
    assert_eq!(alone(told).ids, ids[0]);
    assert_eq!(generated[2].finished.seed, 0);
}

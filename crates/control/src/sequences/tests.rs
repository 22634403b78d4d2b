use super::*;

const DEAD: f64 = f64::NEG_INFINITY;
/// Bytes of the tokens of these tests; tokens 0 and 4 are equal in bytes.
const BYTES: [&[u8]; 5] = [b"a", b"b", &[0xC3], &[0xA9], b"a"];

fn bytes(token: TokenId) -> &'static [u8] {
    BYTES[token.index()]
}

fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

/// As [`tokens`], with EOS.
fn finished(ids: &[u32]) -> Vec<TokenId> {
    [tokens(ids), vec![TokenId::EOS]].concat()
}

fn sequences(particles: &[(Vec<TokenId>, f64)]) -> Sequences {
    let (contexts, log_weights) = particles.iter().cloned().unzip();
    Sequences::new(contexts, log_weights).unwrap()
}

fn assert_distribution<T: PartialEq + std::fmt::Debug>(actual: &[(T, f64)], expected: &[(T, f64)]) {
    assert_eq!(actual.len(), expected.len(), "{actual:?}");
    for (a, e) in actual.iter().zip(expected) {
        assert!(a.0 == e.0 && (a.1 - e.1).abs() < 1e-12, "{actual:?} for {expected:?}");
    }
}

#[test]
fn smc_23_decoded_posterior() {
    let text = |s: &str, p: f64| (s.to_owned(), p);

    let far = sequences(&[(finished(&[0]), -800.0), (finished(&[1]), -801.0)]);
    let odds = 1.0 / (1.0 + (-1.0_f64).exp());
    assert!((odds - 0.731_058_6).abs() < 5e-8 && (1.0 - odds - 0.268_941_4).abs() < 5e-8);
    assert_distribution(&far.decoded_posterior(bytes), &[text("a", odds), text("b", 1.0 - odds)]);

    let ln = f64::ln;
    let middle =
        sequences(&[(finished(&[0]), ln(4.0)), (finished(&[0, 2]), ln(2.0)), (finished(&[1]), ln(4.0))]);
    assert_distribution(&middle.decoded_posterior(bytes), &[text("a", 0.5), text("b", 0.5)]);

    let end = sequences(&[(finished(&[]), -3.0), (finished(&[]), -4.0)]);
    assert_distribution(&end.decoded_posterior(bytes), &[text("", 1.0)]);

    let unfinished = sequences(&[(tokens(&[0]), 0.0), (tokens(&[]), 0.0)]);
    assert!(unfinished.decoded_posterior(bytes).is_empty());
}

#[test]
fn smc_25_no_particles() {
    let none = sequences(&[]);
    assert!(none.is_empty() && none.size() == 0 && none.iter().next().is_none());
    assert!(none.posterior().is_empty() && none.decoded_posterior(bytes).is_empty());
    assert_eq!([none.log_total(), none.log_ml(), none.log_ess()], [DEAD; 3]);
    assert_eq!(none.ess(), 0.0);
    assert!(none.normalized_weights().is_empty() && none.log_normalized_weights().is_empty());
}

#[test]
fn smc_25_no_weight() {
    let dead = sequences(&[(finished(&[0]), DEAD), (tokens(&[]), DEAD)]);
    assert_eq!(dead.len(), 2);
    assert!(dead.posterior().is_empty() && dead.decoded_posterior(bytes).is_empty());
    assert_eq!([dead.log_total(), dead.log_ml(), dead.log_ess()], [DEAD; 3]);
    assert_eq!(dead.ess(), 0.0);
    assert_eq!(dead.normalized_weights(), [0.0; 2]);
    assert_eq!(dead.log_normalized_weights(), [DEAD; 2]);
    let key = DrawKey::new(ProblemKey::new(1, 0), POPULATION, 0, 1);
    assert!(dead.sample(3, &key).is_empty());
}

#[test]
fn posterior_sums_duplicates_and_keeps_order_in_ties() {
    let population = sequences(&[
        (finished(&[1]), 0.0),
        (finished(&[4]), 0.0),
        (finished(&[2]), DEAD),
        (finished(&[0]), 0.0),
        (tokens(&[0]), 1.0_f64.ln()),
        (finished(&[0]), 2.0_f64.ln()),
    ]);
    assert_distribution(
        &population.posterior(),
        &[
            (finished(&[0]), 0.5),
            (finished(&[1]), 1.0 / 6.0),
            (finished(&[4]), 1.0 / 6.0),
            (tokens(&[0]), 1.0 / 6.0),
        ],
    );
    // Tokens 0 and 4 are two tokens and one text.
    assert_distribution(
        &population.decoded_posterior(bytes),
        &[("a".to_owned(), 0.8), ("b".to_owned(), 0.2)],
    );
}

#[test]
fn text_is_decoded_across_tokens() {
    let population = sequences(&[(finished(&[2, 3]), -1.0)]);
    assert_distribution(&population.decoded_posterior(bytes), &[("é".to_owned(), 1.0)]);
}

#[test]
fn an_undecodable_giant_does_not_flush_the_rest_to_zero() {
    let population = sequences(&[(finished(&[2]), 0.0), (finished(&[0]), -800.0)]);
    assert_distribution(&population.decoded_posterior(bytes), &[("a".to_owned(), 1.0)]);
}

#[test]
fn weights_and_members() {
    let population = sequences(&[(finished(&[0]), -1e6), (tokens(&[1]), -1e6 - 1.0)]);
    assert_eq!(population.get(1), Some((&tokens(&[1])[..], -1e6 - 1.0)));
    assert_eq!(population.get(2), None);
    assert_eq!(population.iter().len(), 2);
    assert_eq!(population.iter().next(), population.get(0));
    let p = 1.0 / (1.0 + (-1.0_f64).exp());
    assert!((population.normalized_weights()[0] - p).abs() < 1e-12);
    assert!((population.log_normalized_weights()[1] - (1.0 - p).ln()).abs() < 1e-12);
    assert!((population.ess() - 1.0 / (p * p + (1.0 - p) * (1.0 - p))).abs() < 1e-12);
    assert!((population.log_ess() - population.ess().ln()).abs() < 1e-12);
    assert!((population.log_ml() - (population.log_total() - 2.0_f64.ln())).abs() < 1e-9);

    assert_eq!((population.seed(), population.n_resamples(), population.n_failed()), (None, 0, 0));
    let noted = population.with_seed(7).with_n_resamples(3).with_n_failed(2);
    assert_eq!((noted.seed(), noted.n_resamples(), noted.n_failed()), (Some(7), 3, 2));
}

#[test]
fn columns_that_make_no_population_are_refused() {
    let error = Sequences::new(vec![tokens(&[0])], vec![]).unwrap_err();
    assert_eq!(error, SequencesError::Lengths { contexts: 1, log_weights: 0 });
    for weight in [f64::NAN, f64::INFINITY] {
        let error = Sequences::new(vec![tokens(&[0]); 2], vec![0.0, weight]).unwrap_err();
        assert_eq!(error, SequencesError::Weight { index: 1 });
    }
}

/// 40,000 picks: a frequency has a standard deviation of at most .0025, so a bound of .0125 is
/// five of them, odds of a false alarm below 2e-6. The key is fixed.
#[test]
fn picks_follow_the_weights() {
    let weights = [0.2, 0.0, 0.5, 0.3_f64];
    let particles: Vec<_> = weights.map(|w| (finished(&[0]), w.ln() - 5000.0)).to_vec();
    let population = sequences(&particles);
    let key = DrawKey::new(ProblemKey::new(11, 0), POPULATION, 0, 1);
    let picks = population.sample(40_000, &key);
    for (i, w) in weights.into_iter().enumerate() {
        let frequency = picks.iter().filter(|&&pick| pick == i).count() as f64 / 40_000.0;
        assert!((frequency - w).abs() < 0.0125, "{i}: {frequency}");
    }
    assert!(!picks.contains(&1));
    // Pick i does not depend on how many are drawn.
    assert_eq!(population.sample(10, &key), picks[..10]);
    assert!(!picks.is_sorted());
}

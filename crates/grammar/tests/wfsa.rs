//! Weighted automata, against sums over paths.
#![allow(clippy::unwrap_used)] // also in the helpers of tests

use lockstep_grammar::{Dfa, Forward, Limits, RegexErrorKind, RegexOptions, WeightedArc, Wfsa};
use proptest::prelude::*;

fn arc(from: u32, byte: u8, to: u32, weight: f64) -> WeightedArc {
    WeightedArc { from, byte, to, log_weight: weight.ln() }
}

fn read(wfsa: &Wfsa, text: &[u8]) -> Forward {
    text.iter().fold(wfsa.start().clone(), |forward, &byte| wfsa.next(&forward, byte))
}

fn prefix(wfsa: &Wfsa, text: &[u8]) -> f64 {
    read(wfsa, text).log_total()
}

fn complete(wfsa: &Wfsa, text: &[u8]) -> f64 {
    wfsa.complete(&read(wfsa, text))
}

fn assert_close(actual: f64, expected: f64) {
    let close = actual == expected || (actual - expected).abs() <= 1e-9 * (1.0 + expected.abs());
    assert!(close, "{actual} is not {expected}");
}

/// All texts of at most `max_len` of the bytes.
fn texts(bytes: &[u8], max_len: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..max_len {
        let end = all.len();
        for i in begin..end {
            all.extend(bytes.iter().map(|byte| [&all[i], &[*byte][..]].concat()).collect::<Vec<_>>());
        }
        begin = end;
    }
    all
}

#[test]
fn potentials_01_a_dead_end_weighs_nothing() {
    let arcs = [arc(0, b'a', 1, 2.0), arc(1, b'b', 2, 1.0), arc(1, b'c', 2, 1.0), arc(1, b'd', 3, 1.0)];
    let wfsa = Wfsa::from_arcs(&arcs, &[(0, 0.0)], &[(2, 0.0)]).unwrap();
    assert_close(prefix(&wfsa, b"a"), 4.0_f64.ln());
    assert_close(prefix(&wfsa, b"ab"), 2.0_f64.ln());
    assert_close(complete(&wfsa, b"ab"), 2.0_f64.ln());
    assert_eq!(complete(&wfsa, b"a"), f64::NEG_INFINITY);
    assert_eq!(prefix(&wfsa, b"ad"), f64::NEG_INFINITY);
    assert_eq!(prefix(&wfsa, b"c"), f64::NEG_INFINITY);
    assert_eq!(wfsa.state_count(), 3);
    assert_eq!(wfsa.support(&Limits::default()).unwrap(), Dfa::from_strings(["ab", "ac"]).unwrap());
}

#[test]
fn potentials_02_each_option_of_a_state_is_as_likely_as_the_others() {
    let build = |pattern| Wfsa::from_regex(pattern, &RegexOptions::default()).unwrap();
    let wfsa = build("a(b|c)");
    assert_close(complete(&wfsa, b"ab"), 0.5_f64.ln());
    assert_eq!(prefix(&wfsa, b"a"), 0.0);
    // 99 of the printable characters are no line feed; with stopping there are 100 options.
    assert_close(complete(&build("."), b"~"), -99.0_f64.ln());
    assert_close(complete(&build(".*"), b"a b"), -4.0 * 100.0_f64.ln());
    assert_close(complete(&build(r"[\s\S]"), b"\x0b"), -100.0_f64.ln());
    assert_eq!(prefix(&build(r"\w"), "é".as_bytes()), f64::NEG_INFINITY);
    assert_close(complete(&build(r"\w"), b"_"), -63.0_f64.ln());
}

#[test]
fn options_are_characters_however_many_bytes_they_have() {
    let characters = ['a', 'é', 'è', 'ê', '—', '…', '𝄞', '𝄢', '-'];
    let charset: String = characters.iter().collect();
    let options = RegexOptions { charset: Some(charset), ..Default::default() };
    for pattern in [".*", r"\w+—?", "[^a]{2}(é|𝄞)*", "(?!é)..?", "(aé)*[è-ê…]?"] {
        let wfsa = Wfsa::from_regex(pattern, &options).unwrap();
        let dfa = Dfa::from_regex(pattern, &options).unwrap();
        let step = |state, c: char| {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().try_fold(state, |state, byte| dfa.next(state, byte))
        };
        // (text, its state, the product of 1/K over its steps)
        let mut frontier = vec![(String::new(), dfa.start(), 1.0_f64)];
        for _ in 0..=3 {
            let mut longer = Vec::new();
            for (text, state, weight) in frontier {
                let onward: Vec<_> = characters.iter().filter_map(|&c| Some((c, step(state, c)?))).collect();
                let options = (onward.len() + usize::from(dfa.is_final(state))) as f64;
                assert_close(prefix(&wfsa, text.as_bytes()), weight.ln());
                let ended = if dfa.is_final(state) { (weight / options).ln() } else { f64::NEG_INFINITY };
                assert_close(complete(&wfsa, text.as_bytes()), ended);
                longer.extend(onward.iter().map(|(c, to)| (format!("{text}{c}"), *to, weight / options)));
            }
            frontier = longer;
        }
        assert_eq!(wfsa.support(&Limits::default()).unwrap(), dfa, "{pattern}");
    }
}

#[test]
fn tiny_and_huge_weights_neither_vanish_nor_overflow() {
    let arc = |from, byte, to, log_weight| WeightedArc { from, byte, to, log_weight };
    let arcs = [
        arc(0, b'a', 1, -700.0),
        arc(1, b'a', 2, -700.0),
        arc(2, b'a', 0, 1390.0), // the cycle weighs e^-10
        arc(2, b'b', 3, -5000.0),
    ];
    let wfsa = Wfsa::from_arcs(&arcs, &[(0, 0.0)], &[(3, -1e5)]).unwrap();
    let once = -1400.0 - 5000.0 - 1e5;
    let rounds = -(-(-10.0_f64).exp()).ln_1p(); // 1 / (1 - e^-10)
    assert_close(prefix(&wfsa, b""), once + rounds);
    assert_close(complete(&wfsa, b"aab"), once);
    assert_close(prefix(&wfsa, b"aaa"), once + rounds - 10.0);
    let steps: f64 = wfsa.log_shares(&read(&wfsa, b"aa")).iter().map(|(_, share)| share.exp()).sum();
    assert_close(steps, 1.0);
}

#[test]
fn divergence_names_a_state_and_weights_are_checked() {
    let build = |arcs: &[WeightedArc]| Wfsa::from_arcs(arcs, &[(7, 0.0)], &[(9, 0.0)]);
    let way = arc(7, b'x', 9, 1.0);
    for arcs in [
        &[way, arc(9, b'a', 9, 1.0)][..],
        &[way, arc(9, b'a', 9, 1.5)],
        &[way, arc(9, b'a', 9, 0.5), arc(9, b'b', 9, 0.5)],
        &[way, arc(9, b'a', 5, 2.0), arc(5, b'a', 9, 0.6)],
        &[way, arc(9, b'a', 5, 0.5), arc(5, b'a', 9, 0.5), arc(9, b'b', 9, 0.75)],
    ] {
        let error = build(arcs).unwrap_err();
        assert_eq!(error.kind(), RegexErrorKind::Divergent, "{arcs:?}");
        let message = error.to_string();
        assert!(message.contains("state 9") || message.contains("state 5"), "{message}");
    }
    // A cycle that no accepted text meets harms nobody.
    let dead = [way, arc(7, b'a', 3, 1.0), arc(3, b'a', 3, 9.0), arc(4, b'a', 4, 9.0), arc(4, b'a', 9, 1.0)];
    assert_close(prefix(&build(&dead).unwrap(), b""), 0.0);
    for weight in [f64::NAN, f64::INFINITY] {
        let error = build(&[way, WeightedArc { log_weight: weight, ..way }]).unwrap_err();
        assert_eq!(error.kind(), RegexErrorKind::InvalidWeight);
        let error = Wfsa::from_arcs(&[way], &[(7, weight)], &[(9, 0.0)]).unwrap_err();
        assert!(error.to_string().contains("the initial state 7"), "{error}");
    }
    for arcs in [&[][..], &[WeightedArc { log_weight: f64::NEG_INFINITY, ..way }], &[arc(9, b'x', 7, 1.0)]] {
        assert_eq!(build(arcs).unwrap_err().kind(), RegexErrorKind::EmptyLanguage);
    }
}

#[test]
fn long_cycles_and_chains_are_solved_without_recursion() {
    let n = 300;
    let mut arcs: Vec<WeightedArc> = (0..n).map(|i| arc(i, b'a', (i + 1) % n, 1.0)).collect();
    arcs[0].log_weight = 0.5_f64.ln();
    let ring = Wfsa::from_arcs(&arcs, &[(0, 0.0)], &[(0, 0.0)]).unwrap();
    assert_close(prefix(&ring, b""), 2.0_f64.ln());
    let n = 100_000;
    let chain: Vec<WeightedArc> = (0..n).map(|i| arc(i, b'a', i + 1, 0.5)).collect();
    let chain = Wfsa::from_arcs(&chain, &[(0, 0.0)], &[(n, 0.0)]).unwrap();
    assert_close(prefix(&chain, b""), f64::from(n) * 0.5_f64.ln());
}

#[test]
fn the_support_of_a_pattern_is_its_language() {
    for pattern in ["a*b", "(ab|a)(b|)", "[ab]{2,3}", r"\w+-", "(?=.*1)[0-9]+", "x?"] {
        let wfsa = Wfsa::from_regex(pattern, &RegexOptions::default()).unwrap();
        let printable: String = (b' '..=b'~').map(char::from).chain("\t\n\r\x0b\x0c".chars()).collect();
        let options = RegexOptions { charset: Some(printable), ..Default::default() };
        let dfa = Dfa::from_regex(pattern, &options).unwrap();
        assert_eq!(wfsa.support(&Limits::default()).unwrap(), dfa, "{pattern}");
    }
}

const STATES: usize = 4;

/// The sums of a small automaton in plain numbers.
#[derive(Debug)]
struct Plain {
    arcs: Vec<(usize, u8, usize, f64)>,
    initial: Vec<f64>,
    finals: Vec<f64>,
}

impl Plain {
    fn matrix(&self) -> Vec<Vec<f64>> {
        let mut matrix = vec![vec![0.0; STATES]; STATES];
        for &(from, _, to, weight) in &self.arcs {
            matrix[from][to] += weight;
        }
        matrix
    }

    /// States both reachable and reaching acceptance, by repeated looking.
    fn live(&self) -> Vec<bool> {
        let spread = |mut marked: Vec<bool>, forth: bool| {
            for _ in 0..STATES {
                for &(from, _, to, _) in &self.arcs {
                    let (a, b) = if forth { (from, to) } else { (to, from) };
                    marked[b] |= marked[a];
                }
            }
            marked
        };
        let reached = spread(self.initial.iter().map(|weight| *weight > 0.0).collect(), true);
        let reaching = spread(self.finals.iter().map(|weight| *weight > 0.0).collect(), false);
        reached.iter().zip(reaching).map(|(a, b)| *a && b).collect()
    }

    /// The spectral radius of the live part, from the norm of a high power.
    fn radius(&self) -> f64 {
        let live = self.live();
        let mut power = self.matrix();
        for (i, row) in power.iter_mut().enumerate() {
            row.iter_mut().enumerate().for_each(|(j, x)| *x *= f64::from(u8::from(live[i] && live[j])));
        }
        let mut log_norm = 0.0;
        for _ in 0..12 {
            let square = |i: usize, j: usize| (0..STATES).map(|k| power[i][k] * power[k][j]).sum::<f64>();
            let squared: Vec<Vec<f64>> =
                (0..STATES).map(|i| (0..STATES).map(|j| square(i, j)).collect()).collect();
            let norm = squared.iter().flatten().copied().fold(0.0, f64::max);
            if norm == 0.0 {
                return 0.0;
            }
            log_norm = 2.0 * log_norm + norm.ln();
            power = squared.iter().map(|row| row.iter().map(|x| x / norm).collect()).collect();
        }
        (log_norm / f64::from(1 << 12)).exp()
    }

    /// Backward weights, by summing over ever longer texts.
    fn backward(&self) -> Vec<f64> {
        let (matrix, live) = (self.matrix(), self.live());
        let mut sums = vec![0.0; STATES];
        for _ in 0..20_000 {
            sums = (0..STATES)
                .map(|i| {
                    let onward: f64 = (0..STATES).map(|j| matrix[i][j] * sums[j]).sum();
                    if live[i] { self.finals[i] + onward } else { 0.0 }
                })
                .collect();
        }
        sums
    }

    /// The sum over all paths that read `text`, each followed to its end one by one.
    fn paths(&self, state: usize, text: &[u8], ends: &[f64]) -> f64 {
        let Some((&byte, rest)) = text.split_first() else { return ends[state] };
        let arcs = self.arcs.iter().filter(|(from, read, _, _)| *from == state && *read == byte);
        arcs.map(|(_, _, to, weight)| weight * self.paths(*to, rest, ends)).sum()
    }

    fn weight(&self, text: &[u8], ends: &[f64]) -> f64 {
        (0..STATES).map(|state| self.initial[state] * self.paths(state, text, ends)).sum()
    }

    fn build(&self) -> Result<Wfsa, lockstep_grammar::RegexError> {
        let logs = |weights: &[f64]| -> Vec<(u32, f64)> {
            weights.iter().enumerate().map(|(state, weight)| (state as u32, weight.ln())).collect()
        };
        let arcs: Vec<WeightedArc> = self
            .arcs
            .iter()
            .map(|&(from, byte, to, weight)| arc(from as u32, byte, to as u32, weight))
            .collect();
        Wfsa::from_arcs(&arcs, &logs(&self.initial), &logs(&self.finals))
    }
}

fn plain() -> impl Strategy<Value = Plain> {
    let weight = 0.01..0.7_f64;
    let arc = (0..STATES, prop::sample::select(&b"ab"[..]), 0..STATES, weight.clone());
    let ends = || prop::collection::vec(prop_oneof![Just(0.0), weight.clone()], STATES);
    (prop::collection::vec(arc, 1..9), ends(), ends()).prop_map(|(arcs, initial, finals)| Plain {
        arcs,
        initial,
        finals,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn weights_are_sums_over_paths(plain in plain()) {
        if !plain.live().contains(&true) {
            prop_assert_eq!(plain.build().unwrap_err().kind(), RegexErrorKind::EmptyLanguage);
            return Ok(());
        }
        let radius = plain.radius();
        if radius > 1.01 {
            prop_assert_eq!(plain.build().unwrap_err().kind(), RegexErrorKind::Divergent);
            return Ok(());
        }
        prop_assume!(radius < 0.99);
        let wfsa = plain.build().unwrap();
        let backward = plain.backward();
        let support = wfsa.support(&Limits::default()).unwrap();
        for text in texts(b"ab", 4) {
            let forward = read(&wfsa, &text);
            assert_close(forward.log_total(), plain.weight(&text, &backward).ln());
            let ended = wfsa.complete(&forward);
            assert_close(ended, plain.weight(&text, &plain.finals).ln());
            prop_assert_eq!(support.accepts(&text), ended > f64::NEG_INFINITY);
            let shares = wfsa.log_shares(&forward);
            prop_assert!(shares.is_sorted_by(|a, b| a.0 < b.0));
            for (byte, share) in &shares {
                assert_close(forward.log_total() + share, wfsa.next(&forward, *byte).log_total());
            }
            if forward.log_total() > f64::NEG_INFINITY {
                let total: f64 = shares.iter().map(|(_, share)| share.exp()).sum();
                assert_close(total + (ended - forward.log_total()).exp(), 1.0);
            }
        }
    }
}

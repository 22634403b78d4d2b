//! Acceptance cases of the token samplers, through their cursors.

use std::sync::{Arc, Mutex};

use lockstep_control::potential::{Claims, Coerced, FromSequences, Potential, Run, SequencePotential};
use lockstep_control::sampler::{Awrs, AwrsOptions, Direct, Sampled, SamplerCursor, TokenSampler};
use lockstep_control::testkit::{Enumerator, WeightedSet};
use lockstep_control::{
    BoolFsa, Chooser, ControlError, ErrorKind, Keyed, Product, Progress, PromptedLlm, RecursiveWalk,
};
use lockstep_engine::testkit::{ScriptedModel, vocabulary};
use lockstep_engine::vocab::Vocabulary;
use lockstep_engine::{Engine, EngineConfig};
use lockstep_sample::{DrawKey, DrawMethod, GumbelOrder, ProblemKey, TokenId, Weights, math};

const DEAD: f64 = f64::NEG_INFINITY;

fn key(seed: u64, particle: u32, step: u32) -> DrawKey {
    DrawKey::new(ProblemKey::new(seed, 0), particle, step, 0)
}

fn keys(seed: u64, n: u32) -> Vec<DrawKey> {
    (0..n).map(|particle| key(seed, particle, 1)).collect()
}

/// One draw of each of the first rows, one for each key.
fn sample(cursor: &mut dyn SamplerCursor, keys: &[DrawKey], chooser: &mut dyn Chooser) -> Vec<Sampled> {
    let rows: Vec<usize> = (0..keys.len()).collect();
    cursor.sample(&rows, keys, &mut || {}, chooser).into_iter().map(Result::unwrap).collect()
}

/// One keyed draw of the empty sequence for each key.
fn sample_start(sampler: &dyn TokenSampler, keys: &[DrawKey]) -> Vec<Sampled> {
    let mut cursor = sampler.open(keys.len(), &Run::default()).unwrap();
    sample(&mut *cursor, keys, &mut Keyed::default())
}

/// A potential of one token: given next-token log-weights, the end's last. Nothing follows a token.
/// It notes what it is asked about.
struct Table {
    vocab: Arc<Vocabulary>,
    claims: Claims,
    log_weights: Vec<f64>,
    asked: Arc<Mutex<Vec<TokenId>>>,
}

impl Table {
    fn new(vocab: &Arc<Vocabulary>, log_weights: &[f64]) -> Self {
        assert_eq!(vocab.row_len(), log_weights.len());
        let log_weights = log_weights.to_vec();
        Self { vocab: Arc::clone(vocab), claims: Claims::default(), log_weights, asked: Arc::default() }
    }

    /// Accepts the tokens at these positions.
    fn accepting(vocab: &Arc<Vocabulary>, positions: &[usize]) -> Self {
        let mut log_weights = vec![DEAD; vocab.row_len()];
        positions.iter().for_each(|position| log_weights[*position] = 0.0);
        Self { claims: Claims { boolean: true, ..Claims::default() }, ..Self::new(vocab, &log_weights) }
    }

    fn weigh(&self, token: TokenId) -> f64 {
        self.asked.lock().unwrap().push(token);
        self.log_weights[self.vocab.position_of(token)]
    }

    fn potential(self) -> Arc<dyn Potential> {
        Arc::new(FromSequences::new(self))
    }
}

impl SequencePotential for Table {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn claims(&self) -> Claims {
        self.claims
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok(match context {
            [] => 0.0,
            [token] => self.weigh(*token),
            _ => DEAD,
        })
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok(if context.is_empty() { self.weigh(TokenId::EOS) } else { DEAD })
    }
}

/// A vocabulary of `n` tokens; the end is at position `n`.
fn numbered(n: usize) -> Arc<Vocabulary> {
    let texts: Vec<String> = (0..n).map(|i| format!("<{i}>")).collect();
    vocabulary(&texts.iter().map(String::as_str).collect::<Vec<_>>(), &[])
}

/// AWRS over log-weights (the end's last) that accepts some positions.
fn awrs(log_weights: &[f64], accepted: &[usize], options: &AwrsOptions) -> Awrs {
    let vocab = numbered(log_weights.len() - 1);
    let condition = Table::accepting(&vocab, accepted).potential();
    Awrs::new(Table::new(&vocab, log_weights).potential(), condition, options.clone()).unwrap()
}

fn improper(max_rejects: Option<u64>) -> AwrsOptions {
    AwrsOptions { proper_weights: false, max_rejects, ..AwrsOptions::default() }
}

/// Fails unless `LSE(logw + logp)` over all choices is the target's log-weight of each token.
fn assert_exact(sampler: &dyn TokenSampler, target: &dyn Potential, context: &[TokenId]) {
    let run = Run::default();
    let (mut cursor, mut oracle) = (sampler.open(1, &run).unwrap(), target.open(1, &run).unwrap());
    for token in context {
        let _ = cursor.advance(&[0], &[*token]);
        let _ = oracle.advance(&[0], &[&[*token]]);
    }
    let row = oracle.logw_next(&[0]).remove(0).unwrap();
    let mut terms: Vec<Vec<f64>> = vec![Vec::new(); target.vocab().row_len()];
    let enumerator = Enumerator::default();
    loop {
        let drawn = sample(&mut *cursor, &[key(0, 0, 1)], &mut enumerator.start()).remove(0);
        let (Some(token), Some(logp)) = (drawn.token, drawn.logp) else { break };
        assert!((logp - enumerator.log_probability()).abs() < 1e-12, "{drawn:?}");
        terms[target.vocab().position_of(token)].push(drawn.logw + logp);
        if !enumerator.next_leaf() {
            break;
        }
    }
    for (position, terms) in terms.iter().enumerate() {
        let (actual, expected) = (math::log_sum_exp(terms), row.at(position));
        let close = actual == expected || (actual - expected).abs() <= 1e-9 * (1.0 + expected.abs());
        assert!(close, "position {position} after {context:?}: {actual}, target {expected}");
    }
}

/// A model whose logits depend on the last two tokens, over a vocabulary with two ends.
fn model() -> (impl Fn(&[TokenId]) -> Vec<f32> + Clone + Send + 'static, Arc<Vocabulary>) {
    let texts = ["a", "b", "ab", "<end>", "ba", "a", "c", "</s>", "bb", "é"];
    let script = move |history: &[TokenId]| {
        let seen = history.iter().rev().take(2).fold(1, |seen, token| seen * 31 + token.0 + 7);
        (0..texts.len() as u32).map(|i| ((seen * (2 * i + 3)) % 101) as f32 / 25.0 - 2.0).collect()
    };
    (script, vocabulary(&texts, &[3, 7]))
}

/// The model at a temperature, its constraint coerced to its tokens, and their product.
fn constrained(
    pattern: &str,
    temperature: f64,
) -> (Arc<dyn Potential>, Arc<dyn Potential>, Arc<dyn Potential>) {
    let (script, vocab) = model();
    let engine = Engine::start(ScriptedModel::new(vocab.len(), script), EngineConfig::default());
    let llm = PromptedLlm::new(engine, Arc::clone(&vocab), &[TokenId(6)]).unwrap();
    let llm: Arc<dyn Potential> = Arc::new(llm.with_temperature(temperature).unwrap());
    let fsa = Arc::new(BoolFsa::from_regex(pattern).unwrap());
    let constraint: Arc<dyn Potential> = Arc::new(Coerced::new(fsa, vocab).unwrap());
    let product = Arc::new(Product::new(Arc::clone(&llm), Arc::clone(&constraint)).unwrap());
    (llm, constraint, product)
}

#[test]
fn samplers_01_direct_gives_every_sequence_the_same_total_weight() {
    let set = WeightedSet::new("01", &[("0", 3.0), ("00", 2.0), ("1", 1.0)]).potential();
    let sampler = Direct::new(set);
    let mut seen = Vec::new();
    for seed in 0..50 {
        let mut cursor = sampler.open(4, &Run::default()).unwrap();
        let mut totals = vec![cursor.start_weight().unwrap(); 4];
        let mut texts = vec![Vec::new(); 4];
        let mut rows: Vec<usize> = (0..4).collect();
        for step in 1.. {
            let keys: Vec<DrawKey> = rows.iter().map(|row| key(seed, *row as u32, step)).collect();
            let drawn = cursor.sample(&rows, &keys, &mut || {}, &mut Keyed::default());
            let drawn: Vec<Sampled> = drawn.into_iter().map(Result::unwrap).collect();
            let tokens: Vec<TokenId> = drawn.iter().map(|drawn| drawn.token.unwrap()).collect();
            let _ = cursor.advance(&rows, &tokens);
            for (row, drawn) in rows.iter().zip(&drawn) {
                totals[*row] += drawn.logw;
                texts[*row].push(drawn.token.unwrap());
            }
            rows.retain(|row| !texts[*row].last().unwrap().is_eos());
            if rows.is_empty() {
                break;
            }
        }
        assert!(totals.iter().all(|total| (total - 6_f64.ln()).abs() < 1e-12), "{seed}: {totals:?}");
        seen.extend(texts);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "every string is drawn sooner or later");
}

#[test]
fn samplers_01_direct_is_exact_by_enumeration() {
    let set = WeightedSet::new("01", &[("", 0.5), ("0", 3.0), ("00", 2.0), ("1", 1.0)]).potential();
    let sampler = Direct::new(Arc::clone(&set) as Arc<dyn Potential>);
    for context in [&[][..], &[0], &[0, 0], &[1]] {
        let context: Vec<TokenId> = context.iter().map(|id| TokenId(*id)).collect();
        assert_exact(&sampler, &*set, &context);
    }
    for temperature in [1.0, 0.7] {
        let (llm, _, product) = constrained("(ab)*|b+a?", temperature);
        let twice: Arc<dyn Potential> = Arc::new(Product::new(Arc::clone(&product), llm).unwrap());
        for target in [product, twice] {
            let sampler = Direct::new(Arc::clone(&target));
            for context in [&[][..], &[0], &[2], &[8, 4], &[0, 0]] {
                let context: Vec<TokenId> = context.iter().map(|id| TokenId(*id)).collect();
                assert_exact(&sampler, &*target, &context);
            }
        }
    }
}

#[test]
fn samplers_05_one_accepted_token_among_182_always_weighs_its_own() {
    let vocab = numbered(182);
    let mut log_weights = vec![(1.0_f64 / 182.0).ln(); 182];
    log_weights.push(DEAD);
    let potential = Table::new(&vocab, &log_weights).potential();
    for accepted in [0, 77, 181] {
        for max_accepts in 2..=4 {
            let condition = Table::accepting(&vocab, &[accepted]).potential();
            let options = AwrsOptions { max_accepts, ..AwrsOptions::default() };
            let sampler = Awrs::new(Arc::clone(&potential), condition, options).unwrap();
            for drawn in sample_start(&sampler, &keys(accepted as u64, 50)) {
                assert_eq!(drawn.token, Some(TokenId(accepted as u32)));
                assert!((drawn.logw + 5.204_006_687_1).abs() < 5e-11, "{drawn:?}");
            }
        }
    }
}

#[test]
fn samplers_06_extreme_log_weights_keep_their_digits() {
    let rows: [(&[f64], usize, f64); 4] = [
        (&[0.0, -744.4, DEAD], 1, -744.4),
        // The second is the end.
        (&[0.0, -744.4], 1, -744.4),
        (&[-35.756, -2.8e-16, DEAD], 0, -35.756),
        (&[-0.405, -1.099, -35.756, DEAD], 2, -35.756),
    ];
    for (log_weights, accepted, expected) in rows {
        for max_accepts in 2..=4 {
            let options = AwrsOptions { max_accepts, ..AwrsOptions::default() };
            let sampler = awrs(log_weights, &[accepted], &options);
            let token = sampler.vocab().token_at(accepted);
            for drawn in sample_start(&sampler, &keys(6, 100)) {
                assert_eq!(drawn.token, Some(token));
                assert!((drawn.logw - expected).abs() < 1e-9, "{drawn:?}");
            }
        }
    }
}

#[test]
fn samplers_07_a_rare_valid_token_is_found_with_its_weight() {
    let log_weights = [0.6_f64, 0.3, 0.1 - 1e-7, 1e-7, 0.0].map(f64::ln);
    let sampler = awrs(&log_weights, &[3], &AwrsOptions::default());
    for drawn in sample_start(&sampler, &keys(7, 200)) {
        assert_eq!(drawn.token, Some(TokenId(3)));
        assert!((drawn.logw - log_weights[3]).abs() < 1e-9, "{drawn:?}");
    }
}

#[test]
fn samplers_08_nothing_accepted_gives_a_tried_token_of_weight_zero() {
    // The end has so little mass that no walk cut short ever gets to it.
    let log_weights = [0.4_f64.ln(), 0.3_f64.ln(), 0.2_f64.ln(), 0.1_f64.ln(), -500.0];
    for max_rejects in [Some(2), Some(3), None] {
        let proper = AwrsOptions { max_rejects, ..AwrsOptions::default() };
        for options in [proper, improper(max_rejects)] {
            let sampler = awrs(&log_weights, &[], &options);
            for (drawn, key) in sample_start(&sampler, &keys(8, 60)).iter().zip(keys(8, 60)) {
                let order: Vec<usize> = GumbelOrder::new(Weights::dense(&log_weights), &key).collect();
                let last = order[max_rejects.map_or(order.len(), |max| max as usize) - 1];
                assert_eq!(drawn.token, Some(sampler.vocab().token_at(last)));
                assert_eq!(drawn.token.unwrap().is_eos(), max_rejects.is_none());
                assert_eq!((drawn.logw, drawn.logp), (DEAD, None));
            }
        }
    }
}

#[test]
fn samplers_08_a_token_is_probed_before_it_is_returned() {
    let vocab = numbered(4);
    let potential =
        Table::new(&vocab, &[0.4_f64.ln(), 0.3_f64.ln(), 0.2_f64.ln(), 0.05_f64.ln(), 0.05_f64.ln()]);
    let potential = potential.potential();
    for options in [AwrsOptions { max_rejects: Some(2), ..AwrsOptions::default() }, improper(Some(2))] {
        let condition = Table::accepting(&vocab, &[]);
        let asked = Arc::clone(&condition.asked);
        let sampler = Awrs::new(Arc::clone(&potential), condition.potential(), options).unwrap();
        for key in keys(80, 60) {
            asked.lock().unwrap().clear();
            let drawn = sample_start(&sampler, &[key]).remove(0);
            assert!(asked.lock().unwrap().contains(&drawn.token.unwrap()), "{drawn:?}");
        }
    }
}

#[test]
fn samplers_09_a_dead_row_dies_alone() {
    let log_weights = [0.5_f64, 0.3, 0.1, 0.1].map(f64::ln);
    let vocab = numbered(3);
    let potential = Table::new(&vocab, &log_weights).potential();
    let condition = Table::accepting(&vocab, &[1, 3]).potential();
    let samplers: [Box<dyn TokenSampler>; 2] = [
        Box::new(Direct::new(Arc::clone(&potential))),
        Box::new(Awrs::new(potential, condition, AwrsOptions::default()).unwrap()),
    ];
    for sampler in samplers {
        let run = Run::default();
        let mut cursor = sampler.open(16, &run).unwrap();
        let keys = keys(9, 16);
        // Nothing follows a token: row 5 is live, and all its weights are -inf.
        let _ = cursor.advance(&[5], &[TokenId(1)]);
        let together = sample(&mut *cursor, &keys, &mut Keyed::default());
        for (i, drawn) in together.iter().enumerate() {
            let alone = sample_start(&*sampler, &keys[i..=i]).remove(0);
            assert_eq!(*drawn, if i == 5 { Sampled::DEAD } else { alone }, "{i}");
        }
    }
}

#[test]
fn samplers_10_options_have_their_ranges() {
    assert_eq!(AwrsOptions::default().max_rejects, None);
    let vocab = numbered(2);
    let potential = || Table::new(&vocab, &[-1.0, -1.0, -1.0]).potential();
    let condition = || Table::accepting(&vocab, &[1]).potential();
    let proper = AwrsOptions::default();
    for (options, field) in [
        (AwrsOptions { max_accepts: 1, ..proper.clone() }, "max_accepts"),
        (AwrsOptions { max_rejects: Some(1), ..proper.clone() }, "max_rejects"),
        (improper(Some(0)), "max_rejects"),
    ] {
        let error = Awrs::new(potential(), condition(), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().starts_with(field), "{error}");
    }
    let refused = Awrs::new(potential(), potential(), proper.clone()).unwrap_err();
    assert_eq!(refused.to_string(), "condition must be Boolean");
    let other = Table::accepting(&numbered(3), &[1]).potential();
    assert_eq!(Awrs::new(potential(), other, proper).unwrap_err().kind(), ErrorKind::Vocabulary);

    let sampler = awrs(&[-1.0, -1.0, -1.0], &[1], &improper(Some(1)));
    let drawn = sample_start(&sampler, &keys(10, 60));
    for drawn in &drawn {
        assert_eq!(drawn.logw, if drawn.token == Some(TokenId(1)) { 0.0 } else { DEAD });
    }
    assert!(drawn.iter().any(|drawn| drawn.logw == 0.0) && drawn.iter().any(|drawn| drawn.logw == DEAD));
}

#[test]
fn samplers_10_no_limit_is_as_good_as_one_out_of_reach() {
    let log_weights = [0.5_f64, 0.3, 0.1, 0.1].map(f64::ln);
    let unlimited = sample_start(&awrs(&log_weights, &[2], &AwrsOptions::default()), &keys(11, 60));
    let limited = AwrsOptions { max_rejects: Some(u64::MAX), ..AwrsOptions::default() };
    assert_eq!(unlimited, sample_start(&awrs(&log_weights, &[2], &limited), &keys(11, 60)));
}

#[test]
fn a_condition_that_lies_about_being_boolean_is_an_error_of_the_row() {
    let vocab = numbered(2);
    let lying = Table {
        claims: Claims { boolean: true, ..Claims::default() },
        ..Table::new(&vocab, &[-0.5, -0.5, -0.5])
    };
    let sampler =
        Awrs::new(Table::new(&vocab, &[-1.0; 3]).potential(), lying.potential(), AwrsOptions::default());
    let mut cursor = sampler.unwrap().open(1, &Run::default()).unwrap();
    let error = cursor.sample(&[0], &keys(12, 1), &mut || {}, &mut Keyed::default()).remove(0).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Contract, "condition must be Boolean")
    );
}

/// The five positions of case 11: four symbols, the end.
const CASE_11: [f64; 5] = [0.4, 0.3, 0.1, 0.1, 0.1];

/// Calls `visit` with every order of the positions `left` after `order`, and its probability.
fn for_each_order(
    order: &mut Vec<usize>,
    left: &[usize],
    probability: f64,
    visit: &mut dyn FnMut(&[usize], f64),
) {
    if left.is_empty() {
        return visit(order, probability);
    }
    let mass: f64 = left.iter().map(|i| CASE_11[*i]).sum();
    for i in left {
        let rest: Vec<usize> = left.iter().copied().filter(|j| j != i).collect();
        order.push(*i);
        for_each_order(order, &rest, probability * CASE_11[*i] / mass, visit);
        order.pop();
    }
}

#[test]
fn samplers_11_the_expected_weight_is_the_accepted_mass() {
    let log_weights = CASE_11.map(f64::ln);
    let log_z = math::log_sum_exp(&log_weights);
    let walk = |order: &mut dyn Iterator<Item = usize>| {
        let mut walk = RecursiveWalk::new(2, None, &log_weights, log_z);
        while let Some(index) = order.next() {
            if walk.offer(index, index < 2) == Progress::Done {
                break;
            }
        }
        walk.outcome()
    };
    // Exactly, over all orders.
    let (mut mean, mut square) = ([0.0; 5], [0.0; 5]);
    for_each_order(&mut Vec::new(), &[0, 1, 2, 3, 4], 1.0, &mut |order, probability| {
        let outcome = walk(&mut order.iter().copied());
        let (index, s) = (outcome.index.unwrap(), outcome.log_s.exp());
        mean[index] += probability * s;
        square[index] += probability * s * s;
    });
    for (position, expected) in [0.4, 0.3, 0.0, 0.0, 0.0].into_iter().enumerate() {
        assert!((mean[position] - expected).abs() < 1e-12, "{mean:?}");
    }
    assert!((mean.iter().sum::<f64>() - 0.7).abs() < 1e-12);

    // The sampler is that walk, on the order of its key. Over 24 seeds of 500 rows the mean of each
    // token is within 5 standard errors: a false alarm in 10⁶ runs of this test.
    let sampler = awrs(&log_weights, &[0, 1], &AwrsOptions::default());
    let (mut sums, mut n) = ([0.0; 5], 0.0);
    for seed in 0..24 {
        let keys = keys(seed, 500);
        for (drawn, key) in sample_start(&sampler, &keys).into_iter().zip(&keys) {
            let outcome = walk(&mut GumbelOrder::new(Weights::dense(&log_weights), key));
            assert_eq!(drawn.token, outcome.index.map(|index| sampler.vocab().token_at(index)));
            assert_eq!(drawn.logw.to_bits(), (outcome.log_s + log_z).to_bits());
            sums[sampler.vocab().position_of(drawn.token.unwrap())] += drawn.logw.exp();
            n += 1.0;
        }
    }
    for position in 0..5 {
        let deviation: f64 = (square[position] - mean[position] * mean[position]).max(0.0);
        let error = sums[position] / n - mean[position];
        assert!(error.abs() <= 5.0 * (deviation / n).sqrt(), "position {position}: {error}");
    }
}

#[test]
fn samplers_28_rows_draw_alike_together_and_alone() {
    let (llm, constraint, product) = constrained("(ab)*|b+a?", 0.7);
    let samplers: [Box<dyn TokenSampler>; 2] = [
        Box::new(Direct::new(product)),
        Box::new(Awrs::new(llm, constraint, AwrsOptions::default()).unwrap()),
    ];
    for sampler in samplers {
        let keys = keys(28, 16);
        let together = sample_start(&*sampler, &keys);
        let alone: Vec<Sampled> =
            keys.iter().map(|key| sample_start(&*sampler, std::slice::from_ref(key)).remove(0)).collect();
        assert_eq!(together, alone);
        assert!(together.iter().any(|drawn| drawn.token != together[0].token));
    }
}

#[test]
fn samplers_30_engine_draw_row_draw_and_reference_agree() {
    const T: f64 = 0.7;
    let (_, constraint, product) = constrained("(ab)*|b+a?", T);
    let (script, vocab) = model();
    let sampler = Direct::new(Arc::clone(&product));
    for context in [&[][..], &[0], &[2], &[8, 4], &[2, 0]] {
        let context: Vec<TokenId> = context.iter().map(|id| TokenId(*id)).collect();
        let run = Run::default();
        let mut oracle = product.open(1, &run).unwrap();
        let mut mask = constraint.open(1, &run).unwrap();
        assert!(oracle.draws(), "the engine draws");
        for token in &context {
            let _ = oracle.advance(&[0], &[&[*token]]);
            let _ = mask.advance(&[0], &[&[*token]]);
        }
        let row = oracle.logw_next(&[0]).remove(0).unwrap();
        let mask = mask.logw_next(&[0]).remove(0).unwrap();

        // The reference: softmax at T over the real ids, the ends folded, then the mask.
        let mut history = vec![TokenId(6)];
        history.extend(&context);
        let logits: Vec<f64> = script(&history).into_iter().map(|logit| f64::from(logit) / T).collect();
        let log_z = math::log_sum_exp(&logits);
        let weight = |position: usize| {
            let own =
                if position == 3 { math::log_sum_exp(&[logits[3], logits[7]]) } else { logits[position] };
            if position == 7 || mask.at(position) == DEAD { DEAD } else { own - log_z }
        };
        let reference: Vec<f64> = (0..vocab.row_len()).map(weight).collect();
        let log_mass = math::log_sum_exp(&reference);
        assert!(log_mass > DEAD);

        for method in [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial] {
            let keys = keys(30, 64);
            let mut cursor = sampler.open(64, &run).unwrap();
            for token in &context {
                let _ = cursor.advance(&(0..64).collect::<Vec<_>>(), &[*token; 64]);
            }
            let drawn = sample(&mut *cursor, &keys, &mut Keyed { method });
            for (drawn, key) in drawn.into_iter().zip(&keys) {
                let same = row.draw(vocab.eos_position(), None, method, key).unwrap();
                assert_eq!(drawn.token, Some(same.token));
                let logp = drawn.logp.unwrap();
                assert_eq!(drawn.logw.to_bits(), same.log_mass.to_bits());
                assert_eq!(logp.to_bits(), same.logp.to_bits());
                let expected = reference[vocab.position_of(same.token)] - log_mass;
                assert!((drawn.logw - log_mass).abs() < 1e-12, "{drawn:?} {log_mass}");
                assert!((logp - expected).abs() < 1e-12, "{drawn:?} {expected}");
            }
        }
    }
}

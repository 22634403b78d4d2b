//! Products over vocabularies that differ.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use lockstep_control::potential::{Claims, Potential, Run};
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{BoolFsa, ErrorKind, PotentialExt, Product};
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_sample::{EosSet, TokenId};

use super::{check, check_against, fsa, llm, tokens, weight};
use crate::support::{DEAD, function, vocabulary};

/// Other ids for some of the tokens of [`tokens`], others besides, a special text that is ordinary
/// there, one `a` that is the end.
fn others() -> Arc<Vocabulary> {
    vocabulary(&["</s>", "a", "ab", "c", "<|b|>", "<|a|>", "a", "a", "b", "<|a|>"], &[4, 9], &[0, 1])
}

/// What [`others`] calls each token of [`tokens`], by hand.
fn translated(token: TokenId) -> Option<TokenId> {
    let ids = [Some(6), Some(8), Some(2), None, Some(7), Some(9)];
    ids[token.index()].map(TokenId)
}

/// The laws, and the translated factors as the reference.
fn check_translated(first: Arc<dyn Potential>, second: Arc<dyn Potential>) -> Product {
    let product = Product::new(Arc::clone(&first), Arc::clone(&second)).unwrap();
    check(&product, 0);
    check_against(&product, move |context, ended| {
        let translated: Option<Vec<TokenId>> = context.iter().map(|token| translated(*token)).collect();
        let Some(translated) = translated else { return DEAD };
        match (weight(&*first, context, ended), weight(&*second, &translated, ended)) {
            (DEAD, _) | (_, DEAD) => DEAD,
            (a, b) => a + b,
        }
    });
    product
}

#[test]
fn a_product_reads_the_tokens_that_both_factors_have() {
    let (ours, theirs) = (tokens(), others());
    let product = check_translated(llm(&ours).shared(), llm(&theirs).shared());
    assert_eq!(product.tokens(), [0, 1, 2, 4, 5].map(TokenId));
    assert!(product.warnings().is_empty());
    assert_eq!(product.claims(), Claims { monotone: true, ..Claims::default() });
    // Masks and draws are translated too, whichever factor is the constraint.
    let draws = |product: Product| product.open(1, &Run::default()).unwrap().draws();
    assert!(draws(check_translated(llm(&ours).shared(), fsa("(a|ab)*", &theirs))));
    assert!(draws(check_translated(fsa("(a|ab)*", &ours), llm(&theirs).shared())));
    let languages = check_translated(fsa("(a|ab)*", &ours), fsa("(b|ab?)*", &theirs));
    assert!(languages.open(1, &Run::default()).unwrap().masks(&[0]).is_some());
}

#[test]
fn products_nest_over_their_common_tokens() {
    let product = fsa(".*", &tokens()).product(fsa(".*", &others())).unwrap();
    let nested = product.shared().product(WeightedSet::new("ba", &[("ab", 2.0)]).potential()).unwrap();
    // Of the tokens `a`, `b`, `ab`, `a`, the first `a` and `b` are in the third alphabet.
    check(&nested, 0);
    assert_eq!(weight(&nested, &[TokenId(0), TokenId(1)], true), 2.0_f64.ln());
    assert_eq!(weight(&nested, &[TokenId(2)], true), DEAD);
    assert_eq!(weight(&nested, &[TokenId(4), TokenId(1)], true), DEAD);
}

#[test]
fn factors_that_hardly_match_are_refused_or_warned_of() {
    let alphabet =
        |letters: &str| -> Arc<dyn Potential> { WeightedSet::new(letters, &[("", 1.0)]).potential() };
    let refused = Product::new(alphabet("ab"), alphabet("cd")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Vocabulary);
    let ten = Product::new(alphabet("a"), alphabet("abcdefghij")).unwrap();
    assert!(ten.warnings().is_empty());
    for product in [
        Product::new(alphabet("a"), alphabet("abcdefghijk")).unwrap(),
        Product::new(alphabet("abcdefghijk"), alphabet("xk")).unwrap(),
    ] {
        let [warning] = product.warnings() else { panic!("{:?}", product.warnings()) };
        assert!(warning.contains("only 1 tokens") && warning.contains("11"), "{warning}");
    }
    // Bytes are no model's tokens, even if these are single bytes.
    let bytes: Arc<dyn Potential> = BoolFsa::from_regex("a").unwrap().shared();
    for (first, second) in [(&bytes, &alphabet("a")), (&alphabet("a"), &bytes)] {
        let refused = Product::new(Arc::clone(first), Arc::clone(second)).unwrap_err();
        assert!(refused.to_string().contains("coerce"), "{refused}");
    }
}

/// 500 tokens in an order of their own for each `seed`.
fn shuffled(seed: u64) -> Arc<dyn Potential> {
    let mut tokens: Vec<(u64, TokenEntry)> = (0..500_u64)
        .map(|i| {
            let key = (i + 1).wrapping_mul(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
            (key, TokenEntry { bytes: format!("t{}", (i + seed) % 490).into_bytes(), special: i % 9 == 0 })
        })
        .collect();
    tokens.sort_by_key(|(key, _)| *key);
    let tokens = tokens.into_iter().map(|(_, token)| token).collect();
    function(&Vocabulary::new(tokens, EosSet::new([3])).unwrap(), Claims::default(), |_, _| 0.0)
}

#[test]
fn potentials_22_the_vocabulary_of_a_product_is_equal_in_two_fresh_processes() {
    const CHILD: &str = "LOCKSTEP_TEST_PRINT_PRODUCT";
    const BEGIN: &str = "the product's tokens: ";
    if std::env::var_os(CHILD).is_some() {
        let product = Product::new(shuffled(5), shuffled(77)).unwrap();
        let vocab = product.vocab();
        let tokens: Vec<_> =
            product.tokens().iter().map(|id| (id.0, vocab.display(*id).into_owned())).collect();
        let row = product.open(1, &Run::default()).unwrap().logw_next(&[0]).remove(0).unwrap();
        let live: Vec<usize> = (0..vocab.row_len()).filter(|at| row.at(*at) == 0.0).collect();
        writeln!(std::io::stdout(), "{BEGIN}{tokens:?} {live:?}").unwrap();
        return;
    }
    let order = || {
        let name = "product::potentials_22_the_vocabulary_of_a_product_is_equal_in_two_fresh_processes";
        let child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8(child.stdout).unwrap();
        let order = printed.lines().find_map(|line| Some(line.split_once(BEGIN)?.1.to_owned()));
        order.unwrap_or_else(|| panic!("the child printed {printed}"))
    };
    let first = order();
    assert_eq!(first, order());
    assert!(first.matches("\"t").count() > 100, "{first}");
}

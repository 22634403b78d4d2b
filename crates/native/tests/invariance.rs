//! A row's logits are the same bits whatever shares its batch, however its tokens were cut into
//! forwards, whoever shares its memory, and at any thread count.
#![allow(clippy::unwrap_used)] // helpers of tests, where a panic is the report

mod support;

use std::collections::BTreeMap;

use lockstep_engine::TokenId;
use lockstep_engine::model::{BatchItem, Model, ModelErrorKind, SeqId, Wanted};
use lockstep_native::NativeModel;
use lockstep_native::testkit::{TinyOptions, tiny_model};
use proptest::prelude::*;

use support::{Rows, default_model, feed, tokens};

/// No multiple of 16, so that the last panel of outputs is padded.
const VOCAB: usize = 100;

fn tiny(threads: usize) -> NativeModel {
    tiny_model(3, TinyOptions { vocab: VOCAB, threads, ..TinyOptions::default() })
}

fn text(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (seed * 31 + i * i * 7 + i * 13) % VOCAB as u32).collect()
}

fn alone(model: &mut NativeModel, ids: &[u32], chunk: usize) -> Vec<u32> {
    let seq = SeqId(u64::MAX);
    model.open(seq, None).unwrap();
    let bits = feed(model, seq, ids, chunk).bits();
    model.free(seq);
    bits
}

#[test]
fn native_invariance_chunks_of_any_size_give_the_same_bits() {
    let (mut model, ids) = (tiny(2), text(1, 75));
    let whole = alone(&mut model, &ids, 75);
    for chunk in [1, 2, 7, 16, 17, 74] {
        assert_eq!(alone(&mut model, &ids, chunk), whole, "chunks of {chunk}");
    }
}

#[test]
fn native_invariance_logits_depend_on_every_token_before() {
    let (mut model, ids) = (tiny(1), text(1, 40));
    let whole = alone(&mut model, &ids, 40);
    for changed in [0, 15, 16, 38] {
        let mut other = ids.clone();
        other[changed] = (other[changed] + 1) % VOCAB as u32;
        let other = alone(&mut model, &other, 40);
        assert_eq!(other[..changed * VOCAB], whole[..changed * VOCAB], "before token {changed}");
        assert_ne!(other[39 * VOCAB..], whole[39 * VOCAB..], "after token {changed}");
    }
}

/// Feeds sequences of different lengths together, in uneven slices, and returns every one's rows.
fn together(model: &mut NativeModel, texts: &[Vec<u32>], tile_rows: usize) -> Vec<Vec<u32>> {
    let seqs: Vec<SeqId> = (0..texts.len() as u64).map(SeqId).collect();
    seqs.iter().for_each(|&seq| model.open(seq, None).unwrap());
    let mut bits = vec![Vec::new(); texts.len()];
    let mut done = vec![0; texts.len()];
    for step in 0.. {
        let mut parts = Vec::new();
        for (index, ids) in texts.iter().enumerate() {
            let n = (1 + (step * 5 + index * 3) % 11).min(ids.len() - done[index]);
            if n > 0 {
                parts.push((index, tokens(&ids[done[index]..done[index] + n])));
                done[index] += n;
            }
        }
        if parts.is_empty() {
            break;
        }
        let batch: Vec<BatchItem<'_>> = parts
            .iter()
            .map(|(index, tokens)| BatchItem { seq: seqs[*index], tokens, wanted: Wanted::All })
            .collect();
        let mut rows = Rows::new(model);
        rows.tile_rows = tile_rows;
        model.forward(&batch, &mut rows).unwrap();
        let mut all = rows.bits();
        for (index, tokens) in &parts {
            let rest = all.split_off(tokens.len() * VOCAB);
            bits[*index].extend(all);
            all = rest;
        }
        assert!(all.is_empty());
    }
    seqs.iter().for_each(|&seq| model.free(seq));
    bits
}

#[test]
fn native_invariance_batches_threads_and_tiles_give_the_same_bits() {
    let texts: Vec<Vec<u32>> = (0..9).map(|i| text(i, 5 + 9 * i as usize)).collect();
    let mut model = tiny(1);
    let each: Vec<Vec<u32>> = texts.iter().map(|ids| alone(&mut model, ids, 512)).collect();
    for threads in [1, 2, 3, 8] {
        for tile_rows in [1, 5, 512] {
            let mut model = tiny(threads);
            let bits = together(&mut model, &texts, tile_rows);
            assert_eq!(bits, each, "{threads} threads, tiles of {tile_rows}");
        }
    }
}

#[test]
fn native_invariance_what_is_wanted_of_others_changes_nothing() {
    let mut model = tiny(2);
    let (a, b) = (text(1, 20), text(2, 33));
    let whole = alone(&mut model, &a, 20);
    for wanted in [Wanted::None, Wanted::Last, Wanted::All] {
        model.open(SeqId(0), None).unwrap();
        model.open(SeqId(1), None).unwrap();
        let (a, b) = (tokens(&a), tokens(&b));
        let mut rows = Rows::new(&model);
        let batch = [
            BatchItem { seq: SeqId(1), tokens: &b, wanted },
            BatchItem { seq: SeqId(0), tokens: &a, wanted: Wanted::Last },
        ];
        model.forward(&batch, &mut rows).unwrap();
        assert_eq!(rows.len(), wanted.rows(b.len()) + 1);
        assert_eq!(rows.bits()[(rows.len() - 1) * VOCAB..], whole[19 * VOCAB..]);
        // The sequence of which nothing was wanted is in memory all the same.
        let next = feed(&mut model, SeqId(1), &[5], 1).bits();
        let all: Vec<u32> = text(2, 33).into_iter().chain([5]).collect();
        assert_eq!(next, alone(&mut model, &all, 64)[33 * VOCAB..]);
        model.free(SeqId(0));
        model.free(SeqId(1));
    }
}

#[test]
fn native_invariance_the_default_model_in_batches_threads_and_chunks() {
    let ids: Vec<u32> = (0..40).map(|i| 1000 + i * 389).collect();
    let (first, second, probe) = (SeqId(0), SeqId(1), SeqId(2));
    let mut model = default_model(1);
    model.open(first, None).unwrap();
    let whole = feed(&mut model, first, &ids, 40).bits();
    let vocab = model.capabilities().vocab_size;
    for (threads, chunk) in [(1, 1), (2, 3), (3, 7), (8, 40)] {
        let mut model = default_model(threads);
        model.open(first, None).unwrap();
        feed(&mut model, first, &ids[..20], 20);
        model.fork(first, second).unwrap();
        model.open(probe, None).unwrap();
        for (index, part) in ids.chunks(chunk).enumerate() {
            let (part, noise) = (tokens(part), tokens(&[index as u32, 7, 9]));
            let batch = [
                BatchItem { seq: second, tokens: &noise, wanted: Wanted::All },
                BatchItem { seq: probe, tokens: &part, wanted: Wanted::All },
                BatchItem { seq: first, tokens: &noise[..1], wanted: Wanted::Last },
            ];
            let mut rows = Rows::new(&model);
            model.forward(&batch, &mut rows).unwrap();
            let begin = index * chunk * vocab;
            let ours = &rows.bits()[3 * vocab..(3 + part.len()) * vocab];
            assert!(ours == &whole[begin..begin + ours.len()], "{threads} threads, chunk {index} of {chunk}");
        }
    }
}

#[test]
fn native_kv_forks_share_pages_until_they_write() {
    let mut model = tiny(1);
    let page = model.capabilities().kv_bytes_per_token * 16;
    model.open(SeqId(0), None).unwrap();
    feed(&mut model, SeqId(0), &text(1, 40), 40);
    assert_eq!(model.kv_bytes(), 3 * page);
    for child in 1..=64 {
        model.fork(SeqId(child / 2), SeqId(child)).unwrap();
    }
    assert_eq!(model.kv_bytes(), 3 * page, "forks take no pages");
    let more = text(9, 5);
    let expected = alone(&mut model, &[text(1, 40), more.clone()].concat(), 45);
    for child in 1..=64 {
        let bits = feed(&mut model, SeqId(child), &more, 2).bits();
        assert_eq!(bits, expected[40 * VOCAB..]);
        assert_eq!(model.kv_bytes(), (3 + child as usize) * page, "each writer copies the last page");
    }
    feed(&mut model, SeqId(0), &more, 5);
    assert_eq!(model.kv_bytes(), (3 + 64) * page, "the last holder writes in place");
    for seq in 0..=64 {
        model.free(SeqId(seq));
    }
    assert_eq!(model.kv_bytes(), 0);
}

#[test]
fn native_kv_a_fork_at_a_page_boundary_copies_nothing() {
    let mut model = tiny(1);
    let page = model.capabilities().kv_bytes_per_token * 16;
    model.open(SeqId(0), None).unwrap();
    feed(&mut model, SeqId(0), &text(1, 32), 32);
    model.fork(SeqId(0), SeqId(1)).unwrap();
    feed(&mut model, SeqId(1), &[1], 1);
    assert_eq!(model.kv_bytes(), 3 * page);
    model.free(SeqId(0));
    assert_eq!(model.kv_bytes(), 3 * page, "the child still stands on the shared pages");
    model.truncate(SeqId(1), 17).unwrap();
    assert_eq!(model.kv_bytes(), 2 * page);
    model.truncate(SeqId(1), 0).unwrap();
    assert_eq!(model.kv_bytes(), 0);
}

#[test]
fn native_kv_truncated_sequences_go_on_as_if_never_longer() {
    let mut model = tiny(2);
    let (ids, more) = (text(1, 50), text(5, 20));
    for len in [0, 1, 15, 16, 17, 31, 32, 33, 49, 50, 99] {
        let seq = SeqId(0);
        model.open(seq, None).unwrap();
        feed(&mut model, seq, &ids, 50);
        model.truncate(seq, len).unwrap();
        let len = len.min(50);
        assert_eq!(model.len(seq), Some(len));
        let bits = feed(&mut model, seq, &more, 3).bits();
        let fresh = alone(&mut model, &[&ids[..len], &more].concat(), 70);
        assert_eq!(bits, fresh[len * VOCAB..], "cut to {len}");
        model.free(seq);
    }
    assert_eq!(model.kv_bytes(), 0);
}

#[test]
fn native_errors_name_what_is_wrong_and_change_nothing() {
    let mut model = tiny(1);
    let seq = SeqId(4);
    model.open(seq, None).unwrap();
    model.open(SeqId(5), None).unwrap();
    let ids = text(1, 250);
    feed(&mut model, seq, &ids, 250);
    let bytes = model.kv_bytes();
    let item = |seq, tokens| BatchItem { seq, tokens, wanted: Wanted::Last };
    let (one, many, bad, eos) =
        (tokens(&[1]), tokens(&[1; 300]), tokens(&[1, 100]), [TokenId(3), TokenId::EOS]);
    let five = item(SeqId(5), &one);
    let cases: [(&[BatchItem<'_>], ModelErrorKind, &str); 7] = [
        (&[five, item(SeqId(6), &one)], ModelErrorKind::Sequence, "sequence 6 is not held"),
        (&[five, item(seq, &one), item(SeqId(5), &one)], ModelErrorKind::Sequence, "sequence 5 occurs twice"),
        (&[five, item(seq, &[])], ModelErrorKind::Limit, "sequence 4 has no tokens"),
        (&[five, item(seq, &bad)], ModelErrorKind::Token, "token 100 of sequence 4"),
        (&[five, item(seq, &eos)], ModelErrorKind::Token, "token EOS of sequence 4"),
        (&[five, item(seq, &many[..7])], ModelErrorKind::Limit, "257 tokens"),
        (&[item(SeqId(5), &many), item(seq, &many)], ModelErrorKind::Limit, "context is 256"),
    ];
    for (batch, kind, message) in cases {
        let mut rows = Rows::new(&model);
        let error = model.forward(batch, &mut rows).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!((rows.len(), model.len(seq), model.len(SeqId(5))), (0, Some(250), Some(0)));
        assert_eq!(model.kv_bytes(), bytes);
    }
    let open = model.open(SeqId(7), Some("tuned")).unwrap_err();
    assert_eq!(open.kind(), ModelErrorKind::Unsupported);
    assert_eq!(model.open(seq, None).unwrap_err().kind(), ModelErrorKind::Sequence);
    assert_eq!(model.fork(SeqId(9), SeqId(10)).unwrap_err().kind(), ModelErrorKind::Sequence);
    assert_eq!(model.fork(seq, SeqId(5)).unwrap_err().kind(), ModelErrorKind::Sequence);
    assert_eq!(model.truncate(SeqId(9), 0).unwrap_err().kind(), ModelErrorKind::Sequence);
    model.free(SeqId(9));
    assert_eq!((model.len(SeqId(9)), model.len(SeqId(10))), (None, None));
    let next = feed(&mut model, seq, &[8], 1).bits();
    assert_eq!(next, alone(&mut model, &[&ids[..], &[8]].concat(), 251)[250 * VOCAB..]);
}

#[test]
fn native_errors_a_batch_over_the_token_limit_is_refused() {
    let mut model = tiny(1);
    let limit = model.capabilities().max_batch_tokens;
    let ids = tokens(&vec![1; 200]);
    let seqs: Vec<SeqId> = (0..=(limit / 200) as u64).map(SeqId).collect();
    seqs.iter().for_each(|&seq| model.open(seq, None).unwrap());
    let batch: Vec<BatchItem<'_>> =
        seqs.iter().map(|&seq| BatchItem { seq, tokens: &ids, wanted: Wanted::None }).collect();
    let error = model.forward(&batch, &mut Rows::new(&model)).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Limit);
    assert!(error.to_string().contains(&format!("one forward takes {limit}")), "{error}");
    assert_eq!(model.kv_bytes(), 0);
    model.forward(&[], &mut Rows::new(&model)).unwrap();
}

/// Something that happens to a few sequences, chosen by small numbers.
#[derive(Clone, Debug)]
enum Action {
    Open(u64),
    Fork(u64, u64),
    Truncate(u64, usize),
    Free(u64),
    Forward(Vec<(u64, usize)>),
}

fn action() -> impl Strategy<Value = Action> {
    let seq = 0..6_u64;
    prop_oneof![
        seq.clone().prop_map(Action::Open),
        (seq.clone(), seq.clone()).prop_map(|(a, b)| Action::Fork(a, b)),
        (seq.clone(), 0..40_usize).prop_map(|(a, len)| Action::Truncate(a, len)),
        seq.clone().prop_map(Action::Free),
        prop::collection::vec((seq, 1..20_usize), 1..5).prop_map(Action::Forward),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever was done to its neighbours and ancestors, a sequence is what its tokens say.
    #[test]
    fn native_kv_any_history_leaves_what_the_tokens_alone_would(
        actions in prop::collection::vec(action(), 1..30),
        threads in 1..3_usize,
    ) {
        let mut model = tiny(threads);
        let mut held: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (step, action) in actions.into_iter().enumerate() {
            match action {
                Action::Open(a) => {
                    let opened = model.open(SeqId(a), None).is_ok();
                    prop_assert_eq!(opened, !held.contains_key(&a));
                    held.entry(a).or_default();
                }
                Action::Fork(a, b) => {
                    let forked = model.fork(SeqId(a), SeqId(b)).is_ok();
                    prop_assert_eq!(forked, held.contains_key(&a) && !held.contains_key(&b));
                    if forked {
                        held.insert(b, held[&a].clone());
                    }
                }
                Action::Truncate(a, len) => {
                    let cut = model.truncate(SeqId(a), len).is_ok();
                    prop_assert_eq!(cut, held.contains_key(&a));
                    if cut {
                        held.get_mut(&a).unwrap().truncate(len);
                    }
                }
                Action::Free(a) => {
                    model.free(SeqId(a));
                    held.remove(&a);
                }
                Action::Forward(items) => {
                    let mut parts: BTreeMap<u64, Vec<TokenId>> = BTreeMap::new();
                    for (a, n) in items {
                        let fits = held.get(&a).is_some_and(|ids| ids.len() + n <= 120);
                        if fits && !parts.contains_key(&a) {
                            let new = text(step as u32 + a as u32, n);
                            parts.insert(a, tokens(&new));
                            held.get_mut(&a).unwrap().extend(new);
                        }
                    }
                    let batch: Vec<BatchItem<'_>> = parts
                        .iter()
                        .map(|(a, tokens)| BatchItem { seq: SeqId(*a), tokens, wanted: Wanted::None })
                        .collect();
                    model.forward(&batch, &mut Rows::new(&model)).unwrap();
                }
            }
        }
        for (a, ids) in &held {
            prop_assert_eq!(model.len(SeqId(*a)), Some(ids.len()));
            let bits = feed(&mut model, SeqId(*a), &[42], 1).bits();
            let all = [&ids[..], &[42]].concat();
            prop_assert_eq!(&bits[..], &alone(&mut model, &all, 512)[ids.len() * VOCAB..]);
        }
        for a in held.keys() {
            model.free(SeqId(*a));
        }
        prop_assert_eq!(model.kv_bytes(), 0);
    }
}

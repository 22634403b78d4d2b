use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn entries(tokens: &[(&[u8], bool)]) -> Vec<TokenEntry> {
    tokens.iter().map(|(bytes, special)| TokenEntry { bytes: bytes.to_vec(), special: *special }).collect()
}

fn vocabulary(tokens: &[(&[u8], bool)], eos: &[u32]) -> Arc<Vocabulary> {
    Vocabulary::new(entries(tokens), EosSet::new(eos.iter().copied())).unwrap()
}

fn visited(trie: &TokenTrie) -> Vec<u32> {
    let mut ids = Vec::new();
    trie.walk((), |(), _| Some(()), |(), id| ids.push(id.0));
    ids
}

#[test]
fn potentials_17_equal_bytes_stay_two_tokens() {
    let v = vocabulary(&[(b"a", false), (b" ", false), (b" a", false), (b" ", false)], &[]);
    assert_eq!((v.bytes_of(TokenId(1)), v.bytes_of(TokenId(3))), (&b" "[..], &b" "[..]));
    assert_eq!(v.find(b" "), Some(TokenId(1)));
    assert_eq!(visited(v.trie()), [1, 3, 2, 0]);
    // Both end at one node, and both are seen by a walk that allows only the space.
    let mut ids = Vec::new();
    v.trie().walk(0, |n, byte| (*n == 0 && byte == b' ').then_some(1), |_, id| ids.push(id.0));
    assert_eq!(ids, [1, 3]);
    assert_eq!(v.trie().nodes().len(), 1 + 3);
}

#[test]
fn potentials_18_no_walk_over_bytes_meets_a_special_token() {
    let v = vocabulary(&[(b"<|im_start|>", true), (b"<|", false), (b"im_start", false), (b"|>", false)], &[]);
    assert_eq!(visited(v.trie()), [1, 2, 3]);
    assert_eq!(v.bytes_of(TokenId(0)), b"");
    assert_eq!(v.display(TokenId(0)), "<|im_start|>");
    assert_eq!(v.find(b"<|im_start|>"), None);
    assert_eq!(v.find(b""), None);
    assert!(v.is_special(TokenId(0)) && v.is_member(TokenId(0)));
}

#[test]
fn potentials_31_wrappers_share_tables_and_tries() {
    let v = vocabulary(&[(b"a", false), (b"b", false), (b"</s>", true), (b"<pad>", true)], &[2]);
    let wrappers: Vec<_> =
        (0..100).map(|i| v.with_eos(EosSet::new([2, 3][..i % 3].to_vec())).unwrap()).collect();
    for w in &wrappers {
        assert!(Arc::ptr_eq(&w.tables, &v.tables) && w.same_tokens(&v));
        // Special ids are in no trie anyway, so these sets all give the same one.
        assert!(Arc::ptr_eq(w.trie(), v.trie()));
    }
    let other = v.with_eos(EosSet::new([1])).unwrap();
    assert_eq!((visited(other.trie()), visited(v.trie())), (vec![0], vec![0, 1]));
    assert!(Arc::ptr_eq(other.trie(), v.with_eos(EosSet::new([1, 2])).unwrap().trie()));
    // A set that is no longer used leaves no trie behind.
    drop(other);
    let _ = v.with_eos(EosSet::new([0])).unwrap();
    let _ = v.with_eos(EosSet::new([0, 1])).unwrap();
    assert!(v.tables.tries.lock().unwrap().len() <= 2);
}

#[test]
fn an_eos_id_leaves_the_members_and_keeps_its_bytes() {
    let v = vocabulary(&[(b"\n", false), (b"a", false), (b"\n", false)], &[0]);
    assert!(!v.is_member(TokenId(0)) && v.is_member(TokenId(2)));
    assert!(!v.is_member(TokenId(3)) && !v.is_member(TokenId::EOS));
    assert_eq!(v.bytes_of(TokenId(0)), b"\n");
    assert_eq!(v.find(b"\n"), Some(TokenId(2)));
    assert_eq!(visited(v.trie()), [2, 1]);
    assert_eq!((v.len(), v.eos().ids()), (3, &[0][..]));
}

#[test]
fn ids_outside_have_no_bytes() {
    let v = vocabulary(&[(b"a", false)], &[]);
    for id in [TokenId(1), TokenId::EOS] {
        assert_eq!((v.bytes_of(id), v.text_of(id)), (&b""[..], &b""[..]));
        assert!(!v.is_special(id));
    }
    assert_eq!((v.display(TokenId(1)), v.display(TokenId::EOS)), ("[1]".into(), "[EOS]".into()));
}

#[test]
fn bytes_that_are_no_text_are_displayed_as_escapes() {
    let v = vocabulary(&[("é".as_bytes(), false), (b"a\xc3", false), (b"\xff\xfeb", false)], &[]);
    let shown: Vec<_> = (0..3).map(|id| v.display(TokenId(id))).collect();
    assert_eq!(shown, ["é", "a\\xc3", "\\xff\\xfeb"]);
}

#[test]
fn the_byte_vocabulary_is_one() {
    let v = Vocabulary::bytes();
    assert!(Arc::ptr_eq(&v, &Vocabulary::bytes()));
    assert_eq!(v.len(), 256);
    assert!((0..=255_u8).all(|byte| v.find(&[byte]) == Some(TokenId(byte.into()))));
    assert!(v.eos().ids().is_empty());
    assert_eq!(visited(v.trie()), (0..256).collect::<Vec<_>>());
}

#[test]
fn same_tokens_compares_content_in_order() {
    let v = vocabulary(&[(b"a", false), (b"b", false)], &[]);
    assert!(v.same_tokens(&vocabulary(&[(b"a", false), (b"b", false)], &[1])));
    assert!(!v.same_tokens(&vocabulary(&[(b"b", false), (b"a", false)], &[])));
    assert!(!v.same_tokens(&vocabulary(&[(b"a", false), (b"b", true)], &[])));
    assert!(!v.same_tokens(&vocabulary(&[(b"ab", false), (b"", false)], &[])));
}

#[test]
fn errors_name_the_field() {
    let none = Vocabulary::new(Vec::new(), EosSet::new([])).unwrap_err();
    assert_eq!(none.to_string(), "tokens is empty: a vocabulary has at least one token");
    let v = vocabulary(&[(b"a", false)], &[]);
    let want = "eos has the id 1, but the vocabulary has only the ids 0 to 0";
    assert_eq!(v.with_eos(EosSet::new([0, 1])).unwrap_err().to_string(), want);
    assert_eq!(Vocabulary::new(entries(&[(b"a", false)]), EosSet::new([1])).unwrap_err().to_string(), want);
}

proptest! {
    #[test]
    fn the_trie_is_every_ordinary_member_once(
        tokens in prop::collection::vec((prop::collection::vec(0_u8..4, 0..11), prop::bool::weighted(0.1)), 1..60),
        eos in prop::collection::btree_set(0_u32..60, 0..4),
        allowed in prop::collection::vec(prop::bool::weighted(0.8), 12 * 4),
    ) {
        let entries: Vec<_> =
            tokens.iter().map(|(bytes, special)| TokenEntry { bytes: bytes.clone(), special: *special }).collect();
        let eos = EosSet::new(eos.into_iter().filter(|id| (*id as usize) < entries.len()));
        let v = Vocabulary::new(entries, eos).unwrap();
        let trie = v.trie();

        let mut members: Vec<u32> = (0..tokens.len() as u32)
            .filter(|id| !v.is_special(TokenId(*id)) && v.is_member(TokenId(*id)))
            .collect();
        members.sort_by_key(|id| (tokens[*id as usize].0.clone(), *id));
        prop_assert_eq!(visited(trie), members.clone());
        prop_assert_eq!(trie.ids().iter().map(|id| id.0).collect::<Vec<_>>(), members.clone());

        // The state that a walk carries is the token's own bytes.
        let mut wrong = 0;
        trie.walk(
            Vec::new(),
            |path, byte| Some([&path[..], &[byte]].concat()),
            |path, id| wrong += usize::from(path != v.bytes_of(id)),
        );
        prop_assert_eq!(wrong, 0);

        // A walk that dies sees exactly the tokens whose every byte lives.
        let lives = |depth: usize, byte: u8| allowed[depth * 4 + byte as usize];
        let mut seen = Vec::new();
        trie.walk(0, |depth, byte| lives(*depth, byte).then_some(depth + 1), |_, id| seen.push(id.0));
        let alive = |id: &u32| tokens[*id as usize].0.iter().enumerate().all(|(i, b)| lives(i, *b));
        prop_assert_eq!(seen, members.iter().copied().filter(alive).collect::<Vec<_>>());

        // Nodes: one a distinct prefix, subtrees nested, children by ascending byte.
        let mut prefixes: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for id in &members {
            let bytes = &tokens[*id as usize].0;
            (0..=bytes.len()).for_each(|n| *prefixes.entry(bytes[..n].to_vec()).or_default() += 1);
        }
        prop_assert_eq!(trie.nodes().len(), prefixes.len().max(1));
        let below: Vec<usize> = prefixes.values().copied().collect();
        for (i, node) in trie.nodes().iter().enumerate().take(below.len()) {
            let ids: usize = trie.nodes()[i..node.end()].iter().map(|n| n.ids().len()).sum();
            prop_assert_eq!(ids, below[i]);
        }

        for id in 0..tokens.len() as u32 {
            let same = |other: &&u32| tokens[**other as usize].0 == tokens[id as usize].0;
            let lowest = members.iter().filter(same).min().copied();
            prop_assert_eq!(v.find(&tokens[id as usize].0), lowest.map(TokenId));
        }
    }
}

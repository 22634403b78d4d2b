//! The automaton that generates the texts of a language character by character, each option of a
//! state being as likely as any other.

use super::arcs::Arcs;
use super::{Forward, WeightedArc, Wfsa};
use crate::dfa::{Dfa, StateId};

/// Python's `string.printable`.
pub(super) const PRINTABLE: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ\
    !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \t\n\r\x0b\x0c";

/// The uniform weights of `dfa`, all of whose texts are UTF-8.
///
/// Its states between characters are those of the minimal automaton over characters: two of them
/// that allow the same texts of characters allow the same texts of bytes. Within a character a byte
/// weighs its share of the characters that can still be meant, so that what leaves a state sums to
/// 1 everywhere. A text ends with probability 1, since from every state one can; hence the weights
/// are pushed as they stand, and no sum over texts is needed.
pub(super) fn over_characters(dfa: &Dfa) -> Wfsa {
    let n = dfa.state_count();
    let onward =
        |state: u32| (0..=u8::MAX).filter_map(move |byte| Some((byte, dfa.next(StateId(state), byte)?.0)));
    // How many bytes of a character are still to come, the same on every path to a state.
    let mut missing: Vec<Option<u8>> = vec![None; n];
    missing[0] = Some(0);
    let mut queue = vec![0];
    let mut done = 0;
    while let Some(&state) = queue.get(done) {
        done += 1;
        let before = missing[state as usize].unwrap_or(0);
        for (byte, to) in onward(state) {
            if missing[to as usize].is_none() {
                missing[to as usize] = Some(if before == 0 { following(byte) } else { before - 1 });
                queue.push(to);
            }
        }
    }
    // How many characters lead on from each state; within a character, how many ends it may have.
    let mut by_missing: Vec<u32> = (0..n as u32).collect();
    by_missing.sort_by_key(|state| match missing[*state as usize] {
        // Between characters the counts of all others are needed.
        Some(0) => u8::MAX,
        within => within.unwrap_or(0),
    });
    let is_between = |state: u32| missing[state as usize] == Some(0);
    let mut ends = vec![0.0; n];
    let ways = |ends: &[f64], to: u32| if is_between(to) { 1.0 } else { ends[to as usize] };
    for &state in &by_missing {
        ends[state as usize] = onward(state).map(|(_, to)| ways(&ends, to)).sum();
    }

    let mut arcs = Vec::new();
    let mut stops = Vec::with_capacity(n);
    for state in 0..n as u32 {
        let is_final = dfa.is_final(StateId(state));
        let options: f64 = ends[state as usize] + if is_final { 1.0 } else { 0.0 };
        stops.push(if is_final { -options.ln() } else { f64::NEG_INFINITY });
        arcs.extend(onward(state).map(|(byte, to)| WeightedArc {
            from: state,
            byte,
            to,
            log_weight: (ways(&ends, to) / options).ln(),
        }));
    }
    Wfsa { initial: Forward::merge(vec![(0, 0.0)]), arcs: Arcs::new(arcs, n), stops }
}

/// How many bytes follow the first one of a character.
fn following(first: u8) -> u8 {
    match first {
        0..0xC0 => 0,
        0xC0..0xE0 => 1,
        0xE0..0xF0 => 2,
        0xF0.. => 3,
    }
}

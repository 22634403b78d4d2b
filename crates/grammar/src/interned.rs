//! Tables that find equal things by their hashes, the things themselves being kept elsewhere.
//!
//! Pairs and sets of states are looked up by the million, and their hashes need no keys that an
//! adversary cannot guess: whoever forces collisions runs into the limits of a construction.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash of whole numbers, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold(u64);

impl Fold {
    pub(crate) fn new() -> Self {
        Self(0x243F_6A88_85A3_08D3) // of the digits of pi
    }

    /// Takes in one more number.
    #[inline]
    pub(crate) fn add(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15; // of the golden ratio
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    pub(crate) fn hash(self) -> u64 {
        self.0
    }
}

/// Passes a hash on as it is.
#[derive(Clone, Copy, Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are hashed")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// Numbers of things by the hashes of these.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    newest: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    /// For each number the one before it with an equal hash.
    older: Vec<u32>,
}

impl Interned {
    /// Estimated bytes for a thing.
    pub(crate) const BYTES_EACH: usize = 32;

    /// The number of the thing with this hash that is equal to the one looked for.
    pub(crate) fn find(&self, hash: u64, mut is_equal: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut number = *self.newest.get(&hash)?;
        while !is_equal(number) {
            number = Some(self.older[number as usize]).filter(|older| *older != NONE)?;
        }
        Some(number)
    }

    /// Keeps a thing that was not found.
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        if self.older.len() <= number as usize {
            self.older.resize(number as usize + 1, NONE);
        }
        self.older[number as usize] = self.newest.insert(hash, number).unwrap_or(NONE);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.newest.clear();
    }
}

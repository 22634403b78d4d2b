//! Finite languages: a list of strings as a trie.

use crate::alphabet::Alphabet;
use crate::error::RegexError;
use crate::limits::Budget;
use crate::minimize::{Arc, Draft};

/// The trie of `strings`, not yet minimal.
pub(crate) fn trie<I, S>(strings: I, budget: &mut Budget) -> Result<Draft, RegexError>
where
    I: IntoIterator<Item = S>,
    S: AsRef<[u8]>,
{
    let mut sorted = Vec::new();
    for string in strings {
        budget.charge(size_of::<S>() + string.as_ref().len())?;
        sorted.push(string);
    }
    let held: usize = sorted.iter().map(|string| size_of::<S>() + string.as_ref().len()).sum();
    sorted.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));

    let mut used = [false; 256];
    for &byte in sorted.iter().flat_map(|string| string.as_ref()) {
        used[usize::from(byte)] = true;
    }
    // Every byte in use is its own symbol; those in no string share one.
    let alphabet = Alphabet::by_key(|byte| used[usize::from(byte)].then_some(byte));
    let mut draft = Draft::new(alphabet);
    draft.add_state(false, budget)?;

    // In sorted order a string leaves the path of the one before it once, and never returns.
    let mut path: Vec<u32> = vec![0];
    let mut before: &[u8] = &[];
    for string in &sorted {
        let string = string.as_ref();
        let shared = string.iter().zip(before).take_while(|(a, b)| a == b).count();
        path.truncate(shared + 1);
        for &byte in &string[shared..] {
            budget.step()?;
            let from = *path.last().expect("the root stays on the path");
            let to = draft.add_state(false, budget)?;
            let symbol = draft.alphabet().symbol(byte);
            draft.add_arc(Arc { from, low: symbol, high: symbol, to }, budget)?;
            path.push(to);
        }
        draft.make_final(*path.last().expect("the root stays on the path"));
        before = string;
    }
    if sorted.is_empty() {
        return Err(RegexError::empty_language("there are no strings"));
    }
    drop(sorted);
    budget.release(held);
    Ok(draft)
}

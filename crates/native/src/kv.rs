//! KV memory: a tree of pages that sequences share until one of them writes.
//!
//! A page holds 16 positions of all layers and hangs on the page before it; a sequence is its last
//! page and a length. So a fork is one more reference, whatever the length, and a shared prefix
//! is stored once.
//!
//! Invariant: a page's count is the number of pages that hang on it plus the number of sequences
//! that end in it. A page is written only by a sequence that ends in it, while its count is 1.

use rayon::prelude::*;

use crate::kernels::F32x16;

/// Pages that are worth a task of their own.
const TASK_PAGES: usize = 4;

/// Positions in a page.
pub(crate) const PAGE: usize = 16;

/// A page of a [`KvStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageId(u32);

/// A sequence's place in the tree. It owns one count of its last page: hand it back with
/// [`KvStore::release`].
#[derive(Debug)]
pub(crate) struct Sequence {
    tail: Option<PageId>,
    len: usize,
}

impl Sequence {
    /// An empty sequence, which has no page.
    pub(crate) const EMPTY: Self = Self { tail: None, len: 0 };

    /// Tokens held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// The shape of what a token leaves in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvShape {
    pub(crate) layers: usize,
    pub(crate) kv_heads: usize,
    /// A multiple of 16.
    pub(crate) head_dim: usize,
}

impl KvShape {
    /// Lines of a page: per layer and head, the keys as `[head_dim]` lines of 16 positions, then the
    /// values as `[head_dim / 16][16 positions]` lines.
    const fn page_lines(self) -> usize {
        self.layers * self.kv_heads * 2 * self.head_dim
    }

    /// Bytes of a page.
    pub(crate) const fn page_bytes(self) -> usize {
        self.page_lines() * size_of::<F32x16>()
    }
}

/// All pages of a model.
#[derive(Debug)]
pub(crate) struct KvStore {
    shape: KvShape,
    pages: Vec<Page>,
    /// Places in `pages` that hold no data.
    vacant: Vec<PageId>,
}

#[derive(Debug)]
struct Page {
    before: Option<PageId>,
    count: u32,
    data: Box<[F32x16]>,
}

impl KvStore {
    pub(crate) fn new(shape: KvShape) -> Self {
        Self { shape, pages: Vec::new(), vacant: Vec::new() }
    }

    /// Bytes of the pages in use.
    pub(crate) fn bytes(&self) -> usize {
        (self.pages.len() - self.vacant.len()) * self.shape.page_bytes()
    }

    /// A sequence equal to `sequence`, sharing all of its pages.
    pub(crate) fn fork(&mut self, sequence: &Sequence) -> Sequence {
        self.hold(sequence.tail);
        Sequence { ..*sequence }
    }

    /// Forgets a sequence, and the pages that only it used.
    pub(crate) fn release(&mut self, sequence: Sequence) {
        self.drop_count(sequence.tail);
    }

    /// Cuts `sequence` to `len` tokens, if it is longer.
    pub(crate) fn truncate(&mut self, sequence: &mut Sequence, len: usize) {
        if len >= sequence.len {
            return;
        }
        let old = sequence.tail;
        for _ in len.div_ceil(PAGE)..sequence.len.div_ceil(PAGE) {
            let tail = sequence.tail.expect("a page for each 16 tokens");
            sequence.tail = self.page(tail).before;
        }
        sequence.len = len;
        self.hold(sequence.tail);
        self.drop_count(old);
    }

    /// Makes room for `n` more tokens in pages that `sequence` alone may write, and counts them in.
    pub(crate) fn extend(&mut self, sequence: &mut Sequence, n: usize) {
        if n == 0 {
            return;
        }
        if let Some(tail) = sequence.tail
            && !sequence.len.is_multiple_of(PAGE)
            && self.page(tail).count > 1
        {
            let (before, data) = (self.page(tail).before, self.page(tail).data.clone());
            self.hold(before);
            sequence.tail = Some(self.insert(before, data));
            self.drop_count(Some(tail));
        }
        for _ in sequence.len.div_ceil(PAGE)..(sequence.len + n).div_ceil(PAGE) {
            // The sequence's count of its last page passes to the new page.
            let data = vec![F32x16::ZERO; self.shape.page_lines()].into_boxed_slice();
            sequence.tail = Some(self.insert(sequence.tail, data));
        }
        sequence.len += n;
    }

    /// Appends the pages of `sequence` to `to`, first positions first.
    pub(crate) fn list(&self, sequence: &Sequence, to: &mut Vec<PageId>) {
        let begin = to.len();
        let mut next = sequence.tail;
        while let Some(page) = next {
            to.push(page);
            next = self.page(page).before;
        }
        to[begin..].reverse();
    }

    /// The keys and values of one head in one page, laid out as in a page.
    #[inline(always)]
    pub(crate) fn head(&self, page: PageId, layer: usize, head: usize) -> (&[F32x16], &[F32x16]) {
        let n = self.shape.head_dim;
        let at = (layer * self.shape.kv_heads + head) * 2 * n;
        self.page(page).data[at..at + 2 * n].split_at(n)
    }

    /// Runs `write(i, head, keys, values)` for every head of a layer in the `i`-th of `pages`, several
    /// pages at a time. They are distinct, and [`extend`](Self::extend) made them writable.
    pub(crate) fn write(
        &mut self,
        layer: usize,
        pages: impl Iterator<Item = PageId>,
        write: impl Fn(usize, usize, &mut [F32x16], &mut [F32x16]) + Sync,
    ) {
        let n = self.shape.head_dim;
        let begin = layer * self.shape.kv_heads * 2 * n;
        let heads = begin..begin + self.shape.kv_heads * 2 * n;
        // Their memory is lent out for the while.
        let take = |id: PageId| (id, std::mem::take(&mut self.pages[id.0 as usize].data));
        let mut lent: Vec<(PageId, Box<[F32x16]>)> = pages.map(take).collect();
        lent.par_iter_mut().with_min_len(TASK_PAGES).enumerate().for_each(|(i, (_, data))| {
            for (head, lines) in data[heads.clone()].chunks_exact_mut(2 * n).enumerate() {
                let (keys, values) = lines.split_at_mut(n);
                write(i, head, keys, values);
            }
        });
        for (id, data) in lent {
            self.pages[id.0 as usize].data = data;
        }
    }

    #[inline(always)]
    fn page(&self, id: PageId) -> &Page {
        &self.pages[id.0 as usize]
    }

    fn insert(&mut self, before: Option<PageId>, data: Box<[F32x16]>) -> PageId {
        let page = Page { before, count: 1, data };
        if let Some(id) = self.vacant.pop() {
            self.pages[id.0 as usize] = page;
            return id;
        }
        let id = PageId(u32::try_from(self.pages.len()).expect("fewer than 2^32 pages"));
        self.pages.push(page);
        id
    }

    fn hold(&mut self, page: Option<PageId>) {
        if let Some(id) = page {
            self.pages[id.0 as usize].count += 1;
        }
    }

    /// Takes one count off `page`, and off the pages before it as long as that frees them.
    fn drop_count(&mut self, page: Option<PageId>) {
        let mut next = page;
        while let Some(id) = next {
            let page = &mut self.pages[id.0 as usize];
            page.count -= 1;
            if page.count > 0 {
                return;
            }
            next = page.before;
            page.data = Box::default();
            self.vacant.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KvShape = KvShape { layers: 2, kv_heads: 1, head_dim: 16 };

    fn pages(kv: &KvStore, sequence: &Sequence) -> Vec<PageId> {
        let mut pages = Vec::new();
        kv.list(sequence, &mut pages);
        pages
    }

    #[test]
    fn native_kv_a_writer_copies_a_shared_page_and_keeps_its_own() {
        let mut kv = KvStore::new(SHAPE);
        let mut a = Sequence::EMPTY;
        kv.extend(&mut a, 20);
        let shared = pages(&kv, &a);
        kv.write(1, [shared[1]].into_iter(), |_, _, _, values| values[3].0[5] = 7.0);
        let mut b = kv.fork(&a);
        assert_eq!((pages(&kv, &b), kv.bytes()), (shared.clone(), 2 * SHAPE.page_bytes()));
        kv.extend(&mut b, 1);
        let copied = pages(&kv, &b);
        assert_eq!(copied[0], shared[0]);
        assert_ne!(copied[1], shared[1]);
        assert_eq!(kv.head(copied[1], 1, 0).1[3].0[5].to_bits(), 7.0_f32.to_bits());
        // Now each has its page to itself.
        kv.extend(&mut a, 1);
        kv.extend(&mut b, 1);
        assert_eq!((pages(&kv, &a), pages(&kv, &b)), (shared, copied));
        kv.release(a);
        kv.release(b);
        assert_eq!(kv.bytes(), 0);
    }

    #[test]
    fn native_kv_a_page_with_others_behind_it_is_not_written() {
        let mut kv = KvStore::new(SHAPE);
        let mut a = Sequence::EMPTY;
        kv.extend(&mut a, 40);
        let mut b = kv.fork(&a);
        kv.truncate(&mut b, 20);
        let shared = pages(&kv, &a);
        assert_eq!(pages(&kv, &b), shared[..2]);
        kv.extend(&mut b, 20);
        assert_eq!(pages(&kv, &b)[0], shared[0]);
        assert!(pages(&kv, &b)[1..].iter().all(|page| !shared.contains(page)));
        kv.release(a);
        assert_eq!(kv.bytes(), 3 * SHAPE.page_bytes(), "the copy stands alone but for the first page");
        kv.release(b);
        assert_eq!(kv.bytes(), 0);
    }

    #[test]
    fn native_kv_the_longest_sequences_are_freed_and_their_places_reused() {
        let mut kv = KvStore::new(KvShape { layers: 1, kv_heads: 1, head_dim: 16 });
        for _ in 0..2 {
            let mut a = Sequence::EMPTY;
            kv.extend(&mut a, 20_000 * PAGE);
            let b = kv.fork(&a);
            kv.truncate(&mut a, 5);
            kv.release(b);
            assert_eq!((pages(&kv, &a).len(), kv.bytes()), (1, kv.shape.page_bytes()));
            kv.release(a);
        }
        assert_eq!(kv.pages.len(), 20_000);
    }
}

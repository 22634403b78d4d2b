//! Refinable partitions: the data structure of Hopcroft's algorithm.

/// A partition of `0..n` that is refined by marking elements and splitting the marked ones off.
#[derive(Debug)]
pub(crate) struct Partition {
    /// The elements, those of a block side by side, marked ones first.
    elements: Vec<u32>,
    /// Where each element stands in `elements`.
    place: Vec<u32>,
    /// The block of each element.
    block: Vec<u32>,
    begin: Vec<u32>,
    end: Vec<u32>,
    /// How many elements of each block are marked.
    marked: Vec<u32>,
    /// The blocks with marked elements.
    touched: Vec<u32>,
}

impl Partition {
    /// Blocks of equal keys; the keys must not fall from one element to the next.
    pub(crate) fn new<K: PartialEq>(n: usize, key: impl Fn(usize) -> K) -> Self {
        let elements: Vec<u32> = (0..n as u32).collect();
        let mut partition = Self {
            place: elements.clone(),
            elements,
            block: vec![0; n],
            begin: Vec::new(),
            end: Vec::new(),
            marked: Vec::new(),
            touched: Vec::new(),
        };
        for index in 0..n {
            if index == 0 || key(index) != key(index - 1) {
                partition.push(index as u32, index as u32);
            }
            let last = partition.len() - 1;
            partition.end[last] = index as u32 + 1;
            partition.block[index] = last as u32;
        }
        partition
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.begin.len()
    }

    /// The block of an element.
    pub(crate) fn block(&self, element: u32) -> u32 {
        self.block[element as usize]
    }

    /// The elements of a block, at least one.
    pub(crate) fn elements(&self, block: usize) -> &[u32] {
        &self.elements[self.begin[block] as usize..self.end[block] as usize]
    }

    fn push(&mut self, begin: u32, end: u32) {
        self.begin.push(begin);
        self.end.push(end);
        self.marked.push(0);
    }

    /// Marks an element for the next split; marking it again does nothing.
    pub(crate) fn mark(&mut self, element: u32) {
        let block = self.block[element as usize] as usize;
        let place = self.place[element as usize];
        let free = self.begin[block] + self.marked[block];
        if place < free {
            return; // marked before
        }
        let other = self.elements[free as usize];
        self.elements.swap(place as usize, free as usize);
        self.place[other as usize] = place;
        self.place[element as usize] = free;
        if self.marked[block] == 0 {
            self.touched.push(block as u32);
        }
        self.marked[block] += 1;
    }

    /// Splits each block that is marked in part. The smaller side becomes the new block, which
    /// keeps the whole refinement at O(n log n).
    pub(crate) fn split(&mut self) {
        while let Some(block) = self.touched.pop() {
            let block = block as usize;
            let (begin, end) = (self.begin[block], self.end[block]);
            let middle = begin + std::mem::take(&mut self.marked[block]);
            if middle == end {
                continue;
            }
            let new = self.len() as u32;
            let (new_begin, new_end) = if middle - begin <= end - middle {
                self.begin[block] = middle;
                (begin, middle)
            } else {
                self.end[block] = middle;
                (middle, end)
            };
            self.push(new_begin, new_end);
            for &element in &self.elements[new_begin as usize..new_end as usize] {
                self.block[element as usize] = new;
            }
        }
    }
}

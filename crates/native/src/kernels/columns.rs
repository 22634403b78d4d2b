//! A row-major matrix that several threads fill at once, each its own panels of 16 columns.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use super::F32x16;

/// A view of a row-major `[rows, width]` matrix for writers of panels. Each panel is written once.
#[derive(Debug)]
pub(crate) struct ColumnsMut<'a> {
    data: *mut f32,
    rows: usize,
    width: usize,
    written: Vec<AtomicBool>,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: the view stands for a `&mut [f32]`, and no two threads write the same values of it: the
// columns of different panels are disjoint, and each panel is written at most once.
unsafe impl Sync for ColumnsMut<'_> {}

impl<'a> ColumnsMut<'a> {
    /// A view of `data`, which holds whole rows of `width` values.
    pub(crate) fn new(data: &'a mut [f32], width: usize) -> Self {
        assert!(width > 0 && data.len().is_multiple_of(width), "a matrix of whole rows");
        let written = std::iter::repeat_with(AtomicBool::default).take(width.div_ceil(16)).collect();
        Self { data: data.as_mut_ptr(), rows: data.len() / width, width, written, borrow: PhantomData }
    }

    /// Writes `lines`, one for each row, to the 16 columns of `panel`; lanes past the rows' end are
    /// padding and are left out.
    ///
    /// # Panics
    /// If the panel was written before.
    pub(crate) fn write_panel(&self, panel: usize, lines: &[F32x16]) {
        assert_eq!(lines.len(), self.rows, "a line for each row");
        assert!(!self.written[panel].swap(true, Ordering::Relaxed), "a panel is written once");
        let column = panel * 16;
        let lanes = (self.width - column).min(16);
        for (row, line) in lines.iter().enumerate() {
            // SAFETY: row < rows, and column + lanes <= width, so the values lie inside the matrix; they
            // belong to this panel alone, which nobody else has been given or will be.
            unsafe {
                let to = self.data.add(row * self.width + column);
                std::ptr::copy_nonoverlapping(line.0.as_ptr(), to, lanes);
            }
        }
    }
}

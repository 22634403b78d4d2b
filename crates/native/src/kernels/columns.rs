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

    /// Writes the `[panels][rows]` lines of some panels from `first` on, each to its 16 columns. Lanes past
    /// the rows' end are padding and are left out.
    ///
    /// All panels of a row are written before the next row: they are neighbours in memory.
    ///
    /// # Panics
    /// If one of the panels was written before.
    pub(crate) fn write_panels(&self, first: usize, lines: &[F32x16]) {
        assert!(self.rows > 0 && lines.len().is_multiple_of(self.rows), "a line for each row");
        let panels = first..first + lines.len() / self.rows;
        for written in &self.written[panels.clone()] {
            assert!(!written.swap(true, Ordering::Relaxed), "a panel is written once");
        }
        for row in 0..self.rows {
            for (panel, line) in panels.clone().zip(lines.iter().skip(row).step_by(self.rows)) {
                let column = panel * 16;
                // SAFETY: row < rows, and column + lanes <= width, so the values lie inside the matrix; they
                // belong to this panel alone, which nobody else has been given or will be.
                unsafe {
                    let to = self.data.add(row * self.width + column);
                    match self.width - column {
                        16.. => to.cast::<[f32; 16]>().write(line.0),
                        lanes => std::ptr::copy_nonoverlapping(line.0.as_ptr(), to, lanes),
                    }
                }
            }
        }
    }
}

//! The one look of tables.

use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};

/// A table with rules above, below and under its header; the first `numbers` columns to the right.
pub(crate) fn table<'a>(header: impl IntoIterator<Item = &'a str>, numbers: usize) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.into_iter().collect::<Vec<_>>());
    for column in table.column_iter_mut().take(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

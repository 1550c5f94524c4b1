//! The cells of a screen. Every place that is named is clamped or passed over: what is written
//! to a terminal decides, and may name any.
//!
//! A whole row is emptied by noting that it is, and its cells are only touched when something is
//! written there. So a few bytes that empty the screen, again and again, are little work.

use std::ops::Range;

use super::cell::{Cell, Part, Style};

#[derive(Debug, Clone)]
pub(super) struct Grid {
    columns: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    cells: Vec<Cell>,
    /// The row is empty, in this style, whatever its cells say.
    empty: Option<Style>,
}

impl Row {
    fn new(columns: usize) -> Self {
        Self { cells: vec![Cell::default(); columns], empty: None }
    }

    pub(super) fn cell(&self, column: usize) -> Option<Cell> {
        let cell = self.cells.get(column)?;
        Some(self.empty.map_or(*cell, Cell::empty))
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        self.cells.iter().map(|cell| self.empty.map_or(*cell, Cell::empty))
    }

    /// As many cells as there are up to the last that is not simply empty.
    pub(super) fn length(&self) -> usize {
        match self.empty.map(Cell::empty) {
            Some(cell) if cell == Cell::default() => 0,
            Some(_) => self.cells.len(),
            None => {
                let last = self.cells.iter().rposition(|cell| *cell != Cell::default());
                last.map_or(0, |last| last + 1)
            }
        }
    }

    /// The cells, to be written.
    fn open(&mut self) -> &mut [Cell] {
        if let Some(style) = self.empty.take() {
            self.cells.fill(Cell::empty(style));
        }
        &mut self.cells
    }
}

impl Grid {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows: vec![Row::new(columns); rows] }
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn cell(&self, row: usize, column: usize) -> Option<Cell> {
        self.rows.get(row)?.cell(column)
    }

    /// Writes a cell. Where it covers half of a wide character, the other half goes too.
    pub(super) fn put(&mut self, row: usize, column: usize, cell: Cell) {
        let Some(row) = self.rows.get_mut(row).map(Row::open) else { return };
        split(row, column);
        if cell.part == Part::First {
            split(row, column + 2);
            let second = Cell { part: Part::Second, style: cell.style, ..Cell::default() };
            set(row, column + 1, second);
        } else {
            split(row, column + 1);
        }
        set(row, column, cell);
    }

    /// Puts a mark on what was written last before a column.
    pub(super) fn mark(&mut self, row: usize, column: usize, mark: char) {
        let Some(row) = self.rows.get_mut(row).map(Row::open) else { return };
        let column = match row.get(column) {
            Some(cell) if cell.part == Part::Second => column.saturating_sub(1),
            _ => column,
        };
        if let Some(cell) = row.get_mut(column)
            && cell.character != '\0'
            && cell.mark == '\0'
        {
            cell.mark = mark;
        }
    }

    /// Empties some columns of a row.
    pub(super) fn erase(&mut self, row: usize, columns: Range<usize>, style: Style) {
        if columns.start == 0 && columns.end >= self.columns {
            return self.erase_rows(row..row + 1, style);
        }
        let Some(row) = self.rows.get_mut(row).map(Row::open) else { return };
        let end = columns.end.min(row.len());
        let start = columns.start.min(end);
        if start == end {
            return;
        }
        split(row, start);
        split(row, end);
        if let Some(cells) = row.get_mut(start..end) {
            cells.fill(Cell::empty(style));
        }
    }

    /// Empties whole rows.
    pub(super) fn erase_rows(&mut self, rows: Range<usize>, style: Style) {
        let end = rows.end.min(self.rows.len());
        for row in self.rows.get_mut(rows.start..end).unwrap_or_default() {
            row.empty = Some(style);
        }
    }

    /// Moves what is right of a column to the right.
    pub(super) fn insert(&mut self, row: usize, column: usize, count: usize, style: Style) {
        let Some(row) = self.rows.get_mut(row).map(Row::open) else { return };
        split(row, column);
        if let Some(cells) = row.get_mut(column..) {
            let count = count.min(cells.len());
            cells.rotate_right(count);
            for cell in cells.iter_mut().take(count) {
                *cell = Cell::empty(style);
            }
        }
        mend_end(row);
    }

    /// Moves what is right of some columns to the left, over them.
    pub(super) fn delete(&mut self, row: usize, column: usize, count: usize, style: Style) {
        let Some(row) = self.rows.get_mut(row).map(Row::open) else { return };
        split(row, column);
        split(row, column.saturating_add(count));
        if let Some(cells) = row.get_mut(column..) {
            let count = count.min(cells.len());
            cells.rotate_left(count);
            for cell in cells.iter_mut().rev().take(count) {
                *cell = Cell::empty(style);
            }
        }
        mend_end(row);
    }

    /// Moves rows up within a region; empty ones come from below.
    pub(super) fn scroll_up(&mut self, region: Range<usize>, count: usize, style: Style) {
        let end = region.end.min(self.rows.len());
        let Some(rows) = self.rows.get_mut(region.start..end) else { return };
        let count = count.min(rows.len());
        rows.rotate_left(count);
        self.erase_rows(end.saturating_sub(count)..end, style);
    }

    /// Moves rows down within a region; empty ones come from above.
    pub(super) fn scroll_down(&mut self, region: Range<usize>, count: usize, style: Style) {
        let end = region.end.min(self.rows.len());
        let Some(rows) = self.rows.get_mut(region.start..end) else { return };
        let count = count.min(rows.len());
        rows.rotate_right(count);
        self.erase_rows(region.start..region.start + count, style);
    }

    /// Changes the size. The cursor's row stays on the screen, those above it go first.
    pub(super) fn resize(&mut self, columns: usize, rows: usize, cursor_row: usize) -> usize {
        let gone = (cursor_row + 1).saturating_sub(rows).min(self.rows.len());
        self.rows.drain(..gone);
        self.rows.resize_with(rows, || Row::new(columns));
        self.rows.shrink_to_fit();
        for row in &mut self.rows {
            row.cells.resize(columns, Cell::default());
            row.cells.shrink_to_fit();
            mend_end(&mut row.cells);
        }
        self.columns = columns;
        gone
    }
}

/// Empties the wide character that lies on both sides of the boundary before a column.
fn split(row: &mut [Cell], column: usize) {
    if row.get(column).is_some_and(|cell| cell.part == Part::Second) {
        for column in [column.saturating_sub(1), column] {
            if let Some(cell) = row.get_mut(column) {
                *cell = Cell::empty(cell.style);
            }
        }
    }
}

/// Empties a wide character whose second half fell off the end of its row.
fn mend_end(row: &mut [Cell]) {
    if let Some(cell) = row.last_mut()
        && cell.part == Part::First
    {
        *cell = Cell::empty(cell.style);
    }
}

fn set(row: &mut [Cell], column: usize, cell: Cell) {
    if let Some(place) = row.get_mut(column) {
        *place = cell;
    }
}

//! Values in rows and columns as a heat map: the drawing of `matrix` and `pairs`.

use std::collections::BTreeMap;

use crate::{
    figures::matrix::heat_class,
    svg::{
        Svg,
        plot::{Size, fitted, text_width},
    },
};

/// Width of a digit in a cell.
const CELL_DIGIT: f64 = 6.4;

/// What is drawn.
pub(crate) struct HeatMap {
    /// Metric and unit.
    pub(crate) title: String,
    /// What the rows and the columns are.
    pub(crate) axes: String,
    pub(crate) rows: Vec<String>,
    pub(crate) columns: Vec<String>,
    /// By (row, column).
    pub(crate) cells: BTreeMap<(usize, usize), HeatCell>,
    /// The cells of a row and a column of the same number have no value by nature: they stay empty,
    /// where others without a value are crosses.
    pub(crate) has_empty_diagonal: bool,
}

/// One value.
pub(crate) struct HeatCell {
    pub(crate) value: f64,
    /// The value in the unit of the title.
    pub(crate) text: String,
    /// Shown on hover.
    pub(crate) tip: String,
}

impl HeatMap {
    /// Lowest and highest value.
    fn bounds(&self) -> (f64, f64) {
        let values = self.cells.values().map(|cell| cell.value);
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), value| (l.min(value), h.max(value)))
    }

    pub(crate) fn draw(&self, size: Size) -> Svg {
        let longest = |texts: &[String]| texts.iter().map(|text| text_width(text)).fold(0.0, f64::max);
        let left = (longest(&self.rows) + 20.0).clamp(52.0, size.pick(220.0, 110.0));
        let top = 62.0;
        let room = size.width() - left - 14.0;
        let side = (room / self.columns.len().max(1) as f64).clamp(3.0, size.pick(62.0, 56.0));
        let mut svg = Svg::new(size.width(), top + side * self.rows.len() as f64 + 20.0);
        svg.text(4.0, 16.0, "unit start", &self.title);
        svg.text(4.0, 34.0, "unit start", &self.axes);
        // Headings that would touch each other are left out; the table has them all.
        let stride = ((longest(&self.columns) + 6.0) / side).ceil().max(1.0) as usize;
        for (column, text) in self.columns.iter().enumerate().step_by(stride) {
            svg.text(left + side * (column as f64 + 0.5), top - 8.0, "tick middle", text);
        }
        let stride = (15.0 / side).ceil().max(1.0) as usize;
        for (row, text) in self.rows.iter().enumerate().step_by(stride) {
            let middle = top + side * (row as f64 + 0.5) + 4.0;
            svg.text(left - 8.0, middle, "tick end", &fitted(text, left - 12.0));
        }
        let bounds = self.bounds();
        for row in 0..self.rows.len() {
            for column in 0..self.columns.len() {
                let at = (left + side * column as f64, top + side * row as f64);
                match self.cells.get(&(row, column)) {
                    Some(cell) => draw_value(&mut svg, cell, bounds, at, side),
                    None if self.has_empty_diagonal && row == column => {}
                    None => draw_cross(&mut svg, at, side),
                }
            }
        }
        svg
    }
}

fn inner(cell: f64) -> f64 {
    cell - if cell > 14.0 { 1.0 } else { 0.0 }
}

fn draw_cross(svg: &mut Svg, (x, y): (f64, f64), cell: f64) {
    let side = inner(cell);
    svg.line((x + 2.0, y + 2.0), (x + side - 2.0, y + side - 2.0), "absent");
    svg.line((x + 2.0, y + side - 2.0), (x + side - 2.0, y + 2.0), "absent");
}

fn draw_value(svg: &mut Svg, found: &HeatCell, bounds: (f64, f64), (x, y): (f64, f64), cell: f64) {
    let side = inner(cell);
    let class = heat_class(found.value, bounds);
    svg.tipped(&found.tip, |svg| {
        svg.rounded(x, y, side, side, if cell > 20.0 { 3.0 } else { 0.0 }, &class);
        if cell >= 27.0 && CELL_DIGIT * found.text.len() as f64 <= side {
            svg.text(x + side / 2.0, y + side / 2.0 + 4.0, &format!("cell middle {class}"), &found.text);
        }
    });
}

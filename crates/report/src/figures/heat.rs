//! Values in rows and columns as a heat map: the drawing of every matrix. What is known of rows and columns beyond
//! their levels is annotated: groups, with gaps between them, and outlines.

use std::collections::BTreeMap;

use crate::svg::{
    Svg,
    plot::{Size, fitted, text_width},
};

/// Width of a digit in a cell.
const CELL_DIGIT: f64 = 6.4;
/// Steps of the heat scale; the style sheet has as many colours.
pub(crate) const HEAT_STEPS: usize = 9;
/// Room of the brackets with the names of groups.
const BRACKETS: f64 = 26.0;
/// A bracket that is longer has its group's full name.
const LONG_BRACKET: f64 = 44.0;
/// Room for the text beside an outlined row.
const BESIDE: f64 = 92.0;

/// What is drawn.
#[derive(Default)]
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
    /// All rows, in their order; empty where they have no groups.
    pub(crate) row_groups: Vec<Group>,
    /// All columns, in their order; empty where they have no groups.
    pub(crate) column_groups: Vec<Group>,
    /// A row, with a text in two lines beside it.
    pub(crate) outlined_row: Option<(usize, [String; 2])>,
    /// A column, outlined thinner than a row.
    pub(crate) outlined_column: Option<usize>,
}

/// One value.
pub(crate) struct HeatCell {
    pub(crate) value: f64,
    /// The value in the unit of the title.
    pub(crate) text: String,
    /// Shown on hover.
    pub(crate) tip: String,
}

/// Neighbours that belong together.
pub(crate) struct Group {
    pub(crate) length: usize,
    pub(crate) name: String,
    /// The name where there is little room.
    pub(crate) short: String,
    /// Gap before it, in gaps of the drawing.
    pub(crate) gap: f64,
}

/// The step of the heat scale that a value falls into, as its class.
pub(crate) fn heat_class(value: f64, (low, high): (f64, f64)) -> String {
    let fraction = if high > low { (value - low) / (high - low) } else { 0.5 };
    let step = ((fraction * HEAT_STEPS as f64) as usize).min(HEAT_STEPS - 1);
    format!("h{step}")
}

/// Places of the rows or columns, from the first on.
struct Track<'a> {
    texts: &'a [String],
    groups: &'a [Group],
    starts: Vec<f64>,
    side: f64,
}

impl<'a> Track<'a> {
    fn of(texts: &'a [String], groups: &'a [Group], side: f64, gap: f64) -> Self {
        let mut starts: Vec<f64> = (0..texts.len()).map(|place| side * place as f64).collect();
        let mut first = 0;
        for (index, group) in groups.iter().enumerate() {
            let before = if index == 0 { 0.0 } else { group.gap * gap };
            starts.iter_mut().skip(first).for_each(|start| *start += before);
            first += group.length;
        }
        Self { texts, groups, starts, side }
    }

    fn extent(&self) -> f64 {
        self.starts.last().map_or(0.0, |last| last + self.side)
    }

    /// Range of each group with its name; nothing where there is only one.
    fn brackets(&self) -> Vec<(f64, f64, &str)> {
        let mut first = 0;
        let mut all = Vec::new();
        for group in self.groups.iter().filter(|_| self.groups.len() > 1) {
            let from = self.starts[first];
            let to = self.starts[first + group.length - 1] + self.side;
            let name = if to - from > LONG_BRACKET { &group.name } else { &group.short };
            all.push((from, to, name.as_str()));
            first += group.length;
        }
        all
    }
}

impl HeatMap {
    /// Lowest and highest value.
    fn bounds(&self) -> (f64, f64) {
        let values = self.cells.values().map(|cell| cell.value);
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), value| (l.min(value), h.max(value)))
    }

    pub(crate) fn draw(&self, size: Size) -> Svg {
        let room_of = |groups: &[Group]| if groups.len() > 1 { BRACKETS } else { 0.0 };
        let left =
            (longest(&self.rows) + 20.0).clamp(52.0, size.pick(220.0, 110.0)) + room_of(&self.row_groups);
        let top = 62.0 + room_of(&self.column_groups);
        let beside = if self.outlined_row.is_some() { size.pick(BESIDE, 0.0) } else { 0.0 };
        let room = size.width() - left - 14.0 - beside;
        let gap = if self.rows.len().max(self.columns.len()) > 16 { 2.0 } else { 5.0 };
        let gaps: f64 = self.column_groups.iter().skip(1).map(|group| group.gap * gap).sum();
        let side = ((room - gaps) / self.columns.len().max(1) as f64).clamp(3.0, size.pick(62.0, 56.0));
        let across = Track::of(&self.columns, &self.column_groups, side, gap);
        let down = Track::of(&self.rows, &self.row_groups, side, gap);
        let mut svg = Svg::new(size.width(), top + down.extent() + 20.0);
        svg.text(4.0, 16.0, "unit start", &self.title);
        svg.text(4.0, 34.0, "unit start", &self.axes);
        head_columns(&mut svg, &across, (left, top));
        head_rows(&mut svg, &down, (left, top));
        let bounds = self.bounds();
        for (row, y) in down.starts.iter().enumerate() {
            for (column, x) in across.starts.iter().enumerate() {
                let at = (left + x, top + y);
                match self.cells.get(&(row, column)) {
                    Some(cell) => draw_value(&mut svg, cell, bounds, at, side),
                    None if self.has_empty_diagonal && row == column => {}
                    None => draw_cross(&mut svg, at, side),
                }
            }
        }
        self.draw_outlines(&mut svg, (&across, &down), (left, top), size);
        svg
    }

    fn draw_outlines(
        &self,
        svg: &mut Svg,
        (across, down): (&Track<'_>, &Track<'_>),
        (left, top): (f64, f64),
        size: Size,
    ) {
        if let Some(column) = self.outlined_column {
            let (x, height) = (left + across.starts[column], down.extent());
            svg.rounded(x - 1.5, top - 1.5, across.side + 2.0, height + 2.0, 4.0, "irq-outline thin");
        }
        let Some((row, texts)) = &self.outlined_row else { return };
        let (y, width) = (top + down.starts[*row], across.extent());
        svg.rounded(left - 2.5, y - 2.5, width + 4.0, down.side + 4.0, 5.0, "irq-outline");
        if size == Size::Wide {
            for (line, text) in (0..).map(f64::from).zip(texts) {
                svg.text(left + width + 10.0, y + down.side / 2.0 + 13.0 * line, "irq-text start", text);
            }
        }
    }
}

fn longest(texts: &[String]) -> f64 {
    texts.iter().map(|text| text_width(text)).fold(0.0, f64::max)
}

/// Levels above the columns, and the names of their groups above these.
fn head_columns(svg: &mut Svg, across: &Track<'_>, (left, top): (f64, f64)) {
    // Headings that would touch each other are left out; the table has them all.
    let stride = ((longest(across.texts) + 6.0) / across.side).ceil().max(1.0) as usize;
    for (text, start) in across.texts.iter().zip(&across.starts).step_by(stride) {
        svg.text(left + start + across.side / 2.0, top - 8.0, "tick middle", text);
    }
    for (from, to, name) in across.brackets() {
        svg.line((left + from, top - 24.0), (left + to - 1.0, top - 24.0), "bracket");
        svg.text(left + (from + to) / 2.0, top - 30.0, "group middle", name);
    }
}

/// Levels beside the rows, and the names of their groups beside these.
fn head_rows(svg: &mut Svg, down: &Track<'_>, (left, top): (f64, f64)) {
    let brackets = down.brackets();
    let room = if brackets.is_empty() { left } else { left - BRACKETS };
    let stride = (15.0 / down.side).ceil().max(1.0) as usize;
    for (text, start) in down.texts.iter().zip(&down.starts).step_by(stride) {
        let middle = top + start + down.side / 2.0 + 4.0;
        svg.text(left - 8.0, middle, "tick end", &fitted(text, room - 12.0));
    }
    let x = left - longest(down.texts).min(room - 12.0) - 16.0;
    for (from, to, name) in brackets {
        svg.line((x, top + from), (x, top + to - 1.0), "bracket");
        svg.text_upwards(x - 7.0, top + (from + to) / 2.0, "group middle", name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_apart_and_have_their_names_where_there_is_room() {
        let texts: Vec<String> = (0..4).map(|core| core.to_string()).collect();
        let group = |length, gap| Group { length, name: "node 0".to_owned(), short: "0".to_owned(), gap };
        let groups = [group(3, 2.5), group(1, 2.5)];
        let track = Track::of(&texts, &groups, 20.0, 4.0);
        assert_eq!(track.starts, [0.0, 20.0, 40.0, 70.0]);
        assert_eq!(track.extent(), 90.0);
        assert_eq!(track.brackets(), [(0.0, 60.0, "node 0"), (70.0, 90.0, "0")]);
        assert_eq!(Track::of(&texts, &groups[..1], 20.0, 4.0).brackets(), [], "one is no group");
    }

    #[test]
    fn steps_of_the_scale_are_from_the_lowest_to_the_highest() {
        let of = |value: f64| heat_class(value, (1.0, 10.0));
        assert_eq!([of(1.0), of(5.5), of(10.0)], ["h0", "h4", "h8"]);
        assert_eq!(heat_class(3.0, (3.0, 3.0)), "h4", "all alike");
    }
}

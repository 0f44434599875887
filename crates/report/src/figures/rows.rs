//! Values in rows: every trial as a dot, the median with its interval, and published values as hollow dashed bars. The
//! drawing of every figure of cells.

use clearstream_schema::outcome::Unit;

use crate::{
    estimate::Estimate,
    figure::LegendItem,
    format::significant,
    svg::{
        Svg,
        plot::{Area, Plot, Size, Tick, fitted, text_width, tick_labels},
        scale::Scale,
    },
};

/// Rows beyond this many are in the table only.
pub(crate) const MAX_ROWS: usize = 40;
/// Height of a row's label on a phone, where it is above its marks.
const LABEL: f64 = 22.0;
/// Values that span more are drawn on a logarithmic axis.
const LOGARITHMIC_FROM: f64 = 100.0;

/// What is drawn.
pub(crate) struct Rows {
    /// What the values are of, for the title of the axis.
    pub(crate) quantity: String,
    /// Of all values.
    pub(crate) unit: Unit,
    /// Printed unit of the axis and its factor, where the table beside it has one: the axis is then from zero, in any case.
    pub(crate) printed: Option<(&'static str, f64)>,
    /// Not more than [`MAX_ROWS`].
    pub(crate) rows: Vec<Row>,
    /// Published values that hold for all rows, such as the ceiling of a slot.
    pub(crate) bands: Vec<Range>,
}

/// One cell.
pub(crate) struct Row {
    pub(crate) label: String,
    /// Colour.
    pub(crate) class: String,
    /// Of the trials.
    pub(crate) values: Vec<f64>,
    pub(crate) estimate: Estimate,
    /// Published values of this cell.
    pub(crate) published: Vec<Range>,
}

/// Published values, from the lowest to the highest.
pub(crate) struct Range {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Label of a band; shown on hover of a row's.
    pub(crate) text: String,
}

/// The marks of a row.
pub(crate) fn legend() -> Vec<LegendItem> {
    vec![
        LegendItem::new("dot s0", "one trial"),
        LegendItem::new("bar s0", "median with its 95 % interval (the range below six trials)"),
    ]
}

/// The horizontal axis, in stored units divided by `factor`.
struct Axis {
    scale: Scale,
    ticks: Vec<Tick>,
    title: String,
    factor: f64,
    /// The unit stands at each tick.
    is_logarithmic: bool,
}

impl Rows {
    pub(crate) fn draw(&self, size: Size) -> Svg {
        let row_height = size.pick(38.0, 52.0);
        let longest = self.rows.iter().map(|row| text_width(&row.label)).fold(0.0, f64::max);
        let left = (longest + 20.0).clamp(70.0, 280.0);
        let axis = self.axis(size);
        let svg = Svg::new(size.width(), 44.0 + row_height * self.rows.len() as f64 + 44.0);
        let area = Area {
            left: size.pick(left, 12.0),
            right: svg.width - size.pick(70.0, 14.0),
            top: 30.0,
            bottom: svg.height - 44.0,
        };
        let y = Scale::Linear { domain: (0.0, self.rows.len() as f64), range: (0.0, 1.0) };
        let mut plot =
            Plot::on(svg, area, (axis.scale, axis.ticks.clone(), &axis.title), (y, Vec::new(), ""));
        let stretches = plot.stretches(size, self.rows.len(), row_height, LABEL);
        for (tick, _) in &axis.ticks {
            plot.upright(*tick, if *tick == 0.0 { "axis" } else { "grid" }, &stretches);
        }
        for band in &self.bands {
            plot.shade(band.low / axis.factor, band.high / axis.factor, "theirs-band");
            plot.rule_over(band.high / axis.factor, "theirs", &band.text, 0, &stretches);
        }
        for (index, row) in self.rows.iter().enumerate() {
            let middle = area.top + row_height * (index as f64 + size.pick(0.5, 0.68));
            self.name(&mut plot, row, &axis, middle, size);
            self.mark(&mut plot, row, axis.factor, middle);
        }
        plot.svg
    }

    /// From zero; logarithmic where values span decades.
    fn axis(&self, size: Size) -> Axis {
        let published = || self.rows.iter().flat_map(|row| &row.published).chain(&self.bands);
        let values = || self.rows.iter().flat_map(|row| row.values.iter().copied());
        let highest = values().chain(published().map(|range| range.high)).fold(0.0, f64::max);
        let lowest = values().chain(published().map(|range| range.low)).fold(f64::INFINITY, f64::min);
        let (unit, factor) = self.printed.unwrap_or_else(|| self.unit.scale_for(highest));
        if self.printed.is_none() && lowest > 0.0 && highest / lowest > LOGARITHMIC_FROM {
            let range = (lowest / factor, highest / factor);
            let (scale, ticks) = logarithmic(self.unit, range, factor, size.pick(9, 4));
            return Axis { scale, ticks, title: self.quantity.clone(), factor, is_logarithmic: true };
        }
        let (scale, ticks) = Scale::from_zero(highest / factor, size.pick(8, 5));
        let title =
            if unit.is_empty() { self.quantity.clone() } else { format!("{}, {unit}", self.quantity) };
        Axis { scale, ticks: tick_labels(&ticks), title, factor, is_logarithmic: false }
    }

    /// Label and median of a row.
    fn name(&self, plot: &mut Plot, row: &Row, axis: &Axis, middle: f64, size: Size) {
        let (left, right) = (plot.area.left, plot.area.right);
        let median = row.estimate.median;
        match size {
            Size::Wide => {
                let label = fitted(&row.label, left - 16.0);
                plot.svg.text(left - 12.0, middle + 4.0, "rowlabel end", &label);
                let value = if axis.is_logarithmic {
                    self.unit.text(median)
                } else {
                    significant(median / axis.factor)
                };
                plot.svg.text(right + 62.0, middle + 4.0, "value end", &value);
            }
            Size::Narrow => {
                let value = self.unit.text(median);
                let room = right - left - text_width(&value) - 12.0;
                plot.svg.text(left + 4.0, middle - 18.0, "rowlabel halo start", &fitted(&row.label, room));
                plot.svg.text(right, middle - 18.0, "value halo end", &value);
            }
        }
    }

    fn mark(&self, plot: &mut Plot, row: &Row, factor: f64, middle: f64) {
        let at = |value: f64| plot.x.at(value / factor);
        let published: Vec<(f64, f64)> =
            row.published.iter().map(|range| (at(range.low), at(range.high))).collect();
        let dots: Vec<f64> = row.values.iter().map(|value| at(*value)).collect();
        let interval = row.estimate.interval.map(|(low, high)| (at(low), at(high)));
        let median = at(row.estimate.median);
        for ((from, to), range) in published.into_iter().zip(&row.published) {
            plot.svg.tipped(&range.text, |svg| {
                let width = (to - from).max(3.0);
                svg.rounded(from - 1.0, middle - 11.0, width + 2.0, 22.0, 4.0, "theirs-range");
            });
        }
        let unit = |value: f64| self.unit.text(value);
        let tip =
            format!("{}: {} \u{2013} {}", row.label, unit(row.estimate.median), row.estimate.how_sure(unit));
        let class = &row.class;
        plot.svg.tipped(&tip, |svg| {
            if let Some((low, high)) = interval {
                svg.rounded(low, middle - 3.0, (high - low).max(1.0), 6.0, 3.0, &format!("interval {class}"));
            }
            for dot in &dots {
                svg.circle(*dot, middle, 3.0, &format!("dot faint {class}"));
            }
            svg.rounded(median - 1.75, middle - 9.0, 3.5, 18.0, 1.5, &format!("median {class}"));
            svg.circle(median, middle, 12.0, "readout");
        });
    }
}

/// An axis over a range, both in the stored unit divided by `factor`, with ticks
/// at powers of ten of the stored unit: at most `count`, each with its own unit.
fn logarithmic(unit: Unit, (lowest, highest): (f64, f64), factor: f64, count: usize) -> (Scale, Vec<Tick>) {
    let (low, high) = (lowest / 1.5, highest * 1.5);
    let first = (low * factor).log10().ceil() as i32;
    let last = (high * factor).log10().floor() as i32;
    let stride = usize::try_from(last - first + 1).unwrap_or(1).div_ceil(count).max(1);
    let ticks = (first..=last).step_by(stride).map(|power| {
        let value = 10f64.powi(power);
        let (name, scale) = unit.scale_for(value);
        (value / factor, format!("{} {name}", (value / scale * 1e3).round() / 1e3))
    });
    (Scale::Logarithmic { domain: (low, high), range: (0.0, 1.0) }, ticks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_over_decades_have_a_unit_each_and_are_not_too_many() {
        // 120 ns to 305 ms, drawn in milliseconds.
        let range = (120e-6, 305.0);
        let (scale, ticks) = logarithmic(Unit::Nanoseconds, range, 1e6, 9);
        let texts: Vec<&str> = ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"]);
        assert!(ticks.iter().all(|(at, _)| (0.0..=1.0).contains(&scale.at(*at))));
        assert!(scale.at(range.0) > 0.0 && scale.at(range.1) < 1.0, "with a margin");
        assert_eq!(logarithmic(Unit::Nanoseconds, range, 1e6, 4).1.len(), 4);
    }
}

//! A metric per cell, in rows: every trial as a dot, the median with its
//! interval, with published values.

use clearstream_schema::outcome::Unit;

use super::{
    scaled,
    view::{MetricCell, View},
};
use crate::svg::{
    Svg,
    plot::{Area, Plot, Size, Tick, fitted, text_width, tick_labels},
    scale::Scale,
};

/// Rows beyond this many are in the table only.
const MAX_ROWS: usize = 40;
/// Values that span more are drawn on a logarithmic axis.
const LOGARITHMIC_FROM: f64 = 100.0;

pub(super) fn draw(view: &View<'_>, size: Size) -> Svg {
    let cells: Vec<&MetricCell<'_>> = in_rows(view);
    let published = view.published();
    let row_height = size.pick(34.0, 48.0);
    let labels: Vec<String> = cells.iter().map(|cell| view.label(cell, None)).collect();
    let longest = labels.iter().map(|label| text_width(label)).fold(0.0, f64::max);
    let svg = Svg::new(size.width(), 44.0 + row_height * cells.len() as f64 + 44.0);
    let area = Area {
        left: size.pick((longest + 20.0).clamp(70.0, 280.0), 12.0),
        right: svg.width - size.pick(70.0, 14.0),
        top: 30.0,
        bottom: svg.height - 44.0,
    };
    let values = || cells.iter().flat_map(|cell| cell.values.iter().copied());
    let highest = values().chain(published.iter().map(|(.., high)| *high)).fold(0.0, f64::max);
    let lowest = values().chain(published.iter().map(|(_, low, _)| *low)).fold(f64::INFINITY, f64::min);
    let (unit, factor) = scaled(view.metric.unit, highest);
    let y = Scale::Linear { domain: (0.0, cells.len() as f64), range: (0.0, 1.0) };
    let x = if lowest > 0.0 && highest / lowest > LOGARITHMIC_FROM {
        let (scale, ticks) =
            logarithmic(view.metric.unit, (lowest / factor, highest / factor), factor, size.pick(9, 4));
        (scale, ticks, view.axis_title(""))
    } else {
        let (scale, ticks) = Scale::from_zero(highest / factor, size.pick(6, 4));
        (scale, tick_labels(&ticks), view.axis_title(unit))
    };
    let mut plot = Plot::on(svg, area, (x.0, x.1, &x.2), (y, Vec::new(), ""));
    for (row, (cell, label)) in cells.iter().zip(&labels).enumerate() {
        let middle = area.top + row_height * (row as f64 + 0.5);
        let (text_y, class, at) =
            size.pick((middle + 4.0, "tick end", area.left - 8.0), (middle - 12.0, "tick start", area.left));
        let room = size.pick(area.left - 12.0, area.right - area.left);
        plot.svg.text(at, text_y, class, &fitted(label, room));
        let ours = published.iter().filter(|(published, ..)| view.is_of(published, cell, None));
        for (published, low, high) in ours {
            let (left, right) = (plot.x.at(low / factor), plot.x.at(high / factor));
            plot.svg.tipped(&format!("{} ({})", published.label, published.source), |svg| {
                svg.rect(left, middle - 8.0, (right - left).max(2.0), 16.0, "theirs-band");
                svg.line((left, middle - 8.0), (left, middle + 8.0), "theirs");
                svg.line((right, middle - 8.0), (right, middle + 8.0), "theirs");
            });
        }
        let class = view.class(cell);
        for value in &cell.values {
            let at = plot.x.at(value / factor);
            plot.svg.circle(at, middle, 2.5, &format!("dot faint {class}"));
        }
        let median = plot.x.at(cell.estimate.median / factor);
        let interval =
            cell.estimate.interval.map(|(low, high)| (plot.x.at(low / factor), plot.x.at(high / factor)));
        let tip = format!("{label}: {}", cell.estimate.how_sure(|value| view.metric.unit.text(value)));
        plot.svg.tipped(&tip, |svg| {
            if let Some((low, high)) = interval {
                svg.line((low, middle), (high, middle), &format!("whisker {class}"));
            }
            svg.circle(median, middle, 4.5, &format!("dot {class}"));
            svg.circle(median, middle, 12.0, "readout");
        });
    }
    plot.svg
}

/// The cells that have a row, in order: those of the other experiment below the first one
/// that their levels agree with.
fn in_rows<'v, 'a>(view: &'v View<'a>) -> Vec<&'v MetricCell<'a>> {
    let mut rows: Vec<&MetricCell<'a>> = Vec::new();
    for cell in view.pairs().into_iter().flat_map(|(own, other)| [own, other]).flatten() {
        if rows.len() < MAX_ROWS && !rows.iter().any(|known| std::ptr::eq(*known, cell)) {
            rows.push(cell);
        }
    }
    rows
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

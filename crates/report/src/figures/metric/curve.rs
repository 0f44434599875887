//! A metric against a factor of numbers: a line per combination of the others,
//! logarithmic where values span decades.

use serde_json::Value;

use super::{
    others_class, scaled,
    view::{View, bits_per_second, nanoseconds, number, ratio},
};
use crate::{
    figures::series_class,
    format::{bytes, percent, rate, time},
    svg::{
        Svg,
        plot::{Area, Plot, Size, Tick, tick_labels},
        scale::{Scale, decades, powers_of_two, ticks_between},
    },
};

/// Levels that span more are drawn on a logarithmic axis.
const LOGARITHMIC_FROM: f64 = 32.0;
/// The same of times: those of a series are equally far from each other.
const LOGARITHMIC_TIMES_FROM: f64 = 1000.0;
/// Numbers that span more have ticks at powers of ten.
const DECADES_FROM: f64 = 1000.0;

pub(super) fn draw(view: &View<'_>, factor: &str, size: Size) -> Svg {
    let (lines, published) = (view.lines(), view.published());
    let values = view.cells.iter().flat_map(|cell| cell.values.iter().copied());
    let highest = values.chain(published.iter().map(|(.., high)| *high)).fold(0.0, f64::max);
    let (unit, factor_of_unit) = scaled(view.metric.unit, highest);
    let svg = Svg::new(size.width(), size.pick(400.0, 320.0));
    let area = Area {
        left: size.pick(64.0, 52.0),
        right: svg.width - size.pick(20.0, 12.0),
        top: 40.0,
        bottom: svg.height - 44.0,
    };
    let label = factor.replace('-', " ");
    let (y, y_ticks) = y_axis(view, factor_of_unit, highest);
    let title = view.axis_title(unit);
    let text = level_text(view, factor);
    let (x, x_ticks) = x_axis(view, factor, size);
    let mut plot = Plot::on(svg, area, (x, x_ticks, &label), (y, y_ticks, &title));
    let mut of_lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); lines.len()];
    for (published, low, high) in published {
        match published.factors.get(factor).and_then(number) {
            Some(at) => {
                let line = view.line_of(published);
                let class = line.map_or_else(String::new, |line| format!(" {}", others_class(line)));
                if let Some(line) = line {
                    of_lines[line].push((at, (low + high) / 2.0 / factor_of_unit));
                }
                let (x, upper, lower) =
                    (plot.x.at(at), plot.y.at(high / factor_of_unit), plot.y.at(low / factor_of_unit));
                plot.svg.tipped(&format!("{} ({})", published.label, published.source), |svg| {
                    svg.line((x, upper), (x, lower), &format!("theirs{class}"));
                    svg.circle(x, (upper + lower) / 2.0, 6.0, &format!("theirs-dot{class}"));
                });
            }
            None => plot.published_band(low / factor_of_unit, high / factor_of_unit),
        }
    }
    for (index, mut points) in of_lines.into_iter().enumerate() {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        if points.len() > 1 {
            plot.line(&points, &format!("theirs {}", others_class(index)));
        }
    }
    for (index, (name, points)) in lines.iter().enumerate() {
        let class = series_class(index);
        let medians: Vec<(f64, f64)> =
            points.iter().map(|(x, cell)| (*x, cell.estimate.median / factor_of_unit)).collect();
        plot.line(&medians, &format!("line {class}"));
        for (x, cell) in points {
            let at = (plot.x.at(*x), plot.y.at(cell.estimate.median / factor_of_unit));
            let interval = cell
                .estimate
                .interval
                .map(|(low, high)| (plot.y.at(low / factor_of_unit), plot.y.at(high / factor_of_unit)));
            let tip = format!(
                "{name}, {label} {}: {} ({})",
                text(*x),
                view.metric.unit.text(cell.estimate.median),
                cell.estimate.how_sure(|value| view.metric.unit.text(value))
            );
            plot.svg.tipped(&tip, |svg| {
                if let Some((low, high)) = interval {
                    svg.line((at.0, low), (at.0, high), &format!("whisker {class}"));
                }
                svg.circle(at.0, at.1, 4.0, &format!("dot {class}"));
                svg.circle(at.0, at.1, 12.0, "readout");
            });
        }
    }
    plot.svg
}

/// From zero, or logarithmic where the medians span decades.
fn y_axis(view: &View<'_>, unit: f64, highest: f64) -> (Scale, Vec<Tick>) {
    let published = view.published();
    let values = || {
        let ours = view.cells.iter().flat_map(|cell| cell.values.iter().copied());
        ours.chain(published.iter().map(|(_, low, _)| *low))
    };
    let lowest = values().fold(f64::INFINITY, f64::min);
    if lowest > 0.0 && highest / lowest > LOGARITHMIC_FROM {
        let (low, high) = (lowest / unit / 1.2, highest / unit * 1.2);
        let scale = Scale::Logarithmic { domain: (low, high), range: (0.0, 1.0) };
        let first = low.log10().ceil() as i32;
        let last = high.log10().floor() as i32;
        let ticks = (first..=last).map(|power| {
            let value = 10f64.powi(power);
            (value, format!("{value}"))
        });
        return (scale, ticks.collect());
    }
    if lowest < 0.0 {
        let (low, high) = (lowest / unit, highest / unit);
        let margin = (high - low).max(1.0) * 0.05;
        let domain = (low - margin, high + margin);
        let ticks = ticks_between(domain.0, domain.1, 6);
        return (Scale::Linear { domain, range: (0.0, 1.0) }, tick_labels(&ticks));
    }
    let (scale, ticks) = Scale::from_zero(highest / unit, 5);
    (scale, tick_labels(&ticks))
}

fn x_axis(view: &View<'_>, factor: &str, size: Size) -> (Scale, Vec<Tick>) {
    let published = view.published();
    let theirs = || published.iter().filter_map(|(one, ..)| one.factors.get(factor));
    let levels = || view.cells.iter().filter_map(|cell| cell.cell.factors.get(factor)).chain(theirs());
    let values = || levels().filter_map(number);
    let (low, high) = values().fold((f64::INFINITY, 0.0f64), |(l, h), w| (l.min(w), h.max(w)));
    let text = level_text(view, factor);
    let labelled =
        |ticks: Vec<f64>| -> Vec<Tick> { ticks.into_iter().map(|value| (value, text(value))).collect() };
    if levels().any(is_ratio) {
        // Shares are compared with the whole.
        let high = high.max(1.0);
        let ticks = labelled(ticks_between(0.0, high, size.pick(10, 5)));
        return (Scale::Linear { domain: (0.0, high), range: (0.0, 1.0) }, ticks);
    }
    let times = levels().any(is_time);
    let numbers = levels().all(Value::is_number);
    let logarithmic_from = if times { LOGARITHMIC_TIMES_FROM } else { LOGARITHMIC_FROM };
    if low > 0.0 && high / low > logarithmic_from {
        let (low, high) = (low / 1.25, high * 1.25);
        let count = size.pick(9, 4);
        // Sizes and numbers of flows double; what spans many decades is counted in them.
        let in_decades = times || levels().any(is_rate) || numbers && high / low > DECADES_FROM;
        let ticks = if in_decades { decades(low, high, count) } else { powers_of_two(low, high, count) };
        return (Scale::Logarithmic { domain: (low, high), range: (0.0, 1.0) }, labelled(ticks));
    }
    let margin = (high - low).max(1.0) * 0.05;
    let (low, high) = (low - margin, high + margin);
    let ticks = labelled(ticks_between(low, high, size.pick(8, 4)));
    (Scale::Linear { domain: (low, high), range: (0.0, 1.0) }, ticks)
}

fn is_time(level: &Value) -> bool {
    level.as_str().and_then(nanoseconds).is_some()
}

fn is_rate(level: &Value) -> bool {
    level.as_str().and_then(bits_per_second).is_some()
}

fn is_ratio(level: &Value) -> bool {
    level.as_str().and_then(ratio).is_some()
}

/// How levels of a factor are written: sizes, times, rates and shares with their unit.
fn level_text(view: &View<'_>, factor: &str) -> fn(f64) -> String {
    let mut levels = view.cells.iter().filter_map(|cell| cell.cell.factors.get(factor));
    match levels.find(|level| level.is_string()) {
        Some(level) if is_time(level) => time,
        Some(level) if is_ratio(level) => percent,
        Some(level) if is_rate(level) => rate,
        Some(_) => bytes,
        None => |value| value.to_string(),
    }
}

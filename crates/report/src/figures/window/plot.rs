//! The drawing of a window curve: goodput against window, both logarithmic, and
//! below it the ratio to the model, where a shortfall shows whatever the scale.

use clearstream_schema::record::Published;

use super::{Point, WindowModel, cell_window, published_window};
use crate::{
    digest::ExperimentDigest,
    figure::published_range,
    format::{bytes, percent, rate},
    svg::{
        Svg,
        plot::{Area, Plot, Size, Tick, text_width, tick_labels},
        scale::{Scale, decades, powers_of_two},
    },
};

/// Rules nearer than this, in units of the drawing, are one with both names.
const ONE_RULE: f64 = 6.0;
/// Height of the strip with the ratio to the model.
const RATIO_HEIGHT: f64 = 84.0;

pub(super) fn draw(experiment: &ExperimentDigest, model: &WindowModel, size: Size) -> Svg {
    let theirs: Vec<&Published> = experiment.spec.published.iter().collect();
    let windows = model
        .points
        .iter()
        .map(|point| point.window)
        .chain([model.product_bytes()])
        .chain(theirs.iter().filter_map(|published| published_window(published)));
    let (low, high) = windows.fold((f64::INFINITY, 0.0f64), |(l, h), w| (l.min(w), h.max(w)));
    let (low, high) = (low.max(1.0) / 1.25, high.max(2.0) * 1.25);
    let x = Scale::Logarithmic { domain: (low, high), range: (0.0, 1.0) };
    let svg = Svg::new(size.width(), size.pick(400.0, 330.0) + RATIO_HEIGHT);
    let upper = Area {
        left: size.pick(56.0, 44.0),
        right: svg.width - size.pick(20.0, 12.0),
        top: 64.0,
        bottom: svg.height - RATIO_HEIGHT - 62.0,
    };
    let (y, y_ticks) = goodput_scale(experiment, model, &theirs, size);
    let mut plot = Plot::on(svg, upper, (x, Vec::new(), ""), (y, y_ticks, "goodput, Gb/s (log scale)"));
    plot.svg.line((upper.left, upper.bottom), (upper.right, upper.bottom), "axis");
    rules(&mut plot, model, &theirs);
    draw_theirs(&mut plot, &theirs);
    draw_model(&mut plot, model, low, high);
    draw_ours(&mut plot, experiment, model);

    let x_ticks =
        powers_of_two(low, high, size.pick(9, 4)).into_iter().map(|w| (w, bytes(w))).collect::<Vec<Tick>>();
    let lower = Area { top: upper.bottom + 34.0, bottom: plot.svg.height - 44.0, ..upper };
    draw_ratios(plot.svg, lower, model, (x, x_ticks))
}

/// From below the lowest to above the highest of what is drawn, in Gb/s.
fn goodput_scale(
    experiment: &ExperimentDigest,
    model: &WindowModel,
    theirs: &[&Published],
    size: Size,
) -> (Scale, Vec<Tick>) {
    let published = theirs.iter().filter_map(|published| published_range(published));
    let cells = experiment.cells();
    let values = cells
        .iter()
        .flat_map(|cell| cell.of_all_trials("goodput"))
        .map(|bps| bps / 1e9)
        .chain(model.points.iter().map(|point| model.model_bps(point.window) / 1e9))
        .chain([model.rate.bps / 1e9])
        .chain(published.flat_map(|range| [range.0, range.1]))
        .filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    let (low, high) = if low < high { (low / 1.4, high * 1.4) } else { (0.1, 10.0) };
    let ticks = decades(low, high, size.pick(10, 7)).into_iter().map(|value| (value, format!("{value}")));
    (Scale::Logarithmic { domain: (low, high), range: (0.0, 1.0) }, ticks.collect())
}

/// The bandwidth-delay product and the published knee, one rule where they are one.
fn rules(plot: &mut Plot, model: &WindowModel, theirs: &[&Published]) {
    let product = model.product_bytes();
    let label = format!("BDP {}", bytes(product));
    // The first window named is the knee; later ones are points beyond it.
    let Some(knee) = theirs.iter().find_map(|published| published_window(published)) else {
        return plot.rule_at(product, "product", &label, 0);
    };
    let theirs = format!("published knee {}", bytes(knee));
    if (plot.x.at(knee) - plot.x.at(product)).abs() < ONE_RULE {
        let both = format!("{label}, {theirs}");
        if text_width(&both) < plot.svg.width / 2.0 {
            return plot.rule_at(product, "product", &both, 0);
        }
        plot.rule_at(product, "product", &label, 0);
        plot.rule_at(product, "product", &theirs, 1);
    } else {
        // The one to the right extends above the label of the other.
        let (mut left, mut right) = ((product, "product", &label), (knee, "theirs", &theirs));
        if knee < product {
            std::mem::swap(&mut left, &mut right);
        }
        plot.rule_before(left.0, left.1, left.2, right.0);
        plot.rule_at(right.0, right.1, right.2, 1);
    }
}

fn draw_model(plot: &mut Plot, model: &WindowModel, low: f64, high: f64) {
    let mut points: Vec<(f64, f64)> = (0..=96)
        .map(|step| low * (high / low).powf(f64::from(step) / 96.0))
        .chain([model.product_bytes()])
        .filter(|window| (low..=high).contains(window))
        .map(|window| (window, model.model_bps(window) / 1e9))
        .filter(|point| point.1 >= plot.y.domain().0)
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    plot.line(&points, "line model");
}

fn draw_theirs(plot: &mut Plot, theirs: &[&Published]) {
    for published in theirs {
        match (published_window(published), published_range(published)) {
            (Some(window), Some((low, high, text))) if low > 0.0 => {
                let (x, upper, lower) = (plot.x.at(window), plot.y.at(high), plot.y.at(low));
                let tip = format!("{text} at {} ({})", bytes(window), published.source);
                plot.svg.tipped(&tip, |svg| {
                    svg.line((x, upper), (x, lower), "theirs");
                    svg.circle(x, (upper + lower) / 2.0, 6.0, "theirs-dot");
                });
            }
            (None, Some((low, high, _))) if low > 0.0 => plot.published_band(low, high),
            _ => {}
        }
    }
}

fn draw_ours(plot: &mut Plot, experiment: &ExperimentDigest, model: &WindowModel) {
    for cell in &experiment.cells() {
        let Some(window) = cell_window(cell) else { continue };
        for value in cell.values().into_iter().filter(|value| *value > 0.0) {
            let (x, y) = (plot.x.at(window as f64), plot.y.at(value / 1e9));
            plot.svg.circle(x, y, 2.5, "dot faint s0");
        }
    }
    for Point { window, estimate, .. } in model.points.iter().filter(|point| point.estimate.median > 0.0) {
        let (x, y) = (plot.x.at(*window), plot.y.at(estimate.median / 1e9));
        let tip = format!(
            "window {}: {} ({}); the model predicts {}",
            bytes(*window),
            rate(estimate.median),
            estimate.how_sure(rate),
            rate(model.model_bps(*window))
        );
        let interval = estimate.interval.filter(|interval| interval.0 > 0.0);
        let interval = interval.map(|(low, high)| (plot.y.at(low / 1e9), plot.y.at(high / 1e9)));
        plot.svg.tipped(&tip, |svg| {
            if let Some((low, high)) = interval {
                svg.line((x, low), (x, high), "whisker s0");
            }
            svg.circle(x, y, 4.5, "dot s0");
            svg.circle(x, y, 14.0, "readout");
        });
    }
}

/// Goodput as a fraction of the model, from zero, with the model as a line at one.
fn draw_ratios(svg: Svg, area: Area, model: &WindowModel, (x, x_ticks): (Scale, Vec<Tick>)) -> Svg {
    let fraction = |point: &Point| point.estimate.median / model.model_bps(point.window);
    let highest = model.points.iter().map(fraction).filter(|ratio| ratio.is_finite()).fold(1.0, f64::max);
    let (y, y_ticks) = Scale::from_zero(highest, 2);
    let mut plot = Plot::on(
        svg,
        area,
        (x, x_ticks, "TCP window (log scale)"),
        (y, tick_labels(&y_ticks), "of the model"),
    );
    let one = plot.y.at(1.0);
    plot.svg.line((area.left, one), (area.right, one), "line model-one");
    for point in model.points.iter().filter(|point| fraction(point).is_finite()) {
        let at = (plot.x.at(point.window), plot.y.at(fraction(point)));
        let tip = format!("window {}: {} of the model", bytes(point.window), percent(fraction(point)));
        plot.svg.tipped(&tip, |svg| {
            svg.circle(at.0, at.1, 4.0, "dot s0");
            svg.circle(at.0, at.1, 12.0, "readout");
        });
    }
    plot.svg
}

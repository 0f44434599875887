//! One side pinned to each core in turn, the other fixed: a bar per core,
//! coloured and grouped by node (TNC 2011 article, figures 7 and 8).

use std::collections::BTreeMap;

use crate::{
    cell_settings::most_named,
    digest::{Digest, ExperimentDigest},
    estimate::{Estimate, chosen, median},
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    figures::goodput::published_legend,
    format::{core, gbps, level, range, rate},
    measured::CellMetric,
    places::{Boundary, Place, boundary, node_runs, sorted},
    svg::{
        Svg,
        plot::{Area, Plot, Size, fitted, tick_labels},
        scale::Scale,
    },
};

/// A bar this wide has its core number below it.
const ROOM_FOR_NUMBER: f64 = 19.0;
/// Widest bar with the gap next to it.
const WIDEST_BAR: f64 = 56.0;
/// Shortest axis.
const LEAST_AXIS: f64 = 240.0;

/// One panel: all cores of one side, all else equal.
struct Panel {
    label: String,
    places: Vec<Place>,
    estimates: BTreeMap<u32, Estimate>,
    interrupt_core: Option<u32>,
}

/// The bars, or `None` when neither side's core varies.
pub(crate) fn figure(digest: &Digest, experiment: &ExperimentDigest) -> Option<Figure> {
    let panels = panels(digest, experiment);
    if panels.is_empty() {
        return None;
    }
    let id = identifier(&[&experiment.spec.name, "row"]);
    let title = format!("{}: goodput by core", experiment.spec.title);
    let finding = panels.iter().map(finding).collect::<Vec<_>>().join(" ");
    let mut legend = vec![LegendItem::new(
        "box s0",
        "median of our trials, with its 95 % interval (the range below six); cores are ordered by node",
    )];
    if panels.iter().any(|panel| panel.interrupt_core.is_some()) {
        legend.push(LegendItem::new("irq", "interrupt core"));
    }
    legend.extend(published_legend(&experiment.spec.published));
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(&panels, experiment, size)),
        notes: Vec::new(),
        legend,
        table: table(&panels),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

/// The core factor with more levels is the row; other varying factors become panels.
fn panels(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Panel> {
    let cells = experiment.cells();
    let levels = |name: &str| {
        let mut all: Vec<String> =
            cells.iter().filter_map(|cell| cell.factors.get(name)).map(level).collect();
        all.sort();
        all.dedup();
        all.len()
    };
    let (senders, receivers) = (levels("sender-cores"), levels("receiver-cores"));
    if senders.max(receivers) == 0 {
        return Vec::new();
    }
    let row = if senders >= receivers { "sender-cores" } else { "receiver-cores" };
    let others: Vec<String> = experiment.varying_factors().into_iter().filter(|name| name != row).collect();
    let mut grouped: BTreeMap<Vec<String>, Vec<&CellMetric<'_>>> = BTreeMap::new();
    for cell in &cells {
        let key = others.iter().map(|name| cell.factors.get(name).map(level).unwrap_or_default()).collect();
        grouped.entry(key).or_default().push(cell);
    }
    grouped
        .into_values()
        .filter_map(|cells| {
            let is_reverse = cells.first()?.settings.is_reverse();
            let host =
                if row == "sender-cores" { digest.sender(is_reverse) } else { digest.receiver(is_reverse) };
            let estimates: BTreeMap<u32, Estimate> = cells
                .iter()
                .filter_map(|cell| Some((core(cell.factors.get(row)?)?, cell.estimate()?)))
                .collect();
            if estimates.is_empty() {
                return None;
            }
            let here = row == "receiver-cores" || digest.one_machine();
            let named = most_named(cells.iter().map(|cell| &cell.settings));
            let interrupt_core = named.map(|found| found.0).filter(|_| here);
            let role = if row == "sender-cores" { "Sending" } else { "Receiving" };
            let detail: Vec<String> = others
                .iter()
                .filter_map(|name| cells.first()?.factors.get(name).map(|v| crate::format::level_of(name, v)))
                .collect();
            let detail = if detail.is_empty() { String::new() } else { format!(" ({})", detail.join(", ")) };
            let direction = if is_reverse { ", server to client" } else { "" };
            Some(Panel {
                label: format!("{role} on {}{direction}{detail}", host.name),
                places: sorted(host, estimates.keys().copied()),
                estimates,
                interrupt_core,
            })
        })
        .collect()
}

fn finding(panel: &Panel) -> String {
    let value = |place: &Place| panel.estimates.get(&place.core).map(|e| (*place, e.median));
    let all: Vec<(Place, f64)> = panel.places.iter().filter_map(value).collect();
    let Some(best) = all.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return String::new() };
    let mut text = format!(
        "{}: highest on core {} of {} with {}",
        panel.label,
        best.0.core,
        best.0.group_name(),
        rate(best.1)
    );
    if all.len() > 1 {
        text.push_str(&format!(" ({})", chosen(all.len(), "core")));
    }
    let by_node = |run: &(usize, usize, Place)| {
        let values: Vec<f64> = all.iter().skip(run.0).take(run.1).map(|v| v.1).collect();
        median(&values).map(|m| (run.2, m))
    };
    let nodes: Vec<(Place, f64)> = node_runs(&panel.places).iter().filter_map(by_node).collect();
    let home = nodes.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let worst = nodes.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    if let (Some(home), Some(worst)) = (home, worst)
        && nodes.len() > 1
    {
        text.push_str(&format!(
            "; by node the cores\u{2019} medians are {} on {} and {} on {}",
            spread(&all, home.0),
            home.0.group_name(),
            spread(&all, worst.0),
            worst.0.group_name(),
        ));
        let sibling = nodes.iter().find(|(p, _)| p.package == home.0.package && p.node != home.0.node);
        if let Some((sibling, _)) = sibling.filter(|(place, _)| place.node != worst.0.node) {
            text.push_str(&format!(
                ", {} on {} of the same package",
                spread(&all, *sibling),
                sibling.group_name()
            ));
        }
    }
    text.push('.');
    text
}

/// Lowest to highest of the cores of one node: what the bars show, nothing pooled.
fn spread(all: &[(Place, f64)], node: Place) -> String {
    let here = all.iter().filter(|(place, _)| (place.package, place.node) == (node.package, node.node));
    let (low, high) =
        here.fold((f64::INFINITY, 0.0f64), |(low, high), (_, bps)| (low.min(*bps), high.max(*bps)));
    range(&rate(low), &rate(high))
}

fn draw(panels: &[Panel], experiment: &ExperimentDigest, size: Size) -> Svg {
    let height = size.pick(256.0, 226.0);
    let svg = Svg::new(size.width(), height * panels.len() as f64 + 8.0);
    let highest = panels
        .iter()
        .flat_map(|panel| panel.estimates.values())
        .map(|e| e.interval.map_or(e.median, |i| i.1) / 1e9)
        .chain(experiment.spec.published.iter().filter_map(published_range).map(|range| range.1))
        .fold(0.0, f64::max);
    let mut svg = Some(svg);
    for (index, panel) in panels.iter().enumerate() {
        let top = height * index as f64;
        let Some(canvas) = svg.take() else { break };
        svg = Some(draw_panel(canvas, panel, experiment, (top, height), highest, size));
    }
    svg.unwrap_or_else(|| Svg::new(1.0, 1.0))
}

fn draw_panel(
    mut svg: Svg,
    panel: &Panel,
    experiment: &ExperimentDigest,
    (top, height): (f64, f64),
    highest: f64,
    size: Size,
) -> Svg {
    let area = Area {
        left: size.pick(52.0, 38.0),
        right: size.width() - size.pick(16.0, 6.0),
        top: top + 60.0,
        bottom: top + height - 46.0,
    };
    let left = size.pick(area.left, 4.0);
    svg.text(left, top + 18.0, "panel start", &fitted(&panel.label, size.width() - left));
    if let Some(core) = panel.interrupt_core {
        // Beside the bars, where neither a neighbour nor a published line crosses it.
        let text = format!("outlined: interrupt core {core}");
        svg.text(area.right, top + 40.0, "irq-text end", &text);
    }
    let gaps =
        panel.places.windows(2).filter_map(|pair| boundary(pair[0], pair[1])).map(gap_units).sum::<f64>();
    let units = panel.places.len() as f64 + gaps;
    let room = area.right - area.left;
    let unit = (room / units).min(WIDEST_BAR);
    // A few bars need no axis across the page.
    let area = Area { right: area.left + (unit * units).max(LEAST_AXIS.min(room)), ..area };
    let (y, y_ticks) = Scale::from_zero(highest, 4);
    let x = Scale::Linear { domain: (0.0, 1.0), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, Vec::new(), ""), (y, tick_labels(&y_ticks), "goodput, Gb/s"));
    let mut at = area.left;
    let mut starts = Vec::with_capacity(panel.places.len());
    for (index, place) in panel.places.iter().enumerate() {
        if index > 0 {
            at += unit * (1.0 + boundary(panel.places[index - 1], *place).map_or(0.0, gap_units));
        }
        starts.push(at);
        bar(&mut plot, panel, *place, at, unit);
    }
    for published in experiment.spec.published.iter().filter(|p| applies(p, panel)) {
        if let Some((low, high, _)) = published_range(published) {
            plot.published_band(low, high);
        }
    }
    node_names(&mut plot, panel, &starts, unit);
    plot.svg
}

/// A published figure with a direction belongs to the panel of that direction only.
fn applies(published: &clearstream_schema::record::Published, panel: &Panel) -> bool {
    published.factors.get("direction").is_none_or(|value| {
        panel.label.contains(&level(value))
            || (level(value) == "reverse") == panel.label.contains("server to client")
    })
}

fn gap_units(boundary: Boundary) -> f64 {
    match boundary {
        Boundary::Node => 0.5,
        Boundary::Package => 1.0,
    }
}

fn bar(plot: &mut Plot, panel: &Panel, place: Place, x: f64, unit: f64) {
    let Some(estimate) = panel.estimates.get(&place.core) else { return };
    let width = (unit * 0.8).max(1.5);
    let top = plot.y.at(estimate.median / 1e9);
    let bottom = plot.area.bottom;
    let interrupt = panel.interrupt_core == Some(place.core);
    let tip = format!(
        "core {} ({}){}: {} \u{2013} {}",
        place.core,
        place.group_name(),
        if interrupt { ", interrupt core" } else { "" },
        rate(estimate.median),
        estimate.how_sure(rate)
    );
    let interval = estimate.interval.map(|(l, h)| (plot.y.at(l / 1e9), plot.y.at(h / 1e9)));
    plot.svg.tipped(&tip, |svg| {
        svg.rounded(x, top, width, bottom - top, (width / 5.0).min(2.0), "bar s0");
        if let Some((low, high)) = interval {
            svg.line((x + width / 2.0, low), (x + width / 2.0, high), "whisker");
        }
    });
    if interrupt {
        plot.svg.rounded(x - 2.0, top - 2.0, width + 4.0, bottom - top + 2.0, 3.0, "irq-outline");
    }
    if unit >= ROOM_FOR_NUMBER {
        plot.svg.text(x + width / 2.0, bottom + 15.0, "tick middle", &place.core.to_string());
    }
}

fn node_names(plot: &mut Plot, panel: &Panel, starts: &[f64], unit: f64) {
    let y = plot.area.bottom + if unit >= ROOM_FOR_NUMBER { 22.0 } else { 8.0 };
    let width = (unit * 0.8).max(1.5);
    for (first, length, place) in node_runs(&panel.places) {
        let (from, to) = (starts[first], starts[first + length - 1] + width);
        let name = if to - from > 42.0 {
            place.group_name()
        } else {
            place.node.map_or_else(String::new, |node| node.to_string())
        };
        plot.svg.line((from, y), (to, y), "bracket");
        plot.svg.text((from + to) / 2.0, y + 15.0, "group middle", &name);
    }
}

fn table(panels: &[Panel]) -> Table {
    let mut table = Table::new(
        "Median goodput by core",
        &["Side", "#Core", "Node", "Package", "#n", "#Median, Gb/s", "#95 % interval or range, Gb/s"],
    );
    for panel in panels {
        for place in &panel.places {
            let Some(estimate) = panel.estimates.get(&place.core) else { continue };
            let number = |value: Option<u32>| value.map_or_else(|| "\u{2013}".to_owned(), |v| v.to_string());
            table.push(vec![
                panel.label.clone(),
                place.core.to_string(),
                number(place.node),
                number(place.package),
                estimate.count.to_string(),
                gbps(estimate.median),
                estimate.interval_text(gbps),
            ]);
        }
    }
    table
}

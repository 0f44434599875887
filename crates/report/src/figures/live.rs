//! Traffic of every interface over time, one panel per host, with the bursty
//! flows apart (40GE report, figure 7).

use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    figures::goodput::published_legend,
    format::{gbps, join, number, rate},
    series::{InterfaceSeries, Points, Series},
    svg::{
        Svg,
        plot::{Area, Plot, Size, tick_labels},
        scale::{Scale, downsample, ticks_between},
    },
};

/// A line needs no more points than the drawing has units.
const MAX_POINTS: usize = 400;
/// Interfaces whose peak is below this fraction of the highest are left to the table.
const IDLE_RATIO: f64 = 0.02;

/// A named line of a panel.
struct Line {
    name: String,
    class: String,
    points: Points,
}

/// One host's lines.
struct Panel {
    title: String,
    lines: Vec<Line>,
}

/// The live picture, or `None` without samples.
pub(crate) fn figure(digest: &Digest, experiment: &ExperimentDigest) -> Option<Figure> {
    let series = experiment.series.iter().find(|series| series.typical).or(experiment.series.first())?;
    let panels = panels(digest, series);
    if panels.iter().all(|panel| panel.lines.is_empty()) {
        return None;
    }
    let id = identifier(&[&experiment.spec.name, "live"]);
    let title = format!("{}: traffic of all interfaces", experiment.spec.title);
    let finding = finding(digest, experiment, series);
    let mut legend: Vec<LegendItem> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        let item = LegendItem::new(format!("line {}", line.class), line.name.clone());
        if !legend.contains(&item) {
            legend.push(item);
        }
    }
    legend.extend(published_legend(&experiment.spec.published));
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(&panels, experiment, size)),
        notes: vec![format!("Trial {} of the experiment is drawn.", series.trial)],
        legend,
        table: table(digest, series),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

fn highest(points: &Points) -> f64 {
    points.iter().map(|p| p.1).fold(0.0, f64::max)
}

fn host_name(digest: &Digest, client: bool) -> &str {
    if client { &digest.client().name } else { &digest.server().name }
}

fn panels(digest: &Digest, series: &Series) -> Vec<Panel> {
    let all = series.interfaces.iter().flat_map(|i| [highest(&i.sent), highest(&i.received)]);
    let idle = all.fold(0.0, f64::max) * IDLE_RATIO;
    [true, false]
        .into_iter()
        .map(|client| {
            let mut lines = Vec::new();
            let mine: Vec<&InterfaceSeries> =
                series.interfaces.iter().filter(|i| i.client == client).collect();
            for (index, interface) in mine.iter().enumerate() {
                // The direction has the colour; further interfaces of a host have other strokes.
                let stroke = if index > 0 { " other" } else { "" };
                for (points, direction, class) in
                    [(&interface.received, "in", "t0"), (&interface.sent, "out", "t1")]
                {
                    if highest(points) > idle {
                        lines.push(Line {
                            name: format!("{} {direction}", interface.name),
                            class: format!("{class}{stroke}"),
                            points: points.clone(),
                        });
                    }
                }
            }
            if !client && highest(&series.bursts) > 0.0 {
                lines.push(Line {
                    name: "bursty flows alone, goodput".to_owned(),
                    class: "t2".to_owned(),
                    points: series.bursts.clone(),
                });
            }
            let role = if client { "client" } else { "server" };
            Panel { title: format!("{} ({role})", host_name(digest, client)), lines }
        })
        .filter(|panel| !panel.lines.is_empty())
        .collect()
}

fn finding(digest: &Digest, experiment: &ExperimentDigest, series: &Series) -> String {
    let busiest = series
        .interfaces
        .iter()
        .flat_map(|i| [(i, &i.received, "in"), (i, &i.sent, "out")])
        .max_by(|a, b| highest(a.1).total_cmp(&highest(b.1)));
    let mut parts = Vec::new();
    if let Some((interface, points, direction)) = busiest {
        let peak = points.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied().unwrap_or_default();
        parts.push(format!(
            "the busiest interface, {} of {} ({direction}), peaks at {} after {} s",
            interface.name,
            host_name(digest, interface.client),
            rate(peak.1),
            number(peak.0)
        ));
    }
    if highest(&series.bursts) > 0.0 {
        parts.push(format!("the bursty flows peak at {}", rate(highest(&series.bursts))));
    }
    let value = |metric| experiment.measured.of_trial(series.trial, metric);
    parts.extend(value("explorations").map(|count| beside(count, value("application-rate"))));
    format!("In trial {} {}.", series.trial, join(&parts))
}

/// What the application did meanwhile: explorations that ended, and messages of the fastest of these.
fn beside(explorations: f64, rate_bps: Option<f64>) -> String {
    match rate_bps {
        Some(bps) => format!(
            "the application beside the flows explored {explorations:.0} times, its fastest messages at {}",
            rate(bps)
        ),
        None => "the application beside the flows ran, and ended no exploration".to_owned(),
    }
}

fn draw(panels: &[Panel], experiment: &ExperimentDigest, size: Size) -> Svg {
    let height = size.pick(236.0, 216.0);
    let lines = || panels.iter().flat_map(|panel| &panel.lines);
    let top_value = lines()
        .map(|line| highest(&line.points) / 1e9)
        .chain(experiment.spec.published.iter().filter_map(published_range).map(|range| range.1))
        .fold(0.0, f64::max);
    let seconds = lines().flat_map(|line| &line.points).map(|p| p.0).fold(1.0, f64::max);
    let mut svg = Svg::new(size.width(), height * panels.len() as f64 + 6.0);
    for (index, panel) in panels.iter().enumerate() {
        let top = height * index as f64;
        let area = Area {
            left: size.pick(52.0, 40.0),
            right: size.width() - size.pick(20.0, 10.0),
            top: top + 56.0,
            bottom: top + height - 44.0,
        };
        svg.text(size.pick(area.left, 4.0), top + 16.0, "panel start", &panel.title);
        let (y, y_ticks) = Scale::from_zero(top_value, 4);
        let x = Scale::Linear { domain: (0.0, seconds), range: (0.0, 1.0) };
        let x_ticks = tick_labels(&ticks_between(0.0, seconds, size.pick(8, 5)));
        let mut plot =
            Plot::on(svg, area, (x, x_ticks, "time, s"), (y, tick_labels(&y_ticks), "traffic, Gb/s"));
        if index + 1 == panels.len() {
            for published in experiment.spec.published.iter().filter_map(published_range) {
                plot.published_band(published.0, published.1);
            }
        }
        for line in &panel.lines {
            let points: Points =
                downsample(&line.points, MAX_POINTS).into_iter().map(|(t, v)| (t, v / 1e9)).collect();
            plot.line(&points, &format!("line {}", line.class));
        }
        svg = plot.svg;
    }
    svg
}

fn table(digest: &Digest, series: &Series) -> Table {
    let mut table = Table::new(
        "Traffic of each interface",
        &["Host", "Interface", "#Mean in, Gb/s", "#Peak in, Gb/s", "#Mean out, Gb/s", "#Peak out, Gb/s"],
    );
    let mean = |points: &Points| points.iter().map(|p| p.1).sum::<f64>() / points.len().max(1) as f64;
    for interface in &series.interfaces {
        table.push(vec![
            host_name(digest, interface.client).to_owned(),
            interface.name.clone(),
            gbps(mean(&interface.received)),
            gbps(highest(&interface.received)),
            gbps(mean(&interface.sent)),
            gbps(highest(&interface.sent)),
        ]);
    }
    table
}

//! Traffic of every interface over time, one panel per host, with the bursty
//! flows apart (40GE report, figure 7).

use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    figures::{
        goodput::published_legend,
        over_time::{Line, OverTime, Panel},
    },
    format::{gbps, join, number, rate},
    series::{InterfaceSeries, Points, Series},
};

/// Interfaces whose peak is below this fraction of the highest are left to the table.
const IDLE_RATIO: f64 = 0.02;

/// The live picture, or `None` without samples.
pub(crate) fn figure(digest: &Digest, experiment: &ExperimentDigest) -> Option<Figure> {
    let series = experiment.series.iter().find(|series| series.typical).or(experiment.series.first())?;
    let mut panels = panels(digest, series);
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
    if let Some(last) = panels.last_mut() {
        let published = experiment.spec.published.iter().filter_map(published_range);
        last.bands = published.map(|(low, high, _)| (low, high)).collect();
    }
    let chart = OverTime { quantity: "traffic", panels };
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| chart.draw(size)),
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
            let title = Some(format!("{} ({role})", host_name(digest, client)));
            Panel { title, lines, ..Panel::default() }
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

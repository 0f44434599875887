//! What a gigabyte costs: CPU seconds of both ends, split into user, system
//! and interrupt time where samples tell.

use crate::{
    digest::{Digest, ExperimentDigest},
    estimate::median,
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    format::{number, percent},
    series::CpuSplit,
    svg::{
        Svg,
        plot::{Area, Plot, Size, fitted, text_width, tick_labels},
        scale::Scale,
    },
};

/// One stacked bar.
struct Bar {
    cell: String,
    side: String,
    /// CPU s per GB by kind, in the order of `KINDS`.
    parts: [f64; 4],
}

impl Bar {
    fn label(&self) -> String {
        format!("{} \u{b7} {}", self.cell, self.side)
    }
}

const KINDS: [(&str, &str); 4] = [
    ("s0", "user"),
    ("s1", "system"),
    ("s2", "interrupts (soft and hard)"),
    ("s7", "flow threads, user and system together"),
];
/// Bars beyond this many are in the table only.
const MAX_BARS: usize = 24;

/// The bars, or `None` without a flow trial.
pub(crate) fn figure(digest: &Digest, experiment: &ExperimentDigest) -> Option<Figure> {
    let bars = bars(digest, experiment);
    if bars.iter().all(|bar| bar.parts.iter().sum::<f64>() <= 0.0) {
        return None;
    }
    let id = identifier(&[&experiment.spec.name, "cost"]);
    let title = format!("{}: CPU cost", experiment.spec.title);
    let finding = finding(&bars);
    let used = |kind: usize| bars.iter().any(|bar| bar.parts[kind] > 0.0);
    let legend = (0..KINDS.len())
        .filter(|kind| used(*kind))
        .map(|kind| LegendItem::new(format!("box {}", KINDS[kind].0), KINDS[kind].1))
        .collect();
    let mut notes = Vec::new();
    if (0..3).any(used) {
        notes.push(if digest.one_machine() {
            "Both ends and the lab run on one machine: its whole CPU time is counted once.".to_owned()
        } else {
            "CPU time of the whole hosts while the flows ran, warm-up left out.".to_owned()
        });
    }
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(&bars, size)),
        notes,
        legend,
        table: table(&bars),
        published: Vec::new(),
        id,
        title,
        finding,
    })
}

fn bars(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Bar> {
    let factors = experiment.varying_factors();
    let mut bars = Vec::new();
    for cell in &experiment.cells {
        let label = cell.label(&factors);
        let mut split = CpuSplit::default();
        for series in experiment.series.iter().filter(|s| s.cell == cell.number && s.cpu.received_bytes > 0.0)
        {
            if series.typical || split.received_bytes == 0.0 {
                split = series.cpu;
            }
        }
        let mut push = |side: String, parts| bars.push(Bar { cell: label.clone(), side, parts });
        let has_split = split.client != Default::default() || split.server != Default::default();
        if has_split {
            let kinds = |kinds: &crate::series::Kinds| {
                let [user, system, softirq] = kinds.seconds_per_gb(split.received_bytes);
                [user, system, softirq, 0.0]
            };
            if digest.one_machine() {
                push("both ends, one machine".to_owned(), kinds(&split.server));
            } else {
                push(format!("client {}", digest.client.name), kinds(&split.client));
                push(format!("server {}", digest.server.name), kinds(&split.server));
            }
        } else {
            let client: Vec<f64> = cell.trials.iter().map(|t| t.client_cpu_seconds_per_gb).collect();
            let server: Vec<f64> = cell.trials.iter().map(|t| t.server_cpu_seconds_per_gb).collect();
            push("client".to_owned(), [0.0, 0.0, 0.0, median(&client).unwrap_or(0.0)]);
            push("server".to_owned(), [0.0, 0.0, 0.0, median(&server).unwrap_or(0.0)]);
        }
    }
    bars
}

fn finding(bars: &[Bar]) -> String {
    let mut totals: Vec<(&str, f64, f64)> = Vec::new();
    for bar in bars {
        let (sum, interrupts) = (bar.parts.iter().sum::<f64>(), bar.parts[2]);
        match totals.iter_mut().find(|total| total.0 == bar.cell) {
            Some(total) => {
                total.1 += sum;
                total.2 += interrupts;
            }
            None => totals.push((&bar.cell, sum, interrupts)),
        }
    }
    let cheapest = totals.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let dearest = totals.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    match cheapest.zip(dearest) {
        Some((low, high)) => {
            let mut text =
                format!("A gigabyte costs {} CPU s at both ends together ({})", number(low.1), low.0);
            if low.0 != high.0 {
                text.push_str(&format!(" to {} CPU s ({})", number(high.1), high.0));
            }
            if low.2 > 0.0 {
                text.push_str(&format!("; interrupts take {} of the cheapest", percent(low.2 / low.1)));
            }
            text.push('.');
            text
        }
        None => String::new(),
    }
}

fn draw(bars: &[Bar], size: Size) -> Svg {
    let bars = &bars[..bars.len().min(MAX_BARS)];
    let height = size.pick(34.0, 50.0);
    let longest = bars.iter().map(|bar| text_width(&bar.label())).fold(0.0, f64::max);
    let left = (longest + 20.0).clamp(70.0, 330.0);
    let svg = Svg::new(size.width(), 24.0 + height * bars.len() as f64 + 46.0);
    let area = Area {
        left: size.pick(left, 12.0),
        right: svg.width - size.pick(60.0, 40.0),
        top: 14.0,
        bottom: svg.height - 46.0,
    };
    let highest = bars.iter().map(|bar| bar.parts.iter().sum()).fold(0.0, f64::max);
    let (x, ticks) = Scale::from_zero(highest, size.pick(8, 4));
    let y = Scale::Linear { domain: (0.0, 1.0), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, tick_labels(&ticks), "CPU s per GB"), (y, Vec::new(), ""));
    for tick in &ticks {
        let at = plot.x.at(*tick);
        plot.svg.line((at, area.top), (at, area.bottom), if *tick == 0.0 { "axis" } else { "grid" });
    }
    for (index, bar) in bars.iter().enumerate() {
        let top = area.top + height * index as f64;
        let (bar_top, bar_height) = size.pick((top + 7.0, height - 14.0), (top + 25.0, height - 31.0));
        let label = bar.label();
        match size {
            Size::Wide => plot.svg.text(
                area.left - 12.0,
                top + height / 2.0 + 4.0,
                "rowlabel end",
                &fitted(&label, left - 16.0),
            ),
            Size::Narrow => plot.svg.text(area.left + 2.0, top + 18.0, "rowlabel halo start", &label),
        }
        let mut at = 0.0;
        for (kind, value) in bar.parts.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            let (from, to) = (plot.x.at(at), plot.x.at(at + value));
            let tip = format!("{label}: {} {} CPU s per GB", KINDS[kind].1, number(*value));
            plot.svg.tipped(&tip, |svg| {
                svg.rect(
                    from,
                    bar_top,
                    (to - from - 0.75).max(0.5),
                    bar_height,
                    &format!("bar {}", KINDS[kind].0),
                );
            });
            at += value;
        }
        let end = plot.x.at(at) + 6.0;
        plot.svg.text(end, bar_top + bar_height / 2.0 + 4.0, "value halo start", &number(at));
    }
    plot.svg
}

fn table(bars: &[Bar]) -> Table {
    let mut table = Table::new(
        "CPU seconds per 10^9 bytes",
        &["Cell", "Side", "#User", "#System", "#Interrupts", "#Flow threads", "#Sum"],
    );
    for bar in bars {
        let text = |value: f64| if value > 0.0 { number(value) } else { "\u{2013}".to_owned() };
        let mut cells = vec![bar.cell.clone(), bar.side.clone()];
        cells.extend(bar.parts.iter().map(|value| text(*value)));
        cells.push(text(bar.parts.iter().sum()));
        table.push(cells);
    }
    table
}

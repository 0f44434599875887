//! CPU cost of a gigabyte: CPU seconds of the flow's own threads at both ends, and
//! of the interrupts that carried its packets. What other programs used at the
//! same time is reported separately and never counted.

use crate::{
    digest::{Digest, ExperimentDigest},
    estimate::median,
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    format::{count, significant},
    measured::CellMetric,
    series::{CpuSplit, SideCpu},
    svg::{
        Svg,
        plot::{Area, Plot, Size, fitted, text_width, tick_labels},
        scale::Scale,
    },
};

/// One stacked bar: medians over the cell's trials, CPU seconds per 10^9 bytes.
struct Bar {
    cell: String,
    side: String,
    threads: f64,
    /// Absent without samples.
    softirqs: Option<f64>,
    /// CPU time of the host that is neither.
    other: Option<f64>,
}

impl Bar {
    fn label(&self) -> String {
        format!("{} \u{b7} {}", self.cell, self.side)
    }

    fn sum(&self) -> f64 {
        self.threads + self.softirqs.unwrap_or(0.0)
    }

    fn parts(&self) -> [f64; 2] {
        [self.threads, self.softirqs.unwrap_or(0.0)]
    }
}

const KINDS: [(&str, &str); 2] =
    [("k0", "threads of the flow"), ("k1", "interrupts beyond the threads\u{2019} time")];
/// Bars beyond this many are in the table only.
const MAX_BARS: usize = 24;
/// From this fraction of the flow's own cost on other programs are worth a sentence.
const NOTABLE_OTHER: f64 = 0.25;

/// The bars, or `None` without a flow trial.
pub(crate) fn figure(digest: &Digest, experiment: &ExperimentDigest) -> Option<Figure> {
    let bars = bars(digest, experiment);
    if bars.iter().all(|bar| bar.sum() <= 0.0) {
        return None;
    }
    let id = identifier(&[&experiment.spec.name, "cost"]);
    let title = format!("{}: CPU cost", experiment.spec.title);
    let finding = finding(&bars);
    let used = |kind: usize| bars.iter().any(|bar| bar.parts()[kind] > 0.0);
    let legend = (0..KINDS.len())
        .filter(|kind| used(*kind))
        .map(|kind| LegendItem::new(format!("box {}", KINDS[kind].0), KINDS[kind].1))
        .collect();
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(&bars, size)),
        notes: notes(digest, &bars),
        legend,
        table: table(&bars),
        published: Vec::new(),
        id,
        title,
        finding,
    })
}

fn notes(digest: &Digest, bars: &[Bar]) -> Vec<String> {
    let mut notes = Vec::new();
    if bars.iter().any(|bar| bar.softirqs.is_some()) {
        notes.push(
            "Interrupts that hit a thread of the flow are in its own time where the kernel does not account them apart; \
             beside it stand those of the whole host beyond that, packets of others included, warm-up left out."
                .to_owned(),
        );
    }
    let foreign = |bar: &Bar| bar.other.is_some_and(|other| other > NOTABLE_OTHER * bar.sum());
    if bars.iter().any(foreign) {
        let most = bars.iter().filter_map(|bar| bar.other).fold(0.0, f64::max);
        let whose = if digest.run.lab.is_some() {
            "Other programs, the lab\u{2019}s own among them,"
        } else {
            "Other programs"
        };
        notes.push(format!(
            "{whose} used up to {} CPU s in the time of a gigabyte; that is in the table and not counted as cost of the flow.",
            significant(most)
        ));
    }
    notes
}

fn bars(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Bar> {
    let factors = experiment.varying_factors();
    let mut bars = Vec::new();
    for cell in &experiment.cells() {
        let label = cell.label(&factors);
        let splits: Vec<CpuSplit> = experiment
            .series
            .iter()
            .filter(|series| series.cell == cell.number && series.cpu.received_bytes > 0.0)
            .map(|series| series.cpu)
            .collect();
        let mut push = |side: String, threads: f64, host: fn(&CpuSplit) -> (SideCpu, f64)| {
            let of = |pick: &dyn Fn(SideCpu, f64) -> f64| {
                // ns / byte is s / 10^9 bytes.
                let values: Vec<f64> = splits
                    .iter()
                    .map(|split| (host(split), split.received_bytes))
                    .filter(|((side, _), _)| side.busy_ns > 0.0)
                    .map(|((side, own_ns), bytes)| pick(side, own_ns) / bytes)
                    .collect();
                median(&values)
            };
            bars.push(Bar {
                cell: label.clone(),
                side,
                threads,
                softirqs: of(&beyond_threads),
                other: of(&|side, own_ns| (side.busy_ns - own_ns - beyond_threads(side, own_ns)).max(0.0)),
            });
        };
        if digest.one_machine() {
            let threads = threads(cell, &["client-cpu", "server-cpu"]);
            // Both sides read the counters of the same machine.
            push("both ends, one machine".to_owned(), threads, |split| {
                (split.server, split.client.thread_ns + split.server.thread_ns)
            });
        } else {
            let (client, server) = (&digest.client().name, &digest.server().name);
            push(format!("client {client}"), threads(cell, &["client-cpu"]), |split| {
                (split.client, split.client.thread_ns)
            });
            push(format!("server {server}"), threads(cell, &["server-cpu"]), |split| {
                (split.server, split.server.thread_ns)
            });
        }
    }
    bars
}

/// Interrupts that are not in the threads' own time. Without `CONFIG_IRQ_TIME_ACCOUNTING` the
/// kernel's clock of a thread runs on through the interrupts that it is hit by
/// (kernel/sched/core.c, `update_rq_clock_task`): both together are never more than the host used.
fn beyond_threads(side: SideCpu, own_ns: f64) -> f64 {
    side.softirq_ns.min((side.busy_ns - own_ns).max(0.0))
}

/// Median over all trials of what the flow's threads used on these sides together.
fn threads(cell: &CellMetric<'_>, metrics: &[&str]) -> f64 {
    let sides: Vec<Vec<f64>> = metrics.iter().map(|metric| cell.of_all_trials(metric)).collect();
    let sums = (0..cell.trials.len()).map(|trial| sides.iter().filter_map(|side| side.get(trial)).sum());
    median(&sums.collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// Cost of a cell, all its sides together.
struct Total<'a> {
    cell: &'a str,
    threads: f64,
    /// With the softirqs of whole hosts: packets of others are in them.
    with_softirqs: f64,
}

fn finding(bars: &[Bar]) -> String {
    let mut totals: Vec<Total<'_>> = Vec::new();
    for bar in bars {
        let one = Total { cell: &bar.cell, threads: bar.threads, with_softirqs: bar.sum() };
        match totals.iter_mut().find(|total| total.cell == one.cell) {
            Some(total) => {
                total.threads += one.threads;
                total.with_softirqs += one.with_softirqs;
            }
            None => totals.push(one),
        }
    }
    let cheapest = totals.iter().min_by(|a, b| a.threads.total_cmp(&b.threads));
    let dearest = totals.iter().max_by(|a, b| a.threads.total_cmp(&b.threads));
    let Some((low, high)) = cheapest.zip(dearest) else { return String::new() };
    let [least, most] = [low, high].map(|total| significant(total.threads));
    let cells = if totals.len() == 1 { low.cell.to_owned() } else { count(totals.len(), "cell") };
    let range = if least == most {
        format!("{least} CPU s")
    } else {
        format!("{least} ({}) to {most} CPU s ({})", low.cell, high.cell)
    };
    let mut text = format!("A gigabyte costs {range} of the flow\u{2019}s threads at both ends together");
    if least == most {
        text.push_str(&format!(" ({cells})"));
    }
    let highest = significant(totals.iter().map(|total| total.with_softirqs).fold(0.0, f64::max));
    if highest != most {
        text.push_str(&format!(", up to {highest} CPU s with all softirqs of the hosts"));
    }
    text.push_str("; medians of all trials.");
    text
}

fn draw(bars: &[Bar], size: Size) -> Svg {
    let bars = &bars[..bars.len().min(MAX_BARS)];
    let height = size.pick(34.0, 50.0);
    let longest = bars.iter().map(|bar| text_width(&bar.label())).fold(0.0, f64::max);
    let left = (longest + 20.0).clamp(70.0, 330.0);
    let svg = Svg::new(size.width(), 24.0 + height * bars.len() as f64 + 46.0);
    let area = Area {
        left: size.pick(left, 12.0),
        right: svg.width - size.pick(60.0, 16.0),
        top: 14.0,
        bottom: svg.height - 46.0,
    };
    let highest = bars.iter().map(Bar::sum).fold(0.0, f64::max);
    let (x, ticks) = Scale::from_zero(highest, size.pick(8, 4));
    let y = Scale::Linear { domain: (0.0, 1.0), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, tick_labels(&ticks), "CPU time, s per GB"), (y, Vec::new(), ""));
    let stretches = plot.stretches(size, bars.len(), height, 24.0);
    for tick in &ticks {
        plot.upright(*tick, if *tick == 0.0 { "axis" } else { "grid" }, &stretches);
    }
    for (index, bar) in bars.iter().enumerate() {
        draw_bar(&mut plot, bar, area.top + height * index as f64, height, size);
    }
    plot.svg
}

fn draw_bar(plot: &mut Plot, bar: &Bar, top: f64, height: f64, size: Size) {
    let (bar_top, bar_height) = size.pick((top + 7.0, height - 14.0), (top + 25.0, height - 31.0));
    let (label, value) = (bar.label(), significant(bar.sum()));
    let (left, right) = (plot.area.left, plot.area.right);
    let end = plot.x.at(bar.sum()) + 6.0;
    match size {
        Size::Wide => {
            plot.svg.text(
                left - 12.0,
                top + height / 2.0 + 4.0,
                "rowlabel end",
                &fitted(&label, left - 16.0),
            );
            plot.svg.text(end, bar_top + bar_height / 2.0 + 4.0, "value halo start", &value);
        }
        Size::Narrow => {
            let room = right - left - text_width(&value) - 12.0;
            plot.svg.text(left + 2.0, top + 18.0, "rowlabel halo start", &fitted(&label, room));
            plot.svg.text(right, top + 18.0, "value halo end", &value);
        }
    }
    let mut at = 0.0;
    for (kind, value) in bar.parts().into_iter().enumerate().filter(|(_, value)| *value > 0.0) {
        let (from, to) = (plot.x.at(at), plot.x.at(at + value));
        let tip = format!("{label}: {} {} CPU s per GB", KINDS[kind].1, significant(value));
        plot.svg.tipped(&tip, |svg| {
            let class = format!("bar {}", KINDS[kind].0);
            svg.rect(from, bar_top, (to - from - 0.75).max(0.5), bar_height, &class);
        });
        at += value;
    }
}

fn table(bars: &[Bar]) -> Table {
    let mut table = Table::new(
        "CPU seconds per 10^9 bytes, medians of all trials",
        &["Cell", "Side", "#Flow threads, s/GB", "#Interrupts, s/GB", "#Sum, s/GB", "#Other programs, s/GB"],
    );
    for bar in bars {
        let text = |value: Option<f64>| value.map_or_else(|| "\u{2013}".to_owned(), significant);
        table.push(vec![
            bar.cell.clone(),
            bar.side.clone(),
            significant(bar.threads),
            text(bar.softirqs),
            significant(bar.sum()),
            text(bar.other),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_threads_own_time_counts_once() {
        let side = |busy_ns, softirq_ns| SideCpu { thread_ns: 0.0, softirq_ns, busy_ns };
        // A host that did nothing else: threads and interrupts are what it used.
        assert_eq!(beyond_threads(side(400.0, 230.0), 397.0), 3.0);
        assert_eq!(beyond_threads(side(400.0, 230.0), 410.0), 0.0);
        // Beside other programs no more than there were.
        assert_eq!(beyond_threads(side(17_260.0, 50.0), 710.0), 50.0);
    }

    #[test]
    fn threads_come_first_and_softirqs_are_a_bound() {
        let bar = |cell: &str, threads, softirqs| Bar {
            cell: cell.to_owned(),
            side: String::new(),
            threads,
            softirqs: Some(softirqs),
            other: None,
        };
        let ends = |cell, softirqs| [bar(cell, 0.3, softirqs), bar(cell, 0.2, 0.0)];
        assert_eq!(
            finding(&ends("1 flow", 0.25)),
            "A gigabyte costs 0.500 CPU s of the flow\u{2019}s threads at both ends together (1 flow), up to 0.750 CPU s \
             with all softirqs of the hosts; medians of all trials."
        );
        // Ends of a range that read the same are one value.
        let same: Vec<Bar> = ends("1 flow", 0.0).into_iter().chain(ends("4 flows", 0.0)).collect();
        assert_eq!(
            finding(&same),
            "A gigabyte costs 0.500 CPU s of the flow\u{2019}s threads at both ends together (2 cells); medians of all \
             trials."
        );
        let more: Vec<Bar> = ends("1 flow", 0.0).into_iter().chain([bar("4 flows", 0.8, 0.1)]).collect();
        assert_eq!(
            finding(&more),
            "A gigabyte costs 0.500 (1 flow) to 0.800 CPU s (4 flows) of the flow\u{2019}s threads at both ends together, \
             up to 0.900 CPU s with all softirqs of the hosts; medians of all trials."
        );
    }
}

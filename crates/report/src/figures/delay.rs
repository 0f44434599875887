//! Round-trip times of probes: from the shortest to the longest, with the
//! median and the 90th and 99th percentile.

use clearstream_schema::{lab::LabFile, probe::DelayStats};

use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    format::{bytes, percent, range, time},
    svg::{
        Svg,
        plot::{Area, Plot, Size, fitted, text_width, tick_labels},
        scale::{Scale, ticks_between},
    },
};

/// One line of the figure.
#[derive(Clone)]
struct Track<'a> {
    label: String,
    trial: u32,
    stats: &'a DelayStats,
}

/// The percentiles, or `None` without an probe with a response.
pub(crate) fn figure(digest: &Digest, experiment: &ExperimentDigest) -> Option<Figure> {
    let all = tracks(experiment);
    let tracks = typical(&all);
    let id = identifier(&[&experiment.spec.name, "delay"]);
    let title = format!("{}: round-trip time", experiment.spec.title);
    let finding = finding(digest, &all)?;
    let mut notes: Vec<String> = Vec::new();
    if all.len() > tracks.len() {
        notes.push(
            "Of repeated probes the one with the middle median is drawn; all are in the table.".to_owned(),
        );
    }
    for (_, probe) in &experiment.probes {
        for direction in &probe.directions {
            let mut facts = Vec::new();
            facts.extend(direction.path_mtu_bytes.map(|mtu| format!("path MTU {mtu} B")));
            facts.extend(direction.hop_count.map(|hops| crate::format::count(hops as usize, "hop")));
            if !facts.is_empty() {
                notes.push(format!("{} to {}: {}.", direction.from, direction.to, facts.join(", ")));
            }
        }
        notes.extend(
            probe.bandwidth_delay_product_bytes.zip(probe.requested.rate).map(|(product, rate)| {
                format!("Bandwidth-delay product at {rate}: {}.", bytes(product as f64))
            }),
        );
    }
    notes.extend(all.iter().filter_map(local_queueing));
    notes.sort();
    notes.dedup();
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(digest, &tracks, size)),
        notes,
        legend: vec![
            LegendItem::new("median s0", "median"),
            LegendItem::new("interval s0", "median to 99th percentile, tick at the 90th"),
            LegendItem::new("line faint", "shortest to longest"),
            LegendItem::new("line product", "delay that the lab was set to, both directions"),
        ]
        .into_iter()
        .filter(|item| item.swatch != "line product" || lab_round_trip_ns(digest).is_some())
        .collect(),
        table: table(&all),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

/// Shortest local queueing delay that is worth a note.
const NOTABLE_QUEUEING_NS: u64 = 500_000;

/// The wait in the sending host's own queue, where it is notable and a tenth
/// of the delay or more: the delays drawn do not contain it.
fn local_queueing(track: &Track<'_>) -> Option<String> {
    let (queueing, with) = (track.stats.local_queueing?, track.stats.with_local_queueing?);
    let least_ns = NOTABLE_QUEUEING_NS.max(track.stats.p50_ns / 10);
    (queueing.p50_ns >= least_ns).then(|| {
        format!(
            "{}, trial {}: local queueing delay {} in the median, {} at most, which is not drawn; with it {} in the \
             median.",
            track.label,
            track.trial,
            time(queueing.p50_ns as f64),
            time(queueing.max_ns as f64),
            time(with.p50_ns as f64),
        )
    })
}

fn tracks(experiment: &ExperimentDigest) -> Vec<Track<'_>> {
    let mut tracks = Vec::new();
    for (trial, probe) in &experiment.probes {
        for direction in &probe.directions {
            for (protocol, stats) in [("UDP", &direction.udp), ("TCP", &direction.tcp)] {
                if let Some(stats) = stats.as_ref().filter(|stats| stats.answered_count > 0) {
                    let label = format!("{protocol}, {} to {}", direction.from, direction.to);
                    tracks.push(Track { label, trial: *trial, stats });
                }
            }
        }
    }
    tracks
}

/// Of each kind the one with the middle median.
fn typical<'a>(all: &[Track<'a>]) -> Vec<Track<'a>> {
    let mut kinds: Vec<(&str, Vec<&Track<'a>>)> = Vec::new();
    for track in all {
        match kinds.iter_mut().find(|kind| kind.0 == track.label) {
            Some(kind) => kind.1.push(track),
            None => kinds.push((&track.label, vec![track])),
        }
    }
    kinds
        .into_iter()
        .filter_map(|(_, mut tracks)| {
            tracks.sort_by_key(|track| track.stats.p50_ns);
            tracks.get(tracks.len() / 2).map(|track| (*track).clone())
        })
        .collect()
}

/// Round trip configured in the lab when its links are a chain or parallel between two hosts.
fn lab_round_trip_ns(digest: &Digest) -> Option<f64> {
    let lab: &LabFile = digest.run.lab.as_ref()?;
    let delays = || lab.links.iter().map(|link| link.delay.0);
    // Two hosts may have a short link in addition to the long one, and a probe takes the long one.
    let one_way = match lab.hosts.len() {
        2 => delays().max()?,
        hosts if lab.links.len() + 1 == hosts => delays().sum(),
        _ => return None,
    };
    (one_way > 0).then_some(2.0 * one_way as f64)
}

fn finding(digest: &Digest, tracks: &[Track<'_>]) -> Option<String> {
    tracks.first()?;
    let sent: u64 = tracks.iter().map(|track| track.stats.sent_count).sum();
    let received: u64 = tracks.iter().map(|track| track.stats.answered_count).sum();
    let lost = sent.saturating_sub(received);
    let loss = if lost == 0 {
        format!("none of {sent} probes lost")
    } else {
        format!("{lost} of {sent} probes lost ({})", percent(lost as f64 / sent as f64))
    };
    // Of every probe: the figures of one do not hold for the others.
    let over = |of: fn(&DelayStats) -> Option<u64>| {
        let values = || tracks.iter().filter_map(|track| of(track.stats));
        let ends = values().min().zip(values().max());
        ends.map_or_else(|| "\u{2013}".to_owned(), |(low, high)| range(&time(low as f64), &time(high as f64)))
    };
    let configured = lab_round_trip_ns(digest).map_or_else(String::new, |configured| {
        let off = |track: &Track<'_>| format!("{:+.3} ms", (track.stats.mean_ns as f64 - configured) / 1e6);
        let mean = |track: &&Track<'_>| track.stats.mean_ns;
        let ends = tracks.iter().min_by_key(mean).zip(tracks.iter().max_by_key(mean));
        let off = ends.map_or_else(String::new, |(low, high)| range(&off(low), &off(high)));
        format!(" (the lab was set to {}, means are {off} off)", time(configured))
    });
    Some(format!(
        "Round trip {} in the median{configured}, {} at the 99th percentile, jitter {}; {loss}.",
        over(|stats| Some(stats.p50_ns)),
        over(|stats| Some(stats.p99_ns)),
        over(DelayStats::jitter_ns),
    ))
}

fn draw(digest: &Digest, tracks: &[Track<'_>], size: Size) -> Svg {
    let ms = |ns: u64| ns as f64 / 1e6;
    let lowest = tracks.iter().map(|t| ms(t.stats.min_ns)).fold(f64::INFINITY, f64::min);
    let furthest = tracks.iter().map(|t| ms(t.stats.max_ns)).fold(0.0, f64::max);
    let body = tracks.iter().map(|t| ms(t.stats.p99_ns)).fold(0.0, f64::max);
    // A single outlier must not squeeze the distribution into a dot.
    let high = furthest.min(body + 2.0 * (body - lowest).max(0.01));
    let configured = lab_round_trip_ns(digest).map(|ns| ns / 1e6);
    let low = configured.map_or(lowest, |configured| configured.min(lowest));
    let pad = (high - low).max(0.001) * 0.06;
    let (low, high) = ((low - pad).max(0.0), high + pad);
    let row = size.pick(40.0, 52.0);
    let left = (tracks.iter().map(|t| text_width(&t.label)).fold(0.0, f64::max) + 20.0).clamp(70.0, 320.0);
    let svg = Svg::new(size.width(), 34.0 + row * tracks.len() as f64 + 46.0);
    let area = Area {
        left: size.pick(left, 12.0),
        right: svg.width - size.pick(24.0, 14.0),
        top: 26.0,
        bottom: svg.height - 46.0,
    };
    let ticks = ticks_between(low, high, size.pick(7, 4));
    let x = Scale::Linear { domain: (low, high), range: (0.0, 1.0) };
    let y = Scale::Linear { domain: (0.0, 1.0), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, tick_labels(&ticks), "round-trip time, ms"), (y, Vec::new(), ""));
    let stretches = plot.stretches(size, tracks.len(), row, 24.0);
    for tick in &ticks {
        plot.upright(*tick, "grid", &stretches);
    }
    if let Some(configured) = configured {
        plot.rule_over(configured, "product", &format!("set to {configured} ms"), 0, &stretches);
    }
    for (index, track) in tracks.iter().enumerate() {
        let top = area.top + row * index as f64;
        draw_track(&mut plot, track, top + row * size.pick(0.5, 0.68), top, size);
    }
    plot.svg
}

fn draw_track(plot: &mut Plot, track: &Track<'_>, middle: f64, top: f64, size: Size) {
    let stats = track.stats;
    let cut = stats.max_ns as f64 / 1e6 > plot.x.domain().1;
    match size {
        Size::Wide => plot.svg.text(
            plot.area.left - 12.0,
            middle + 4.0,
            "rowlabel end",
            &fitted(&track.label, plot.area.left - 16.0),
        ),
        Size::Narrow => {
            let mut value = time(stats.p50_ns as f64);
            if cut {
                value.push_str(&format!(", longest {} \u{2192}", time(stats.max_ns as f64)));
            }
            let room = plot.area.right - plot.area.left - text_width(&value) - 12.0;
            plot.svg.text(plot.area.left, top + 18.0, "rowlabel halo start", &fitted(&track.label, room));
            plot.svg.text(plot.area.right, top + 18.0, "value halo end", &value);
        }
    }
    let at = |ns: u64| plot.x.at((ns as f64 / 1e6).min(plot.x.domain().1));
    let [min, p50, p90, p99, max] =
        [stats.min_ns, stats.p50_ns, stats.p90_ns, stats.p99_ns, stats.max_ns].map(at);
    let tip = format!(
        "{}: median {}, p90 {}, p99 {}, longest {}",
        track.label,
        time(stats.p50_ns as f64),
        time(stats.p90_ns as f64),
        time(stats.p99_ns as f64),
        time(stats.max_ns as f64)
    );
    plot.svg.tipped(&tip, |svg| {
        svg.line((min, middle), (max, middle), "line faint thin");
        svg.rounded(p50, middle - 4.0, (p99 - p50).max(1.0), 8.0, 2.0, "interval s0");
        svg.rect(p90 - 0.75, middle - 6.0, 1.5, 12.0, "bar s0");
        svg.rounded(p50 - 1.75, middle - 9.0, 3.5, 18.0, 1.5, "median s0");
        if cut && size == Size::Wide {
            svg.text(
                max,
                middle - 10.0,
                "note halo end",
                &format!("longest {} \u{2192}", time(stats.max_ns as f64)),
            );
        }
    });
}

fn table(tracks: &[Track<'_>]) -> Table {
    let mut table = Table::new(
        "Round-trip time",
        &[
            "Probe",
            "#Trial",
            "#Responses",
            "#Lost",
            "#Min, ms",
            "#Mean, ms",
            "#Median, ms",
            "#p90, ms",
            "#p99, ms",
            "#Max, ms",
            "#Jitter, ms",
            "Clock",
        ],
    );
    for track in tracks {
        let stats = track.stats;
        let mut cells = vec![
            track.label.clone(),
            track.trial.to_string(),
            stats.answered_count.to_string(),
            percent(stats.loss_ratio),
        ];
        let delays = [stats.min_ns, stats.mean_ns, stats.p50_ns, stats.p90_ns, stats.p99_ns, stats.max_ns];
        let milliseconds = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
        cells.extend(delays.map(milliseconds));
        cells.push(stats.jitter_ns().map_or_else(|| "\u{2013}".to_owned(), milliseconds));
        cells.push(format!("{:?}", stats.clock).to_lowercase());
        table.push(cells);
    }
    table
}

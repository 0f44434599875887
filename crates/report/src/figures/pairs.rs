//! From every host to every other: goodput and round-trip time as heat maps, a row per
//! sending host, a column per receiving one. It shows whether a host, a direction of it or a
//! single pair is slow.

use std::collections::BTreeMap;

use clearstream_schema::all_pairs::PairGoodput;

use crate::{
    digest::{Digest, ExperimentDigest, PairsTrial},
    estimate::{Estimate, median},
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    figures::heat::{HeatCell, HeatMap},
    format::{count, gbps, level_of, rate, significant, time},
    headline::Headline,
    link,
};

/// Below this fraction of the others' median a host or a pair is named, as the notice of the workload does.
const SLOW_RATIO: f64 = 0.5;
/// Reasons for missing pairs in full; the notices and the record have them all.
const SHOWN_FAILURES: usize = 6;
const ABSENT: &str = "\u{2013}";

/// All flows of one pair of hosts, over the trials of a cell.
#[derive(Default)]
struct Pair {
    goodput_bps: Vec<f64>,
    rtt_ns: Vec<f64>,
    retransmit_count: Option<u64>,
}

/// The trials of a cell.
struct Mesh<'a> {
    title: &'a str,
    /// Levels of the cell; empty where the experiment has one cell.
    label: String,
    hosts: Vec<&'a str>,
    trial_count: usize,
    /// By (sender, receiver), as indexes of hosts.
    pairs: BTreeMap<(usize, usize), Pair>,
    /// Pairs without a result in some trial, with the reason.
    failed: BTreeMap<(&'a str, &'a str), &'a str>,
}

/// A map of the goodput of each cell, and one of its round-trip time where the kernel reported it.
pub(crate) fn figures(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Figure> {
    let drawn = meshes(digest, experiment).into_iter().enumerate().flat_map(|(index, mesh)| {
        let suffix = if index > 0 { format!("-{}", index + 1) } else { String::new() };
        let id = |kind: &str| identifier(&[&experiment.spec.name, kind]) + &suffix;
        [mesh.goodput(id("pairs")), mesh.round_trip_time(id("pairs-rtt"))]
    });
    drawn.flatten().collect()
}

/// The slowest pair of the first cell that was measured.
pub(crate) fn headline(digest: &Digest) -> Option<Headline> {
    let with_pairs = |experiment: &&ExperimentDigest| !experiment.pairs.is_empty();
    let experiment = digest.experiments.iter().find(with_pairs)?;
    let mesh = meshes(digest, experiment).into_iter().next()?;
    let estimates =
        mesh.pairs.iter().filter_map(|(place, pair)| Some((place, Estimate::of(&pair.goodput_bps)?)));
    let ((from, to), slowest) = estimates.min_by(|one, other| one.1.median.total_cmp(&other.1.median))?;
    Some(Headline {
        label: format!(
            "Slowest of {}, {} to {}",
            count(mesh.pairs.len(), "pair"),
            mesh.hosts[*from],
            mesh.hosts[*to]
        ),
        value: rate(slowest.median),
        sure: slowest.how_sure(rate),
        detail: mesh.finding(),
        published: None,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: experiment.anchor("pairs"),
    })
}

/// The cells of an experiment.
fn meshes<'a>(digest: &'a Digest, experiment: &'a ExperimentDigest) -> Vec<Mesh<'a>> {
    let mut cells: BTreeMap<u32, Vec<&PairsTrial>> = BTreeMap::new();
    for trial in &experiment.pairs {
        cells.entry(trial.cell).or_default().push(trial);
    }
    let several = cells.len() > 1;
    cells.values().map(|trials| Mesh::of(digest, experiment, trials, several)).collect()
}

impl<'a> Mesh<'a> {
    fn of(
        digest: &'a Digest,
        experiment: &'a ExperimentDigest,
        trials: &[&'a PairsTrial],
        several: bool,
    ) -> Self {
        let flows = || trials.iter().flat_map(|trial| trial.summary.rounds.iter().flatten());
        let failed = trials.iter().flat_map(|trial| &trial.summary.failed_pairs);
        let failed: BTreeMap<(&str, &str), &str> =
            failed.map(|pair| ((pair.from.as_str(), pair.to.as_str()), pair.message.as_str())).collect();
        let ends = flows().map(|flow| (flow.from.as_str(), flow.to.as_str()));
        let mut hosts: Vec<&str> =
            ends.chain(failed.keys().copied()).flat_map(|(from, to)| [from, to]).collect();
        let order = |name: &str| digest.run.hosts.iter().position(|host| host.name == name);
        hosts.sort_by_key(|name| (order(name).unwrap_or(usize::MAX), *name));
        hosts.dedup();
        let mut pairs: BTreeMap<(usize, usize), Pair> = BTreeMap::new();
        for flow in flows() {
            let place = |name: &str| hosts.iter().position(|host| *host == name).unwrap_or_default();
            pairs.entry((place(&flow.from), place(&flow.to))).or_default().add(flow);
        }
        let levels = trials.first().filter(|_| several).map(|trial| trial.factors.iter());
        let label: Vec<String> =
            levels.into_iter().flatten().map(|(name, level)| level_of(name, level)).collect();
        let title = &experiment.spec.title;
        Self { title, label: label.join(", "), hosts, trial_count: trials.len(), pairs, failed }
    }

    /// Median goodput of the pairs that fit.
    fn median_of(&self, fits: impl Fn(usize, usize) -> bool) -> Option<f64> {
        let fitting = self.pairs.iter().filter(|((from, to), _)| fits(*from, *to));
        median(&fitting.filter_map(|(_, pair)| median(&pair.goodput_bps)).collect::<Vec<f64>>())
    }

    /// The host whose sent or received flows are slow as a whole, the worst one.
    fn slow_host(&self) -> Option<String> {
        // Of two hosts each pair is a host's only one.
        if self.hosts.len() < 3 {
            return None;
        }
        let mut found: Option<(f64, String)> = None;
        for (host, name) in self.hosts.iter().enumerate() {
            let others = self.median_of(|from, to| from != host && to != host);
            for (verb, own) in [
                ("sends", self.median_of(|from, _| from == host)),
                ("receives", self.median_of(|_, to| to == host)),
            ] {
                let (Some(own), Some(others)) = (own, others) else { continue };
                let ratio = own / others;
                if ratio < SLOW_RATIO && found.as_ref().is_none_or(|(lowest, _)| ratio < *lowest) {
                    let sentence = format!(
                        "{name} {verb} at {} (median of its pairs), {}x of the {} between the other hosts.",
                        rate(own),
                        significant(ratio),
                        rate(others)
                    );
                    found = Some((ratio, sentence));
                }
            }
        }
        found.map(|(_, sentence)| sentence)
    }

    /// Pairs without a flow, and all pairs.
    fn missing(&self) -> (usize, usize) {
        let all = self.hosts.len() * self.hosts.len().saturating_sub(1);
        (all - self.pairs.len(), all)
    }

    fn finding(&self) -> String {
        match self.missing() {
            (0, _) => self.slow(),
            (missing, all) => format!("{missing} of {all} pairs have no flow. {}", self.slow()),
        }
    }

    /// The slow host, else the slow pair, else the range of all.
    fn slow(&self) -> String {
        if let Some(sentence) = self.slow_host() {
            return sentence;
        }
        let medians = self.pairs.iter().filter_map(|(place, pair)| Some((place, median(&pair.goodput_bps)?)));
        let mut medians: Vec<(&(usize, usize), f64)> = medians.collect();
        medians.sort_by(|one, other| one.1.total_cmp(&other.1));
        let (Some((slowest, low)), Some((fastest, high)), Some(middle)) =
            (medians.first(), medians.last(), self.median_of(|_, _| true))
        else {
            return String::new();
        };
        let spoken = |(from, to): &(usize, usize)| format!("{} to {}", self.hosts[*from], self.hosts[*to]);
        if *low < SLOW_RATIO * middle {
            return format!(
                "{} is slow: {}, {}x of the median of all pairs ({}).",
                spoken(slowest),
                rate(*low),
                significant(low / middle),
                rate(middle)
            );
        }
        format!(
            "No host and no pair is below half of the others: {} from {} to {} from {}, median {}.",
            rate(*low),
            spoken(slowest),
            rate(*high),
            spoken(fastest),
            rate(middle)
        )
    }

    fn goodput(&self, id: String) -> Option<Figure> {
        let title = self.titled("goodput from every host to every other");
        let highest = self.pairs.values().flat_map(|pair| &pair.goodput_bps).fold(0.0, |h: f64, v| h.max(*v));
        let (unit, factor) = if highest < 1e9 { ("Mb/s", 1e6) } else { ("Gb/s", 1e9) };
        let text = |value: f64| significant(value / factor);
        let map = self.map(&format!("goodput, {unit}"), |pair| &pair.goodput_bps, text, rate);
        let reasons = self
            .failed
            .iter()
            .take(SHOWN_FAILURES)
            .map(|((from, to), why)| format!("{from} to {to}: {why}."));
        let mut notes: Vec<String> = reasons.collect();
        if self.missing().0 > 0 {
            notes.insert(0, "Pairs without a flow are drawn as crosses.".to_owned());
        }
        Some(Figure { notes, ..figure(id, title, self.finding(), &map, rate, self.goodput_table())? })
    }

    /// None where no kernel reported it.
    fn round_trip_time(&self, id: String) -> Option<Figure> {
        let title = self.titled("round-trip time of these flows");
        let highest = self.pairs.values().flat_map(|pair| &pair.rtt_ns).fold(0.0, |h: f64, v| h.max(*v));
        let (unit, factor) = if highest < 1e6 { ("us", 1e3) } else { ("ms", 1e6) };
        let text = |value: f64| significant(value / factor);
        let map = self.map(&format!("round-trip time, {unit}"), |pair| &pair.rtt_ns, text, time);
        let (place, longest) = map.cells.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
        let finding = format!(
            "The longest round-trip time while data flowed: {}, from {} to {}.",
            time(longest.value),
            self.hosts[place.0],
            self.hosts[place.1]
        );
        figure(id, title, finding, &map, time, self.round_trip_table())
    }

    fn titled(&self, what: &str) -> String {
        let label = if self.label.is_empty() { String::new() } else { format!(" ({})", self.label) };
        format!("{}: {what}{label}", self.title)
    }

    fn map(
        &self,
        title: &str,
        values: impl Fn(&Pair) -> &Vec<f64>,
        text: impl Fn(f64) -> String,
        full: impl Fn(f64) -> String,
    ) -> HeatMap {
        let cell = |(from, to): (usize, usize), pair: &Pair| {
            let estimate = Estimate::of(values(pair))?;
            let sure = estimate.how_sure(&full);
            let tip =
                format!("{} to {}: {} ({sure})", self.hosts[from], self.hosts[to], full(estimate.median));
            Some(HeatCell { value: estimate.median, text: text(estimate.median), tip })
        };
        let names: Vec<String> = self.hosts.iter().map(|name| (*name).to_owned()).collect();
        HeatMap {
            title: title.to_owned(),
            axes: "from \u{2193}   to \u{2192}".to_owned(),
            cells: self
                .pairs
                .iter()
                .filter_map(|(place, pair)| Some((*place, cell(*place, pair)?)))
                .collect(),
            rows: names.clone(),
            columns: names,
            has_empty_diagonal: true,
            ..HeatMap::default()
        }
    }

    fn goodput_table(&self) -> Table {
        self.table(&["#Goodput, Gb/s", "Interval", "#Retransmits"], |pair| {
            let estimate = Estimate::of(&pair.goodput_bps);
            [
                estimate.map(|found| gbps(found.median)),
                estimate.map(|found| found.interval_text(rate)),
                pair.retransmit_count.map(|number| number.to_string()),
            ]
        })
    }

    fn round_trip_table(&self) -> Table {
        self.table(&["#Round-trip time", "Interval"], |pair| {
            let estimate = Estimate::of(&pair.rtt_ns);
            [estimate.map(|found| time(found.median)), estimate.map(|found| found.interval_text(time))]
        })
    }

    fn table<const N: usize>(&self, heads: &[&str; N], row: impl Fn(&Pair) -> [Option<String>; N]) -> Table {
        let caption = format!("Medians of {} of each pair", count(self.trial_count, "trial"));
        let mut table = Table::new(caption, &[&["From", "To"], heads.as_slice()].concat());
        for ((from, to), pair) in &self.pairs {
            let ends = [*from, *to].map(|host| self.hosts[host].to_owned());
            let values = row(pair).map(|value| value.unwrap_or_else(|| ABSENT.to_owned()));
            table.push(ends.into_iter().chain(values).collect());
        }
        table
    }
}

impl Pair {
    fn add(&mut self, flow: &PairGoodput) {
        self.goodput_bps.push(flow.goodput_bps);
        self.rtt_ns.extend(flow.rtt_ns.map(|ns| ns as f64));
        if let Some(number) = flow.retransmit_count {
            *self.retransmit_count.get_or_insert(0) += number;
        }
    }
}

fn figure(
    id: String,
    title: String,
    finding: String,
    map: &HeatMap,
    full: impl Fn(f64) -> String,
    table: Table,
) -> Option<Figure> {
    let values = || map.cells.values().map(|cell| cell.value);
    let (low, high) = (values().min_by(f64::total_cmp)?, values().max_by(f64::total_cmp)?);
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| map.draw(size)),
        notes: Vec::new(),
        legend: vec![LegendItem::new("heat", format!("{} to {}", full(low), full(high)))],
        table,
        published: Vec::new(),
        id,
        title,
        finding,
    })
}

//! The latest of every host, and as much of the past as is drawn.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use clearstream_live::Totals;
use clearstream_schema::live::{LiveSample, LiveTotals};

use super::per_second;

/// Rates that are kept of each interface: two minutes of seconds.
const KEPT: usize = 120;

/// All hosts.
pub struct Board {
    hosts: Vec<HostBoard>,
    interval: Duration,
    /// Lines with the links of the servers.
    links: Vec<String>,
}

/// A host.
pub(super) struct HostBoard {
    pub(super) name: String,
    pub(super) latest: Option<LiveSample>,
    /// Of each interface: bits per second in and out, in order of time.
    pub(super) rates: BTreeMap<String, VecDeque<f64>>,
    pub(super) lost: Option<(Instant, String)>,
    totals: Totals,
}

impl Board {
    /// Without samples yet.
    pub fn new(names: &[String], interval: Duration) -> Self {
        let host = |name: &String| HostBoard {
            name: name.clone(),
            latest: None,
            rates: BTreeMap::new(),
            lost: None,
            totals: Totals::of(name),
        };
        Self { hosts: names.iter().map(host).collect(), interval, links: Vec::new() }
    }

    /// Lines with the links of the page and of the metrics.
    pub fn show_links(&mut self, links: Vec<String>) {
        self.links = links;
    }

    pub(super) fn links(&self) -> &[String] {
        &self.links
    }

    /// Takes in a sample of a host.
    pub fn add(&mut self, host: usize, sample: LiveSample) {
        let Some(host) = self.hosts.get_mut(host) else { return };
        for interface in &sample.counters.interfaces {
            let rates = host.rates.entry(interface.name.clone()).or_default();
            rates.push_back(per_second((interface.receive_bytes + interface.send_bytes) * 8, &sample));
            if rates.len() > KEPT {
                rates.pop_front();
            }
        }
        if let Some((since, _)) = host.lost.take() {
            let missing = since.elapsed().as_nanos() / self.interval.as_nanos().max(1);
            for _ in 0..missing.clamp(1, 1 << 20) {
                host.totals.add_gap();
            }
        }
        host.totals.add(&sample);
        host.latest = Some(sample);
    }

    /// A host does not answer.
    pub fn lose(&mut self, host: usize, reason: String) {
        let Some(host) = self.hosts.get_mut(host) else { return };
        let since = host.lost.take().map_or_else(Instant::now, |(since, _)| since);
        host.lost = Some((since, reason));
    }

    /// The first host whose samples of this time do not come, and why, where that is known. One that was lost and is
    /// back has gaps.
    pub fn silent(&self, duration: Duration) -> Option<(String, Option<String>)> {
        let is_silent = |host: &&HostBoard| {
            let totals = host.totals.document();
            let covered = Duration::from_nanos(totals.duration_ns);
            let is_back = totals.gap_count > 0 && host.lost.is_none();
            !is_back && (totals.sample_count == 0 || covered + self.interval / 2 <= duration)
        };
        let host = self.hosts.iter().find(is_silent)?;
        Some((host.name.clone(), host.lost.as_ref().map(|(_, reason)| reason.clone())))
    }

    /// Whether it did not answer last.
    pub fn is_lost(&self, host: usize) -> bool {
        self.hosts.get(host).is_some_and(|host| host.lost.is_some())
    }

    /// Whether the samples of every host are of this time.
    pub fn covers(&self, duration: Duration) -> bool {
        let covered =
            |host: &HostBoard| u128::from(host.totals.document().duration_ns) >= duration.as_nanos();
        self.hosts.iter().all(covered)
    }

    /// Name of a host.
    pub fn name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("", |host| &host.name)
    }

    /// Sums of all hosts.
    pub fn totals(&self) -> Vec<LiveTotals> {
        self.hosts.iter().map(|host| host.totals.document().clone()).collect()
    }

    pub(super) fn hosts(&self) -> &[HostBoard] {
        &self.hosts
    }
}

//! Time series of the figures: samples of a few trials per experiment, read one
//! interval at a time and thinned as they are kept.

use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_schema::{
    flow::{Interval, SideInterval},
    record::{RECORD_VERSION, TRIAL_SCHEMA, TrialDocument, TrialOutcome},
};

use crate::{
    cell_settings::CellSettings,
    error::ReportError,
    measured::{CellMetric, MeasuredTrial},
};

/// At most so many repetitions of one cell are drawn; all are read.
const DRAWN_REPETITIONS: usize = 4;

/// Seconds and bits per second.
pub(crate) type Points = Vec<(f64, f64)>;

/// One trial over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub(crate) trial: u32,
    pub(crate) cell: u32,
    /// The repetition nearest to the cell's median: the strong line.
    pub(crate) typical: bool,
    /// Goodput of all flows; empty where it is not drawn.
    pub(crate) goodput: Points,
    /// Of all samples after the warm-up, also where they are not drawn.
    pub(crate) counted: Counted,
    /// Goodput of the bursty flows alone, where there are any.
    pub(crate) bursts: Points,
    /// End of the warm-up.
    pub(crate) warm_up_seconds: f64,
    pub(crate) interfaces: Vec<InterfaceSeries>,
    pub(crate) cpu: CpuSplit,
}

/// One interface over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct InterfaceSeries {
    /// At the client (else at the server).
    pub(crate) client: bool,
    pub(crate) name: String,
    pub(crate) sent: Points,
    pub(crate) received: Points,
}

/// Goodput of the samples after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counted {
    pub(crate) count: usize,
    pub(crate) lowest_bps: f64,
    pub(crate) highest_bps: f64,
    sum_bps: f64,
}

impl Counted {
    fn add(&mut self, bps: f64) {
        self.lowest_bps = if self.count == 0 { bps } else { self.lowest_bps.min(bps) };
        self.highest_bps = self.highest_bps.max(bps);
        self.sum_bps += bps;
        self.count += 1;
    }

    pub(crate) fn mean_bps(&self) -> f64 {
        self.sum_bps / self.count.max(1) as f64
    }
}

/// CPU time of both sides without the warm-up, and the bytes that were received in it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CpuSplit {
    pub(crate) client: SideCpu,
    pub(crate) server: SideCpu,
    pub(crate) received_bytes: f64,
}

/// Nanoseconds of CPU time of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SideCpu {
    /// The flow's threads.
    pub(crate) thread_ns: f64,
    /// Interrupts of the whole host, soft and hard.
    pub(crate) softirq_ns: f64,
    /// CPU time of the whole host except idle.
    pub(crate) busy_ns: f64,
}

impl SideCpu {
    fn add(&mut self, side: &SideInterval) {
        self.thread_ns += side.thread_cpu_ns as f64;
        for core in &side.cores {
            let softirq = (core.softirq_ns + core.irq_ns) as f64;
            self.softirq_ns += softirq;
            self.busy_ns += (core.user_ns + core.system_ns) as f64 + softirq;
        }
    }
}

/// Samples of the trials of these cells.
///
/// # Errors
/// They cannot be read.
pub(crate) fn read(cells: &[CellMetric<'_>], reader: &Reader) -> Result<Vec<Series>, ReportError> {
    let mut all = Vec::new();
    for cell in cells {
        let typical = cell.typical().map(|(trial, _)| trial.trial);
        let rest = cell.trials.iter().filter(|trial| Some(trial.trial) != typical);
        let first = cell.trials.iter().filter(|trial| Some(trial.trial) == typical);
        for (index, trial) in first.chain(rest).enumerate() {
            if trial.samples.is_none() {
                continue;
            }
            let mut series = Series {
                trial: trial.trial,
                cell: cell.number,
                typical: Some(trial.trial) == typical,
                ..Series::default()
            };
            let mut interfaces = BTreeMap::new();
            for interval in reader.samples::<Interval>(&stub(trial))? {
                series.add(&cell.settings, &interval?, &mut interfaces);
            }
            let measured = !series.goodput.is_empty();
            if index < DRAWN_REPETITIONS {
                series.interfaces = interfaces.into_values().collect();
            } else {
                // Thousands of trials must fit into little memory.
                (series.goodput, series.bursts) = (Vec::new(), Vec::new());
            }
            if measured {
                all.push(series);
            }
        }
    }
    Ok(all)
}

/// Names of the interfaces that carried most bytes in the first trial that has samples,
/// the client's and the server's.
///
/// # Errors
/// The samples cannot be read.
pub(crate) fn path_interfaces(
    cells: &[CellMetric<'_>],
    reader: &Reader,
) -> Result<[Option<String>; 2], ReportError> {
    let mut trials = cells.iter().flat_map(|cell| &cell.trials);
    let Some(trial) = trials.find(|trial| trial.samples.is_some()) else { return Ok([None, None]) };
    let mut carried: [BTreeMap<String, u64>; 2] = Default::default();
    for interval in reader.samples::<Interval>(&stub(trial))? {
        let interval = interval?;
        add_carried(&mut carried[0], &interval.client);
        add_carried(&mut carried[1], &interval.server);
    }
    Ok(carried.map(|bytes| {
        let most = bytes.into_iter().filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes);
        most.map(|(name, _)| name)
    }))
}

fn add_carried(sums: &mut BTreeMap<String, u64>, side: &SideInterval) {
    for interface in &side.interfaces {
        let sum = sums.entry(interface.name.clone()).or_default();
        *sum = sum.saturating_add(interface.send_bytes.saturating_add(interface.receive_bytes));
    }
}

/// The reader finds samples by trial document; only these fields matter to it.
fn stub(trial: &MeasuredTrial) -> TrialDocument {
    TrialDocument {
        schema: TRIAL_SCHEMA.to_owned(),
        version: RECORD_VERSION,
        trial: trial.trial,
        experiment: String::new(),
        cell: 0,
        repetition: trial.repetition,
        factors: BTreeMap::new(),
        started: String::new(),
        workload: String::new(),
        outcome: TrialOutcome::Measured(Box::default()),
        steady: None,
        samples: trial.samples.clone(),
        delay_lines: Vec::new(),
    }
}

impl Series {
    fn add(
        &mut self,
        settings: &CellSettings,
        interval: &Interval,
        interfaces: &mut BTreeMap<(bool, String), InterfaceSeries>,
    ) {
        let (client, server) = (&interval.client, &interval.server);
        let seconds = middle_seconds(client).or_else(|| middle_seconds(server)).unwrap_or(0.0);
        self.goodput.push((seconds, interval.goodput_bps));
        let receiver = if settings.is_reverse() { client } else { server };
        let number = |name| settings.number(name).unwrap_or(0);
        let bursts = number("burst-flows");
        if bursts > 0 {
            let first = number("flows").saturating_sub(bursts);
            let of_bursts = receiver.flows.iter().filter(|flow| u64::from(flow.flow) >= first);
            let bytes: u64 = of_bursts.map(|flow| flow.received_bytes).sum();
            self.bursts.push((seconds, rate(bytes, receiver)));
        }
        for (is_client, side) in [(true, client), (false, server)] {
            for counters in &side.interfaces {
                let key = (!is_client, counters.name.clone());
                let series = interfaces.entry(key).or_insert_with(|| InterfaceSeries {
                    client: is_client,
                    name: counters.name.clone(),
                    ..InterfaceSeries::default()
                });
                series.sent.push((seconds, rate(counters.send_bytes, side)));
                series.received.push((seconds, rate(counters.receive_bytes, side)));
            }
        }
        if interval.warm_up {
            self.warm_up_seconds = self.warm_up_seconds.max(client.end_ns.max(server.end_ns) as f64 / 1e9);
        } else {
            self.counted.add(interval.goodput_bps);
            self.cpu.client.add(client);
            self.cpu.server.add(server);
            let length_ns = receiver.end_ns.saturating_sub(receiver.start_ns) as f64;
            self.cpu.received_bytes += interval.goodput_bps / 8.0 * length_ns / 1e9;
        }
    }
}

fn middle_seconds(side: &SideInterval) -> Option<f64> {
    (side.end_ns > side.start_ns).then(|| (side.start_ns + side.end_ns) as f64 / 2e9)
}

fn rate(bytes: u64, side: &SideInterval) -> f64 {
    let length_ns = side.end_ns.saturating_sub(side.start_ns);
    if length_ns == 0 { 0.0 } else { bytes as f64 * 8e9 / length_ns as f64 }
}

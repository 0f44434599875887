//! What is drawn over time: samples of a few trials per experiment, read one
//! interval at a time and thinned as they are kept.

use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_schema::{
    flow::{Direction, Interval, SideInterval},
    record::{RECORD_VERSION, TRIAL_SCHEMA, TrialDocument, TrialOutcome},
    study::Figure,
};

use crate::{
    ReportError,
    digest::{ExperimentDigest, FlowTrial},
};

/// At most so many repetitions of one cell are drawn.
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
    /// Goodput of all flows.
    pub(crate) goodput: Points,
    /// Goodput of the bursty flows alone, where there are any.
    pub(crate) bursts: Points,
    /// Where the warm-up ends.
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

/// CPU time of the whole host per kind, warm-up excluded, and the bytes it went for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CpuSplit {
    pub(crate) client: Kinds,
    pub(crate) server: Kinds,
    pub(crate) received_bytes: f64,
}

/// Nanoseconds in user, system and interrupt (soft and hard) mode.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Kinds {
    pub(crate) user_ns: f64,
    pub(crate) system_ns: f64,
    pub(crate) softirq_ns: f64,
}

impl Kinds {
    fn add(&mut self, side: &SideInterval) {
        for core in &side.cores {
            self.user_ns += core.user_ns as f64;
            self.system_ns += core.system_ns as f64;
            self.softirq_ns += (core.softirq_ns + core.irq_ns) as f64;
        }
    }

    /// CPU seconds per 10^9 bytes, in the order user, system, softirq.
    pub(crate) fn seconds_per_gb(&self, received_bytes: f64) -> [f64; 3] {
        // ns / byte is s / 10^9 bytes.
        [self.user_ns, self.system_ns, self.softirq_ns].map(|ns| ns / received_bytes)
    }
}

/// Samples of the trials that an experiment draws over time; none for the others.
pub(crate) fn read(experiment: &ExperimentDigest, reader: &Reader) -> Result<Vec<Series>, ReportError> {
    if !matches!(experiment.spec.figure, Figure::Throughput | Figure::LiveTraffic) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for cell in &experiment.cells {
        let typical = cell.typical().map(|trial| trial.trial);
        let rest = cell.trials.iter().filter(|trial| Some(trial.trial) != typical);
        let first = cell.trials.iter().filter(|trial| Some(trial.trial) == typical);
        for trial in first.chain(rest).take(DRAWN_REPETITIONS) {
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
                series.add(trial, &interval?, &mut interfaces);
            }
            series.interfaces = interfaces.into_values().collect();
            if !series.goodput.is_empty() {
                all.push(series);
            }
        }
    }
    Ok(all)
}

/// The reader finds samples by trial document; only these fields matter to it.
fn stub(trial: &FlowTrial) -> TrialDocument {
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
        trial: &FlowTrial,
        interval: &Interval,
        interfaces: &mut BTreeMap<(bool, String), InterfaceSeries>,
    ) {
        let (client, server) = (&interval.client, &interval.server);
        let seconds = middle_seconds(client).or_else(|| middle_seconds(server)).unwrap_or(0.0);
        self.goodput.push((seconds, interval.goodput_bps));
        let receiver = if trial.direction == Direction::Reverse { client } else { server };
        if trial.burst_flow_count > 0 {
            let first = trial.flow_count.saturating_sub(trial.burst_flow_count);
            let bytes: u64 =
                receiver.flows.iter().filter(|flow| flow.flow >= first).map(|flow| flow.received_bytes).sum();
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

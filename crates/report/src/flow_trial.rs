//! A flow trial, reduced to the numbers that figures and tables need.

use std::collections::BTreeMap;

use clearstream_schema::{
    flow::{Direction, FlowSummary, InterruptCore, ReceiveMethod},
    record::{TrialDocument, TrialOutcome},
};

use crate::shortfall::LineShare;

/// A flow trial, reduced.
#[derive(Debug, Clone)]
pub(crate) struct FlowTrial {
    pub(crate) trial: u32,
    pub(crate) repetition: u32,
    pub(crate) samples: Option<String>,
    pub(crate) steady: Option<bool>,
    pub(crate) complete: bool,
    pub(crate) goodput_bps: f64,
    pub(crate) flow_count: u32,
    pub(crate) burst_flow_count: u32,
    pub(crate) direction: Direction,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) min_rtt_ns: Option<u64>,
    pub(crate) retransmit_count: Option<u64>,
    pub(crate) client_cpu_seconds_per_gb: f64,
    pub(crate) server_cpu_seconds_per_gb: f64,
    pub(crate) interrupt_core: Option<InterruptCore>,
    pub(crate) sender_core: Option<u32>,
    pub(crate) receiver_core: Option<u32>,
    pub(crate) discard: bool,
    /// What ran beside the flows, where the workload has something.
    pub(crate) application: Option<Application>,
    /// Counters of the lab's delay lines in this trial.
    pub(crate) line: Option<LineShare>,
}

/// An application beside the flows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Application {
    /// Explorations that ended during the flows.
    pub(crate) explorations: f64,
    /// Messages of the fastest of these.
    pub(crate) rate_bps: Option<f64>,
}

impl Application {
    fn of(document: &TrialDocument) -> Option<Self> {
        let TrialOutcome::Measured(outcome) = &document.outcome else { return None };
        let value = |name| outcome.metric(name).map(|metric| metric.value);
        Some(Self { explorations: value("explorations")?, rate_bps: value("application-rate") })
    }
}

impl FlowTrial {
    pub(crate) fn of(document: &TrialDocument, summary: &FlowSummary) -> Self {
        let requested = &summary.requested;
        let first = |cores: &Option<clearstream_schema::CoreList>| {
            cores.as_ref().and_then(|list| list.0.first().copied())
        };
        let seen = summary.seen_cores.first();
        Self {
            trial: document.trial,
            repetition: document.repetition,
            samples: document.samples.clone(),
            steady: document.steady,
            complete: summary.complete,
            goodput_bps: summary.goodput_bps,
            flow_count: requested.flows,
            burst_flow_count: requested.burst_flows,
            direction: requested.direction,
            window_bytes: requested.window.or(requested.receive_buffer).map(|bytes| bytes.0),
            min_rtt_ns: summary.min_rtt_ns,
            retransmit_count: summary.retransmit_count,
            client_cpu_seconds_per_gb: summary.client_cpu_seconds_per_gb,
            server_cpu_seconds_per_gb: summary.server_cpu_seconds_per_gb,
            interrupt_core: summary.interrupt_core.clone(),
            sender_core: first(&requested.sender_cores).or(seen.and_then(|cores| cores.1)),
            receiver_core: first(&requested.receiver_cores).or(seen.and_then(|cores| cores.2)),
            discard: requested.receive == ReceiveMethod::Discard,
            application: Application::of(document),
            line: LineShare::of(&document.delay_lines),
        }
    }
}

/// The interrupt core that most trials name, how many do, and how many name any.
pub(crate) fn most_named<'a>(trials: impl Iterator<Item = &'a FlowTrial>) -> Option<(u32, usize, usize)> {
    let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
    for found in trials.filter_map(|trial| trial.interrupt_core.as_ref()) {
        *votes.entry(found.core).or_default() += 1;
    }
    let total = votes.values().sum();
    let (core, count) = votes.into_iter().max_by_key(|(core, count)| (*count, u32::MAX - core))?;
    Some((core, count, total))
}

//! A record, read once: of every trial only the numbers that figures and
//! tables need are kept, so that thousands of trials fit into little memory.

use core::net::IpAddr;
use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_schema::{
    flow::{Direction, FLOW_SUMMARY_SCHEMA, FlowSummary, InterruptCore, ReceiveMethod},
    gateways::{GATEWAYS_SCHEMA, GatewaySummary},
    host::HostReport,
    lab::{DELAY_LINE_LIMIT_NOTICE, DelayLineStats},
    outcome::{self, Metric, Outcome},
    probe::{PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::{RunDocument, TrialDocument, TrialOutcome},
    study::{Experiment, Figure, WorkloadOptions},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Diagnose, ReportError,
    estimate::Estimate,
    link,
    notices::Notices,
    series::{self, Series},
    settings::Settings,
    shortfall::{LineShare, Shortfall},
};

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
    /// What the lab's delay lines did to it.
    pub(crate) line: Option<LineShare>,
}

/// A trial with gateways.
#[derive(Debug)]
pub(crate) struct GatewayTrial {
    pub(crate) cell: u32,
    pub(crate) factors: BTreeMap<String, Value>,
    pub(crate) summary: GatewaySummary,
}

/// A trial of a workload that is known by its metrics only.
#[derive(Debug)]
pub(crate) struct MeasuredTrial {
    pub(crate) cell: u32,
    pub(crate) factors: BTreeMap<String, Value>,
    pub(crate) complete: bool,
    pub(crate) metrics: Vec<Metric>,
    /// The drawn metric over time or size.
    pub(crate) series: Option<outcome::Series>,
}

/// Trials with the same levels.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) number: u32,
    pub(crate) factors: BTreeMap<String, Value>,
    pub(crate) trials: Vec<FlowTrial>,
}

/// One experiment's share of the record.
#[derive(Debug)]
pub(crate) struct ExperimentDigest {
    pub(crate) spec: Experiment,
    /// Ascending by number.
    pub(crate) cells: Vec<Cell>,
    pub(crate) probes: Vec<(u32, ProbeSummary)>,
    pub(crate) gateways: Vec<GatewayTrial>,
    pub(crate) measured: Vec<MeasuredTrial>,
    pub(crate) series: Vec<Series>,
    /// Address that the first flow connected to.
    pub(crate) server_address: Option<IpAddr>,
    /// A plateau below what window and link allow.
    pub(crate) shortfall: Option<Shortfall>,
}

/// A trial that could not be run.
#[derive(Debug, Clone)]
pub(crate) struct FailedTrial {
    pub(crate) trial: u32,
    pub(crate) experiment: String,
    pub(crate) factors: BTreeMap<String, Value>,
    pub(crate) message: String,
}

/// What the lab's delay lines did, over all trials.
#[derive(Debug, Clone, Default)]
pub(crate) struct DelayLines {
    pub(crate) passed_count: u64,
    pub(crate) lost_count: u64,
    pub(crate) overflow_count: u64,
    /// Trials in which a delay line, not the path, was the limit.
    pub(crate) limited_trial_count: usize,
    pub(crate) late_p50_ns: Vec<f64>,
    pub(crate) late_p99_ns: u64,
    pub(crate) late_max_ns: u64,
}

/// A record, reduced to what the report shows.
#[derive(Debug)]
pub(crate) struct Digest {
    pub(crate) run: RunDocument,
    /// The host that connects.
    pub(crate) client: HostReport,
    /// The host that listens.
    pub(crate) server: HostReport,
    pub(crate) experiments: Vec<ExperimentDigest>,
    pub(crate) failures: Vec<FailedTrial>,
    pub(crate) notices: Notices,
    pub(crate) settings: Settings,
    pub(crate) delay_lines: Option<DelayLines>,
    pub(crate) trial_count: usize,
    /// Both ends named the same run of a kernel; absent when a side did not tell.
    pub(crate) same_kernel: Option<bool>,
}

impl Cell {
    /// Median goodput of the trials that count, with its interval.
    pub(crate) fn goodput(&self) -> Option<Estimate> {
        Estimate::of(&self.values())
    }

    /// Goodput of each complete trial; of all of them when none is complete.
    pub(crate) fn values(&self) -> Vec<f64> {
        let complete: Vec<f64> =
            self.trials.iter().filter(|trial| trial.complete).map(|trial| trial.goodput_bps).collect();
        if complete.is_empty() {
            self.trials.iter().map(|trial| trial.goodput_bps).collect()
        } else {
            complete
        }
    }

    /// Goodput of each complete trial by its repetition: what pairs are made of.
    pub(crate) fn by_repetition(&self) -> BTreeMap<u32, f64> {
        let complete = self.trials.iter().filter(|trial| trial.complete);
        complete.map(|trial| (trial.repetition, trial.goodput_bps)).collect()
    }

    /// The trial whose goodput is nearest to the median.
    pub(crate) fn typical(&self) -> Option<&FlowTrial> {
        let median = self.goodput()?.median;
        let distance = |trial: &FlowTrial| (trial.goodput_bps - median).abs();
        self.trials.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }

    /// Levels in words; `flows` first, experiment-wide single levels left out by the caller.
    pub(crate) fn label(&self, factors: &[String]) -> String {
        let mut parts: Vec<String> = factors
            .iter()
            .filter_map(|name| self.factors.get(name).map(|value| crate::format::level_of(name, value)))
            .collect();
        if parts.is_empty() {
            parts.push("all trials".to_owned());
        }
        if self.trials.iter().any(|trial| trial.discard) {
            parts.push("discard".to_owned());
        }
        parts.join(", ")
    }
}

impl ExperimentDigest {
    fn new(spec: Experiment) -> Self {
        Self {
            spec,
            cells: Vec::new(),
            probes: Vec::new(),
            gateways: Vec::new(),
            measured: Vec::new(),
            series: Vec::new(),
            server_address: None,
            shortfall: None,
        }
    }

    /// Every flow trial.
    pub(crate) fn trials(&self) -> impl Iterator<Item = &FlowTrial> {
        self.cells.iter().flat_map(|cell| &cell.trials)
    }

    /// Factors that take more than one level here, `flows` first, so that labels say only what differs.
    pub(crate) fn varying_factors(&self) -> Vec<String> {
        let mut levels: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
        for cell in &self.cells {
            for (name, value) in &cell.factors {
                let seen = levels.entry(name).or_default();
                if !seen.contains(&value) {
                    seen.push(value);
                }
            }
        }
        let mut names: Vec<String> =
            levels.into_iter().filter(|(_, seen)| seen.len() > 1).map(|(name, _)| name.clone()).collect();
        names.sort_by_key(|name| (name != "flows", name.clone()));
        if names.is_empty()
            && let Some(cell) = self.cells.first()
        {
            names = cell.factors.keys().cloned().collect();
        }
        names
    }

    /// The core that most trials name as the one that took the receiver's packets.
    pub(crate) fn interrupt_core(&self) -> Option<u32> {
        most_named(self.trials()).map(|found| found.0)
    }

    /// Which way the data of most trials went.
    pub(crate) fn direction(&self) -> Direction {
        self.trials().next().map_or(Direction::Forward, |trial| trial.direction)
    }
}

impl Digest {
    /// Reads a record; `diagnose` explains a trial that needs it.
    pub(crate) fn read(reader: &Reader, diagnose: Option<&Diagnose<'_>>) -> Result<Self, ReportError> {
        let run = reader.run().clone();
        let host = |role| run.host(role).cloned().unwrap_or_default();
        let mut digest = Self {
            client: host("client"),
            server: host("server"),
            experiments: run.study.experiments.iter().cloned().map(ExperimentDigest::new).collect(),
            failures: Vec::new(),
            notices: Notices::default(),
            settings: Settings::default(),
            delay_lines: None,
            trial_count: 0,
            same_kernel: None,
            run,
        };
        for notice in digest.run.notices.clone() {
            digest.notices.add(&notice.id, &notice.message, "whole run", None);
        }
        for trial in reader.trials()? {
            digest.add(trial?)?;
        }
        for experiment in &mut digest.experiments {
            experiment.cells.sort_by_key(|cell| cell.number);
            experiment.series = series::read(experiment, reader)?;
        }
        digest.settings.name_all(digest.experiments.iter().filter(|e| !e.cells.is_empty()).count());
        for index in 0..digest.experiments.len() {
            let found = Shortfall::of(&digest, &digest.experiments[index], reader, diagnose)?;
            digest.experiments[index].shortfall = found;
        }
        Ok(digest)
    }

    /// The host that receives in an experiment, and its name for people.
    pub(crate) fn receiver(&self, direction: Direction) -> &HostReport {
        if direction == Direction::Reverse { &self.client } else { &self.server }
    }

    /// The host that sends.
    pub(crate) fn sender(&self, direction: Direction) -> &HostReport {
        if direction == Direction::Reverse { &self.server } else { &self.client }
    }

    /// Both ends run on the same cores, as in a lab: their core numbers mean the same.
    pub(crate) fn one_machine(&self) -> bool {
        let (client, server) = (&self.client, &self.server);
        if let Some(same) = self.same_kernel {
            return same;
        }
        (self.run.lab.is_some() || client.name == server.name)
            && client.cpu_model == server.cpu_model
            && client.processing_units == server.processing_units
    }

    /// The first experiment drawn as `figure` with flow trials in it.
    pub(crate) fn drawn_as(&self, figure: Figure) -> Option<&ExperimentDigest> {
        self.experiments.iter().find(|e| e.spec.figure == figure && !e.cells.is_empty())
    }

    fn experiment(&mut self, name: &str) -> &mut ExperimentDigest {
        let index = match self.experiments.iter().position(|e| e.spec.name == name) {
            Some(index) => index,
            None => {
                self.experiments.push(ExperimentDigest::new(unknown_experiment(name)));
                self.experiments.len() - 1
            }
        };
        &mut self.experiments[index]
    }

    fn add(&mut self, trial: TrialDocument) -> Result<(), ReportError> {
        self.trial_count += 1;
        for stats in &trial.delay_lines {
            self.delay_lines.get_or_insert_default().add(stats);
        }
        if trial.delay_lines.iter().any(|stats| stats.relay_limited) {
            self.delay_lines.get_or_insert_default().limited_trial_count += 1;
        }
        let outcome = match &trial.outcome {
            TrialOutcome::Measured(outcome) => outcome,
            TrialOutcome::Failed(failure) => {
                self.failures.push(FailedTrial {
                    trial: trial.trial,
                    message: failure.message.clone(),
                    experiment: trial.experiment,
                    factors: trial.factors,
                });
                return Ok(());
            }
        };
        for notice in &outcome.notices {
            // Its figures differ from trial to trial; the trials are counted instead.
            if notice.id != DELAY_LINE_LIMIT_NOTICE {
                self.notices.add(&notice.id, &notice.message, &trial.experiment, Some(trial.trial));
            }
        }
        if let Some(summary) = detail::<FlowSummary>(outcome, FLOW_SUMMARY_SCHEMA, trial.trial)? {
            self.add_flow(&trial, &summary);
        } else if let Some(summary) = detail::<ProbeSummary>(outcome, PROBE_SUMMARY_SCHEMA, trial.trial)? {
            self.experiment(&trial.experiment).probes.push((trial.trial, summary));
        } else if let Some(summary) = detail::<GatewaySummary>(outcome, GATEWAYS_SCHEMA, trial.trial)? {
            let reduced = GatewayTrial { cell: trial.cell, factors: trial.factors, summary };
            self.experiment(&trial.experiment).gateways.push(reduced);
        } else if !outcome.metrics.is_empty() {
            let experiment = self.experiment(&trial.experiment);
            let named = experiment.spec.metric.as_deref();
            let drawn = named.or(outcome.headline().map(|metric| metric.name.as_str()));
            experiment.measured.push(MeasuredTrial {
                cell: trial.cell,
                complete: outcome.complete,
                metrics: outcome.metrics.clone(),
                series: outcome.series.iter().find(|series| Some(series.name.as_str()) == drawn).cloned(),
                factors: trial.factors,
            });
        } else {
            self.experiment(&trial.experiment);
        }
        Ok(())
    }

    fn add_flow(&mut self, trial: &TrialDocument, summary: &FlowSummary) {
        let reduced = FlowTrial::of(trial, summary);
        let ids = (&summary.client_settings.boot_id, &summary.server_settings.boot_id);
        if let (Some(client), Some(server)) = ids {
            self.same_kernel = Some(client == server);
        }
        self.settings.add(&trial.experiment, summary);
        let experiment = self.experiment(&trial.experiment);
        let remote = summary.client_settings.flows.first().and_then(|flow| link::address(&flow.remote));
        experiment.server_address = experiment.server_address.or(remote);
        match experiment.cells.iter_mut().find(|cell| cell.number == trial.cell) {
            Some(cell) => cell.trials.push(reduced),
            None => experiment.cells.push(Cell {
                number: trial.cell,
                factors: trial.factors.clone(),
                trials: vec![reduced],
            }),
        }
    }
}

/// A workload's own document, when the outcome has one of this format.
fn detail<T: DeserializeOwned>(
    outcome: &Outcome,
    schema: &'static str,
    trial: u32,
) -> Result<Option<T>, ReportError> {
    let read = outcome.detail(schema).transpose();
    read.map_err(|source| ReportError::Detail { trial, schema, source })
}

impl DelayLines {
    fn add(&mut self, stats: &DelayLineStats) {
        self.passed_count += stats.passed_count;
        self.lost_count += stats.lost_count;
        self.overflow_count += stats.overflow_count;
        self.late_p50_ns.push(stats.late_p50_ns as f64);
        self.late_p99_ns = self.late_p99_ns.max(stats.late_p99_ns);
        self.late_max_ns = self.late_max_ns.max(stats.late_max_ns);
    }
}

impl FlowTrial {
    fn of(document: &TrialDocument, summary: &FlowSummary) -> Self {
        let asked = &summary.requested;
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
            flow_count: asked.flows,
            burst_flow_count: asked.burst_flows,
            direction: asked.direction,
            window_bytes: asked.window.or(asked.receive_buffer).map(|bytes| bytes.0),
            min_rtt_ns: summary.min_rtt_ns,
            retransmit_count: summary.retransmit_count,
            client_cpu_seconds_per_gb: summary.client_cpu_seconds_per_gb,
            server_cpu_seconds_per_gb: summary.server_cpu_seconds_per_gb,
            interrupt_core: summary.interrupt_core.clone(),
            sender_core: first(&asked.sender_cores).or(seen.and_then(|cores| cores.1)),
            receiver_core: first(&asked.receiver_cores).or(seen.and_then(|cores| cores.2)),
            discard: asked.receive == ReceiveMethod::Discard,
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

/// An experiment that trials name and the study does not: shown, not dropped.
fn unknown_experiment(name: &str) -> Experiment {
    Experiment {
        name: name.to_owned(),
        title: format!("{name} (not in the study file)"),
        workload: String::new(),
        figure: Figure::Throughput,
        metric: None,
        options: WorkloadOptions::default(),
        lab: None,
        factors: BTreeMap::new(),
        repetitions: 1,
        precision_ratio: None,
        quick: None,
        full: None,
        published: Vec::new(),
    }
}

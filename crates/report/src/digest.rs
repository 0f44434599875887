//! A record, read once: of every trial only the numbers that figures and
//! tables need are kept, so that thousands of trials fit into little memory.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use clearstream_record::Reader;
use clearstream_schema::{
    all_pairs::{ALL_PAIRS_SCHEMA, AllPairsSummary},
    flow::{Direction, FLOW_SUMMARY_SCHEMA, FlowSummary, ReceiveMethod},
    gateways::{GATEWAYS_SCHEMA, GatewaySummary},
    host::HostReport,
    lab::DELAY_LINE_LIMIT_NOTICE,
    outcome::Outcome,
    probe::{PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::{RunDocument, TrialDocument, TrialOutcome},
    semantics::{STORAGE_SEMANTICS_SCHEMA, StorageSemantics},
    study::{Experiment, Figure, WorkloadOptions},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Diagnose, ReportError,
    delay_lines::DelayLines,
    document::section_id,
    estimate::Estimate,
    figure::identifier,
    figures::{Palette, gateways, throughput, window::path_interfaces},
    flow_trial::{FlowTrial, most_named},
    link,
    measured::{Factors, Measured, MetricName, TrialFacts},
    notices::Notices,
    series::{self, Series},
    settings::ExperimentSettings,
    shortfall::Shortfall,
    storage::StorageFacts,
};

/// A trial with gateways.
#[derive(Debug)]
pub(crate) struct GatewayTrial {
    pub(crate) cell: u32,
    pub(crate) factors: Factors,
    pub(crate) summary: GatewaySummary,
}

/// A trial over all pairs of hosts.
#[derive(Debug)]
pub(crate) struct PairsTrial {
    pub(crate) cell: u32,
    pub(crate) factors: Factors,
    pub(crate) summary: AllPairsSummary,
}

/// A trial of file semantics.
#[derive(Debug)]
pub(crate) struct SemanticsTrial {
    pub(crate) cell: u32,
    pub(crate) factors: Factors,
    pub(crate) found: StorageSemantics,
}

/// Trials with the same levels.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) number: u32,
    pub(crate) factors: Factors,
    pub(crate) trials: Vec<FlowTrial>,
}

/// One experiment of the record.
#[derive(Debug)]
pub(crate) struct ExperimentDigest {
    pub(crate) spec: Experiment,
    /// Ascending by number.
    pub(crate) cells: Vec<Cell>,
    pub(crate) probes: Vec<(u32, ProbeSummary)>,
    pub(crate) gateways: Vec<GatewayTrial>,
    pub(crate) pairs: Vec<PairsTrial>,
    pub(crate) semantics: Vec<SemanticsTrial>,
    /// Every measured trial by its metrics, also those of the parts above.
    pub(crate) measured: Measured,
    /// Hosts whose calls were measured, of workloads that measure storage.
    pub(crate) clients: BTreeSet<String>,
    /// Requested and effective, of all its trials.
    pub(crate) settings: ExperimentSettings,
    /// Options that all cells have, as the lab and the mode of the run left them.
    pub(crate) fixed: BTreeMap<String, Value>,
    /// A curve may need the metrics over a size or time of single trials.
    keeps_series: bool,
    pub(crate) series: Vec<Series>,
    /// Address that the first flow connected to.
    pub(crate) server_address: Option<IpAddr>,
    /// Interfaces that carried the data of a window curve: the client's, the server's.
    pub(crate) path_interfaces: [Option<String>; 2],
    /// Colours of labels, those of the whole page.
    pub(crate) palette: Palette,
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

/// A record, reduced to what the report shows.
#[derive(Debug)]
pub(crate) struct Digest {
    pub(crate) run: RunDocument,
    /// Used where the record describes no host.
    unknown_host: HostReport,
    pub(crate) experiments: Vec<ExperimentDigest>,
    pub(crate) failures: Vec<FailedTrial>,
    pub(crate) notices: Notices,
    pub(crate) delay_lines: Option<DelayLines>,
    pub(crate) trial_count: usize,
    /// Both ends named the same run of a kernel; absent when a side did not report it.
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

    /// Goodput of each complete trial by its repetition: input of paired comparisons.
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

    /// Levels as text; `flows` first, experiment-wide single levels left out by the caller.
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
    fn new(spec: Experiment, run: &RunDocument) -> Self {
        let is_curve = |one: &Experiment| matches!(one.figure(), Figure::Curve | Figure::Overhead);
        let beside = |other: &Experiment| other.beside.as_ref() == Some(&spec.name) && is_curve(other);
        let mut fixed = run.study.options.of(&spec.workload);
        fixed.extend(spec.options.of(&spec.workload));
        for variant in spec.variants(run.lab.is_some(), &run.mode) {
            fixed.extend(variant.options.of(&spec.workload));
        }
        Self {
            keeps_series: is_curve(&spec) || run.study.experiments.iter().any(beside),
            fixed,
            settings: ExperimentSettings::default(),
            spec,
            cells: Vec::new(),
            probes: Vec::new(),
            gateways: Vec::new(),
            pairs: Vec::new(),
            semantics: Vec::new(),
            measured: Measured::default(),
            clients: BTreeSet::new(),
            series: Vec::new(),
            server_address: None,
            path_interfaces: [None, None],
            palette: Palette::default(),
            shortfall: None,
        }
    }

    /// The study names a kind of figure that any metric has, none of its workload's own.
    pub(crate) fn is_drawn_by_metric(&self) -> bool {
        matches!(
            self.spec.figure(),
            Figure::Curve | Figure::Overhead | Figure::Bars | Figure::Matrix | Figure::Table
        )
    }

    /// The metrics that the study names, the headline where it names none; those that trials have.
    pub(crate) fn drawn_metrics(&self) -> Vec<&MetricName> {
        match self.spec.metrics() {
            [] => self.measured.metric(None).into_iter().collect(),
            names => names.iter().filter_map(|name| self.measured.metric(Some(name))).collect(),
        }
    }

    /// Section that has the workload's own figure of this name; its section, where
    /// that figure is not drawn.
    pub(crate) fn anchor(&self, own_figure: &str) -> String {
        let figure = identifier(&[&self.spec.name, own_figure]);
        if self.is_drawn_by_metric() { section_id(self) } else { figure }
    }

    /// Every flow trial.
    pub(crate) fn trials(&self) -> impl Iterator<Item = &FlowTrial> {
        self.cells.iter().flat_map(|cell| &cell.trials)
    }

    /// Factors that take more than one level here, `flows` first, so that labels name only what differs.
    pub(crate) fn varying_factors(&self) -> Vec<String> {
        let mut levels: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
        for cell in &self.cells {
            for (name, value) in cell.factors.iter() {
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

    /// Direction of the data in most trials.
    pub(crate) fn direction(&self) -> Direction {
        self.trials().next().map_or(Direction::Forward, |trial| trial.direction)
    }
}

impl Digest {
    /// Reads a record; `diagnose` explains a trial that needs it.
    pub(crate) fn read(reader: &Reader, diagnose: Option<&Diagnose<'_>>) -> Result<Self, ReportError> {
        let run = reader.run().clone();
        let experiments = run.study.experiments.iter().cloned();
        let mut digest = Self {
            unknown_host: HostReport::default(),
            experiments: experiments.map(|spec| ExperimentDigest::new(spec, &run)).collect(),
            failures: Vec::new(),
            notices: Notices::default(),
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
            if experiment.spec.figure() == Figure::WindowCurve {
                experiment.path_interfaces = path_interfaces(experiment, reader)?;
            }
        }
        let mut palette = Palette::default();
        for experiment in &digest.experiments {
            palette.add(&throughput::labels(experiment));
            let groups = gateways::groups(experiment);
            palette.add(&groups.iter().map(gateways::Group::label).collect::<Vec<String>>());
        }
        digest.experiments.iter_mut().for_each(|experiment| experiment.palette = palette.clone());
        for index in 0..digest.experiments.len() {
            let found = Shortfall::of(&digest, &digest.experiments[index], reader, diagnose)?;
            digest.experiments[index].shortfall = found;
        }
        Ok(digest)
    }

    /// The host that connects: the first client, else the first host.
    pub(crate) fn client(&self) -> &HostReport {
        let first = self.run.hosts.first().map(|host| &host.report);
        self.run.host("client").or(first).unwrap_or(&self.unknown_host)
    }

    /// The host that listens: the first server, else the last host.
    pub(crate) fn server(&self) -> &HostReport {
        let last = self.run.hosts.last().map(|host| &host.report);
        self.run.host("server").or(last).unwrap_or(&self.unknown_host)
    }

    /// The host that receives in an experiment between client and server.
    pub(crate) fn receiver(&self, direction: Direction) -> &HostReport {
        if direction == Direction::Reverse { self.client() } else { self.server() }
    }

    /// The host that sends.
    pub(crate) fn sender(&self, direction: Direction) -> &HostReport {
        if direction == Direction::Reverse { self.server() } else { self.client() }
    }

    /// Client and server run on the same cores, as in a lab: their core numbers mean the same.
    pub(crate) fn one_machine(&self) -> bool {
        self.on_same_machine(self.client(), self.server())
    }

    /// Whether two hosts of the record run on the same cores.
    pub(crate) fn on_same_machine(&self, one: &HostReport, other: &HostReport) -> bool {
        let ends = [self.client(), self.server()];
        let is_end = |host: &HostReport| ends.iter().any(|end| std::ptr::eq(*end, host));
        if let Some(same) = self.same_kernel.filter(|_| is_end(one) && is_end(other)) {
            return same || std::ptr::eq(one, other);
        }
        (self.run.lab.is_some() || one.name == other.name)
            && one.cpu_model == other.cpu_model
            && one.processing_units == other.processing_units
    }

    /// The first experiment drawn as `figure` with flow trials in it.
    pub(crate) fn drawn_as(&self, figure: Figure) -> Option<&ExperimentDigest> {
        self.experiments.iter().find(|e| e.spec.figure() == figure && !e.cells.is_empty())
    }

    fn experiment(&mut self, name: &str) -> &mut ExperimentDigest {
        let index = match self.experiments.iter().position(|e| e.spec.name == name) {
            Some(index) => index,
            None => {
                self.experiments.push(ExperimentDigest::new(unknown_experiment(name), &self.run));
                self.experiments.len() - 1
            }
        };
        &mut self.experiments[index]
    }

    fn add(&mut self, mut trial: TrialDocument) -> Result<(), ReportError> {
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
        let factors = Factors::new(std::mem::take(&mut trial.factors));
        let mut discard = false;
        if let Some(summary) = detail::<FlowSummary>(outcome, FLOW_SUMMARY_SCHEMA, trial.trial)? {
            discard = summary.requested.receive == ReceiveMethod::Discard;
            self.add_flow(&trial, &factors, &summary);
        } else if let Some(summary) = detail::<ProbeSummary>(outcome, PROBE_SUMMARY_SCHEMA, trial.trial)? {
            self.experiment(&trial.experiment).probes.push((trial.trial, summary));
        } else if let Some(summary) = detail::<GatewaySummary>(outcome, GATEWAYS_SCHEMA, trial.trial)? {
            let reduced = GatewayTrial { cell: trial.cell, factors: Factors::clone(&factors), summary };
            self.experiment(&trial.experiment).gateways.push(reduced);
        } else if let Some(summary) = detail::<AllPairsSummary>(outcome, ALL_PAIRS_SCHEMA, trial.trial)? {
            let reduced = PairsTrial { cell: trial.cell, factors: Factors::clone(&factors), summary };
            self.experiment(&trial.experiment).pairs.push(reduced);
        } else if let Some(found) =
            detail::<StorageSemantics>(outcome, STORAGE_SEMANTICS_SCHEMA, trial.trial)?
        {
            let reduced = SemanticsTrial { cell: trial.cell, factors: Factors::clone(&factors), found };
            self.experiment(&trial.experiment).semantics.push(reduced);
        }
        let storage = StorageFacts::of(outcome, trial.trial)?;
        let storage = storage.unwrap_or_default();
        let unnamed = self.client().name.clone();
        let experiment = self.experiment(&trial.experiment);
        experiment
            .clients
            .extend(storage.clients.into_iter().map(|name| name.unwrap_or_else(|| unnamed.clone())));
        experiment.settings.add(&outcome.settings);
        let facts = TrialFacts {
            repetition: trial.repetition,
            discard,
            cached: storage.cached,
            keep_series: experiment.keeps_series,
        };
        experiment.measured.add((trial.cell, &factors), outcome, facts);
        Ok(())
    }

    fn add_flow(&mut self, trial: &TrialDocument, factors: &Factors, summary: &FlowSummary) {
        let reduced = FlowTrial::of(trial, summary);
        let ids = (&summary.client_settings.boot_id, &summary.server_settings.boot_id);
        if let (Some(client), Some(server)) = ids {
            self.same_kernel = Some(client == server);
        }
        let experiment = self.experiment(&trial.experiment);
        let remote = summary.client_settings.flows.first().and_then(|flow| link::address(&flow.remote));
        experiment.server_address = experiment.server_address.or(remote);
        match experiment.cells.iter_mut().find(|cell| cell.number == trial.cell) {
            Some(cell) => cell.trials.push(reduced),
            None => experiment.cells.push(Cell {
                number: trial.cell,
                factors: Factors::clone(factors),
                trials: vec![reduced],
            }),
        }
    }
}

/// A workload's own document, when the outcome has one of this format.
pub(crate) fn detail<T: DeserializeOwned>(
    outcome: &Outcome,
    schema: &'static str,
    trial: u32,
) -> Result<Option<T>, ReportError> {
    let read = outcome.detail(schema).transpose();
    read.map_err(|source| ReportError::Detail { trial, schema, source })
}

/// An experiment that trials name and the study does not: shown, not dropped.
fn unknown_experiment(name: &str) -> Experiment {
    Experiment {
        name: name.to_owned(),
        title: format!("{name} (not in the study file)"),
        workload: String::new(),
        figure: Some(Figure::Throughput),
        metric: None,
        beside: None,
        options: WorkloadOptions::default(),
        lab: None,
        factors: BTreeMap::new(),
        repetitions: 1,
        precision_ratio: None,
        quick: None,
        full: None,
        published: Vec::new(),
        published_table: Vec::new(),
        relation: None,
    }
}

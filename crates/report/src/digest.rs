//! A record, read once: of every trial only the numbers that figures and
//! tables need are kept, so that thousands of trials fit into little memory.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use clearstream_record::Reader;
use clearstream_schema::{
    all_pairs::{ALL_PAIRS_SCHEMA, AllPairsSummary},
    gateways::{GATEWAYS_SCHEMA, GatewaySummary},
    host::HostReport,
    lab::DELAY_LINE_LIMIT_NOTICE,
    outcome::Outcome,
    probe::{PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::{RunDocument, TrialDocument, TrialOutcome},
    semantics::{STORAGE_SEMANTICS_SCHEMA, StorageSemantics},
    study::{Experiment, Figure, WorkloadOptions},
};
use serde_json::Value;

use crate::{
    cell_settings::most_named,
    delay_lines::{DelayLines, LineShare},
    error::{ReportError, detail},
    figure::identifier,
    measured::{CellMetric, Factors, Measured, MeasuredTrial, MetricName, TrialFacts},
    notices::Notices,
    series::{self, Series},
    settings::ExperimentSettings,
    storage::StorageFacts,
};

/// Metric of figures of bulk data: throughput, window curve, live traffic, cores.
const GOODPUT: &str = "goodput";

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

/// One experiment of the record.
#[derive(Debug)]
pub(crate) struct ExperimentDigest {
    pub(crate) spec: Experiment,
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
    /// Interfaces that carried the data of a window curve: the client's, the server's.
    pub(crate) path_interfaces: [Option<String>; 2],
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
            probes: Vec::new(),
            gateways: Vec::new(),
            pairs: Vec::new(),
            semantics: Vec::new(),
            measured: Measured::default(),
            clients: BTreeSet::new(),
            series: Vec::new(),
            path_interfaces: [None, None],
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
        if self.is_drawn_by_metric() { self.section_id() } else { figure }
    }

    /// Identifier of its section in the page.
    pub(crate) fn section_id(&self) -> String {
        identifier(&[&self.spec.name]).replacen("figure", "section", 1)
    }

    /// Its cells by goodput; none where its workload measures something else.
    pub(crate) fn cells(&self) -> Vec<CellMetric<'_>> {
        self.measured.of_metric(GOODPUT)
    }

    /// Every measured trial.
    pub(crate) fn trials(&self) -> impl Iterator<Item = &MeasuredTrial> {
        self.measured.cells().flat_map(|cell| &cell.trials)
    }

    /// Address that the first trial connected to.
    pub(crate) fn server_address(&self) -> Option<IpAddr> {
        self.measured.cells().find_map(|cell| cell.settings.address("destination-address"))
    }

    /// Factors that take more than one level here, `flows` first, so that labels name only what differs.
    pub(crate) fn varying_factors(&self) -> Vec<String> {
        let mut levels: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
        for cell in self.measured.cells() {
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
            && let Some(cell) = self.measured.cells().next()
        {
            names = cell.factors.keys().cloned().collect();
        }
        names
    }

    /// The core that most trials name as the one that took the receiver's packets.
    pub(crate) fn interrupt_core(&self) -> Option<u32> {
        most_named(self.measured.cells().map(|cell| &cell.settings)).map(|found| found.0)
    }

    /// Data goes from the server to the client alone.
    pub(crate) fn is_reverse(&self) -> bool {
        self.measured.cells().next().is_some_and(|cell| cell.settings.is_reverse())
    }
}

impl Digest {
    /// Reads a record.
    ///
    /// # Errors
    /// When a file of it cannot be read, or a trial's document is not of its format.
    pub(crate) fn read(reader: &Reader) -> Result<Self, ReportError> {
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
            let cells = experiment.measured.of_metric(GOODPUT);
            match experiment.spec.figure() {
                Figure::Throughput | Figure::LiveTraffic => experiment.series = series::read(&cells, reader)?,
                Figure::WindowCurve => {
                    experiment.path_interfaces = series::path_interfaces(&cells, reader)?;
                }
                _ => {}
            }
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
    pub(crate) fn receiver(&self, is_reverse: bool) -> &HostReport {
        if is_reverse { self.client() } else { self.server() }
    }

    /// The host that sends.
    pub(crate) fn sender(&self, is_reverse: bool) -> &HostReport {
        self.receiver(!is_reverse)
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

    /// The first experiment drawn as `figure` with a goodput in it.
    pub(crate) fn drawn_as(&self, figure: Figure) -> Option<&ExperimentDigest> {
        self.experiments.iter().find(|e| e.spec.figure() == figure && !e.cells().is_empty())
    }

    /// The hosts whose calls were measured, where every experiment with a trial is of storage: nothing in such
    /// a report is of a path between two hosts.
    pub(crate) fn storage_clients(&self) -> Option<BTreeSet<&String>> {
        let mut measured = self.experiments.iter().filter(|one| !one.measured.is_empty()).peekable();
        measured.peek()?;
        let all: Option<Vec<_>> =
            measured.map(|one| Some(&one.clients).filter(|clients| !clients.is_empty())).collect();
        Some(all?.into_iter().flatten().collect())
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
        let same = outcome.settings.iter().find(|setting| setting.name == "same-kernel");
        let same = same.and_then(|setting| setting.effective.as_ref()?.as_bool());
        self.same_kernel = same.or(self.same_kernel);
        let factors = Factors::new(std::mem::take(&mut trial.factors));
        self.add_document(&trial, &factors, outcome)?;
        let storage = StorageFacts::of(outcome, trial.trial)?.unwrap_or_default();
        let unnamed = self.client().name.clone();
        let experiment = self.experiment(&trial.experiment);
        experiment
            .clients
            .extend(storage.clients.into_iter().map(|name| name.unwrap_or_else(|| unnamed.clone())));
        experiment.settings.add(&outcome.settings);
        let facts = TrialFacts {
            trial: trial.trial,
            repetition: trial.repetition,
            samples: trial.samples.clone(),
            steady: trial.steady,
            line: LineShare::of(&trial.delay_lines),
            cached: storage.cached,
            keep_series: experiment.keeps_series,
        };
        experiment.measured.add((trial.cell, &factors), outcome, facts);
        Ok(())
    }

    /// Keeps the document of a workload with a figure that metrics do not give.
    fn add_document(
        &mut self,
        trial: &TrialDocument,
        factors: &Factors,
        outcome: &Outcome,
    ) -> Result<(), ReportError> {
        let (number, cell, factors) = (trial.trial, trial.cell, Factors::clone(factors));
        let experiment = self.experiment(&trial.experiment);
        if let Some(summary) = detail::<ProbeSummary>(outcome, PROBE_SUMMARY_SCHEMA, number)? {
            experiment.probes.push((number, summary));
        } else if let Some(summary) = detail::<GatewaySummary>(outcome, GATEWAYS_SCHEMA, number)? {
            experiment.gateways.push(GatewayTrial { cell, factors, summary });
        } else if let Some(summary) = detail::<AllPairsSummary>(outcome, ALL_PAIRS_SCHEMA, number)? {
            experiment.pairs.push(PairsTrial { cell, factors, summary });
        } else if let Some(found) = detail::<StorageSemantics>(outcome, STORAGE_SEMANTICS_SCHEMA, number)? {
            experiment.semantics.push(SemanticsTrial { cell, factors, found });
        }
        Ok(())
    }
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

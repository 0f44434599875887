//! `--record`: a run folder whose trials are interfaces and hosts over time, so that a report draws them as any curve.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clearstream_record::{SampleWriter, Writer};
use clearstream_schema::{
    TimeSpan,
    host::HostReport,
    live::LiveSample,
    outcome::{Metric, MetricKind, Outcome, Series, Unit},
    record::{RECORD_VERSION, RUN_SCHEMA, RunDocument, RunHost, TRIAL_SCHEMA, TrialDocument, TrialOutcome},
    study::{Experiment, Figure, MetricNames, StudyFile},
};
use serde_json::json;

use super::sources::Sources;
use crate::{
    exit::CommandError,
    output::{Unwritten, live::Board},
};

const RATE: MetricKind = MetricKind::higher("rate", Unit::BitsPerSecond);
const BUSY: MetricKind = MetricKind::lower("busy-cores", Unit::Count);
/// Name of the study, and of the workload of its trials.
const NAME: &str = "live";

/// Ends of intervals in nanoseconds, with values.
type Points = Vec<(f64, f64)>;

/// A record that is being written.
pub(super) struct Record {
    writer: Writer,
    /// All samples, appended as they come: a killed command keeps them.
    samples: SampleWriter,
    started: String,
    /// By host.
    elapsed_ns: BTreeMap<String, u64>,
    /// Points over time by host, interface and direction.
    rates: BTreeMap<(String, String, &'static str), Points>,
    /// By host.
    busy: BTreeMap<String, Points>,
}

impl Record {
    /// Starts it in a folder that holds no record.
    pub(super) fn create(folder: &Path, sources: &Sources, interval: TimeSpan) -> Result<Self, CommandError> {
        let started = jiff::Timestamp::now().to_string();
        let host = |(name, report): (&String, &HostReport)| RunHost {
            name: name.clone(),
            role: name.clone(),
            report: report.clone(),
            capture: None,
        };
        let id =
            folder.file_name().map_or_else(|| NAME.to_owned(), |name| name.to_string_lossy().into_owned());
        let run = RunDocument {
            schema: RUN_SCHEMA.to_owned(),
            version: RECORD_VERSION,
            id,
            started: started.clone(),
            ended: None,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: "standard".to_owned(),
            seed: 0,
            study: study(interval),
            only: Vec::new(),
            budget: None,
            lab: None,
            hosts: sources.names().iter().zip(sources.reports()).map(host).collect(),
            planned_trial_count: 0,
            treatments: None,
            notices: Vec::new(),
        };
        let writer = Writer::create(folder, run)?;
        let samples = writer.samples(0)?;
        Ok(Self {
            writer,
            samples,
            started,
            elapsed_ns: BTreeMap::new(),
            rates: BTreeMap::new(),
            busy: BTreeMap::new(),
        })
    }

    /// Keeps a sample.
    pub(super) fn add(&mut self, sample: &LiveSample) -> Result<(), CommandError> {
        self.samples.write(&clearstream_schema::json::to_string(sample).map_err(Unwritten::from)?)?;
        let elapsed = self.elapsed_ns.entry(sample.host.clone()).or_default();
        *elapsed += sample.interval_ns;
        let (end, seconds) = (*elapsed as f64, sample.interval_ns as f64 / 1e9);
        for interface in &sample.counters.interfaces {
            for (direction, bytes) in [("in", interface.receive_bytes), ("out", interface.send_bytes)] {
                let key = (sample.host.clone(), interface.name.clone(), direction);
                self.rates.entry(key).or_default().push((end, bytes as f64 * 8.0 / seconds));
            }
        }
        let busy: u64 = sample
            .counters
            .cores
            .iter()
            .map(|core| core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns + core.steal_ns)
            .sum();
        self.busy
            .entry(sample.host.clone())
            .or_default()
            .push((end, busy as f64 / sample.interval_ns.max(1) as f64));
        Ok(())
    }

    /// Ends it, and returns its folder.
    pub(super) fn finish(mut self, board: &Board) -> Result<String, CommandError> {
        let samples = self.samples.finish()?;
        let mut number = 0;
        let mut trials = Vec::new();
        for ((host, interface, direction), points) in &self.rates {
            // Interfaces that carried nothing are in the samples.
            if points.iter().any(|(_, rate)| *rate > 0.0) {
                let factors = [("host", host.as_str()), ("interface", interface), ("direction", direction)];
                trials.push(("interfaces", factors.to_vec(), RATE, points));
            }
        }
        for (host, points) in &self.busy {
            trials.push(("cores", vec![("host", host.as_str())], BUSY, points));
        }
        let mut documents = Vec::new();
        for (experiment, factors, kind, points) in trials {
            let mean = points.iter().map(|(_, value)| value).sum::<f64>() / points.len().max(1) as f64;
            let metric: Metric = kind.of(mean);
            let series = Series::over_time(&metric, points);
            documents.push(TrialDocument {
                schema: TRIAL_SCHEMA.to_owned(),
                version: RECORD_VERSION,
                trial: number,
                experiment: experiment.to_owned(),
                workload: NAME.to_owned(),
                cell: number,
                repetition: 0,
                factors: factors.into_iter().map(|(name, level)| (name.to_owned(), json!(level))).collect(),
                started: self.started.clone(),
                steady: None,
                outcome: TrialOutcome::Measured(Box::new(Outcome {
                    series: vec![series],
                    ..Outcome::of([metric])
                })),
                samples: (number == 0).then(|| samples.clone()),
                delay_lines: Vec::new(),
            });
            number += 1;
        }
        for document in &documents {
            self.writer.trial(document)?;
        }
        for host in board.totals().iter().filter(|host| host.gap_count > 0) {
            self.writer.notice(clearstream_schema::notice::Notice {
                id: "samples-missing".to_owned(),
                message: format!("{}: {} intervals have no sample", host.host, host.gap_count),
            })?;
        }
        let folder: PathBuf = self.writer.finish(jiff::Timestamp::now().to_string())?;
        Ok(folder.display().to_string())
    }
}

/// The study that the record is of.
fn study(interval: TimeSpan) -> StudyFile {
    let experiment = |name: &str, title: &str, metric: MetricKind| Experiment {
        name: name.to_owned(),
        title: title.to_owned(),
        workload: NAME.to_owned(),
        figure: Some(Figure::Curve),
        metric: Some(MetricNames::One(metric.name.to_owned())),
        beside: None,
        factors: BTreeMap::new(),
        repetitions: 1,
        precision_ratio: None,
        lab: None,
        quick: None,
        full: None,
        published: Vec::new(),
        published_table: Vec::new(),
        relation: None,
        options: Default::default(),
    };
    StudyFile {
        schema: "clearstream.study".to_owned(),
        version: 1,
        name: NAME.to_owned(),
        title: "Live rates".to_owned(),
        about: format!("What the hosts did, by their counters, every {interval}."),
        experiments: vec![
            experiment("interfaces", "Rates of interfaces over time", RATE),
            experiment("cores", "Busy cores over time", BUSY),
        ],
        options: Default::default(),
    }
}

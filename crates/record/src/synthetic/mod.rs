//! A synthetic run of the `clearstream-40ge` study, written like a real one.
//!
//! The results follow the papers (one flow 20.7 to 23.3 Gb/s, knee of the window curve at 40.38 MB, readers
//! on the package of the interrupt core 2 Gb/s faster and on the core itself 1 Gb/s), so that consumers can
//! be checked against known content. Same shape and seed give the same bytes.

mod model;
mod sample;

use std::{collections::BTreeMap, path::Path};

use clearstream_schema::{
    control::{Failure, FailureKind},
    host::HostReport,
    lab::{DelayLineStats, LAB_SCHEMA, LabFile},
    notice::Notice,
    outcome::{Outcome, Series},
    record::{RECORD_VERSION, RUN_SCHEMA, RunDocument, RunHost, TRIAL_SCHEMA, TrialDocument, TrialOutcome},
};
use serde_json::Value;

use crate::{Reader, RecordError, Writer};
pub use model::Shape;
use model::{Cell, Cells, Noise};

/// Writes a whole run into `folder` and opens it. Streams: memory does not
/// grow with the number of trials or samples.
pub fn clearstream_40ge(
    folder: &Path,
    client: &HostReport,
    server: &HostReport,
    shape: &Shape,
) -> Result<Reader, RecordError> {
    let cells = Cells::of(shape);
    let mut writer = Writer::create(folder, run_document(client, server, shape, &cells))?;
    writer.capture(0, b"no real capture\n")?;
    let mut noise = Noise(shape.seed);
    let mut clock = Clock::default();
    let mut trial = 0;
    for repetition in 0..shape.repetitions.max(1) {
        for cell in cells.iter() {
            let document = run_trial(&writer, shape, &cell, trial, repetition, &mut noise, &mut clock)?;
            writer.trial(&document)?;
            trial += 1;
        }
    }
    writer.finish(clock.text())?;
    Reader::open(folder)
}

fn run_trial(
    writer: &Writer,
    shape: &Shape,
    cell: &Cell,
    trial: u32,
    repetition: u32,
    noise: &mut Noise,
    clock: &mut Clock,
) -> Result<TrialDocument, RecordError> {
    let started = clock.text();
    let mut samples = None;
    let mut delay_lines = Vec::new();
    let outcome = match cell.workload {
        "probe" => measured(sample::probe(noise).outcome())?,
        "flow" if shape.failing_trial == Some(trial) => TrialOutcome::Failed(Failure {
            kind: FailureKind::InUse,
            message: "port 5001 is in use on the server; choose another with --destination-port".to_owned(),
        }),
        "flow" => {
            let mut file = writer.samples(trial)?;
            let mut series = sample::Series::new(cell, shape, noise);
            let mut points = Vec::new();
            for index in 0..shape.seconds {
                let interval = series.interval(index, noise);
                if !interval.warm_up {
                    points.push((interval.client.end_ns as f64, interval.goodput_bps));
                }
                file.write(&json(&interval)?)?;
            }
            samples = Some(file.finish()?);
            delay_lines = if cell.wide_area { vec![late(noise), late(noise)] } else { Vec::new() };
            clock.pass(shape.seconds);
            measured(series.summary().outcome().map(|outcome| over_time(outcome, &points)))?
        }
        // Only a description of the hosts.
        _ => TrialOutcome::Measured(Box::default()),
    };
    clock.pass(1);
    Ok(TrialDocument {
        schema: TRIAL_SCHEMA.to_owned(),
        version: RECORD_VERSION,
        trial,
        experiment: cell.experiment.to_owned(),
        workload: cell.workload.to_owned(),
        cell: cell.number,
        repetition,
        factors: cell.factors.clone(),
        started,
        steady: samples.as_ref().filter(|_| shape.seconds >= 5).map(|_| true),
        outcome,
        samples,
        delay_lines,
    })
}

/// With the series that a study adds.
fn over_time(outcome: Outcome, points: &[(f64, f64)]) -> Outcome {
    let series = outcome.headline().map(|goodput| Series::over_time(goodput, points));
    Outcome { series: series.into_iter().collect(), ..outcome }
}

fn measured(outcome: Result<Outcome, serde_json::Error>) -> Result<TrialOutcome, RecordError> {
    let outcome = outcome.map_err(|error| RecordError::write(Path::new("trials.jsonl"), error.into()))?;
    Ok(TrialOutcome::Measured(Box::new(outcome)))
}

fn json(document: &impl serde::Serialize) -> Result<String, RecordError> {
    clearstream_schema::json::to_string(document)
        .map_err(|error| RecordError::write(Path::new("samples"), error.into()))
}

fn late(noise: &mut Noise) -> DelayLineStats {
    let passed_count = 1_000_000 + noise.below(1000);
    DelayLineStats {
        passed_count,
        passed_bytes: passed_count * 60_000,
        lost_count: 0,
        overflow_count: 0,
        late_p50_ns: 2_000 + noise.below(500),
        late_p99_ns: 40_000 + noise.below(5_000),
        late_max_ns: 300_000,
        ..DelayLineStats::default()
    }
}

fn run_document(client: &HostReport, server: &HostReport, shape: &Shape, cells: &Cells) -> RunDocument {
    let lab = LabFile {
        schema: LAB_SCHEMA.to_owned(),
        version: 1,
        name: "wan-1650km".to_owned(),
        title: "Two hosts and 1650 km of fibre".to_owned(),
        hosts: Vec::new(),
        links: Vec::new(),
        switches: Vec::new(),
    };
    RunDocument {
        schema: RUN_SCHEMA.to_owned(),
        version: RECORD_VERSION,
        id: "clearstream-40ge-20260301-100000".to_owned(),
        started: Clock::default().text(),
        ended: None,
        program_version: "0.0.0-synthetic".to_owned(),
        mode: "full".to_owned(),
        seed: shape.seed,
        study: model::study(shape),
        only: Vec::new(),
        budget: None,
        lab: Some(lab),
        hosts: [("client", client), ("server", server)].map(host).into(),
        treatments: None,
        planned_trial_count: cells.count() * shape.repetitions.max(1),
        notices: vec![Notice {
            id: "synthetic".to_owned(),
            message: "these results are synthetic".to_owned(),
        }],
    }
}

fn host((role, report): (&str, &HostReport)) -> RunHost {
    RunHost { name: report.name.clone(), role: role.to_owned(), report: report.clone(), capture: None }
}

/// Seconds since 2026-03-01T10:00:00Z. Limited to one month.
#[derive(Debug, Default, Clone, Copy)]
struct Clock(u64);

impl Clock {
    fn pass(&mut self, seconds: u32) {
        self.0 += u64::from(seconds);
    }

    fn text(self) -> String {
        let seconds = self.0 + 36_000;
        let (day, rest) = (1 + seconds / 86_400 % 31, seconds % 86_400);
        format!("2026-03-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
    }
}

/// Level of each factor of a cell.
type Factors = BTreeMap<String, Value>;

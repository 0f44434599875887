//! A small run written trial by trial, for records whose every number is known.

use std::{collections::BTreeMap, path::Path};

use clearstream_record::{Reader, Writer};
use clearstream_schema::{
    ByteCount, CoreList,
    control::{Failure, FailureKind},
    flow::{FlowConfig, FlowSettings, FlowSummary, InterruptCore, Interval, SideInterval, SocketSettings},
    host::HostReport,
    lab::LabFile,
    notice::Notice,
    record::{RECORD_VERSION, RUN_SCHEMA, RunDocument, TRIAL_SCHEMA, TrialDocument, TrialOutcome},
    study::StudyFile,
};
use clearstream_testkit::flow;
use serde_json::{Value, json};

/// A study with an experiment per figure that the tests check.
pub(crate) fn study(title: &str) -> StudyFile {
    serde_json::from_value(json!({
        "schema": "clearstream.study", "version": 1, "name": "by-hand", "title": title, "about": title,
        "experiment": [
            { "name": "flows", "title": title, "workload": "flow", "figure": "throughput",
              "published": [{ "label": title, "source": title, "factors": { "flows": 1 },
                              "low": 20.7, "high": 23.3 }] },
            { "name": "window", "title": "By window", "workload": "flow", "figure": "window-curve",
              "published": [{ "label": "the knee", "source": "report, figure 6",
                              "factors": { "window": "40.38MB" } }] },
            { "name": "pins", "title": "By core", "workload": "flow", "figure": "pin-matrix",
              "published": [{ "label": "on that very core 1 Gb/s more", "source": "figure 5" }] },
        ],
    }))
    .unwrap()
}

/// Writes a run of these trials.
pub(crate) fn write(
    folder: &Path,
    study: StudyFile,
    hosts: (HostReport, HostReport),
    trials: Vec<TrialDocument>,
) -> Reader {
    write_with(folder, study, hosts, trials, &BTreeMap::new(), |_| ())
}

/// Writes a run with samples by trial, its document changed.
pub(crate) fn write_with(
    folder: &Path,
    study: StudyFile,
    hosts: (HostReport, HostReport),
    mut trials: Vec<TrialDocument>,
    samples: &BTreeMap<u32, Vec<Interval>>,
    change: impl FnOnce(&mut RunDocument),
) -> Reader {
    let mut run: RunDocument = serde_json::from_value(json!({
        "schema": RUN_SCHEMA, "version": RECORD_VERSION, "id": "by-hand",
        "started": "2026-01-02T03:04:05Z", "program_version": "0.1.0", "mode": "standard", "seed": 7,
        "study": study, "planned_trial_count": trials.len(),
        "hosts": [
            { "name": hosts.0.name, "role": "client", "report": hosts.0 },
            { "name": hosts.1.name, "role": "server", "report": hosts.1 },
        ],
    }))
    .unwrap();
    change(&mut run);
    let mut writer = Writer::create(folder, run).unwrap();
    for trial in &mut trials {
        if let Some(intervals) = samples.get(&trial.trial) {
            let mut file = writer.samples(trial.trial).unwrap();
            for interval in intervals {
                file.write(&serde_json::to_string(interval).unwrap()).unwrap();
            }
            trial.samples = Some(file.finish().unwrap());
        }
        writer.trial(trial).unwrap();
    }
    writer.finish("2026-01-02T04:04:05Z".to_owned()).unwrap();
    Reader::open(folder).unwrap()
}

/// One trial.
pub(crate) fn trial(
    number: u32,
    experiment: &str,
    cell: u32,
    factors: &[(&str, Value)],
    outcome: TrialOutcome,
) -> TrialDocument {
    TrialDocument {
        schema: TRIAL_SCHEMA.to_owned(),
        version: RECORD_VERSION,
        trial: number,
        experiment: experiment.to_owned(),
        workload: "flow".to_owned(),
        cell,
        repetition: 0,
        factors: factors
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect::<BTreeMap<_, _>>(),
        started: "2026-01-02T03:04:05Z".to_owned(),
        outcome,
        steady: Some(true),
        samples: None,
        delay_lines: Vec::new(),
    }
}

/// A flow of so many Gb/s.
pub(crate) fn flow(gbps: f64, change: impl FnOnce(&mut FlowSummary)) -> TrialOutcome {
    let mut one = summary(gbps * 1e9);
    change(&mut one);
    TrialOutcome::Measured(Box::new(one.outcome().unwrap()))
}

/// The lab of the papers' path: a long link and a short one.
pub(crate) fn lab() -> LabFile {
    let end = |host: &str, interface: &str, address: &str| json!({ "host": host, "interface": interface, "addresses": [address] });
    serde_json::from_value(json!({
        "schema": "clearstream.lab", "version": 1, "name": "wan-1650km", "title": "1650 km",
        "host": [{ "name": "alpha" }, { "name": "beta" }],
        "link": [
            { "delay": "8.5ms", "rate": "19Gb/s", "backend": "delay-line",
              "ends": [end("alpha", "wan0", "10.0.0.1/24"), end("beta", "wan0", "10.0.0.2/24")] },
            { "ends": [end("alpha", "lan0", "10.0.1.1/24"), end("beta", "lan0", "10.0.1.2/24")] },
        ],
    }))
    .unwrap()
}

/// One-second samples of these Gb/s, the first one in the warm-up; `change` has both sides.
pub(crate) fn samples(gbps: &[f64], change: impl Fn(&mut SideInterval)) -> Vec<Interval> {
    let side = |index: u32| {
        let mut side = SideInterval {
            index,
            start_ns: u64::from(index) * 1_000_000_000,
            end_ns: u64::from(index + 1) * 1_000_000_000,
            ..SideInterval::default()
        };
        change(&mut side);
        side
    };
    (0..)
        .zip(gbps)
        .map(|(index, gbps)| Interval {
            directions: Vec::new(),
            index,
            warm_up: index == 0,
            goodput_bps: gbps * 1e9,
            client: side(index),
            server: side(index),
        })
        .collect()
}

/// Trials with round numbers: medians, shares and effects can be computed in the head.
pub(crate) fn round_numbers() -> Vec<TrialDocument> {
    let mut trials = Vec::new();
    let mut add = |experiment: &str, cell, factors: &[(&str, Value)], outcome| {
        let repetition =
            trials.iter().filter(|t: &&TrialDocument| t.experiment == experiment && t.cell == cell);
        let repetition = repetition.count() as u32;
        let one = trial(trials.len() as u32, experiment, cell, factors, outcome);
        trials.push(TrialDocument { repetition, ..one });
    };
    for gbps in [21.0, 22.0, 24.0] {
        add("flows", 0, &[("flows", json!(1))], flow(gbps, |_| ()));
    }
    for gbps in [26.0, 27.5, 28.0] {
        add("flows", 1, &[("flows", json!(2))], flow(gbps, |s| s.requested.flows = 2));
    }
    // 10 ms and 16 Gb/s: a product of 20 MB. 5 MB allow 4 Gb/s, of which 3.8 are 95 %.
    for (cell, (window, gbps)) in (0..).zip([(5_000_000u64, 3.8), (10_000_000, 7.6), (40_000_000, 16.0)]) {
        let level = json!(format!("{window}B"));
        add(
            "window",
            cell,
            &[("window", level)],
            flow(gbps, |s| {
                s.requested.window = Some(ByteCount(window));
                s.min_rtt_ns = Some(10_000_000);
            }),
        );
    }
    let mut cell = 0;
    for sender in 0..4u32 {
        for receiver in 0..8u32 {
            // Core 7 takes the packets: 21 on it, 22 on its package, 20 elsewhere.
            let gbps = if receiver == 7 {
                21.0
            } else if receiver > 3 {
                22.0
            } else {
                20.0
            };
            let factors = [("sender-cores", json!(sender)), ("receiver-cores", json!(receiver))];
            add(
                "pins",
                cell,
                &factors,
                flow(gbps, |s| {
                    s.requested.sender_cores = Some(CoreList(vec![sender]));
                    s.requested.receiver_cores = Some(CoreList(vec![receiver]));
                    s.interrupt_core =
                        Some(InterruptCore { core: 7, softirq_share_percent: 97, confirmed: Some(true) });
                }),
            );
            cell += 1;
        }
    }
    trials
}

/// The same numbers with hostile text wherever a record can hold text.
pub(crate) fn hostile(text: &str) -> Vec<TrialDocument> {
    let mut trials = round_numbers();
    let number = trials.len() as u32;
    trials.push(trial(
        number,
        "flows",
        2,
        &[(text, json!(text)), ("flows", json!(text))],
        flow(20.0, |s| {
            s.notices.push(Notice { id: text.to_owned(), message: text.to_owned() });
            s.requested.congestion_control = Some(text.to_owned());
            s.client_settings.flows[0].congestion_control = Some(format!("{text}!"));
        }),
    ));
    trials.push(trial(number + 1, text, 0, &[], flow(20.0, |_| ())));
    let failure = Failure { kind: FailureKind::Invalid, message: text.to_owned() };
    trials.push(trial(number + 2, "flows", 3, &[(text, json!(text))], TrialOutcome::Failed(failure)));
    trials
}

/// A host whose every name is hostile.
pub(crate) fn hostile_host(mut host: HostReport, text: &str) -> HostReport {
    host.name = text.to_owned();
    host.cpu_model = Some(text.to_owned());
    host.kernel.release = Some(text.to_owned());
    for nic in &mut host.nics {
        nic.name = text.to_owned();
        nic.driver = Some(text.to_owned());
    }
    host
}

/// A study of these experiments.
pub(crate) fn study_of(experiments: Value) -> StudyFile {
    serde_json::from_value(json!({
        "schema": "clearstream.study", "version": 1, "name": "by-hand", "title": "By hand",
        "experiment": experiments,
    }))
    .unwrap()
}

/// The outcome of a workload that has no document of its own: `(name, unit, better, value)`.
pub(crate) fn outcome(metrics: &[(&str, &str, &str, f64)], change: impl FnOnce(&mut Value)) -> TrialOutcome {
    let metrics = metrics.iter().map(
        |(name, unit, better, value)| json!({"name": name, "unit": unit, "better": better, "value": value}),
    );
    let mut outcome = json!({"complete": true, "metrics": metrics.collect::<Vec<_>>()});
    change(&mut outcome);
    TrialOutcome::Measured(Box::new(serde_json::from_value(outcome).unwrap()))
}

/// The cells of a table in Markdown, by the text before it: the head, then the rows.
pub(crate) fn table_after<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let rest = text.split(heading).nth(1).unwrap_or_else(|| panic!("no {heading:?} in:\n{text}"));
    let lines =
        rest.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &'a str| line.trim_matches('|').split('|').map(str::trim).collect();
    lines.filter(|line| !line.contains("---")).map(cells).collect()
}

/// A finished flow of this goodput with one socket per side.
pub(crate) fn summary(goodput_bps: f64) -> FlowSummary {
    let requested = FlowConfig::default();
    let socket = |core| SocketSettings {
        local: "10.0.0.1:5001".to_owned(),
        remote: "10.0.0.2:5001".to_owned(),
        send_buffer_bytes: 4 << 20,
        receive_buffer_bytes: 6 << 20,
        congestion_control: Some("cubic".to_owned()),
        receive_low_water_bytes: 1,
        pinned_core: core,
        transfer_bytes: requested.transfer().0,
        segment_bytes: 8948,
        method: Some(requested.method),
        receive: Some(requested.receive),
        ..SocketSettings::default()
    };
    FlowSummary {
        client_settings: FlowSettings { flows: vec![socket(None)], ..FlowSettings::default() },
        server_settings: FlowSettings { flows: vec![socket(None)], ..FlowSettings::default() },
        retransmit_count: Some(0),
        rtt_ns: Some(150_000),
        min_rtt_ns: Some(100_000),
        server_cpu_seconds_per_gb: 0.2,
        ..flow::summary(&requested, goodput_bps, 10_000_000_000)
    }
}

//! A study over loopback with real agents in this process.

use std::{net::IpAddr, path::Path, sync::atomic::AtomicBool};

use crate::common::registry;
use clearstream_control::{Done, Peer, Registration, Service, Services, memory_pair};
use clearstream_flow::FlowAgent;
use clearstream_host::calls::{CAPTURE_CHUNK_BYTES, Capture, CaptureChunk, HostAgent};
use clearstream_probe::ProbeAgent;
use clearstream_record::Reader;
use clearstream_schema::{
    flow::{FLOW_SUMMARY_SCHEMA, FlowSummary, Interval},
    probe::{PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::{TrialDocument, TrialOutcome},
};
use clearstream_study::{EndReason, HostTestbed, RunEnd, RunRequest, Runner, ScheduleOptions, file};
use clearstream_workload::HostSet;
use tempfile::TempDir;

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Every kind of trial, short; one cell requests a port in use.
const STUDY: &str = r#"schema = "clearstream.study"
version = 1
name = "short"
title = "Short"
[flow]
duration = "600ms"
warm-up = "100ms"
interval = "100ms"
[[experiment]]
name = "hosts"
title = "Hosts"
workload = "inspect"
figure = "topology"
[[experiment]]
name = "delay"
title = "Delay"
workload = "probe"
figure = "delay"
[experiment.probe]
count = 5
interval = "2ms"
[[experiment]]
name = "flows"
title = "Flows"
workload = "flow"
figure = "throughput"
[experiment.factors]
flows = [1, 2]
direction = ["forward", "reverse"]
[[experiment]]
name = "taken"
title = "A port that is taken"
workload = "flow"
figure = "throughput"
[experiment.factors]
destination-port = [PORT]
"#;

/// A capture of a few bytes over one part.
struct SmallCapture;

impl Service for SmallCapture {
    fn register(calls: &mut Registration<Self>) {
        calls.on(|_, Capture {}, context| {
            for part in bundle().chunks(CAPTURE_CHUNK_BYTES) {
                context.events().send(&CaptureChunk { bytes: part.to_vec() });
            }
            Ok(Done {})
        });
    }
}

fn bundle() -> Vec<u8> {
    (0..CAPTURE_CHUNK_BYTES + 10).map(|place| place as u8).collect()
}

/// Services of an agent for a study: it changes nothing and proves no routes.
fn agent() -> Peer {
    let services = Services::new().with(HostAgent::default()).with(SmallCapture);
    memory_pair(services.with(FlowAgent::new()).with(ProbeAgent::default())).unwrap()
}

fn run(folder: &Path, text: &str) -> RunEnd {
    let (mut client, mut server) = agents();
    let testbed = testbed(&mut client, &mut server);
    let request = RunRequest {
        study: file::parse(text, "short.toml", &registry()).unwrap(),
        options: ScheduleOptions { seed: 2, ..ScheduleOptions::default() },
        registry: registry(),
        program_version: "0.1.0".to_owned(),
    };
    Runner::start(folder, request, testbed).unwrap().run(&AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn testbed<'a>(client: &'a mut Peer, server: &'a mut Peer) -> HostTestbed<'a> {
    HostTestbed::new(HostSet::pair((client, Some(LOOPBACK)), (server, LOOPBACK), None), registry())
}

fn agents() -> (Peer, Peer) {
    (agent(), agent())
}

#[test]
fn real_agents_leave_a_whole_record() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let taken = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let end = run(&path, &STUDY.replace("PORT", &port.to_string()));
    assert_eq!(end.reason, EndReason::Complete);
    let reader = Reader::open(&path).unwrap();
    let failures: Vec<_> = reader
        .trials()
        .unwrap()
        .filter_map(|trial| match trial.unwrap() {
            TrialDocument { outcome: TrialOutcome::Failed(failure), experiment, .. } => {
                Some((experiment, failure))
            }
            _ => None,
        })
        .collect();
    assert_eq!((end.done_count, end.failed_count), (1 + 1 + 4, 1), "{failures:?}");
    assert!(!reader.run().host("client").unwrap().processing_units.is_empty());
    assert_eq!(std::fs::read(reader.capture("server").unwrap()).unwrap(), bundle());
    let trials: Vec<TrialDocument> = reader.trials().unwrap().collect::<Result<_, _>>().unwrap();
    for trial in &trials {
        let outcome = match &trial.outcome {
            TrialOutcome::Measured(outcome) => outcome,
            TrialOutcome::Failed(failure) => {
                assert_eq!(trial.experiment, "taken");
                assert!(failure.message.contains(&port.to_string()), "{failure}");
                continue;
            }
        };
        assert!(outcome.complete);
        match trial.workload.as_str() {
            "flow" => {
                let summary: FlowSummary = outcome.detail(FLOW_SUMMARY_SCHEMA).unwrap().unwrap();
                assert!(summary.goodput_bps > 0.0);
                assert_eq!(outcome.metric("goodput").unwrap().value, summary.goodput_bps);
                let samples: Vec<Interval> =
                    reader.samples(trial).unwrap().collect::<Result<_, _>>().unwrap();
                assert!(samples.len() >= 6, "{}", samples.len());
                assert!(trial.steady.is_some());
                assert_eq!(u64::from(summary.requested.flows), trial.factors["flows"].as_u64().unwrap());
            }
            "probe" => {
                let summary: ProbeSummary = outcome.detail(PROBE_SUMMARY_SCHEMA).unwrap().unwrap();
                assert_eq!(summary.directions.len(), 2);
                let p50 = summary.directions[0].udp.as_ref().unwrap().p50_ns;
                assert_eq!(outcome.headline().unwrap().value, p50 as f64);
            }
            other => assert_eq!((other, trial.experiment.as_str()), ("inspect", "hosts")),
        }
    }
}

#[test]
fn resuming_a_complete_run_measures_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let text = STUDY.split("[[experiment]]\nname = \"flows\"").next().unwrap();
    run(&path, text);
    let before = std::fs::read(path.join("trials.jsonl")).unwrap();
    let (mut client, mut server) = agents();
    let testbed = testbed(&mut client, &mut server);
    let study = file::parse(text, "short.toml", &registry()).unwrap();
    let end = Runner::resume(&path, Some(&study), &registry(), testbed)
        .unwrap()
        .run(&AtomicBool::new(false), &mut |_| {})
        .unwrap();
    assert_eq!(end.done_count, 2);
    assert_eq!(std::fs::read(path.join("trials.jsonl")).unwrap(), before);
}

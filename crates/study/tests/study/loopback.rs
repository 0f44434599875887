//! A study over loopback with real agents in this process.

use std::{net::IpAddr, path::Path, sync::atomic::AtomicBool};

use crate::common::registry;
use clearstream_control::{EventSender, Handler, Peer, agent::CAPTURE_CHUNK_BYTES, encoding, memory_pair};
use clearstream_flow::FlowAgent;
use clearstream_host::{HostRoot, inspect};
use clearstream_probe::Responder;
use clearstream_record::Reader;
use clearstream_schema::{
    control::{AgentEvent, Failure, Reply, Request},
    flow::{FLOW_SUMMARY_SCHEMA, FlowSummary, Interval},
    probe::{PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::{TrialDocument, TrialOutcome},
};
use clearstream_study::{EndReason, HostTestbed, PlanOptions, RunEnd, RunRequest, Runner, file};
use clearstream_workload::HostSet;
use tempfile::TempDir;

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Every kind of trial, short; one cell asks for a port that is taken.
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

/// What an agent does with these requests; its capture is a few bytes over one part.
#[derive(Default)]
struct Agent {
    flow: FlowAgent,
    responder: Option<Responder>,
}

fn bundle() -> Vec<u8> {
    (0..CAPTURE_CHUNK_BYTES + 10).map(|place| place as u8).collect()
}

impl Handler for Agent {
    fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure> {
        match request {
            Request::Inspect => Ok(Reply::Host(inspect(&HostRoot::live()))),
            Request::Capture => {
                for part in bundle().chunks(CAPTURE_CHUNK_BYTES) {
                    events.send(AgentEvent::CaptureChunk { base64: encoding::base64(part) });
                }
                Ok(Reply::Empty)
            }
            Request::FlowPrepare(prepare) => self.flow.prepare(prepare, events),
            Request::FlowStart { test } => self.flow.start(test).map(|()| Reply::Empty),
            Request::FlowStop { test } => self.flow.stop(test).map(|()| Reply::Empty),
            Request::ProbeListen { address, port, cookie } => {
                let responder = Responder::open(address, port, &cookie)?;
                let reply = Reply::ProbeListening { udp: responder.udp(), tcp: responder.tcp() };
                self.responder = Some(responder);
                Ok(reply)
            }
            Request::ProbeRun { config, udp, tcp, cookie } => {
                clearstream_probe::measure(&config, udp, tcp, &cookie).map(Reply::Probed)
            }
            Request::ProbeClose => {
                self.responder = None;
                Ok(Reply::Empty)
            }
            Request::Plan(_) => panic!("a study changes nothing"),
            Request::Route(_) => panic!("a study proves no routes"),
            Request::RdmaServe { .. } => panic!("a study measures no RDMA"),
            Request::Shutdown => Ok(Reply::Empty),
        }
    }
}

fn run(folder: &Path, text: &str) -> RunEnd {
    let (mut client, mut server) = agents();
    let testbed = testbed(&mut client, &mut server);
    let request = RunRequest {
        study: file::parse(text, "short.toml", &registry()).unwrap(),
        options: PlanOptions { seed: 2, ..PlanOptions::default() },
        registry: registry(),
        program_version: "0.1.0".to_owned(),
    };
    Runner::start(folder, request, testbed).unwrap().run(&AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn testbed<'a>(client: &'a mut Peer, server: &'a mut Peer) -> HostTestbed<'a> {
    HostTestbed::new(HostSet::pair((client, Some(LOOPBACK)), (server, LOOPBACK), None), registry())
}

fn agents() -> (Peer, Peer) {
    (memory_pair(Agent::default()).unwrap(), memory_pair(Agent::default()).unwrap())
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
fn resuming_a_whole_run_measures_nothing_again() {
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

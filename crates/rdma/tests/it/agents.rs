//! Measurements between two agents, as run by the workloads of a study.

use std::{
    net::{IpAddr, Ipv4Addr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
};

use clearstream_control::{Peer, PeerError, Services, memory_pair};
use clearstream_rdma::{
    AgentError, Agents, RdmaAgent, VerbsCall, VerbsConfig,
    calls::{Measure, Progress, Serve, Stop},
};
use clearstream_schema::{
    ByteCount, TimeSpan,
    control::{Cookie, FailureKind},
    rdma::{RdmaConfig, RdmaOperation, RdmaProgress, RdmaSample, SizeList},
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

static NEVER: AtomicBool = AtomicBool::new(false);

fn agent() -> Peer {
    memory_pair(Services::new().with(RdmaAgent::default())).unwrap()
}

fn between<'a>(client: &'a mut Peer, server: &'a mut Peer) -> Agents<'a> {
    Agents { client, server, client_address: Some(HERE), server_address: HERE, port: None }
}

fn config(size: u64) -> RdmaConfig {
    RdmaConfig {
        size: SizeList(vec![ByteCount(size)]),
        warm_up: TimeSpan::from_millis(5),
        ..RdmaConfig::default()
    }
}

/// Messages of the samples that count.
fn messages(samples: &[RdmaSample]) -> u64 {
    samples.iter().filter(|sample| !sample.warm_up).map(|sample| sample.message_count).sum()
}

#[test]
fn samples_add_up_to_the_result_and_metrics_are_those_of_perftest() {
    for operation in [RdmaOperation::Send, RdmaOperation::Write, RdmaOperation::Read] {
        let config = RdmaConfig { iterations: Some(500), queue_pairs: 2, verify: true, ..config(3000) };
        let (mut client, mut server) = (agent(), agent());
        let mut samples = Vec::new();
        let mut keep = |progress: &Progress| samples.extend(sample(progress));
        let summary =
            between(&mut client, &mut server).measure(operation, &config, &NEVER, &mut keep).unwrap();
        assert!(summary.complete && summary.results[0].verified == Some(true), "{operation:?}");
        assert_eq!(summary.results[0].forward.message_count, 1000);
        assert_eq!(messages(&samples), 1000, "{operation:?}");
        let outcome = summary.outcome(&samples).unwrap();
        let value = |name: &str| outcome.metric(name).unwrap().value;
        // perftest prints both, of the same count and time: bytes and messages.
        let ratio = value("bandwidth") / (value("message-rate") * 3000.0 * 8.0);
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        assert_eq!(outcome.headline().unwrap().name, "bandwidth");
        let no_crc = outcome.settings.iter().find(|setting| setting.name == "no-crc").unwrap();
        assert_eq!(no_crc.effective, Some(false.into()));
    }
}

#[test]
fn latency_is_half_a_round_and_both_directions_are_added() {
    let (mut client, mut server) = (agent(), agent());
    let mut agents = between(&mut client, &mut server);
    let latency = RdmaConfig { iterations: Some(200), latency: true, ..config(64) };
    let mut samples = Vec::new();
    let mut keep = |progress: &Progress| samples.extend(sample(progress));
    let summary = agents.measure(RdmaOperation::Send, &latency, &NEVER, &mut keep).unwrap();
    let outcome = summary.outcome(&samples).unwrap();
    let value = |name: &str| outcome.metric(name).unwrap().value;
    assert_eq!(outcome.headline().unwrap().name, "latency");
    assert!(value("latency-min") <= value("latency") && value("latency") <= value("latency-p99"));
    // A round has two messages: no latency is more than half of the longest possible round.
    let round = summary.results[0].forward.elapsed_ns as f64 / 200.0;
    assert!(value("latency-mean") <= round / 2.0, "{} of {round}", value("latency-mean"));
    assert_eq!(value("throughput"), 64.0 * 8e9 / value("latency-mean"), "as NetPIPE computes it");
    assert_eq!(messages(&samples), 200);

    let both = RdmaConfig { iterations: Some(300), both_ways: true, ..config(20_000) };
    let summary = agents.measure(RdmaOperation::Write, &both, &NEVER, &mut |_| {}).unwrap();
    let outcome = summary.outcome(&[]).unwrap();
    let value = |name: &str| outcome.metric(name).unwrap().value;
    assert_eq!(value("bandwidth"), value("bandwidth-forward") + value("bandwidth-reverse"));

    let sizes = SizeList(vec![ByteCount(4096), ByteCount(64)]);
    let several = RdmaConfig { iterations: Some(100), size: sizes, ..config(1) };
    let outcome =
        agents.measure(RdmaOperation::Send, &several, &NEVER, &mut |_| {}).unwrap().outcome(&[]).unwrap();
    let points: Vec<f64> = outcome.series[0].points.iter().map(|point| point.0).collect();
    assert_eq!((outcome.series[0].x.name.as_str(), points), ("size", vec![64.0, 4096.0]));
}

fn sample(progress: &Progress) -> Option<RdmaSample> {
    match progress {
        Progress::Sample(sample) => Some(sample.clone()),
        _ => None,
    }
}

#[test]
fn a_stopped_measurement_has_the_results_up_to_then() {
    let (mut client, mut server) = (agent(), agent());
    let endless = RdmaConfig { duration: TimeSpan::from_seconds(600), ..config(4096) };
    let stop = AtomicBool::new(false);
    let mut at_first_sample = |progress: &Progress| {
        if sample(progress).is_some_and(|sample| !sample.warm_up) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let mut agents = between(&mut client, &mut server);
    let summary = agents.measure(RdmaOperation::Write, &endless, &stop, &mut at_first_sample).unwrap();
    assert!(!summary.complete && summary.results[0].forward.message_count > 0);
    // Both agents serve the next test.
    let next = RdmaConfig { iterations: Some(10), ..config(64) };
    assert!(agents.measure(RdmaOperation::Read, &next, &NEVER, &mut |_| {}).unwrap().complete);
}

#[test]
fn one_measurement_at_a_time_and_nothing_listens_after_it() {
    let (mut client, mut server) = (agent(), agent());
    let cookie = Cookie("5a".repeat(16));
    let serve = Serve { address: HERE, port: None, cookie: Some(cookie.clone()), peer: Some(HERE) };
    let listening = server.call(&serve).unwrap().address;
    let config = RdmaConfig { duration: TimeSpan::from_seconds(600), ..config(64) };
    let measure = Measure { server: listening, cookie, operation: RdmaOperation::Send, config };
    client.call(&measure).unwrap();
    let PeerError::Refused { failure, .. } = client.call(&measure).unwrap_err() else { panic!() };
    assert_eq!(failure.kind, FailureKind::Busy);
    client.call(&Stop {}).unwrap();
    server.call(&Stop {}).unwrap();
    assert!(TcpStream::connect(listening).is_err(), "the listener is closed");
    // Stopping without a measurement is no error.
    server.call(&Stop {}).unwrap();

    let refused = Measure { config: RdmaConfig { depth: 0, ..RdmaConfig::default() }, ..measure };
    let PeerError::Refused { failure, .. } = client.call(&refused).unwrap_err() else { panic!() };
    assert!(failure.kind == FailureKind::Invalid && failure.message.contains("choose 1 to"), "{failure}");
}

#[test]
fn a_core_that_is_not_there_fails_the_measurement_at_the_client() {
    let (mut client, mut server) = (agent(), agent());
    let config = RdmaConfig { core: Some(100_000), ..config(64) };
    let error = between(&mut client, &mut server)
        .measure(RdmaOperation::Send, &config, &NEVER, &mut |_| {})
        .unwrap_err();
    let AgentError::Failed { failure, .. } = error else { panic!("{error}") };
    assert!(failure.kind == FailureKind::Invalid && failure.message.contains("100000"), "{failure}");
}

#[test]
fn calls_on_a_connection_are_timed_with_both_kinds_of_progress() {
    let (mut client, mut server) = (agent(), agent());
    let mut agents = between(&mut client, &mut server);
    for progress in [RdmaProgress::Inline, RdmaProgress::Offloaded, RdmaProgress::Adaptive] {
        for call in [VerbsCall::Connect, VerbsCall::PostSend, VerbsCall::PollEmpty, VerbsCall::PollNonEmpty] {
            let config =
                VerbsConfig { call, progress, count: 30, warm_up_count: 2, ..VerbsConfig::default() };
            let summary = agents.time_verbs(&config, &NEVER).unwrap();
            assert!(summary.complete, "{call:?} {progress:?}");
            assert_eq!(summary.times_ns.len(), 30, "{call:?} {progress:?}");
            assert!(summary.times_ns.iter().all(|ns| *ns > 0.0), "{call:?}: {:?}", summary.times_ns);
        }
    }
    // A call without a peer needs no server.
    let open = VerbsConfig { call: VerbsCall::Open, count: 5, ..VerbsConfig::default() };
    assert!(agents.time_verbs(&open, &NEVER).unwrap().complete);
}

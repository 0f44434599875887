//! Whole measurements between two agents in this process, over loopback.

mod faults;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::overlap::{OverlapConfig, OverlapMethod, OverlapSummary, OverlapTransport};
use clearstream_control::{Peer, Services, memory_pair};
use clearstream_schema::{ByteCount, TimeSpan, control::FailureKind, rdma::RdmaProgress};
use clearstream_workload::{CLIENT, Context, Host, HostSet, TrialError, Workload, two_sided::TwoSidedAgent};

use super::{Overlap, Sides};

const METHODS: [OverlapMethod; 2] = [OverlapMethod::Polling, OverlapMethod::PostWorkWait];

fn agent() -> Peer {
    memory_pair(Services::new().with(TwoSidedAgent::<Sides>::default())).unwrap()
}

fn hosts<'a>(client: &'a mut Peer, server: &'a mut Peer) -> HostSet<'a> {
    HostSet::pair((client, None), (server, [127, 0, 0, 1].into()), None)
}

fn quick() -> OverlapConfig {
    OverlapConfig {
        work: "10-1000".parse().unwrap(),
        per_decade: 1,
        size: ByteCount(5000),
        window: 7,
        iterations: Some(20),
        warm_up: TimeSpan(0),
        verify: true,
        ..OverlapConfig::default()
    }
}

/// Every transport with every progress that it has.
fn transports() -> [OverlapConfig; 4] {
    let iwarp = |progress| OverlapConfig { transport: OverlapTransport::Iwarp, progress, ..quick() };
    [quick(), iwarp(RdmaProgress::Inline), iwarp(RdmaProgress::Offloaded), iwarp(RdmaProgress::Adaptive)]
}

/// Runs the workload, and returns its document.
fn run(
    hosts: &mut HostSet<'_>,
    config: &OverlapConfig,
    stop: &AtomicBool,
    on_sample: &mut dyn FnMut(),
) -> Result<OverlapSummary, TrialError> {
    let on_event = &mut |_| on_sample();
    let outcome = Overlap.run(&mut Context { hosts, stop, on_event }, config)?;
    Ok(serde_json::from_value(outcome.detail.unwrap().document).unwrap())
}

fn measure(config: &OverlapConfig) -> Result<OverlapSummary, TrialError> {
    let (mut client, mut server) = (agent(), agent());
    run(&mut hosts(&mut client, &mut server), config, &AtomicBool::new(false), &mut || {})
}

#[test]
fn every_transport_and_method_delivers_every_message() {
    for transport in transports() {
        for method in METHODS {
            let config = OverlapConfig { method, ..transport.clone() };
            let summary = measure(&config).unwrap();
            let case = format!("{:?} {:?} {method:?}", config.transport, config.progress);
            assert!(summary.complete, "{case}");
            let work: Vec<u64> = summary.points.iter().map(|point| point.work_count).collect();
            assert_eq!(work, [10, 100, 1000], "{case}");
            for point in &summary.points {
                assert_eq!(point.cycle_count, 20, "{case}");
                assert_eq!(point.server_received_count, point.client_received_count, "{case}");
                assert!((0.0..=1.05).contains(&point.availability_ratio), "{case}: {point:?}");
                let phases = [point.post_ns, point.work_ns, point.wait_ns];
                match method {
                    OverlapMethod::Polling => assert_eq!(phases, [None; 3], "{case}"),
                    OverlapMethod::PostWorkWait => {
                        // Twenty windows in each direction.
                        assert_eq!(point.client_received_count, 20 * 7, "{case}");
                        assert_eq!(
                            phases.map(Option::unwrap).iter().sum::<u64>(),
                            point.elapsed_ns,
                            "{case}"
                        );
                    }
                }
            }
            let outcome = summary.outcome().unwrap();
            assert_eq!(outcome.headline().map(|metric| metric.name.as_str()), Some("bandwidth"));
            assert_eq!(outcome.contradicts(&config.metrics()), None);
            assert!(summary.notices.iter().any(|notice| notice.id == "verified"), "{case}");
        }
    }
}

/// Long enough that messages go round many times.
#[test]
fn a_polling_client_replies_to_what_arrives_between_its_intervals_of_work() {
    for transport in transports() {
        let config = OverlapConfig {
            work: "1000".parse().unwrap(),
            iterations: None,
            duration: TimeSpan::from_millis(100),
            warm_up: TimeSpan::from_millis(10),
            ..transport
        };
        let summary = measure(&config).unwrap();
        let point = &summary.points[0];
        assert!(point.client_received_count >= 7, "a window at least: {point:?}");
        assert!(point.bandwidth_bps > 0.0 && point.availability_ratio > 0.0, "{point:?}");
        assert!(point.client_cpu_ratio > 0.0 && point.server_cpu_ratio > 0.0, "{point:?}");
    }
}

/// One poll finds what arrived until then: at most the window that the server starts with.
#[test]
fn a_step_with_less_than_a_window_of_messages_is_noted() {
    let config =
        OverlapConfig { iterations: Some(1), window: 4096, size: ByteCount(4000), verify: false, ..quick() };
    let summary = measure(&config).unwrap();
    assert!(summary.points.iter().any(|point| point.client_received_count < 4096));
    let notice = summary.notices.iter().find(|notice| notice.id == "few-messages").unwrap();
    assert!(notice.message.contains("in 1 poll beside work of"), "{}", notice.message);
}

#[test]
fn effective_settings_are_those_of_the_transport() {
    let [tcp, iwarp, ..] = transports();
    let summary = measure(&tcp).unwrap();
    for side in [&summary.client, &summary.server] {
        assert!(side.congestion_control.as_ref().is_some_and(|name| !name.is_empty()));
        assert!(side.send_buffer_bytes.is_some() && side.crc.is_none());
    }
    let summary = measure(&iwarp).unwrap();
    for side in [&summary.client, &summary.server] {
        assert!(side.crc == Some(true) && side.mulpdu_bytes.is_some_and(|bytes| bytes > 0), "{side:?}");
        assert!(side.send_buffer_bytes.is_none());
    }
}

#[test]
fn a_core_that_is_not_there_is_named() {
    for config in [
        OverlapConfig { server_core: Some(4095), ..quick() },
        OverlapConfig { client_core: Some(4095), ..quick() },
    ] {
        let error = measure(&config).unwrap_err();
        let failure = error.failure;
        assert_eq!(failure.kind, FailureKind::Invalid);
        assert!(failure.message.contains("core 4095"), "{failure}");
    }
}

#[test]
fn a_stop_interrupts_work_and_transfers_and_the_agents_continue() {
    for transport in transports() {
        for method in METHODS {
            let (mut client, mut server) = (agent(), agent());
            let mut hosts = hosts(&mut client, &mut server);
            let whole = OverlapConfig { method, ..transport.clone() };
            // Would take an hour.
            let config =
                OverlapConfig { duration: TimeSpan::from_seconds(3600), iterations: None, ..whole.clone() };
            let stop = AtomicBool::new(true);
            let summary = run(&mut hosts, &config, &stop, &mut || {}).unwrap();
            assert!(!summary.complete && summary.points.is_empty(), "{method:?}");
            let none = AtomicBool::new(false);
            assert!(run(&mut hosts, &whole, &none, &mut || {}).unwrap().complete);
        }
    }
}

#[test]
fn intervals_measured_before_a_stop_are_kept() {
    let stop = AtomicBool::new(false);
    let (mut client, mut server) = (agent(), agent());
    let summary = run(&mut hosts(&mut client, &mut server), &quick(), &stop, &mut || {
        stop.store(true, Relaxed);
    })
    .unwrap();
    assert!(!summary.complete || summary.points.len() == 3);
    assert_eq!(summary.points.first().map(|point| point.work_count), Some(10));
}

/// Clients name no peers: a set has the client and the address that it connects to.
#[test]
fn a_set_without_a_server_is_named() {
    let mut peer = agent();
    let client = Host { role: CLIENT.to_owned(), peer: &mut peer, address: None };
    let mut hosts = HostSet::new(vec![client], None);
    let stop = AtomicBool::new(false);
    let error = run(&mut hosts, &quick(), &stop, &mut || {}).unwrap_err();
    assert!(error.failure.kind == FailureKind::Invalid, "{error}");
    assert_eq!(error.to_string(), "no host has the role \"server\"");
}

#[test]
fn invalid_options_are_rejected_before_anything_is_done() {
    let config = OverlapConfig { window: 0, ..quick() };
    assert_eq!(measure(&config).unwrap_err().failure.kind, FailureKind::Invalid);
}

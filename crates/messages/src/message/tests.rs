//! Whole measurements between two agents in this process, over loopback.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::message::{MessageConfig, MessageKind, MessageMethod, MessageSummary};
use clearstream_control::{Peer, Services, memory_pair};
use clearstream_schema::{ByteCount, TimeSpan, control::FailureKind};
use clearstream_workload::{CLIENT, Context, Host, HostSet, TrialError, Workload, two_sided::TwoSidedAgent};

use super::{Message, Sides};

fn agent() -> Peer {
    memory_pair(Services::new().with(TwoSidedAgent::<Sides>::default())).unwrap()
}

fn hosts<'a>(client: &'a mut Peer, server: &'a mut Peer) -> HostSet<'a> {
    HostSet::pair((client, None), (server, [127, 0, 0, 1].into()), None)
}

fn quick() -> MessageConfig {
    MessageConfig {
        sizes: "1B-64KiB".parse().unwrap(),
        iterations: Some(5),
        warm_up: TimeSpan(0),
        verify: true,
        window: 7,
        ..MessageConfig::default()
    }
}

/// Runs the workload, and returns its document.
fn run(
    hosts: &mut HostSet<'_>,
    config: &MessageConfig,
    stop: &AtomicBool,
    on_sample: &mut dyn FnMut(),
) -> Result<MessageSummary, TrialError> {
    let on_event = &mut |_| on_sample();
    let outcome = Message.run(&mut Context { hosts, stop, on_event }, config)?;
    Ok(serde_json::from_value(outcome.detail.unwrap().document).unwrap())
}

fn measure(config: &MessageConfig) -> Result<MessageSummary, TrialError> {
    let (mut client, mut server) = (agent(), agent());
    run(&mut hosts(&mut client, &mut server), config, &AtomicBool::new(false), &mut || {})
}

#[test]
fn every_kind_and_method_delivers_every_message() {
    for method in [MessageMethod::Blocking, MessageMethod::BusyPoll, MessageMethod::IoUring] {
        for (kind, server, client) in [
            (MessageKind::PingPong, 5, 5),
            (MessageKind::Stream, 35, 0),
            (MessageKind::Bidirectional, 35, 35),
        ] {
            let config = MessageConfig { kind, method, ..quick() };
            let summary = measure(&config).unwrap();
            assert!(summary.complete, "{kind:?} {method:?}");
            assert_eq!(summary.points.len(), config.message_sizes().len());
            for point in &summary.points {
                assert_eq!(
                    (point.server_received_count, point.client_received_count),
                    (server, client),
                    "{kind:?} {method:?} {} bytes",
                    point.size_bytes
                );
            }
            let outcome = summary.outcome().unwrap();
            let headline = if kind == MessageKind::PingPong { "latency" } else { "bandwidth" };
            assert_eq!(outcome.headline().map(|metric| metric.name.as_str()), Some(headline));
            assert_eq!(outcome.series[0].points.len(), summary.points.len());
            assert!(summary.notices.iter().any(|notice| notice.id == "verified"));
        }
    }
}

#[test]
fn effective_settings_are_read_from_both_sockets() {
    let config = MessageConfig {
        size: Some(ByteCount(64)),
        nagle: true,
        send_buffer: Some(ByteCount(1 << 40)),
        ..quick()
    };
    let summary = measure(&config).unwrap();
    for side in [&summary.client, &summary.server] {
        assert_eq!(side.no_delay, Some(false));
        assert!(side.congestion_control.as_ref().is_some_and(|name| !name.is_empty()));
    }
    let capped = summary.notices.iter().filter(|notice| notice.id == "send-buffer-capped").count();
    assert_eq!(capped, 2, "no host has a limit of a TiB: {:?}", summary.notices);
}

#[test]
fn a_core_that_is_not_there_is_named_by_its_side() {
    for config in [
        MessageConfig { server_core: Some(4095), ..quick() },
        MessageConfig { client_core: Some(4095), ..quick() },
    ] {
        let error = measure(&config).unwrap_err();
        let failure = error.failure;
        assert_eq!(failure.kind, FailureKind::Invalid);
        assert!(failure.message.contains("core 4095"), "{failure}");
    }
}

#[test]
fn a_stop_interrupts_transfers_and_the_agents_continue() {
    let (mut client, mut server) = (agent(), agent());
    let mut hosts = hosts(&mut client, &mut server);
    for method in [MessageMethod::Blocking, MessageMethod::BusyPoll, MessageMethod::IoUring] {
        // Would take an hour.
        let config =
            MessageConfig { duration: TimeSpan::from_seconds(3600), iterations: None, method, ..quick() };
        let stop = AtomicBool::new(true);
        let summary = run(&mut hosts, &config, &stop, &mut || {}).unwrap();
        assert!(!summary.complete && summary.points.is_empty(), "{method:?}");
        let whole = MessageConfig { method, size: Some(ByteCount(8)), ..quick() };
        let none = AtomicBool::new(false);
        assert!(run(&mut hosts, &whole, &none, &mut || {}).unwrap().complete);
    }
}

#[test]
fn sizes_measured_before_a_stop_are_kept() {
    let stop = AtomicBool::new(false);
    let (mut client, mut server) = (agent(), agent());
    let summary = run(&mut hosts(&mut client, &mut server), &quick(), &stop, &mut || {
        stop.store(true, Relaxed);
    })
    .unwrap();
    assert!(!summary.complete);
    assert_eq!(summary.points.first().map(|point| point.size_bytes), Some(1));
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
    let config = MessageConfig { window: 0, ..quick() };
    assert_eq!(measure(&config).unwrap_err().failure.kind, FailureKind::Invalid);
}

//! Every method in every direction over loopback.

use crate::common::{measure, short};
use clearstream_schema::{
    ByteCount,
    flow::{Direction, FlowConfig, Protocol, ReceiveMethod, SendMethod},
};

const DIRECTIONS: [Direction; 3] = [Direction::Forward, Direction::Reverse, Direction::Both];

/// Runs it and checks what must hold for any flow.
fn moves(config: &FlowConfig) {
    let (summary, intervals) = measure(config).unwrap();
    let what =
        format!("{:?} {:?} {:?} {:?}", config.protocol, config.direction, config.method, config.receive);
    assert!(summary.complete && summary.received_bytes > 0, "{what}: {summary:?}");
    let received: u64 = intervals
        .iter()
        .flat_map(|interval| interval.client.flows.iter().chain(&interval.server.flows))
        .map(|flow| flow.received_bytes)
        .sum();
    assert_eq!(summary.received_bytes, received, "{what}");
    let (to_server, to_client) = match config.direction {
        Direction::Forward => (true, false),
        Direction::Reverse => (false, true),
        Direction::Both => (true, true),
    };
    let any = |side: fn(&clearstream_schema::flow::Interval) -> &clearstream_schema::flow::SideInterval| {
        intervals.iter().any(|interval| side(interval).flows.iter().any(|flow| flow.received_bytes > 0))
    };
    assert_eq!((any(|i| &i.server), any(|i| &i.client)), (to_server, to_client), "{what}");
    let flow = &intervals[0].client.flows[0];
    assert_eq!(flow.sender_core.is_some(), config.direction != Direction::Reverse, "{what}");
    assert_eq!(flow.tcp.is_some(), config.protocol != Protocol::Udp, "{what}");
    assert!(
        intervals.iter().map(|i| i.client.thread_cpu_ns + i.server.thread_cpu_ns).sum::<u64>() > 0,
        "{what}"
    );
    assert!(intervals.iter().all(|interval| !interval.client.cores.is_empty()), "{what}");
}

fn both_flows(method: SendMethod, receive: ReceiveMethod) {
    for direction in DIRECTIONS {
        moves(&FlowConfig { direction, method, receive, flows: 2, ..short() });
    }
}

#[test]
fn copy() {
    both_flows(SendMethod::Copy, ReceiveMethod::Copy);
}

/// 64 KiB each 10 ms are 52 Mb/s, and one more at the start.
#[test]
fn a_reader_that_sleeps_or_computes_is_slow_and_its_cpu_time_shows_it() {
    let pause = Some(clearstream_schema::TimeSpan::from_millis(10));
    let slow = FlowConfig { transfer: Some(ByteCount(64 << 10)), ..short() };
    let run = |config: FlowConfig| {
        let (summary, intervals) = measure(&config).unwrap();
        assert!(summary.received_bytes > 0 && summary.goodput_bps < 60e6, "{}", summary.goodput_bps);
        let times = intervals
            .iter()
            .flat_map(|interval| &interval.server.flows)
            .filter_map(|flow| flow.receiver_time);
        times.fold((0, 0), |(run, user), time| (run + time.run_ns, user + time.user_ns))
    };
    let (rests, _) = run(FlowConfig { receiver_pause: pause, ..slow.clone() });
    let (computes, user) = run(FlowConfig { receiver_work: pause, ..slow });
    assert!(rests * 2 < computes && user > 0, "{rests} {computes} {user}");
}

#[test]
fn zerocopy() {
    both_flows(SendMethod::Zerocopy, ReceiveMethod::Copy);
    let (summary, _) = measure(&FlowConfig { method: SendMethod::Zerocopy, ..short() }).unwrap();
    let count = summary.zerocopy.unwrap();
    // msg_zerocopy.rst: loopback always copies.
    assert!(count.completed_count > 0 && count.copied_count == count.completed_count, "{count:?}");
    assert!(summary.notices.iter().any(|notice| notice.id == "zerocopy-copied"));
}

#[test]
fn sendfile() {
    both_flows(SendMethod::Sendfile, ReceiveMethod::Copy);
}

#[test]
fn splice() {
    both_flows(SendMethod::Splice, ReceiveMethod::Splice);
}

#[test]
fn io_uring() {
    both_flows(SendMethod::IoUring, ReceiveMethod::IoUring);
}

#[test]
fn discard_is_labelled() {
    both_flows(SendMethod::Copy, ReceiveMethod::Discard);
    let (summary, _) = measure(&FlowConfig { receive: ReceiveMethod::Discard, ..short() }).unwrap();
    assert!(summary.notices.iter().any(|notice| notice.message.contains("discard")));
    assert_eq!(summary.server_settings.flows[0].receive, Some(ReceiveMethod::Discard));
}

#[test]
fn udp() {
    for direction in DIRECTIONS {
        for datagram in [None, Some(ByteCount(1400))] {
            moves(&FlowConfig { protocol: Protocol::Udp, direction, datagram, flows: 2, ..short() });
        }
    }
}

#[test]
fn mptcp() {
    let enabled = std::fs::read_to_string("/proc/sys/net/mptcp/enabled").unwrap_or_default();
    if enabled.trim() != "1" {
        let failure = measure(&FlowConfig { protocol: Protocol::Mptcp, ..short() }).unwrap_err();
        assert!(failure.to_string().contains("net.mptcp.enabled"), "{failure}");
        return;
    }
    for direction in DIRECTIONS {
        moves(&FlowConfig { protocol: Protocol::Mptcp, direction, ..short() });
    }
}

#[test]
fn an_amount_of_data_arrives_to_the_byte() {
    for method in [SendMethod::Copy, SendMethod::Sendfile, SendMethod::Splice, SendMethod::IoUring] {
        let bytes = Some(ByteCount(10_000_019));
        let (summary, intervals) = measure(&FlowConfig { bytes, method, flows: 2, ..short() }).unwrap();
        assert_eq!(summary.received_bytes, 20_000_038, "{method:?}");
        assert!(summary.complete && intervals.iter().all(|interval| !interval.warm_up));
    }
}

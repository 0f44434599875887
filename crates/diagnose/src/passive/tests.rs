//! Connections by their samples. Numbers of single states are those of real ones (Linux 6.18, iperf3 3.18
//! and Python over a path of 16 ms, and over loopback).

use clearstream_schema::{
    connections::{
        Connection, ConnectionCause, ConnectionRemedy, ConnectionVerdict, Connections, SocketOwner, TcpSocket,
    },
    flow::SocketMemory,
    tcp_info::TcpInfo,
};
use proptest::prelude::*;

use super::{ConnectionFilter, Observed, SocketSample, SocketSeries, explain_connections};

const SECOND: u64 = 1_000_000_000;
const INTERVAL: u64 = 137_000_000;
const MSS: u32 = 8948;

/// A socket of a path of 16 ms without anything to do.
fn socket(local: &str, remote: &str) -> TcpSocket {
    TcpSocket {
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        state: 1,
        timer: 0,
        timer_count: 0,
        cookie: 1,
        interface_index: 0,
        receive_queue_bytes: 0,
        send_queue_bytes: 0,
        uid: 0,
        inode: 7,
        memory: SocketMemory {
            receive_limit_bytes: 131_072,
            send_limit_bytes: 332_800,
            ..SocketMemory::default()
        },
        congestion_control: Some("cubic".to_owned()),
        bbr: None,
        class_id: None,
        cgroup_id: None,
        tcp: TcpInfo {
            returned_bytes: 280,
            state: 1,
            send_mss_bytes: MSS,
            rtt_ns: 16_500_000,
            min_rtt_ns: Some(16_200_000),
            congestion_window_count: 82,
            acked_bytes: Some(0),
            received_bytes: Some(0),
            sent_bytes: Some(0),
            retransmitted_bytes: Some(0),
            not_sent_bytes: Some(0),
            busy_ns: Some(0),
            receive_window_limited_ns: Some(0),
            send_buffer_limited_ns: Some(0),
            send_window_bytes: Some(2_000_000),
            receive_window_bytes: Some(63_488),
            ..TcpInfo::default()
        },
    }
}

pub(super) fn series(of: &TcpSocket, step: impl Fn(&mut TcpSocket, u64)) -> SocketSeries {
    let mut series = SocketSeries {
        host: None,
        namespace: None,
        owners: vec![SocketOwner {
            pid: 4711,
            program: "python3".to_owned(),
            stopped: false,
            busiest_thread_ratio: Some(0.1),
        }],
        receive_buffer_max_bytes: Some(67_108_864),
        send_buffer_max_bytes: Some(67_108_864),
        samples: Vec::new(),
    };
    for number in 0..22 {
        let mut socket = of.clone();
        step(&mut socket, number * INTERVAL);
        series.push(number * INTERVAL, socket);
    }
    series
}

/// Counters of a sender: rate, and fractions of the time busy, waiting for window and for buffer.
fn sends(socket: &mut TcpSocket, at_ns: u64, bps: f64, [busy, window, buffer]: [f64; 3]) {
    let part = |ratio: f64| Some((at_ns as f64 * ratio) as u64);
    let bytes = part(bps / 8e9);
    (socket.tcp.acked_bytes, socket.tcp.sent_bytes) = (bytes, bytes);
    socket.tcp.busy_ns = part(busy);
    socket.tcp.receive_window_limited_ns = part(window);
    socket.tcp.send_buffer_limited_ns = part(buffer);
}

fn receives(socket: &mut TcpSocket, at_ns: u64, bps: f64) {
    socket.tcp.received_bytes = Some((at_ns as f64 * bps / 8e9) as u64);
}

pub(super) fn sender() -> TcpSocket {
    socket("10.0.0.1:42186", "10.0.0.2:5201")
}

fn receiver() -> TcpSocket {
    socket("10.0.0.2:5201", "10.0.0.1:42186")
}

fn explained(series: Vec<SocketSeries>) -> Connections {
    let observed = Observed { duration_ns: 3 * SECOND, sample_count: 22, series, ..Observed::default() };
    explain_connections(&observed, &"all".parse::<ConnectionFilter>().unwrap(), 10)
}

fn only(series: Vec<SocketSeries>) -> Connection {
    let [one] = &explained(series).connections[..] else { panic!("not one connection") };
    one.clone()
}

fn cause(connection: &Connection) -> &ConnectionCause {
    match &connection.verdict {
        ConnectionVerdict::Found(finding) => {
            assert!(!finding.evidence.is_empty() && !finding.remedies.is_empty(), "{finding:?}");
            assert!(finding.evidence.iter().all(|item| item.source.starts_with("samples of 10.0.0.")));
            &finding.cause
        }
        other => panic!("{other:?}"),
    }
}

fn near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.02, "{value} instead of {expected}");
}

/// 113 KiB * 8 / 16.5 ms = 56.1 Mb/s, by hand.
#[test]
fn a_small_window_is_the_receivers_and_its_arithmetic_is_shown() {
    let mut waiting = sender();
    waiting.tcp.send_window_bytes = Some(115_712);
    let waiting = series(&waiting, |socket, at| sends(socket, at, 50.2e6, [1.0, 0.98, 0.0]));
    let alone = only(vec![waiting.clone()]);
    let ConnectionCause::ReceiverWindow { window_bytes, bound_bps, buffer_bytes } = cause(&alone) else {
        panic!("{alone:?}")
    };
    assert_eq!((*window_bytes, *buffer_bytes), (115_712, None));
    near(*bound_bps, 56.1e6);
    let ConnectionVerdict::Found(finding) = &alone.verdict else { unreachable!() };
    let text = finding.evidence.iter().map(|item| &*item.statement).collect::<Vec<_>>().join("\n");
    assert!(text.contains("113 KiB * 8 / 16.5 ms = 56.1 Mb/s"), "{text}");

    let reading = series(&receiver(), |socket, at| receives(socket, at, 50.2e6));
    let joined = only(vec![reading, waiting]);
    let ConnectionCause::ReceiverWindow { buffer_bytes, .. } = cause(&joined) else { panic!("{joined:?}") };
    assert_eq!(*buffer_bytes, Some(131_072));
    assert_eq!(joined.peer.as_ref().unwrap().local, receiver().local);
}

#[test]
fn a_buffer_at_the_maximum_of_its_sysctl_names_that() {
    let mut waiting = sender();
    waiting.tcp.send_window_bytes = Some(115_712);
    let waiting = series(&waiting, |socket, at| sends(socket, at, 50.2e6, [1.0, 0.98, 0.0]));
    let mut reading = series(&receiver(), |socket, at| receives(socket, at, 50.2e6));
    reading.receive_buffer_max_bytes = Some(131_072);
    let joined = only(vec![waiting, reading]);
    let ConnectionVerdict::Found(finding) = &joined.verdict else { panic!("{joined:?}") };
    let ConnectionRemedy::RaiseSysctl { name, field: 2, at_least: 262_144, .. } = &finding.remedies[0] else {
        panic!("{finding:?}")
    };
    assert_eq!(name, "net.ipv4.tcp_rmem");
}

#[test]
fn a_full_send_buffer_with_room_in_the_congestion_window_is_the_limit() {
    let mut writing = sender();
    writing.memory.send_limit_bytes = 131_072;
    writing.memory.send_queued_bytes = 133_000;
    writing.send_queue_bytes = 131_072;
    writing.tcp.unacked_count = 15;
    let found = only(vec![series(&writing, |socket, at| sends(socket, at, 60.5e6, [1.0, 0.0, 0.0]))]);
    let ConnectionCause::SendBuffer { buffer_bytes: 131_072, bound_bps, .. } = cause(&found) else {
        panic!("{found:?}")
    };
    near(*bound_bps, 63.55e6);
}

/// `ss -tim` of iperf3 3.22 with `tcp_wmem` of 512 KiB over 17 ms: the writer is woken at two thirds.
#[test]
fn a_send_buffer_between_two_thirds_and_full_is_the_limit() {
    const STATES: [(u32, u32, u32); 3] =
        [(399_872, 393_216, 44), (463_340, 455_852, 51), (536_588, 527_436, 59)];
    let mut writing = sender();
    writing.memory.send_limit_bytes = 524_288;
    writing.tcp.congestion_window_count = 134;
    writing.tcp.rtt_ns = 17_600_000;
    writing.tcp.delivery_rate_app_limited = true;
    let of = |least: usize| {
        series(&writing, |socket, at| {
            sends(socket, at, 183e6, [1.0, 0.014, 0.002]);
            let state = STATES[(at / INTERVAL) as usize % STATES.len()];
            let (queued, unacknowledged, count) = if least == 0 { state } else { STATES[0] };
            socket.memory.send_queued_bytes = queued - least as u32;
            (socket.send_queue_bytes, socket.tcp.unacked_count) = (unacknowledged, count);
        })
    };
    assert!(matches!(cause(&only(vec![of(0)])), ConnectionCause::SendBuffer { buffer_bytes: 524_288, .. }));
    // Just writable: the program could write, and does not.
    let writable = only(vec![of(399_872 - 349_525)]);
    assert!(matches!(cause(&writable), ConnectionCause::SenderApplication { .. }), "{writable:?}");
}

#[test]
fn a_writer_that_pauses_and_one_that_computes_differ() {
    let pausing = series(&sender(), |socket, at| sends(socket, at, 19.9e6, [0.35, 0.0, 0.0]));
    assert!(matches!(cause(&only(vec![pausing.clone()])), ConnectionCause::SenderApplication { .. }));
    let mut computing = pausing;
    computing.owners[0].busiest_thread_ratio = Some(0.99);
    assert!(matches!(cause(&only(vec![computing])), ConnectionCause::Cpu { pid: 4711, .. }));
}

#[test]
fn unread_data_accuses_the_reader_and_a_stopped_one_by_name() {
    let mut full = receiver();
    full.receive_queue_bytes = 95_232;
    full.tcp.receive_window_bytes = Some(20_000);
    let mut reading = series(&full, |socket, at| receives(socket, at, 19e6));
    let slow = only(vec![reading.clone()]);
    assert!(matches!(
        cause(&slow),
        ConnectionCause::ReceiverApplication { stopped: false, unread_bytes: 95_232 }
    ));
    reading.owners[0].stopped = true;
    let stopped = only(vec![reading.clone()]);
    assert!(matches!(cause(&stopped), ConnectionCause::ReceiverApplication { stopped: true, .. }));
    reading.owners[0] =
        SocketOwner { stopped: false, busiest_thread_ratio: Some(0.97), ..reading.owners[0].clone() };
    assert!(matches!(cause(&only(vec![reading])), ConnectionCause::Cpu { .. }));
}

/// Both are at the window that the kernel gave a slow reader: only the queue distinguishes a slow reader from a small buffer.
#[test]
fn a_window_that_a_slow_reader_keeps_small_is_not_its_buffer() {
    let sending = series(&sender(), |socket, at| {
        sends(socket, at, 25e6, [1.0, 0.8, 0.0]);
        socket.tcp.send_window_bytes = Some(65_536);
    });
    let mut end = receiver();
    end.tcp.receive_window_bytes = Some(65_536);
    end.receive_queue_bytes = 30_000;
    let slow = series(&end, |socket, at| receives(socket, at, 25e6));
    let found = only(vec![sending.clone(), slow]);
    assert!(matches!(cause(&found), ConnectionCause::ReceiverApplication { .. }), "{found:?}");
    end.receive_queue_bytes = 0;
    let fast = series(&end, |socket, at| receives(socket, at, 25e6));
    let found = only(vec![sending, fast]);
    assert!(matches!(cause(&found), ConnectionCause::ReceiverWindow { .. }), "{found:?}");
}

#[test]
fn data_that_nobody_acknowledges_is_a_closed_window_or_a_silent_path() {
    let mut stuck = sender();
    stuck.send_queue_bytes = 4_182_455;
    (stuck.timer, stuck.timer_count) = (4, 3);
    stuck.tcp.send_window_bytes = Some(0);
    let probing = series(&stuck, |socket, at| sends(socket, at, 0.0, [1.0, 1.0, 0.0]));
    assert!(matches!(cause(&only(vec![probing])), ConnectionCause::ZeroWindow { probe_count: 3 }));
    (stuck.timer, stuck.timer_count) = (1, 4);
    stuck.tcp.send_window_bytes = Some(2_000_000);
    stuck.tcp.unacked_count = 100;
    let silent = series(&stuck, |socket, at| sends(socket, at, 0.0, [1.0, 0.0, 0.0]));
    let found = only(vec![silent]);
    let ConnectionCause::NoAcknowledgement { retransmit_count: 4, unacknowledged_bytes } = cause(&found)
    else {
        panic!("{found:?}")
    };
    assert_eq!(*unacknowledged_bytes, 100 * u64::from(MSS));
}

#[test]
fn a_standing_queue_is_the_path_and_losses_without_one_are_not() {
    let mut full = sender();
    full.send_queue_bytes = 9_000_000;
    full.tcp.not_sent_bytes = Some(6_000_000);
    full.tcp.unacked_count = 270;
    full.tcp.congestion_window_count = 277;
    let mut queued = full.clone();
    queued.tcp.rtt_ns = 40_200_000;
    let queued = only(vec![series(&queued, |socket, at| sends(socket, at, 497e6, [1.0, 0.0, 0.0]))]);
    assert!(matches!(cause(&queued), ConnectionCause::PathCapacity { queue_ns: 24_000_000, .. }));
    full.tcp.congestion_window_count = 45;
    full.tcp.unacked_count = 45;
    let lossy = only(vec![series(&full, |socket, at| {
        sends(socket, at, 200e6, [1.0, 0.0, 0.0]);
        socket.tcp.retransmitted_bytes = socket.tcp.sent_bytes.map(|sent| sent / 1000);
    })]);
    let ConnectionCause::Loss { loss_ratio, bound_bps } = cause(&lossy) else { panic!("{lossy:?}") };
    near(*loss_ratio, 0.001);
    near(*bound_bps, 195.2e6);
}

#[test]
fn pacing_of_the_socket_is_named() {
    let mut paced = sender();
    paced.tcp.max_pacing_rate_bps = Some(100_000_000);
    let found = only(vec![series(&paced, |socket, at| sends(socket, at, 97e6, [1.0, 0.0, 0.0]))]);
    assert!(matches!(cause(&found), ConnectionCause::Pacing { .. }));
}

#[test]
fn one_end_that_does_not_show_it_is_unknown_and_nothing_moving_is_idle() {
    let reading = series(&receiver(), |socket, at| receives(socket, at, 60e6));
    let ConnectionVerdict::Unknown { because, next } = only(vec![reading]).verdict else { panic!() };
    assert!(because.contains("60.0 Mb/s") && next.contains("sender's host"), "{because}; {next}");
    let idle = series(&sender(), |_, _| ());
    assert_eq!(idle.samples.len(), 2, "of equal samples the first and the last are kept");
    assert_eq!(only(vec![idle]).verdict, ConnectionVerdict::Idle);
    let mut short = series(&sender(), |socket, at| sends(socket, at, 1e6, [1.0, 0.0, 0.0]));
    short.samples.truncate(2);
    let ConnectionVerdict::Unknown { because, .. } = only(vec![short]).verdict else { panic!() };
    assert!(because.contains("0.1 s only"), "{because}");
}

/// Loopback addresses repeat in every namespace: ends of the same one belong together.
#[test]
fn ends_are_joined_within_their_namespace_first() {
    let busy = |bps: f64, namespace: Option<u32>| {
        let one = series(&sender(), |socket, at| sends(socket, at, bps, [0.2, 0.0, 0.0]));
        let two = series(&receiver(), |socket, at| receives(socket, at, bps));
        [one, two].map(|series| SocketSeries { namespace, ..series })
    };
    let ([a, b], [c, d]) = (busy(5e6, None), busy(9e6, Some(77)));
    let found = explained(vec![a, c, d, b]);
    assert_eq!(found.matched_count, 2);
    let rates: Vec<_> = found
        .connections
        .iter()
        .map(|one| (one.end.namespace, one.peer.as_ref().unwrap().namespace))
        .collect();
    assert_eq!(rates, [(Some(77), Some(77)), (None, None)], "the busiest first");
}

fn any_series() -> impl Strategy<Value = SocketSeries> {
    let numbers = prop::collection::vec(any::<u32>(), 12);
    let sample = (any::<u32>(), numbers, any::<(u8, u8, bool)>());
    prop::collection::vec(sample, 0..6).prop_map(|samples| {
        let mut one = series(&sender(), |_, _| ());
        one.samples = samples
            .into_iter()
            .map(|(at, numbers, (timer, count, limited))| {
                let mut socket = if numbers[0] % 2 == 0 { sender() } else { receiver() };
                (socket.timer, socket.timer_count) = (timer % 5, count);
                (socket.receive_queue_bytes, socket.send_queue_bytes) = (numbers[1] >> 1, numbers[2] >> 1);
                socket.tcp = TcpInfo {
                    acked_bytes: limited.then_some(u64::from(numbers[3])),
                    received_bytes: Some(u64::from(numbers[4])),
                    busy_ns: Some(u64::from(numbers[5])),
                    receive_window_limited_ns: Some(u64::from(numbers[6])),
                    rtt_ns: u64::from(numbers[7]),
                    congestion_window_count: numbers[8],
                    send_window_bytes: Some(numbers[9]),
                    unacked_count: numbers[10],
                    sent_bytes: Some(u64::from(numbers[11])),
                    retransmitted_bytes: Some(u64::from(numbers[10])),
                    max_pacing_rate_bps: limited.then_some(0),
                    ..TcpInfo::default()
                };
                SocketSample { at_ns: u64::from(at), socket }
            })
            .collect();
        one
    })
}

proptest! {
    /// Also counters that go back and times out of order.
    #[test]
    fn any_samples_are_explained(series in prop::collection::vec(any_series(), 0..5)) {
        let found = explained(series.clone());
        prop_assert!(found.matched_count <= series.len() as u64);
        prop_assert!(clearstream_schema::json::to_string(&found).is_ok());
    }
}

use clearstream_schema::{
    TimeSpan,
    counters::CoreCounters,
    flow::{FlowInterval, SideInterval},
    tcp_info::TcpInfo,
};

use super::*;

/// One flow's interval as its sender saw it.
fn sent(retransmits: u32, rtt_us: u64) -> FlowInterval {
    FlowInterval {
        sent_bytes: 1,
        sender_core: Some(0),
        tcp: Some(TcpInfo {
            rtt_ns: rtt_us * 1000,
            min_rtt_ns: Some(rtt_us * 500),
            total_retransmit_count: retransmits,
            ..TcpInfo::default()
        }),
        ..FlowInterval::default()
    }
}

fn received(bytes: u64) -> FlowInterval {
    FlowInterval { received_bytes: bytes, receiver_core: Some(1), ..FlowInterval::default() }
}

fn side(seconds: (u64, u64), cpu_ms: u64, flow: FlowInterval) -> SideInterval {
    SideInterval {
        start_ns: seconds.0 * 1_000_000_000,
        end_ns: seconds.1 * 1_000_000_000,
        thread_cpu_ns: cpu_ms * 1_000_000,
        flows: vec![flow],
        ..SideInterval::default()
    }
}

fn interval(warm_up: bool, client: SideInterval, server: SideInterval) -> Interval {
    Interval { index: 0, warm_up, goodput_bps: 0.0, directions: Vec::new(), client, server }
}

fn summary(config: &FlowConfig, intervals: &[Interval]) -> FlowSummary {
    let mut totals = Totals::new(config);
    intervals.iter().for_each(|interval| totals.add(interval));
    totals.summary(SummaryInputs {
        client: FlowSettings::default(),
        server: FlowSettings::default(),
        notices: Vec::new(),
        dropped_count: 0,
        complete: true,
    })
}

#[test]
fn goodput_is_what_the_receiver_got_in_its_own_measured_time() {
    let intervals = [
        interval(true, side((0, 1), 900, sent(100, 50)), side((0, 1), 900, received(7_000_000_000))),
        interval(false, side((1, 2), 200, sent(104, 40)), side((1, 2), 300, received(1_000_000_000))),
        interval(false, side((2, 3), 200, sent(110, 60)), side((2, 4), 300, received(2_000_000_000))),
    ];
    let summary = summary(&FlowConfig::default(), &intervals);
    // 3 GB in the receiver's 1 + 2 s; the sender's clock and the warm-up do not matter.
    assert_eq!((summary.received_bytes, summary.measured_ns), (3_000_000_000, 3_000_000_000));
    assert_eq!((summary.goodput_bps, summary.flow_goodput_bps), (8e9, vec![8e9]));
    // 0.4 s and 0.6 s of CPU for 3 GB.
    assert!((summary.client_cpu_seconds_per_gb - 0.4 / 3.0).abs() < 1e-12);
    assert!((summary.server_cpu_seconds_per_gb - 0.2).abs() < 1e-12);
    assert_eq!(summary.retransmit_count, Some(10), "those of the warm-up do not count");
    // Of two values the nearest rank is the lower.
    assert_eq!((summary.rtt_ns, summary.min_rtt_ns), (Some(40_000), Some(20_000)));
    assert_eq!(summary.seen_cores, [(0, Some(0), Some(1))]);
    assert_eq!((summary.loss_ratio, summary.zerocopy, summary.cycles_per_byte_ratio), (None, None, None));
}

#[test]
fn both_directions_add_up_each_over_its_own_time() {
    let config = FlowConfig { direction: Direction::Both, warm_up: TimeSpan(0), ..FlowConfig::default() };
    let mut client = received(1_000_000_000);
    client.tcp = sent(3, 50).tcp;
    let mut server = received(3_000_000_000);
    server.tcp = sent(4, 50).tcp;
    let intervals = [interval(false, side((0, 1), 0, client), side((0, 2), 0, server))];
    let summary = summary(&config, &intervals);
    assert_eq!(summary.received_bytes, 4_000_000_000);
    assert_eq!(summary.goodput_bps, 8e9 + 12e9);
    assert_eq!(summary.retransmit_count, Some(7));
    // Each direction by itself.
    let each: Vec<_> = summary
        .directions
        .iter()
        .map(|one| (one.direction, one.goodput_bps, one.received_bytes, one.retransmit_count))
        .collect();
    assert_eq!(
        each,
        [
            (Direction::Forward, 12e9, 3_000_000_000, Some(3)),
            (Direction::Reverse, 8e9, 1_000_000_000, Some(4)),
        ]
    );
}

/// CPU time of the data threads is reported separately from the host's.
#[test]
fn cpu_of_the_threads_is_separate_from_that_of_the_host() {
    let core = |core| CoreCounters {
        core,
        user_ns: 400_000_000,
        system_ns: 300_000_000,
        softirq_ns: 200_000_000,
        idle_ns: 100_000_000,
        ..CoreCounters::default()
    };
    let mut client = side((0, 1), 250, sent(0, 50));
    client.cores = vec![core(0), core(1)];
    let summary =
        summary(&FlowConfig::default(), &[interval(false, client, side((0, 1), 500, received(1000)))]);
    let client = summary.client_cpu.unwrap();
    assert!((client.threads_ratio - 0.25).abs() < 1e-9);
    assert!((client.host_ratio.unwrap() - 1.8).abs() < 1e-9);
    assert!((client.host_softirq_ratio.unwrap() - 0.4).abs() < 1e-9);
    let server = summary.server_cpu.unwrap();
    assert_eq!((server.threads_ratio, server.host_ratio), (0.5, None), "counters that were not read");
}

#[test]
fn loss_is_lost_of_lost_and_received() {
    let mut flow = received(10);
    (flow.datagram_count, flow.lost_count) = (Some(75), Some(25));
    (flow.reordered_count, flow.jitter_ns) = (Some(3), Some(7000));
    let silent = FlowInterval::default();
    let summary =
        summary(&FlowConfig::default(), &[interval(false, side((0, 1), 0, silent), side((0, 1), 0, flow))]);
    assert_eq!(summary.loss_ratio, Some(0.25));
    let one = &summary.directions[0];
    assert_eq!((one.datagram_count, one.lost_count, one.loss_ratio), (Some(75), Some(25), Some(0.25)));
    assert_eq!((one.reordered_count, one.jitter_ns), (Some(3), Some(7000)));
    assert_eq!((summary.retransmit_count, summary.rtt_ns), (None, None));
}

#[test]
fn copied_zerocopy_and_cycles_are_reported() {
    let mut sender = sent(0, 50);
    sender.zerocopy = Some(ZerocopyCount { completed_count: 8, copied_count: 6 });
    let mut client = side((0, 1), 0, sender);
    client.cycle_count = Some(400);
    let mut server = side((0, 1), 0, received(1000));
    server.cycle_count = Some(600);
    let summary = summary(&FlowConfig::default(), &[interval(false, client, server)]);
    assert_eq!(summary.cycles_per_byte_ratio, Some(1.0));
    let notice = summary.notices.iter().find(|notice| notice.id == "zerocopy-copied").unwrap();
    assert!(notice.message.starts_with("75 %"), "{}", notice.message);
}

#[test]
fn nothing_measured_is_zero_and_no_division_by_it() {
    let summary = summary(&FlowConfig::default(), &[]);
    assert_eq!((summary.goodput_bps, summary.received_bytes, summary.measured_ns), (0.0, 0, 0));
    assert_eq!(summary.client_cpu_seconds_per_gb, 0.0);
    assert_eq!(summary.flow_goodput_bps, [0.0]);
}

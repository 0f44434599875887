//! The measured signatures, one test for each conclusion.

use clearstream_diagnose::{Evidence, explain};
use clearstream_schema::{
    BitRate, ByteCount, TimeSpan,
    diagnosis::{BufferLimit, Cause, Diagnosis, Finding, Remedy, Role, StageName, Verdict},
    flow::FlowConfig,
    probe::{ProbeDirection, ProbeSummary},
};

use super::made::{Shown, host};

pub fn found(diagnosis: &Diagnosis) -> &Finding {
    match &diagnosis.primary {
        Verdict::Found(finding) => finding,
        Verdict::Unknown { because, .. } => panic!("unknown: {because}"),
    }
}

fn cause_of(shown: &Shown) -> Cause {
    found(&explain(&shown.evidence())).cause.clone()
}

#[test]
fn small_receive_buffer_of_the_program() {
    let shown = Shown::small_receive_buffer();
    let mut evidence = shown.evidence();
    evidence.goal = Some(BitRate(10_000_000_000));
    let diagnosis = explain(&evidence);
    let Cause::ReceiverWindow { held_by, needed_window_bytes, .. } = &found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    assert_eq!(*held_by, BufferLimit::Explicit(1 << 20));
    // 10 Gb/s * 20 ms / 8 = 25 MB.
    assert_eq!(*needed_window_bytes, 25_000_000);
    let stage = diagnosis.stages.iter().find(|stage| stage.limiting).unwrap();
    assert_eq!(stage.name, StageName::ReceiverWindow);
    assert!((stage.ceiling_bps.unwrap() / 585e6 - 1.0).abs() < 0.03, "{stage:?}");
}

#[test]
fn small_maximum_of_the_receive_buffer() {
    let shown = Shown {
        goodput_bps: 1e9,
        window_limited: 0.97,
        receive_buffer: 4 << 20,
        offered: 2_621_440,
        not_sent: 4 << 20,
        buffer_fill: 0.9,
        ..Shown::default()
    };
    let mut evidence = shown.evidence();
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_rmem".into(), "4096 131072 4194304".into());
    let diagnosis = explain(&evidence);
    let finding = found(&diagnosis);
    assert!(matches!(
        &finding.cause,
        Cause::ReceiverWindow { held_by: BufferLimit::Sysctl { name, value_bytes: 4_194_304, .. }, .. }
            if name == "net.ipv4.tcp_rmem"
    ));
    assert!(
        matches!(&finding.remedies[0], Remedy::RaiseSysctl { field: 2, at_least, .. } if *at_least > 4_194_304)
    );
    assert!(diagnosis.suggestions[0].command.as_ref().unwrap().contains("tcp_rmem=\"4096 131072 "));
}

#[test]
fn slow_reader() {
    let base = Shown {
        goodput_bps: 50e6,
        window_limited: 1.0,
        unacked: 15,
        window: 76,
        not_sent: 1_900_000,
        buffer_fill: 0.83,
        receive_fill: 0.56,
        offered: 3000,
        rtt_ns: 35_000_000,
        ..Shown::default()
    };
    let sleeps = Shown { reader: (0.02, 0.01, 0.2), ..base.clone() };
    assert!(matches!(cause_of(&sleeps), Cause::ReceiverApplication { computes: false, .. }));
    let computes = Shown { reader: (0.95, 0.03, 0.9), ..base.clone() };
    assert!(matches!(cause_of(&computes), Cause::ReceiverApplication { computes: true, .. }));
    // In the kernel's copy all the time: the core, not the program.
    let copies = Shown { reader: (0.93, 0.05, 0.02), ..base };
    assert!(matches!(cause_of(&copies), Cause::Cpu { role: Role::Receiver, .. }));
}

#[test]
fn send_buffer_though_the_clock_of_the_kernel_is_low() {
    // tcp_wmem[2] of 4 MiB over 20 ms: 1.46 Gb/s predicted.
    let shown = Shown {
        goodput_bps: 1.28e9,
        buffer_limited: 0.24,
        window_limited: 0.02,
        unacked: 370,
        window: 880,
        not_sent: 0,
        buffer_fill: 0.95,
        buffer: 4 << 20,
        app_limited: true,
        ..Shown::default()
    };
    let diagnosis = explain(&shown.evidence());
    let finding = found(&diagnosis);
    assert!(
        matches!(&finding.cause, Cause::SendBuffer { held_by: BufferLimit::Sysctl { .. }, .. }),
        "{finding:?}"
    );
    assert_eq!(finding.sentence.matches("held by").count(), 1, "{}", finding.sentence);
    let stage = diagnosis.stages.iter().find(|stage| stage.limiting).unwrap();
    assert!((stage.ceiling_bps.unwrap() / 1.46e9 - 1.0).abs() < 0.01, "{stage:?}");
}

#[test]
fn explicit_send_buffer_is_not_the_application() {
    // SO_SNDBUF 256 KiB (512 KiB effective), blocking writer: 190 Mb/s.
    let shown = Shown {
        config: FlowConfig { send_buffer: Some(ByteCount(256 << 10)), ..FlowConfig::default() },
        goodput_bps: 190e6,
        unacked: 49,
        window: 149,
        not_sent: 0,
        buffer_fill: 0.9,
        buffer: 512 << 10,
        app_limited: true,
        ..Shown::default()
    };
    assert!(matches!(cause_of(&shown), Cause::SendBuffer { held_by: BufferLimit::Explicit(262_144), .. }));
}

#[test]
fn writer_that_pauses() {
    // 100 KB every 10 ms: busy all the time, and yet the program.
    let dense = Shown {
        goodput_bps: 80e6,
        window_limited: 0.04,
        unacked: 23,
        window: 58,
        buffer_fill: 0.35,
        app_limited: true,
        ..Shown::default()
    };
    assert!(matches!(cause_of(&dense), Cause::SenderApplication { .. }));
    // Fills the path, then rests for most of the time.
    let bursts = Shown { busy: 0.4, unacked: 590, window: 600, rtt_ns: 40_000_000, ..Shown::default() };
    assert!(matches!(cause_of(&bursts), Cause::SenderApplication { .. }));
    // Gaps over a path of microseconds.
    let idle = Shown {
        busy: 0.01,
        unacked: 0,
        buffer_fill: 0.0,
        rtt_ns: 60_000,
        min_rtt_ns: 40_000,
        app_limited: true,
        ..Shown::default()
    };
    assert!(matches!(cause_of(&idle), Cause::SenderApplication { .. }));
}

/// A flow of cubic through a bottleneck of 500 Mb/s whose queue it fills.
pub fn full_queue() -> Shown {
    Shown {
        goodput_bps: 490e6,
        window_limited: 0.04,
        unacked: 263,
        window: 265,
        not_sent: 7 << 20,
        buffer_fill: 1.0,
        rtt_ns: 37_700_000,
        loss: 1e-5,
        ..Shown::default()
    }
}

#[test]
fn bottleneck_with_a_full_queue() {
    let cubic = full_queue();
    let diagnosis = explain(&cubic.evidence());
    let finding = found(&diagnosis);
    assert!(matches!(finding.cause, Cause::PathCapacity { queue_ns: 17_700_000, .. }), "{finding:?}");
    assert!(!finding.fault && diagnosis.secondary.is_empty());
    let bbr = Shown {
        unacked: 255,
        window: 400,
        not_sent: 15 << 20,
        buffer_fill: 0.79,
        rtt_ns: 39_000_000,
        ..cubic
    };
    assert!(matches!(cause_of(&bbr), Cause::PathCapacity { .. }));
    // A token bucket of 200 Mb/s behind microseconds.
    let near = Shown {
        goodput_bps: 190e6,
        unacked: 83,
        window: 90,
        not_sent: 800_000,
        rtt_ns: 5_400_000,
        min_rtt_ns: 5_000,
        ..Shown::default()
    };
    assert!(matches!(cause_of(&near), Cause::PathCapacity { .. }));
}

#[test]
fn pacing_of_the_socket() {
    let shown = Shown {
        goodput_bps: 198e6,
        window_limited: 0.03,
        unacked: 64,
        window: 184,
        not_sent: 3_700_000,
        buffer_fill: 0.71,
        max_pacing: Some(200_000_000),
        ..Shown::default()
    };
    assert!(matches!(cause_of(&shown), Cause::Pacing { by_socket: true, .. }));
    // A limit that is not reached is not the limit.
    let far = Shown { max_pacing: Some(100_000_000_000), ..Shown { window_limited: 0.98, ..shown } };
    assert!(matches!(cause_of(&far), Cause::ReceiverWindow { .. }));
}

#[test]
fn losses_without_a_queue() {
    // 0.01 % over 17 ms: 1.22 / sqrt(1e-4) = 122 segments of 8948 bytes, 516 Mb/s (Mathis).
    let shown = Shown {
        goodput_bps: 500e6,
        rtt_ns: 17_200_000,
        min_rtt_ns: 17_000_000,
        unacked: 118,
        window: 120,
        not_sent: 3 << 20,
        buffer_fill: 1.0,
        loss: 1e-4,
        ..Shown::default()
    };
    let Cause::Loss { bound_bps, tolerable_ratio, .. } = cause_of(&shown) else { panic!() };
    assert!((bound_bps / 516e6 - 1.0).abs() < 0.02, "{bound_bps}");
    assert!(tolerable_ratio < 1e-4);
}

/// A joined packet of 7 segments is dropped now and then, or many were at the
/// start: what counts is how often the window was cut.
#[test]
fn losses_in_bursts() {
    let shown = Shown::losses_in_bursts();
    // Segment by segment 1.22 / sqrt(p) would allow a fraction of the rate.
    let Cause::Loss { bound_bps, loss_ratio, .. } = cause_of(&shown) else { panic!() };
    assert!(loss_ratio > 3e-3 && (500e6..=710e6).contains(&bound_bps), "{loss_ratio} {bound_bps}");
    let at_the_start = Shown { bursts: vec![(0, 16_000_000)], ..shown.clone() };
    assert!(matches!(cause_of(&at_the_start), Cause::Loss { .. }));
    // A queue that was filled once at the start and stays filled since is the path's.
    let full = Shown { rtt_ns: 40_000_000, ..at_the_start };
    assert!(matches!(cause_of(&full), Cause::PathCapacity { .. }));
}

#[test]
fn saturated_threads() {
    let veth = Shown::veth();
    let sender = Shown { writer: (0.99, 0.01, 0.02), reader: (0.6, 0.05, 0.02), ..veth.clone() };
    assert!(matches!(cause_of(&sender), Cause::Cpu { role: Role::Sender, .. }));
    let receiver = Shown { writer: (0.5, 0.05, 0.02), reader: (0.97, 0.02, 0.02), ..veth.clone() };
    assert!(matches!(cause_of(&receiver), Cause::Cpu { role: Role::Receiver, .. }));
    // Starved, without other processes: the flow's own work, which is no fault.
    let starved = Shown { writer: (0.4, 0.58, 0.02), ..veth };
    let diagnosis = explain(&starved.evidence());
    assert!(matches!(found(&diagnosis).cause, Cause::Cpu { role: Role::Sender, .. }));
    assert!(!found(&diagnosis).fault, "{:?}", diagnosis.primary);
}

#[test]
fn interrupts_on_the_core_of_the_reader() {
    let shown = Shown {
        goodput_bps: 10e9,
        rtt_ns: 200_000,
        min_rtt_ns: 50_000,
        reader: (0.7, 0.25, 0.01),
        reader_core: 1,
        incoming_core: 1,
        reader_core_busy: (0.99, 0.4),
        unacked: 10,
        window: 500,
        buffer_fill: 0.1,
        ..Shown::default()
    };
    let Cause::InterruptCollision { core: 1, better_cores, .. } = cause_of(&shown) else { panic!() };
    assert!(!better_cores.contains(&1) && !better_cores.is_empty());
    let apart = Shown { incoming_core: 2, reader_core_busy: (0.7, 0.0), ..shown };
    assert!(!matches!(cause_of(&apart), Cause::InterruptCollision { .. }));
}

fn probed(route: u32, path: u32) -> ProbeSummary {
    let direction = ProbeDirection {
        from: "alpha".into(),
        to: "beta".into(),
        udp: None,
        tcp: None,
        from_address: None,
        to_address: None,
        route_mtu_bytes: Some(route),
        path_mtu_bytes: Some(path),
        hop_count: None,
        notices: Vec::new(),
    };
    ProbeSummary {
        requested: Default::default(),
        directions: vec![direction],
        bandwidth_delay_product_bytes: None,
    }
}

#[test]
fn packets_that_vanish() {
    let mut evidence = Shown::default().evidence();
    evidence.probe = Some(probed(9000, 1500));
    let flow = &mut evidence.flows[0];
    flow.intervals.clear();
    flow.failure = Some("connected, but no data arrived".into());
    let summary = flow.summary.as_mut().unwrap();
    (summary.received_bytes, summary.goodput_bps) = (0, 0.0);
    let diagnosis = explain(&evidence);
    assert_eq!(found(&diagnosis).cause, Cause::PathMtu { route_mtu_bytes: 9000, path_mtu_bytes: 1500 });
    // The same path, and TCP has learnt its MTU: nothing to blame.
    let mut learnt = Shown { window_limited: 0.9, ..Shown::default() }.evidence();
    learnt.probe = Some(probed(9000, 1500));
    assert!(!matches!(found(&explain(&learnt)).cause, Cause::PathMtu { .. }));
    // No probe: it is not known why nothing arrives.
    evidence.probe = None;
    assert!(matches!(explain(&evidence).primary, Verdict::Unknown { .. }));
}

#[test]
fn memory_of_tcp_in_the_wrong_unit() {
    // A socket's triple in bytes, written where pages are expected: 341 MiB.
    let shown =
        Shown { receiver_counters: vec![("TCPMemoryPressures", 3)], window_limited: 0.9, ..Shown::default() };
    let mut evidence = shown.evidence();
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_mem".into(), "4096 87380 268435456".into());
    let diagnosis = explain(&evidence);
    let Cause::MemoryPressure { unit_error, pressure_bytes, .. } = found(&diagnosis).cause else { panic!() };
    assert!(unit_error);
    assert_eq!(pressure_bytes >> 20, 341);
    // Without pressure it is wrong all the same, but limits nothing yet.
    evidence.flows = vec![Shown { window_limited: 0.9, ..Shown::default() }.flow()];
    let diagnosis = explain(&evidence);
    assert!(matches!(found(&diagnosis).cause, Cause::ReceiverWindow { .. }));
    assert!(matches!(diagnosis.secondary[0].cause, Cause::MemoryPressure { unit_error: true, .. }));
}

#[test]
fn nothing_fits_and_too_short_are_unknown() {
    let odd = Shown { rtt_ns: 20_000_000, buffer_fill: 0.6, not_sent: 300_000, ..Shown::default() };
    let Verdict::Unknown { experiment, .. } = explain(&odd.evidence()).primary else { panic!() };
    assert_eq!(experiment.flow.flows, 4);
    let mut short = Shown { window_limited: 0.9, ..Shown::default() }.evidence();
    short.flows[0].intervals.truncate(3);
    assert!(matches!(explain(&short).primary, Verdict::Unknown { .. }));
    assert!(matches!(explain(&Evidence::default()).primary, Verdict::Unknown { .. }));
}

#[test]
fn needed_sizes_are_for_the_best_that_was_seen() {
    let shown = Shown {
        config: FlowConfig {
            window: Some(ByteCount(1 << 20)),
            duration: TimeSpan::from_seconds(6),
            ..FlowConfig::default()
        },
        goodput_bps: 400e6,
        window_limited: 0.98,
        offered: 1 << 20,
        ..Shown::default()
    };
    let mut evidence = shown.evidence();
    let mut free = Shown { goodput_bps: 8e9, ..Shown::default() }.flow();
    free.kind = clearstream_schema::diagnosis::ExperimentKind::WithoutWindow;
    evidence.flows.push(free);
    let diagnosis = explain(&evidence);
    let Cause::ReceiverWindow { goal_bps, needed_window_bytes, .. } = found(&diagnosis).cause else {
        panic!()
    };
    assert_eq!((goal_bps, needed_window_bytes), (8e9, 20_000_000));
    assert!(diagnosis.experiments[0].conclusion.contains("that was the limit"));
    assert_eq!(evidence.client, host("alpha"));
}

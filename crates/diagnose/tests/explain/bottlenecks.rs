//! Full lines, short queues, other traffic and reordering: what several flows carry
//! distinguishes them, and no host is at fault for the first three.

use clearstream_diagnose::{Evidence, explain};
use clearstream_schema::{
    diagnosis::{BufferLimit, Cause, Diagnosis, ExperimentKind, Verdict},
    flow::FlowConfig,
};

use super::{
    made::Shown,
    signatures::{found, full_queue},
};

fn four(shown: &Shown, goodput_bps: f64) -> Shown {
    Shown { goodput_bps, config: FlowConfig { flows: 4, ..FlowConfig::default() }, ..shown.clone() }
}

fn beside(shown: &Shown, several: &Shown) -> Evidence {
    let mut evidence = shown.evidence();
    evidence.flows.push(several.experiment(ExperimentKind::SeveralFlows));
    evidence
}

fn is_innocent(diagnosis: &Diagnosis) -> bool {
    match &diagnosis.primary {
        Verdict::Found(finding) => !finding.fault,
        Verdict::Unknown { .. } => true,
    }
}

/// 300 Mb/s over 17 ms: 0.64 MB fill it. A window of 1.3 MB (tcp_rmem of 2 MiB) adds a
/// queue of the rest, (1.3 - 0.64) MB / 37.5 MB/s = 18 ms.
fn full_line_behind_a_small_window() -> Shown {
    Shown {
        goodput_bps: 300e6,
        min_rtt_ns: 17_000_000,
        rtt_ns: 35_000_000,
        window_limited: 0.98,
        offered: 1_310_720,
        receive_buffer: 2 << 20,
        unacked: 146,
        window: 400,
        not_sent: 0,
        ..Shown::default()
    }
}

fn held_at_2_mib(mut evidence: Evidence) -> Evidence {
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_rmem".into(), "4096 131072 2097152".into());
    evidence
}

#[test]
fn a_full_line_is_no_small_buffer() {
    let evidence = held_at_2_mib(full_line_behind_a_small_window().evidence());
    let diagnosis = explain(&evidence);
    assert!(matches!(found(&diagnosis).cause, Cause::PathCapacity { .. }), "{:?}", diagnosis.primary);
    assert!(!found(&diagnosis).fault);
    // 1 Gb/s: 2.1 MB fill it; 0.87 of tcp_wmem's 4 MiB are 3.65 MB, so 29 ms of round trip.
    let sends = Shown {
        goodput_bps: 940e6,
        min_rtt_ns: 17_000_000,
        rtt_ns: 31_000_000,
        unacked: 408,
        window: 900,
        buffer_fill: 0.95,
        buffer: 4 << 20,
        ..Shown::default()
    };
    let diagnosis = explain(&sends.evidence());
    assert!(matches!(found(&diagnosis).cause, Cause::PathCapacity { .. }), "{:?}", diagnosis.primary);
    assert!(!found(&diagnosis).fault);
    // Without the queue the same sizes are the limit.
    let limits = Shown { rtt_ns: 17_100_000, goodput_bps: 610e6, ..full_line_behind_a_small_window() };
    assert!(matches!(found(&explain(&held_at_2_mib(limits.evidence()))).cause, Cause::ReceiverWindow { .. }));
}

#[test]
fn several_flows_that_carry_no_more_refute_a_window_of_each() {
    // 1.3 MB over 17 ms are 617 Mb/s, and the line has 600: four flows have as much.
    let shown = Shown { rtt_ns: 18_000_000, goodput_bps: 600e6, ..full_line_behind_a_small_window() };
    let diagnosis = explain(&beside(&shown, &four(&shown, 603e6)));
    assert!(is_innocent(&diagnosis), "{:?}", diagnosis.primary);
    let more = explain(&held_at_2_mib(beside(&shown, &four(&shown, 2.3e9))));
    assert!(matches!(found(&more).cause, Cause::ReceiverWindow { .. }));
}

/// CUBIC in front of a queue of 3 ms: the window goes from 0.7 to 1 of its largest
/// (RFC 9438, section 4.6), and the round trip is above 17 ms where it exceeds 17/20.
fn sawtooth(largest: u32) -> Vec<(u64, u32)> {
    (0..9)
        .map(|step| {
            let share = 0.7 + 0.3 * f64::from(step) / 8.0;
            let rtt_ms = (20.0 * share).max(17.02 + 0.01 * f64::from(step));
            ((rtt_ms * 1e6) as u64, (f64::from(largest) * share) as u32)
        })
        .collect()
}

/// 1 Gb/s with a queue of 3 ms: largest window 20 ms of it, 279 segments of 8948 bytes;
/// Mathis: 1.22 / sqrt(p) = 237 segments at p = 2.6e-5.
fn short_queue() -> Shown {
    Shown {
        goodput_bps: 930e6,
        min_rtt_ns: 17_000_000,
        rtt_ns: 17_100_000,
        swings: sawtooth(279),
        not_sent: 3 << 20,
        buffer_fill: 0.8,
        loss: 2.6e-5,
        ..Shown::default()
    }
}

#[test]
fn a_short_queue_that_is_full_is_the_path() {
    let shown = short_queue();
    for (sum, loss) in [(950e6, 2e-5), (960e6, 3e-4)] {
        let diagnosis =
            explain(&beside(&Shown { loss, ..shown.clone() }, &Shown { loss, ..four(&shown, sum) }));
        assert!(matches!(found(&diagnosis).cause, Cause::PathCapacity { .. }), "{:?}", diagnosis.primary);
        assert!(!found(&diagnosis).fault);
    }
    // From a record alone, without the experiment, no host is at fault either.
    assert!(is_innocent(&explain(&shown.evidence())));
    // The same losses on a line that damages packets: each flow has its own, no queue.
    let lossy = Shown { swings: Vec::new(), unacked: 230, window: 237, ..shown };
    let diagnosis = explain(&beside(&lossy, &four(&lossy, 3.6e9)));
    assert!(matches!(found(&diagnosis).cause, Cause::Loss { .. }), "{:?}", diagnosis.primary);
    assert!(found(&diagnosis).fault);
}

/// Beside one foreign flow in a queue of 40 ms: one flow has half of 500 Mb/s, four
/// have four fifths of it.
#[test]
fn other_traffic_is_no_short_queue() {
    let shown = Shown {
        goodput_bps: 250e6,
        min_rtt_ns: 17_000_000,
        rtt_ns: 57_000_000,
        unacked: 199,
        window: 200,
        not_sent: 3 << 20,
        buffer_fill: 0.9,
        loss: 4e-5,
        ..Shown::default()
    };
    let diagnosis = explain(&beside(&shown, &four(&shown, 400e6)));
    let finding = found(&diagnosis);
    assert!(matches!(finding.cause, Cause::PathCapacity { .. }), "{finding:?}");
    assert!(!finding.fault && finding.sentence.contains("other traffic"), "{}", finding.sentence);
}

/// A bucket of some segments at 500 Mb/s: one flow 200 Mb/s, four 430, whose losses
/// grow as 1 / window^2 (Mathis): (200 / 107)^2 = 3.5 times.
#[test]
fn a_policer_with_a_small_burst_is_one() {
    let one = Shown {
        goodput_bps: 200e6,
        min_rtt_ns: 17_000_000,
        rtt_ns: 17_100_000,
        unacked: 47,
        window: 48,
        not_sent: 3 << 20,
        loss: 6e-4,
        ..Shown::default()
    };
    let crowded = Shown { loss: 2.1e-3, unacked: 12, window: 12, ..four(&one, 430e6) };
    let diagnosis = explain(&beside(&one, &crowded));
    assert!(matches!(found(&diagnosis).cause, Cause::Policer { .. }), "{:?}", diagnosis.primary);
    // The same loss and four times the sum: a damaged line.
    let alone = explain(&beside(&one, &four(&one, 790e6)));
    assert!(matches!(found(&alone).cause, Cause::Loss { .. }), "{:?}", alone.primary);
}

#[test]
fn packets_that_overtake_each_other_are_not_lost_ones() {
    let shown = Shown {
        goodput_bps: 500e6,
        min_rtt_ns: 17_000_000,
        rtt_ns: 17_200_000,
        unacked: 118,
        window: 120,
        not_sent: 3 << 20,
        loss: 1e-4,
        reorderings: 6,
        ..Shown::default()
    };
    let diagnosis = explain(&shown.evidence());
    let Cause::Reordering { event_count, .. } = found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    // 18 measured intervals of 6 events each.
    assert_eq!(event_count, 108);
    assert_eq!(
        diagnosis.suggestions[0].sentence,
        "find what spreads the packets of one flow over several links (round-robin bonding, load balancing by packet) \
         and have it keep a flow on one of them"
    );
    assert!(matches!(
        found(&explain(&Shown { reorderings: 0, ..shown.clone() }.evidence())).cause,
        Cause::Loss { .. }
    ));
    // Several flows that share a rate refute it.
    assert!(
        is_innocent(&explain(&beside(&shown, &four(&shown, 505e6)))) || {
            !matches!(found(&explain(&beside(&shown, &four(&shown, 505e6)))).cause, Cause::Reordering { .. })
        }
    );
}

#[test]
fn a_full_core_of_the_packets_is_no_full_path() {
    let full = Shown {
        goodput_bps: 9e9,
        min_rtt_ns: 17_000_000,
        rtt_ns: 30_000_000,
        unacked: 3700,
        window: 3720,
        not_sent: 64 << 20,
        packet_core_busy: (0.99, 0.97),
        ..Shown::default()
    };
    let diagnosis = explain(&full.evidence());
    let Cause::Cpu { core: Some(2), .. } = found(&diagnosis).cause else { panic!("{:?}", diagnosis.primary) };
    let idle = Shown { packet_core_busy: (0.4, 0.35), ..full };
    assert!(matches!(found(&explain(&idle.evidence())).cause, Cause::PathCapacity { .. }));
}

fn is_held_by(diagnosis: &Diagnosis, sysctl: &str) -> bool {
    matches!(&found(diagnosis).cause,
        Cause::ReceiverWindow { held_by: BufferLimit::Sysctl { name, .. }, .. } if name == sysctl)
}

#[test]
fn a_window_is_held_by_what_holds_it() {
    let base = Shown {
        goodput_bps: 200e6,
        window_limited: 0.98,
        offered: 400_000,
        receive_buffer: 425_984,
        ..Shown::default()
    };
    // 64 MiB requested, rmem_max of 208 KiB granted, twice that reserved (socket(7)).
    let config = FlowConfig { receive_buffer: Some("64MiB".parse().unwrap()), ..FlowConfig::default() };
    let mut evidence = Shown { config, ..base.clone() }.evidence();
    evidence.server.kernel.sysctls.insert("net.core.rmem_max".into(), "212992".into());
    let diagnosis = explain(&evidence);
    assert!(is_held_by(&diagnosis, "net.core.rmem_max"), "{:?}", diagnosis.primary);
    let command = diagnosis.suggestions[0].command.as_deref().unwrap();
    assert!(command.starts_with("sysctl -w net.core.rmem_max="), "{command}");

    let fixed = Shown { receive_buffer: 131_072, offered: 65_536, goodput_bps: 26e6, ..base.clone() };
    let mut evidence = fixed.evidence();
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_moderate_rcvbuf".into(), "0".into());
    assert!(is_held_by(&explain(&evidence), "net.ipv4.tcp_moderate_rcvbuf"));
    // The same with autotuning: 128 KiB are not what a maximum of 32 MiB holds it at.
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_moderate_rcvbuf".into(), "1".into());
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_rmem".into(), "4096 131072 33554432".into());
    assert!(!matches!(&explain(&evidence).primary, Verdict::Found(finding)
        if matches!(finding.cause, Cause::ReceiverWindow { .. })));

    // RFC 7323, 2.2: without the option at one end neither end scales.
    let unscaled = Shown { offered: 65_535, goodput_bps: 26e6, ..base };
    let mut evidence = unscaled.evidence();
    evidence.client.kernel.sysctls.insert("net.ipv4.tcp_window_scaling".into(), "0".into());
    let diagnosis = explain(&evidence);
    assert!(matches!(
        found(&diagnosis).cause,
        Cause::ReceiverWindow { held_by: BufferLimit::WindowScale(0), .. }
    ));
    assert!(found(&diagnosis).sentence.contains("tcp_window_scaling = 0 on alpha"));
}

/// A reader that rests for a third of the time, and a path that is full for the rest.
#[test]
fn a_pause_for_a_part_of_the_time_is_seen() {
    let rests = Shown {
        goodput_bps: 0.0,
        window_limited: 1.0,
        receive_fill: 0.9,
        reader: (0.01, 0.0, 0.1),
        ..full_queue()
    };
    let mut evidence = full_queue().evidence();
    assert!(matches!(found(&explain(&evidence)).cause, Cause::PathCapacity { .. }));
    let pause = rests.flow();
    for at in [4, 5, 6, 11, 12, 13] {
        evidence.flows[0].intervals[at] = pause.intervals[at].clone();
    }
    let diagnosis = explain(&evidence);
    let finding = found(&diagnosis);
    assert!(matches!(finding.cause, Cause::ReceiverApplication { computes: false, .. }), "{finding:?}");
    // Six of 18 intervals of 200 ms.
    assert!(finding.sentence.starts_with("for 1.2"), "{}", finding.sentence);
}

//! Effects of experiments of the same run: verdicts and what may be gained.

use clearstream_diagnose::{Evidence, explain};
use clearstream_schema::{
    BitRate, ByteCount,
    diagnosis::{Cause, Diagnosis, ExperimentKind, Finding, Remedy, SharedBy, Verdict},
    flow::FlowConfig,
};

use super::{
    made::{Shown, together},
    signatures::found,
};

pub fn with(shown: &Shown, experiments: &[(ExperimentKind, &Shown)]) -> Diagnosis {
    explain(&evidence(shown, experiments))
}

pub fn evidence(shown: &Shown, experiments: &[(ExperimentKind, &Shown)]) -> Evidence {
    let mut evidence = shown.evidence();
    evidence.flows.extend(experiments.iter().map(|(kind, shown)| shown.experiment(*kind)));
    evidence
}

pub fn flows(count: u32) -> FlowConfig {
    FlowConfig { flows: count, ..FlowConfig::default() }
}

/// bbr over a veth pair: a queue, no thread saturated, segments retransmitted.
fn bbr() -> Shown {
    Shown {
        goodput_bps: 14.83e9,
        rtt_ns: 479_000,
        min_rtt_ns: 40_000,
        unacked: 255,
        window: 260,
        not_sent: 4 << 20,
        loss: 2e-3,
        writer: (0.45, 0.05, 0.02),
        reader: (0.4, 0.05, 0.02),
        one_machine: true,
        congestion_control: "bbr",
        ..Shown::default()
    }
}

#[test]
fn several_flows_that_carry_more_refute_a_full_path() {
    let cubic = Shown { congestion_control: "cubic", loss: 0.0, ..bbr() };
    assert!(matches!(found(&with(&cubic, &[])).cause, Cause::PathCapacity { .. }));
    let more = Shown { goodput_bps: 29.51e9, config: flows(4), ..cubic.clone() };
    let diagnosis = with(&cubic, &[(ExperimentKind::SeveralFlows, &more)]);
    match &diagnosis.primary {
        Verdict::Found(finding) => assert!(!matches!(finding.cause, Cause::PathCapacity { .. })),
        Verdict::Unknown { because, .. } => assert!(because.contains("29.5 Gb/s"), "{because}"),
    }
    // A repetition shows that it was a slow spell: then four flows refute nothing.
    let repeated = Shown { goodput_bps: 29e9, ..cubic.clone() };
    let diagnosis =
        with(&cubic, &[(ExperimentKind::SeveralFlows, &more), (ExperimentKind::Repeat, &repeated)]);
    let Verdict::Unknown { because, .. } = &diagnosis.primary else { panic!("{:?}", diagnosis.primary) };
    assert!(because.contains("changed meanwhile"), "{because}");
}

#[test]
fn a_congestion_control_is_a_cause_when_another_carries_more() {
    let other = Shown {
        goodput_bps: 41.8e9,
        config: FlowConfig { congestion_control: Some("cubic".to_owned()), ..FlowConfig::default() },
        congestion_control: "cubic",
        ..bbr()
    };
    let diagnosis = with(&bbr(), &[(ExperimentKind::OtherCongestionControl, &other)]);
    let finding = found(&diagnosis);
    let Cause::CongestionControl { name, other: tried, other_bps } = &finding.cause else {
        panic!("{finding:?}")
    };
    assert_eq!((name.as_str(), tried.as_str(), *other_bps), ("bbr", "cubic", 41.8e9));
    assert!(finding.fault);
    // Over loopback it is the cause as well, and no fault.
    let over_loopback = Shown { interface: "lo", ..bbr() };
    let other_there = Shown { interface: "lo", ..other.clone() };
    let there = with(&over_loopback, &[(ExperimentKind::OtherCongestionControl, &other_there)]);
    assert!(matches!(found(&there).cause, Cause::CongestionControl { .. }));
    assert!(!found(&there).fault);
    assert_eq!(
        finding.remedies,
        [Remedy::ChangeFlow { key: "congestion-control".to_owned(), value: "cubic".into() }]
    );
    assert!(diagnosis.gain.unwrap().at_least.unwrap().rate_bps <= 41.8e9);
    // Some per cent more than two runs of the flow: the cause, but no fault.
    let little = Shown { goodput_bps: 17.5e9, ..other.clone() };
    let repeated = Shown { goodput_bps: 15.1e9, ..bbr() };
    let two = [(ExperimentKind::OtherCongestionControl, &little), (ExperimentKind::Repeat, &repeated)];
    let diagnosis = with(&bbr(), &two);
    assert!(matches!(found(&diagnosis).cause, Cause::CongestionControl { .. }));
    assert!(!found(&diagnosis).fault);
    // Against one run it proves nothing, and one that does no better is none.
    let diagnosis = with(&bbr(), &two[..1]);
    assert!(!matches!(&diagnosis.primary, Verdict::Found(finding)
        if matches!(finding.cause, Cause::CongestionControl { .. })));
    let equal = Shown { goodput_bps: 16e9, ..other };
    let diagnosis = with(&bbr(), &[(ExperimentKind::OtherCongestionControl, &equal)]);
    assert!(!matches!(&diagnosis.primary, Verdict::Found(finding)
        if matches!(finding.cause, Cause::CongestionControl { .. })));
}

/// 1 % lost over 17 ms: windows of some segments, each with an acknowledgement
/// that comes late.
#[test]
fn delayed_acknowledgements_are_no_queue() {
    let shown = Shown {
        goodput_bps: 4e6,
        mss: 1448,
        rtt_ns: 31_900_000,
        min_rtt_ns: 17_000_000,
        unacked: 5,
        window: 5,
        not_sent: 3 << 20,
        buffer_fill: 1.0,
        loss: 0.012,
        ..Shown::default()
    };
    let Cause::Loss { bound_bps, .. } = found(&with(&shown, &[])).cause else {
        panic!("{:?}", with(&shown, &[]).primary)
    };
    assert!((0.3..3.0).contains(&(bound_bps / 4e6)), "{bound_bps}");
    // A queue in which segments wait is one: 90 kB.
    let queue = Shown { goodput_bps: 50e6, loss: 1e-5, unacked: 110, window: 111, ..shown };
    assert!(matches!(found(&with(&queue, &[])).cause, Cause::PathCapacity { .. }));
}

/// 500 Mb/s: one flow 434, four together 470, 1.5 % lost in bursts, no queue.
#[test]
fn what_is_above_a_rate_is_dropped() {
    let one = Shown {
        goodput_bps: 434e6,
        mss: 1448,
        rtt_ns: 17_100_000,
        min_rtt_ns: 17_000_000,
        unacked: 600,
        window: 620,
        not_sent: 4 << 20,
        loss: 0.015,
        ..Shown::default()
    };
    // Mathis: 1448 * 8 / 17 ms * 1.22 / sqrt(0.015) = 6.8 Mb/s explains nothing.
    let alone = with(&one, &[]);
    assert!(!matches!(&alone.primary, Verdict::Found(finding)
        if matches!(finding.cause, Cause::Loss { .. } | Cause::PathCapacity { .. })));
    let four = Shown { goodput_bps: 470e6, config: flows(4), ..one.clone() };
    let diagnosis = with(&one, &[(ExperimentKind::SeveralFlows, &four)]);
    let Cause::Policer { rate_bps, loss_ratio } = found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    assert_eq!(rate_bps, 470e6);
    assert!((loss_ratio - 0.015).abs() < 1e-3);
    // Losses that hit each flow alone: four flows carry four times as much.
    let random = Shown { goodput_bps: 1.7e9, config: flows(4), ..one.clone() };
    let diagnosis = with(&one, &[(ExperimentKind::SeveralFlows, &random)]);
    assert!(!matches!(&diagnosis.primary, Verdict::Found(finding)
        if matches!(finding.cause, Cause::Policer { .. })));
}

#[test]
fn flows_over_a_slow_leg_are_named() {
    let fast = Shown {
        goodput_bps: 15e9,
        rtt_ns: 100_000,
        min_rtt_ns: 30_000,
        config: flows(4),
        one_machine: true,
        ..Shown::default()
    };
    let slow = Shown { goodput_bps: 48e6, rtt_ns: 40_000_000, unacked: 140, window: 140, ..fast.clone() };
    let mut evidence = fast.evidence();
    evidence.flows = vec![together(&[fast.clone(), slow.clone(), fast.clone(), slow.clone()])];
    let diagnosis = explain(&evidence);
    let Cause::UnevenFlows { slow_flows, slow_bps, fast_bps, shared } = &found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    assert_eq!((slow_flows.as_slice(), *shared), ([1, 3].as_slice(), SharedBy::Path));
    assert!((slow_bps / 48e6 - 1.0).abs() < 0.01 && (fast_bps / 15e9 - 1.0).abs() < 0.01);
    // One flow alone had the slow leg; four of them show it.
    let mut alone = Shown { config: flows(1), ..slow }.evidence();
    let mut four = evidence.flows[0].clone();
    four.kind = ExperimentKind::SeveralFlows;
    alone.flows.push(four);
    assert!(matches!(found(&explain(&alone)).cause, Cause::UnevenFlows { .. }));
    // Equal flows are none.
    evidence.flows = vec![together(&[fast.clone(), fast.clone(), fast.clone(), fast])];
    assert!(!matches!(&explain(&evidence).primary, Verdict::Found(finding)
        if matches!(finding.cause, Cause::UnevenFlows { .. })));
}

#[test]
fn flows_that_share_a_busy_core_are_named() {
    let fast = Shown {
        goodput_bps: 9e9,
        rtt_ns: 150_000,
        min_rtt_ns: 30_000,
        config: flows(3),
        reader_core: 1,
        ..Shown::default()
    };
    let slow = Shown { goodput_bps: 1e9, reader_core: 2, ..fast.clone() };
    let mut evidence = fast.evidence();
    evidence.flows = vec![together(&[fast.clone(), fast, slow])];
    let diagnosis = explain(&evidence);
    let Cause::UnevenFlows { shared: SharedBy::ReceiverCore(2), .. } = found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
}

/// A window of 1 MB over 17 ms on a line of 2 Gb/s: 0.92 Gb/s with four flows,
/// and without the window the line.
#[test]
fn what_may_be_gained_is_what_was_reached_and_what_the_line_allows() {
    let config = FlowConfig { window: Some(ByteCount(1 << 20)), ..FlowConfig::default() };
    let window = Shown {
        config,
        goodput_bps: 213e6,
        min_rtt_ns: 17_000_000,
        rtt_ns: 17_100_000,
        window_limited: 0.98,
        offered: 460_000,
        reader: (0.03, 0.01, 0.1),
        writer: (0.03, 0.01, 0.1),
        ..Shown::default()
    };
    let four = Shown { goodput_bps: 923e6, config: flows(4), ..window.clone() };
    let mut evidence = evidence(&window, &[(ExperimentKind::SeveralFlows, &four)]);
    evidence.line_rate = Some(BitRate(2_000_000_000));
    let diagnosis = explain(&evidence);
    let gain = diagnosis.gain.clone().unwrap();
    let (least, most) = (gain.at_least.unwrap(), gain.at_most.unwrap());
    // Nothing is extrapolated from threads that use 3 % of a core; 4 MiB of
    // tcp_wmem over 17 ms are 1.97 Gb/s, less than the line.
    assert!((0.7e9..=923e6).contains(&least.rate_bps), "{least:?}");
    assert!((1.93e9..=2e9).contains(&most.rate_bps), "{most:?}");
    assert_eq!(diagnosis.gain_bound_bps, Some(most.rate_bps));
    for stage in diagnosis.stages.iter().filter(|stage| !stage.limiting && !stage.at_least) {
        assert!(stage.ceiling_bps.is_none_or(|ceiling| ceiling > 213e6), "{stage:?}");
    }
    // Neither an experiment nor a line: no upper bound.
    evidence.flows.truncate(1);
    evidence.line_rate = None;
    evidence.client.kernel.sysctls.clear();
    evidence.server.kernel.sysctls.clear();
    let diagnosis = explain(&evidence);
    assert_eq!((diagnosis.gain, diagnosis.gain_bound_bps), (None, None));
}

fn refuted(diagnosis: &Diagnosis, verdict: impl Fn(&Cause) -> bool, text: &str) {
    match &diagnosis.primary {
        Verdict::Found(finding) => assert!(!verdict(&finding.cause), "{finding:?}"),
        Verdict::Unknown { because, .. } => assert!(because.contains(text), "{because}"),
    }
}

/// Half of the advertised window is full, and the kernel reports it as the limit.
fn window(config: FlowConfig) -> Shown {
    Shown { window_limited: 1.0, offered: 2 << 20, unacked: 230, config, ..Shown::default() }
}

#[test]
fn a_removal_that_changes_nothing_refutes_its_cause() {
    let explicit = FlowConfig { window: Some(ByteCount(2 << 20)), ..FlowConfig::default() };
    let shown = window(explicit);
    let is_window = |cause: &Cause| matches!(cause, Cause::ReceiverWindow { .. });
    assert!(is_window(&found(&with(&shown, &[])).cause));
    let without = |goodput_bps| Shown { goodput_bps, config: FlowConfig::default(), ..shown.clone() };
    let faster = with(&shown, &[(ExperimentKind::WithoutWindow, &without(3e9))]);
    assert!(is_window(&found(&faster).cause));
    let same = with(&shown, &[(ExperimentKind::WithoutWindow, &without(1e9))]);
    refuted(&same, is_window, "without an explicit window carried 1.00 Gb/s");

    let paced = FlowConfig { pacing: Some(BitRate(1_000_000_000)), ..FlowConfig::default() };
    let shown = Shown { max_pacing: Some(1_000_000_000), config: paced, ..Shown::default() };
    let is_pacing = |cause: &Cause| matches!(cause, Cause::Pacing { .. });
    assert!(is_pacing(&found(&with(&shown, &[])).cause));
    let same = Shown { max_pacing: None, config: FlowConfig::default(), ..shown.clone() };
    refuted(&with(&shown, &[(ExperimentKind::WithoutPacing, &same)]), is_pacing, "without pacing carried");
}

/// A reader on the core of its interrupts.
fn collision() -> Shown {
    Shown {
        goodput_bps: 10e9,
        rtt_ns: 200_000,
        min_rtt_ns: 50_000,
        reader: (0.7, 0.25, 0.01),
        incoming_core: 1,
        reader_core_busy: (0.99, 0.4),
        unacked: 10,
        window: 500,
        buffer_fill: 0.1,
        ..Shown::default()
    }
}

#[test]
fn a_reader_that_gains_nothing_elsewhere_had_no_collision() {
    let is_collision = |cause: &Cause| matches!(cause, Cause::InterruptCollision { .. });
    let moved = |goodput_bps| Shown {
        goodput_bps,
        config: FlowConfig { receiver_cores: Some("2".parse().unwrap()), ..FlowConfig::default() },
        reader_core: 2,
        reader_core_busy: (0.7, 0.0),
        ..collision()
    };
    let gained = with(&collision(), &[(ExperimentKind::OtherReceiverCore, &moved(13e9))]);
    assert!(is_collision(&found(&gained).cause));
    let same = with(&collision(), &[(ExperimentKind::OtherReceiverCore, &moved(9.8e9))]);
    refuted(&same, is_collision, "on another core carried 9.80 Gb/s");
}

#[test]
fn a_collision_with_a_queue_in_front_of_it_is_no_full_path() {
    // Packets wait for the core that processes them and reads, too.
    let queued = Shown { unacked: 480, not_sent: 4 << 20, ..collision() };
    let diagnosis = with(&queued, &[]);
    assert!(matches!(found(&diagnosis).cause, Cause::InterruptCollision { core: 1, .. }));
}

#[test]
fn a_core_that_did_more_meanwhile_refutes_what_one_core_does() {
    let shown =
        Shown { goodput_bps: 5.37e9, writer: (0.99, 0.01, 0.02), reader: (0.6, 0.05, 0.02), ..Shown::veth() };
    let is_cpu = |cause: &Cause| matches!(cause, Cause::Cpu { .. });
    assert!(is_cpu(&found(&with(&shown, &[])).cause));
    let faster = Shown { goodput_bps: 9.4e9, ..shown.clone() };
    refuted(&with(&shown, &[(ExperimentKind::Repeat, &faster)]), is_cpu, "changed meanwhile");
    let elsewhere = with(&shown, &[(ExperimentKind::OtherSenderCore, &faster)]);
    refuted(&elsewhere, is_cpu, "a core does more");
}

#[test]
fn uneven_flows_that_share_nothing_are_a_finding() {
    let fast = Shown { goodput_bps: 10e9, ..Shown::default() };
    let slow = Shown { goodput_bps: 0.1e9, ..Shown::default() };
    let mut evidence = Shown::default().evidence();
    evidence.flows = vec![together(&[fast.clone(), slow.clone(), fast.clone(), slow.clone()])];
    let diagnosis = explain(&evidence);
    let Cause::UnevenFlows { slow_flows, shared, .. } = &found(&diagnosis).cause else { panic!() };
    assert_eq!((slow_flows.as_slice(), *shared), ([1, 3].as_slice(), SharedBy::Unknown));
    // Flows of CUBIC differ as much by chance in some seconds: no host is at fault.
    assert!(!found(&diagnosis).fault);
    // Bursts are slower on request.
    evidence.flows[0].config.burst_flows = 2;
    let bursts = explain(&evidence);
    assert!(!matches!(&bursts.primary, Verdict::Found(Finding { cause: Cause::UnevenFlows { .. }, .. })));
}

#[test]
fn a_policer_that_one_flow_does_not_fill_is_one() {
    let one = Shown {
        goodput_bps: 434e6,
        loss: 5e-3,
        rtt_ns: 20_200_000,
        unacked: 100,
        window: 100,
        not_sent: 4 << 20,
        ..Shown::default()
    };
    let four = Shown { goodput_bps: 1.35 * 434e6, config: flows(4), ..one.clone() };
    let diagnosis = with(&one, &[(ExperimentKind::SeveralFlows, &four)]);
    assert!(matches!(found(&diagnosis).cause, Cause::Policer { .. }), "{:?}", diagnosis.primary);
}

#[test]
fn the_rates_of_a_loss_belong_to_the_losses_beside_them() {
    let shown = Shown::losses_in_bursts();
    let sentence = found(&with(&shown, &[])).sentence.clone();
    let number = |after: &str, unit: &str| -> f64 {
        let text = sentence.split(after).nth(1).and_then(|rest| rest.split(unit).next()).unwrap();
        text.trim().parse().unwrap_or_else(|_| panic!("{after}: {sentence}"))
    };
    let (bytes, events) = (number("loss: ", " %") / 100.0, number("loss event each (", " %") / 100.0);
    let (lowest, highest) = (number("which allows ", " Mb/s"), number("one by one, and ", " Mb/s"));
    // Mathis, Semke, Mahdavi, Ott 1997, and RFC 9438, 5.1 (segments per round trip).
    let higher = |p: f64| -> f64 {
        let (mss, rtt) = (8948.0 * 8.0, 0.0176);
        let mathis: f64 = mss / rtt * 1.22 / p.sqrt();
        mathis.max(1.054 * (f64::powf(rtt, 0.75) / p.powf(0.75)) * mss / rtt) / 1e6
    };
    for (printed, p) in [(lowest, bytes), (highest, events)] {
        assert!((printed / higher(p) - 1.0).abs() < 0.2, "{printed} against {}: {sentence}", higher(p));
    }
}

#[test]
fn losses_that_explain_both_runs_are_the_limit_of_both() {
    // 0.1 % of random loss over 17 ms: cubic's rate of a few seconds varies twofold.
    let lossy = |goodput_bps, loss| Shown {
        goodput_bps,
        loss,
        rtt_ns: 17_200_000,
        min_rtt_ns: 17_000_000,
        unacked: 115,
        window: 120,
        not_sent: 3 << 20,
        buffer_fill: 1.0,
        ..Shown::default()
    };
    let is_loss = |cause: &Cause| matches!(cause, Cause::Loss { .. });
    let (slow, fast) = (lossy(479e6, 1.2e-3), lossy(873e6, 2e-4));
    assert!(is_loss(&found(&with(&slow, &[])).cause));
    assert!(is_loss(&found(&with(&slow, &[(ExperimentKind::Repeat, &fast)])).cause));
    let clean = lossy(3e9, 0.0);
    refuted(&with(&slow, &[(ExperimentKind::Repeat, &clean)]), is_loss, "changed meanwhile");
}

#[test]
fn a_window_that_only_bounds_the_queue_is_no_limit() {
    // Autotuning reached 72 MiB; 2 Gb/s over 17 ms and a queue of 34 ms need 12 MiB.
    // A window of 11 MiB (5.4 Gb/s over 17 ms) leaves 28 ms of that queue: more of it
    // makes the queue longer and the flow no faster.
    let grown = Shown {
        goodput_bps: 1.95e9,
        rtt_ns: 45_000_000,
        min_rtt_ns: 17_000_000,
        window_limited: 0.8,
        offered: 72 << 20,
        unacked: 1200,
        window: 1220,
        not_sent: 4 << 20,
        ..Shown::default()
    };
    let is_window = |verdict: &Verdict| {
        matches!(verdict, Verdict::Found(Finding { cause: Cause::ReceiverWindow { .. }, .. }))
    };
    for offered in [72 << 20, 11 << 20] {
        let diagnosis = with(&Shown { offered, ..grown.clone() }, &[]);
        assert!(!is_window(&diagnosis.primary));
        assert!(matches!(found(&diagnosis).cause, Cause::PathCapacity { .. }));
        assert!(!found(&diagnosis).fault);
    }
}

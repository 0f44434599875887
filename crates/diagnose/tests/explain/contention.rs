//! Cores that the flow does not get, and healthy paths that must not be accused.

use clearstream_diagnose::explain;
use clearstream_schema::{
    CoreList, TimeSpan,
    diagnosis::{Cause, Remedy, Role, Verdict},
    flow::FlowConfig,
};

use super::{made::Shown, signatures::found};

fn veth() -> Shown {
    Shown { writer: (0.9, 0.02, 0.02), reader: (0.7, 0.02, 0.02), ..Shown::veth() }
}

#[test]
fn other_processes_hold_the_core() {
    // Two busy loops on the core of the reader: it gets a third of it.
    let shown = Shown {
        reader: (0.33, 0.64, 0.02),
        processes: vec![("burn", 0.33, 1), ("burn", 0.33, 1), ("sshd", 0.01, 3)],
        ..veth()
    };
    let diagnosis = explain(&shown.evidence());
    let Cause::Contention { core, processes, foreign_core_count, .. } = &found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    assert_eq!(*core, Some(1));
    assert_eq!((processes[0].name.as_str(), processes[0].process_count), ("burn", 2));
    assert!((foreign_core_count - 0.67).abs() < 0.01);
    assert!(found(&diagnosis).sentence.contains("2 x burn"));
    assert_eq!(diagnosis.stages.iter().filter(|stage| stage.limiting).count(), 1);
    // Nowhere else was requested: the machine is busy, no host is at fault.
    assert!(!found(&diagnosis).fault);
    // Pinned there while other cores are idle: that can be set right.
    let config = FlowConfig { receiver_cores: Some(CoreList(vec![1])), ..FlowConfig::default() };
    let diagnosis = explain(&Shown { config, ..shown }.evidence());
    assert!(found(&diagnosis).fault);
    assert!(matches!(found(&diagnosis).remedies[0], Remedy::MoveThread { off_core: 1, .. }));
}

#[test]
fn contention_is_reported_instead_of_the_cause_that_it_imitates() {
    let hogs = vec![("stress", 1.0, 0), ("stress", 0.9, 1), ("stress", 0.9, 2), ("stress", 0.9, 3)];
    // A queue of packets that wait for a core has the signature of a queue of the path.
    let queue = Shown {
        goodput_bps: 5.4e9,
        unacked: 90,
        window: 100,
        not_sent: 4 << 20,
        rtt_ns: 4_000_000,
        writer: (0.3, 0.4, 0.05),
        processes: hogs.clone(),
        ..veth()
    };
    assert!(matches!(found(&explain(&queue.evidence())).cause, Cause::Contention { .. }));
    // Over a long path, too: the writer's gaps are the core's.
    let gaps = Shown { busy: 0.4, writer: (0.1, 0.3, 0.1), processes: hogs.clone(), ..Shown::default() };
    assert!(matches!(found(&explain(&gaps.evidence())).cause, Cause::Contention { .. }));
    // A writer that waits now and then while its socket is never empty holds nothing
    // back: the queue in front of a path that carries 1 Gb/s is the path's.
    let full = Shown {
        unacked: 90,
        window: 100,
        not_sent: 4 << 20,
        rtt_ns: 50_000_000,
        writer: (0.02, 0.12, 0.1),
        reader: (0.02, 0.12, 0.1),
        processes: hogs.clone(),
        ..Shown::default()
    };
    let found_in_full = explain(&full.evidence());
    assert!(!matches!(found(&found_in_full).cause, Cause::Contention { .. }), "{:?}", found_in_full.primary);
    // A window of a fixed size has its expected rate, whatever uses the cores.
    let window = Shown {
        goodput_bps: 1e9,
        window_limited: 0.97,
        offered: 2_621_440,
        writer: (0.1, 0.3, 0.1),
        processes: hogs,
        ..Shown::default()
    };
    assert!(matches!(found(&explain(&window.evidence())).cause, Cause::ReceiverWindow { .. }));
    // So does a reader that computes on request.
    let computes = Shown {
        config: FlowConfig { receiver_work: Some(TimeSpan::from_millis(20)), ..FlowConfig::default() },
        goodput_bps: 300e6,
        window_limited: 0.95,
        receive_fill: 0.6,
        reader: (0.6, 0.37, 0.9),
        processes: vec![("rustc", 0.4, 1)],
        ..Shown::default()
    };
    assert!(matches!(
        found(&explain(&computes.evidence())).cause,
        Cause::ReceiverApplication { computes: true, .. }
    ));
}

#[test]
fn yielding_processes_and_the_flow_itself_are_no_contention() {
    // Compilers at idle priority use every core that is left.
    let background = vec![("rustc", 0.9, 0), ("rustc", 0.9, 1), ("rustc", 0.9, 2), ("rustc", 0.9, 3)];
    let shown = Shown { writer: (0.95, 0.05, 0.02), processes: background.clone(), ..veth() };
    assert!(matches!(found(&explain(&shown.evidence())).cause, Cause::Cpu { .. }));
    // The agents and the relay of a delay line are the flow's own.
    let own = vec![("clearstream-lab", 0.7, 0)];
    let shown = Shown { writer: (0.6, 0.38, 0.02), processes: own, ..veth() };
    let diagnosis = explain(&shown.evidence());
    assert!(matches!(found(&diagnosis).cause, Cause::Cpu { .. }), "{:?}", diagnosis.primary);
    assert!(!found(&diagnosis).fault);
    // Idle priority in a group of its own does not yield: the wait shows it.
    let shown = Shown { writer: (0.5, 0.48, 0.02), processes: background, ..veth() };
    assert!(matches!(found(&explain(&shown.evidence())).cause, Cause::Contention { .. }));
}

#[test]
fn a_quota_is_named_with_its_group() {
    let shown = Shown {
        writer: (0.3, 0.56, 0.02),
        reader: (0.2, 0.54, 0.02),
        throttled: Some((500, 1.0)),
        processes: vec![("sshd", 0.02, 0)],
        ..veth()
    };
    let diagnosis = explain(&shown.evidence());
    let Cause::CpuQuota { group, quota_millicores: 500, .. } = &found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    assert_eq!(group, "/job");
    assert!(found(&diagnosis).sentence.contains("0.50 cores"));
    // A quota that hardly ever stops anything is none.
    let loose = Shown { throttled: Some((1900, 0.0)), ..shown };
    assert!(!matches!(found(&explain(&loose.evidence())).cause, Cause::CpuQuota { .. }));
}

#[test]
fn both_ends_on_one_core_collide_with_themselves() {
    let shown = Shown {
        writer: (0.5, 0.45, 0.02),
        reader: (0.45, 0.5, 0.02),
        writer_core: 0,
        reader_core: 0,
        ..veth()
    };
    let diagnosis = explain(&shown.evidence());
    let Cause::SharedCore { core: 0, pinned: false, .. } = found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    // The scheduler put them there: no fault of the path. By hand it is one.
    assert!(!found(&diagnosis).fault);
    let on_zero = || Some(CoreList(vec![0]));
    let config = FlowConfig { sender_cores: on_zero(), receiver_cores: on_zero(), ..FlowConfig::default() };
    let diagnosis = explain(&Shown { config, ..shown }.evidence());
    assert!(found(&diagnosis).fault);
    let Remedy::MoveThread { role: Role::Receiver, to_cores, .. } = &found(&diagnosis).remedies[0] else {
        panic!()
    };
    assert!(!to_cores.contains(&0));
}

/// A slow spell of a virtual machine over loopback: the writer's socket is empty
/// and its thread runs for a third of the time, without a pause of its own.
#[test]
fn a_slow_spell_of_the_machine_accuses_no_program() {
    let spell = Shown {
        writer: (0.37, 0.02, 0.02),
        reader: (0.4, 0.02, 0.02),
        busy: 0.45,
        buffer_fill: 0.0,
        app_limited: true,
        ..veth()
    };
    let accuses = |shown: &Shown| match &explain(&shown.evidence()).primary {
        Verdict::Found(finding) => finding.fault,
        Verdict::Unknown { .. } => false,
    };
    assert!(!accuses(&spell));
    // The same at the reader.
    let reader = Shown { window_limited: 0.7, receive_fill: 0.5, ..spell };
    assert!(!accuses(&reader));
}

/// On two cores, unpinned: each thread waits for what the other does.
#[test]
fn a_pair_without_pins_waits_for_itself() {
    for wait in [0.28, 0.35, 0.43] {
        let shown = Shown { writer: (0.5, wait, 0.02), reader: (0.45, 0.3, 0.02), ..veth() };
        let diagnosis = explain(&shown.evidence());
        let Verdict::Found(finding) = &diagnosis.primary else { continue };
        assert!(!finding.fault && !finding.sentence.contains("others"), "{finding:?}");
    }
}

/// The writer runs a fifth of the time and waits most of the rest: 20 Gb/s on a fifth of a
/// core are 100 on a whole one.
#[test]
fn a_core_that_is_shared_is_no_limit_of_a_core() {
    let shown = Shown { writer: (0.2, 0.7, 0.02), reader: (0.2, 0.1, 0.02), ..veth() };
    let without_load = |mut evidence: clearstream_diagnose::Evidence| {
        for interval in &mut evidence.flows[0].intervals {
            (interval.client.process_load, interval.server.process_load) = (None, None);
        }
        evidence
    };
    // With a PID namespace of its own a container sees no process that explains the wait.
    for (evidence, fault) in [(shown.evidence(), false), (without_load(shown.evidence()), true)] {
        let diagnosis = explain(&evidence);
        let finding = found(&diagnosis);
        assert!(matches!(finding.cause, Cause::Cpu { role: Role::Sender, .. }), "{finding:?}");
        let wording = "ran 20 % of the time and waited for a core 70 %: the core is shared with other work, and alone it would carry 100 Gb/s";
        assert!(finding.sentence.contains(wording), "{}", finding.sentence);
        assert_eq!(finding.fault, fault, "{finding:?}");
        let stage = diagnosis.stages.iter().find(|stage| stage.limiting).unwrap();
        assert!((stage.ceiling_bps.unwrap() / 100e9 - 1.0).abs() < 1e-6, "{stage:?}");
    }
    // The flow's own reader is to blame only where it is on that core.
    let beside = Shown { reader_core: 0, ..shown.clone() };
    let sentence = found(&explain(&beside.evidence())).sentence.clone();
    assert!(sentence.contains("the core is shared with the flow's own reader"), "{sentence}");
    // Who holds the core is known: the step is still that of a whole core.
    let held = Shown { processes: vec![("burn", 0.7, 0)], ..shown };
    let diagnosis = explain(&held.evidence());
    assert!(matches!(found(&diagnosis).cause, Cause::Contention { .. }));
    let stage = diagnosis.stages.iter().find(|stage| stage.limiting).unwrap();
    assert!((stage.ceiling_bps.unwrap() / 100e9 - 1.0).abs() < 1e-6, "{stage:?}");
    assert!(stage.basis.contains("20 % of a core"), "{stage:?}");
}

/// Buffers over 20 us would carry tens of terabits: that is no step of a staircase.
#[test]
fn a_local_path_has_no_ceilings_of_buffers() {
    let diagnosis = explain(&Shown { min_rtt_ns: 20_000, loss: 1e-4, ..veth() }.evidence());
    for stage in diagnosis.stages.iter().filter(|stage| !stage.limiting) {
        assert!(stage.ceiling_bps.is_none_or(|ceiling| ceiling <= 100e9), "{stage:?}");
    }
}

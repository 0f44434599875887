//! Settings of the hosts that make a limit, named with their remedy; processes that
//! no scan shows.

use clearstream_diagnose::explain;
use clearstream_schema::{
    diagnosis::{BufferLimit, Cause, Remedy, Verdict},
    flow::FlowConfig,
    host::Nic,
};

use super::{
    made::Shown,
    signatures::{found, full_queue},
};

fn near() -> Shown {
    Shown {
        goodput_bps: 2e9,
        rtt_ns: 90_000,
        min_rtt_ns: 30_000,
        busy: 0.6,
        unacked: 0,
        window: 3729,
        buffer_fill: 0.1,
        one_machine: true,
        ..Shown::default()
    }
}

fn card(mtu_bytes: u32) -> Nic {
    Nic { name: "eth0".into(), mtu_bytes: Some(mtu_bytes), ..Nic::default() }
}

#[test]
fn tiny_buffers_of_a_near_path_are_named() {
    let shown = Shown { receive_buffer: 32_768, window_limited: 0.7, receive_fill: 0.5, ..near() };
    let mut evidence = shown.evidence();
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_rmem".into(), "4096 16384 32768".into());
    let diagnosis = explain(&evidence);
    assert!(matches!(
        &found(&diagnosis).cause,
        Cause::ReceiverWindow { held_by: BufferLimit::Sysctl { name, value_bytes: 32_768, .. }, .. }
            if name == "net.ipv4.tcp_rmem"
    ));
    let shown = Shown { buffer: 16_384, ..near() };
    let mut evidence = shown.evidence();
    evidence.client.kernel.sysctls.insert("net.ipv4.tcp_wmem".into(), "4096 16384 16384".into());
    assert!(matches!(found(&explain(&evidence)).cause, Cause::SendBuffer { .. }));
    // 30 Gb/s are 112 KB in each 30 us: more than such a buffer holds is not held by it.
    evidence.flows = vec![Shown { goodput_bps: 30e9, ..shown }.flow()];
    assert!(!matches!(&explain(&evidence).primary, Verdict::Found(finding)
        if matches!(finding.cause, Cause::SendBuffer { .. })));
}

#[test]
fn a_shaper_on_the_senders_interface_is_named() {
    // 500 Mb/s of the discipline are 497 of goodput at MTU 9000 ((9000 - 52) / 9038 = 0.990).
    let mut evidence = full_queue().evidence();
    let qdisc = |text: &str| Nic { root_qdisc: Some(text.into()), ..card(9000) };
    evidence.client.nics.push(qdisc("tbf rate 500mbit burst 262144b limit 1500000b"));
    let diagnosis = explain(&evidence);
    let finding = found(&diagnosis);
    assert!(matches!(finding.cause, Cause::PathCapacity { .. }));
    assert!(finding.fault && finding.sentence.contains("tbf rate 500mbit"), "{}", finding.sentence);
    assert!(!finding.sentence.contains("no host"), "{}", finding.sentence);
    // One for ten times the rate is not the limit; what only spaces packets is none.
    for text in ["tbf rate 5gbit burst 262144b limit 1500000b", "fq", "htb"] {
        evidence.client.nics[0] = qdisc(text);
        let diagnosis = explain(&evidence);
        assert!(!found(&diagnosis).fault, "{text}");
        assert_eq!(found(&diagnosis).sentence.contains("root qdisc"), text != "fq", "{text}");
    }
}

#[test]
fn offloads_and_small_packets_are_named_where_a_core_is_the_limit() {
    let shown = Shown { writer: (0.97, 0.02, 0.02), ..near() };
    let mut evidence = shown.evidence();
    let mut nic = card(576);
    nic.offloads.insert("tx-generic-segmentation".into(), false);
    evidence.client.nics.push(nic);
    let diagnosis = explain(&evidence);
    let finding = found(&diagnosis);
    assert!(matches!(finding.cause, Cause::Cpu { .. }) && finding.fault, "{finding:?}");
    assert!(finding.sentence.contains("tx-generic-segmentation off on eth0 of alpha"));
    // (1500 - 52) / (576 - 52) = 2.8 times the packets.
    assert!(finding.sentence.contains("2.8 times the packets"), "{}", finding.sentence);
    assert!(finding.remedies.iter().any(|remedy| matches!(remedy, Remedy::SetMtu { mtu_bytes: 1500, .. })));
    let suggestions = diagnosis.suggestions;
    assert!(suggestions.iter().any(|one| one.sentence.starts_with("raise the MTU on alpha to 1500")));
    // With both in order it is the core alone, and no fault.
    evidence.client.nics = vec![card(9000)];
    assert!(!found(&explain(&evidence)).fault);
}

#[test]
fn switches_of_tcp_are_named() {
    let lossy = Shown {
        goodput_bps: 500e6,
        rtt_ns: 17_200_000,
        min_rtt_ns: 17_000_000,
        unacked: 118,
        window: 120,
        not_sent: 3 << 20,
        loss: 1e-4,
        ..Shown::default()
    };
    let mut evidence = lossy.evidence();
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_sack".into(), "0".into());
    let diagnosis = explain(&evidence);
    assert!(found(&diagnosis).sentence.contains("net.ipv4.tcp_sack is 0 on beta"));
    assert!(matches!(&found(&diagnosis).remedies[0], Remedy::RaiseSysctl { name, at_least: 1, .. }
        if name == "net.ipv4.tcp_sack"));
    let bursts = Shown {
        config: FlowConfig { burst_flows: 1, ..FlowConfig::default() },
        busy: 0.4,
        unacked: 590,
        window: 600,
        ..Shown::default()
    };
    let mut evidence = bursts.evidence();
    evidence.client.kernel.sysctls.insert("net.ipv4.tcp_slow_start_after_idle".into(), "1".into());
    assert!(found(&explain(&evidence)).sentence.contains("net.ipv4.tcp_slow_start_after_idle = 1 on alpha"));
}

/// A parallel build: processes that live shorter than two scans, on every core.
#[test]
fn processes_that_no_scan_shows_are_contention() {
    let shown = Shown { writer: (0.5, 0.48, 0.02), reader: (0.3, 0.2, 0.02), unseen: 0.7, ..near() };
    let diagnosis = explain(&shown.evidence());
    let Cause::Contention { processes, .. } = &found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    assert!(processes[0].name.contains("ended meanwhile"), "{processes:?}");
    let alone = Shown { unseen: 0.0, ..shown };
    assert!(matches!(found(&explain(&alone.evidence())).cause, Cause::Cpu { .. }));
}

//! Experiments that remove a limit: paced packets and larger buffers.

use clearstream_diagnose::explain;
use clearstream_schema::{
    BitRate, ByteCount,
    diagnosis::{Cause, ExperimentKind, Remedy},
    flow::FlowConfig,
};

use super::{
    experiments::{evidence, flows, with},
    made::Shown,
    signatures::found,
};

/// A policer of 500 Mb/s with a bucket of 16 packets of 9000 bytes over 17 ms, as
/// nftables makes it: one flow 101 Mb/s, four together 283 Mb/s, and what a paced one
/// then carries without a loss.
#[test]
fn losses_that_pacing_avoids_are_those_of_bursts() {
    let one = Shown {
        goodput_bps: 101e6,
        mss: 8948,
        rtt_ns: 17_100_000,
        min_rtt_ns: 17_000_000,
        unacked: 24,
        window: 25,
        not_sent: 3 << 20,
        buffer_fill: 1.0,
        loss: 3.3e-3,
        ..Shown::default()
    };
    let four = Shown { goodput_bps: 283e6, loss: 4e-3, config: flows(4), ..one.clone() };
    let pacing = Some(BitRate(151_000_000));
    let paced = |goodput_bps: f64, loss: f64| Shown {
        goodput_bps,
        loss,
        unacked: 36,
        window: 400,
        config: FlowConfig { pacing, ..FlowConfig::default() },
        ..one.clone()
    };
    let diagnosed =
        |paced: &Shown| with(&one, &[(ExperimentKind::SeveralFlows, &four), (ExperimentKind::Paced, paced)]);
    let diagnosis = diagnosed(&paced(149e6, 0.0));
    let finding = found(&diagnosis);
    assert!(matches!(finding.cause, Cause::Loss { .. }), "{finding:?}");
    for part in ["paced to 149 Mb/s, 0.0000 % were lost", "room for a few packets", "policer"] {
        assert!(finding.sentence.contains(part), "{part}: {}", finding.sentence);
    }
    let pacing = Remedy::ChangeFlow { key: "pacing".to_owned(), value: "149Mb/s".into() };
    assert_eq!(finding.remedies[0], pacing);
    // Losses that do not depend on bursts hit the paced flow as well, or it carries no more.
    for (goodput, loss) in [(104e6, 3.1e-3), (149e6, 1e-3), (100e6, 0.0)] {
        let diagnosis = diagnosed(&paced(goodput, loss));
        let finding = found(&diagnosis);
        assert!(matches!(finding.cause, Cause::Loss { .. }), "{finding:?}");
        assert!(!finding.sentence.contains("few packets"), "{}", finding.sentence);
    }
}

/// The rate with a larger buffer is the lower bound of the gain.
#[test]
fn a_larger_buffer_shows_what_is_to_gain() {
    let limited = Shown {
        goodput_bps: 1e9,
        window_limited: 0.97,
        receive_buffer: 4 << 20,
        offered: 2_621_440,
        not_sent: 4 << 20,
        buffer_fill: 0.9,
        ..Shown::default()
    };
    let buffer = Some(ByteCount(32 << 20));
    let config = FlowConfig { send_buffer: buffer, receive_buffer: buffer, ..FlowConfig::default() };
    let larger = Shown { goodput_bps: 1.9e9, window_limited: 0.0, config, ..limited.clone() };
    let mut evidence = evidence(&limited, &[(ExperimentKind::LargerBuffer, &larger)]);
    evidence.server.kernel.sysctls.insert("net.ipv4.tcp_rmem".into(), "4096 131072 4194304".into());
    let diagnosis = explain(&evidence);
    assert!(matches!(found(&diagnosis).cause, Cause::ReceiverWindow { .. }), "{diagnosis:?}");
    let least = diagnosis.gain.unwrap().at_least.unwrap();
    assert!((1.9e9 * 0.8..=1.9e9).contains(&least.rate_bps), "{least:?}");
    assert!(least.basis.contains("with a larger buffer reached 1.90 Gb/s"), "{}", least.basis);
}

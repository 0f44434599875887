//! Mapping of a flow test to parameters of an iperf3 server, and its limits.

use std::net::IpAddr;

use clearstream_flow::engine::{self, Role};
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{Direction, FlowConfig, Protocol, ReceiveMethod, SendMethod},
};

use crate::parameters::{
    DATAGRAM, DURATION_MAX_S, Parameters, STREAMS_MAX, TRANSFER_MAX, WARM_UP_MAX_S, WINDOW_MAX,
};

/// MSS of a TCP socket without a set value (`TCP_MSS_DEFAULT`).
const MSS_UNSET: u32 = 536;
/// Maximum datagrams for 32-bit sequence numbers.
const NARROW_COUNT_MAX: u128 = 1 << 31;
/// Upper bound of the rate, where none was requested.
const RATE_MAX_BPS: u64 = 1_000_000_000_000;
const NANOS: u64 = 1_000_000_000;

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Invalid, message)
}

/// Rejects configurations that an iperf3 server does not support.
///
/// # Errors
/// `Invalid`, with a suggested correction.
pub(super) fn check(config: &FlowConfig) -> Result<(), Failure> {
    let (sends, receives) = roles(config.direction);
    engine::check(config, sends, receives)?;
    if config.protocol == Protocol::Mptcp {
        return Err(invalid("an iperf3 server does not report MPTCP support: use protocol tcp or udp"));
    }
    if config.flows > STREAMS_MAX {
        return Err(invalid(format!(
            "an iperf3 server supports at most {STREAMS_MAX} flows, not {}",
            config.flows
        )));
    }
    if config.transfer().0 > TRANSFER_MAX {
        return Err(invalid(format!(
            "an iperf3 server supports transfers up to 1MiB, not {}",
            config.transfer()
        )));
    }
    if config.window.is_some_and(|window| window.0 > WINDOW_MAX) {
        return Err(invalid("an iperf3 server supports windows up to 512MiB"));
    }
    if config.bytes.is_none() {
        let (duration, warm_up) = (config.duration.0, config.warm_up.0);
        if duration > DURATION_MAX_S * NANOS {
            return Err(invalid("an iperf3 server supports durations up to a day (86400s)"));
        }
        if !warm_up.is_multiple_of(NANOS) || warm_up > WARM_UP_MAX_S * NANOS {
            return Err(invalid(format!(
                "an iperf3 server supports a warm-up of whole seconds up to 600s, not {}: write --warm-up 0s or 1s",
                config.warm_up
            )));
        }
    }
    if let Some(size) = config.datagram.filter(|size| !DATAGRAM.contains(&size.0)) {
        return Err(invalid(format!(
            "datagram must be {} to {} bytes, not {size}",
            DATAGRAM.start(),
            DATAGRAM.end()
        )));
    }
    check_remote(config, sends, receives)
}

/// Rejects options of the peer that only a ClearStream agent supports.
fn check_remote(config: &FlowConfig, sends: bool, receives: bool) -> Result<(), Failure> {
    let remote_cores = if sends { &config.receiver_cores } else { &config.sender_cores };
    if !(sends && receives) && remote_cores.as_ref().is_some_and(|cores| cores.0.len() != 1) {
        let option = if sends { "receiver-cores" } else { "sender-cores" };
        return Err(invalid(format!("{option}: an iperf3 server can be pinned to one core only: write one")));
    }
    let refused = [
        (config.burst_flows > 0, "burst-flows"),
        (!receives && config.receiver_pause.is_some(), "receiver-pause"),
        (!receives && config.receiver_work.is_some(), "receiver-work"),
        (!receives && config.receive_low_water.is_some(), "receive-low-water"),
        (!receives && config.receive == ReceiveMethod::Splice, "receive splice"),
        (!receives && config.receive == ReceiveMethod::IoUring, "receive io-uring"),
        (!sends && config.method == SendMethod::Zerocopy, "method zerocopy"),
        (!sends && config.method == SendMethod::Splice, "method splice"),
        (!sends && config.method == SendMethod::IoUring, "method io-uring"),
    ];
    if let Some((_, option)) = refused.iter().find(|(is_set, _)| *is_set) {
        return Err(invalid(format!(
            "{option} applies to the peer, an iperf3 program without such an option: leave it out"
        )));
    }
    if config.direction == Direction::Both && config.source_ports.is_some() {
        return Err(invalid(
            "with both directions an iperf3 test has two connections per flow: use source-port, the first of them",
        ));
    }
    Ok(())
}

/// Whether this end, the client, sends and receives.
pub(super) fn roles(direction: Direction) -> (bool, bool) {
    (direction != Direction::Reverse, direction != Direction::Forward)
}

/// The parameters for a server of the family of `server`. `datagram_bytes` is the default size of UDP
/// datagrams.
///
/// # Errors
/// A socket option that this host rejects.
pub(super) fn parameters(
    config: &FlowConfig,
    server: IpAddr,
    datagram_bytes: u64,
) -> Result<Parameters, Failure> {
    let (sends, receives) = roles(config.direction);
    let udp = config.protocol == Protocol::Udp;
    // The effective values of a local socket are requested of the server.
    let socket = engine::open_socket(config, server, if sends { Role::Send } else { Role::Receive })?;
    let unreadable = |error| Failure::of_system("read a socket option", &error);
    let type_of_service = if server.is_ipv4() {
        socket.tos_v4().map_err(unreadable)?
    } else {
        socket.tclass_v6().map_err(unreadable)?
    };
    let mss_bytes = if udp { MSS_UNSET } else { socket.tcp_mss().map_err(unreadable)? };
    let whole_seconds = |nanos: u64| u32::try_from(nanos.div_ceil(NANOS)).unwrap_or(u32::MAX);
    let length_bytes = if udp { datagram_bytes } else { config.transfer().0 };
    let remote_cores = match config.direction {
        Direction::Forward => &config.receiver_cores,
        Direction::Reverse => &config.sender_cores,
        Direction::Both => &None,
    };
    Ok(Parameters {
        protocol: config.protocol,
        direction: config.direction,
        streams: config.flows,
        omit_s: if config.bytes.is_some() { 0 } else { whole_seconds(config.warm_up.0) },
        duration_s: if config.bytes.is_some() { 0 } else { whole_seconds(config.duration.0) },
        bytes: config.bytes.map(|bytes| bytes.0.saturating_mul(config.flows.into())),
        length_bytes,
        window_bytes: config.window.and_then(|window| u32::try_from(window.0).ok()),
        mss_bytes: (mss_bytes != MSS_UNSET).then_some(mss_bytes),
        no_delay: false,
        rate_bps: config.pacing.filter(|_| udp).map(|rate| rate.0),
        kernel_rate_bps: config.pacing.filter(|_| !udp).map(|rate| rate.0),
        type_of_service: u8::try_from(type_of_service).ok().filter(|byte| *byte > 0),
        congestion_control: config.congestion_control.clone(),
        wide_counters: udp && needs_wide_counters(config, length_bytes),
        send_file: receives && config.method == SendMethod::Sendfile,
        discard: sends && config.receive == ReceiveMethod::Discard,
        server_output: false,
        server_core: remote_cores.as_ref().and_then(|cores| cores.0.first().copied()),
        version: Some(format!("clearstream {}", env!("CARGO_PKG_VERSION"))),
        ignored: Vec::new(),
    })
}

/// Whether a stream may exceed 32-bit sequence numbers. 64-bit numbers are no default, since servers before
/// version 3.1 do not support them.
fn needs_wide_counters(config: &FlowConfig, datagram_bytes: u64) -> bool {
    let bytes = match config.bytes {
        Some(bytes) => u128::from(bytes.0),
        None => {
            let rate = config.pacing.map_or(RATE_MAX_BPS, |rate| rate.0);
            let nanos = u128::from(config.duration.0) + u128::from(config.warm_up.0);
            u128::from(rate) * nanos / 8 / u128::from(NANOS)
        }
    };
    bytes / u128::from(datagram_bytes.max(1)) > NARROW_COUNT_MAX
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{BitRate, ByteCount, CoreList, TimeSpan};

    use super::*;

    fn base() -> FlowConfig {
        FlowConfig::default()
    }

    #[test]
    fn unsupported_settings_of_an_iperf3_server_are_named() {
        check(&base()).unwrap();
        let reverse = || FlowConfig { direction: Direction::Reverse, ..base() };
        let both = || FlowConfig { direction: Direction::Both, ..base() };
        let mistakes = [
            ("MPTCP", FlowConfig { protocol: Protocol::Mptcp, ..base() }),
            ("128 flows", FlowConfig { flows: 129, ..base() }),
            ("1MiB", FlowConfig { transfer: Some(ByteCount(2 << 20)), ..base() }),
            ("512MiB", FlowConfig { window: Some(ByteCount(1 << 30)), ..base() }),
            ("whole seconds", FlowConfig { warm_up: TimeSpan::from_millis(500), ..base() }),
            ("a day", FlowConfig { duration: TimeSpan::from_seconds(90_000), ..base() }),
            ("receiver-cores", FlowConfig { receiver_cores: Some(CoreList(vec![0, 0])), ..base() }),
            ("receive splice", FlowConfig { receive: ReceiveMethod::Splice, ..base() }),
            ("method zerocopy", FlowConfig { method: SendMethod::Zerocopy, ..reverse() }),
            ("burst-flows", FlowConfig { burst_flows: 1, ..base() }),
            ("source-port,", FlowConfig { source_ports: Some(vec![40_000]), ..both() }),
        ];
        for (text, config) in mistakes {
            let failure = check(&config).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Invalid);
            assert!(failure.message.contains(text), "{text}: {failure}");
        }
        check(&FlowConfig { receive: ReceiveMethod::Splice, ..reverse() }).unwrap();
        let bytes = FlowConfig { bytes: Some(ByteCount(1)), warm_up: TimeSpan::from_millis(500), ..base() };
        check(&bytes).unwrap();
    }

    #[test]
    fn options_become_parameters() {
        let config = FlowConfig {
            flows: 4,
            bytes: Some(ByteCount(1000)),
            pacing: Some(BitRate(8_000_000)),
            window: Some(ByteCount(65_536)),
            receiver_cores: Some(CoreList(vec![1])),
            ..base()
        };
        let sent = parameters(&config, std::net::Ipv4Addr::LOCALHOST.into(), 1448).unwrap();
        assert_eq!((sent.bytes, sent.duration_s, sent.omit_s), (Some(4000), 0, 0));
        assert_eq!((sent.kernel_rate_bps, sent.rate_bps), (Some(8_000_000), None));
        assert_eq!((sent.window_bytes, sent.server_core), (Some(65_536), Some(1)));
        assert_eq!((sent.mss_bytes, sent.type_of_service), (None, None), "nothing was requested");
        let udp = FlowConfig { protocol: Protocol::Udp, duration: TimeSpan::from_millis(1500), ..base() };
        let sent = parameters(&udp, std::net::Ipv6Addr::LOCALHOST.into(), 1428).unwrap();
        assert_eq!((sent.duration_s, sent.omit_s, sent.length_bytes), (2, 1, 1428));
        assert!(!sent.wide_counters);
        let long = FlowConfig { duration: TimeSpan::from_seconds(3600), ..udp };
        assert!(needs_wide_counters(&long, 1428));
    }
}

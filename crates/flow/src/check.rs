//! Host-independent validation, before anything is changed.

use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, Protocol, ReceiveMethod, SendMethod},
};

use crate::data::DATAGRAM_HEADER_BYTES;

/// Maximum flows; more is taken for a typing error.
const FLOWS_MAX: u32 = 1024;
/// Maximum transfer size: buffers are per thread.
const TRANSFER_MAX: u64 = 256 << 20;
/// Largest UDP payload over IPv4: 65535 less the headers of 20 and 8.
pub(crate) const DATAGRAM_MAX: u64 = 65_507;

/// Range of `TCP_MAXSEG`: `TCP_MIN_MSS` to `MAX_TCP_WINDOW` (net/ipv4/tcp.c).
const MSS: std::ops::RangeInclusive<u64> = 88..=32_767;

/// `SO_MAX_PACING_RATE` counts bytes per second, and treats zero as no limit.
const PACING_MIN_BPS: u64 = 8;

/// Rejects the first invalid setting, with a suggested correction.
pub(crate) fn check(config: &FlowConfig) -> Result<(), Failure> {
    let wrong = |message: String| Err(Failure::new(FailureKind::Invalid, message));
    if !(1..=FLOWS_MAX).contains(&config.flows) {
        return wrong(format!("flows must be 1 to {FLOWS_MAX}, not {}", config.flows));
    }
    if !(1..=TRANSFER_MAX).contains(&config.transfer().0) {
        return wrong(format!("transfer must be 1B to 256MiB, not {}", config.transfer()));
    }
    if config.bytes.is_none() && config.duration.0 == 0 {
        return wrong("duration must be longer than zero, as in 10s".to_owned());
    }
    if config.bytes.is_some_and(|bytes| bytes.0 == 0) {
        return wrong("bytes must be more than zero, as in 1GiB".to_owned());
    }
    if config.interval.to_std() < std::time::Duration::from_millis(10) {
        return wrong(format!("interval must be at least 10ms, not {}", config.interval));
    }
    if let Some(dscp) = config.dscp.filter(|dscp| dscp.0 > 63) {
        return wrong(format!("dscp must be 0 to 63 (RFC 2474) or a name such as ef, not {dscp}"));
    }
    if let Some(mss) = config.mss.filter(|mss| !MSS.contains(&mss.0)) {
        return wrong(format!("mss must be {} to {} bytes, not {}", MSS.start(), MSS.end(), mss.0));
    }
    if let Some(rate) = config.pacing.filter(|rate| rate.0 < PACING_MIN_BPS) {
        return wrong(format!("pacing must be at least 8b/s, not {rate}: leave it out for no limit"));
    }
    if config.burst_flows > config.flows {
        return wrong(format!(
            "burst-flows is {} but there are only {} flows",
            config.burst_flows, config.flows
        ));
    }
    if (config.receiver_pause.is_some() || config.receiver_work.is_some())
        && (config.protocol == Protocol::Udp || config.receive == ReceiveMethod::IoUring)
    {
        return wrong(
            "receiver-pause and receiver-work are for streams that are read by copy, discard or splice"
                .to_owned(),
        );
    }
    if config.burst_flows > 0 && config.burst_on.0 == 0 {
        return wrong("burst-on must be longer than zero, as in 300ms".to_owned());
    }
    if let Some(port) = config.source_port
        && (port == 0 || u32::from(port) + config.flows > 65_536)
    {
        return wrong(format!("source-port {port} and the {} flows after it leave 1 to 65535", config.flows));
    }
    if let Some(ports) = &config.source_ports
        && (ports.len() != config.flows as usize || ports.contains(&0))
    {
        return wrong(format!(
            "source-ports has {} ports for {} flows: write one of 1 to 65535 for each",
            ports.len(),
            config.flows
        ));
    }
    if let Some(ports) = &config.source_ports
        && let Some(port) = twice(ports)
    {
        return wrong(format!("source-ports has {port} twice: each flow needs a port of its own"));
    }
    if config.steer {
        return wrong(
            "steer is for `clearstream flow`, which finds the ports first: elsewhere write source-ports, as \
             `clearstream place ports` prints them"
                .to_owned(),
        );
    }
    for (name, list) in [("sender-cores", &config.sender_cores), ("receiver-cores", &config.receiver_cores)] {
        if list.as_ref().is_some_and(|list| list.0.is_empty()) {
            return wrong(format!("{name} is an empty list: write cores as in 0-3,8, or leave it out"));
        }
    }
    if config.protocol == Protocol::Udp { check_udp(config) } else { check_stream(config) }
}

/// The first port listed more than once.
fn twice(ports: &[u16]) -> Option<u16> {
    let mut seen = std::collections::HashSet::new();
    ports.iter().copied().find(|port| !seen.insert(*port))
}

fn check_stream(config: &FlowConfig) -> Result<(), Failure> {
    if config.datagram.is_some() {
        let message = "datagram is the size of UDP datagrams: leave it out, or write protocol udp";
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    if config.mss.is_some() && config.protocol == Protocol::Mptcp {
        // mptcp_setsockopt() in net/mptcp/sockopt.c does not support TCP_MAXSEG.
        let message = "mss is not an option of MPTCP sockets: leave it out, or write protocol tcp";
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    Ok(())
}

fn check_udp(config: &FlowConfig) -> Result<(), Failure> {
    let wrong = |message: String| Err(Failure::new(FailureKind::Invalid, message));
    if config.method != SendMethod::Copy || config.receive != ReceiveMethod::Copy {
        return wrong(
            "UDP flows are sent and received by copy, since every datagram's number is written and read: \
             leave out method and receive"
                .to_owned(),
        );
    }
    if config.congestion_control.is_some() {
        return wrong("UDP has no congestion control: leave it out, or write pacing".to_owned());
    }
    if config.mss.is_some() {
        return wrong("mss applies to TCP segments: for UDP set datagram, the size of each".to_owned());
    }
    if config.receive_low_water.is_some() {
        return wrong(
            "UDP sockets have no receive low-water mark (socket(7)): leave receive-low-water out".to_owned(),
        );
    }
    let least = DATAGRAM_HEADER_BYTES as u64;
    match config.datagram {
        Some(size) if !(least..=DATAGRAM_MAX).contains(&size.0) => {
            wrong(format!("datagram must be {least} to {DATAGRAM_MAX} bytes, not {size}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{BitRate, ByteCount, CoreList, Dscp, TimeSpan};

    use super::*;

    #[test]
    fn the_defaults_are_valid_and_mistakes_are_named() {
        check(&FlowConfig::default()).unwrap();
        let base = FlowConfig::default;
        let udp = || FlowConfig { protocol: Protocol::Udp, ..base() };
        check(&udp()).unwrap();
        let mistakes: [(&str, FlowConfig); 23] = [
            ("flows", FlowConfig { flows: 0, ..base() }),
            ("transfer", FlowConfig { transfer: Some(ByteCount(0)), ..base() }),
            ("duration", FlowConfig { duration: TimeSpan(0), ..base() }),
            ("bytes", FlowConfig { bytes: Some(ByteCount(0)), ..base() }),
            ("interval", FlowConfig { interval: TimeSpan(1), ..base() }),
            ("dscp", FlowConfig { dscp: Some(Dscp(64)), ..base() }),
            ("88 to 32767", FlowConfig { mss: Some(ByteCount(87)), ..base() }),
            ("88 to 32767", FlowConfig { mss: Some(ByteCount(32_768)), ..base() }),
            ("datagram", FlowConfig { mss: Some(ByteCount(1000)), ..udp() }),
            ("MPTCP", FlowConfig { mss: Some(ByteCount(1000)), protocol: Protocol::Mptcp, ..base() }),
            ("burst-flows", FlowConfig { burst_flows: 2, ..base() }),
            ("source-port", FlowConfig { source_port: Some(65_535), flows: 2, ..base() }),
            ("source-ports", FlowConfig { source_ports: Some(vec![40_000]), flows: 2, ..base() }),
            ("place ports", FlowConfig { steer: true, ..base() }),
            ("sender-cores", FlowConfig { sender_cores: Some(CoreList(vec![])), ..base() }),
            ("receiver-pause", FlowConfig { receiver_pause: Some(TimeSpan::from_millis(1)), ..udp() }),
            ("method", FlowConfig { method: SendMethod::Sendfile, ..udp() }),
            ("datagram", FlowConfig { datagram: Some(ByteCount(8)), ..udp() }),
            ("protocol udp", FlowConfig { datagram: Some(ByteCount(1400)), ..base() }),
            ("low-water", FlowConfig { receive_low_water: Some(ByteCount(4096)), ..udp() }),
            ("pacing", FlowConfig { pacing: Some(BitRate(0)), ..base() }),
            ("pacing", FlowConfig { pacing: Some(BitRate(7)), ..udp() }),
            (
                "40001 twice",
                FlowConfig { source_ports: Some(vec![40_001, 40_000, 40_001]), flows: 3, ..base() },
            ),
        ];
        for (text, config) in mistakes {
            let failure = check(&config).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Invalid);
            assert!(failure.message.contains(text), "{text}: {failure}");
        }
        check(&FlowConfig { pacing: Some(BitRate(8)), ..base() }).unwrap();
    }
}

//! One direction of a probe, measured by sending to a responder.

use std::{io, net::SocketAddr, time::Duration};

use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    failure::firewall_advice,
    human::time,
    notice::Notice,
    probe::{ClockSource, DelayStats, ProbeConfig, ProbeDirection},
};

use crate::{
    channel::{TcpChannel, UdpChannel},
    delay,
    exchange::{self, Pace, Series},
    path_mtu,
    wire::{HEADER_BYTES, LARGEST_BYTES, Secret},
};

/// Maximum duration of a series, during which an agent is busy.
const LONGEST: Duration = Duration::from_secs(3600);
/// Shorter intervals would measure the pacing of a sleeping thread.
const SHORTEST_INTERVAL: Duration = Duration::from_micros(100);

/// Measures the path to a listening [`crate::Responder`]. What could not be measured is absent from the
/// result and explained in its notices; `from` and `to` are left empty for the controller, which knows the
/// hosts' names.
///
/// # Errors
/// `Invalid` when the configuration is invalid, `Unreachable` when nothing replies, `Internal` when sockets
/// cannot be opened.
pub fn measure(
    config: &ProbeConfig,
    udp: SocketAddr,
    tcp: SocketAddr,
    cookie: &Cookie,
) -> Result<ProbeDirection, Failure> {
    let (pace, size) = checked(config)?;
    let secret = crate::secret(cookie)?;
    let mut found = nothing_yet(udp);
    let udp_replies = over_udp(&mut found, udp, secret, size, pace)?;
    over_tcp(&mut found, tcp, secret, size, pace);
    if !udp_replies && found.tcp.is_none() {
        let reasons: Vec<_> = found.notices.iter().map(|notice| notice.message.as_str()).collect();
        let message = format!("{}; {}", reasons.join("; "), firewall_advice("UDP and TCP"));
        return Err(Failure { kind: FailureKind::Unreachable, message });
    }
    if udp_replies {
        path_mtu(&mut found, udp, secret, pace);
    }
    check_size(&mut found, udp, size);
    Ok(found)
}

/// Measures UDP round trips only, concurrently with a flow, which must not end before the last of them.
///
/// # Errors
/// As [`measure`].
pub(crate) fn round_trips(
    config: &ProbeConfig,
    udp: SocketAddr,
    cookie: &Cookie,
) -> Result<ProbeDirection, Failure> {
    let (pace, size) = checked(config)?;
    let mut found = nothing_yet(udp);
    if over_udp(&mut found, udp, crate::secret(cookie)?, size, pace)? {
        return Ok(found);
    }
    let reasons: Vec<_> = found.notices.iter().map(|notice| notice.message.as_str()).collect();
    Err(Failure { kind: FailureKind::Connection, message: reasons.join("; ") })
}

fn nothing_yet(udp: SocketAddr) -> ProbeDirection {
    ProbeDirection {
        from: String::new(),
        to: String::new(),
        udp: None,
        tcp: None,
        from_address: None,
        to_address: Some(udp.ip()),
        route_mtu_bytes: None,
        path_mtu_bytes: None,
        hop_count: None,
        notices: Vec::new(),
    }
}

fn checked(config: &ProbeConfig) -> Result<(Pace, usize), Failure> {
    let invalid = |message: String| Failure { kind: FailureKind::Invalid, message };
    let interval = config.interval.to_std();
    let timeout = config.timeout.to_std();
    let size = usize::try_from(config.size.0).unwrap_or(usize::MAX);
    if config.count == 0 {
        return Err(invalid("count 0 measures nothing: request at least 1 round trip".to_owned()));
    }
    if !(HEADER_BYTES..=LARGEST_BYTES).contains(&size) {
        let message = format!(
            "size {} does not fit a probe: its header has {HEADER_BYTES} bytes and a datagram at most {LARGEST_BYTES}",
            config.size
        );
        return Err(invalid(message));
    }
    if interval < SHORTEST_INTERVAL || interval > Duration::from_secs(60) {
        return Err(invalid(format!("interval {} is out of range: write 100us to 60s", config.interval)));
    }
    if timeout.is_zero() || timeout > Duration::from_secs(60) {
        return Err(invalid(format!("timeout {} is out of range: write 1ms to 60s", config.timeout)));
    }
    if interval.checked_mul(config.count).is_none_or(|whole| whole > LONGEST) {
        let message = format!(
            "{} round trips at {} take more than an hour: lower the count or the interval",
            config.count, config.interval
        );
        return Err(invalid(message));
    }
    Ok((Pace { count: config.count, interval, timeout }, size))
}

fn notice(found: &mut ProbeDirection, id: &str, message: String) {
    found.notices.push(Notice { id: id.to_owned(), message });
}

/// Probes over UDP; false when nothing replies.
fn over_udp(
    found: &mut ProbeDirection,
    to: SocketAddr,
    secret: Secret,
    size: usize,
    pace: Pace,
) -> Result<bool, Failure> {
    let mut channel = UdpChannel::open(to, secret, size)
        .map_err(|error| Failure::of_system(&format!("send UDP probes to {to}"), &error))?;
    found.from_address = channel.local_address().map(|address| address.ip());
    match exchange::greet(&mut channel, pace.timeout) {
        Ok(Some(_)) => {}
        Ok(None) => {
            let message = format!(
                "no reply over UDP from {to}: is UDP permitted, and do packets of {size} bytes pass?"
            );
            notice(found, "udp-no-answer", message);
            return Ok(false);
        }
        Err(error) => {
            notice(found, "udp-no-answer", format!("no reply over UDP from {to}: {error}"));
            return Ok(false);
        }
    }
    let series = exchange::run(&mut channel, pace);
    let mut stats = delay::distribution(&series.trips);
    if let Some(stats) = &mut stats {
        stats.local_lost_count = delay::local_losses(&series.trips);
        split_losses(&mut channel, stats, pace.timeout);
    } else {
        let message = format!("all {} UDP probes to {to} were lost", series.trips.len());
        notice(found, "udp-all-lost", message);
    }
    if let Some((fewest, most)) = series.hops {
        found.hop_count = Some(fewest);
        if fewest != most {
            let message = format!("the path to {to} changed while it was measured: {fewest} to {most} hops");
            notice(found, "path-changed", message);
        }
    }
    explain(found, "UDP", &series, stats.as_ref());
    explain_queueing(found, "UDP", stats.as_ref());
    found.udp = stats;
    Ok(true)
}

/// Splits losses by direction: the responder counts received probes, and a last greeting requests the count.
fn split_losses(channel: &mut UdpChannel, stats: &mut DelayStats, timeout: Duration) {
    if let Ok(Some(header)) = exchange::greet(channel, timeout) {
        // A packet duplicated by the network is counted twice.
        let reached = u64::from(header.seen).clamp(stats.answered_count, stats.sent_count);
        stats.forward_lost_count = Some(stats.sent_count - reached);
        stats.return_lost_count = Some(reached - stats.answered_count);
    }
}

fn over_tcp(found: &mut ProbeDirection, to: SocketAddr, secret: Secret, size: usize, pace: Pace) {
    // A connection needs one and a half round trips, and a lost SYN is retransmitted after a second.
    let timeout = pace.timeout.max(Duration::from_secs(3));
    let greeted =
        TcpChannel::open(to, secret, size, timeout).and_then(|mut channel| {
            match exchange::greet(&mut channel, timeout)? {
                Some(_) => Ok(channel),
                None => Err(io::Error::new(io::ErrorKind::TimedOut, "connected, but nothing replies")),
            }
        });
    let mut channel = match greeted {
        Ok(channel) => channel,
        Err(error) => {
            let message = format!("no reply over TCP from {to}: {error}; is the port permitted?");
            notice(found, "tcp-no-answer", message);
            return;
        }
    };
    let series = exchange::run(&mut channel, pace);
    let stats = delay::distribution(&series.trips);
    explain(found, "TCP", &series, stats.as_ref());
    explain_queueing(found, "TCP", stats.as_ref());
    found.tcp = stats;
}

/// Adds notices that qualify the results.
fn explain(found: &mut ProbeDirection, protocol: &str, series: &Series, stats: Option<&DelayStats>) {
    if let Some(error) = &series.error {
        let id = format!("{}-probe-error", protocol.to_lowercase());
        notice(found, &id, format!("{protocol} probes: {error}"));
    }
    if stats.is_some_and(|stats| stats.clock == ClockSource::Application) {
        let id = format!("{}-no-kernel-stamps", protocol.to_lowercase());
        let message = format!(
            "{protocol} delays are by the program's clock, since not every packet has its own kernel timestamp \
             (messages that TCP sent together share one): waking up a sleeping core (5 to 50 us) and the host's own \
             queue are part of them"
        );
        notice(found, &id, message);
    }
}

/// Local queueing delay that is reported: longer than any wake-up, and a visible part of the round trip.
const NOTABLE_QUEUEING: Duration = Duration::from_micros(500);

/// Reports the delay in this host's own queue, which is not part of the delays.
fn explain_queueing(found: &mut ProbeDirection, protocol: &str, stats: Option<&DelayStats>) {
    let Some((stats, queueing)) = stats.and_then(|stats| Some((stats, stats.local_queueing?))) else {
        return;
    };
    if Duration::from_nanos(queueing.p50_ns) < NOTABLE_QUEUEING || queueing.p50_ns < stats.p50_ns / 10 {
        return;
    }
    let with = stats.with_local_queueing.map_or(String::new(), |with| {
        format!("; with it the round trip is {} in the median", time(with.p50_ns))
    });
    let lost = stats
        .local_lost_count
        .filter(|count| *count > 0)
        .map_or(String::new(), |count| format!("; {count} probes did not leave it"));
    let message = format!(
        "{protocol} probes wait {} in the median and {} at most in the queueing discipline of the host that sends \
         them, before its driver: the delays do not contain that{with}{lost} (`tc -s qdisc` shows the queue)",
        time(queueing.p50_ns),
        time(queueing.max_ns),
    );
    notice(found, &format!("{}-local-queueing", protocol.to_lowercase()), message);
}

fn path_mtu(found: &mut ProbeDirection, to: SocketAddr, secret: Secret, pace: Pace) {
    // Three times the longest round trip, local queueing included, plus time for a wake-up on a busy host.
    let whole = |stats: &DelayStats| stats.with_local_queueing.map_or(stats.max_ns, |with| with.max_ns);
    let longest = found.udp.iter().chain(&found.tcp).map(whole).max().unwrap_or(0);
    let timeout = (Duration::from_nanos(longest) * 3 + Duration::from_millis(20))
        .clamp(Duration::from_millis(50), pace.timeout.max(Duration::from_millis(50)));
    match path_mtu::find(to, secret, timeout) {
        Ok(Some(result)) => {
            found.path_mtu_bytes = Some(result.path_bytes);
            found.route_mtu_bytes = Some(result.route_bytes);
            if result.path_bytes < result.route_bytes {
                notice_small_path(found, result);
            }
        }
        Ok(None) => {
            let message =
                format!("path MTU to {to} not found: not even the smallest packets with don't-fragment pass");
            notice(found, "path-mtu-unknown", message);
        }
        Err(error) => notice(found, "path-mtu-unknown", format!("path MTU to {to} not found: {error}")),
    }
}

fn notice_small_path(found: &mut ProbeDirection, result: path_mtu::Found) {
    let path_mtu::Found { path_bytes, route_bytes, icmp_bytes } = result;
    match icmp_bytes {
        Some(_) => notice(
            found,
            "path-mtu-below-route",
            format!(
                "the route has MTU {route_bytes}, but packets above {path_bytes} bytes do not pass; a router reports it by ICMP"
            ),
        ),
        None => notice(
            found,
            "path-mtu-black-hole",
            format!(
                "black hole: the route has MTU {route_bytes}, but packets above {path_bytes} bytes vanish and no \
                 router reports it; permit ICMP, set the MTU to {path_bytes}, or set net.ipv4.tcp_mtu_probing=1"
            ),
        ),
    }
}

/// Reports probes sent in fragments: their delays are not those of single packets.
fn check_size(found: &mut ProbeDirection, to: SocketAddr, size: usize) {
    let packet = size + if to.is_ipv4() { 28 } else { 48 };
    if let Some(path) = found.path_mtu_bytes
        && packet > path as usize
    {
        let message = format!("probes of {size} bytes were sent in fragments: the path MTU is {path} bytes");
        notice(found, "probe-fragmented", message);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use clearstream_schema::{ByteCount, TimeSpan};

    use super::*;
    use crate::Responder;

    fn cookie() -> Cookie {
        Cookie("0123456789abcdef0123456789abcdef".to_owned())
    }

    fn quick() -> ProbeConfig {
        ProbeConfig { count: 20, interval: TimeSpan::from_millis(2), ..ProbeConfig::default() }
    }

    fn ids(found: &ProbeDirection) -> Vec<&str> {
        found.notices.iter().map(|notice| notice.id.as_str()).collect()
    }

    #[test]
    fn loopback_is_measured_completely() {
        for address in ["127.0.0.1", "::1"] {
            let responder = Responder::open(Some(address.parse().unwrap()), None, &cookie()).unwrap();
            let found = measure(&quick(), responder.udp(), responder.tcp(), &cookie()).unwrap();
            for stats in [found.udp.as_ref().unwrap(), found.tcp.as_ref().unwrap()] {
                assert_eq!((stats.sent_count, stats.answered_count), (20, 20), "{address}");
                assert!(stats.min_ns > 0 && stats.min_ns <= stats.mean_ns && stats.mean_ns <= stats.max_ns);
                assert!(stats.p50_ns <= stats.p90_ns && stats.p90_ns <= stats.p99_ns);
                assert_eq!(stats.clock, ClockSource::Kernel, "{address}: loopback has software timestamps");
                let (queueing, with) = (stats.local_queueing.unwrap(), stats.with_local_queueing.unwrap());
                assert!(with.min_ns > stats.min_ns && with.max_ns >= stats.max_ns && queueing.min_ns > 0);
            }
            let udp = found.udp.as_ref().unwrap();
            assert_eq!(udp.local_lost_count, Some(0));
            assert_eq!((udp.forward_lost_count, udp.return_lost_count), (Some(0), Some(0)));
            assert_eq!(found.hop_count, Some(1), "no router in between");
            let shown = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
            let interface: u32 = shown.trim().parse().unwrap();
            let most = if address == "::1" { 65_555 } else { 65_535 };
            assert_eq!(found.path_mtu_bytes, Some(interface.min(most)), "{address}");
            assert_eq!(found.from_address, Some(address.parse().unwrap()));
            assert_eq!(ids(&found), Vec::<&str>::new());
        }
    }

    #[test]
    fn large_probes_are_not_mistaken_for_single_packets() {
        let responder = Responder::open(None, None, &cookie()).unwrap();
        let config = ProbeConfig { count: 3, size: ByteCount(65_507), ..quick() };
        let found = measure(&config, responder.udp(), responder.tcp(), &cookie()).unwrap();
        assert_eq!(found.tcp.unwrap().answered_count, 3);
        assert_eq!(found.udp.unwrap().answered_count, 3);
    }

    #[test]
    fn one_protocol_is_enough() {
        let responder = Responder::open(None, None, &cookie()).unwrap();
        // Port 1 (tcpmux) has no server nowadays.
        let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let found = measure(&quick(), nobody, responder.tcp(), &cookie()).unwrap();
        assert!(found.udp.is_none() && found.tcp.is_some() && found.path_mtu_bytes.is_none());
        assert_eq!(ids(&found), ["udp-no-answer"]);
        let found = measure(&quick(), responder.udp(), nobody, &cookie()).unwrap();
        assert!(found.udp.is_some() && found.tcp.is_none() && found.path_mtu_bytes.is_some());
        assert_eq!(ids(&found), ["tcp-no-answer"]);
    }

    #[test]
    fn an_absent_responder_and_a_wrong_cookie_are_failures() {
        let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let failure = measure(&quick(), nobody, nobody, &cookie()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unreachable);
        assert!(failure.message.contains("127.0.0.1:1"), "{failure}");
        let responder = Responder::open(None, None, &cookie()).unwrap();
        let config = ProbeConfig { timeout: TimeSpan::from_millis(30), ..quick() };
        let failure =
            measure(&config, responder.udp(), responder.tcp(), &Cookie("f".repeat(32))).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unreachable);
    }

    #[test]
    fn invalid_configurations_are_rejected_with_a_correction() {
        let base = ProbeConfig::default();
        for (config, text) in [
            (ProbeConfig { count: 0, ..base.clone() }, "count"),
            (ProbeConfig { size: ByteCount(43), ..base.clone() }, "size"),
            (ProbeConfig { size: ByteCount(65_508), ..base.clone() }, "size"),
            (ProbeConfig { interval: TimeSpan(0), ..base.clone() }, "interval"),
            (ProbeConfig { timeout: TimeSpan(0), ..base.clone() }, "timeout"),
            (ProbeConfig { count: u32::MAX, ..base.clone() }, "hour"),
        ] {
            let failure = checked(&config).unwrap_err();
            assert!(failure.kind == FailureKind::Invalid && failure.message.contains(text), "{failure}");
        }
        assert!(checked(&base).is_ok());
    }

    #[test]
    fn probes_are_sent_at_absolute_times() {
        let responder = Responder::open(None, None, &cookie()).unwrap();
        let config = ProbeConfig { count: 11, interval: TimeSpan::from_millis(20), ..quick() };
        let started = Instant::now();
        let mut channel = UdpChannel::open(responder.udp(), crate::secret(&cookie()).unwrap(), 64).unwrap();
        let series = exchange::run(&mut channel, checked(&config).unwrap().0);
        assert_eq!(series.trips.len(), 11);
        assert!(started.elapsed() >= Duration::from_millis(200), "ten intervals");
    }
}

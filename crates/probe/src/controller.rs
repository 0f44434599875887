//! The controller's part: both directions are measured, each by the agent at its start.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::AtomicBool,
};

use clearstream_control::{Peer, PeerError};
use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    notice::Notice,
    probe::{ProbeConfig, ProbeDirection, ProbeSummary},
};

use crate::calls::{Close, Listen, Listening, Run};

/// Probes from `client` to `server`, and in the reverse direction where possible. `client_address` is the
/// client's address from the server's point of view; when absent, the source address of its own probes is
/// used.
///
/// A reverse path without replies (address translation, a firewall) is a notice, not an error.
///
/// # Errors
/// When an agent is lost, nothing replies from client to server, or `stop` was set ([`PeerError::Stopped`]).
pub fn run(
    client: &mut Peer,
    server: &mut Peer,
    client_address: Option<IpAddr>,
    server_address: IpAddr,
    config: &ProbeConfig,
    stop: &AtomicBool,
) -> Result<ProbeSummary, PeerError> {
    let there = direction(client, server, server_address, config, false, stop)?;
    let mut directions = vec![there];
    if let Some(address) = client_address.or(directions[0].from_address) {
        match direction(server, client, address, config, false, stop) {
            Ok(back) => directions.push(back),
            Err(PeerError::Refused { name, failure }) => {
                directions[0].notices.push(Notice {
                    id: "no-way-back".to_owned(),
                    message: format!("not measured from {} to {address}: {name}: {failure}", server.name()),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ProbeSummary {
        requested: config.clone(),
        bandwidth_delay_product_bytes: product(config, &directions),
        directions,
    })
}

/// UDP round trips from `client` to `server` only: takes `count`
/// times `interval` and, with losses, the timeout.
///
/// # Errors
/// As [`run`].
pub fn round_trips(
    client: &mut Peer,
    server: &mut Peer,
    server_address: IpAddr,
    config: &ProbeConfig,
    stop: &AtomicBool,
) -> Result<ProbeDirection, PeerError> {
    direction(client, server, server_address, config, true, stop)
}

/// Rate times the shortest measured round trip: the data in flight that fills the path (bandwidth-delay
/// product, RFC 1072 section 1), in bytes.
fn product(config: &ProbeConfig, directions: &[ProbeDirection]) -> Option<u64> {
    let shortest_ns = directions
        .iter()
        .flat_map(|direction| direction.udp.iter().chain(&direction.tcp))
        .map(|stats| stats.min_ns)
        .min()?;
    let bits = u128::from(config.rate?.0) * u128::from(shortest_ns) / 1_000_000_000;
    u64::try_from(bits / 8).ok()
}

fn direction(
    from: &mut Peer,
    to: &mut Peer,
    address: IpAddr,
    config: &ProbeConfig,
    udp_only: bool,
    stop: &AtomicBool,
) -> Result<ProbeDirection, PeerError> {
    let cookie = fresh_cookie();
    let Listening { udp, tcp } = listen(to, address, config.port, &cookie)?;
    let outcome = from.call_unless(&Run { config: config.clone(), udp, tcp, cookie, udp_only }, stop);
    // The sockets are closed in any case; when closing fails, too, the first error is returned.
    let closed = to.call(&Close {});
    let mut found = outcome?;
    closed?;
    found.from = from.name().to_owned();
    found.to = to.name().to_owned();
    Ok(found)
}

/// Opens the responder on the very address of the probes, so that replies have that source on hosts with
/// several. Where the host does not have that address itself (it is translated), on all addresses.
fn listen(
    peer: &mut Peer,
    address: IpAddr,
    port: Option<u16>,
    cookie: &Cookie,
) -> Result<Listening, PeerError> {
    let on = |address| Listen { address: Some(address), port, cookie: cookie.clone() };
    let Listening { udp, tcp } = match peer.call(&on(address)) {
        Err(PeerError::Refused { failure: Failure { kind: FailureKind::Invalid, .. }, .. }) => {
            peer.call(&on(any_like(address)))?
        }
        other => other?,
    };
    Ok(Listening { udp: SocketAddr::new(address, udp.port()), tcp: SocketAddr::new(address, tcp.port()) })
}

fn any_like(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::from([0u8; 4]),
        IpAddr::V6(_) => IpAddr::from([0u16; 8]),
    }
}

fn fresh_cookie() -> Cookie {
    Cookie(format!("{:032x}", rand::random::<u128>()))
}

#[cfg(test)]
mod tests {
    use clearstream_control::{Registration, Service, Services, memory_pair};
    use clearstream_schema::{
        BitRate, TimeSpan,
        probe::{ClockSource, DelayRange, DelayStats},
    };

    use super::*;
    use crate::ProbeAgent;

    /// An agent without a responder.
    struct NoResponder;

    impl Service for NoResponder {
        fn register(calls: &mut Registration<Self>) {
            let busy = || Failure { kind: FailureKind::Busy, message: "busy".to_owned() };
            calls.on(move |_, _: Listen, _| Err(busy()));
        }
    }

    fn agent() -> Peer {
        memory_pair(Services::new().with(ProbeAgent::default())).unwrap()
    }

    fn quick() -> ProbeConfig {
        ProbeConfig {
            count: 5,
            interval: TimeSpan::from_millis(2),
            rate: Some(BitRate(19_000_000_000)),
            ..ProbeConfig::default()
        }
    }

    #[test]
    fn both_directions_and_the_product() {
        let mut client = agent();
        let mut server = agent();
        let summary =
            run(&mut client, &mut server, None, [127, 0, 0, 1].into(), &quick(), &AtomicBool::new(false))
                .unwrap();
        assert_eq!(summary.directions.len(), 2);
        let delays: Vec<_> =
            summary.directions.iter().flat_map(|one| [one.udp.as_ref(), one.tcp.as_ref()]).collect();
        assert!(delays.iter().all(|stats| stats.is_some_and(|stats| stats.answered_count == 5)));
        let shortest = delays.iter().flatten().map(|stats| stats.min_ns).min().unwrap();
        assert_eq!(summary.bandwidth_delay_product_bytes, Some(19 * shortest / 8), "19 bits per nanosecond");
    }

    #[test]
    fn the_published_product_of_the_40_gigabit_path() {
        // 19 Gb/s over 17 ms: 40.38 MB (the published value; 40.375 exactly).
        let delay = 17_000_000;
        let range = DelayRange {
            min_ns: delay,
            mean_ns: delay,
            p50_ns: delay,
            p90_ns: delay,
            p99_ns: delay,
            max_ns: delay,
        };
        let stats = DelayStats::new(range, 1, 1, ClockSource::Kernel);
        let direction = ProbeDirection {
            from: String::new(),
            to: String::new(),
            udp: Some(stats),
            tcp: None,
            from_address: None,
            to_address: None,
            route_mtu_bytes: None,
            path_mtu_bytes: None,
            hop_count: None,
            notices: Vec::new(),
        };
        assert_eq!(product(&quick(), &[direction]), Some(40_375_000));
        assert_eq!(product(&quick(), &[]), None, "nothing measured, nothing computed");
    }

    #[test]
    fn a_missing_reverse_path_is_a_notice() {
        let mut client = memory_pair(Services::new().with(ProbeAgent::default()).with(NoResponder)).unwrap();
        let mut server = agent();
        let summary =
            run(&mut client, &mut server, None, [127, 0, 0, 1].into(), &quick(), &AtomicBool::new(false))
                .unwrap();
        assert_eq!(summary.directions.len(), 1);
        assert_eq!(summary.directions[0].notices[0].id, "no-way-back");
    }

    #[test]
    fn a_translated_address_is_bound_to_all() {
        let mut peer = agent();
        // TEST-NET-1 is on no interface; binding falls back to all of them.
        let there: IpAddr = [192, 0, 2, 1].into();
        let Listening { udp, tcp } = listen(&mut peer, there, None, &fresh_cookie()).unwrap();
        assert_eq!((udp.ip(), tcp.ip()), (there, there));
        assert_ne!(udp.port(), 0);
    }

    #[test]
    fn cookies_are_32_digits_and_differ() {
        let (one, two) = (fresh_cookie(), fresh_cookie());
        assert_ne!(one, two);
        assert!(crate::secret(&one).is_ok() && crate::secret(&two).is_ok());
    }
}

//! The ports from which a watch probes. A gateway, or a link of several members behind it, may drop the packets of some
//! ports alone, so they differ in what such faults depend on: their last bits, and their place in the whole range.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
};

use clearstream_host::HostRoot;
use clearstream_schema::CoreList;
use clearstream_sys::timestamp::{Family, PathMtu, set_path_mtu};
use socket2::{Domain, Protocol, Socket, Type};

use super::{probe_kind::PORT_COUNT, tcp};

/// `ip_local_port_range` where it cannot be read (Linux's default).
const DEFAULT_RANGE: RangeInclusive<u16> = 32_768..=60_999;
/// Attempts at a port that nobody has.
const MOST_ATTEMPTS: usize = 1000;
/// Receive buffer: holds replies while the program is not scheduled.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// One port, held in both protocols and all families.
#[derive(Debug)]
pub(super) struct HeldPort {
    pub(super) number: u16,
    /// For UDP, with whether it is of IPv6.
    pub(super) datagrams: Vec<(bool, Socket)>,
    _segments: Vec<Socket>,
}

/// Holds as many as there are [kinds](PORT_COUNT), among those that programs get at random.
pub(super) fn hold_all(families: &[bool]) -> io::Result<Vec<HeldPort>> {
    let read = |name: &str| HostRoot::live().read(&format!("proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let range = range(&read("ip_local_port_range")).unwrap_or(DEFAULT_RANGE);
    // The kernel prints them in list form, as it does cores.
    let reserved: Vec<u32> =
        read("ip_local_reserved_ports").trim().parse().map(|CoreList(ports)| ports).unwrap_or_default();
    let hold = |index: usize| {
        for attempt in 0..MOST_ATTEMPTS {
            let number = candidate(&range, index, attempt, rand::random());
            if reserved.contains(&u32::from(number)) {
                continue;
            }
            match HeldPort::hold(number, families) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                other => return other,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    };
    (0..PORT_COUNT).map(hold).collect()
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.trim().split_once(char::is_whitespace)?;
    let range = first.parse().ok()?..=last.trim().parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// A port of the part of the range that belongs to an index, with the index as its last bits; any port of the range
/// where many attempts found none.
fn candidate(range: &RangeInclusive<u16>, index: usize, attempt: usize, random: u16) -> u16 {
    let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
    let (total, count, index) = (last - first + 1, PORT_COUNT as u32, index as u32);
    let part = total / count;
    let random = u32::from(random);
    if part < count || attempt > MOST_ATTEMPTS / 2 {
        return (first + random % total) as u16;
    }
    let any = first + index * part + random % part;
    // Within the part, which has a port of every remainder.
    let port = any - any % count + index;
    let port = if port < first + index * part { port + count } else { port };
    let port = if port >= first + (index + 1) * part { port - count } else { port };
    port as u16
}

impl HeldPort {
    fn hold(number: u16, families: &[bool]) -> io::Result<Self> {
        let datagrams = families.iter().map(|ipv6| Ok((*ipv6, open_datagrams(number, *ipv6)?)));
        let datagrams = datagrams.collect::<io::Result<_>>()?;
        let segments = families.iter().map(|ipv6| tcp::hold(number, *ipv6));
        Ok(Self { number, datagrams, _segments: segments.collect::<io::Result<_>>()? })
    }
}

/// A UDP socket on a port of all addresses. A gateway that cannot forward a large probe may say so by ICMP: the kernel
/// learns no smaller MTU from that, which would hold for every flow to that host (`ip_sk_accept_pmtu`,
/// include/net/ip.h).
pub(super) fn open_datagrams(port: u16, ipv6: bool) -> io::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    set_path_mtu(&socket, if ipv6 { Family::V6 } else { Family::V4 }, PathMtu::Interface)?;
    let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    if ipv6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SocketAddr::new(any, port).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the range: every port is in it; in one that is large enough each has its own last bits and its own
        /// part, so that a fault of any remainder of 2, 4 or 8, or of a quarter of the range, meets one.
        #[test]
        fn ports_differ_in_their_last_bits_and_are_spread_over_the_range(
            first in 1u16..60_000, length in 0u16..u16::MAX, random in any::<[u16; PORT_COUNT]>(),
        ) {
            let range = first..=first.saturating_add(length);
            let ports: Vec<u16> =
                (0..PORT_COUNT).map(|index| candidate(&range, index, 0, random[index])).collect();
            prop_assert!(ports.iter().all(|port| range.contains(port)), "{:?} of {:?}", ports, range);
            if usize::from(length.min(u16::MAX - first)) >= PORT_COUNT * PORT_COUNT {
                let remainders: Vec<usize> = ports.iter().map(|port| usize::from(*port) % PORT_COUNT).collect();
                prop_assert_eq!(remainders, (0..PORT_COUNT).collect::<Vec<_>>());
                prop_assert!(ports.is_sorted());
            }
        }
    }

    #[test]
    fn the_range_is_read_as_the_kernel_prints_it() {
        assert_eq!(range("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(range("nothing"), None);
        assert_eq!(range("9 3"), None);
    }

    #[test]
    fn ports_are_held_in_both_protocols() {
        let held = hold_all(&[false, true]).unwrap();
        assert_eq!(held.len(), PORT_COUNT);
        for port in &held {
            assert!(std::net::UdpSocket::bind(("0.0.0.0", port.number)).is_err());
            assert!(std::net::TcpListener::bind(("::1", port.number)).is_err());
        }
    }
}

//! Path MTU discovery by probing: packets of different sizes with don't-fragment set, of which only replies
//! count, since the route table and ICMP may both be wrong (a *black hole* drops large packets without an
//! ICMP message). This is datagram packetization-layer discovery as in RFC 8899, with a search instead of a
//! slow increase.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use clearstream_sys::timestamp::{self, Family, PathMtu, QueuedError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    channel,
    wire::{HEADER_BYTES, Kind, LARGEST_BYTES, Secret},
};

/// Common MTUs, largest first: jumbo frames, Ethernet, PPPoE, tunnels, the minimum of IPv6. Trying them first
/// ends most searches after two sizes, as intended by the plateau table of RFC 1191 section 7.1.
const PLATEAUS: [u32; 9] = [9000, 4352, 1500, 1492, 1480, 1450, 1420, 1400, 1280];
/// Unanswered packets after which a size is considered too big.
const ATTEMPTS: u32 = 3;

/// Result of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Largest IP packet that passed.
    pub path_bytes: u32,
    /// MTU of the route before the search.
    pub route_bytes: u32,
    /// Smallest MTU reported by a router by ICMP.
    pub icmp_bytes: Option<u32>,
}

/// Largest size from `low` to `high` that passes; `None` when not even `low`
/// does. Assumes that whatever is smaller than a passing size passes.
fn search<E>(low: u32, high: u32, mut passes: impl FnMut(u32) -> Result<bool, E>) -> Result<Option<u32>, E> {
    if passes(high)? {
        return Ok(Some(high));
    }
    if low >= high || !passes(low)? {
        return Ok(None);
    }
    let (mut good, mut bad) = (low, high);
    for plateau in PLATEAUS {
        if plateau <= good || plateau >= bad {
            continue;
        }
        if passes(plateau)? {
            good = plateau;
            // Most often the plateau is the result: one more packet confirms it.
            if plateau + 1 < bad {
                if passes(plateau + 1)? { good = plateau + 1 } else { bad = plateau + 1 }
            }
            break;
        }
        bad = plateau;
    }
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if passes(middle)? { good = middle } else { bad = middle }
    }
    Ok(Some(good))
}

/// Searches the path to a responder. `timeout` is the maximum wait for a reply; it is derived from the round
/// trips measured before.
pub(crate) fn find(to: SocketAddr, secret: Secret, timeout: Duration) -> io::Result<Option<Found>> {
    find_over(channel::udp_socket(to)?, to, secret, timeout)
}

/// As [`find`] over a connected socket.
pub(crate) fn find_over(
    socket: UdpSocket,
    to: SocketAddr,
    secret: Secret,
    timeout: Duration,
) -> io::Result<Option<Found>> {
    let family = Family::of(to);
    let route_bytes = timestamp::route_mtu(&socket, family)?;
    timestamp::set_path_mtu(&socket, family, PathMtu::Probe)?;
    timestamp::report_errors(&socket, family)?;
    // IP and UDP headers without options. The lower bound is the minimum of every host: RFC 791 section 3.2
    // (576 bytes), RFC 8200 section 5 (1280).
    let (headers, least) = if to.is_ipv4() { (28, 576) } else { (48, 1280) };
    let mut prober = Prober { socket, secret, headers, timeout, sequence: 0, icmp_bytes: None };
    let high = prober.interface_bytes(route_bytes)?;
    let path = search(least.min(high), high, |size| prober.passes(size))?;
    Ok(path.map(|path_bytes| Found { path_bytes, route_bytes, icmp_bytes: prober.icmp_bytes }))
}

struct Prober {
    socket: UdpSocket,
    secret: Secret,
    headers: u32,
    timeout: Duration,
    sequence: u32,
    icmp_bytes: Option<u32>,
}

impl Prober {
    /// MTU of the outgoing interface. `IP_MTU` would return the route's, which may be a smaller one cached
    /// long ago; but a packet too big for the interface is rejected with the interface's MTU.
    fn interface_bytes(&mut self, route_bytes: u32) -> io::Result<u32> {
        let mut bytes = Vec::new();
        channel::message(&self.secret, Kind::Size, 0, LARGEST_BYTES, &mut bytes);
        let largest = LARGEST_BYTES as u32 + self.headers;
        if self.socket.send(&bytes).is_ok() {
            return Ok(largest);
        }
        let mut interface = route_bytes;
        while let Some(error) = timestamp::take_error(&self.socket)? {
            if let QueuedError::TooBig { mtu_bytes, local: true } = error {
                interface = mtu_bytes;
            }
        }
        Ok(interface.min(largest))
    }

    fn passes(&mut self, packet_bytes: u32) -> io::Result<bool> {
        let payload = packet_bytes.saturating_sub(self.headers).max(HEADER_BYTES as u32);
        let mut bytes = Vec::new();
        // A reply to any attempt at this size counts, however late.
        let first = self.sequence + 1;
        for _ in 0..ATTEMPTS {
            self.sequence += 1;
            channel::message(&self.secret, Kind::Size, self.sequence, payload as usize, &mut bytes);
            match self.socket.send(&bytes) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                    self.take_errors(packet_bytes)?;
                    return Ok(false);
                }
                // Left over from an earlier packet.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
            match self.await_reply(first, packet_bytes)? {
                Some(passed) => return Ok(passed),
                None => continue,
            }
        }
        Ok(false)
    }

    /// `Some(true)` for a reply, `Some(false)` when a router dropped it and reported that, `None` on timeout.
    fn await_reply(&mut self, first: u32, packet_bytes: u32) -> io::Result<Option<bool>> {
        let deadline = Instant::now() + self.timeout;
        let mut buffer = [0u8; HEADER_BYTES];
        loop {
            if self.take_errors(packet_bytes)? {
                return Ok(Some(false));
            }
            match timestamp::receive(&self.socket, &mut buffer) {
                Ok(received) => {
                    let reply = channel::read_reply(&self.secret, &buffer[..received.length]);
                    if reply.is_some_and(|reply| reply.kind == Kind::Size && reply.sequence >= first) {
                        return Ok(Some(true));
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The pending error of an entry on the error queue, which has the details and is read above.
                Err(_) => continue,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let limit =
                Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)], Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Drains the error queue; true when a packet of this size was dropped for its size.
    fn take_errors(&mut self, packet_bytes: u32) -> io::Result<bool> {
        let mut dropped = false;
        while let Some(error) = timestamp::take_error(&self.socket)? {
            if let QueuedError::TooBig { mtu_bytes, local: false } = error {
                dropped |= mtu_bytes < packet_bytes;
                self.icmp_bytes = Some(self.icmp_bytes.map_or(mtu_bytes, |smallest| smallest.min(mtu_bytes)));
            }
        }
        Ok(dropped)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn find_on(path: u32, low: u32, high: u32) -> (Option<u32>, u32) {
        let mut tries = 0;
        let found = search::<Infallible>(low, high, |size| {
            assert!((low..=high).contains(&size));
            tries += 1;
            Ok(size <= path)
        });
        (found.unwrap(), tries)
    }

    #[test]
    fn common_paths_need_few_packets() {
        assert_eq!(find_on(9000, 576, 9000), (Some(9000), 1));
        assert_eq!(find_on(1500, 576, 1500), (Some(1500), 1));
        // 9000 fails, 576 passes, 4352 fails, 1500 passes, 1501 fails.
        assert_eq!(find_on(1500, 576, 9000), (Some(1500), 5));
        assert_eq!(find_on(500, 576, 9000), (None, 2));
        assert_eq!(find_on(576, 576, 576), (Some(576), 1));
        assert_eq!(find_on(100, 576, 576), (None, 1));
    }

    proptest! {
        #[test]
        fn any_path_is_found_exactly(path in 576u32..=65_535, high in 576u32..=65_535) {
            let (found, tries) = find_on(path, 576, high);
            prop_assert_eq!(found, Some(path.min(high)));
            prop_assert!(tries <= 28);
        }
    }
}

//! Wire format of probes: the watch's own datagram, ICMP echo, and their IP and UDP
//! headers, because probes bypass the routing tables.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Octets of a probe.
pub const PROBE_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"CSRW";
const VERSION: u8 = 1;
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const UDP: u8 = 17;
const TCP: u8 = 6;
/// Octets of a TCP header without options.
const TCP_HEADER: usize = 20;
// Flags of TCP (RFC 9293, section 3.1).
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Types of echo request and echo reply: RFC 792 for IPv4, RFC 4443 (sections 4.1 and 4.2) for IPv6.
const ECHO: [u8; 2] = [8, 0];
const ECHO6: [u8; 2] = [128, 129];
/// A probe crosses one gateway; a path with many hops is not the probed one.
const HOP_LIMIT: u8 = 8;

/// A probe: what its sender needs to match the reply, and the gateway through which
/// the reply is to return. The responder returns it unchanged but for the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePacket {
    /// Type: reply or request.
    pub(super) is_reply: bool,
    /// Number of the fabric; see [`fabric_number`].
    pub(super) fabric: u64,
    /// Random number of the sending run, which an off-path attacker cannot guess.
    pub(super) run: u64,
    /// Round.
    pub(super) round: u64,
    /// Path: index among those of the sender.
    pub(super) path: u16,
    /// Gateway: index in the path.
    pub(super) gateway: u16,
    /// The gateway's address on the remote network, through which the reply returns.
    pub(super) reply_via: IpAddr,
    /// The sender's clock when it was sent.
    pub(super) sent_ns: u64,
    /// Index of the sender's port.
    pub(super) port: u8,
    /// Octets of the payload that this begins; zeros follow. A reply is as long.
    pub(super) payload_bytes: u16,
    /// Of a reply: for how long the responder kept the probe, which is no part of the round trip.
    pub(super) held_us: u16,
}

impl ProbePacket {
    /// As octets.
    pub fn to_bytes(self) -> [u8; PROBE_BYTES] {
        let mut bytes = [0; PROBE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..7].copy_from_slice(&[VERSION, if self.is_reply { REPLY } else { REQUEST }, self.port]);
        bytes[8..16].copy_from_slice(&self.fabric.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.run.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.round.to_be_bytes());
        bytes[32..34].copy_from_slice(&self.path.to_be_bytes());
        bytes[34..36].copy_from_slice(&self.gateway.to_be_bytes());
        bytes[36..52].copy_from_slice(&mapped(self.reply_via).octets());
        bytes[52..60].copy_from_slice(&self.sent_ns.to_be_bytes());
        bytes[60..62].copy_from_slice(&self.payload_bytes.to_be_bytes());
        bytes[62..64].copy_from_slice(&self.held_us.to_be_bytes());
        bytes
    }

    /// Reads a payload; absent when it is no probe of this version, or not whole.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; PROBE_BYTES] = payload.get(..PROBE_BYTES)?.try_into().ok()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let is_reply = match bytes[5] {
            REQUEST => false,
            REPLY => true,
            _ => return None,
        };
        let long = |at: usize| bytes[at..at + 8].try_into().map(u64::from_be_bytes).ok();
        let payload_bytes = u16::from_be_bytes([bytes[60], bytes[61]]);
        if usize::from(payload_bytes) != payload.len() {
            return None;
        }
        let reply_via: [u8; 16] = bytes[36..52].try_into().ok()?;
        Some(Self {
            is_reply,
            fabric: long(8)?,
            run: long(16)?,
            round: long(24)?,
            path: u16::from_be_bytes([bytes[32], bytes[33]]),
            gateway: u16::from_be_bytes([bytes[34], bytes[35]]),
            reply_via: Ipv6Addr::from(reply_via).to_canonical(),
            sent_ns: long(52)?,
            port: bytes[6],
            payload_bytes,
            held_us: u16::from_be_bytes([bytes[62], bytes[63]]),
        })
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// A number for the name of a fabric, so that watches of two fabrics on one
/// network ignore each other's probes (FNV-1a, 64 bits). It is no secret.
pub(super) fn fabric_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Ether type of packets from `address`.
pub(super) fn ether_type(address: IpAddr) -> u16 {
    if address.is_ipv4() { 0x0800 } else { 0x86dd }
}

/// Octets of the IP and UDP or TCP headers of a probe.
pub(super) fn header_bytes(ipv6: bool, tcp: bool) -> u32 {
    (if ipv6 { 40 } else { 20 }) + (if tcp { TCP_HEADER as u32 } else { 8 })
}

/// A UDP datagram with its IP header (RFC 768, RFC 791, RFC 8200). Absent for two families.
pub(super) fn udp(from: SocketAddr, to: SocketAddr, probe: ProbePacket) -> Option<Vec<u8>> {
    let length = probe.payload_bytes.checked_add(8)?;
    let (mut packet, body) = blank(from.ip(), to.ip(), UDP, length)?;
    let datagram = &mut packet[body..];
    datagram[..2].copy_from_slice(&from.port().to_be_bytes());
    datagram[2..4].copy_from_slice(&to.port().to_be_bytes());
    datagram[4..6].copy_from_slice(&length.to_be_bytes());
    datagram[8..8 + PROBE_BYTES].copy_from_slice(&probe.to_bytes());
    // The zeros that follow add nothing.
    let sum = folded(pseudo_sum(from.ip(), to.ip(), UDP, length)? + sum(&datagram[..8 + PROBE_BYTES]));
    // Zero would mean that there is none (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    Some(packet)
}

/// The headers of a TCP segment that begins a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Sender.
    pub(super) from: IpAddr,
    /// Receiver.
    pub(super) to: IpAddr,
    /// Port of the sender.
    pub(super) from_port: u16,
    /// Port of the receiver.
    pub(super) to_port: u16,
    /// Sequence number of the SYN.
    pub(super) sequence: u32,
    /// The next octet that is expected; absent without ACK.
    pub(super) acknowledged: Option<u32>,
}

/// A TCP segment with SYN and its IP header (RFC 9293, section 3.1). Absent for
/// two families.
pub(super) fn tcp(segment: &Segment, probe: ProbePacket) -> Option<Vec<u8>> {
    let length = probe.payload_bytes.checked_add(TCP_HEADER as u16)?;
    let (mut packet, body) = blank(segment.from, segment.to, TCP, length)?;
    let bytes = &mut packet[body..];
    bytes[..2].copy_from_slice(&segment.from_port.to_be_bytes());
    bytes[2..4].copy_from_slice(&segment.to_port.to_be_bytes());
    bytes[4..8].copy_from_slice(&segment.sequence.to_be_bytes());
    bytes[8..12].copy_from_slice(&segment.acknowledged.unwrap_or(0).to_be_bytes());
    let flags = if segment.acknowledged.is_some() { SYN | ACK } else { SYN };
    // Header length in words of four octets, flags, window; checksum and urgent pointer follow.
    bytes[12..16].copy_from_slice(&[((TCP_HEADER / 4) << 4) as u8, flags, 0xff, 0xff]);
    bytes[TCP_HEADER..TCP_HEADER + PROBE_BYTES].copy_from_slice(&probe.to_bytes());
    let pseudo = pseudo_sum(segment.from, segment.to, TCP, length)?;
    let sum = folded(pseudo + sum(&bytes[..TCP_HEADER + PROBE_BYTES]));
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    Some(packet)
}

/// Reads an IP packet with a whole TCP segment that begins a connection, and its
/// data. Absent for anything else, and for a wrong checksum.
pub fn tcp_segment(ipv6: bool, bytes: &[u8]) -> Option<(Segment, &[u8])> {
    let (from, to, body) = if ipv6 {
        let length = usize::from(u16::from_be_bytes([*bytes.get(4)?, *bytes.get(5)?]));
        let address = |at: usize| <[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok().map(IpAddr::from);
        (address(8)?, address(24)?, bytes.get(40..)?.get(..length)?)
    } else {
        let header = usize::from(bytes.first()? & 0x0f) * 4;
        let length = usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
        let address = |at: usize| <[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok().map(IpAddr::from);
        (address(12)?, address(16)?, bytes.get(header..length)?)
    };
    let header: &[u8; TCP_HEADER] = body.get(..TCP_HEADER)?.try_into().ok()?;
    let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let long = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let pseudo = pseudo_sum(from, to, TCP, u16::try_from(body.len()).ok()?)?;
    if header[13] & SYN == 0 || folded(pseudo + sum(body)) != 0 {
        return None;
    }
    let data = body.get(usize::from(header[12] >> 4) * 4..)?;
    let acknowledged = (header[13] & ACK != 0).then(|| long(8));
    let segment =
        Segment { from, to, from_port: short(0), to_port: short(2), sequence: long(4), acknowledged };
    Some((segment, data))
}

/// An ICMP echo with its IP header.
pub(super) fn echo(
    from: IpAddr,
    to: IpAddr,
    identifier: u16,
    sequence: u16,
    probe: ProbePacket,
) -> Option<Vec<u8>> {
    let ([kind, _], protocol) = if from.is_ipv4() { (ECHO, ICMP) } else { (ECHO6, ICMP6) };
    let length = probe.payload_bytes.checked_add(8)?;
    let (mut packet, body) = blank(from, to, protocol, length)?;
    let message = &mut packet[body..];
    message[0] = kind;
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    message[8..8 + PROBE_BYTES].copy_from_slice(&probe.to_bytes());
    let pseudo = if from.is_ipv4() { 0 } else { pseudo_sum(from, to, protocol, length)? };
    let sum = folded(pseudo + sum(&message[..8 + PROBE_BYTES]));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(packet)
}

/// Payload of an echo reply. A raw socket hands IPv4 packets over with
/// their header and IPv6 packets without (raw(7), RFC 3542 section 3).
pub fn echo_reply_payload(ipv6: bool, bytes: &[u8]) -> Option<&[u8]> {
    let header = if ipv6 { 0 } else { usize::from(bytes.first()? & 0x0f) * 4 };
    let body = bytes.get(header..)?;
    let [_, wanted] = if ipv6 { ECHO6 } else { ECHO };
    (body.first() == Some(&wanted) && body.get(1) == Some(&0)).then(|| body.get(8..)).flatten()
}

/// Sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1). Absent for two families.
fn pseudo_sum(from: IpAddr, to: IpAddr, protocol: u8, length: u16) -> Option<u64> {
    let addresses = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => sum(&from.octets()) + sum(&to.octets()),
        (IpAddr::V6(from), IpAddr::V6(to)) => sum(&from.octets()) + sum(&to.octets()),
        _ => return None,
    };
    Some(addresses + u64::from(protocol) + u64::from(length))
}

/// An IP packet of its header and so many zeros after it, with their place. Absent for two families.
fn blank(from: IpAddr, to: IpAddr, protocol: u8, length: u16) -> Option<(Vec<u8>, usize)> {
    let body = if from.is_ipv4() { 20 } else { 40 };
    let mut bytes = vec![0; body + usize::from(length)];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            // Version and header length, DSCP CS6 (network control, RFC 4594).
            bytes[..2].copy_from_slice(&[0x45, 0xc0]);
            bytes[2..4].copy_from_slice(&length.checked_add(20)?.to_be_bytes());
            // Not to be fragmented (DF). No identification is needed then (RFC 6864).
            bytes[6..10].copy_from_slice(&[0x40, 0, HOP_LIMIT, protocol]);
            bytes[12..16].copy_from_slice(&from.octets());
            bytes[16..20].copy_from_slice(&to.octets());
            let sum = folded(sum(&bytes[..20]));
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes[0] = 0x6c;
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            bytes[6..8].copy_from_slice(&[protocol, HOP_LIMIT]);
            bytes[8..24].copy_from_slice(&from.octets());
            bytes[24..40].copy_from_slice(&to.octets());
        }
        _ => return None,
    }
    Some((bytes, body))
}

/// Sum of octets in words of 16 bits, not folded, for [`folded`]. Sums of even numbers of octets may be added.
fn sum(bytes: &[u8]) -> u64 {
    // Of 32 bits each: the same after folding (RFC 1071, section 2, parallel summation).
    let (words, rest) = bytes.as_chunks::<16>();
    let mut sum = 0u64;
    for word in words {
        let word = u128::from_be_bytes(*word);
        let (high, low) = ((word >> 64) as u64, word as u64);
        sum += (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff);
    }
    for pair in rest.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    sum
}

/// The checksum of a sum (RFC 1071).
fn folded(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn checksum_is_that_of_rfc_1071() {
        // Section 3: the sum of these octets is ddf2.
        assert_eq!(folded(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), !0xddf2);
    }

    #[test]
    fn fabric_number_is_fnv_1a() {
        // draft-eastlake-fnv, appendix C: test vectors of FNV-1a, 64 bits.
        assert_eq!(fabric_number(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fabric_number("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fabric_number("foobar"), 0x8594_4171_f739_67e8);
    }

    fn probe() -> impl Strategy<Value = ProbePacket> {
        let reply_via = prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u16; 7]>().prop_map(|[b, c, d, e, f, g, h]| IpAddr::from([0xfd00, b, c, d, e, f, g, h])),
        ];
        let bytes = prop_oneof![Just(PROBE_BYTES as u16), PROBE_BYTES as u16..9000];
        (any::<bool>(), any::<[u64; 4]>(), any::<[u16; 3]>(), reply_via, any::<u8>(), bytes).prop_map(
            |(is_reply, long, short, reply_via, port, payload_bytes)| ProbePacket {
                is_reply,
                fabric: long[0],
                run: long[1],
                round: long[2],
                path: short[0],
                gateway: short[1],
                reply_via,
                sent_ns: long[3],
                port,
                payload_bytes,
                held_us: short[2],
            },
        )
    }

    proptest! {
        #[test]
        fn probes_are_read_as_they_were_written(probe in probe()) {
            let mut payload = probe.to_bytes().to_vec();
            payload.resize(usize::from(probe.payload_bytes), 0);
            prop_assert_eq!(ProbePacket::parse(&payload), Some(probe));
            payload.push(0);
            prop_assert_eq!(ProbePacket::parse(&payload), None, "longer than its sender says");
            prop_assert_eq!(ProbePacket::parse(&payload[..payload.len() - 2]), None, "shorter");
        }

        #[test]
        fn segments_are_read_as_they_were_written(
            ports in any::<[u16; 2]>(), numbers in any::<[u32; 2]>(), ack: bool, ipv6: bool,
            probe in probe(), spoiled in any::<usize>(),
        ) {
            let [from, to] = addresses(ipv6);
            let segment = Segment {
                from,
                to,
                from_port: ports[0],
                to_port: ports[1],
                sequence: numbers[0],
                acknowledged: ack.then_some(numbers[1]),
            };
            let mut bytes = tcp(&segment, probe).unwrap();
            let read = tcp_segment(ipv6, &bytes).map(|(segment, data)| (segment, ProbePacket::parse(data)));
            prop_assert_eq!(read, Some((segment, Some(probe))));
            // A checksum of ones' complement finds every single wrong octet.
            let header = if ipv6 { 40 } else { 20 };
            let at = header + spoiled % (bytes.len() - header);
            bytes[at] ^= 0x5a;
            prop_assert_eq!(tcp_segment(ipv6, &bytes), None);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), ipv6: bool) {
            let _ = ProbePacket::parse(&bytes);
            let _ = tcp_segment(ipv6, &bytes);
            let _ = echo_reply_payload(ipv6, &bytes);
        }

        /// A receiver sums everything, the checksum included, and finds 0xffff
        /// (RFC 1071). A packet is as long as was asked for.
        #[test]
        fn checksums_hold(probe in probe(), ipv6: bool, ports in any::<[u16; 2]>()) {
            let [from, to] = addresses(ipv6);
            let header = if ipv6 { 40 } else { 20 };
            let at = |place: usize| SocketAddr::new([from, to][place], ports[place]);
            let packet = udp(at(0), at(1), probe).unwrap();
            prop_assert_eq!(packet.len() as u32, header_bytes(ipv6, false) + u32::from(probe.payload_bytes));
            if !ipv6 {
                prop_assert_eq!(folded(sum(&packet[..20])), 0);
            }
            let length = u16::try_from(packet.len() - header).unwrap();
            let pseudo = pseudo_sum(from, to, UDP, length).unwrap();
            prop_assert_eq!(folded(pseudo + sum(&packet[header..])), 0);
            let packet = echo(from, to, 1, 2, probe).unwrap();
            let pseudo = if ipv6 { pseudo_sum(from, to, ICMP6, length).unwrap() } else { 0 };
            prop_assert_eq!(folded(pseudo + sum(&packet[header..])), 0);
        }
    }

    fn addresses(ipv6: bool) -> [IpAddr; 2] {
        let texts = if ipv6 { ["fd00::1", "fd00:1::2"] } else { ["10.0.0.1", "10.1.0.2"] };
        texts.map(|text| text.parse().unwrap())
    }
}

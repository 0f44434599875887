//! Wire format of probes: the watch's own datagram, ICMP echo, and their IP and UDP
//! headers, because probes bypass the routing tables.

use std::net::{IpAddr, Ipv6Addr};

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
}

impl ProbePacket {
    /// As octets.
    pub fn to_bytes(self) -> [u8; PROBE_BYTES] {
        let mut bytes = [0; PROBE_BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC);
        put(&[VERSION, if self.is_reply { REPLY } else { REQUEST }, 0, 0]);
        put(&self.fabric.to_be_bytes());
        put(&self.run.to_be_bytes());
        put(&self.round.to_be_bytes());
        put(&self.path.to_be_bytes());
        put(&self.gateway.to_be_bytes());
        put(&mapped(self.reply_via).octets());
        put(&self.sent_ns.to_be_bytes());
        bytes
    }

    /// Reads octets; absent when they are no probe of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PROBE_BYTES] = bytes.get(..PROBE_BYTES)?.try_into().ok()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let is_reply = match bytes[5] {
            REQUEST => false,
            REPLY => true,
            _ => return None,
        };
        let long = |at: usize| bytes[at..at + 8].try_into().map(u64::from_be_bytes).ok();
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

/// A UDP datagram with its IP header (RFC 768, RFC 791, RFC 8200), from and to
/// one port. Absent for two families.
pub(super) fn udp(from: IpAddr, to: IpAddr, port: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(payload.len() + 8).ok()?;
    let mut body = Vec::with_capacity(usize::from(length));
    for part in [port, port, length, 0] {
        body.extend(part.to_be_bytes());
    }
    body.extend(payload);
    let sum = checksum(pseudo_header(from, to, UDP, length)?.iter().chain(&body));
    // Zero would mean that there is none (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    body[6..8].copy_from_slice(&sum.to_be_bytes());
    packet(from, to, UDP, &body)
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
pub(super) fn tcp(segment: &Segment, payload: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(TCP_HEADER + payload.len());
    body.extend(segment.from_port.to_be_bytes());
    body.extend(segment.to_port.to_be_bytes());
    body.extend(segment.sequence.to_be_bytes());
    body.extend(segment.acknowledged.unwrap_or(0).to_be_bytes());
    let flags = if segment.acknowledged.is_some() { SYN | ACK } else { SYN };
    // Header length in words of four octets, flags, window, checksum, urgent pointer.
    body.extend([((TCP_HEADER / 4) << 4) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    body.extend(payload);
    let length = u16::try_from(body.len()).ok()?;
    let header = pseudo_header(segment.from, segment.to, TCP, length)?;
    let sum = checksum(header.iter().chain(&body));
    body[16..18].copy_from_slice(&sum.to_be_bytes());
    packet(segment.from, segment.to, TCP, &body)
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
    let pseudo = pseudo_header(from, to, TCP, u16::try_from(body.len()).ok()?)?;
    if header[13] & SYN == 0 || checksum(pseudo.iter().chain(body)) != 0 {
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
    payload: &[u8],
) -> Option<Vec<u8>> {
    let ([kind, _], protocol) = if from.is_ipv4() { (ECHO, ICMP) } else { (ECHO6, ICMP6) };
    let mut body = vec![kind, 0, 0, 0];
    body.extend(identifier.to_be_bytes());
    body.extend(sequence.to_be_bytes());
    body.extend(payload);
    let sum = if from.is_ipv4() {
        checksum(body.iter())
    } else {
        let length = u16::try_from(body.len()).ok()?;
        checksum(pseudo_header(from, to, protocol, length)?.iter().chain(&body))
    };
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(from, to, protocol, &body)
}

/// Payload of an echo reply. A raw socket hands IPv4 packets over with
/// their header and IPv6 packets without (raw(7), RFC 3542 section 3).
pub fn echo_reply_payload(ipv6: bool, bytes: &[u8]) -> Option<&[u8]> {
    let header = if ipv6 { 0 } else { usize::from(bytes.first()? & 0x0f) * 4 };
    let body = bytes.get(header..)?;
    let [_, wanted] = if ipv6 { ECHO6 } else { ECHO };
    (body.first() == Some(&wanted) && body.get(1) == Some(&0)).then(|| body.get(8..)).flatten()
}

fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, length: u16) -> Option<Vec<u8>> {
    let mut header = Vec::with_capacity(40);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend(from.octets());
            header.extend(to.octets());
            header.extend([0, protocol]);
            header.extend(length.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            header.extend(from.octets());
            header.extend(to.octets());
            header.extend(u32::from(length).to_be_bytes());
            header.extend([0, 0, 0, protocol]);
        }
        _ => return None,
    }
    Some(header)
}

fn packet(from: IpAddr, to: IpAddr, protocol: u8, body: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(40 + body.len());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = u16::try_from(20 + body.len()).ok()?;
            // Version and header length, DSCP CS6 (network control, RFC 4594).
            bytes.extend([0x45, 0xc0]);
            bytes.extend(length.to_be_bytes());
            // No identification is needed with DF (RFC 6864).
            bytes.extend([0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            let sum = checksum(bytes.iter());
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes.extend([0x6c, 0, 0, 0]);
            bytes.extend(u16::try_from(body.len()).ok()?.to_be_bytes());
            bytes.extend([protocol, HOP_LIMIT]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        _ => return None,
    }
    bytes.extend(body);
    Some(bytes)
}

/// RFC 1071.
fn checksum<'a>(bytes: impl Iterator<Item = &'a u8>) -> u16 {
    let (mut sum, mut high) = (0u64, true);
    for byte in bytes {
        sum += u64::from(*byte) << if high { 8 } else { 0 };
        high = !high;
    }
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
        assert_eq!(checksum([0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7].iter()), !0xddf2);
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
        (any::<bool>(), any::<[u64; 4]>(), any::<[u16; 2]>(), reply_via).prop_map(
            |(is_reply, long, short, reply_via)| ProbePacket {
                is_reply,
                fabric: long[0],
                run: long[1],
                round: long[2],
                path: short[0],
                gateway: short[1],
                reply_via,
                sent_ns: long[3],
            },
        )
    }

    proptest! {
        #[test]
        fn probes_are_read_as_they_were_written(probe in probe()) {
            prop_assert_eq!(ProbePacket::parse(&probe.to_bytes()), Some(probe));
        }

        #[test]
        fn segments_are_read_as_they_were_written(
            ports in any::<[u16; 2]>(), numbers in any::<[u32; 2]>(), ack: bool, ipv6: bool,
            payload in prop::collection::vec(any::<u8>(), 0..80), spoiled in any::<usize>(),
        ) {
            let address = |four: &str, six: &str| if ipv6 { six } else { four }.parse::<IpAddr>().unwrap();
            let segment = Segment {
                from: address("10.0.0.1", "fd00::1"),
                to: address("10.1.0.2", "fd00:1::2"),
                from_port: ports[0],
                to_port: ports[1],
                sequence: numbers[0],
                acknowledged: ack.then_some(numbers[1]),
            };
            let mut bytes = tcp(&segment, &payload).unwrap();
            prop_assert_eq!(tcp_segment(ipv6, &bytes), Some((segment, payload.as_slice())));
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
        /// (RFC 1071).
        #[test]
        fn checksums_hold(payload in prop::collection::vec(any::<u8>(), 0..80), ipv6: bool) {
            let [from, to]: [IpAddr; 2] = if ipv6 {
                ["fd00::1".parse().unwrap(), "fd00:1::2".parse().unwrap()]
            } else {
                ["10.0.0.1".parse().unwrap(), "10.1.0.2".parse().unwrap()]
            };
            let header = if ipv6 { 40 } else { 20 };
            let packet = udp(from, to, 7117, &payload).unwrap();
            if !ipv6 {
                prop_assert_eq!(checksum(packet[..20].iter()), 0);
            }
            let length = u16::try_from(packet.len() - header).unwrap();
            let pseudo = pseudo_header(from, to, UDP, length).unwrap();
            prop_assert_eq!(checksum(pseudo.iter().chain(&packet[header..])), 0);
            let packet = echo(from, to, 1, 2, &payload).unwrap();
            let pseudo = if ipv6 { pseudo_header(from, to, ICMP6, length).unwrap() } else { Vec::new() };
            prop_assert_eq!(checksum(pseudo.iter().chain(&packet[header..])), 0);
        }
    }
}

//! GSO packets. With segmentation offload one packet of up to 64 KiB crosses
//! the TUN device and stands for many on the wire; this module computes their
//! number and bytes, and removes lost ones.
//!
//! Layout: `struct virtio_net_hdr` (virtio 1.2, section 5.1.6; in host order on
//! a TUN device) and then the IP packet.

use clearstream_sys::tun::PACKET_HEADER_BYTES;

// virtio 1.2, 5.1.6: gso_type.
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

// RFC 9293, section 3.1, and RFC 3168, section 6.1: TCP flags.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// A packet as transmitted on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of packets on the wire.
    pub segment_count: u32,
    /// Total bytes, from the IP header on.
    pub wire_bytes: u64,
    gso: Option<Gso>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gso {
    /// Offset of the transport header in the IP packet.
    transport: usize,
    /// Length of IP and transport headers.
    headers: usize,
    /// Payload of each segment but the last.
    size: usize,
    tcp: bool,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

impl Shape {
    /// Parses a packet with its virtio header. An unknown protocol counts as
    /// one packet.
    pub fn of(packet: &[u8]) -> Self {
        Self::of_length(packet, packet.len().saturating_sub(PACKET_HEADER_BYTES))
    }

    /// Like [`Self::of`], from the start of a packet alone: its length is taken
    /// from the IP header (RFC 791, section 3.1; RFC 8200, section 3).
    pub fn of_start(start: &[u8]) -> Self {
        let ip = start.get(PACKET_HEADER_BYTES..).unwrap_or_default();
        let field = |at: usize| Some(usize::from(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?])));
        let ip_bytes = match ip.first().map(|byte| byte >> 4) {
            Some(4) => field(2),
            Some(6) => field(4).map(|payload| payload + 40),
            _ => None,
        };
        Self::of_length(start, ip_bytes.unwrap_or(ip.len()))
    }

    /// Parses a packet without a virtio header: its start from the IP header,
    /// its length, and the payload of each segment (0: no GSO).
    pub fn of_ip(start: &[u8], ip_bytes: usize, size: usize) -> Self {
        let byte = |at: usize| start.get(at).copied().map_or(0, usize::from);
        // RFC 791: header length in words of four bytes, protocol at 9. RFC 8200: 40, at 6.
        let (transport, protocol) = match byte(0) >> 4 {
            4 => ((byte(0) & 0x0f) * 4, byte(9)),
            _ => (40, byte(6)),
        };
        let headers = match protocol {
            6 => transport + (byte(transport + 12) >> 4) * 4,
            _ => transport + 8,
        };
        let gso = (size > 0).then_some(Gso { transport, headers, size, tcp: protocol == 6 });
        Self::counted(gso, ip_bytes)
    }

    fn of_length(packet: &[u8], ip_bytes: usize) -> Self {
        Self::counted(gso(packet), ip_bytes)
    }

    fn counted(gso: Option<Gso>, ip_bytes: usize) -> Self {
        match gso {
            Some(gso) if ip_bytes > gso.headers + gso.size => {
                let count = (ip_bytes - gso.headers).div_ceil(gso.size);
                Self {
                    segment_count: u32::try_from(count).unwrap_or(u32::MAX),
                    wire_bytes: (ip_bytes + (count - 1) * gso.headers) as u64,
                    gso: Some(gso),
                }
            }
            _ => Self { segment_count: 1, wire_bytes: ip_bytes as u64, gso: None },
        }
    }

    /// Returns the length of the longest packet on the wire, from the IP header
    /// on.
    pub fn longest_bytes(&self) -> u64 {
        match self.gso {
            Some(gso) => (gso.headers + gso.size) as u64,
            None => self.wire_bytes,
        }
    }

    /// Writes the segments `first..end` of a GSO packet to `out` as a separate
    /// packet. `None` when it is no GSO packet.
    pub fn cut(&self, packet: &[u8], first: u32, end: u32, out: &mut Vec<u8>) -> Option<()> {
        let gso = self.gso?;
        let (first, last) = (first as usize, end == self.segment_count);
        let body = PACKET_HEADER_BYTES + gso.headers;
        let from = body + first * gso.size;
        let to = if last { packet.len() } else { body + end as usize * gso.size };
        out.clear();
        out.extend_from_slice(packet.get(..body)?);
        out.extend_from_slice(packet.get(from..to)?);
        if to - from <= gso.size {
            // flags stay: the checksum must still be completed.
            out[1] = GSO_NONE;
            out[4..6].fill(0);
        }
        let (old, new) = (packet.len() - PACKET_HEADER_BYTES, out.len() - PACKET_HEADER_BYTES);
        let ip = &mut out[PACKET_HEADER_BYTES..];
        fix_ip(ip, new, first)?;
        let transport = gso.transport;
        let check = transport + if gso.tcp { 16 } else { 6 };
        if gso.tcp {
            let sequence = u32::from_be_bytes(ip.get(transport + 4..transport + 8)?.try_into().ok()?);
            let offset = u32::try_from(first * gso.size).ok()?;
            ip[transport + 4..transport + 8].copy_from_slice(&sequence.wrapping_add(offset).to_be_bytes());
            if !last {
                ip[transport + 13] &= !(FIN | PSH);
            }
            if first > 0 {
                ip[transport + 13] &= !CWR;
            }
        } else {
            let length = u16::try_from(new - transport).ok()?;
            ip[transport + 4..transport + 6].copy_from_slice(&length.to_be_bytes());
        }
        // The field contains the sum of the pseudo header, which includes the
        // length.
        let sum = u16::from_be_bytes([ip[check], ip[check + 1]]);
        let sum = replace_in_sum(sum, old - transport, new - transport);
        ip[check..check + 2].copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

fn gso(packet: &[u8]) -> Option<Gso> {
    let kind = packet.get(1)? & !GSO_ECN;
    let (size, transport) = (usize::from(half(packet, 4)?), usize::from(half(packet, 6)?));
    let transport_header = match kind {
        // Data offset in words of four bytes.
        GSO_TCPV4 | GSO_TCPV6 => usize::from(packet.get(PACKET_HEADER_BYTES + transport + 12)? >> 4) * 4,
        GSO_UDP_L4 => 8,
        _ => return None,
    };
    let tcp = kind != GSO_UDP_L4;
    if size == 0 || transport < 20 || transport_header < if tcp { 20 } else { 8 } {
        return None;
    }
    Some(Gso { transport, headers: transport + transport_header, size, tcp })
}

/// Updates lengths, identification and checksum of the IP header (RFC 791, RFC
/// 8200).
fn fix_ip(ip: &mut [u8], length: usize, first: usize) -> Option<()> {
    match ip.first()? >> 4 {
        4 => {
            let header = usize::from(ip[0] & 0x0f) * 4;
            ip[2..4].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
            // The kernel increments the identification per segment
            // (inet_gso_segment).
            let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(first as u16);
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ip[10..12].fill(0);
            let sum = !ones_sum(ip.get(..header)?);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        6 => ip[4..6].copy_from_slice(&u16::try_from(length - 40).ok()?.to_be_bytes()),
        _ => return None,
    }
    Some(())
}

/// RFC 1071: sum in ones' complement of 16-bit words.
fn ones_sum(bytes: &[u8]) -> u16 {
    let parts = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    fold(parts.sum())
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Updates one word of a sum that is not complemented (RFC 1624, equation 3).
fn replace_in_sum(sum: u16, old: usize, new: usize) -> u16 {
    fold(u32::from(sum) + u32::from(!(old as u16)) + u32::from(new as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GSO TCP packet over IPv4: headers of 20 + 20, payload counting up,
    /// checksum field with the pseudo header's sum, as the kernel passes it.
    fn packet(payload: usize, size: u16) -> Vec<u8> {
        let mut out = vec![0u8; PACKET_HEADER_BYTES];
        out[0] = 1; // VIRTIO_NET_HDR_F_NEEDS_CSUM
        out[1] = GSO_TCPV4;
        out[4..6].copy_from_slice(&size.to_ne_bytes());
        out[6..8].copy_from_slice(&20u16.to_ne_bytes());
        out[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let mut ip = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip[2..4].copy_from_slice(&u16::try_from(40 + payload).unwrap().to_be_bytes());
        let sum = !ones_sum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut tcp = vec![0u8; 20];
        tcp[4..8].copy_from_slice(&0xffff_ff00u32.to_be_bytes());
        tcp[12] = 5 << 4;
        tcp[13] = 0x10 | PSH | FIN | CWR;
        tcp[16..18].copy_from_slice(&pseudo(&ip, 20 + payload).to_be_bytes());
        out.extend(ip);
        out.extend(tcp);
        out.extend((0..payload).map(|index| (index % 251) as u8));
        out
    }

    /// RFC 9293, section 3.1: addresses, zero, protocol, length.
    fn pseudo(ip: &[u8], length: usize) -> u16 {
        let mut header = ip[12..20].to_vec();
        header.extend([0, 6]);
        header.extend(u16::try_from(length).unwrap().to_be_bytes());
        ones_sum(&header)
    }

    #[test]
    fn counts_what_goes_on_the_wire() {
        let shape = Shape::of(&packet(2500, 1000));
        assert_eq!((shape.segment_count, shape.wire_bytes), (3, 2500 + 3 * 40));
        let shape = Shape::of(&packet(3000, 1000));
        assert_eq!((shape.segment_count, shape.wire_bytes), (3, 3000 + 3 * 40));
        let shape = Shape::of(&packet(900, 1000));
        assert_eq!((shape.segment_count, shape.wire_bytes), (1, 940));
    }

    #[test]
    fn the_start_of_a_packet_determines_its_shape() {
        for payload in [900, 2500, 3000, 60_000] {
            let whole = packet(payload, 1000);
            assert_eq!(Shape::of_start(&whole[..128]), Shape::of(&whole), "{payload}");
            let ip = &whole[PACKET_HEADER_BYTES..];
            assert_eq!(Shape::of_ip(&ip[..60], ip.len(), 1000), Shape::of(&whole), "{payload}");
        }
        for length in 0..40 {
            assert_eq!(Shape::of_start(&packet(10, 1000)[..length]).segment_count, 1);
        }
    }

    #[test]
    fn cut_parts_are_whole_packets() {
        let whole = packet(2500, 1000);
        let shape = Shape::of(&whole);
        let mut out = Vec::new();
        for (first, end, payload, sequence) in [
            (0, 1, 0..1000, 0xffff_ff00u32),
            (1, 2, 1000..2000, 744),
            (2, 3, 2000..2500, 1744),
            (0, 2, 0..2000, 0xffff_ff00),
            (1, 3, 1000..2500, 744),
        ] {
            shape.cut(&whole, first, end, &mut out).unwrap();
            let ip = &out[PACKET_HEADER_BYTES..];
            assert_eq!(ip[40..], whole[PACKET_HEADER_BYTES + 40..][payload.clone()]);
            assert_eq!(ones_sum(&ip[..20]), 0xffff, "IP checksum");
            assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
            assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 0x1234 + first as u16);
            assert_eq!(ip[24..28], sequence.to_be_bytes());
            let sum = u16::from_be_bytes([ip[36], ip[37]]);
            assert_eq!(sum, pseudo(ip, ip.len() - 20), "{first}..{end}");
            assert_eq!(ip[33] & (FIN | PSH) != 0, end == 3, "end of data only at the end");
            assert_eq!(ip[33] & CWR != 0, first == 0, "RFC 3168: CWR on the first only");
            let parsed = Shape::of(&out);
            assert_eq!(parsed.segment_count, end - first);
        }
    }

    #[test]
    fn udp_parts_carry_their_own_length() {
        let mut whole = packet(2500, 1000);
        whole[1] = GSO_UDP_L4;
        whole[8..10].copy_from_slice(&6u16.to_ne_bytes());
        let shape = Shape::of(&whole);
        // 12 of the 20 bytes of the TCP header are payload now.
        assert_eq!((shape.segment_count, shape.wire_bytes), (3, 2512 + 3 * 28));
        let mut out = Vec::new();
        shape.cut(&whole, 1, 2, &mut out).unwrap();
        let ip = &out[PACKET_HEADER_BYTES..];
        assert_eq!(ip.len(), 1028);
        assert_eq!(ip[24..26], 1008u16.to_be_bytes());
        assert_eq!(out[1], GSO_NONE);
    }

    #[test]
    fn garbled_packets_are_one_packet() {
        let whole = packet(2500, 1000);
        for length in 0..60 {
            let shape = Shape::of(&whole[..length]);
            assert_eq!(shape.segment_count, 1, "{length}");
            assert!(shape.cut(&whole[..length], 0, 1, &mut Vec::new()).is_none());
        }
        let mut zero = whole.clone();
        zero[4..6].fill(0);
        assert_eq!(Shape::of(&zero).segment_count, 1);
    }
}

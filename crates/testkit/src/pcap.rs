//! Classic capture files with Ethernet, IPv4 and TCP: enough to reassemble the streams of a capture, and to
//! write sessions that tshark parses.

use std::{collections::HashMap, path::Path};

/// An end of a TCP connection.
pub type End = ([u8; 4], u16);

/// A connection of a capture.
pub struct Stream {
    /// The connecting end.
    pub client: End,
    /// Data sent by client and server, complete and in order.
    pub sent: [Vec<u8>; 2],
    /// Order of completion: side (0: the client) and end offset.
    pub turns: Vec<(usize, usize)>,
    /// Sequence numbers of the next bytes.
    next: [Option<u32>; 2],
    /// Segments received out of order.
    early: [Vec<(u32, Vec<u8>)>; 2],
}

/// The connections of a capture in order of their start.
pub fn streams(path: &Path) -> Vec<Stream> {
    let file = std::fs::read(path).unwrap();
    let mut streams: Vec<Stream> = vec![];
    let mut known: HashMap<(End, End), usize> = HashMap::new();
    for packet in packets(&file) {
        let segment = Segment::of(packet);
        if segment.syn && !segment.ack {
            known.insert((segment.from, segment.to), streams.len());
            streams.push(Stream {
                client: segment.from,
                sent: [vec![], vec![]],
                turns: vec![],
                next: [None, None],
                early: [vec![], vec![]],
            });
        }
        let side = usize::from(!known.contains_key(&(segment.from, segment.to)));
        let ends = if side == 0 { (segment.from, segment.to) } else { (segment.to, segment.from) };
        streams[known[&ends]].take(side, &segment);
    }
    streams
}

impl Stream {
    fn take(&mut self, side: usize, segment: &Segment<'_>) {
        if segment.syn {
            self.next[side] = Some(segment.sequence.wrapping_add(1));
            return;
        }
        self.early[side].push((segment.sequence, segment.payload.to_vec()));
        let before = self.sent[side].len();
        while self.extend(side) {}
        if self.sent[side].len() > before {
            self.turns.push((side, self.sent[side].len()));
        }
    }

    /// Appends an out-of-order segment that fits; a retransmission may overlap.
    fn extend(&mut self, side: usize) -> bool {
        let Some(next) = self.next[side] else { return false };
        let fits = |(sequence, bytes): &(u32, Vec<u8>)| {
            let old = next.wrapping_sub(*sequence) as usize;
            (old < bytes.len()).then_some(old)
        };
        let Some((at, old)) =
            self.early[side].iter().enumerate().find_map(|(at, early)| Some((at, fits(early)?)))
        else {
            return false;
        };
        let (_, bytes) = self.early[side].remove(at);
        self.sent[side].extend_from_slice(&bytes[old..]);
        self.next[side] = Some(next.wrapping_add((bytes.len() - old) as u32));
        true
    }
}

fn packets(file: &[u8]) -> Vec<&[u8]> {
    let field = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((field(0), field(20)), (0xa1b2_c3d4, 1), "a little-endian capture of Ethernet");
    let mut packets = vec![];
    let mut at = 24;
    while at < file.len() {
        let (captured, length) = (field(at + 8) as usize, field(at + 12) as usize);
        assert_eq!(captured, length, "a truncated packet");
        packets.push(&file[at + 16..at + 16 + captured]);
        at += 16 + captured;
    }
    packets
}

struct Segment<'a> {
    from: End,
    to: End,
    sequence: u32,
    syn: bool,
    ack: bool,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    fn of(packet: &'a [u8]) -> Self {
        assert_eq!(packet[12..14], [8, 0], "IPv4");
        let ip = &packet[14..];
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let (header, ip) = (usize::from(ip[0] & 15) * 4, &ip[..total]);
        assert_eq!(ip[9], 6, "TCP");
        let tcp = &ip[header..];
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        Self {
            from: (ip[12..16].try_into().unwrap(), port(0)),
            to: (ip[16..20].try_into().unwrap(), port(2)),
            sequence: u32::from_be_bytes(tcp[4..8].try_into().unwrap()),
            syn: tcp[13] & 2 != 0,
            ack: tcp[13] & 16 != 0,
            payload: &tcp[usize::from(tcp[12] >> 4) * 4..],
        }
    }
}

/// Writes one connection: a handshake, then each message as a segment (more
/// where it does not fit) of the client's or the server's.
pub fn write(path: &Path, messages: &[(usize, Vec<u8>)]) {
    const LARGEST: usize = 60_000;
    let mut file = vec![];
    for field in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        file.extend_from_slice(&field.to_le_bytes());
    }
    let mut position = [1000_u32, 2000];
    let mut clock = 0;
    let mut packet = |side: usize, flags: u8, position: &mut [u32; 2], payload: &[u8]| {
        let bytes = ethernet(side, flags, *position, payload);
        clock += 1000;
        for field in [clock / 1_000_000, clock % 1_000_000, bytes.len() as u32, bytes.len() as u32] {
            file.extend_from_slice(&field.to_le_bytes());
        }
        file.extend_from_slice(&bytes);
        position[side] = position[side].wrapping_add(payload.len() as u32 + u32::from(flags & 2 != 0));
    };
    packet(0, 0x02, &mut position, &[]);
    packet(1, 0x12, &mut position, &[]);
    packet(0, 0x10, &mut position, &[]);
    for (side, bytes) in messages {
        for part in bytes.chunks(LARGEST) {
            packet(*side, 0x18, &mut position, part);
        }
    }
    std::fs::write(path, file).unwrap();
}

fn ethernet(side: usize, flags: u8, position: [u32; 2], payload: &[u8]) -> Vec<u8> {
    let ports: [u16; 2] = [49_152, 7174];
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let total = u16::try_from(40 + payload.len()).unwrap();
    bytes.extend_from_slice(&[0x45, 0]);
    bytes.extend_from_slice(&total.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
    for end in [side, 1 - side] {
        bytes.extend_from_slice(&[127, 0, 0, 1 + end as u8]);
    }
    for end in [side, 1 - side] {
        bytes.extend_from_slice(&ports[end].to_be_bytes());
    }
    bytes.extend_from_slice(&position[side].to_be_bytes());
    let acknowledged = if flags & 16 != 0 { position[1 - side] } else { 0 };
    bytes.extend_from_slice(&acknowledged.to_be_bytes());
    bytes.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

//! What perftest's ends say to each other, byte for byte.

use clearstream_iwarp::{stag::Stag, work::Remote};

/// Its version, as its programs of Debian 12 say it: from 5.70 on they talk to
/// each other, and to one below 6.28 the later ones do not say more.
pub const VERSION: [u8; 16] = *b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
/// The least that is spoken with, in hundredths.
const LEAST_VERSION: u32 = 570;
/// Bytes through which a client walks with its addresses, big endian.
pub const CYCLE: [u8; 4] = 4096_u32.to_be_bytes();
/// Bytes of a cache line, big endian.
pub const LINE: [u8; 4] = 64_u32.to_be_bytes();
/// Number of an InfiniBand MTU (1024 bytes), as text; it means nothing here.
pub const MTU: [u8; 2] = *b"3\0";
/// Bytes of an [`Introduction`].
pub const INTRODUCTION_BYTES: usize = 56;
/// Bytes of a figure of the report.
pub const FIGURE_BYTES: usize = 8;
/// Figures of a report.
pub const FIGURES: usize = 5;

/// Who one end is: a queue pair and its memory. Between these words it also
/// keeps step ("I am ready", "I am done").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Introduction {
    /// Reads that may be outstanding.
    pub reads: u32,
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// Tag of its memory.
    pub stag: u32,
    /// First byte that the other end may use.
    pub address: u64,
}

impl Introduction {
    /// The bytes of the wire: a port's number (none in iWARP), Reads, queue
    /// pair, packet number (none), tag, four bytes of nothing, address, a
    /// port's address (none), numbers that are not used. All big endian.
    #[must_use]
    pub fn encode(self) -> [u8; INTRODUCTION_BYTES] {
        let mut bytes = [0; INTRODUCTION_BYTES];
        bytes[4..8].copy_from_slice(&self.reads.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.queue_pair.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.stag.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }

    /// What a received message says; `None` when it is of another kind.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; INTRODUCTION_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let [.., a, b, c, d] = bytes[at..at + 4] else { return 0 };
            u32::from_be_bytes([a, b, c, d])
        };
        Some(Self {
            reads: word(4),
            queue_pair: word(8),
            stag: word(16),
            address: u64::from(word(24)) << 32 | u64::from(word(28)),
        })
    }

    /// Its memory.
    #[must_use]
    pub fn place(self) -> Remote {
        Remote { stag: Stag(self.stag), address: self.address }
    }
}

/// A version that is spoken here, from a peer's words: `None` for those that
/// are not.
#[must_use]
pub fn version(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let (whole, part) = text.split_once('.')?;
    let hundredths: u32 = part.get(..2).unwrap_or(part).parse().ok()?;
    let hundredths = if part.len() == 1 { hundredths * 10 } else { hundredths };
    let version = whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths)?;
    (bytes.len() == VERSION.len() && version >= LEAST_VERSION).then(|| text.to_owned())
}

/// What a client found: its last words before it leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Report {
    /// Bytes of a message.
    pub size: u64,
    /// Messages, all queue pairs together.
    pub iterations: u64,
    /// The best stretch, and the mean, in 2^20 bytes a second.
    pub peak: f64,
    /// The same of all of it.
    pub mean: f64,
    /// Million messages a second.
    pub rate: f64,
}

impl Report {
    /// The figures, each a message of its own.
    #[must_use]
    pub fn encode(self) -> [[u8; FIGURE_BYTES]; FIGURES] {
        [
            self.size.to_be_bytes(),
            self.iterations.to_be_bytes(),
            self.peak.to_be_bytes(),
            self.mean.to_be_bytes(),
            self.rate.to_be_bytes(),
        ]
    }

    /// Takes the figure of this number in.
    pub fn take(&mut self, number: usize, figure: [u8; FIGURE_BYTES]) {
        match number {
            0 => self.size = u64::from_be_bytes(figure),
            1 => self.iterations = u64::from_be_bytes(figure),
            2 => self.peak = f64::from_be_bytes(figure),
            3 => self.mean = f64::from_be_bytes(figure),
            _ => self.rate = f64::from_be_bytes(figure),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A server's introduction and a client's figures in a conversation of two
    /// Linux peers (fixtures/iwarp/perftest-read-bw.pcap): 5 Reads of 1000
    /// bytes, of which the client's screen said 5.09, 1.58 and 0.001654.
    const INTRODUCTION: &str = "0000000000000080000000040089f8e0f0d6f10000000000000055e95dabf000\
                                525400123456000000000000000000000000000000000000";
    const FIGURES_SEEN: [&str; 5] =
        ["00000000000003e8", "0000000000000005", "40145e1ccb733088", "3ff93b658c08a944", "3f5b17b96fac1ce9"];

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn an_introduction_is_that_of_a_capture() {
        let captured = bytes(INTRODUCTION);
        let found = Introduction::decode(&captured).unwrap();
        let expected =
            Introduction { reads: 128, queue_pair: 4, stag: 0xf0d6_f100, address: 0x55e9_5dab_f000 };
        assert_eq!(found, expected);
        // The packet number and the port's address are InfiniBand's.
        let mut bare = captured.clone();
        bare[12..16].fill(0);
        bare[32..38].fill(0);
        assert_eq!(found.encode(), bare.as_slice());
        assert_eq!(Introduction::decode(&captured[1..]), None);
    }

    #[test]
    fn figures_are_those_of_a_capture() {
        let mut report = Report::default();
        for (number, figure) in FIGURES_SEEN.iter().enumerate() {
            report.take(number, bytes(figure).try_into().unwrap());
        }
        assert_eq!((report.size, report.iterations), (1000, 5));
        assert_eq!(format!("{:.2} {:.2} {:.6}", report.peak, report.mean, report.rate), "5.09 1.58 0.001654");
        let again: Vec<Vec<u8>> = report.encode().iter().map(|figure| figure.to_vec()).collect();
        assert_eq!(again, FIGURES_SEEN.map(bytes));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let padded = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(16, 0);
            bytes
        };
        for text in ["6.06", "5.70", "6.28", "10.1", "5.7"] {
            assert_eq!(version(&padded(text)).as_deref(), Some(text));
        }
        for text in ["5.69", "5.6", "4.5", "", "6", "six", "9999999999.1"] {
            assert_eq!(version(&padded(text)), None, "{text}");
        }
        assert_eq!(version(b"6.06"), None);
        assert_eq!(version(&[b'6'; 16]), None);
    }
}

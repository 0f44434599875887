//! Messages of perftest's control connection, byte for byte.

use clearstream_iwarp::{stag::Stag, work::Remote};

/// Version sent by the programs of Debian 12. Programs from 5.70 on accept each
/// other; later ones send a version below 6.28 nothing that it does not
/// support.
pub(super) const VERSION: [u8; 16] = *b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
/// Minimum supported version, in hundredths.
const MIN_VERSION: u32 = 570;
/// Size of the buffer that a client cycles through, big endian.
pub(super) const CYCLE_BUFFER: [u8; 4] = 4096_u32.to_be_bytes();
/// Size of a cache line, big endian.
pub(super) const CACHE_LINE: [u8; 4] = 64_u32.to_be_bytes();
/// Code of an InfiniBand MTU (1024 bytes), as text; iWARP has none.
pub(super) const MTU: [u8; 2] = *b"3\0";
/// Length of an encoded [`Destination`].
pub const DESTINATION_BYTES: usize = 56;
/// Length of a value of the report.
pub const VALUE_BYTES: usize = 8;
/// Number of values in a report.
pub const VALUES: usize = 5;

/// A queue pair and its memory, as advertised to the peer. The same message
/// also synchronizes the two sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Destination {
    /// Maximum number of outstanding Reads.
    pub(super) reads: u32,
    /// Queue pair number.
    pub(super) queue_pair: u32,
    /// STag of its memory.
    pub(super) stag: u32,
    /// First byte that the peer may use.
    pub(super) address: u64,
}

impl Destination {
    /// Encodes it, all big endian: LID (none in iWARP), Reads, queue pair
    /// number, packet sequence number (none), STag, four bytes of padding,
    /// address, GID (none), unused numbers.
    pub fn encode(self) -> [u8; DESTINATION_BYTES] {
        let mut bytes = [0; DESTINATION_BYTES];
        bytes[4..8].copy_from_slice(&self.reads.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.queue_pair.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.stag.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }

    /// Decodes a received message; `None` when it has another length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; DESTINATION_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| {
            let [a, b, c, d] = bytes[at..at + 4] else { return 0 };
            u32::from_be_bytes([a, b, c, d])
        };
        Some(Self {
            reads: number(4),
            queue_pair: number(8),
            stag: number(16),
            address: u64::from(number(24)) << 32 | u64::from(number(28)),
        })
    }

    /// Returns its memory.
    pub(super) fn memory(self) -> Remote {
        Remote { stag: Stag(self.stag), address: self.address }
    }
}

/// Returns the version if it is supported.
pub fn version(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let (whole, part) = text.split_once('.')?;
    let hundredths: u32 = part.get(..2).unwrap_or(part).parse().ok()?;
    let hundredths = if part.len() == 1 { hundredths * 10 } else { hundredths };
    let version = whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths)?;
    (bytes.len() == VERSION.len() && version >= MIN_VERSION).then(|| text.to_owned())
}

/// Results that a client reports at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Report {
    /// Message size in bytes.
    pub size: u64,
    /// Messages, all queue pairs together.
    pub iterations: u64,
    /// Peak bandwidth in 2^20 bytes a second.
    pub peak: f64,
    /// Mean bandwidth in 2^20 bytes a second.
    pub mean: f64,
    /// Million messages a second.
    pub rate: f64,
}

impl Report {
    /// Encodes the values, each as a message of its own.
    pub(super) fn encode(self) -> [[u8; VALUE_BYTES]; VALUES] {
        [
            self.size.to_be_bytes(),
            self.iterations.to_be_bytes(),
            self.peak.to_be_bytes(),
            self.mean.to_be_bytes(),
            self.rate.to_be_bytes(),
        ]
    }

    /// Stores the value of this index.
    pub fn set(&mut self, index: usize, value: [u8; VALUE_BYTES]) {
        match index {
            0 => self.size = u64::from_be_bytes(value),
            1 => self.iterations = u64::from_be_bytes(value),
            2 => self.peak = f64::from_be_bytes(value),
            3 => self.mean = f64::from_be_bytes(value),
            _ => self.rate = f64::from_be_bytes(value),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A server's destination and a client's report in a capture of two Linux
    /// peers (fixtures/iwarp/perftest-read-bw.pcap): 5 Reads of 1000 bytes, for
    /// which the client printed 5.09, 1.58 and 0.001654.
    const DESTINATION: &str = "0000000000000080000000040089f8e0f0d6f10000000000000055e95dabf000\
                                525400123456000000000000000000000000000000000000";
    const VALUES_SEEN: [&str; 5] =
        ["00000000000003e8", "0000000000000005", "40145e1ccb733088", "3ff93b658c08a944", "3f5b17b96fac1ce9"];

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn a_destination_is_that_of_a_capture() {
        let captured = bytes(DESTINATION);
        let found = Destination::decode(&captured).unwrap();
        let expected =
            Destination { reads: 128, queue_pair: 4, stag: 0xf0d6_f100, address: 0x55e9_5dab_f000 };
        assert_eq!(found, expected);
        // The packet sequence number and the GID are InfiniBand's.
        let mut bare = captured.clone();
        bare[12..16].fill(0);
        bare[32..38].fill(0);
        assert_eq!(found.encode(), bare.as_slice());
        assert_eq!(Destination::decode(&captured[1..]), None);
    }

    #[test]
    fn a_report_is_that_of_a_capture() {
        let mut report = Report::default();
        for (index, value) in VALUES_SEEN.iter().enumerate() {
            report.set(index, bytes(value).try_into().unwrap());
        }
        assert_eq!((report.size, report.iterations), (1000, 5));
        assert_eq!(format!("{:.2} {:.2} {:.6}", report.peak, report.mean, report.rate), "5.09 1.58 0.001654");
        let reencoded: Vec<Vec<u8>> = report.encode().iter().map(|value| value.to_vec()).collect();
        assert_eq!(reencoded, VALUES_SEEN.map(bytes));
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

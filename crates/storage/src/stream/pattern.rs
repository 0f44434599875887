//! Contents of files that are verified: every eight bytes are of their offset, the rank that wrote it and the test.

use crate::data::mixed;

/// Contents of one rank's part of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern {
    key: u64,
}

/// A byte that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    /// Offset in the file.
    pub(super) offset: u64,
    pub(super) expected: u8,
    pub(super) found: u8,
}

impl Pattern {
    /// The files of one name have one pattern, so that a later run can read them.
    pub(super) fn new(name: &str, iteration: u32, owner: usize) -> Self {
        let seed = name.bytes().fold(0, |seed, byte| mixed(seed ^ u64::from(byte)));
        Self { key: mixed(seed ^ (u64::from(iteration) << 40) ^ owner as u64) }
    }

    /// The eight bytes of a place.
    fn expected(self, place: u64) -> [u8; 8] {
        mixed(self.key ^ place).to_le_bytes()
    }

    /// Fills a transfer that begins at an offset, a multiple of 8.
    pub(super) fn fill(self, offset: u64, bytes: &mut [u8]) {
        for (place, chunk) in (offset / 8..).zip(bytes.chunks_mut(8)) {
            chunk.copy_from_slice(&self.expected(place)[..chunk.len()]);
        }
    }

    /// The first byte that differs.
    pub(super) fn difference(self, offset: u64, bytes: &[u8]) -> Option<Difference> {
        for (place, chunk) in (offset / 8..).zip(bytes.chunks(8)) {
            let expected = self.expected(place);
            if *chunk == expected[..chunk.len()] {
                continue;
            }
            let at = chunk.iter().zip(expected).position(|(found, expected)| *found != expected)?;
            return Some(Difference {
                offset: place * 8 + at as u64,
                expected: expected[at],
                found: chunk[at],
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_found_at_its_offset() {
        let pattern = Pattern::new("test", 0, 3);
        let mut bytes = vec![0; 1001];
        pattern.fill(4096, &mut bytes);
        assert_eq!(pattern.difference(4096, &bytes), None);
        bytes[517] ^= 1;
        let found = pattern.difference(4096, &bytes).unwrap();
        assert_eq!((found.offset, found.found ^ found.expected), (4096 + 517, 1));
        bytes[517] ^= 1;
        // What another rank, iteration or test wrote, or another place, is something else.
        for other in [Pattern::new("test", 0, 2), Pattern::new("test", 1, 3), Pattern::new("other", 0, 3)] {
            assert!(other.difference(4096, &bytes).is_some());
        }
        assert!(pattern.difference(8192, &bytes).is_some());
    }
}

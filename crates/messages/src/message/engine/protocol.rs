//! Control messages of the data connection: before each phase the client's
//! header and a ready byte of the server, after it the server's report. Numbers
//! are in network byte order.

/// Maximum length of these; buffers have room for it.
pub(super) const LARGEST_BYTES: usize = 24;
/// Length of a [`Phase`].
pub(super) const PHASE_BYTES: usize = 16;
/// Length of a [`Report`].
pub(super) const REPORT_BYTES: usize = 24;
/// The server's reply to a header, when it is ready for the first message.
pub(super) const READY: u8 = 0x52;

/// Iterations of one size; a phase without iterations ends the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Phase {
    /// Message size.
    pub(super) size: u64,
    /// Round trips or windows.
    pub(super) iterations: u64,
}

/// Results of a phase at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    /// Messages received by its application.
    pub(super) received: u64,
    /// Bytes of these messages.
    pub(super) received_bytes: u64,
    /// CPU time of its thread.
    pub(super) cpu_ns: u64,
}

fn number(bytes: &[u8], index: usize) -> u64 {
    let field = bytes.get(index * 8..).and_then(<[u8]>::first_chunk);
    field.copied().map_or(0, u64::from_be_bytes)
}

fn write<const N: usize>(place: &mut [u8], numbers: [u64; N]) {
    for (field, number) in place.chunks_exact_mut(8).zip(numbers) {
        field.copy_from_slice(&number.to_be_bytes());
    }
}

impl Phase {
    pub(super) const END: Self = Self { size: 0, iterations: 0 };

    pub(super) fn read(bytes: &[u8]) -> Self {
        Self { size: number(bytes, 0), iterations: number(bytes, 1) }
    }

    pub(super) fn write(self, place: &mut [u8]) {
        write(place, [self.size, self.iterations]);
    }
}

impl Report {
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self { received: number(bytes, 0), received_bytes: number(bytes, 1), cpu_ns: number(bytes, 2) }
    }

    pub(super) fn write(self, place: &mut [u8]) {
        write(place, [self.received, self.received_bytes, self.cpu_ns]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_is_read_back() {
        let mut bytes = [0; LARGEST_BYTES];
        let phase = Phase { size: 67, iterations: u64::MAX };
        phase.write(&mut bytes[..PHASE_BYTES]);
        assert_eq!(bytes[7], 67, "network byte order");
        assert_eq!(Phase::read(&bytes[..PHASE_BYTES]), phase);
        let report = Report { received: 1, received_bytes: 2, cpu_ns: 3 };
        report.write(&mut bytes[..REPORT_BYTES]);
        assert_eq!(Report::read(&bytes[..REPORT_BYTES]), report);
    }
}

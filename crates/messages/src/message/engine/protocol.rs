//! Words of the protocol between the messages: before each phase the client's
//! header and a ready byte of the server, after it the server's report. Numbers
//! are in network byte order.

use super::{Carrier, EngineError};
use crate::Costs;

/// Maximum length of these; buffers have room for it.
pub(super) const LARGEST_BYTES: usize = REPORT_BYTES;
/// Length of a [`Phase`].
const PHASE_BYTES: usize = 16;
/// Length of a [`Report`].
const REPORT_BYTES: usize = 24;
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
    /// What it cost there.
    pub(super) costs: Costs,
}

/// In the place of a number that was not measured.
const NOT_MEASURED: u64 = u64::MAX;

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

    pub(super) fn hear(carrier: &mut impl Carrier) -> Result<Self, EngineError> {
        let mut words = [0; PHASE_BYTES];
        carrier.hear(&mut words)?;
        Ok(Self { size: number(&words, 0), iterations: number(&words, 1) })
    }

    pub(super) fn tell(self, carrier: &mut impl Carrier) -> Result<(), EngineError> {
        let mut words = [0; PHASE_BYTES];
        write(&mut words, [self.size, self.iterations]);
        carrier.tell(&words)
    }
}

impl Report {
    pub(super) fn hear(carrier: &mut impl Carrier) -> Result<Self, EngineError> {
        let mut words = [0; REPORT_BYTES];
        carrier.hear(&mut words)?;
        let sent_bytes = Some(number(&words, 2)).filter(|bytes| *bytes != NOT_MEASURED);
        let costs = Costs { cpu_ns: number(&words, 1), sent_bytes };
        Ok(Self { received: number(&words, 0), costs })
    }

    pub(super) fn tell(self, carrier: &mut impl Carrier) -> Result<(), EngineError> {
        let mut words = [0; REPORT_BYTES];
        let sent_bytes = self.costs.sent_bytes.unwrap_or(NOT_MEASURED);
        write(&mut words, [self.received, self.costs.cpu_ns, sent_bytes]);
        carrier.tell(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Traffic;

    /// Keeps what was told, and has it heard.
    struct Words(Vec<u8>);

    impl Carrier for Words {
        fn tell(&mut self, words: &[u8]) -> Result<(), EngineError> {
            self.0 = words.to_vec();
            Ok(())
        }
        fn hear(&mut self, words: &mut [u8]) -> Result<(), EngineError> {
            words.copy_from_slice(&self.0);
            Ok(())
        }
        fn send(&mut self, _: usize, _: &mut Traffic) -> Result<(), EngineError> {
            unreachable!("no message")
        }
        fn receive(&mut self, _: usize, _: &mut Traffic) -> Result<(), EngineError> {
            unreachable!("no message")
        }
        fn send_window(&mut self, _: usize, _: u32, _: &mut Traffic) -> Result<(), EngineError> {
            unreachable!("no message")
        }
        fn receive_window(&mut self, _: usize, _: u32, _: &mut Traffic) -> Result<(), EngineError> {
            unreachable!("no message")
        }
        fn exchange(&mut self, _: usize, _: u32, _: &mut Traffic) -> Result<(), EngineError> {
            unreachable!("no message")
        }
        fn costs(&mut self) -> Costs {
            Costs::default()
        }
    }

    #[test]
    fn what_is_told_is_heard() {
        let mut words = Words(Vec::new());
        let phase = Phase { size: 67, iterations: u64::MAX };
        phase.tell(&mut words).unwrap();
        assert_eq!(words.0[7], 67, "network byte order");
        assert_eq!(Phase::hear(&mut words).unwrap(), phase);
        for sent_bytes in [None, Some(3)] {
            let report = Report { received: 1, costs: Costs { cpu_ns: 2, sent_bytes } };
            report.tell(&mut words).unwrap();
            assert_eq!(Report::hear(&mut words).unwrap(), report);
        }
    }
}

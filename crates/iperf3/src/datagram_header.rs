//! Header of iperf3's datagrams, and the receiver's counts: seconds, microseconds and a number of 32 or 64
//! bits, big endian.

/// Size of the header of a datagram.
pub const fn header_bytes(wide: bool) -> usize {
    if wide { 16 } else { 12 }
}

/// Writes the header of datagram `number` (the first one is 1), sent at `time_us`
/// of any clock. The datagram must have room for it.
pub fn write_header(datagram: &mut [u8], wide: bool, time_us: u64, number: u64) {
    let seconds = (time_us / 1_000_000) as u32;
    let micros = (time_us % 1_000_000) as u32;
    let time = seconds.to_be_bytes().into_iter().chain(micros.to_be_bytes());
    let number = number.to_be_bytes().into_iter().skip(if wide { 0 } else { 4 });
    for (place, byte) in datagram.iter_mut().zip(time.chain(number)) {
        *place = byte;
    }
}

/// Header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Send time by the sender's clock.
    pub time_us: u64,
    /// Sequence number, as far as it was transmitted.
    pub number: u64,
}

/// Parses a header; `None` when the datagram is too short.
pub fn read_header(datagram: &[u8], wide: bool) -> Option<Header> {
    let field = |at: usize| datagram.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let time_us = u64::from(field(0)?) * 1_000_000 + u64::from(field(4)?);
    let number = match wide {
        true => datagram.get(8..)?.first_chunk().copied().map(u64::from_be_bytes)?,
        false => u64::from(field(8)?),
    };
    Some(Header { time_us, number })
}

/// Loss and reordering of a stream, by iperf3's rules: a skipped number is lost, and no longer lost when it
/// arrives late.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sequence {
    /// Datagrams received.
    pub received: u64,
    /// Highest number received.
    pub highest: u64,
    /// Numbers skipped and not received yet.
    pub lost: u64,
    /// Numbers received after a higher one.
    pub late: u64,
    jitter_us: f64,
    transit_us: Option<i64>,
}

impl Sequence {
    /// Records a datagram received at `arrived_us` of the local clock.
    pub fn take(&mut self, header: Header, wide: bool, arrived_us: u64) {
        self.received += 1;
        let number = if wide { header.number } else { self.unwrapped(header.number as u32) };
        if number > self.highest {
            self.lost = self.lost.saturating_add(number - self.highest - 1);
            self.highest = number;
        } else {
            self.late += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        // RFC 3550, section 6.4.1: the clocks need not be synchronised.
        let transit = (arrived_us as i64).wrapping_sub(header.time_us as i64);
        if let Some(before) = self.transit_us.replace(transit) {
            let difference = transit.wrapping_sub(before).unsigned_abs() as f64;
            self.jitter_us += (difference - self.jitter_us) / 16.0;
        }
    }

    /// The number closest to the highest one with these low 32 bits.
    fn unwrapped(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.highest as u32).cast_signed();
        self.highest.saturating_add_signed(ahead.into())
    }

    /// Interarrival jitter in nanoseconds.
    pub fn jitter_ns(&self) -> u64 {
        (self.jitter_us * 1000.0) as u64
    }

    /// Restarts the jitter at the end of the warm-up.
    pub fn restart_jitter(&mut self) {
        self.jitter_us = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sequence(numbers: &[u64]) -> (u64, u64, u64, u64) {
        let mut sequence = Sequence::default();
        for number in numbers {
            sequence.take(Header { time_us: 0, number: *number }, true, 0);
        }
        (sequence.received, sequence.highest, sequence.lost, sequence.late)
    }

    #[test]
    fn skipped_datagrams_are_lost_until_they_arrive_late() {
        assert_eq!(sequence(&[1, 2, 3]), (3, 3, 0, 0));
        assert_eq!(sequence(&[1, 4, 5]), (3, 5, 2, 0));
        assert_eq!(sequence(&[1, 4, 3, 2, 5]), (5, 5, 0, 2));
        assert_eq!(sequence(&[3]), (1, 3, 2, 0), "the first ones are missing");
        assert_eq!(sequence(&[u64::MAX, u64::MAX]), (2, u64::MAX, u64::MAX - 2, 1));
    }

    #[test]
    fn numbers_of_32_bits_wrap_around() {
        let mut sequence = Sequence { highest: u64::from(u32::MAX) - 1, ..Sequence::default() };
        for low in [u32::MAX, 0, 2, 1] {
            sequence.take(Header { time_us: 0, number: low.into() }, false, 0);
        }
        assert_eq!((sequence.highest, sequence.lost, sequence.late), ((1 << 32) + 2, 0, 1));
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for wide in [false, true] {
            let mut datagram = vec![0; header_bytes(wide)];
            write_header(&mut datagram, wide, 1_234_567_890, 0x1_0000_0007);
            assert_eq!(datagram[..8], [0, 0, 0x04, 0xd2, 0, 0x08, 0xaa, 0x52], "1234 s and 567890 us");
            let number = if wide { 0x1_0000_0007 } else { 7 };
            assert_eq!(read_header(&datagram, wide), Some(Header { time_us: 1_234_567_890, number }));
            assert_eq!(read_header(&datagram[1..], wide), None);
        }
    }

    #[test]
    fn jitter_follows_the_formula() {
        let mut sequence = Sequence::default();
        // Transit times 100, 260, 100 us.
        for (number, arrived) in [(1, 100), (2, 1260), (3, 2100)] {
            sequence.take(Header { time_us: (number - 1) * 1000, number }, true, arrived);
        }
        let expected = 10.0 + (160.0 - 10.0) / 16.0;
        assert_eq!(sequence.jitter_ns(), (expected * 1000.0) as u64);
        sequence.restart_jitter();
        assert_eq!(sequence.jitter_ns(), 0);
    }

    proptest! {
        #[test]
        fn any_datagram_is_accepted(
            datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..50),
            wide: bool,
        ) {
            let mut sequence = Sequence::default();
            for datagram in &datagrams {
                if let Some(header) = read_header(datagram, wide) {
                    sequence.take(header, wide, 1 << 40);
                }
            }
            prop_assert!(sequence.received <= 50 && sequence.late <= sequence.received);
        }
    }
}

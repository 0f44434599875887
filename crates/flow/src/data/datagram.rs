//! Numbered datagrams: batched where the kernel has segmentation and receive offload; counts losses and
//! reordering.

use std::{
    io::{self, ErrorKind},
    thread,
    time::{Duration, Instant},
};

use clearstream_sys::{memory::Buffer, socket};

use super::{
    gate::Outcome,
    worker::{BurstPacer, Datagrams, Loop},
};

/// Tag, number and time of sending (8 bytes each, numbers big endian) in front
/// of each datagram.
pub(crate) const DATAGRAM_HEADER_BYTES: usize = 24;
/// Maximum datagrams of one send (`UDP_MAX_SEGMENTS` of kernels before 6.9).
pub(crate) const SEGMENTS_MAX: usize = 64;
/// Receive offload coalesces datagrams up to the largest IP packet.
pub(super) const RECEIVE_BYTES: usize = 65_536;
/// Sequence number of the end marker, which carries the total count.
const END_MARKER: u64 = u64::MAX;
/// Copies of the end marker and their spacing, since it may be lost, too.
const END_MARKER_COPIES: u32 = 8;
const END_MARKER_SPACING: Duration = Duration::from_millis(5);
/// Time a receiver waits for the end marker after the end of the test time.
const END_MARKER_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum lag that a paced sender catches up.
const MAX_LAG: Duration = Duration::from_millis(20);

/// Numbers each datagram of `batch`, sent at `time_ns` of the sender's clock.
fn number(batch: &mut [u8], size: usize, tag: [u8; 8], first: u64, time_ns: u64) {
    for (datagram, number) in batch.chunks_mut(size).zip(first..) {
        datagram[..8].copy_from_slice(&tag);
        datagram[8..16].copy_from_slice(&number.to_be_bytes());
        datagram[16..DATAGRAM_HEADER_BYTES].copy_from_slice(&time_ns.to_be_bytes());
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Sends until stopped or complete, then sends the end marker with the total count.
pub(super) fn send(context: &Loop<'_>, datagrams: Datagrams, mut buffer: Buffer) -> Outcome {
    match send_all(context, datagrams, &mut buffer) {
        Ok((outcome, count)) => {
            let mut last = [0; DATAGRAM_HEADER_BYTES];
            last[..8].copy_from_slice(&datagrams.tag);
            last[8..16].copy_from_slice(&END_MARKER.to_be_bytes());
            last[16..].copy_from_slice(&count.to_be_bytes());
            for _ in 0..END_MARKER_COPIES {
                // Fails when the receiver has received it and closed.
                drop(context.socket.send(&last));
                thread::sleep(END_MARKER_SPACING);
            }
            outcome
        }
        Err(error) => context.failed(error),
    }
}

fn send_all(context: &Loop<'_>, datagrams: Datagrams, buffer: &mut Buffer) -> io::Result<(Outcome, u64)> {
    let Loop { task, counters, gate, .. } = context;
    let Datagrams { size, batch, tag, rate_bps, .. } = datagrams;
    let limit = task.limit.unwrap_or(u64::MAX);
    let (mut total, mut count) = (0u64, 0u64);
    let mut burst_pacer = BurstPacer::start(gate, task.burst);
    gate.begin();
    let begun = Instant::now();
    let mut due = begun;
    while !gate.is_expired() {
        let length = usize::try_from(limit - total).unwrap_or(usize::MAX).min(batch);
        // The last datagram must have room for its header; the excess over the requested bytes is less than a
        // header.
        let short = length % size;
        let length = if short > 0 && short < DATAGRAM_HEADER_BYTES {
            length - short + DATAGRAM_HEADER_BYTES
        } else {
            length
        };
        let part = &mut buffer[..length.min(batch)];
        number(part, size, tag, count, nanoseconds(begun));
        match context.socket.send(part) {
            Ok(sent) => {
                total += sent as u64;
                count += part.len().div_ceil(size) as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        counters.moved(total);
        if total >= limit {
            return Ok((Outcome::Sent, count));
        }
        if let Some(rate) = rate_bps {
            pace(&mut due, part.len(), rate);
        }
        burst_pacer.after_transfer();
    }
    Ok((Outcome::Stopped, count))
}

/// Sleeps until the bytes just sent are due at `rate`. The kernel paces UDP only with the fq queueing
/// discipline, so it is done here.
fn pace(due: &mut Instant, bytes: usize, rate_bps: u64) {
    *due += Duration::from_nanos((bytes as u128 * 8_000_000_000 / u128::from(rate_bps.max(1))) as u64);
    let now = Instant::now();
    if *due > now {
        thread::sleep(*due - now);
    } else if now - *due > MAX_LAG {
        *due = now;
    }
}

/// Loss and reordering from sequence numbers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sequence {
    received: u64,
    /// Numbers skipped when a later one arrived.
    gaps: u64,
    /// Numbers that arrived after a later one: each fills a gap.
    late: u64,
    next: u64,
}

impl Sequence {
    fn take(&mut self, number: u64) {
        self.received += 1;
        match number.checked_sub(self.next) {
            Some(skipped) => {
                self.gaps += skipped;
                self.next = number + 1;
            }
            None => self.late += 1,
        }
    }

    /// Records the total count.
    fn end(&mut self, count: u64) {
        self.gaps += count.saturating_sub(self.next);
        self.next = self.next.max(count);
    }
}

/// Interarrival jitter (RFC 3550 section 6.4.1): J += (|D| - J) / 16, where D is the difference of the
/// arrival spacing and the send spacing of two datagrams. The clocks need not be synchronised, since only
/// differences enter. Datagrams of one send call left together and are no sample of each other: the first to
/// arrive counts.
#[derive(Debug, Default)]
struct Jitter {
    /// Send and arrival times of the last sample.
    last: Option<(u64, u64)>,
    /// Smoothed value times 16, as in appendix A.8; `None` before two samples.
    scaled_ns: Option<u64>,
}

impl Jitter {
    fn take(&mut self, sent_ns: u64, arrived_ns: u64) {
        if let Some((sent, arrived)) = self.last {
            if sent == sent_ns {
                return;
            }
            let transit = i128::from(arrived_ns) - i128::from(sent_ns);
            let before = i128::from(arrived) - i128::from(sent);
            let difference = u64::try_from((transit - before).unsigned_abs()).unwrap_or(u64::MAX / 32);
            let scaled = self.scaled_ns.unwrap_or(0);
            self.scaled_ns = Some(scaled.saturating_add(difference) - ((scaled + 8) >> 4).min(scaled));
        }
        self.last = Some((sent_ns, arrived_ns));
    }

    fn ns(&self) -> Option<u64> {
        self.scaled_ns.map(|scaled| scaled >> 4)
    }
}

fn field(datagram: &[u8], at: usize) -> Option<u64> {
    datagram.get(at..)?.first_chunk().copied().map(u64::from_be_bytes)
}

/// Receives until the end marker, or until the test time is over and nothing arrives.
pub(super) fn receive(context: &Loop<'_>, datagrams: Datagrams, mut buffer: Buffer) -> Outcome {
    let Loop { socket, counters, gate, .. } = context;
    let mut sequence = Sequence::default();
    let mut jitter = Jitter::default();
    let mut total = 0u64;
    let begun = Instant::now();
    let mut last_received = begun;
    loop {
        if gate.is_stopped() {
            return Outcome::Stopped;
        }
        match socket::receive_segments(*socket, &mut buffer) {
            Ok(got) => {
                let mut last = None;
                let arrived_ns = nanoseconds(begun);
                for datagram in buffer[..got.length].chunks(got.segment.max(1)) {
                    // A stranger's, or a duplicate preamble.
                    if datagram.get(..8) != Some(&datagrams.tag[..]) {
                        continue;
                    }
                    match field(datagram, 8) {
                        Some(END_MARKER) => last = field(datagram, 16),
                        Some(number) if number < END_MARKER => {
                            if sequence.received == 0 {
                                gate.begin();
                            }
                            sequence.take(number);
                            if let Some(sent_ns) = field(datagram, 16) {
                                jitter.take(sent_ns, arrived_ns);
                            }
                            total += datagram.len() as u64;
                        }
                        _ => {}
                    }
                }
                if let Some(count) = last {
                    sequence.end(count);
                }
                counters.sequenced(sequence.received, sequence.gaps, sequence.late, jitter.ns());
                counters.moved(total);
                if last.is_some() {
                    return Outcome::EndOfStream;
                }
                last_received = Instant::now();
            }
            // The socket has a receive timeout, since UDP has no end of stream.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let idle = last_received.elapsed();
                if gate.is_expired() && idle > END_MARKER_TIMEOUT {
                    return Outcome::Stopped;
                }
                if sequence.received > 0 && idle > datagrams.timeout {
                    return Outcome::Failed(ErrorKind::TimedOut.into());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return context.failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(numbers: &[u64]) -> Sequence {
        let mut sequence = Sequence::default();
        numbers.iter().for_each(|number| sequence.take(*number));
        sequence
    }

    #[test]
    fn gaps_late_arrivals_and_a_missing_tail_are_distinguished() {
        assert_eq!(sequence(&[0, 1, 2]), Sequence { received: 3, gaps: 0, late: 0, next: 3 });
        assert_eq!(sequence(&[0, 3, 4]), Sequence { received: 3, gaps: 2, late: 0, next: 5 });
        // RFC 4737: 2 and 1 come after 3, so both are reordered and none lost.
        assert_eq!(sequence(&[0, 3, 2, 1]), Sequence { received: 4, gaps: 2, late: 2, next: 4 });
        let mut tail = sequence(&[0, 1]);
        tail.end(10);
        assert_eq!((tail.gaps, tail.next), (8, 10));
        tail.end(10);
        assert_eq!(tail.gaps, 8, "the end marker arrives several times");
    }

    #[test]
    fn every_datagram_of_a_batch_has_its_number() {
        let mut batch = vec![0; 130];
        number(&mut batch, 50, *b"12345678", 7, 99);
        for (index, at) in [(7, 0), (8, 50), (9, 100)] {
            assert_eq!(&batch[at..at + 8], b"12345678");
            assert_eq!(field(&batch[at..], 8), Some(index));
            assert_eq!(field(&batch[at..], 16), Some(99));
        }
    }

    /// Reference implementation: the algorithm of RFC 3550 appendix A.8.
    fn of_the_appendix(packets: &[(u64, u64)]) -> u32 {
        let (mut transit, mut jitter, mut first) = (0i64, 0u32, true);
        for (sent, arrived) in packets {
            let now = *arrived as i64 - *sent as i64;
            let d = (now - transit).unsigned_abs() as u32;
            transit = now;
            if !first {
                jitter = jitter + d - ((jitter + 8) >> 4);
            }
            first = false;
        }
        jitter >> 4
    }

    #[test]
    fn jitter_is_that_of_the_standard() {
        let uneven: Vec<(u64, u64)> =
            (0..200u64).map(|n| (n * 1000, 5_000_000 + n * 1000 + (n * 7919 % 613) * (n % 3))).collect();
        let even: Vec<(u64, u64)> = (0..50).map(|n| (n * 1000, 77 + n * 1000)).collect();
        for packets in [&uneven, &even] {
            let mut jitter = Jitter::default();
            packets.iter().for_each(|(sent, arrived)| jitter.take(*sent, *arrived));
            assert_eq!(jitter.ns(), Some(u64::from(of_the_appendix(packets))));
        }
        assert!(of_the_appendix(&uneven) > 0 && of_the_appendix(&even) == 0);
    }

    #[test]
    fn datagrams_of_one_send_are_one_sample() {
        let (mut single, mut batched) = (Jitter::default(), Jitter::default());
        assert_eq!(single.ns(), None, "nothing is measured before two samples");
        for (sent, arrived) in [(0, 100), (1000, 1400), (2000, 2100)] {
            single.take(sent, arrived);
            for _ in 0..64 {
                batched.take(sent, arrived);
            }
        }
        assert_eq!(single.ns(), batched.ns());
        assert!(single.ns() > Some(0));
    }
}

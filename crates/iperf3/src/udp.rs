//! Datagram loops of the data threads for iperf3's UDP streams, and the handshake of a stream.

use std::{
    io::{self, ErrorKind, Read as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_flow::engine::{DatagramSize, Progress};
use clearstream_schema::flow::FlowInterval;
use clearstream_schema::notice::Notice;
use clearstream_sys::{
    socket as options,
    timestamp::{Family, route_mtu},
};
use rustix::time::{ClockId, clock_gettime};
use socket2::Socket;

use crate::{
    datagram_header::{Sequence, read_header, write_header},
    protocol::{UDP_HELLO, is_udp_reply},
};

/// Maximum datagrams of one send (`UDP_MAX_SEGMENTS` of kernels before 6.9).
const SEGMENTS_MAX: usize = 64;
/// Largest UDP payload over IPv4.
const DATAGRAM_MAX: usize = 65_507;
/// Receive offload coalesces datagrams up to the largest IP packet.
const RECEIVE_BYTES: usize = 65_536;
/// Interval at which an idle receiver checks for the end of the test: the time of the last interval includes
/// one such wait.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum lag that a paced sender catches up.
const MAX_LAG: Duration = Duration::from_millis(20);
/// Maximum time of the datagrams of one send at the requested rate, to keep bursts short.
const BURST: Duration = Duration::from_millis(1);
/// Waits up to this sleep; longer ones are interrupted at the end of the test.
const SHORT: Duration = Duration::from_millis(5);

/// Datagram parameters of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) size: DatagramSize,
    /// Whether sequence numbers have 64 bits.
    pub(crate) wide: bool,
    /// Maximum rate in bits per second.
    pub(crate) rate_bps: Option<u64>,
    /// Bytes to send; unlimited when absent.
    pub(crate) limit: Option<u64>,
}

/// Counts of one stream: single writer (its thread), read by the sampler.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    datagrams: AtomicU64,
    received: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    jitter_ns: AtomicU64,
    restart_jitter: AtomicBool,
}

/// Snapshot of [`Counts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Sent, or the highest number received.
    pub(crate) datagrams: u64,
    /// Received.
    pub(crate) received: u64,
    /// Skipped and not received later.
    pub(crate) lost: u64,
    /// Received after a higher one.
    pub(crate) late: u64,
    /// Current jitter.
    pub(crate) jitter_ns: u64,
}

impl Counts {
    fn set(&self, sequence: &Sequence) {
        self.datagrams.store(sequence.highest, Relaxed);
        self.received.store(sequence.received, Relaxed);
        self.lost.store(sequence.lost, Relaxed);
        self.late.store(sequence.late, Relaxed);
        self.jitter_ns.store(sequence.jitter_ns(), Relaxed);
    }

    pub(crate) fn read(&self) -> Count {
        Count {
            datagrams: self.datagrams.load(Relaxed),
            received: self.received.load(Relaxed),
            lost: self.lost.load(Relaxed),
            late: self.late.load(Relaxed),
            jitter_ns: self.jitter_ns.load(Relaxed),
        }
    }

    /// Restarts the jitter at the end of the warm-up.
    pub(crate) fn restart_jitter(&self) {
        self.restart_jitter.store(true, Relaxed);
    }
}

impl Count {
    /// Describes the counts since `earlier` in the interval of a flow.
    pub(crate) fn describe(&self, earlier: &Self, flow: &mut FlowInterval) {
        flow.datagram_count = Some(self.received.saturating_sub(earlier.received));
        flow.lost_count = Some(self.lost.saturating_sub(earlier.lost));
        flow.reordered_count = Some(self.late.saturating_sub(earlier.late));
    }
}

/// Clock of the times in datagrams: `CLOCK_MONOTONIC`, as in iperf3.
fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000
}

fn family(socket: &Socket) -> Family {
    if socket.local_addr().is_ok_and(|address| address.is_ipv6()) { Family::V6 } else { Family::V4 }
}

/// Largest datagram that a connected socket sends unfragmented.
pub(crate) fn unfragmented_bytes(socket: &Socket) -> usize {
    let family = family(socket);
    let headers = if family == Family::V6 { 48 } else { 28 };
    route_mtu(socket, family).map_or(1472, |mtu| (mtu as usize).saturating_sub(headers)).min(DATAGRAM_MAX)
}

/// Batch size of a send, with segmentation offload where available and bursts short enough.
pub(crate) fn batch(
    socket: &Socket,
    size: usize,
    rate_bps: Option<u64>,
    notices: &mut Vec<Notice>,
) -> DatagramSize {
    let in_burst = rate_bps.map_or(usize::MAX, |rate| {
        let bytes = u128::from(rate) * BURST.as_nanos() / 8_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX) / size
    });
    let together = (DATAGRAM_MAX / size).min(SEGMENTS_MAX).min(in_burst).max(1);
    let mut batch_bytes = size;
    if together > 1 && size <= unfragmented_bytes(socket) {
        let set = u16::try_from(size).map_err(io::Error::other);
        match set.and_then(|size| options::set_udp_segment(socket, size)) {
            Ok(()) => batch_bytes = size * together,
            Err(error) if !notices.iter().any(|notice| notice.id == "gso-lost") => notices.push(Notice {
                id: "gso-lost".to_owned(),
                message: format!(
                    "UDP segmentation offload (UDP_SEGMENT, Linux 4.18) is not available ({error}): one system \
                     call per datagram"
                ),
            }),
            Err(_) => {}
        }
    }
    DatagramSize { size_bytes: size, batch_bytes }
}

/// Handshake of a stream: one datagram in each direction. It is not repeated, since a server takes each for
/// another stream.
pub(crate) fn handshake(socket: &Socket, until: Instant) -> io::Result<()> {
    socket.send(&UDP_HELLO)?;
    let mut socket = socket;
    let mut reply = [0; 64];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut reply) {
            Ok(length) if reply.get(..length).is_some_and(is_udp_reply) => return Ok(()),
            // Data of the server may overtake its reply.
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends until the test time is over or everything is sent.
pub(crate) fn send(
    socket: &Socket,
    progress: &Progress<'_>,
    shape: Shape,
    counts: &Arc<Counts>,
) -> io::Result<()> {
    let DatagramSize { size_bytes: size, batch_bytes } = shape.size;
    let limit = shape.limit.unwrap_or(u64::MAX);
    let mut buffer = vec![0; batch_bytes];
    let (mut total, mut count) = (0u64, 0u64);
    progress.begin();
    let mut due = Instant::now();
    while !progress.is_expired() && total < limit {
        // Datagrams are sent whole, including the last one.
        let left = usize::try_from((limit - total).div_ceil(size as u64)).unwrap_or(usize::MAX);
        let length = left.saturating_mul(size).min(batch_bytes);
        let (part, _) = buffer.split_at_mut(length);
        let time_us = now_us();
        for (datagram, number) in part.chunks_mut(size).zip(count + 1..) {
            write_header(datagram, shape.wide, time_us, number);
        }
        match socket.send(part) {
            Ok(sent) => {
                total += sent as u64;
                count += (sent / size) as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if is_transient(&error) => {
                thread::sleep(Duration::from_micros(100));
                continue;
            }
            Err(error) => return Err(error),
        }
        counts.datagrams.store(count, Relaxed);
        progress.moved(total);
        if let Some(rate) = shape.rate_bps {
            pace(progress, &mut due, length, rate);
        }
    }
    Ok(())
}

/// The device's queue is full (udp(7)).
fn is_transient(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

/// Waits until the bytes just sent are due at `rate`.
fn pace(progress: &Progress<'_>, due: &mut Instant, bytes: usize, rate_bps: u64) {
    let nanos = bytes as u128 * 8_000_000_000 / u128::from(rate_bps.max(1));
    // A very low rate must not overflow the time.
    *due += Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).min(86_400_000_000_000));
    let now = Instant::now();
    if *due > now + SHORT {
        progress.pause(*due);
    } else if *due > now {
        thread::sleep(*due - now);
    } else if now - *due > MAX_LAG {
        *due = now;
    }
}

/// Receives until the test is over and nothing is queued.
pub(crate) fn receive(
    socket: &Socket,
    progress: &Progress<'_>,
    shape: Shape,
    counts: &Arc<Counts>,
) -> io::Result<()> {
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut sequence = Sequence::default();
    let mut total = 0u64;
    while !progress.is_stopped() {
        match options::receive_segments(socket, &mut buffer) {
            Ok(got) => {
                let arrived = now_us();
                if counts.restart_jitter.swap(false, Relaxed) {
                    sequence.restart_jitter();
                }
                let (filled, _) = buffer.split_at(got.length);
                for datagram in filled.chunks(got.segment.max(1)) {
                    // A duplicate hello or reply has no header.
                    let Some(header) = read_header(datagram, shape.wide) else { continue };
                    if sequence.received == 0 {
                        progress.begin();
                    }
                    sequence.take(header, shape.wide, arrived);
                    total += datagram.len() as u64;
                }
                counts.set(&sequence);
                progress.moved(total);
            }
            // The socket has a receive timeout, since UDP has no end of stream.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if progress.is_expired() {
                    return Ok(());
                }
            }
            // An ICMP error for the hello or a foreign packet: data may still arrive.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

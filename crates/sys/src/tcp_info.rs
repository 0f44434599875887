//! `TCP_INFO`, parsed by the length that the kernel returned.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use clearstream_schema::tcp_info::TcpInfo;

/// Longer than any kernel's structure (280 bytes in Linux 6.18).
const ROOM_BYTES: usize = 512;

/// Queries the kernel for a socket's state. For MPTCP it is that of the first
/// subflow.
pub fn read(fd: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; ROOM_BYTES];
    let mut length = ROOM_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `bytes`, which has
    // as many, and puts the number written into `length`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(parse(&bytes[..(length as usize).min(ROOM_BYTES)]))
}

/// The bytes returned by the kernel; fields beyond them are absent.
struct Returned<'a>(&'a [u8]);

impl Returned<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }
    fn u32_at(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }
    fn u64_at(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_ne_bytes)
    }
    /// A field of every kernel since 2.6.
    fn old(&self, at: usize) -> u32 {
        self.u32_at(at).unwrap_or(0)
    }
    /// Bytes/s to bits/s; all ones means no limit.
    fn rate(&self, at: usize) -> Option<u64> {
        self.u64_at(at).filter(|rate| *rate != u64::MAX).map(|rate| rate.saturating_mul(8))
    }
    fn micros(&self, at: usize) -> Option<u64> {
        self.u64_at(at).map(|micros| micros.saturating_mul(1000))
    }
}

/// Parses `struct tcp_info` (include/uapi/linux/tcp.h), of which new kernels return more than old ones. Times
/// are converted from microseconds to nanoseconds, rates from bytes to bits per second.
pub fn parse(bytes: &[u8]) -> TcpInfo {
    let info = Returned(bytes);
    let nanos = |at| u64::from(info.old(at)) * 1000;
    TcpInfo {
        returned_bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        state: info.byte(0),
        congestion_state: info.byte(1),
        options: info.byte(5),
        // Bit fields, low nibble first on the little-endian machines that are
        // supported: the peer's scale for what we send, then our own.
        send_window_scale: info.byte(6) & 0x0f,
        receive_window_scale: info.byte(6) >> 4,
        delivery_rate_app_limited: info.byte(7) & 1 != 0,
        send_mss_bytes: info.old(16),
        receive_mss_bytes: info.old(20),
        unacked_count: info.old(24),
        lost_count: info.old(32),
        retransmit_count: info.old(36),
        path_mtu_bytes: info.old(60),
        receive_ssthresh_bytes: info.old(64),
        rtt_ns: nanos(68),
        rtt_variation_ns: nanos(72),
        send_ssthresh_count: info.old(76),
        congestion_window_count: info.old(80),
        receive_rtt_ns: nanos(92),
        receive_space_bytes: info.old(96),
        total_retransmit_count: info.old(100),
        pacing_rate_bps: info.rate(104),
        max_pacing_rate_bps: info.rate(112),
        acked_bytes: info.u64_at(120),
        received_bytes: info.u64_at(128),
        not_sent_bytes: info.u32_at(144),
        // All ones until the first sample.
        min_rtt_ns: info.u32_at(148).filter(|rtt| *rtt != u32::MAX).map(|rtt| u64::from(rtt) * 1000),
        delivery_rate_bps: info.rate(160),
        busy_ns: info.micros(168),
        receive_window_limited_ns: info.micros(176),
        send_buffer_limited_ns: info.micros(184),
        sent_bytes: info.u64_at(200),
        retransmitted_bytes: info.u64_at(208),
        reorder_seen_count: info.u32_at(220),
        receive_out_of_order_count: info.u32_at(224),
        send_window_bytes: info.u32_at(228),
        receive_window_bytes: info.u32_at(232),
        timeout_count: info.array(240).map(u16::from_ne_bytes),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::{Read, Write},
        mem::offset_of,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// Every four bytes hold their own offset, so that a wrong offset is detected.
    fn numbered(length: usize) -> Vec<u8> {
        (0..length / 4).flat_map(|index| u32::try_from(index * 4).unwrap().to_ne_bytes()).collect()
    }

    fn long_at(at: u64) -> u64 {
        (at + 4) << 32 | at
    }

    #[test]
    fn fields_appear_with_the_kernel_that_added_them() {
        // Returned lengths: 4.11, 4.18, 4.19, 5.4, 6.2, 6.7, 6.18.
        for length in [192, 200, 224, 232, 240, 248, 280] {
            let info = parse(&numbered(length));
            assert_eq!(info.returned_bytes as usize, length);
            assert_eq!((info.send_mss_bytes, info.receive_mss_bytes), (16, 20));
            assert_eq!((info.unacked_count, info.lost_count, info.retransmit_count), (24, 32, 36));
            assert_eq!((info.path_mtu_bytes, info.receive_ssthresh_bytes), (60, 64));
            assert_eq!((info.rtt_ns, info.rtt_variation_ns), (68_000, 72_000));
            assert_eq!((info.send_ssthresh_count, info.congestion_window_count), (76, 80));
            assert_eq!((info.receive_rtt_ns, info.receive_space_bytes), (92_000, 96));
            assert_eq!(info.total_retransmit_count, 100);
            assert_eq!(info.pacing_rate_bps, Some(long_at(104) * 8));
            assert_eq!((info.acked_bytes, info.received_bytes), (Some(long_at(120)), Some(long_at(128))));
            assert_eq!((info.not_sent_bytes, info.min_rtt_ns), (Some(144), Some(148_000)));
            assert_eq!(info.busy_ns, Some(long_at(168) * 1000));
            assert_eq!(info.send_buffer_limited_ns, Some(long_at(184) * 1000));
            let since = |kernel: usize| length >= kernel;
            assert_eq!(info.sent_bytes, since(224).then_some(long_at(200)));
            assert_eq!(info.retransmitted_bytes, since(224).then_some(long_at(208)));
            assert_eq!(info.reorder_seen_count, since(224).then_some(220));
            assert_eq!(info.receive_out_of_order_count, since(232).then_some(224));
            assert_eq!(info.send_window_bytes, since(232).then_some(228));
            assert_eq!(info.receive_window_bytes, since(240).then_some(232));
            assert_eq!(info.timeout_count, since(248).then_some(240));
        }
    }

    #[test]
    fn offsets_match_libc() {
        let info = parse(&numbered(280));
        assert_eq!(info.rtt_ns / 1000, offset_of!(libc::tcp_info, tcpi_rtt) as u64);
        assert_eq!(info.congestion_window_count as usize, offset_of!(libc::tcp_info, tcpi_snd_cwnd));
        assert_eq!(info.total_retransmit_count as usize, offset_of!(libc::tcp_info, tcpi_total_retrans));
        assert_eq!(info.receive_rtt_ns / 1000, offset_of!(libc::tcp_info, tcpi_rcv_rtt) as u64);
    }

    #[test]
    fn no_limit_and_no_sample_are_absent() {
        let mut bytes = numbered(280);
        bytes[104..120].fill(0xff);
        bytes[148..152].fill(0xff);
        let info = parse(&bytes);
        assert_eq!((info.pacing_rate_bps, info.max_pacing_rate_bps, info.min_rtt_ns), (None, None, None));
        assert_eq!(parse(&[]), TcpInfo { returned_bytes: 0, ..parse(&[0; 104]) });
        assert_eq!(parse(&numbered(104)).pacing_rate_bps, None);
    }

    #[test]
    fn a_live_socket_counts_its_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut two = listener.accept().unwrap().0;
        one.write_all(&[0; 10_000]).unwrap();
        two.read_exact(&mut [0; 10_000]).unwrap();
        let info = read(&two).unwrap();
        assert_eq!((info.state, info.received_bytes), (1, Some(10_000)));
        assert!(info.returned_bytes >= 192);
    }
}

//! Socket options and calls that the safe libraries lack: receive low-water mark, pacing, zero-copy sends
//! with their completions, UDP segmentation and receive offload, and the kernel's report of a socket's memory
//! and core.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd},
    ptr,
};

use clearstream_schema::flow::{SocketMemory, ZerocopyCount};

// include/uapi/asm-generic/socket.h; the same on x86_64, aarch64 and riscv64.
const SO_SNDBUFFORCE: libc::c_int = 32;
const SO_RCVBUFFORCE: libc::c_int = 33;
const SO_MAX_PACING_RATE: libc::c_int = 47;
const SO_INCOMING_CPU: libc::c_int = 49;
const SO_MEMINFO: libc::c_int = 55;
const SO_INCOMING_NAPI_ID: libc::c_int = 56;
const SO_ZEROCOPY: libc::c_int = 60;
const SO_NETNS_COOKIE: libc::c_int = 71;
// include/uapi/linux/errqueue.h
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;
// include/uapi/linux/udp.h
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;

/// Room for one control message of an error queue or of UDP receive offload.
const CONTROL_BYTES: usize = 128;

/// Control messages must be aligned like their header (cmsg(3)).
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

fn set_option<T: Copy>(fd: impl AsFd, level: libc::c_int, name: libc::c_int, value: T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is a live plain value of `length` bytes that the kernel
    // only reads.
    let result =
        unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Integers of all option types read here; any bit pattern is a value.
trait Plain: Copy + Default {}
impl Plain for u32 {}
impl Plain for i32 {}
impl Plain for u64 {}
impl Plain for [u32; 9] {}

fn option<T: Plain>(fd: impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`, a plain
    // integer or array of them for which every bit pattern is valid.
    let result = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// `SO_NETNS_COOKIE` (Linux 5.14): a number of the socket's network namespace
/// that no other namespace gets until the next boot, unlike its inode.
pub fn network_namespace_cookie(fd: impl AsFd) -> io::Result<u64> {
    option(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE)
}

/// `SO_RCVLOWAT`: a blocking reader is woken for this many bytes. The kernel
/// lowers it to half of the receive buffer (`tcp_set_rcvlowat`).
pub fn set_receive_low_water(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// Effective `SO_RCVLOWAT`.
pub fn receive_low_water(fd: impl AsFd) -> io::Result<u32> {
    option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT)
}

/// `SO_SNDBUFFORCE`: a send buffer above `net.core.wmem_max`. Needs
/// `CAP_NET_ADMIN`; the kernel doubles the value as usual (socket(7)).
pub fn force_send_buffer(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, SO_SNDBUFFORCE, i32::try_from(bytes).unwrap_or(i32::MAX))
}

/// `SO_RCVBUFFORCE`: a receive buffer above `net.core.rmem_max`, likewise.
pub fn force_receive_buffer(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, SO_RCVBUFFORCE, i32::try_from(bytes).unwrap_or(i32::MAX))
}

/// `TCP_WINDOW_CLAMP`: the largest window that this end advertises (tcp(7)).
pub fn set_window_clamp(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, i32::try_from(bytes).unwrap_or(i32::MAX))
}

/// `SO_MAX_PACING_RATE` in bytes per second (socket(7)).
pub fn set_pacing(fd: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, SO_MAX_PACING_RATE, bytes_per_second)
}

/// Effective `SO_MAX_PACING_RATE` in bytes per second; absent when unlimited (all ones).
pub fn pacing(fd: impl AsFd) -> io::Result<Option<u64>> {
    let rate: u64 = option(fd, libc::SOL_SOCKET, SO_MAX_PACING_RATE)?;
    // Kernels before 5.0 return a 32-bit value.
    Ok((rate != u64::MAX && rate != u64::from(u32::MAX)).then_some(rate))
}

/// `SO_INCOMING_CPU`: the core that processed the socket's last packet.
pub fn incoming_core(fd: impl AsFd) -> io::Result<Option<u32>> {
    option::<i32>(fd, libc::SOL_SOCKET, SO_INCOMING_CPU).map(|core| u32::try_from(core).ok())
}

/// `SO_INCOMING_NAPI_ID`; absent when the packets did not pass a NAPI instance.
pub fn incoming_napi_id(fd: impl AsFd) -> io::Result<Option<u32>> {
    option::<u32>(fd, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID).map(|id| (id != 0).then_some(id))
}

/// `SO_MEMINFO`.
pub fn memory(fd: impl AsFd) -> io::Result<SocketMemory> {
    // The order of include/uapi/linux/sock_diag.h: SK_MEMINFO_RMEM_ALLOC ..
    // SK_MEMINFO_DROPS; places 4 and 6 are forward allocation and options.
    let [
        receive_used_bytes,
        receive_limit_bytes,
        send_used_bytes,
        send_limit_bytes,
        _,
        send_queued_bytes,
        _,
        backlog_bytes,
        drop_count,
    ] = option::<[u32; 9]>(fd, libc::SOL_SOCKET, SO_MEMINFO)?;
    Ok(SocketMemory {
        receive_used_bytes,
        receive_limit_bytes,
        send_used_bytes,
        send_limit_bytes,
        send_queued_bytes,
        backlog_bytes,
        drop_count,
    })
}

/// Allows `MSG_ZEROCOPY` (Documentation/networking/msg_zerocopy.rst).
pub fn enable_zerocopy(fd: impl AsFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, SO_ZEROCOPY, 1i32)
}

/// Sends with `MSG_ZEROCOPY`: the kernel may read `data` until its completion arrives, so a change before
/// makes the content on the wire undefined.
pub fn send_zerocopy(fd: impl AsFd, data: &[u8]) -> io::Result<usize> {
    // SAFETY: `data` is a live slice. The kernel pins its pages, so that they
    // stay valid for its reads even when the memory is unmapped here.
    let sent = unsafe {
        libc::send(
            fd.as_fd().as_raw_fd(),
            data.as_ptr().cast(),
            data.len(),
            libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Reads one message of completions from the error queue without waiting; `None` when there is none. One
/// message covers a range of sends.
pub fn take_zerocopy_completions(fd: impl AsFd) -> io::Result<Option<ZerocopyCount>> {
    let mut count = None;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let taken = receive_message(fd, &mut [], flags, |level, kind, data| {
        let of_ip = (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
            || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR);
        if !of_ip || data.len() < mem::size_of::<libc::sock_extended_err>() {
            return;
        }
        // SAFETY: `sock_extended_err` is plain integers and `data` holds one.
        let error: libc::sock_extended_err = unsafe { ptr::read_unaligned(data.as_ptr().cast()) };
        if error.ee_origin == SO_EE_ORIGIN_ZEROCOPY {
            // `ee_info` .. `ee_data` is an inclusive range that may wrap.
            let completed_count = u64::from(error.ee_data.wrapping_sub(error.ee_info)) + 1;
            let copied = error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0;
            let copied_count = if copied { completed_count } else { 0 };
            count = Some(ZerocopyCount { completed_count, copied_count });
        }
    });
    match taken {
        Ok(_) => Ok(Some(count.unwrap_or_default())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Receives up to `length` bytes of a TCP stream and drops them in the kernel
/// (`MSG_TRUNC`, tcp(7)).
pub fn discard(fd: impl AsFd, length: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket writes no data; if it did, the null
    // address would make the call fail with EFAULT and nothing else.
    let received = unsafe { libc::recv(fd.as_fd().as_raw_fd(), ptr::null_mut(), length, libc::MSG_TRUNC) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Makes one `send` carry many datagrams of `bytes` each (`UDP_SEGMENT`, udp(7)).
pub fn set_udp_segment(fd: impl AsFd, bytes: u16) -> io::Result<()> {
    set_option(fd, libc::SOL_UDP, UDP_SEGMENT, i32::from(bytes))
}

/// Makes one receive return many datagrams (`UDP_GRO`, udp(7)).
pub fn enable_udp_gro(fd: impl AsFd) -> io::Result<()> {
    set_option(fd, libc::SOL_UDP, UDP_GRO, 1i32)
}

/// Datagrams received together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// Bytes of all of them.
    pub length: usize,
    /// Bytes of each but the last, which may be shorter.
    pub segment: usize,
}

/// Receives one or, with [`enable_udp_gro`], several datagrams.
pub fn receive_segments(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<Segments> {
    let mut segment = 0;
    let length = receive_message(fd, buffer, 0, |level, kind, data| {
        if (level, kind) == (libc::SOL_UDP, UDP_GRO)
            && let Some(bytes) = data.first_chunk::<4>()
        {
            segment = usize::try_from(i32::from_ne_bytes(*bytes)).unwrap_or(0);
        }
    })?;
    Ok(Segments { length, segment: if segment == 0 { length } else { segment } })
}

/// `recvmsg` that passes every control message to `each`.
fn receive_message(
    fd: impl AsFd,
    buffer: &mut [u8],
    flags: libc::c_int,
    mut each: impl FnMut(libc::c_int, libc::c_int, &[u8]),
) -> io::Result<usize> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes is a valid empty `msghdr`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: every pointer in `message` points at a live object of the length
    // given beside it; the kernel writes no further.
    let length =
        unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut message, flags | libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: `message` was filled by the kernel: `CMSG_FIRSTHDR` and
    // `CMSG_NXTHDR` walk inside `msg_controllen`, each header is aligned
    // (`Control`) and its data, `cmsg_len - CMSG_LEN(0)` bytes, lies inside.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(found) = header.as_ref() {
            // Its width differs between C libraries.
            let whole: usize = found.cmsg_len as _;
            let data_length = whole.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(header), data_length);
            each(found.cmsg_level, found.cmsg_type, data);
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream, UdpSocket},
    };

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn options_read_back_what_was_set() {
        let (one, mut two) = pair();
        assert_eq!(receive_low_water(&one).unwrap(), 1, "socket(7): initialised to 1");
        set_receive_low_water(&one, 65_536).unwrap();
        assert_eq!(receive_low_water(&one).unwrap(), 65_536);
        assert_eq!(pacing(&one).unwrap(), None);
        set_pacing(&one, 12_500_000_000).unwrap();
        assert_eq!(pacing(&one).unwrap(), Some(12_500_000_000), "100 Gb/s need more than 32 bits");
        (&one).write_all(b"x").unwrap();
        two.read_exact(&mut [0]).unwrap();
        let cores = std::thread::available_parallelism().unwrap().get();
        assert!((incoming_core(&two).unwrap().unwrap() as usize) < cores.max(1024));
        assert_eq!(incoming_napi_id(&two).unwrap(), None, "loopback has no NAPI instance");
    }

    #[test]
    fn memory_agrees_with_the_buffer_options() {
        let (one, _two) = pair();
        let socket = socket2::SockRef::from(&one);
        socket.set_recv_buffer_size(100_000).unwrap();
        socket.set_send_buffer_size(50_000).unwrap();
        let memory = memory(&one).unwrap();
        assert_eq!(memory.receive_limit_bytes as usize, socket.recv_buffer_size().unwrap());
        assert_eq!(memory.send_limit_bytes as usize, socket.send_buffer_size().unwrap());
    }

    #[test]
    fn root_forced_buffers_exceed_the_limit() {
        let (one, _two) = pair();
        let cap: usize =
            std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
        force_receive_buffer(&one, cap * 3).unwrap();
        force_send_buffer(&one, cap * 3).unwrap();
        let socket = socket2::SockRef::from(&one);
        assert_eq!(socket.recv_buffer_size().unwrap(), cap * 6);
        assert_eq!(socket.send_buffer_size().unwrap(), cap * 6);
    }

    #[test]
    fn zerocopy_on_loopback_completes_and_reports_a_copy() {
        let (one, mut two) = pair();
        enable_zerocopy(&one).unwrap();
        let data = vec![7u8; 30_000];
        for _ in 0..3 {
            assert_eq!(send_zerocopy(&one, &data).unwrap(), data.len());
        }
        two.read_exact(&mut vec![0; 90_000]).unwrap();
        let mut total = ZerocopyCount::default();
        for _ in 0..200 {
            while let Some(count) = take_zerocopy_completions(&one).unwrap() {
                total.completed_count += count.completed_count;
                total.copied_count += count.copied_count;
            }
            if total.completed_count == 3 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // msg_zerocopy.rst, "Loopback": data is copied there.
        assert_eq!(total, ZerocopyCount { completed_count: 3, copied_count: 3 });
    }

    #[test]
    fn discard_consumes_bytes_and_reports_the_end() {
        let (mut one, two) = pair();
        one.write_all(&[1; 5000]).unwrap();
        drop(one);
        let mut left = 5000;
        while left > 0 {
            left -= discard(&two, left).unwrap();
        }
        assert_eq!(discard(&two, 10).unwrap(), 0);
    }

    #[test]
    fn datagrams_are_sent_and_received_together() {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        let two = UdpSocket::bind("127.0.0.1:0").unwrap();
        one.connect(two.local_addr().unwrap()).unwrap();
        set_udp_segment(&one, 1000).unwrap();
        enable_udp_gro(&two).unwrap();
        one.send(&[5; 3500]).unwrap();
        let mut buffer = vec![0; 65_536];
        let got = receive_segments(&two, &mut buffer).unwrap();
        assert_eq!(got, Segments { length: 3500, segment: 1000 }, "loopback passes them unsplit");
        one.send(&[6; 10]).unwrap();
        assert_eq!(receive_segments(&two, &mut buffer).unwrap(), Segments { length: 10, segment: 10 });
    }
}

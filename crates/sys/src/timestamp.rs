//! Kernel timestamps of packets (`SO_TIMESTAMPING`) and ancillary data of packets: time-to-live, errors
//! received for them, and the path-MTU options of a socket.
//!
//! Source: the kernel's `Documentation/networking/timestamping.rst`, ip(7),
//! ipv6(7). Only *software* stamps are requested: taken when the stack hands
//! the packet to the queueing discipline and to the driver, and when the driver
//! hands it to the stack, on the same clock (`CLOCK_REALTIME`) at every
//! interface, loopback and veth included.

use std::{
    io, mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::{SystemTime, UNIX_EPOCH},
};

/// Room for every control message requested here: a timestamp (`3 * timespec`), an extended error with its
/// address, and a time-to-live.
const CONTROL_BYTES: usize = 512;

/// Aligned as `cmsghdr` must be.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// IP version of a socket; its options depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Family of an address.
    pub fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// How a socket treats packets larger than the path MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathMtu {
    /// May be fragmented in transit (IPv6: by the sender).
    Fragment,
    /// Never fragmented, and the MTU learned from ICMP is ignored: every size up to the interface's MTU is
    /// sent (`IP_PMTUDISC_PROBE`).
    Probe,
    /// The same, and the kernel learns nothing from ICMP errors about such packets (`IP_PMTUDISC_INTERFACE`).
    Interface,
}

/// A received packet and its ancillary data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to the buffer.
    pub length: usize,
    /// Sender, on sockets that are not connected.
    pub from: Option<SocketAddr>,
    /// Time at which the packet entered the stack, ns since 1970 (`CLOCK_REALTIME`).
    pub stamp_ns: Option<u64>,
    /// Time-to-live (hop limit) on arrival.
    pub time_to_live: Option<u8>,
}

/// Stage of transmission at which a packet was timestamped (`SCM_TSTAMP_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Passed to the queueing discipline of an interface.
    Scheduler,
    /// Passed to its driver.
    Driver,
}

/// `SCM_TSTAMP_SND` and `SCM_TSTAMP_SCHED` of linux/errqueue.h.
const STAGES: [(u32, Stage); 2] = [(0, Stage::Driver), (1, Stage::Scheduler)];

/// One entry of a socket's error queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuedError {
    /// Transmit timestamp of a packet.
    Sent {
        /// Destination.
        stage: Stage,
        /// Datagram number since timestamps were enabled, or the number of the last stream byte of the send
        /// (`SOF_TIMESTAMPING_OPT_ID`).
        id: u32,
        /// Time, ns since 1970.
        stamp_ns: u64,
    },
    /// A router (or this host) reported that a packet was too big.
    TooBig {
        /// MTU of the next hop.
        mtu_bytes: u32,
        /// Reported by this host about its own interface, not by a router.
        local: bool,
    },
    /// Any other error: its number.
    Other(i32),
}

fn set_option<T>(fd: BorrowedFd<'_>, level: i32, name: i32, value: T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes from `value`, which lives until
    // the call returns.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Enables software timestamps: of received packets, and of sent ones when `transmit` (they arrive on the
/// error queue, one for each [`Stage`]; before Linux 3.17 that of the driver alone). Numbering starts at 0,
/// so call it before anything was sent. The kernel enables timestamps of arrivals with a delay when no other
/// socket uses them, so the first packets may lack them.
///
/// # Errors
/// `ENOPROTOOPT`/`EINVAL` where the kernel has no such timestamps.
pub fn enable(socket: impl AsFd, transmit: bool) -> io::Result<()> {
    let mut flags = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE;
    if transmit {
        // TSONLY: the timestamp is returned without the packet, so no privilege is needed to read it (sysctl
        // net.core.tstamp_allow_data).
        flags |= libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        let both = flags | libc::SOF_TIMESTAMPING_TX_SCHED;
        if set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, both).is_ok() {
            return Ok(());
        }
    }
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)
}

/// Enables ancillary data with the time-to-live of received packets.
///
/// # Errors
/// Errors of `setsockopt`.
pub fn report_time_to_live(socket: impl AsFd, family: Family) -> io::Result<()> {
    let (level, name) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_RECVTTL),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    };
    set_option(socket.as_fd(), level, name, 1i32)
}

/// Enables ICMP errors on the error queue (`IP_RECVERR`).
///
/// # Errors
/// Errors of `setsockopt`.
pub fn report_errors(socket: impl AsFd, family: Family) -> io::Result<()> {
    let (level, name) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_RECVERR),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    set_option(socket.as_fd(), level, name, 1i32)
}

/// Sets the treatment of packets that are too big.
///
/// # Errors
/// Errors of `setsockopt`.
pub fn set_path_mtu(socket: impl AsFd, family: Family, how: PathMtu) -> io::Result<()> {
    let (level, name) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    // The values are the same for both versions.
    let value = match how {
        PathMtu::Fragment => libc::IP_PMTUDISC_DONT,
        PathMtu::Probe => libc::IP_PMTUDISC_PROBE,
        PathMtu::Interface => libc::IP_PMTUDISC_INTERFACE,
    };
    set_option(socket.as_fd(), level, name, value)
}

/// MTU of the route of a connected socket, as currently cached by the kernel.
///
/// # Errors
/// `ENOTCONN` on a socket that is not connected.
pub fn route_mtu(socket: impl AsFd, family: Family) -> io::Result<u32> {
    let (level, name) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut value = 0i32;
    let mut length = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(value).map_err(io::Error::other)
}

/// The clock of the kernel's timestamps, ns since 1970.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Receives without blocking.
///
/// # Errors
/// `WouldBlock` when there is nothing; errors of `recvmsg`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut received = Received { length: 0, from: None, stamp_ns: None, time_to_live: None };
    received.length =
        receive_message(socket.as_fd(), buffer, 0, &mut received.from, &mut |level, kind, data| match (
            level, kind,
        ) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => received.stamp_ns = software_stamp(data),
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                received.time_to_live =
                    data.first_chunk().and_then(|bytes| u8::try_from(i32::from_ne_bytes(*bytes)).ok());
            }
            _ => {}
        })?;
    Ok(received)
}

/// Reads one entry of the error queue; `None` when it is empty.
///
/// # Errors
/// Errors of `recvmsg`.
pub fn take_error(socket: impl AsFd) -> io::Result<Option<QueuedError>> {
    let mut stamp = None;
    let mut error = None;
    let outcome =
        receive_message(socket.as_fd(), &mut [], libc::MSG_ERRQUEUE, &mut None, &mut |level, kind, data| {
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => stamp = software_stamp(data),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    error = extended_error(data);
                }
                _ => {}
            }
        });
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    Ok(Some(match error {
        Some(error) if error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING => {
            let stage = STAGES.iter().find(|(number, _)| *number == error.ee_info);
            match stage.zip(stamp) {
                Some(((_, stage), stamp_ns)) => {
                    QueuedError::Sent { stage: *stage, id: error.ee_data, stamp_ns }
                }
                None => QueuedError::Other(0),
            }
        }
        Some(error) if error.ee_errno == libc::EMSGSIZE as u32 => QueuedError::TooBig {
            mtu_bytes: error.ee_info,
            local: error.ee_origin == libc::SO_EE_ORIGIN_LOCAL,
        },
        Some(error) => QueuedError::Other(error.ee_errno as i32),
        None => QueuedError::Other(0),
    }))
}

/// One `recvmsg`; every control message is passed to `each` as (level, type, data).
fn receive_message(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: i32,
    from: &mut Option<SocketAddr>,
    each: &mut dyn FnMut(i32, i32, &[u8]),
) -> io::Result<usize> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes is a valid `sockaddr_storage` (family unspecified)
    // and a valid empty `msghdr`.
    let (mut name, mut message): (libc::sockaddr_storage, libc::msghdr) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = mem::size_of_val(&name) as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: every pointer in `message` points at a live object of the length
    // given beside it; the kernel writes no further.
    let length = unsafe {
        libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC)
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    if message.msg_namelen > 0 {
        *from = socket_address(&name);
    }
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

/// `scm_timestamping` holds three `timespec`: software, unused, hardware.
fn software_stamp(data: &[u8]) -> Option<u64> {
    if data.len() < mem::size_of::<libc::timespec>() {
        return None;
    }
    // SAFETY: `timespec` is plain integers and `data` holds at least one.
    let time: libc::timespec = unsafe { std::ptr::read_unaligned(data.as_ptr().cast()) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let total = seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec).ok()?)?;
    (total > 0).then_some(total)
}

fn extended_error(data: &[u8]) -> Option<libc::sock_extended_err> {
    if data.len() < mem::size_of::<libc::sock_extended_err>() {
        return None;
    }
    // SAFETY: `sock_extended_err` is plain integers and `data` holds one.
    Some(unsafe { std::ptr::read_unaligned(data.as_ptr().cast()) })
}

fn socket_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote a `sockaddr_in`, according to the family, and the storage is large and
            // aligned enough for it.
            let address = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(address.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, a `sockaddr_in6`.
            let address = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            Some(SocketAddr::V6(std::net::SocketAddrV6::new(
                Ipv6Addr::from(address.sin6_addr.s6_addr),
                u16::from_be(address.sin6_port),
                address.sin6_flowinfo,
                address.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// While it exists, the kernel timestamps every received packet (`SO_TIMESTAMP` on any socket, socket(7)).
#[derive(Debug)]
pub struct ArrivalStamps {
    _socket: std::net::UdpSocket,
}

impl ArrivalStamps {
    /// Enables timestamps.
    pub fn on() -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let on: libc::c_int = 1;
        // SAFETY: the option is one int, which lives here.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMP,
                (&raw const on).cast(),
                std::mem::size_of_val(&on) as libc::socklen_t,
            )
        };
        if done == 0 { Ok(Self { _socket: socket }) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn pair(address: &str) -> (UdpSocket, UdpSocket) {
        let one = UdpSocket::bind(address).unwrap();
        let two = UdpSocket::bind(address).unwrap();
        one.connect(two.local_addr().unwrap()).unwrap();
        (one, two)
    }

    fn wait<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
        for _ in 0..500 {
            if let Some(value) = attempt() {
                return value;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("nothing arrived within five seconds");
    }

    #[test]
    fn a_packet_is_timestamped_when_sent_then_when_received() {
        let (one, two) = pair("127.0.0.1:0");
        enable(&one, true).unwrap();
        enable(&two, false).unwrap();
        report_time_to_live(&two, Family::V4).unwrap();
        one.set_ttl(77).unwrap();
        let before = now_ns();
        let mut stamped = 0;
        // The kernel enables timestamps of arrivals with a delay, so the first packets may lack them.
        for expected in 0..200u32 {
            one.send(b"stamp me").unwrap();
            let mut buffer = [0u8; 64];
            let received = wait(|| receive(&two, &mut buffer).ok());
            let mut stamps = [0; 2];
            for (stamp, wanted) in stamps.iter_mut().zip([Stage::Scheduler, Stage::Driver]) {
                let sent = wait(|| take_error(&one).unwrap());
                let QueuedError::Sent { stage, id, stamp_ns } = sent else { panic!("{sent:?}") };
                assert_eq!((stage, id), (wanted, expected), "datagrams are numbered from 0");
                *stamp = stamp_ns;
            }
            let [scheduled, stamp_ns] = stamps;
            assert_eq!(&buffer[..received.length], b"stamp me");
            assert_eq!(received.from, Some(one.local_addr().unwrap()));
            assert_eq!(received.time_to_live, Some(77), "loopback decrements nothing");
            if let Some(arrived) = received.stamp_ns {
                assert!(before <= scheduled && scheduled <= stamp_ns);
                assert!(stamp_ns <= arrived && arrived <= now_ns());
                stamped += 1;
            }
            if stamped == 3 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(stamped, 3);
        assert_eq!(take_error(&one).unwrap(), None);
        assert_eq!(receive(&two, &mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn ipv6_reports_the_same() {
        let (one, two) = pair("[::1]:0");
        enable(&one, true).unwrap();
        enable(&two, false).unwrap();
        report_time_to_live(&two, Family::V6).unwrap();
        set_path_mtu(&one, Family::V6, PathMtu::Probe).unwrap();
        assert!(route_mtu(&one, Family::V6).unwrap() >= 1280, "the least of IPv6, RFC 8200 section 5");
        one.send(b"six").unwrap();
        let received = wait(|| receive(&two, &mut [0; 8]).ok());
        assert_eq!(received.from, Some(one.local_addr().unwrap()));
        assert_eq!(received.time_to_live, Some(64), "default hop limit");
        assert!(matches!(wait(|| take_error(&one).unwrap()), QueuedError::Sent { id: 0, .. }));
    }

    #[test]
    fn an_icmp_error_arrives_on_the_error_queue() {
        let (one, two) = pair("127.0.0.1:0");
        report_errors(&one, Family::V4).unwrap();
        drop(two);
        one.send(b"anybody?").unwrap();
        assert_eq!(wait(|| take_error(&one).unwrap()), QueuedError::Other(libc::ECONNREFUSED));
    }

    #[test]
    fn a_loopback_socket_reports_the_interface_mtu_directly_and_in_errors() {
        let (one, _two) = pair("127.0.0.1:0");
        set_path_mtu(&one, Family::V4, PathMtu::Probe).unwrap();
        report_errors(&one, Family::V4).unwrap();
        let shown = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let interface: u32 = shown.trim().parse().unwrap();
        let mtu = route_mtu(&one, Family::V4).unwrap();
        assert_eq!(mtu, interface.min(65535), "as reported by the interface; IPv4 packets are at most 65535");
        if interface < 65535 {
            one.send(&vec![0; interface as usize]).unwrap_err();
            let expected_error = QueuedError::TooBig { mtu_bytes: interface, local: true };
            assert_eq!(wait(|| take_error(&one).unwrap()), expected_error);
        }
    }
}

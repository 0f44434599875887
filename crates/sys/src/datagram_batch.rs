//! Many datagrams received by one system call (`recvmmsg(2)`), with the time at which each arrived (`SO_TIMESTAMPNS`,
//! socket(7)).

use std::{
    fmt, io, mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
};

/// Room for the control message of a time, aligned as `cmsghdr` must be: a header and a `timespec`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// What it holds.
    pub bytes: &'a [u8],
    /// Its sender, if that is an IP address.
    pub from: Option<SocketAddr>,
    /// When it arrived, ns since 1970; absent on a socket that does not [stamp](stamp_arrivals).
    pub arrived_ns: Option<u64>,
}

/// Has the kernel note the arrival of each packet of a socket.
///
/// # Errors
/// Errors of `setsockopt`.
pub fn stamp_arrivals(socket: impl AsFd) -> io::Result<()> {
    let value: libc::c_int = 1;
    // SAFETY: `value` lives and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for datagrams.
pub struct DatagramBatch {
    bytes: usize,
    room: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
}

impl fmt::Debug for DatagramBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatagramBatch of {} times {} bytes", self.names.len(), self.bytes)
    }
}

impl DatagramBatch {
    /// Room for `count` datagrams of up to `bytes` each; longer ones are cut. The kernel gives memory to what is used
    /// only.
    pub fn new(count: usize, bytes: usize) -> Self {
        let (count, bytes) = (count.max(1), bytes.max(1));
        // SAFETY: an all-zero `sockaddr_storage` is valid; it is plain data.
        let names = vec![unsafe { mem::zeroed() }; count];
        Self { bytes, room: vec![0; count * bytes], names, controls: vec![Control([0; 64]); count] }
    }

    /// Receives what has arrived, without waiting, and hands over each datagram. Returns whether there may be more: the room was filled, or the kernel reported an error of a socket
    /// instead (an ICMP error, `ENETDOWN`), which it does once each.
    pub fn receive(&mut self, socket: impl AsFd, mut take: impl FnMut(Datagram<'_>)) -> bool {
        let parts = self.room.chunks_exact_mut(self.bytes);
        let parts = parts.map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
        let mut parts: Vec<libc::iovec> = parts.collect();
        let messages =
            self.names.iter_mut().zip(&mut parts).zip(&mut self.controls).map(|((name, part), control)| {
                // SAFETY: an all-zero `mmsghdr` is valid; it is plain data.
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_name = (&raw mut *name).cast();
                message.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
                message.msg_hdr.msg_iov = &raw mut *part;
                message.msg_hdr.msg_iovlen = 1;
                message.msg_hdr.msg_control = (&raw mut *control).cast();
                // `size_t` with glibc, `socklen_t` with musl.
                message.msg_hdr.msg_controllen = mem::size_of::<Control>() as _;
                message
            });
        let mut messages: Vec<libc::mmsghdr> = messages.collect();
        // SAFETY: each message refers to a name, a part, a control and its own piece of the room, all of which live
        // until the end of this function and are not moved; the kernel writes at most as much as their lengths say.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                // `int` with glibc, `unsigned int` with musl.
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::InvalidInput);
        };
        for ((message, name), room) in
            messages.iter().zip(&self.names).zip(self.room.chunks_exact(self.bytes)).take(received)
        {
            let length = (message.msg_len as usize).min(room.len());
            let arrived_ns = arrival(&message.msg_hdr);
            take(Datagram { bytes: &room[..length], from: address(name), arrived_ns });
        }
        received == self.names.len()
    }
}

/// The time in the control messages that the kernel wrote.
fn arrival(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the header refers to a live control, and the kernel wrote how much of it is used.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !control.is_null() {
        // SAFETY: it is not null, so it lies within the control, which is aligned for it.
        let header = unsafe { &*control };
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            // SAFETY: the kernel wrote a `timespec` after this header; it is read without regard to alignment.
            let time = unsafe { libc::CMSG_DATA(control).cast::<libc::timespec>().read_unaligned() };
            let (seconds, rest) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
            return seconds.checked_mul(1_000_000_000)?.checked_add(rest);
        }
        // SAFETY: as for the first one.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
    None
}

/// The IP address and port of a name that the kernel wrote.
fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let storage = &raw const *name;
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is large and aligned enough for every kind of address, and this is one of IPv4.
            let name = unsafe { &*storage.cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddr::new(address.into(), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, of IPv6.
            let name = unsafe { &*storage.cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddr::new(address.into(), u16::from_be(name.sin6_port)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn datagrams_come_with_their_senders_and_are_cut_to_the_room() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let receiver = UdpSocket::bind(local).expect("free port");
            let sender = UdpSocket::bind(local).expect("free port");
            let to = receiver.local_addr().expect("bound");
            for datagram in [&b"one"[..], &[7; 300], b"", b"four"] {
                sender.send_to(datagram, to).expect("sent");
            }
            let mut batch = DatagramBatch::new(3, 256);
            let mut found: Vec<Vec<u8>> = Vec::new();
            let from = sender.local_addr().ok();
            while batch.receive(&receiver, |datagram| {
                assert_eq!((datagram.from, datagram.arrived_ns), (from, None));
                found.push(datagram.bytes.to_vec());
            }) {}
            assert_eq!(found, [b"one".to_vec(), vec![7; 256], Vec::new(), b"four".to_vec()]);
            assert!(!batch.receive(&receiver, |_| panic!("nothing is left")));
            stamp_arrivals(&receiver).expect("an option of every socket");
            let before = crate::timestamp::now_ns();
            sender.send_to(b"five", to).expect("sent");
            let mut arrived = None;
            batch.receive(&receiver, |datagram| arrived = datagram.arrived_ns);
            let arrived = arrived.expect("stamped");
            assert!(before <= arrived && arrived <= crate::timestamp::now_ns());
        }
    }
}

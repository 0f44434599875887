//! Packet capture on a host (`AF_PACKET`, packet(7)), filtered in the kernel by a classic BPF program
//! (Documentation/networking/filter.rst).

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

// linux/if_ether.h and linux/if_packet.h
const ETH_P_ALL: u16 = 0x0003;
const ETH_P_IP: u32 = 0x0800;
const ETH_P_IPV6: u32 = 0x86dd;
const PACKET_HOST: u8 = 0;
const PACKET_OUTGOING: u8 = 4;
const PACKET_STATISTICS: libc::c_int = 6;
// linux/filter.h: ancillary data; the protocol is in host byte order there.
const SKF_AD_OFF: u32 = 0xffff_f000;
const SKF_AD_PROTOCOL: u32 = 0;
/// Bytes captured of a packet: the longest IPv4 header (60) with the ports after it, or an IPv6 header with
/// them, and some room.
const SNAP_BYTES: u32 = 96;
/// The kernel accepts up to 4096 instructions (`BPF_MAXINSNS`), but a jump spans at most 255 of them.
const MOST_PORTS: usize = 100;

/// A captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Bytes written to the buffer, from the IP header.
    pub length: usize,
    /// Index of the interface.
    pub interface_index: u32,
    /// Whether it was sent by that interface; otherwise it arrived there for this host.
    pub outgoing: bool,
}

/// A socket that captures TCP and UDP packets from or to some ports on all interfaces of its network
/// namespace. It modifies nothing and sends nothing.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens the socket in the calling thread's network namespace; reads do
    /// not block. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// `EPERM` without the capability, `EINVAL` for no port or more than 100.
    pub fn open(ports: &[u16]) -> io::Result<Self> {
        if ports.is_empty() || ports.len() > MOST_PORTS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Protocol 0: nothing is delivered before the filter is attached and bind has named the protocol
        // (packet(7)).
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: a plain system call with integer arguments.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and belongs to nobody else.
        let socket = Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } };
        socket.attach(&port_filter(ports))?;
        socket.bind_all()?;
        Ok(socket)
    }

    fn attach(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let length = u16::try_from(program.len()).map_err(io::Error::other)?;
        let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
        // SAFETY: the kernel copies `len` instructions from `program`, which
        // lives here, and checks them (`bpf_check_classic`).
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                mem::size_of_val(&filter) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn bind_all(&self) -> io::Result<()> {
        // SAFETY: an all-zero `sockaddr_ll` is valid; it is plain data. Index 0
        // is every interface.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ETH_P_ALL.to_be();
        // SAFETY: the kernel reads one `sockaddr_ll`, which lives here.
        let result = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of_val(&address) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Receives the next packet, truncated to the buffer; `None` for packets addressed to other hosts
    /// (promiscuous), broadcasts and loopback copies.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; errors of `recvfrom` (`ENETDOWN` once after an interface went down).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<CapturedPacket>> {
        // SAFETY: an all-zero `sockaddr_ll` is valid; it is plain data.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut address_length = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`
        // and at most `address_length` to `address`; both live here.
        let length = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
                (&raw mut address).cast(),
                &raw mut address_length,
            )
        };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let outgoing = match address.sll_pkttype {
            PACKET_HOST => false,
            PACKET_OUTGOING => true,
            _ => return Ok(None),
        };
        let interface_index = u32::try_from(address.sll_ifindex).unwrap_or(0);
        Ok(Some(CapturedPacket { length, interface_index, outgoing }))
    }

    /// Packets dropped for lack of room since the last call (`PACKET_STATISTICS`; reading clears it).
    ///
    /// # Errors
    /// Errors of `getsockopt`.
    pub fn take_lost_count(&self) -> io::Result<u64> {
        // `struct tpacket_stats`: packets, drops.
        let mut counts = [0u32; 2];
        let mut length = mem::size_of_val(&counts) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into two plain
        // integers that live here.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_STATISTICS,
                (&raw mut counts).cast(),
                &raw mut length,
            )
        };
        if result == 0 { Ok(u64::from(counts[1])) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn instruction(code: u32, jt: usize, jf: usize, k: u32) -> libc::sock_filter {
    // Jumps are checked by the builder below: `MOST_PORTS` keeps them short.
    let jump = |places: usize| u8::try_from(places).unwrap_or(u8::MAX);
    libc::sock_filter { code: code as u16, jt: jump(jt), jf: jump(jf), k }
}

/// Passes TCP and UDP packets, IPv4 (first fragments) and IPv6 (without
/// extension headers), of which either port is one of `ports`. On a socket of
/// kind `SOCK_DGRAM` a packet begins with its IP header.
fn port_filter(ports: &[u16]) -> Vec<libc::sock_filter> {
    use libc::{
        BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
        BPF_W,
    };
    let load_u32 = BPF_LD | BPF_W | BPF_ABS;
    let load_u16 = BPF_LD | BPF_H | BPF_ABS;
    let load_u8 = BPF_LD | BPF_B | BPF_ABS;
    let load_u16_behind = BPF_LD | BPF_H | BPF_IND;
    let equal = BPF_JMP | BPF_JEQ | BPF_K;
    let any_bit = BPF_JMP | BPF_JSET | BPF_K;
    let give = BPF_RET | BPF_K;
    let (tcp, udp) = (libc::IPPROTO_TCP as u32, libc::IPPROTO_UDP as u32);
    // The port check: compares the source port with each one, then the destination port. A match jumps to the
    // last instruction.
    let behind = |program: &mut Vec<libc::sock_filter>, code: u32, source: u32| {
        let refusal = 1;
        let second = 1 + ports.len();
        for (at, after) in [(source, second + refusal), (source + 2, refusal)] {
            program.push(instruction(code, 0, 0, at));
            for (place, port) in ports.iter().enumerate() {
                let left = ports.len() - 1 - place;
                program.push(instruction(equal, left + after, 0, u32::from(*port)));
            }
        }
        program.push(instruction(give, 0, 0, 0));
        program.push(instruction(give, 0, 0, SNAP_BYTES));
    };
    let mut v4 = vec![
        instruction(load_u8, 0, 0, 9),
        instruction(equal, 2, 0, tcp),
        instruction(equal, 1, 0, udp),
        instruction(give, 0, 0, 0),
        instruction(load_u16, 0, 0, 6),
        instruction(any_bit, 0, 1, 0x1fff),
        instruction(give, 0, 0, 0),
        instruction(BPF_LDX | BPF_B | BPF_MSH, 0, 0, 0),
    ];
    behind(&mut v4, load_u16_behind, 0);
    let mut v6 = vec![
        instruction(load_u8, 0, 0, 6),
        instruction(equal, 2, 0, tcp),
        instruction(equal, 1, 0, udp),
        instruction(give, 0, 0, 0),
    ];
    behind(&mut v6, load_u16, 40);
    let mut program = vec![
        instruction(load_u32, 0, 0, SKF_AD_OFF + SKF_AD_PROTOCOL),
        instruction(equal, 3, 0, ETH_P_IP),
        instruction(equal, 1, 0, ETH_P_IPV6),
        instruction(give, 0, 0, 0),
        // Over the IPv4 part, which may exceed the range of a conditional jump.
        instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, u32::try_from(v4.len()).unwrap_or(u32::MAX)),
    ];
    program.append(&mut v4);
    program.append(&mut v6);
    program
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream, UdpSocket},
        time::{Duration, Instant},
    };

    use super::*;
    use crate::namespace::{Holder, NamespaceSet};

    /// Runs in a fresh namespace with loopback up.
    fn inside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let holder = Holder::start().unwrap();
        let set = NamespaceSet::of_process(holder.pid()).unwrap();
        let mut up = std::process::Command::new("ip");
        up.args(["link", "set", "lo", "up"]);
        NamespaceSet::of_process(holder.pid()).unwrap().enter_with(&mut up).unwrap();
        assert!(up.status().unwrap().success());
        set.run(work).unwrap()
    }

    /// Source and destination ports of packets sent, after `wait`.
    fn seen(socket: &PacketSocket, header: usize) -> Vec<(u16, u16)> {
        let until = Instant::now() + Duration::from_millis(200);
        let mut found = Vec::new();
        let mut buffer = [0; 128];
        while Instant::now() < until {
            match socket.receive(&mut buffer) {
                Ok(Some(packet)) if packet.outgoing => {
                    assert!(packet.interface_index > 0 && packet.length >= header + 8);
                    let port = |at: usize| u16::from_be_bytes([buffer[header + at], buffer[header + at + 1]]);
                    found.push((port(0), port(2)));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
        found
    }

    #[test]
    fn root_only_packets_of_the_ports_are_captured() {
        for (loopback, header) in [("127.0.0.1", 20), ("[::1]", 40)] {
            inside(|| {
                let wanted = TcpListener::bind(format!("{loopback}:0")).unwrap();
                let other = TcpListener::bind(format!("{loopback}:0")).unwrap();
                let datagrams = UdpSocket::bind(format!("{loopback}:0")).unwrap();
                let port = wanted.local_addr().unwrap().port();
                let datagram_port = datagrams.local_addr().unwrap().port();
                // Many other ports before and after: every jump is long.
                let mut ports: Vec<u16> = (1..=49).collect();
                ports.extend([port, datagram_port]);
                ports.extend(51..=99);
                let socket = PacketSocket::open(&ports).unwrap();
                for listener in [&wanted, &other] {
                    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    let mut server = listener.accept().unwrap().0;
                    client.write_all(b"hello").unwrap();
                    server.read_exact(&mut [0; 5]).unwrap();
                }
                let sender = UdpSocket::bind(format!("{loopback}:0")).unwrap();
                sender.send_to(&[1; 20], datagrams.local_addr().unwrap()).unwrap();
                let seen = seen(&socket, header);
                let ours = |pair: &(u16, u16)| {
                    [pair.0, pair.1].iter().any(|one| *one == port || *one == datagram_port)
                };
                assert!(seen.iter().all(ours), "{seen:?}");
                assert!(seen.iter().any(|pair| pair.0 == port) && seen.iter().any(|pair| pair.1 == port));
                assert!(seen.iter().any(|pair| pair.1 == datagram_port));
                assert_eq!(socket.take_lost_count().unwrap(), 0);
            });
        }
    }

    #[test]
    fn root_packets_without_room_are_counted() {
        inside(|| {
            let server = UdpSocket::bind("127.0.0.1:0").unwrap();
            let socket = PacketSocket::open(&[server.local_addr().unwrap().port()]).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..20_000 {
                sender.send_to(&[1; 20], server.local_addr().unwrap()).unwrap();
            }
            let mut taken = 0;
            while let Ok(packet) = socket.receive(&mut [0; 128]) {
                taken += u64::from(packet.is_some());
            }
            // Each is captured when sent and when it arrives.
            let lost = socket.take_lost_count().unwrap();
            assert!(lost > 0 && taken + lost == 40_000, "{taken} taken, {lost} lost");
            assert_eq!(socket.take_lost_count().unwrap(), 0, "reading clears it");
        });
    }

    #[test]
    fn no_ports_and_too_many_are_rejected() {
        for ports in [Vec::new(), vec![1; 101]] {
            assert_eq!(PacketSocket::open(&ports).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}

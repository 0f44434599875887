//! Probes by TCP: a SYN segment with the probe as its data, and a SYN-ACK as its
//! reply. Gateways see the beginning of a connection, as of any flow, and then its
//! retransmissions with the same sequence number (RFC 9293, section 3.8.1). There is
//! no connection: packet sockets send and receive the segments, bypassing the routing
//! tables. Sockets whose filter drops everything hold the ports, so that the kernels
//! do not respond.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Receive buffer: holds segments while the program is not scheduled.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

// linux/filter.h and linux/bpf_common.h: classes, sizes, modes, jumps.
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_HALF_BEHIND: u16 = 0x48;
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
/// Ancillary data: the kind of a packet, 0 for one to this host (`SKF_AD_PKTTYPE`, `PACKET_HOST`).
const PACKET_KIND: u32 = 0xffff_f004;
const TCP: u32 = 6;

/// A listening socket that drops what arrives: it holds the port, and the kernel
/// neither accepts nor resets (`tcp_filter`, net/ipv4/tcp_ipv4.c).
pub(super) fn hold(port: u16, ipv6: bool) -> io::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    if ipv6 {
        socket.set_only_v6(true)?;
    }
    socket.attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)])?;
    socket.bind(&SocketAddr::new(any, port).into())?;
    socket.listen(1)?;
    Ok(socket)
}

/// A packet socket that receives the segments to some TCP ports, from one or any.
pub(super) fn open_packets(to: &[u16], from: Option<u16>, ipv6: bool) -> io::Result<Socket> {
    let ether_type: u16 = if ipv6 { 0x86dd } else { 0x0800 };
    let protocol = Protocol::from(i32::from(ether_type.to_be()));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
    socket.attach_filter(&filter(to, from, ipv6))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    Ok(socket)
}

/// Passes whole TCP packets for this host to some ports; a packet of a socket of kind
/// `SOCK_DGRAM` begins with its IP header (packet(7)).
fn filter(to: &[u16], from: Option<u16>, ipv6: bool) -> Vec<SockFilter> {
    // Code, operand, and whether a comparison must hold; none for a load.
    let mut steps: Vec<(u16, u32, Option<bool>)> =
        vec![(LOAD_BYTE, PACKET_KIND, None), (IF_EQUAL, 0, Some(true))];
    let (load, source) = if ipv6 {
        steps.extend([(LOAD_BYTE, 6, None), (IF_EQUAL, TCP, Some(true))]);
        (LOAD_HALF, 40)
    } else {
        steps.extend([(LOAD_BYTE, 9, None), (IF_EQUAL, TCP, Some(true))]);
        // Not a part of a fragmented packet.
        steps.extend([(LOAD_HALF, 6, None), (IF_ANY_BIT, 0x3fff, Some(false))]);
        steps.push((LOAD_HEADER_LENGTH, 0, None));
        (LOAD_HALF_BEHIND, 0)
    };
    if let Some(from) = from {
        steps.extend([(load, source, None), (IF_EQUAL, u32::from(from), Some(true))]);
    }
    steps.push((load, source + 2, None));
    // The ports, the refusal and the acceptance follow.
    let refusal = steps.len() + to.len();
    let jump = |from: usize, to: usize| u8::try_from(to - from - 1).unwrap_or(u8::MAX);
    let step = |(place, (code, operand, wanted)): (usize, (u16, u32, Option<bool>))| {
        let refused = jump(place, refusal);
        match wanted {
            None => SockFilter::new(code, 0, 0, operand),
            Some(true) => SockFilter::new(code, 0, refused, operand),
            Some(false) => SockFilter::new(code, refused, 0, operand),
        }
    };
    let first = steps.len();
    let mut program: Vec<SockFilter> = steps.into_iter().enumerate().map(step).collect();
    program.extend(to.iter().enumerate().map(|(place, port)| {
        SockFilter::new(IF_EQUAL, jump(first + place, refusal + 1), 0, u32::from(*port))
    }));
    program.extend([SockFilter::new(RETURN, 0, 0, 0), SockFilter::new(RETURN, 0, 0, u32::MAX)]);
    program
}

//! Packets sent to an explicit link-layer address, bypassing the routing tables (packet(7), `SOCK_DGRAM`: the
//! kernel writes the link header).

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// Longest link-layer address (`MAX_ADDR_LEN`, include/linux/netdevice.h); InfiniBand
/// has 20 bytes, Ethernet 6.
const MAX_ADDRESS_BYTES: usize = 32;

/// `struct sockaddr_ll` with room for longer addresses: the kernel reads `sll_halen` bytes when the name is
/// long enough (net/packet/af_packet.c, `packet_snd`).
#[repr(C)]
struct LinkName {
    family: u16,
    protocol: u16,
    interface_index: i32,
    hardware_type: u16,
    packet_type: u8,
    address_length: u8,
    address: [u8; MAX_ADDRESS_BYTES],
}

/// A socket that sends to link-layer addresses and receives nothing.
#[derive(Debug)]
pub struct LinkSender(OwnedFd);

impl LinkSender {
    /// Opens the socket in the network namespace of this thread. Needs `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0 receives nothing (packet(7)).
        // SAFETY: a plain system call with integer arguments.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends packets by as few system calls as possible (`sendmmsg(2)`); returns how many were sent. One that the
    /// kernel rejects is left out, for example one longer than the MTU of its interface.
    pub fn send(&self, packets: &[LinkPacket]) -> usize {
        let mut names: Vec<LinkName> = packets.iter().map(LinkPacket::name).collect();
        let parts = packets.iter().map(|packet| libc::iovec {
            // The kernel only reads it.
            iov_base: packet.bytes.as_ptr().cast_mut().cast(),
            iov_len: packet.bytes.len(),
        });
        let mut parts: Vec<libc::iovec> = parts.collect();
        let messages = names.iter_mut().zip(&mut parts).map(|(name, part)| {
            // SAFETY: an all-zero `mmsghdr` is valid; it is plain data.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            message.msg_hdr.msg_name = (&raw mut *name).cast();
            message.msg_hdr.msg_namelen = mem::size_of::<LinkName>() as libc::socklen_t;
            message.msg_hdr.msg_iov = &raw mut *part;
            message.msg_hdr.msg_iovlen = 1;
            message
        });
        let mut messages: Vec<libc::mmsghdr> = messages.collect();
        let (mut sent_count, mut at) = (0, 0);
        while at < messages.len() {
            let rest = &mut messages[at..];
            // SAFETY: each message refers to a name, a part and octets that live until the end of this function
            // and that no vector moves; the kernel writes `msg_len` of `rest.len()` messages and reads the others.
            // `LinkName` begins as `sockaddr_ll` does.
            let sent = unsafe {
                libc::sendmmsg(self.0.as_raw_fd(), rest.as_mut_ptr(), rest.len() as libc::c_uint, 0)
            };
            match usize::try_from(sent) {
                Ok(count) if count > 0 => {
                    sent_count += count;
                    at += count;
                }
                // The first one was rejected.
                _ => at += 1,
            }
        }
        sent_count
    }
}

/// An IP packet for a link-layer address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPacket {
    /// Index of the interface.
    pub interface_index: u32,
    /// 0x0800 for IPv4 and 0x86dd for IPv6.
    pub ether_type: u16,
    /// Link-layer address of the receiver.
    pub link_address: Vec<u8>,
    /// The packet, header included.
    pub bytes: Vec<u8>,
}

impl LinkPacket {
    /// Its destination. One with an address or index that no interface has is rejected by the kernel.
    fn name(&self) -> LinkName {
        let mut address = [0; MAX_ADDRESS_BYTES];
        let length = self.link_address.len().min(MAX_ADDRESS_BYTES);
        address[..length].copy_from_slice(&self.link_address[..length]);
        let is_too_long = self.link_address.len() > MAX_ADDRESS_BYTES;
        LinkName {
            family: libc::AF_PACKET as u16,
            protocol: self.ether_type.to_be(),
            interface_index: if is_too_long { -1 } else { i32::try_from(self.interface_index).unwrap_or(-1) },
            hardware_type: 0,
            packet_type: 0,
            address_length: length as u8,
            address,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::namespace::{Holder, NamespaceSet};

    /// A UDP datagram from 10.9.9.8 to 10.9.9.9, written by hand after RFC 791 and RFC 768 (checksum 0:
    /// none), arrives by the loopback interface. From 127.0.0.1 it would be a martian: it arrives without the
    /// route of local packets.
    #[test]
    fn root_a_packet_is_sent_to_a_link_address() {
        let holder = Holder::start().expect("namespaces");
        let set = NamespaceSet::of_process(holder.pid()).expect("proc");
        set.run(|| {
            for line in ["link set lo up", "address add 10.9.9.9/32 dev lo"] {
                let done = std::process::Command::new("ip").args(line.split(' ')).status();
                assert!(done.expect("ip runs").success());
            }
            let receiver = UdpSocket::bind("10.9.9.9:7117").expect("free port");
            receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("option");
            let mut packet = vec![
                0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 9, 8, 10, 9, 9, 9, // IPv4
                0x1b, 0xcd, 0x1b, 0xcd, 0, 12, 0, 0, // UDP
                b'p', b'i', b'n', b'g',
            ];
            let sum: u32 = packet[..20]
                .chunks_exact(2)
                .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
                .sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
            let sender = LinkSender::open().expect("CAP_NET_RAW");
            let packet = |link_address: Vec<u8>| LinkPacket {
                interface_index: 1,
                ether_type: 0x0800,
                link_address,
                bytes: packet.clone(),
            };
            // Those that are rejected do not keep the others.
            assert_eq!(sender.send(&[packet(vec![0; 40]), packet(vec![0; 6]), packet(vec![0; 40])]), 1);
            let mut buffer = [0; 16];
            let (length, from) = receiver.recv_from(&mut buffer).expect("received");
            assert_eq!((&buffer[..length], from.port()), (&b"ping"[..], 7117));
        })
        .expect("entered");
    }
}

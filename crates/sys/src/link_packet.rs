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

    /// Sends one IP packet, header included, to a link-layer address. `ether_type` is
    /// 0x0800 for IPv4 and 0x86dd for IPv6.
    pub fn send(
        &self,
        interface_index: u32,
        ether_type: u16,
        link_address: &[u8],
        packet: &[u8],
    ) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let mut name = LinkName {
            family: libc::AF_PACKET as u16,
            protocol: ether_type.to_be(),
            interface_index: i32::try_from(interface_index).map_err(|_| invalid())?,
            hardware_type: 0,
            packet_type: 0,
            address_length: u8::try_from(link_address.len()).map_err(|_| invalid())?,
            address: [0; MAX_ADDRESS_BYTES],
        };
        name.address.get_mut(..link_address.len()).ok_or_else(invalid)?.copy_from_slice(link_address);
        // SAFETY: `packet` and `name` are live and the kernel only reads them;
        // `LinkName` begins as `sockaddr_ll` does.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const name).cast(),
                mem::size_of::<LinkName>() as libc::socklen_t,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
            sender.send(1, 0x0800, &[0; 6], &packet).expect("sent");
            let mut buffer = [0; 16];
            let (length, from) = receiver.recv_from(&mut buffer).expect("received");
            assert_eq!((&buffer[..length], from.port()), (&b"ping"[..], 7117));
            assert!(sender.send(1, 0x0800, &[0; 40], &packet).is_err());
        })
        .expect("entered");
    }
}

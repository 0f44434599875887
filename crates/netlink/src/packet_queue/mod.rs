//! Packets held by the kernel until they are released by id (nfqueue): the rules that queue what a bridge
//! forwards, and the queue itself. Only headers are copied.
//!
//! Source: linux/netfilter/nfnetlink.h, nf_tables.h, nfnetlink_queue.h.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use rustix::net::{RecvFlags, recv, sockopt::set_socket_recv_buffer_size_force};

pub(crate) mod message;
mod rules;

use crate::refusal::request_explanations;
use message::{Batch, attributes};
pub use rules::queue_forwarded;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;

const NFNL_SUBSYS_QUEUE: u16 = 3;
const NFQNL_MSG_PACKET: u16 = 0;
const NFQNL_MSG_VERDICT: u16 = 1;
const NFQNL_MSG_CONFIG: u16 = 2;
const NFQNL_MSG_VERDICT_BATCH: u16 = 3;

const NFQA_CFG_CMD: u16 = 1;
const NFQA_CFG_PARAMS: u16 = 2;
const NFQA_CFG_QUEUE_MAXLEN: u16 = 3;
const NFQA_CFG_MASK: u16 = 4;
const NFQA_CFG_FLAGS: u16 = 5;
const NFQNL_CFG_CMD_BIND: u8 = 1;
const NFQNL_COPY_PACKET: u8 = 2;
/// GSO packets stay aggregated.
const NFQA_CFG_F_GSO: u32 = 1 << 2;

const NFQA_PACKET_HDR: u16 = 1;
const NFQA_VERDICT_HDR: u16 = 2;
const NFQA_MARK: u16 = 3;
const NFQA_TIMESTAMP: u16 = 4;
const NFQA_PAYLOAD: u16 = 10;
const NFQA_CAP_LEN: u16 = 13;

const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;

/// Bytes copied of each packet: IPv6 and TCP headers with options.
const COPY_BYTES: u32 = 96;
/// Receive buffer for messages about packets that were not read yet.
const RECEIVE_BYTES: usize = 32 << 20;
/// Longest message: a packet's start and a dozen attributes.
pub const MESSAGE_BYTES: usize = 1024;

/// A packet held by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldPacket<'a> {
    /// Packet id in the queue; ascending.
    pub id: u32,
    /// Length from the IP header.
    pub ip_bytes: usize,
    /// Its mark (`SO_MARK`, policy routing); 0 when it has none.
    pub mark: u32,
    /// Arrival time in microseconds since 1970, where the kernel timestamps packets.
    pub arrived_us: Option<u64>,
    /// First bytes of the packet, from the IP header.
    pub start: &'a [u8],
}

/// One queue of the network namespace it was opened in. Dropping it drops the held packets.
#[derive(Debug)]
pub struct PacketQueue {
    socket: Socket,
    number: u16,
}

impl PacketQueue {
    /// Opens queue `number`, for at most `most` packets.
    pub fn open(number: u16, most: u32) -> io::Result<Self> {
        let socket = open_socket()?;
        set_socket_recv_buffer_size_force(socket.as_fd(), RECEIVE_BYTES)?;
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        let mut batch = Batch::default();
        batch.message((NFNL_SUBSYS_QUEUE, NFQNL_MSG_CONFIG), flags, 0, number, |out| {
            out.bytes(NFQA_CFG_CMD, &[NFQNL_CFG_CMD_BIND, 0, 0, 0]);
            let [a, b, c, d] = COPY_BYTES.to_be_bytes();
            out.bytes(NFQA_CFG_PARAMS, &[a, b, c, d, NFQNL_COPY_PACKET]);
            out.number(NFQA_CFG_QUEUE_MAXLEN, most);
            out.number(NFQA_CFG_FLAGS, NFQA_CFG_F_GSO);
            out.number(NFQA_CFG_MASK, NFQA_CFG_F_GSO);
        });
        batch.send(&socket, 1)?;
        socket.set_non_blocking(true)?;
        // What exceeds the buffer is dropped and counted by the kernel.
        socket.set_no_enobufs(true)?;
        Ok(Self { socket, number })
    }

    /// The next packet, read into `buffer` of [`MESSAGE_BYTES`]; `WouldBlock`
    /// when there is none.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<HeldPacket<'a>>> {
        let (bytes, _) = recv(self.socket.as_fd(), &mut *buffer, RecvFlags::empty())?;
        Ok(held(&buffer[..bytes]))
    }

    /// Releases every held packet up to id `id`.
    pub fn release_to(&self, id: u32) -> io::Result<()> {
        self.verdict(NFQNL_MSG_VERDICT_BATCH, NF_ACCEPT, id)
    }

    /// Drops one packet.
    pub fn drop_one(&self, id: u32) -> io::Result<()> {
        self.verdict(NFQNL_MSG_VERDICT, NF_DROP, id)
    }

    fn verdict(&self, kind: u16, verdict: u32, id: u32) -> io::Result<()> {
        let mut header = [0; 8];
        header[..4].copy_from_slice(&verdict.to_be_bytes());
        header[4..].copy_from_slice(&id.to_be_bytes());
        let mut batch = Batch::default();
        batch.message((NFNL_SUBSYS_QUEUE, kind), NLM_F_REQUEST, 0, self.number, |out| {
            out.bytes(NFQA_VERDICT_HDR, &header);
        });
        batch.send(&self.socket, 0)
    }
}

impl AsFd for PacketQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(crate) fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    request_explanations(&mut socket);
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Parses a message about a packet; `None` for any other.
fn held(message: &[u8]) -> Option<HeldPacket<'_>> {
    const HEADERS: usize = 16 + 4;
    let length = usize::try_from(u32::from_ne_bytes(message.get(..4)?.try_into().ok()?)).ok()?;
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    if kind != (NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_PACKET) {
        return None;
    }
    let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?));
    let long = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?));
    let (mut id, mut whole) = (None, None);
    let mut packet = HeldPacket { id: 0, ip_bytes: 0, mark: 0, arrived_us: None, start: &[] };
    for (kind, value) in attributes(message.get(HEADERS..length.min(message.len()))?) {
        match kind {
            NFQA_PACKET_HDR => id = number(value),
            NFQA_MARK => packet.mark = number(value)?,
            NFQA_CAP_LEN => whole = number(value),
            NFQA_PAYLOAD => packet.start = value,
            NFQA_TIMESTAMP => {
                let (seconds, micros) = (long(value)?, long(value.get(8..)?)?);
                packet.arrived_us = Some(seconds.wrapping_mul(1_000_000).wrapping_add(micros));
            }
            _ => {}
        }
    }
    packet.ip_bytes = whole.map_or(packet.start.len(), |bytes| bytes as usize);
    Some(HeldPacket { id: id?, ..packet })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_kernel_is_parsed_and_garbage_is_not() {
        let mut batch = Batch::default();
        batch.message((NFNL_SUBSYS_QUEUE, NFQNL_MSG_PACKET), 0, 2, 7, |out| {
            out.bytes(NFQA_PACKET_HDR, &[0, 0, 1, 2, 8, 0, 2]);
            out.number(NFQA_MARK, 0x1_05dc);
            out.bytes(NFQA_TIMESTAMP, &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9]);
            out.number(NFQA_CAP_LEN, 64_000);
            out.bytes(NFQA_PAYLOAD, &[0x45, 0, 1]);
        });
        let bytes = batch.bytes();
        let packet = held(bytes).unwrap();
        let wanted = HeldPacket {
            id: 0x102,
            ip_bytes: 64_000,
            mark: 0x1_05dc,
            arrived_us: Some(3_000_009),
            start: &[0x45, 0, 1],
        };
        assert_eq!(packet, wanted);
        for length in 0..bytes.len() {
            // Truncated anywhere: no panic, and never another packet's id.
            assert!(held(&bytes[..length]).is_none_or(|packet| packet.id == 0x102));
        }
        assert_eq!(held(&[0xff; 64]), None);
    }
}

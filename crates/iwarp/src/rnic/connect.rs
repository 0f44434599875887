//! Connection set-up: the initiator's side, and what both sides agree on.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use crate::rnic::ConnectError;

/// How to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// For the peer's program: up to 512 bytes, 4 of which revision 2 needs.
    pub private_data: Vec<u8>,
    /// Reads and atomics that the peer may have outstanding here.
    pub ird: u16,
    /// Reads and atomics that may be outstanding towards the peer.
    pub ord: u16,
    /// Ask for CRC32C over each FPDU.
    pub crc: bool,
    /// Ask the peer to put markers into what it sends.
    pub markers: bool,
    /// MPA revision, 1 or 2; 2 negotiates `ird` and `ord` (RFC 6581).
    pub revision: u8,
    /// Either side may send first: a ready-to-receive message opens the
    /// connection. Needs revision 2.
    pub peer_to_peer: bool,
    /// For all of it: TCP, request, reply.
    pub timeout: Duration,
    /// For the reply once the request is sent.
    pub reply_timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            ird: 16,
            ord: 16,
            crc: true,
            markers: false,
            revision: 2,
            peer_to_peer: false,
            timeout: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(5),
        }
    }
}

/// How to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptOptions {
    /// For the peer's program: up to 512 bytes, 4 of which revision 2 needs.
    pub private_data: Vec<u8>,
    /// Reads and atomics that the peer may have outstanding here, at most.
    pub ird: u16,
    /// Reads and atomics that may be outstanding towards the peer, at most.
    pub ord: u16,
    /// Want CRC32C also if the peer does not.
    pub crc: bool,
    /// Ask the peer to put markers into what it sends.
    pub markers: bool,
}

impl Default for AcceptOptions {
    fn default() -> Self {
        Self { private_data: Vec::new(), ird: 16, ord: 16, crc: false, markers: false }
    }
}

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Established {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// What the peer's program had to say.
    pub private_data: Vec<u8>,
    /// CRC32C is on, both ways.
    pub crc: bool,
    /// Markers in what is sent.
    pub markers_out: bool,
    /// Markers in what is received.
    pub markers_in: bool,
    /// MPA revision.
    pub revision: u8,
    /// Reads and atomics that the peer may have outstanding here.
    pub ird: u16,
    /// Reads and atomics that may be outstanding towards the peer.
    pub ord: u16,
    /// A ready-to-receive message opens the connection.
    pub peer_to_peer: bool,
    /// This side connected.
    pub initiator: bool,
    /// Bytes of an FPDU's upper-layer data unit, at most (RFC 5044, section
    /// 4.3).
    pub mulpdu_bytes: usize,
}

/// A connection that is being set up. Its descriptor is readable when
/// [`Connecting::advance`] has something to do, a time limit included.
/// Dropped, the attempt ends and the queue pair is idle again.
#[derive(Debug)]
pub struct Connecting {
    descriptor: OwnedFd,
}

impl Connecting {
    /// Goes on without waiting: the agreement once there is one.
    pub fn advance(&mut self) -> Result<Option<Established>, ConnectError> {
        Ok(None)
    }
}

impl AsFd for Connecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

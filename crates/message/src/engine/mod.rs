//! The data path of both sides: transfers by each method, the protocol between
//! client and server, and what the client measures.

mod client;
mod link;
mod pattern;
mod protocol;
mod server;

use std::io;

pub(crate) use client::{capacity, measure};
pub(crate) use link::Link;
pub(crate) use server::serve;

/// Bytes of the acknowledgement of a window, as in the OSU micro-benchmarks.
const ACKNOWLEDGEMENT_BYTES: usize = 4;

/// Why the data path ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The connection failed, or the peer closed it.
    #[error("the data connection failed: {0}")]
    Connection(#[from] io::Error),
    /// A message is not what was sent.
    #[error("message {message} of {size} bytes: byte {position} is {found:#04x} instead of {expected:#04x}")]
    Damaged {
        /// Number of the message within its size.
        message: u64,
        /// Its size.
        size: usize,
        /// First byte that differs.
        position: usize,
        /// As received.
        found: u8,
        /// As sent.
        expected: u8,
    },
    /// The server received another number of messages than it was sent.
    #[error("the server received {found} messages of {size} bytes instead of {expected}")]
    Miscounted {
        /// Size of a message.
        size: u64,
        /// As the server counted.
        found: u64,
        /// As the client sent.
        expected: u64,
    },
    /// The client requested more than was agreed.
    #[error("the client requested messages of {0} bytes, which are larger than agreed")]
    TooLarge(u64),
}

impl EngineError {
    /// The peer ended the connection, and has the reason.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        matches!(self, Self::Connection(error) if matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        ))
    }
}

//! Data path of both sides: transfers by each method, the protocol between
//! client and server, and the client's measurement.

mod client;
mod link;
mod protocol;
mod server;

use std::io;

use crate::Damage;

pub(crate) use client::{capacity, measure};
pub(crate) use link::Link;
pub(crate) use server::serve;

/// Bytes of the acknowledgement of a window, as in the OSU micro-benchmarks.
const ACKNOWLEDGEMENT_BYTES: usize = 4;

/// Errors of the data path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The connection failed, or the peer closed it.
    #[error("the data connection failed: {0}")]
    Connection(#[from] io::Error),
    /// Received contents differ from what was sent.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The number of messages received by the server differs from the number
    /// sent.
    #[error("the server received {found} messages of {size} bytes instead of {expected}")]
    Miscounted {
        /// Size of a message.
        size: u64,
        /// Number counted by the server.
        found: u64,
        /// Number sent by the client.
        expected: u64,
    },
    /// The client requested more than was negotiated.
    #[error("the client requested messages of {0} bytes, which are larger than negotiated")]
    TooLarge(u64),
}

impl EngineError {
    /// Whether the peer closed the connection, and has the cause.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        matches!(self, Self::Connection(error) if matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        ))
    }
}

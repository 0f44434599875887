//! Data path of both sides: transfers by what carries the messages ([`Carrier`]:
//! a socket by each method, or MPI), the protocol between client and server, and
//! the client's measurement.

mod client;
mod link;
mod protocol;
mod ranks;
mod server;

use std::io;

use crate::{Costs, Damage, Traffic};

pub(crate) use client::{capacity, measure};
pub(crate) use link::Link;
pub(crate) use ranks::RankLink;
pub(crate) use server::serve;

/// Bytes of the acknowledgement of a window, as in the OSU micro-benchmarks.
const ACKNOWLEDGEMENT_BYTES: usize = 4;

/// What carries the messages of one side, and the words of the protocol between them.
pub(crate) trait Carrier {
    /// Sends words of the protocol.
    ///
    /// # Errors
    /// A lost connection, as of every function here.
    fn tell(&mut self, words: &[u8]) -> Result<(), EngineError>;

    /// Waits for as many bytes of the protocol.
    fn hear(&mut self, words: &mut [u8]) -> Result<(), EngineError>;

    /// Sends one message.
    fn send(&mut self, size: usize, traffic: &mut Traffic) -> Result<(), EngineError>;

    /// Waits for one message, and checks it.
    fn receive(&mut self, size: usize, traffic: &mut Traffic) -> Result<(), EngineError>;

    /// Sends so many messages, without an answer in between.
    fn send_window(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError>;

    /// Waits for so many messages, and checks them.
    fn receive_window(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError>;

    /// Sends and receives so many messages at once.
    fn exchange(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError>;

    /// What this side has cost until now.
    fn costs(&mut self) -> Costs;
}

/// Errors of the data path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The connection failed, or the peer closed it.
    #[error("the data connection failed: {0}")]
    Connection(#[from] io::Error),
    /// The MPI library reports an error.
    #[error("{0}")]
    Library(String),
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

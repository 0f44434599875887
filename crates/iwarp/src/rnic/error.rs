//! Errors of the verbs, other than completions in error.

use std::{io, net::SocketAddr, time::Duration};

use crate::{mpa::MpaError, queue_pair::State};

/// Error of a verb.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// A system call for a descriptor, a thread or a socket failed.
    #[error("{step}: {source}")]
    System {
        /// Failed step.
        step: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// An engine cannot be pinned to this core.
    #[error("engine cannot be pinned to core {core}: {source}; choose one of the cores this process may use")]
    Core {
        /// Core number.
        core: u32,
        /// Error of the system call.
        source: io::Error,
    },
    /// A value outside the range of [`Attributes`](crate::rnic::Attributes).
    #[error("{what} of {requested} is out of range: choose {min} to {max}")]
    Range {
        /// Name of the value.
        what: &'static str,
        /// Requested value.
        requested: u64,
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// An object of another RNIC or domain.
    #[error("{what} belongs to another RNIC or protection domain: create it from the same one")]
    Foreign {
        /// Name of the object.
        what: &'static str,
    },
    /// A state transition that the verbs do not define.
    #[error("queue pair is {from:?} and cannot become {to:?}")]
    Transition {
        /// Current state.
        from: State,
        /// Requested state.
        to: State,
    },
}

/// Error of a connection setup. The queue pair stays idle; the caller may
/// retry.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The queue pair is or was connected.
    #[error("queue pair is {0:?}: only an idle one connects or accepts")]
    State(State),
    /// Options that the setup frames cannot carry.
    #[error("{0}")]
    Option(#[source] MpaError),
    /// More outstanding Reads than an RNIC supports.
    #[error("ird and ord of {requested} is out of range: choose at most {max}")]
    Reads {
        /// Requested number.
        requested: u16,
        /// Maximum.
        max: u16,
    },
    /// TCP error.
    #[error("{step} {peer}: {source}")]
    Tcp {
        /// Failed step.
        step: &'static str,
        /// The peer.
        peer: SocketAddr,
        /// Error of the system call.
        source: io::Error,
    },
    /// The peer did not respond in time.
    #[error("{peer} sent no {awaited} within {} ms", after.as_millis())]
    TimedOut {
        /// The peer.
        peer: SocketAddr,
        /// Expected message.
        awaited: &'static str,
        /// Timeout.
        after: Duration,
    },
    /// The peer closed the stream before the setup was complete.
    #[error("{peer} closed the connection before its {awaited} was complete")]
    Closed {
        /// The peer.
        peer: SocketAddr,
        /// Expected message.
        awaited: &'static str,
    },
    /// The peer's application rejected the connection (RFC 5044, section 7.1.1,
    /// bit R).
    #[error("{peer} rejected the connection")]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// Private data of the rejection.
        private_data: Vec<u8>,
    },
    /// The peer violated the setup protocol, or requires what this side does
    /// not support.
    #[error("setup with {peer}: {source}")]
    Setup {
        /// The peer.
        peer: SocketAddr,
        /// Protocol error.
        source: MpaError,
    },
    /// The peer does not accept revision 2, and revision 1 does not support
    /// what was requested.
    #[error(
        "{peer} {}MPA revision 2, which a peer-to-peer setup needs: connect without, and let the initiator send first",
        if *closes { "closes instead of an answer: it is ending, or does not support " } else { "does not support " }
    )]
    NeedsRevision2 {
        /// The peer.
        peer: SocketAddr,
        /// It only closed the connection.
        closes: bool,
    },
    /// A system call for a descriptor failed.
    #[error("{step}: {source}")]
    System {
        /// Failed step.
        step: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

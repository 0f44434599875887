//! What can go wrong at the verbs, beside completions in error.

use std::{io, net::SocketAddr, time::Duration};

use crate::{mpa::MpaError, queue_pair::State};

/// A verb was refused.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The system refused a descriptor, a thread or a socket.
    #[error("{step}: {source}")]
    System {
        /// What was being done.
        step: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A core that no engine can be pinned to.
    #[error("engine cannot be pinned to core {core}: {source}; choose one of the cores this process may use")]
    Core {
        /// Its number.
        core: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// A number outside of what [`Attributes`](crate::rnic::Attributes) allow.
    #[error("{what} of {asked} is out of range: choose {least} to {most}")]
    Range {
        /// Of what.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Objects of two RNICs, or of two domains where one is needed.
    #[error("{what} belongs to another RNIC or protection domain: create it from the same one")]
    Foreign {
        /// Which object.
        what: &'static str,
    },
    /// A change of state that the verbs do not have.
    #[error("queue pair is {from:?} and cannot become {to:?}")]
    Transition {
        /// The state it is in.
        from: State,
        /// The state that was asked for.
        to: State,
    },
}

/// A connection did not come about. The queue pair stays idle and may try
/// again.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The queue pair is or was connected.
    #[error("queue pair is {0:?}: only an idle one connects or accepts")]
    State(State),
    /// What the set-up frames cannot carry.
    #[error("{0}")]
    Option(#[source] MpaError),
    /// More Reads than an RNIC has outstanding.
    #[error("ird and ord of {asked} is out of range: choose at most {most}")]
    Reads {
        /// What was asked for.
        asked: u16,
        /// The most.
        most: u16,
    },
    /// TCP failed.
    #[error("{step} {peer}: {source}")]
    Tcp {
        /// What was being done.
        step: &'static str,
        /// The other end.
        peer: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The peer did not answer in time.
    #[error("{peer} sent no {awaited} within {} ms", after.as_millis())]
    TimedOut {
        /// The other end.
        peer: SocketAddr,
        /// What was waited for.
        awaited: &'static str,
        /// For how long.
        after: Duration,
    },
    /// The peer closed the stream before the set-up was complete.
    #[error("{peer} closed the connection before its {awaited} was complete")]
    Closed {
        /// The other end.
        peer: SocketAddr,
        /// What was waited for.
        awaited: &'static str,
    },
    /// The peer's program refused the connection (RFC 5044, section 7.1.1,
    /// bit R).
    #[error("{peer} rejected the connection")]
    Rejected {
        /// The other end.
        peer: SocketAddr,
        /// What it had to say.
        private_data: Vec<u8>,
    },
    /// The peer does not keep to the rules of the set-up, or wants what this
    /// side does not have.
    #[error("set-up with {peer}: {source}")]
    Setup {
        /// The other end.
        peer: SocketAddr,
        /// What is wrong.
        source: MpaError,
    },
    /// The peer did not take a request of revision 2, and revision 1 does not
    /// have what was asked for.
    #[error(
        "{peer} does not take MPA revision 2, and a peer-to-peer set-up needs it: connect without, and let the \
         initiator send first"
    )]
    NeedsRevision2 {
        /// The other end.
        peer: SocketAddr,
    },
    /// The system refused a descriptor.
    #[error("{step}: {source}")]
    System {
        /// What was being done.
        step: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

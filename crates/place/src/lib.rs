//! Placement of interrupts, queues, processes and flows.
//!
//! - [`hash`], [`landing`], [`search`]: the RSS hash and queue that a NIC computes for a packet, and
//!   the search for a source port that yields the requested queue.
//! - [`path`]: the same for the choice among equal paths.
//! - [`steering`]: both put together for two described hosts; [`landed`]: the
//!   proof afterwards that flows landed where they should.
//! - [`rank`]: which cores to use for an interface, best first, and why.
//! - [`placement`]: a plan out of these.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod document;
pub mod hash;
pub mod landed;
pub mod landing;
pub mod path;
pub mod placement;
pub mod rank;
pub mod search;
pub mod steering;

use clearstream_schema::{
    control::FailureKind,
    failure::Classified,
    host::{HostReport, Nic},
};

/// Reason for a host without placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The host has no such interface.
    #[error("{host} has no interface {interface}: write one of {known}")]
    NoInterface {
        /// Host name.
        host: String,
        /// As requested.
        interface: String,
        /// Interfaces of the host.
        known: String,
    },
    /// Several interfaces match.
    #[error("{host}: which interface receives the flows is not clear: name one of {known}")]
    WhichInterface {
        /// Host name.
        host: String,
        /// Interfaces that could be.
        known: String,
    },
    /// No core is left.
    #[error("{host}: no core is online, allowed and not isolated: nothing can be placed")]
    NoCores {
        /// Host name.
        host: String,
    },
    /// A core that was named is none.
    #[error("{host} has no usable core {core}: {reason}")]
    Core {
        /// Host name.
        host: String,
        /// As named.
        core: u32,
        /// Reason.
        reason: String,
    },
    /// A source port cannot be found.
    #[error(transparent)]
    Steering(#[from] steering::SteeringError),
}

impl Classified for PlaceError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::NoInterface { .. } => FailureKind::Name,
            Self::WhichInterface { .. } | Self::Core { .. } => FailureKind::Invalid,
            Self::NoCores { .. } => FailureKind::Unsupported,
            Self::Steering(error) => error.failure_kind(),
        }
    }
}

/// The interface of this name.
pub fn interface<'a>(host: &'a HostReport, name: &str) -> Result<&'a Nic, PlaceError> {
    host.nics.iter().find(|nic| nic.name == name).ok_or_else(|| PlaceError::NoInterface {
        host: host_name(host),
        interface: name.to_owned(),
        known: host.nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

/// The host's name for messages.
fn host_name(host: &HostReport) -> String {
    if host.name.is_empty() { "the host".to_owned() } else { host.name.clone() }
}

//! Errors of starting and of querying a watch.

use std::io;

use clearstream_netlink::NetlinkError;
use clearstream_schema::{control::FailureKind, failure::Classified};

/// A watch cannot start, or cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The host has nothing to watch.
    #[error(
        "{host} reaches no network of the fabric {fabric} through a gateway, so there is nothing to watch: run it on the end hosts"
    )]
    NothingToWatch {
        /// Host.
        host: String,
        /// Fabric.
        fabric: String,
    },
    /// The plan is not in effect.
    #[error("the routes of the fabric are not in effect on this host: run `clearstream route apply` first")]
    NotApplied,
    /// Another watch runs in this network namespace.
    #[error(
        "another watch runs on this host (in this network namespace), {}: stop it first, or query it with `clearstream route health`",
        clearstream_sys::writer_lock::name_of(*process)
    )]
    AlreadyRunning {
        /// Its process id.
        process: Option<u32>,
    },
    /// No watch runs in this network namespace.
    #[error(
        "no watch runs on this host (in this network namespace): start it with `clearstream route watch`"
    )]
    NotRunning,
    /// The running watch rejected a request.
    #[error("{reason}")]
    Refused {
        /// Cause.
        reason: String,
    },
    /// Somebody else answers in its place.
    #[error(
        "the control socket of the watch belongs to another user, who is not believed: remove it, and restart the watch"
    )]
    Stranger,
    /// The watch does not respond.
    #[error("the watch of this host does not respond: {source}")]
    Silent {
        /// Cause.
        source: io::Error,
    },
    /// A socket could not be opened.
    #[error("cannot open {what}: {source}{hint}", hint = if source.kind() == io::ErrorKind::PermissionDenied { "; run this as root" } else { "" })]
    Socket {
        /// Purpose.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl Classified for WatchError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::NothingToWatch { .. } => FailureKind::Invalid,
            Self::NotRunning => FailureKind::Unreachable,
            Self::NotApplied | Self::AlreadyRunning { .. } | Self::Stranger | Self::Refused { .. } => {
                FailureKind::Refused
            }
            Self::Silent { .. } => FailureKind::Connection,
            Self::Socket { .. } | Self::Netlink(_) => FailureKind::Unsupported,
        }
    }
}

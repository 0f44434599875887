//! Why a watch cannot begin, or cannot be asked.

use std::{io, net::SocketAddr};

use clearstream_netlink::NetlinkError;

/// A watch cannot begin, or cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The host has nothing to watch.
    #[error(
        "{host} reaches no network of the fabric {fabric} by a gateway, so there is nothing to watch: run it on the hosts at the ends"
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
        "another watch runs on this host (in this network namespace): stop it first, or query it with `clearstream route health`"
    )]
    AlreadyRunning,
    /// No watch runs in this network namespace.
    #[error(
        "no watch runs on this host (in this network namespace): start it with `clearstream route watch`"
    )]
    NotRunning,
    /// The running watch did not do what it was requested.
    #[error("{reason}")]
    Refused {
        /// Cause.
        reason: String,
    },
    /// The watch does not answer.
    #[error("the watch of this host does not answer: {source}")]
    Silent {
        /// Cause.
        source: io::Error,
    },
    /// A socket could not be made.
    #[error("cannot open {what}: {source}{hint}", hint = if source.kind() == io::ErrorKind::PermissionDenied { "; run this as root" } else { "" })]
    Socket {
        /// What for.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// The address for counters is taken or not here.
    #[error("cannot serve counters on {address}: {source}; choose another with --metrics")]
    Metrics {
        /// As asked.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

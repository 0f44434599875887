//! What families that the kernel has behind netlink have in common.

use std::io;

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::plan::Value;

use crate::Fault;

pub(super) fn route_socket() -> Result<RouteSocket, Fault> {
    Ok(RouteSocket::open()?)
}

/// Fails without what netlink requires for changes (`CAP_NET_ADMIN`).
pub(super) fn check_permitted() -> Result<(), Fault> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(Fault::NotPermitted) }
}

/// A setting of an interface that does not exist does not exist.
pub(super) fn present<T>(found: Result<T, NetlinkError>) -> Result<Option<T>, Fault> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(NetlinkError::NoInterface { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Why a value was not written.
pub(super) fn refused(value: &Value) -> impl FnOnce(NetlinkError) -> Fault {
    let value = value.to_string();
    move |error| match error {
        NetlinkError::Refused { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Fault::NotPermitted
        }
        NetlinkError::Refused { source, .. } => Fault::Rejected { value, source: source.into() },
        NetlinkError::NoInterface { .. } => Fault::Absent,
        source => Fault::Netlink { source },
    }
}

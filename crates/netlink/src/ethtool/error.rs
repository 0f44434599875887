//! Errors of driver requests.

use std::{io, time::Duration};

use crate::refusal::Refusal;

/// Maximum wait for the response to one request. A driver queries its device
/// under the routing lock, which other work can hold for a while.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum EthtoolError {
    /// The netlink socket could not be used.
    #[error("generic netlink: cannot {step}: {source}")]
    Socket {
        /// The failed operation.
        step: &'static str,
        /// System error.
        source: io::Error,
    },
    /// The kernel has no ethtool netlink family (before 5.6, or built without).
    #[error("the kernel has no ethtool netlink family (added in Linux 5.6)")]
    NoFamily,
    /// The driver or the kernel does not support this request.
    #[error("{interface}: the driver does not report its {what}")]
    NotSupported {
        /// Interface name.
        interface: String,
        /// What was requested.
        what: &'static str,
    },
    /// The kernel refused.
    #[error("{interface}: {what} refused: {source}")]
    Refused {
        /// Interface name.
        interface: String,
        /// What was requested.
        what: &'static str,
        /// The kernel's error number and explanation.
        source: Refusal,
    },
    /// The request by ioctl failed.
    #[error("{interface}: {what} refused: {source}")]
    Control {
        /// Interface name.
        interface: String,
        /// What was requested.
        what: &'static str,
        /// System error.
        source: io::Error,
    },
    /// No reply in time.
    #[error("{interface}: no reply about its {what} within {} s", REPLY_TIMEOUT.as_secs())]
    Timeout {
        /// Interface name.
        interface: String,
        /// What was requested.
        what: &'static str,
    },
    /// A value that cannot be set.
    #[error("{interface}: {reason}")]
    NotSettable {
        /// Interface name.
        interface: String,
        /// Reason, with the permitted values.
        reason: String,
    },
    /// The reply does not have the documented format.
    #[error("{interface}: the reply about its {what} is truncated")]
    Garbled {
        /// Interface name.
        interface: String,
        /// What was requested.
        what: &'static str,
    },
}

pub(super) const NOT_SUPPORTED: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

/// The error of a request by ioctl.
pub(super) fn control_error(interface: &str, what: &'static str) -> impl Fn(io::Error) -> EthtoolError {
    let interface = interface.to_owned();
    move |source| match source.raw_os_error() {
        Some(NOT_SUPPORTED) => EthtoolError::NotSupported { interface: interface.clone(), what },
        _ => EthtoolError::Control { interface: interface.clone(), what, source },
    }
}

/// The error of a change that the driver does not support.
pub(super) fn unchangeable(error: EthtoolError) -> EthtoolError {
    match error {
        EthtoolError::NotSupported { interface, what } => EthtoolError::NotSettable {
            interface,
            reason: format!("the driver does not support changing its {what}"),
        },
        other => other,
    }
}

pub(super) fn socket_error(step: &'static str) -> impl Fn(io::Error) -> EthtoolError {
    move |source| EthtoolError::Socket { step, source }
}

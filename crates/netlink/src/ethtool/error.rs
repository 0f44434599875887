//! What can go wrong with a request to a driver.

use std::{io, time::Duration};

use crate::refusal::Refusal;

/// Maximum wait for the response to one request. A driver queries its device
/// under the routing lock, which other work can hold for a while.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum EthtoolError {
    /// The netlink socket could not be used.
    #[error("generic netlink: cannot {step}: {source}")]
    Socket {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel has no ethtool netlink family (before 5.6, or built without).
    #[error("the kernel has no ethtool netlink family (it came with Linux 5.6)")]
    NoFamily,
    /// The driver or the kernel does not know this question.
    #[error("{interface}: the driver does not report its {what}")]
    NotSupported {
        /// Interface name.
        interface: String,
        /// What was asked for.
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
        /// The system's error.
        source: io::Error,
    },
    /// No answer in time.
    #[error("{interface}: no answer about its {what} within {} s", ANSWER_TIMEOUT.as_secs())]
    NoAnswer {
        /// Interface name.
        interface: String,
        /// What was asked for.
        what: &'static str,
    },
    /// A number or switch that cannot be set so.
    #[error("{interface}: {reason}")]
    NotSettable {
        /// Interface name.
        interface: String,
        /// Why, and what can.
        reason: String,
    },
    /// The answer does not have the documented form.
    #[error("{interface}: the answer about its {what} is cut short")]
    Garbled {
        /// Interface name.
        interface: String,
        /// What was asked for.
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

/// The error of a change that the driver does not know.
pub(super) fn unchangeable(error: EthtoolError) -> EthtoolError {
    match error {
        EthtoolError::NotSupported { interface, what } => EthtoolError::NotSettable {
            interface,
            reason: format!("the driver lets nobody change its {what}"),
        },
        other => other,
    }
}

pub(super) fn socket_error(step: &'static str) -> impl Fn(io::Error) -> EthtoolError {
    move |source| EthtoolError::Socket { step, source }
}

//! Classification of system errors into failures: decided in one place, so
//! that the same error ends with the same exit code wherever it occurs.

use std::io;

use crate::control::{Failure, FailureKind};

// Linux; no `io::ErrorKind` names them (errno(3)).
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

impl FailureKind {
    /// Kind of an error that a system call returned for something that is
    /// right in itself: a limit or privilege of the host, a network that does
    /// not lead there, and else a fault of ours.
    pub fn of_system(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported | io::ErrorKind::OutOfMemory => {
                Self::Unsupported
            }
            io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkDown => Self::Unreachable,
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::FileTooLarge => Self::File,
            _ if limit(error).is_some() => Self::Unsupported,
            _ => Self::Internal,
        }
    }
}

impl FailureKind {
    /// Kind of an error of an operation on a user's file: a limit or privilege of the host, and else the file's.
    pub fn of_file(error: &io::Error) -> Self {
        match Self::of_system(error) {
            Self::Internal | Self::Unreachable => Self::File,
            kind => kind,
        }
    }
}

impl FailureKind {
    /// Kind of a connection to an agent's data socket that did not come about. The agent
    /// listens, so that a refusal is the network's: a firewall's reset or ICMP error, or a
    /// route that does not lead there (EACCES and EINVAL are routes of type prohibit and
    /// blackhole, ip-route(8)).
    pub fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::TimedOut
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput => Self::Unreachable,
            _ => Self::Connection,
        }
    }
}

/// Advice for a data port that cannot be reached; `protocol` is `TCP`, `UDP` or both.
pub fn firewall_advice(protocol: &str) -> String {
    format!(
        "a firewall may block the port: open one for {protocol} on the host that listens and name it with --port"
    )
}

impl Failure {
    /// `what` did not connect: the kind by [`FailureKind::of_connect`], and the option that
    /// helps where a firewall may be the reason.
    pub fn of_connect(what: &str, protocol: &str, error: &io::Error) -> Self {
        let blocked = matches!(
            error.kind(),
            io::ErrorKind::TimedOut
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::PermissionDenied
        );
        let advice = if blocked { format!("; {}", firewall_advice(protocol)) } else { String::new() };
        Self { kind: FailureKind::of_connect(error), message: format!("{what}: {error}{advice}") }
    }

    /// As [`Self::of_system`], for an operation on a user's file.
    pub fn of_file(what: &str, error: &io::Error) -> Self {
        Self { kind: FailureKind::of_file(error), ..Self::of_system(what, error) }
    }

    /// `what` could not be done: the kind by [`FailureKind::of_system`], and
    /// what to raise where a limit was reached.
    pub fn of_system(what: &str, error: &io::Error) -> Self {
        let advice = limit(error).map_or(String::new(), |limit| format!(": {limit}"));
        Self { kind: FailureKind::of_system(error), message: format!("cannot {what}: {error}{advice}") }
    }
}

/// The limit that an error means, and how to raise it.
pub fn limit(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error() {
        Some(EMFILE) => Some("raise the limit of open files of this process (`ulimit -n`)"),
        Some(ENFILE) => Some("raise the limit of open files of this host (fs.file-max)"),
        Some(ENOBUFS) => Some("the kernel has no memory for more sockets"),
        // EAGAIN of pthread_create(3) and fork(2); no call here is non-blocking.
        _ if error.kind() == io::ErrorKind::WouldBlock => {
            Some("raise the limit of processes and threads (`ulimit -u`, pids.max of the cgroup)")
        }
        _ => None,
    }
}

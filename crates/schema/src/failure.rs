//! What kind of failure an error of the system is: decided in one place, so
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
            _ if limit(error).is_some() => Self::Unsupported,
            _ => Self::Internal,
        }
    }
}

impl Failure {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_missing_routes_are_no_faults_of_ours() {
        let kind = |errno| FailureKind::of_system(&io::Error::from_raw_os_error(errno));
        // errno(3) on Linux.
        let (eperm, eagain, enomem, einval, enetunreach, ehostunreach) = (1, 11, 12, 22, 101, 113);
        for errno in [eperm, eagain, enomem, ENFILE, EMFILE, ENOBUFS] {
            assert_eq!(kind(errno), FailureKind::Unsupported, "{errno}");
        }
        for errno in [enetunreach, ehostunreach] {
            assert_eq!(kind(errno), FailureKind::Unreachable, "{errno}");
        }
        assert_eq!(kind(einval), FailureKind::Internal);
        let failure = Failure::of_system("make a socket", &io::Error::from_raw_os_error(EMFILE));
        assert!(failure.message.contains("ulimit -n"), "{failure}");
    }
}

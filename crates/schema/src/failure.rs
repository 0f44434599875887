//! What kind of failure an error is: each error type says it once ([`Classified`]), system errors are classified here, so
//! that the same error ends with the same exit code wherever it occurs.

use std::{error::Error, io};

use crate::control::{Failure, FailureKind};

/// An error that says what kind of failure it is.
pub trait Classified: Error + Send + Sync + 'static {
    /// What happened.
    fn failure_kind(&self) -> FailureKind;

    /// As an agent reports it to its controller.
    fn to_failure(&self) -> Failure {
        Failure::new(self.failure_kind(), self.to_string())
    }
}

impl Classified for Failure {
    fn failure_kind(&self) -> FailureKind {
        self.kind
    }
}

// Linux; no `io::ErrorKind` names them (errno(3)).
const EPERM: i32 = 1;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOLCK: i32 = 37;
const ENOSYS: i32 = 38;
const ELOOP: i32 = 40;
const EPROTONOSUPPORT: i32 = 93;
const EAFNOSUPPORT: i32 = 97;
const ENOBUFS: i32 = 105;
const ENOTCONN: i32 = 107;
const EUCLEAN: i32 = 117;
const EREMOTEIO: i32 = 121;

impl FailureKind {
    /// Kind of an error that a system call returned for something that is
    /// right in itself: a limit or privilege of the host, a file system without room, a network that does not lead
    /// there, the other side, and else (wrong arguments) a fault of ours.
    pub fn of_system(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::PermissionDenied | Kind::Unsupported | Kind::OutOfMemory => Self::Unsupported,
            Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::NetworkDown => Self::Unreachable,
            Kind::AddrInUse | Kind::ResourceBusy => Self::InUse,
            Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::BrokenPipe
            | Kind::TimedOut
            | Kind::UnexpectedEof
            // Of no system call, but of readers: the other side does not say what it has to.
            | Kind::InvalidData => Self::Connection,
            Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::ReadOnlyFilesystem
            | Kind::FileTooLarge
            | Kind::StaleNetworkFileHandle
            | Kind::WriteZero
            | Kind::NotFound
            | Kind::AlreadyExists
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::DirectoryNotEmpty
            | Kind::ExecutableFileBusy
            | Kind::CrossesDevices
            | Kind::TooManyLinks
            | Kind::InvalidFilename => Self::File,
            _ => match error.raw_os_error() {
                Some(EIO | ENXIO | ENOLCK | ELOOP | EUCLEAN | EREMOTEIO) => Self::File,
                Some(EPERM | ENODEV | ENOSYS | EPROTONOSUPPORT | EAFNOSUPPORT) => Self::Unsupported,
                _ if limit(error).is_some() => Self::Unsupported,
                _ => Self::Internal,
            },
        }
    }
}

impl FailureKind {
    /// Kind of an error of an operation on a user's file: a limit or privilege of the host, and else the file's.
    pub fn of_file(error: &io::Error) -> Self {
        match Self::of_system(error) {
            Self::Internal | Self::Unreachable => Self::File,
            Self::Connection if error.raw_os_error() == Some(ENOTCONN) => Self::File,
            // What is in it is not what it has to be.
            Self::Connection if error.kind() == io::ErrorKind::InvalidData => Self::File,
            kind => kind,
        }
    }
}

impl FailureKind {
    /// Kind of an address that cannot be listened on.
    pub fn of_listen(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse,
            io::ErrorKind::AddrNotAvailable => Self::Invalid,
            _ => Self::of_system(error),
        }
    }

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
        let Self { message, .. } = Self::of_system(what, error);
        let message = ended_server(error).map_or_else(|| message.clone(), |why| format!("{message}: {why}"));
        Self { kind: FailureKind::of_file(error), message }
    }

    /// `what` could not be done: the kind by [`FailureKind::of_system`], and
    /// what to raise where a limit was reached.
    pub fn of_system(what: &str, error: &io::Error) -> Self {
        let advice = limit(error).map_or(String::new(), |limit| format!(": {limit}"));
        Self { kind: FailureKind::of_system(error), message: format!("cannot {what}: {error}{advice}") }
    }
}

/// Why a file of a mounted file system has an error of sockets: the kernel answers for a server in user space that has ended,
/// until it is unmounted (fuse(4)).
pub fn ended_server(error: &io::Error) -> Option<&'static str> {
    const WHY: &str = "the FUSE server of this mount has ended: unmount it and mount it again";
    (error.raw_os_error() == Some(ENOTCONN)).then_some(WHY)
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

    /// What only wrong arguments of ours cause (errno(3)), or what no call here returns.
    const OURS: [(&str, i32); 12] = [
        ("ESRCH", 3),
        ("E2BIG", 7),
        ("ENOEXEC", 8),
        ("EBADF", 9),
        ("ECHILD", 10),
        ("EFAULT", 14),
        ("EINVAL", 22),
        ("ENOTTY", 25),
        ("ENOTSOCK", 88),
        ("EDESTADDRREQ", 89),
        ("EMSGSIZE", 90),
        ("EPROTOTYPE", 91),
    ];
    /// What the host, its file systems, its network or the other side cause.
    const OTHERS: [(i32, FailureKind); 40] = {
        use FailureKind::{Connection, File, InUse, Unreachable, Unsupported};
        [
            (1, Unsupported),
            (2, File),
            (5, File),
            (6, File),
            (11, Unsupported),
            (12, Unsupported),
            (13, Unsupported),
            (16, InUse),
            (17, File),
            (18, File),
            (19, Unsupported),
            (20, File),
            (21, File),
            (23, Unsupported),
            (24, Unsupported),
            (26, File),
            (27, File),
            (28, File),
            (30, File),
            (31, File),
            (32, Connection),
            (36, File),
            (37, File),
            (38, Unsupported),
            (39, File),
            (40, File),
            (93, Unsupported),
            (95, Unsupported),
            (97, Unsupported),
            (98, InUse),
            (100, Unreachable),
            (101, Unreachable),
            (103, Connection),
            (104, Connection),
            (105, Unsupported),
            (107, Connection),
            (110, Connection),
            (111, Connection),
            (113, Unreachable),
            (116, File),
        ]
    };

    #[test]
    fn what_the_environment_or_the_peer_causes_is_no_fault_of_ours() {
        for (number, kind) in OTHERS {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(FailureKind::of_system(&error), kind, "{error}");
        }
        for number in [117, 121, 122] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(FailureKind::of_system(&error), FailureKind::File, "{error}");
        }
        for (name, number) in OURS {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(FailureKind::of_system(&error), FailureKind::Internal, "{name}: {error}");
        }
        for kind in [io::ErrorKind::WriteZero, io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData] {
            assert_ne!(FailureKind::of_system(&kind.into()), FailureKind::Internal, "{kind}");
        }
        assert_eq!(FailureKind::of_file(&io::ErrorKind::InvalidData.into()), FailureKind::File);
        let ended = Failure::of_file("open /mnt/a", &io::Error::from_raw_os_error(ENOTCONN));
        assert_eq!(ended.kind, FailureKind::File);
        assert!(
            ended.message.contains("not connected") && ended.message.contains("FUSE server"),
            "{}",
            ended.message
        );
    }
}

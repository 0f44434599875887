//! System calls of a check that fail: what each of their error codes says about the mount.

use std::io;

use clearstream_schema::semantics::{
    SemanticsFound,
    SemanticsVerdict::{Inconclusive, No, NotSupported},
};
use rustix::io::Errno;

use super::folder::{OF_OTHERS, raw};

/// A system call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} fails: {}", clearstream_sys::errno::name(errno.raw_os_error()))]
pub(super) struct Fault {
    /// The call, with the flag that matters.
    pub(super) call: &'static str,
    /// Its error.
    pub(super) errno: Errno,
}

/// Names the call of an error.
pub(super) trait At<T> {
    /// As the error of this call.
    fn at(self, call: &'static str) -> Result<T, Fault>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, call: &'static str) -> Result<T, Fault> {
        self.map_err(|errno| Fault { call, errno })
    }
}

impl<T> At<T> for io::Result<T> {
    fn at(self, call: &'static str) -> Result<T, Fault> {
        self.map_err(|error| Fault { call, errno: raw(&error) })
    }
}

/// Codes by which a call says that the file system lacks it, beside `EOPNOTSUPP` and `ENOSYS`, by the manual page of
/// section 2, and POSIX.1-2017 for fcntl() and fsync().
const LACKING: [(&str, &[Errno]); 12] = [
    ("open(O_DIRECT)", &[Errno::INVAL]),
    // Kernels and file systems without it take it for the opening of a directory.
    ("open(O_TMPFILE)", &[Errno::ISDIR, Errno::NOENT, Errno::INVAL]),
    ("lseek(SEEK_DATA)", &[Errno::INVAL]),
    ("lseek(SEEK_HOLE)", &[Errno::INVAL]),
    ("link", &[Errno::PERM]),
    ("symlink", &[Errno::PERM]),
    ("mknod", &[Errno::PERM]),
    ("renameat2", &[Errno::INVAL]),
    ("mmap", &[Errno::NODEV]),
    ("fsync", &[Errno::INVAL]),
    ("fcntl(F_SETLK)", &[Errno::INVAL]),
    ("fcntl(F_OFD_SETLK)", &[Errno::INVAL]),
];

/// Codes that speak of the host, or of the state of the file system at the moment, and not of what it gives.
const CIRCUMSTANCES: [Errno; 9] = [
    Errno::NOSPC,
    Errno::DQUOT,
    Errno::NOMEM,
    Errno::MFILE,
    Errno::NFILE,
    Errno::ROFS,
    Errno::NOTCONN,
    // Of the call that a server in user space was at when it ended (fuse_abort_conn() of the kernel).
    Errno::CONNABORTED,
    OF_OTHERS,
];

/// Whether an error says nothing about what a mount gives.
pub(super) fn is_circumstance(errno: Errno) -> bool {
    CIRCUMSTANCES.contains(&errno)
}

/// Whether it is that of a mount whose server has ended.
pub(super) fn is_of_dead_server(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED)
}

impl Fault {
    /// Verdict on a check that the call ended.
    pub(super) fn found(self) -> SemanticsFound {
        let listed = LACKING.iter().any(|(call, codes)| *call == self.call && codes.contains(&self.errno));
        let verdict = match self.errno {
            Errno::OPNOTSUPP | Errno::NOSYS => NotSupported,
            _ if listed => NotSupported,
            errno if is_circumstance(errno) => Inconclusive,
            _ => No,
        };
        let found = SemanticsFound::new(verdict).with(format!("{} fails", self.call));
        SemanticsFound { errno: Some(self.errno.raw_os_error()), ..found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes beside what POSIX.1-2017 and the manual pages list for the call, found on mounts.
    #[test]
    fn a_code_that_the_standard_does_not_allow_is_a_deviation() {
        let of = |call, errno| Fault { call, errno }.found().verdict;
        for (call, errno) in [
            ("pwrite", Errno::SPIPE),
            ("link", Errno::IO),
            ("symlink", Errno::IO),
            ("open(O_APPEND)", Errno::PERM),
            ("lseek(SEEK_DATA)", Errno::NXIO),
            ("open", Errno::INVAL),
            ("rename", Errno::FAULT),
            ("fcntl(F_SETLK)", Errno::NOLCK),
        ] {
            assert_eq!(of(call, errno), No, "{call} {errno:?}");
        }
        for (call, codes) in LACKING {
            assert!(codes.iter().all(|errno| of(call, *errno) == NotSupported), "{call}");
            assert_eq!((of(call, Errno::OPNOTSUPP), of(call, Errno::NOSYS)), (NotSupported, NotSupported));
            assert_eq!((of(call, Errno::IO), of(call, Errno::STALE)), (No, No));
        }
        assert!(CIRCUMSTANCES.iter().all(|errno| of("pwrite", *errno) == Inconclusive));
        let found = Fault { call: "pwrite", errno: Errno::SPIPE }.found();
        assert_eq!((found.detail.as_deref(), found.errno), (Some("pwrite fails"), Some(29)));
    }
}

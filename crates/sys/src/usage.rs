//! Resource usage of a child process: `wait4(2)` returns the resources used by it and by the children it
//! waited for.

use std::{
    io, mem,
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus},
    time::Duration,
};

/// The end of a child.
#[derive(Debug, Clone, Copy)]
pub struct Reaped {
    /// Exit status.
    pub status: ExitStatus,
    /// CPU time in user mode, of it and of the children it waited for.
    pub user: Duration,
    /// CPU time in kernel mode, soft interrupts served meanwhile included.
    pub system: Duration,
}

/// Reaps a child that has ended; `None` while it runs. After `Some` its process id may be reused, so drop the
/// handle.
///
/// # Errors
/// `ECHILD` when it was reaped before.
pub fn reap(child: &Child) -> io::Result<Option<Reaped>> {
    let pid = child.id().cast_signed();
    let mut status = 0;
    // SAFETY: all zeroes is a valid `rusage`, plain integers throughout.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: both pointers are to live objects of the types that the kernel writes.
    let reaped = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match reaped {
        0 => Ok(None),
        n if n == pid => Ok(Some(Reaped {
            status: ExitStatus::from_raw(status),
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
        })),
        _ => Err(io::Error::last_os_error()),
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    #[expect(clippy::zombie_processes, reason = "`reap` waits for it, which is what is tested")]
    #[test]
    fn a_busy_child_has_used_time_and_its_exit_code_is_returned() {
        // The inner shell's CPU time is counted for its parent, which waits for it.
        let script = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; exit 7";
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let reaped = (0..6000)
            .find_map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                reap(&child).unwrap()
            })
            .unwrap();
        assert_eq!(reaped.status.code(), Some(7));
        assert!(reaped.user > Duration::from_millis(10), "{reaped:?}");
        assert!(reap(&child).is_err(), "gone");
    }
}

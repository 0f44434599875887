//! Scheduling priority and timer precision of a thread.

use std::io;

/// Gives the calling thread priority over all ordinary threads of the machine (`SCHED_FIFO`, lowest real-time
/// priority). Needs `CAP_SYS_NICE`, and a control group that may run real-time threads. The kernel reserves a
/// fraction of each second for others (`kernel.sched_rt_runtime_us`).
pub fn make_real_time() -> io::Result<()> {
    schedule(libc::SCHED_FIFO, 1)
}

/// Whether the calling thread has the policy of ordinary threads (`SCHED_OTHER`), and not one that somebody gave it
/// (chrt(1)).
pub fn is_ordinary() -> bool {
    // SAFETY: zero is the calling thread, and nothing is read or written.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    policy == libc::c_long::from(libc::SCHED_OTHER)
}

/// Makes the calling thread an ordinary one again (`SCHED_OTHER`).
pub fn make_ordinary() -> io::Result<()> {
    schedule(libc::SCHED_OTHER, 0)
}

/// Lets all threads of ordinary priority run before the calling one (nice 19, setpriority(2)).
pub fn make_nice() -> io::Result<()> {
    // SAFETY: integer arguments; in Linux zero is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // `struct sched_param` of the kernel. By system call: musl's wrapper fails with ENOSYS, since POSIX
    // refers to processes and Linux to threads.
    // SAFETY: zero is the calling thread; the kernel reads one integer that
    // lives here.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes timers of the calling thread expire exactly, not up to 50 us later to coalesce wake-ups
/// (`PR_SET_TIMERSLACK`).
pub fn make_timers_exact() -> io::Result<()> {
    // SAFETY: prctl with integer arguments changes this thread only.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_thread_is_real_time_or_rejected() {
        let policy = std::thread::spawn(|| {
            let made = make_real_time();
            // SAFETY: zero is the calling thread.
            let policy = || unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
            let first = policy();
            make_ordinary().expect("an ordinary thread may be one");
            assert_eq!(is_ordinary(), policy() == libc::c_long::from(libc::SCHED_OTHER));
            (made.is_ok(), first, policy())
        })
        .join()
        .expect("thread ends");
        let (fifo, other) = (libc::SCHED_FIFO.into(), libc::SCHED_OTHER.into());
        assert!(policy == (true, fifo, other) || policy == (false, other, other), "{policy:?}");
    }
}

//! How soon a thread gets a core when others want one, too.

use std::io;

/// Puts the calling thread before every ordinary thread of the machine
/// (`SCHED_FIFO`, lowest real-time priority). Needs `CAP_SYS_NICE`, and a
/// control group that may run real-time threads. The kernel leaves others a
/// share of each second (`kernel.sched_rt_runtime_us`).
pub fn make_real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: zero is the calling thread; the kernel reads one structure that
    // lives here.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets timers of the calling thread end on their nanosecond, not up to 50 us
/// later to share a wake-up (`PR_SET_TIMERSLACK`).
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
    fn root_thread_is_real_time_or_refused() {
        let policy = std::thread::spawn(|| {
            let made = make_real_time();
            // SAFETY: zero is the calling thread.
            (made.is_ok(), unsafe { libc::sched_getscheduler(0) })
        })
        .join()
        .expect("thread ends");
        assert!(matches!(policy, (true, libc::SCHED_FIFO) | (false, libc::SCHED_OTHER)), "{policy:?}");
    }
}

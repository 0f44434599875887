//! Threads and cores: affinity, current core, CPU time.

use std::io;

/// Length of the mask: 8192 cores, the largest `NR_CPUS` of the kernel.
const MASK_U64S: usize = 8192 / u64::BITS as usize;

/// Pins the calling thread to one core (sched_setaffinity(2)). Fails with `EINVAL` when the core does not
/// exist, is offline, or is outside of the thread's cpuset.
pub fn pin_to(core: u32) -> io::Result<()> {
    allow(0, &[core])
}

/// Lets a thread of this process, or the calling one for 0, run on these cores only. Fails as [`pin_to`] when
/// it may run on none of them, and with `ESRCH` when it has ended.
pub fn allow(thread: i32, cores: &[u32]) -> io::Result<()> {
    let mut mask = [0u64; MASK_U64S];
    for core in cores {
        let word = mask.get_mut(*core as usize / 64);
        *word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? |= 1 << (core % 64);
    }
    // SAFETY: the kernel reads as many bytes of the live array as it is given.
    let result = unsafe { libc::sched_setaffinity(thread, size_of_val(&mask), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Cores that the calling thread may run on, ascending.
pub fn allowed_cores() -> io::Result<Vec<u32>> {
    let mut mask = [0u64; MASK_U64S];
    // SAFETY: the kernel writes at most as many bytes of the live array as it
    // is reported.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let set = |core: &u32| mask[*core as usize / 64] >> (core % 64) & 1 == 1;
    Ok((0..MASK_U64S as u32 * 64).filter(set).collect())
}

/// The core on which the calling thread runs. Costs nanoseconds: no system
/// call where the C library supports restartable sequences or the vDSO.
pub fn current_core() -> u32 {
    // SAFETY: takes nothing and cannot fail on Linux; a negative result (no such call) becomes 0.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Id of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() }
}

/// CPU time of a thread of this process, user and system, in nanoseconds.
///
/// The clock id is derived from the thread id as in the kernel (include/linux/posix-timers_types.h: `~tid <<
/// 3 | CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`). Unlike `pthread_getcpuclockid` it is safe for a thread
/// that has ended: then it returns an error.
pub fn thread_cpu_ns(thread: i32) -> io::Result<u64> {
    clock_ns((!thread) << 3 | 4 | 2)
}

/// CPU time of the calling thread in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

fn clock_ns(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, which lives here.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_runs_on_its_core_according_to_proc() {
        let core = *allowed_cores().unwrap().last().unwrap();
        std::thread::spawn(move || {
            pin_to(core).unwrap();
            assert_eq!(allowed_cores().unwrap(), [core]);
            assert_eq!(current_core(), core);
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let listed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            assert_eq!(listed.unwrap().trim(), core.to_string());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn another_thread_is_pinned_and_released() {
        let all = allowed_cores().unwrap();
        let (own, release) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let thread = std::thread::spawn(move || {
            own.0.send(thread_id()).unwrap();
            release.1.recv().unwrap();
            let pinned = allowed_cores().unwrap();
            own.0.send(0).unwrap();
            release.1.recv().unwrap();
            (pinned, allowed_cores().unwrap())
        });
        let id = own.1.recv().unwrap();
        allow(id, &all[..1]).unwrap();
        release.0.send(()).unwrap();
        own.1.recv().unwrap();
        allow(id, &all).unwrap();
        release.0.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), (all[..1].to_vec(), all));
    }

    #[test]
    fn an_absent_core_is_rejected() {
        for core in [8191, 8192, u32::MAX] {
            assert_eq!(pin_to(core).unwrap_err().raw_os_error(), Some(libc::EINVAL), "core {core}");
        }
    }

    #[test]
    fn time_of_a_thread_is_readable_from_another_and_ends_with_it() {
        let own = own_cpu_ns();
        let me = thread_id();
        std::thread::spawn(move || assert!(thread_cpu_ns(me).unwrap() >= own)).join().unwrap();
        let ended = std::thread::spawn(thread_id).join().unwrap();
        // Joined threads may still be exiting in the kernel.
        let gone = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            thread_cpu_ns(ended).is_err()
        });
        assert!(gone);
    }
}

//! CPU cycles of a thread, where the machine has a counter for them.

use std::{
    fs::File,
    io::{self, Read},
    mem,
    os::fd::FromRawFd,
};

/// Length of the first published `struct perf_event_attr`, which every kernel accepts
/// (`PERF_ATTR_SIZE_VER0`).
const ATTRIBUTE_BYTES: u32 = 64;
const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
/// Bit `exclude_hv` of the flag word.
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// `struct perf_event_attr` up to the end of its first version.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Cycle counter of one thread, user and kernel.
#[derive(Debug)]
pub struct CycleCounter(File);

impl CycleCounter {
    /// Counts the calling thread from now on. Fails where no counter exists (most virtual machines) or kernel
    /// cycles may not be counted (`kernel.perf_event_paranoid` above 1): user time only would omit nearly all
    /// of a data path.
    pub fn of_this_thread() -> io::Result<Self> {
        let attributes = Attributes {
            kind: PERF_TYPE_HARDWARE,
            size: ATTRIBUTE_BYTES,
            config: PERF_COUNT_HW_CPU_CYCLES,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags: EXCLUDE_HYPERVISOR,
            wakeup_events: 0,
            breakpoint_type: 0,
            breakpoint_address: 0,
        };
        const { assert!(mem::size_of::<Attributes>() == ATTRIBUTE_BYTES as usize) };
        // SAFETY: the kernel reads `size` bytes of the live structure; the
        // other arguments are integers: this thread, any core, no group.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Cycles so far. May be read from any thread.
    pub fn read(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        (&self.0).read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_or_reports_why_not() {
        match CycleCounter::of_this_thread() {
            Ok(counter) => {
                let before = counter.read().expect("a count");
                let sum: u64 = (0..100_000u64).map(std::hint::black_box).sum();
                assert_eq!(sum, 4_999_950_000);
                assert!(counter.read().expect("a count") > before + 10_000);
            }
            // perf_event_open(2): no such counter, not permitted, no such
            // call (seccomp), not supported.
            Err(error) => {
                let known = [libc::ENOENT, libc::EACCES, libc::EPERM, libc::ENOSYS, libc::EOPNOTSUPP];
                assert!(known.contains(&error.raw_os_error().unwrap_or(0)), "{error}");
            }
        }
    }
}

//! Per-thread counters: single writer (the data thread), read by the sampler.

use std::sync::{
    OnceLock,
    atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use clearstream_schema::flow::ZerocopyCount;
use clearstream_sys::{affinity, perf::CycleCounter};

/// Core number before the first report.
const NO_CORE: u32 = u32::MAX;
/// Jitter before two datagrams were received.
const NO_JITTER: u64 = u64::MAX;

/// Counters of one thread, padded to two cache lines (the prefetcher fetches adjacent lines in pairs) against
/// false sharing.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    bytes: AtomicU64,
    core: AtomicU32,
    thread: AtomicI32,
    final_cpu_ns: AtomicU64,
    zerocopy_completed: AtomicU64,
    zerocopy_copied: AtomicU64,
    datagrams: AtomicU64,
    gaps: AtomicU64,
    late: AtomicU64,
    /// [`NO_JITTER`] before two datagrams were received.
    jitter_ns: AtomicU64,
    cycles: OnceLock<CycleCounter>,
}

impl Default for ThreadCounters {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            core: AtomicU32::new(NO_CORE),
            thread: AtomicI32::new(0),
            final_cpu_ns: AtomicU64::new(0),
            zerocopy_completed: AtomicU64::new(0),
            zerocopy_copied: AtomicU64::new(0),
            datagrams: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            late: AtomicU64::new(0),
            jitter_ns: AtomicU64::new(NO_JITTER),
            cycles: OnceLock::new(),
        }
    }
}

/// Snapshot of the counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Bytes moved.
    pub(crate) bytes: u64,
    /// Last seen core.
    pub(crate) core: Option<u32>,
    /// CPU time, user and system.
    pub(crate) cpu_ns: u64,
    /// Cycles, where a counter is available.
    pub(crate) cycles: Option<u64>,
    /// Zero-copy completions.
    pub(crate) zerocopy: ZerocopyCount,
    /// Datagrams received.
    pub(crate) datagrams: u64,
    /// Datagrams missing when a later one arrived.
    pub(crate) gaps: u64,
    /// Datagrams that arrived after a later one.
    pub(crate) late: u64,
    /// Interarrival jitter of the datagrams.
    pub(crate) jitter_ns: Option<u64>,
}

impl ThreadCounters {
    /// Called by the thread once, before its first transfer.
    pub(super) fn register(&self) {
        self.core.store(affinity::current_core(), Relaxed);
        self.thread.store(affinity::thread_id(), Relaxed);
        if let Ok(counter) = CycleCounter::of_this_thread() {
            // The thread is the only writer.
            drop(self.cycles.set(counter));
        }
    }

    /// Called after each transfer with the total bytes; records the core, too.
    #[inline]
    pub(super) fn moved(&self, total_bytes: u64) {
        self.bytes.store(total_bytes, Relaxed);
        self.core.store(affinity::current_core(), Relaxed);
    }

    pub(super) fn completed(&self, count: ZerocopyCount) {
        self.zerocopy_completed.fetch_add(count.completed_count, Relaxed);
        self.zerocopy_copied.fetch_add(count.copied_count, Relaxed);
    }

    pub(super) fn completions(&self) -> u64 {
        self.zerocopy_completed.load(Relaxed)
    }

    pub(super) fn sequenced(&self, datagrams: u64, gaps: u64, late: u64, jitter_ns: Option<u64>) {
        self.datagrams.store(datagrams, Relaxed);
        self.gaps.store(gaps, Relaxed);
        self.late.store(late, Relaxed);
        self.jitter_ns.store(jitter_ns.unwrap_or(NO_JITTER), Relaxed);
    }

    /// Called by the thread last: records its final CPU time.
    pub(super) fn leave(&self) {
        self.final_cpu_ns.store(affinity::own_cpu_ns(), Relaxed);
    }

    /// Thread id; 0 before it was registered.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Relaxed)
    }

    /// Reads the counters; from any thread.
    pub(crate) fn read(&self) -> Reading {
        let core = self.core.load(Relaxed);
        let cpu_ns = match self.final_cpu_ns.load(Relaxed) {
            // The thread may end between the two reads: then its final time is recorded.
            0 => affinity::thread_cpu_ns(self.thread.load(Relaxed))
                .unwrap_or_else(|_| self.final_cpu_ns.load(Relaxed)),
            finally => finally,
        };
        Reading {
            bytes: self.bytes.load(Relaxed),
            core: (core != NO_CORE).then_some(core),
            cpu_ns,
            cycles: self.cycles.get().and_then(|counter| counter.read().ok()),
            zerocopy: ZerocopyCount {
                completed_count: self.zerocopy_completed.load(Relaxed),
                copied_count: self.zerocopy_copied.load(Relaxed),
            },
            datagrams: self.datagrams.load(Relaxed),
            gaps: self.gaps.load(Relaxed),
            late: self.late.load(Relaxed),
            jitter_ns: Some(self.jitter_ns.load(Relaxed)).filter(|jitter| *jitter != NO_JITTER),
        }
    }
}

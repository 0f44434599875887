//! Memory of a rank's transfers, made before the clock runs, and what all ranks of a process need of their host.

use std::{
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::available_parallelism,
};

use clearstream_schema::storage::{StreamBackend, StreamConfig, StreamPhase};
use clearstream_sys::memory::Buffer;

use super::transfer::Times;
use crate::{
    data::{self, Source},
    operations_log::room_bytes,
    resources::{Need, buffer_bytes},
};

/// Most buffers of a ring (`queue-depth` has the same bound).
const BUFFERS_MAX: u64 = 4096;

/// Memory of a rank's transfers. Making it costs as much as some transfers from a page cache: it is there before
/// the clock runs.
pub(super) struct Memory {
    pub(super) buffers: Vec<Buffer>,
    /// What is written, but for a pattern that is to be checked.
    pub(super) source: Option<Source>,
    pub(super) times: Times,
}

/// What ranks that are threads of one process need.
pub(crate) fn need(config: &StreamConfig) -> Need {
    let ranks = config.tasks as usize;
    let bytes = |phase: &StreamPhase| {
        let (count, is_free) = buffers(config, *phase, ranks);
        let has_source = is_free && config.backend != StreamBackend::IoUring;
        let pool = if has_source { (data::pool_bytes(ranks) as u64).max(config.transfer.0) } else { 0 };
        count.saturating_mul(buffer_bytes(config.transfer.0)).saturating_add(buffer_bytes(pool))
    };
    let most = config.phases().iter().map(bytes).max().unwrap_or(0);
    // The file; and a second descriptor of it with the ring's own.
    let descriptors = if config.backend == StreamBackend::IoUring { 4 } else { 1 };
    let log = config.operations.as_ref().map_or(0, |_| room_bytes(ranks, config.transfer_count()));
    Need { ranks: config.tasks.into(), bytes: most.saturating_add(log), descriptors }
}

/// Ranks that take memory now. A thousand of them at once on few cores hold up everything else in the process for
/// seconds, and with it the agent's word that it lives.
static TAKING: Turns = Turns { taken: Mutex::new(0), freed: Condvar::new() };

/// As many at a time as there are cores.
struct Turns {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Turns {
    fn taken(&self) -> MutexGuard<'_, usize> {
        // It is whole after each change.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take<T>(&self, most: usize, work: impl FnOnce() -> T) -> T {
        let free = self.freed.wait_while(self.taken(), |taken| *taken >= most);
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        let found = work();
        *self.taken() -= 1;
        self.freed.notify_one();
        found
    }
}

impl Memory {
    /// In turns with other ranks of this process.
    pub(super) fn new(config: &StreamConfig, phase: StreamPhase) -> io::Result<Self> {
        let most = available_parallelism().map_or(1, usize::from);
        TAKING.take(most, || Self::take(config, phase))
    }

    fn take(config: &StreamConfig, phase: StreamPhase) -> io::Result<Self> {
        let bytes = usize::try_from(config.transfer.0).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let ranks = usize::try_from(config.rank_count()).unwrap_or(usize::MAX);
        let (count, is_free) = buffers(config, phase, ranks);
        let mut buffers = (0..count).map(|_| Buffer::new(bytes, None)).collect::<io::Result<Vec<_>>>()?;
        let source = match config.backend {
            _ if !is_free => None,
            StreamBackend::IoUring => {
                buffers.iter_mut().for_each(|buffer| data::fill(config.data, rand::random(), buffer));
                None
            }
            StreamBackend::Posix | StreamBackend::Mmap => Some(Source::new(config.data, bytes, ranks)?),
        };
        Ok(Self { buffers, source, times: Times::new(phase) })
    }

    /// The only one, of a back end that has no more.
    pub(super) fn one(&mut self) -> io::Result<Buffer> {
        Ok(self.buffers.pop().ok_or(io::ErrorKind::OutOfMemory)?)
    }
}

/// Buffers of a rank, and whether their contents are nobody's.
fn buffers(config: &StreamConfig, phase: StreamPhase, ranks: usize) -> (u64, bool) {
    let is_free = phase.writes() && !config.verify;
    let depth = u64::from(config.queue_depth);
    let count = match config.backend {
        // As many as a pool has pieces, used in turn: a compressor does not see one again.
        StreamBackend::IoUring if is_free => {
            let pieces = (data::pool_bytes(ranks) as u64).div_ceil(config.transfer.0.max(1));
            pieces.min(BUFFERS_MAX).max(depth)
        }
        StreamBackend::IoUring => depth,
        StreamBackend::Posix | StreamBackend::Mmap => 1,
    };
    (count, is_free)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn no_more_than_so_many_take_their_turn_at_once_and_all_do() {
        let turns = Turns { taken: Mutex::new(0), freed: Condvar::new() };
        let [now, most, all] = [(); 3].map(|()| AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    turns.take(3, || {
                        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                        std::thread::yield_now();
                        all.fetch_add(1, SeqCst);
                        now.fetch_sub(1, SeqCst);
                    });
                });
            }
        });
        assert_eq!(all.into_inner(), 20);
        assert!((1..=3).contains(&most.into_inner()));
    }
}

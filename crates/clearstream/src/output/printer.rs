//! Standard output of a daemon. Writing to it blocks for as long as nobody reads it
//! (a terminal stopped with Ctrl-S, a full pipe), and a daemon has to go on
//! meanwhile: what it reports is printed by a thread of its own.

use crate::output::Unwritten;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::Duration,
};

use clearstream_schema::control::Failure;

/// Entries that wait for the reader; further ones are lost and counted.
const WAITING_ENTRIES: usize = 1024;
/// Longest wait at the end for the reader to take one more entry.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

/// What the thread of a [`Printer`] does with the entries.
pub trait Sink: Send + 'static {
    /// What is printed.
    type Entry: Send + 'static;

    /// Prints an entry; `lost_count` entries after the one before it found no room.
    fn print(&mut self, entry: Self::Entry, lost_count: u64);

    /// Ends the output, after the last entry.
    ///
    /// # Errors
    /// Standard output could not be written.
    fn end(self) -> Result<(), Unwritten>;
}

/// Prints entries in their order; never blocks the threads that report them.
#[derive(Debug)]
pub struct Printer<E> {
    /// Absent once the output was ended.
    entries: Mutex<Option<SyncSender<E>>>,
    ended: Mutex<Receiver<Result<(), Unwritten>>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    printed: AtomicU64,
    /// Since the last entry that was printed.
    lost: AtomicU64,
}

impl<E: Send + 'static> Printer<E> {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(sink: impl Sink<Entry = E>) -> Result<Self, Failure> {
        let (entries, waiting) = mpsc::sync_channel(WAITING_ENTRIES);
        let (end, ended) = mpsc::sync_channel(1);
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let started = thread::Builder::new().name("events".into()).spawn(move || {
            // The receiver is gone where its timeout has passed.
            drop(end.send(print_all(&waiting, sink, &shared)));
        });
        started.map_err(|error| Failure::of_system("start a thread", &error))?;
        Ok(Self { entries: Mutex::new(Some(entries)), ended: Mutex::new(ended), counts })
    }

    /// Queues an entry, or counts it as lost. Nothing after the end.
    pub fn print(&self, entry: E) {
        let entries = locked(&self.entries);
        let Some(entries) = entries.as_ref() else { return };
        if entries.try_send(entry).is_err() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the output, unless nobody reads it.
    ///
    /// # Errors
    /// Standard output could not be written.
    pub fn finish(&self) -> Result<(), Unwritten> {
        drop(locked(&self.entries).take());
        let ended = locked(&self.ended);
        loop {
            let before = self.counts.printed.load(Ordering::Relaxed);
            match ended.recv_timeout(READER_TIMEOUT) {
                Ok(ended) => return ended,
                Err(RecvTimeoutError::Timeout) if self.counts.printed.load(Ordering::Relaxed) > before => {}
                Err(_) => return Ok(()),
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it is whole after each change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print_all<S: Sink>(waiting: &Receiver<S::Entry>, mut sink: S, counts: &Counts) -> Result<(), Unwritten> {
    for entry in waiting {
        sink.print(entry, counts.lost.swap(0, Ordering::Relaxed));
        counts.printed.fetch_add(1, Ordering::Relaxed);
    }
    sink.end()
}

/// The message in place of entries that are lost.
pub fn lost_message(lost_count: u64) -> String {
    format!("{lost_count} events are missing here: standard output was not read")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Blocks at each entry until its gate opens.
    struct Stalled {
        gate: Receiver<()>,
        printed: Arc<Mutex<Vec<(usize, u64)>>>,
    }

    impl Sink for Stalled {
        type Entry = usize;

        fn print(&mut self, entry: usize, lost_count: u64) {
            let _ = self.gate.recv();
            self.printed.lock().expect("no panic").push((entry, lost_count));
        }

        fn end(self) -> Result<(), Unwritten> {
            Err(io::Error::other("the end was reached").into())
        }
    }

    #[test]
    fn an_unread_output_blocks_nobody_and_loses_nothing_uncounted() {
        let (open, gate) = mpsc::channel();
        let printed = Arc::new(Mutex::new(Vec::new()));
        let printer = Printer::start(Stalled { gate, printed: Arc::clone(&printed) }).expect("a thread");
        let count = WAITING_ENTRIES + 50;
        for number in 0..count {
            printer.print(number);
        }
        drop(open);
        assert_eq!(
            printer.finish().expect_err("the sink's own").to_string(),
            "cannot write the result: the end was reached"
        );
        let printed = printed.lock().expect("no panic");
        let lost: u64 = printed.iter().map(|(_, lost_count)| lost_count).sum();
        assert!(printed.iter().map(|(number, _)| number).is_sorted());
        assert_eq!(printed.len() as u64 + lost, count as u64);
        // One entry may have left the queue before it was full.
        assert!((49..=50).contains(&lost), "{lost}");
    }
}

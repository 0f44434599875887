//! Events of the last hour or so, bounded in bytes, which every page reads at its own speed.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

/// Memory of events that are kept: an hour of 1 s samples of several hosts.
const BYTES_MAX: usize = 24 << 20;
/// Memory of an event besides its text: its place in the queue, and what an allocator keeps of it.
const OVERHEAD_BYTES: usize = size_of::<Box<str>>() + 16;
/// Bytes that a page gets at a time.
const BATCH_BYTES: usize = 64 << 10;

/// Events with their numbers.
pub(crate) struct History {
    events: Mutex<Events>,
    latest: watch::Sender<u64>,
    missed: AtomicU64,
}

struct Events {
    /// Number of the first one.
    first: u64,
    /// Without room to grow: text that is assembled has up to as much again.
    lines: VecDeque<Box<str>>,
    bytes: usize,
}

fn held_bytes(line: &str) -> usize {
    line.len() + OVERHEAD_BYTES
}

/// Events for a page.
pub(crate) struct Batch {
    /// In the format of server-sent events (WHATWG HTML, section 9.2).
    pub(crate) text: String,
    /// Number of the event after them.
    pub(crate) next: u64,
}

impl History {
    pub(crate) fn new() -> Self {
        let events = Events { first: 0, lines: VecDeque::new(), bytes: 0 };
        Self { events: Mutex::new(events), latest: watch::Sender::new(0), missed: AtomicU64::new(0) }
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, topic: &str, json: &str) {
        let mut events = self.events();
        let number = events.first + events.lines.len() as u64;
        // A line break ends a field: a document of several lines becomes one.
        let line = format!("id: {number}\nevent: {topic}\ndata: {}\n\n", json.replace(['\r', '\n'], " "));
        events.bytes += held_bytes(&line);
        events.lines.push_back(line.into_boxed_str());
        while events.bytes > BYTES_MAX && events.lines.len() > 1 {
            if let Some(oldest) = events.lines.pop_front() {
                events.bytes -= held_bytes(&oldest);
                events.first += 1;
            }
        }
        drop(events);
        self.latest.send_replace(number + 1);
    }

    /// Changes when there are new events.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Events from this number on. Where older ones of a page that was reading are gone, it is told how many.
    pub(crate) fn batch(&self, next: u64, was_reading: bool) -> Batch {
        let events = self.events();
        let mut text = String::new();
        let missed = events.first.saturating_sub(next);
        if missed > 0 && was_reading {
            self.missed.fetch_add(missed, Ordering::Relaxed);
            text = format!("event: missed\ndata: {missed}\n\n");
        }
        let mut next = next.max(events.first);
        for line in events.lines.iter().skip(usize::try_from(next - events.first).unwrap_or(usize::MAX)) {
            if text.len() + line.len() > BATCH_BYTES && !text.is_empty() {
                break;
            }
            text.push_str(line);
            next += 1;
        }
        Batch { text, next }
    }

    pub(crate) fn missed_count(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_everything_once_in_batches() {
        let history = History::new();
        let one = format!("{{\"a\":\"{}\"}}", "x".repeat(30_000));
        for _ in 0..5 {
            history.add("sample", &one);
        }
        let (mut next, mut count) = (0, 0);
        while next < 5 {
            let batch = history.batch(next, true);
            assert!(batch.text.len() <= BATCH_BYTES);
            count += batch.text.matches("event: sample").count();
            next = batch.next;
        }
        assert_eq!((count, history.missed_count()), (5, 0));
        assert!(history.batch(5, true).text.is_empty());
    }

    #[test]
    fn bytes_are_bounded_and_a_slow_page_learns_what_it_missed() {
        let history = History::new();
        let one = "y".repeat(1 << 20);
        for _ in 0..40 {
            history.add("sample", &one);
        }
        assert!(history.events().bytes <= BYTES_MAX);
        let kept = history.events().lines.len() as u64;
        let batch = history.batch(3, true);
        assert!(batch.text.starts_with(&format!("event: missed\ndata: {}\n\n", 40 - kept - 3)), "{kept}");
        assert_eq!(history.missed_count(), 40 - kept - 3);
        assert!(!history.batch(0, false).text.contains("missed"), "a new page missed nothing");
    }

    /// By what the allocator gave: small and large events, and sizes behind a power of two.
    #[test]
    fn memory_that_is_held_is_what_is_counted() {
        for size in [1, 4_097, 65_600] {
            let history = History::new();
            let one = "y".repeat(size);
            for _ in 0..(2 * BYTES_MAX / (size + 100)).min(20_000) {
                history.add("sample", &one);
            }
            let events = history.events();
            let text: usize = events.lines.iter().map(|line| line.len()).sum();
            let queue = events.lines.capacity() * size_of::<Box<str>>();
            assert!(events.bytes <= BYTES_MAX, "{size}");
            assert!(text + queue <= BYTES_MAX + BYTES_MAX / 8, "{size}: {text} and {queue}");
        }
    }

    #[test]
    fn a_document_cannot_end_its_field() {
        let history = History::new();
        history.add("sample", "{\n\"a\": 1}\r\n\r\nevent: end");
        assert_eq!(history.batch(0, false).text, "id: 0\nevent: sample\ndata: { \"a\": 1}    event: end\n\n");
    }
}

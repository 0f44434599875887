//! Standard error. It blocks for as long as nobody reads it (a stopped terminal,
//! a full pipe), and a daemon must serve on: its lines go through a bounded queue
//! to a thread of their own, and those that find the queue full are counted.

use std::{
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

/// Lines that wait for the reader of the log.
const QUEUE_LINES: usize = 256;
/// Longest wait at the end of the process for lines that are queued.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
const FLUSH_INTERVAL: Duration = Duration::from_millis(20);

static BACKGROUND: OnceLock<Queue> = OnceLock::new();

/// Writes a line, its line end included. A log that cannot be written (its reader
/// has gone, its disk is full) is ignored: there is no place left to
/// report it.
pub(super) fn write(line: String) {
    match BACKGROUND.get() {
        Some(queue) => queue.line(line),
        // In one piece: several processes may share a log.
        None => drop(io::stderr().lock().write_all(line.as_bytes())),
    }
}

/// From here on no line to standard error blocks its caller: for daemons.
pub fn in_background() {
    if BACKGROUND.get().is_none()
        && let Some(queue) = Queue::start(io::stderr())
    {
        drop(BACKGROUND.set(queue));
    }
}

/// Waits for lines that are queued, at most a second. To be called before the
/// process ends.
pub fn flush() {
    if let Some(queue) = BACKGROUND.get() {
        queue.flush(FLUSH_TIMEOUT);
    }
}

/// Queue of lines for the writing thread.
#[derive(Debug)]
struct Queue {
    entries: SyncSender<Entry>,
    lost_count: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Entry {
    Line(String),
    /// Acknowledged when everything before it was written.
    Flush(SyncSender<()>),
}

impl Queue {
    /// `None` where the system has no thread left.
    fn start(out: impl Write + Send + 'static) -> Option<Self> {
        let (entries, queued) = mpsc::sync_channel(QUEUE_LINES);
        let lost_count = Arc::new(AtomicU64::new(0));
        let lost = Arc::clone(&lost_count);
        let thread = thread::Builder::new().name("log".into()).spawn(move || write_all(&queued, &lost, out));
        thread.ok().map(|_| Self { entries, lost_count })
    }

    fn line(&self, line: String) {
        if self.entries.try_send(Entry::Line(line)).is_err() {
            self.lost_count.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether everything was written within `limit`.
    fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let (done, is_done) = mpsc::sync_channel(1);
        let mut entry = Entry::Flush(done);
        while let Err(TrySendError::Full(back)) = self.entries.try_send(entry) {
            if Instant::now() >= deadline {
                return false;
            }
            entry = back;
            thread::sleep(FLUSH_INTERVAL);
        }
        is_done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }
}

fn write_all(queued: &Receiver<Entry>, lost_count: &AtomicU64, mut out: impl Write) {
    loop {
        // Read before the queue is seen to be empty: lines that were queued before these were lost are written then.
        let lost = lost_count.load(Ordering::Acquire);
        let entry = match queued.try_recv() {
            Ok(entry) => entry,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                report_lost(lost_count, lost, &mut out);
                let Ok(entry) = queued.recv() else { return };
                entry
            }
        };
        match entry {
            Entry::Line(line) => drop(out.write_all(line.as_bytes())),
            Entry::Flush(done) => {
                report_lost(lost_count, lost_count.load(Ordering::Acquire), &mut out);
                // Anyone who waited for it may have given up.
                let _ = done.send(());
            }
        }
    }
}

fn report_lost(lost_count: &AtomicU64, count: u64, out: &mut impl Write) {
    lost_count.fetch_sub(count, Ordering::Relaxed);
    if count > 0 {
        drop(out.write_all(format!("{count} lines of this log are lost: it was not read\n").as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Tells that a line has arrived, and blocks until the sender of its gate is dropped.
    struct Stalled {
        arrived: mpsc::Sender<()>,
        gate: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.arrived.send(());
            let _ = self.gate.recv();
            self.written.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_reads_block_nobody_and_are_counted() {
        let (open, gate) = mpsc::channel();
        let (arrived, has_arrived) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let queue = Queue::start(Stalled { arrived, gate, written: Arc::clone(&written) }).expect("a thread");
        queue.line("line 0\n".to_owned());
        has_arrived.recv_timeout(Duration::from_secs(60)).expect("the thread writes it");
        let count = 1 + QUEUE_LINES + 50;
        for number in 1..count {
            queue.line(format!("line {number}\n"));
        }
        assert!(!queue.flush(Duration::from_millis(1)), "it is stalled");
        drop(open);
        assert!(queue.flush(Duration::from_secs(60)), "reading has resumed");
        let text = String::from_utf8(written.lock().expect("no panic").clone()).expect("UTF-8");
        let lines: Vec<&str> = text.lines().collect();
        let kept: Vec<String> = (0..lines.len() - 1).map(|number| format!("line {number}")).collect();
        assert_eq!(lines[..lines.len() - 1], kept, "in order");
        let lost = count - kept.len();
        assert_eq!(lost, 50);
        assert_eq!(lines[lines.len() - 1], format!("{lost} lines of this log are lost: it was not read"));
    }
}

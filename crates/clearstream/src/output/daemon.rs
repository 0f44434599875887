//! What a daemon reports: states of its sessions as events, lines of a log for
//! people, and at its end a document with the counts. Peers choose how many of
//! these there are, so they are bounded in rate where no pairing admits them.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use clearstream_control::rate::{Admission, LogLimit};
use clearstream_schema::{JsonSchema, control::Failure, notice::Notice};
use serde::Serialize;
use serde_json::Value;

use super::{
    Output, in_background,
    printer::{Printer, Sink, lost_message},
};
use crate::{exit::CommandError, output::Unwritten};

/// What a daemon served until it ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Served {
    /// Where it listened, `ADDRESS:PORT`.
    pub address: String,
    /// Sessions that began.
    pub session_count: u64,
    /// Sessions that broke off.
    pub failed_count: u64,
    /// Peers and calls that were refused.
    pub refused_count: u64,
}

/// What an event of a daemon counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventClass {
    /// A session began.
    SessionStarted,
    /// A session ended regularly.
    SessionEnded,
    /// A session went on, or the daemon began to listen.
    Other,
    /// A session broke off.
    SessionFailed,
    /// A peer or a call was refused.
    Refused,
}

/// An event of a daemon.
#[derive(Debug)]
pub struct DaemonEvent {
    /// Its counter.
    pub class: EventClass,
    /// Name of the state, kebab-case.
    pub name: &'static str,
    /// Facts of it.
    pub detail: Value,
    /// For people.
    pub text: Text,
}

/// What people see of an event.
#[derive(Debug)]
pub enum Text {
    /// Nothing.
    None,
    /// A line of the log, on standard error.
    Log(String),
    /// A line on standard output.
    Line(String),
}

/// The output of a daemon that listens. Shared by the threads that serve.
#[derive(Debug)]
pub struct Daemon {
    out: Output,
    printer: Printer<Entry>,
    counts: Arc<Counts>,
    limit: Mutex<LogLimit>,
}

#[derive(Debug)]
enum Entry {
    Event(DaemonEvent),
    Notice(Notice),
}

#[derive(Debug, Default)]
struct Counts {
    sessions: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    /// The daemon ended as it was meant to: its document follows.
    has_document: AtomicBool,
}

/// Counts of a daemon that goes on.
#[derive(Debug, Clone)]
pub struct DaemonCounts(Arc<Counts>);

impl DaemonCounts {
    /// Sessions that began, that broke off, and that are open, and refusals.
    pub fn read(&self) -> [u64; 4] {
        let Counts { sessions, ended, failed, refused, .. } = &*self.0;
        // A session that begins meanwhile is not counted as ended.
        let [ended, failed, sessions, refused] =
            [ended, failed, sessions, refused].map(|count| count.load(Ordering::Relaxed));
        [sessions, failed, sessions.saturating_sub(ended + failed), refused]
    }
}

impl Daemon {
    /// Reports that the daemon listens; `text` is for people, `program` is whose clients it serves.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn listening(
        address: SocketAddr,
        program: Option<&str>,
        text: String,
        out: &Output,
    ) -> Result<Self, Failure> {
        let mut detail = serde_json::json!({ "address": address.to_string() });
        if let Some(program) = program {
            detail["program"] = program.into();
        }
        in_background();
        let counts = Arc::new(Counts::default());
        let sink = Events { out: out.clone(), address, counts: Arc::clone(&counts) };
        let printer = Printer::start(sink)?;
        let limit = Mutex::new(LogLimit::new(Instant::now()));
        let daemon = Self { out: out.clone(), printer, counts, limit };
        let text = Text::Line(text);
        daemon.event(DaemonEvent { class: EventClass::Other, name: "listening", detail, text });
        Ok(daemon)
    }

    /// Reports an event.
    pub fn event(&self, event: DaemonEvent) {
        self.count(event.class);
        self.print(event);
    }

    /// Reports an event of which a stranger chooses how many there are, or counts it.
    pub fn bounded_event(&self, event: DaemonEvent) {
        self.count(event.class);
        if !self.is_seen(&event) {
            return;
        }
        let now = Instant::now();
        let (suppressed, admission) = {
            let mut limit = self.limit();
            (limit.report(now), limit.admit(now))
        };
        self.report_suppressed(suppressed);
        if admission == Admission::Write {
            self.print(event);
        }
    }

    /// Reports that `count` refusals were not reported one by one.
    pub fn refusals_suppressed(&self, count: u64) {
        self.counts.refused.fetch_add(count, Ordering::Relaxed);
        self.report_suppressed(Some(count));
    }

    /// Ends the output: with the document where the daemon ended as it was meant to.
    ///
    /// # Errors
    /// The error of the daemon, or of standard output.
    pub fn finish(&self, ended: Result<(), CommandError>) -> Result<(), CommandError> {
        let suppressed = self.limit().take();
        self.report_suppressed(suppressed);
        self.counts.has_document.store(ended.is_ok(), Ordering::Relaxed);
        let printed = self.printer.finish();
        ended?;
        Ok(printed?)
    }

    /// A reader of the counts, for metrics.
    pub fn counts(&self) -> DaemonCounts {
        DaemonCounts(Arc::clone(&self.counts))
    }

    fn count(&self, class: EventClass) {
        let counter = match class {
            EventClass::SessionStarted => &self.counts.sessions,
            EventClass::SessionEnded => &self.counts.ended,
            EventClass::SessionFailed => &self.counts.failed,
            EventClass::Refused => &self.counts.refused,
            EventClass::Other => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the format shows the event: what it does not show takes no room in the log.
    fn is_seen(&self, event: &DaemonEvent) -> bool {
        self.out.is_stream() || !matches!(event.text, Text::None)
    }

    fn print(&self, event: DaemonEvent) {
        if self.is_seen(&event) {
            self.printer.print(Entry::Event(event));
        }
    }

    fn report_suppressed(&self, count: Option<u64>) {
        let Some(count) = count else { return };
        let message = format!("{count} more events, not listed one by one");
        self.printer.print(Entry::Notice(Notice { id: "events-suppressed".to_owned(), message }));
    }

    fn limit(&self) -> MutexGuard<'_, LogLimit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the events in the printer's thread.
struct Events {
    out: Output,
    address: SocketAddr,
    counts: Arc<Counts>,
}

impl Sink for Events {
    type Entry = Entry;

    fn print(&mut self, entry: Entry, lost_count: u64) {
        match entry {
            Entry::Event(DaemonEvent { name, detail, text, .. }) => match text {
                Text::None => self.out.state(name, Some(detail), || None),
                Text::Line(text) => self.out.state(name, Some(detail), || Some(text)),
                Text::Log(text) => {
                    self.out.state(name, Some(detail), || None);
                    self.out.note(&text);
                }
            },
            Entry::Notice(notice) => self.out.notice(&notice),
        }
        if lost_count > 0 {
            let notice = Notice { id: "events-lost".to_owned(), message: lost_message(lost_count) };
            self.out.notice(&notice);
        }
    }

    fn end(self) -> Result<(), Unwritten> {
        if !self.counts.has_document.load(Ordering::Relaxed) {
            return self.out.end();
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.out.document(&Served {
            address: self.address.to_string(),
            session_count: count(&self.counts.sessions),
            failed_count: count(&self.counts.failed),
            refused_count: count(&self.counts.refused),
        })
    }
}

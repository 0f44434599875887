//! Events of a watch on their way to standard output. That blocks for as long as
//! nobody reads it (a terminal stopped with Ctrl-S, a full pipe), and next hops
//! must change meanwhile: events are printed by a thread of their own.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::Duration,
};

use clearstream_schema::watch::{WatchEvent, WatchEventKind};

use crate::output::{Output, watch as words};

/// Events that wait for the reader; further ones are lost and counted.
const WAITING_EVENTS: usize = 1024;
/// Longest wait at the end for the reader to take one more event.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints events in their order.
#[derive(Debug)]
pub(super) struct Printer {
    events: SyncSender<WatchEvent>,
    ended: Receiver<io::Result<()>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    printed: AtomicU64,
    /// Since the last event that was printed.
    lost: AtomicU64,
}

impl Printer {
    pub(super) fn start(out: &Output) -> io::Result<Self> {
        let (events, waiting) = mpsc::sync_channel(WAITING_EVENTS);
        let (end, ended) = mpsc::sync_channel(1);
        let counts = Arc::new(Counts::default());
        let (out, shared) = (out.clone(), Arc::clone(&counts));
        thread::Builder::new().name("events".into()).spawn(move || {
            // Whoever waited for it may have given up.
            drop(end.send(print(&waiting, &out, &shared)));
        })?;
        Ok(Self { events, ended, counts })
    }

    pub(super) fn event(&self, event: &WatchEvent) {
        if self.events.try_send(event.clone()).is_err() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the output, unless nobody reads it.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn finish(self) -> io::Result<()> {
        drop(self.events);
        loop {
            let before = self.counts.printed.load(Ordering::Relaxed);
            match self.ended.recv_timeout(READER_TIMEOUT) {
                Ok(ended) => return ended,
                Err(RecvTimeoutError::Timeout) if self.counts.printed.load(Ordering::Relaxed) > before => {}
                Err(_) => return Ok(()),
            }
        }
    }
}

fn print(waiting: &Receiver<WatchEvent>, out: &Output, counts: &Counts) -> io::Result<()> {
    let mut last = None;
    for event in waiting {
        report(&event, out);
        counts.printed.fetch_add(1, Ordering::Relaxed);
        let lost = counts.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let message = format!("{lost} events are missing here: standard output was not read");
            report(&WatchEvent { event: WatchEventKind::Failed { message }, ..event.clone() }, out);
        }
        if out.is_stream() {
            last = Some(event);
        }
    }
    // A stream ends with a result: how the watch ended.
    last.map_or_else(|| out.end(), |last| out.document(&last))
}

/// One event: a change of next hops, or another state of the watch.
fn report(event: &WatchEvent, out: &Output) {
    let text = || Some(words::event(event));
    let detail = || serde_json::to_value(&event.event).ok();
    match event.event.changed_gateway() {
        _ if !out.is_human() && !out.is_stream() => out.line_of_list(event),
        Some(gateway) => out.change(gateway, event.event.name(), detail(), text),
        None => out.state(event.event.name(), detail(), text),
    }
}

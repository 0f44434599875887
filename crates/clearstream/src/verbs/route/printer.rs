//! Events of a watch, written to standard output without delaying changes of next
//! hops.

use clearstream_schema::watch::{WatchEvent, WatchEventKind};

use crate::output::{
    Output, Unwritten,
    printer::{Sink, lost_message},
    watch as text_of,
};

/// Prints events as the format requires.
pub(super) struct Events {
    out: Output,
    /// A stream ends with a result: how the watch ended.
    last: Option<WatchEvent>,
}

impl Events {
    pub(super) fn to(out: &Output) -> Self {
        Self { out: out.clone(), last: None }
    }
}

impl Sink for Events {
    type Entry = WatchEvent;

    fn print(&mut self, event: WatchEvent, lost_count: u64) {
        report(&event, &self.out);
        if lost_count > 0 {
            let message = lost_message(lost_count);
            let lost = WatchEvent { event: WatchEventKind::Failed { message }, ..event.clone() };
            report(&lost, &self.out);
        }
        self.last = self.out.is_stream().then_some(event);
    }

    fn end(self) -> Result<(), Unwritten> {
        self.last.map_or_else(|| self.out.end(), |last| self.out.document(&last))
    }
}

/// One event: a change of next hops, or another state of the watch.
fn report(event: &WatchEvent, out: &Output) {
    let text = || Some(text_of::event(event));
    let detail = || clearstream_schema::json::to_value(&event.event).ok();
    match event.event.changed_gateway() {
        _ if !out.is_human() && !out.is_stream() => out.line_of_list(event),
        Some(gateway) => out.change(gateway, event.event.name(), detail(), text),
        None => out.state(event.event.name(), detail(), text),
    }
}

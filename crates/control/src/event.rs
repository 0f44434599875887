//! Sending of events by an engine on the agent's side; a slow controller never blocks it indefinitely.

use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
};

use crate::{
    call::{CallEvent, Delivery},
    link::Shared,
    message::{Event, Message},
    usage::Usage,
};

/// Bytes that may wait to be sent before droppable events are dropped and parts of
/// something large have to wait.
pub(crate) const QUEUE_BYTES: usize = 8 << 20;

/// Sends events to the controller; cheap to clone and to hand to threads.
#[derive(Clone)]
pub struct EventSender {
    target: Target,
    usage: Usage,
}

#[derive(Clone)]
enum Target {
    Session(Arc<Shared>),
    Channel(Sender<Event>),
}

impl fmt::Debug for EventSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSender").field("is_open", &self.is_open()).finish()
    }
}

impl EventSender {
    pub(crate) fn new(shared: Arc<Shared>, usage: Usage) -> Self {
        Self { target: Target::Session(shared), usage }
    }

    /// A sender without a session, for services that are driven directly.
    pub fn channel() -> (Self, Receiver<Event>) {
        let (sender, receiver) = channel();
        (Self { target: Target::Channel(sender), usage: Usage::default() }, receiver)
    }

    /// Sends an event; nothing happens when the session is over.
    ///
    /// When more than 8 MiB wait for a slow controller, its [`Delivery`] decides; dropped events
    /// are counted, and the count is sent with the next event.
    pub fn send<E: CallEvent>(&self, event: &E) {
        match (&self.target, Event::of(event)) {
            // The receiver may have been dropped.
            (Target::Channel(sender), Ok(event)) => drop(sender.send(event)),
            (Target::Channel(_), Err(_)) => {}
            (Target::Session(shared), Ok(event)) => send(shared, E::DELIVERY, event),
            (Target::Session(shared), Err(_)) => shared.with(|state, _| state.dropped_count += 1),
        }
    }

    /// Counts bytes that a test of this kind moved on this host.
    pub fn transferred(&self, test: &'static str, sent_bytes: u64, received_bytes: u64) {
        self.usage.transferred(test, sent_bytes, received_bytes);
    }

    /// False once the controller has gone: nobody receives, so a long call should end.
    pub fn is_open(&self) -> bool {
        match &self.target {
            Target::Channel(_) => true,
            Target::Session(shared) => shared.lock().session.end().is_none(),
        }
    }
}

fn send(shared: &Shared, delivery: Delivery, event: Event) {
    if delivery == Delivery::WaitsForRoom {
        shared.wait(None, |state| {
            (state.session.end().is_some() || state.session.outgoing_bytes() < QUEUE_BYTES).then_some(())
        });
    }
    shared.with(|state, now| {
        let full = state.session.outgoing_bytes() >= QUEUE_BYTES;
        if full && delivery == Delivery::Droppable {
            state.dropped_count += 1;
            return;
        }
        if state.dropped_count > 0 {
            let count = std::mem::take(&mut state.dropped_count);
            // Short messages always fit into a frame.
            drop(state.session.send(&Message::EventsDropped { count }, now));
        }
        if state.session.send(&Message::Event(event), now).is_err() {
            // Too long for a frame: it is dropped, and counted with the next.
            state.dropped_count += 1;
        }
    });
}

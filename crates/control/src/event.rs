//! How an engine on the agent's side says things by itself, without ever
//! being held up for ever by a slow controller.

use std::sync::{
    Arc,
    mpsc::{Receiver, Sender, channel},
};

use clearstream_schema::control::{AgentEvent, Message};

use crate::link::Shared;

/// Bytes that may wait to be sent before intervals are dropped and chunks of
/// a capture have to wait.
pub const QUEUE_BYTES: usize = 8 << 20;

/// Sends events to the controller; cheap to clone and to hand to threads.
#[derive(Clone)]
pub struct EventSender(Target);

#[derive(Clone)]
enum Target {
    Session(Arc<Shared>),
    Channel(Sender<AgentEvent>),
}

impl EventSender {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(Target::Session(shared))
    }

    /// A sender without a session, for handlers that are driven by hand.
    pub fn channel() -> (Self, Receiver<AgentEvent>) {
        let (sender, receiver) = channel();
        (Self(Target::Channel(sender)), receiver)
    }

    /// Sends an event; nothing happens when the session is over.
    ///
    /// When more than [`QUEUE_BYTES`] wait for a slow controller, intervals
    /// are dropped and counted (the controller gets `EventsDropped`), chunks
    /// of a capture wait for room, and all other events, of which there are
    /// few per test, are queued all the same.
    pub fn send(&self, event: AgentEvent) {
        match &self.0 {
            // The receiver may have seen enough.
            Target::Channel(sender) => drop(sender.send(event)),
            Target::Session(shared) => send(shared, event),
        }
    }

    /// False once the controller has gone: nobody listens, so a long request
    /// should end.
    pub fn is_open(&self) -> bool {
        match &self.0 {
            Target::Channel(_) => true,
            Target::Session(shared) => shared.lock().session.end().is_none(),
        }
    }
}

fn send(shared: &Shared, event: AgentEvent) {
    let patient = matches!(event, AgentEvent::CaptureChunk { .. });
    let droppable = matches!(event, AgentEvent::FlowInterval { .. });
    if patient {
        shared.wait(None, |state| {
            (state.session.end().is_some() || state.session.outgoing_bytes() < QUEUE_BYTES).then_some(())
        });
    }
    shared.with(|state, now| {
        let full = state.session.outgoing_bytes() >= QUEUE_BYTES;
        if full && droppable {
            state.dropped_count += 1;
            return;
        }
        if state.dropped_count > 0 {
            let count = std::mem::take(&mut state.dropped_count);
            let notice = Message::Event(AgentEvent::EventsDropped { count });
            // Short messages always fit into a frame.
            drop(state.session.send(&notice, now));
        }
        if state.session.send(&Message::Event(event), now).is_err() {
            // Too long for a frame: it is lost, and that is told with the next.
            state.dropped_count += 1;
        }
    });
}

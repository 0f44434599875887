//! Asynchronous events of the RNIC, as those of the connection manager and of
//! the context.

use std::{sync::atomic::Ordering, time::Duration};

use clearstream_iwarp::{verbs::AsyncEvent, work::Status};

use crate::{
    abi::{
        IBV_EVENT_CQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
        IBV_EVENT_SRQ_LIMIT_REACHED, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_DISCONNECTED,
        RDMA_CM_EVENT_ESTABLISHED,
    },
    cm::{
        Connections,
        event::{Details, push},
        id::{Id, Stage},
    },
    completion::Queue,
    handle::{Handle, locked},
    queue_pair::{Pair, set_failed},
    runtime::Runtime,
    shared_receives::disarm,
};

/// Time for which the end of a connection waits until the program has polled the messages before it. libfabric destroys
/// the queue pair at once, with its unread messages; over InfiniBand the end takes a round trip more than they do.
const HOLD: Duration = Duration::from_millis(100);

/// Delivers all events of the RNIC.
pub fn dispatch(runtime: &Runtime) {
    while let Some(event) = runtime.rnic.events().next(Some(Duration::ZERO)) {
        let mut connections = locked(&runtime.connections);
        match event {
            AsyncEvent::Established { queue_pair } => established(&mut connections, queue_pair.0),
            AsyncEvent::Disconnected { queue_pair, .. } if connections.pairs.contains_key(&queue_pair.0) => {
                ended(runtime, &mut connections, queue_pair.0);
            }
            AsyncEvent::Disconnected { .. } => {
                // Of a destroyed queue pair: its descriptor is another connection's from now on.
                let unused = connections.drop_closed();
                drop(connections);
                unused.into_iter().for_each(|token| runtime.helper.unwatch(token));
            }
            AsyncEvent::TerminateReceived { queue_pair, .. } => {
                fatal(runtime, &connections, queue_pair.0, IBV_EVENT_QP_FATAL);
                ended(runtime, &mut connections, queue_pair.0);
            }
            AsyncEvent::TerminateSent { queue_pair, .. } => {
                fatal(runtime, &connections, queue_pair.0, IBV_EVENT_QP_ACCESS_ERR);
                ended(runtime, &mut connections, queue_pair.0);
            }
            AsyncEvent::CompletionQueueOverrun { token } => {
                if let Some(queue) = connections.queues.get(&token) {
                    runtime.async_events.push(queue.0.cast(), IBV_EVENT_CQ_ERR);
                }
            }
            AsyncEvent::SharedReceiveQueueLimit { token } => {
                if let Some(queue) = connections.shared.get(&token) {
                    // SAFETY: in the table, whose lock is held.
                    unsafe { disarm(*queue) };
                    runtime.async_events.push(queue.0.cast(), IBV_EVENT_SRQ_LIMIT_REACHED);
                }
            }
            _ => {}
        }
    }
}

fn fatal(runtime: &Runtime, connections: &Connections, pair: u32, event_type: i32) {
    if let Some(known) = connections.pairs.get(&pair) {
        runtime.async_events.push(known.pair.0.cast(), event_type);
    }
}

/// The initiator's first message arrived: the responder is connected.
fn established(connections: &mut Connections, pair: u32) {
    connections.remove_responder(pair);
    let Some(id) = connections.pairs.get(&pair).and_then(|known| known.id) else { return };
    // SAFETY: in the table, whose lock is held.
    let known = unsafe { &mut *id.0 };
    if matches!(known.inner.stage, Stage::Accepting(_)) {
        known.inner.stage = Stage::Connected;
        push(id, RDMA_CM_EVENT_ESTABLISHED, 0, Details::with_reads(known.inner.reads));
    }
}

/// The connection ended.
fn ended(runtime: &Runtime, connections: &mut Connections, pair: u32) {
    connections.remove_responder(pair);
    let Some(known) = connections.pairs.get(&pair) else { return };
    // SAFETY: in the table, whose lock is held.
    takes_no_more(runtime, unsafe { &*known.pair.0 });
    // SAFETY: in the table, whose lock is held.
    unsafe { set_failed(known.pair) };
    let Some(id) = known.id else { return };
    // SAFETY: as above.
    if unsafe { has_unread(known.pair) } {
        connections.hold(pair);
        return;
    }
    deliver_end(id);
}

/// Whether the program has yet to poll messages of the peer.
///
/// # Safety
/// `pair` exists: the caller holds the lock of the connections.
unsafe fn has_unread(pair: Handle<Pair>) -> bool {
    // SAFETY: as required of the caller; the queue exists as long as the queue pair.
    let (id, watched) = unsafe {
        let pair = &*pair.0;
        let queue = &*pair.abi.recv_cq.cast::<Queue>();
        (pair.pair.id(), &queue.watched)
    };
    watched.queue.holds(|known| known.queue_pair == id && known.status == Status::Success)
}

/// Delivers the ends of connections whose messages the program has polled since.
pub fn release(runtime: &Runtime) {
    let mut connections = locked(&runtime.connections);
    for (pair, since) in connections.held() {
        let Some(known) = connections.pairs.get(&pair) else { continue };
        // SAFETY: in the table, whose lock is held.
        if since.elapsed() < HOLD && unsafe { has_unread(known.pair) } {
            connections.hold_since(pair, since);
        } else if let Some(id) = known.id {
            deliver_end(id);
        }
    }
}

fn deliver_end(id: Handle<Id>) {
    // SAFETY: of a queue pair in the table, whose lock the caller holds.
    let inner = unsafe { &mut (*id.0).inner };
    let event = match inner.stage {
        Stage::Connected => RDMA_CM_EVENT_DISCONNECTED,
        Stage::Accepting(_) => RDMA_CM_EVENT_CONNECT_ERROR,
        _ => return,
    };
    inner.stage = Stage::Ended;
    let status = if event == RDMA_CM_EVENT_CONNECT_ERROR { -libc::ECONNRESET } else { 0 };
    push(id, event, status, Details::default());
}

/// A queue pair in the error state takes no more receives from the shared queue: programs wait for this event before they
/// destroy it (ibv_get_async_event(3)).
pub fn takes_no_more(runtime: &Runtime, pair: &Pair) {
    if !pair.abi.srq.is_null() && !pair.takes_no_more.swap(true, Ordering::AcqRel) {
        let pair = (&raw const *pair).cast_mut();
        runtime.async_events.push(pair.cast(), IBV_EVENT_QP_LAST_WQE_REACHED);
    }
}

//! Asynchronous events.

use std::{
    ffi::c_char,
    os::fd::{AsFd, AsRawFd},
};

use clearstream_iwarp::verbs::AsyncEvent;

use crate::{
    error::verb,
    pointers::{at, give, timeout, words},
    rnic::iwarp_rnic,
};

/// A kind of event that this version does not know.
pub const IWARP_EVENT_OTHER: u32 = 0;
/// A peer's first message came: an accepted queue pair may send.
pub const IWARP_EVENT_ESTABLISHED: u32 = 1;
/// The peer closed the connection, or it is lost.
pub const IWARP_EVENT_DISCONNECTED: u32 = 2;
/// The peer sent a Terminate: it found an error in what we sent.
pub const IWARP_EVENT_TERMINATE_RECEIVED: u32 = 3;
/// We sent a Terminate: the peer broke a rule.
pub const IWARP_EVENT_TERMINATE_SENT: u32 = 4;
/// More completions than a queue holds.
pub const IWARP_EVENT_COMPLETION_QUEUE_OVERRUN: u32 = 5;
/// A shared receive queue fell below its limit.
pub const IWARP_EVENT_SHARED_RECEIVE_LIMIT: u32 = 6;

/// Longest words of an event, with their terminating zero.
pub const IWARP_EVENT_WORDS_BYTES: usize = 160;

/// What happened to an object and completes no request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_event {
    /// IWARP_EVENT_ESTABLISHED to IWARP_EVENT_SHARED_RECEIVE_LIMIT.
    pub kind: u32,
    /// Whose connection.
    pub queue_pair: u32,
    /// The number of the queue that overran or fell below its limit.
    pub token: u64,
    /// Of a Terminate: the layer of the error (0 RDMAP, 1 DDP, 2 the transport
    /// below), its type and its code.
    pub layer: u8,
    /// See layer.
    pub error_type: u8,
    /// See layer.
    pub code: u8,
    /// Why, where there is a reason.
    pub words: [c_char; IWARP_EVENT_WORDS_BYTES],
}

/// A descriptor that is readable while an event waits. It belongs to the RNIC.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_event_descriptor(rnic: *const iwarp_rnic) -> i32 {
    verb!("iwarp_event_descriptor", || {
        // SAFETY: as the header says.
        Ok(unsafe { at(rnic, "rnic")? }.rnic.events().as_fd().as_raw_fd())
    })
}

/// Waits up to `timeout_ms` for an asynchronous event. Returns 1, or 0 when the
/// time is over. With inline progress nothing happens while a program only
/// waits here.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_next_event(
    rnic: *const iwarp_rnic,
    timeout_ms: i64,
    into: *mut iwarp_event,
) -> i32 {
    verb!("iwarp_next_event", || {
        // SAFETY: as the header says.
        let rnic = unsafe { at(rnic, "rnic")? };
        if into.is_null() {
            return Err(crate::error::Refusal::argument("`into` is NULL"));
        }
        let Some(happened) = rnic.rnic.events().next(timeout(timeout_ms)) else { return Ok(0) };
        // SAFETY: as the header says.
        unsafe { give(into, event(&happened), "into")? };
        Ok(1)
    })
}

fn event(of: &AsyncEvent) -> iwarp_event {
    let mut event = iwarp_event {
        kind: IWARP_EVENT_OTHER,
        queue_pair: 0,
        token: 0,
        layer: 0,
        error_type: 0,
        code: 0,
        words: [0; IWARP_EVENT_WORDS_BYTES],
    };
    match of {
        AsyncEvent::Established { queue_pair } => {
            (event.kind, event.queue_pair) = (IWARP_EVENT_ESTABLISHED, queue_pair.0);
        }
        AsyncEvent::Disconnected { queue_pair, failure } => {
            (event.kind, event.queue_pair) = (IWARP_EVENT_DISCONNECTED, queue_pair.0);
            event.words = failure.as_ref().map_or(event.words, words);
        }
        AsyncEvent::TerminateReceived { queue_pair, terminate }
        | AsyncEvent::TerminateSent { queue_pair, terminate } => {
            let sent = matches!(of, AsyncEvent::TerminateSent { .. });
            event.kind = if sent { IWARP_EVENT_TERMINATE_SENT } else { IWARP_EVENT_TERMINATE_RECEIVED };
            event.queue_pair = queue_pair.0;
            [event.layer, event.error_type, event.code] = terminate.error.numbers();
            event.words = words(format!("{:?}", terminate.error));
        }
        AsyncEvent::CompletionQueueOverrun { token } => {
            (event.kind, event.token) = (IWARP_EVENT_COMPLETION_QUEUE_OVERRUN, *token);
        }
        AsyncEvent::SharedReceiveQueueLimit { token } => {
            (event.kind, event.token) = (IWARP_EVENT_SHARED_RECEIVE_LIMIT, *token);
        }
        _ => event.words = words(format!("{of:?}")),
    }
    event
}

//! Asynchronous events.

use std::{
    ffi::c_char,
    os::fd::{AsFd, AsRawFd},
};

use clearstream_iwarp::verbs::AsyncEvent;

use crate::{
    error::verb,
    pointers::{at, fixed_text, give, timeout},
    rnic::iwarp_rnic,
};

/// Event kind unknown to this version.
pub const IWARP_EVENT_OTHER: u32 = 0;
/// The peer's first message was received: an accepted queue pair may send.
pub const IWARP_EVENT_ESTABLISHED: u32 = 1;
/// The peer closed the connection, or it was lost.
pub const IWARP_EVENT_DISCONNECTED: u32 = 2;
/// The peer sent a Terminate: it detected an error of this side.
pub const IWARP_EVENT_TERMINATE_RECEIVED: u32 = 3;
/// This side sent a Terminate: the peer violated the protocol.
pub const IWARP_EVENT_TERMINATE_SENT: u32 = 4;
/// A completion queue overran.
pub const IWARP_EVENT_COMPLETION_QUEUE_OVERRUN: u32 = 5;
/// A shared receive queue fell below its limit.
pub const IWARP_EVENT_SHARED_RECEIVE_LIMIT: u32 = 6;

/// Maximum length of an event's reason, including its terminating zero.
pub const IWARP_EVENT_REASON_BYTES: usize = 160;

/// Asynchronous event: a change of an object that completes no request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_event {
    /// IWARP_EVENT_ESTABLISHED to IWARP_EVENT_SHARED_RECEIVE_LIMIT.
    pub kind: u32,
    /// Queue pair of the connection.
    pub queue_pair: u32,
    /// Token of the queue that overran or fell below its limit.
    pub token: u64,
    /// Of a Terminate: layer (0 RDMAP, 1 DDP, 2 the lower layer protocol), type
    /// and code of the error.
    pub layer: u8,
    /// See layer.
    pub error_type: u8,
    /// See layer.
    pub code: u8,
    /// Reason, if there is one.
    pub reason: [c_char; IWARP_EVENT_REASON_BYTES],
}

/// Returns a descriptor that is readable while an event is queued. It is owned
/// by the RNIC.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_event_descriptor(rnic: *const iwarp_rnic) -> i32 {
    verb!("iwarp_event_descriptor", || {
        // SAFETY: as required by the header.
        Ok(unsafe { at(rnic, "rnic")? }.rnic.events().as_fd().as_raw_fd())
    })
}

/// Waits up to `timeout_ms` for an asynchronous event. Returns 1, or 0 on
/// timeout. With inline progress a program that only waits here makes no
/// progress.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_next_event(
    rnic: *const iwarp_rnic,
    timeout_ms: i64,
    into: *mut iwarp_event,
) -> i32 {
    verb!("iwarp_next_event", || {
        // SAFETY: as required by the header.
        let rnic = unsafe { at(rnic, "rnic")? };
        if into.is_null() {
            return Err(crate::error::CallError::argument("`into` is NULL"));
        }
        let Some(happened) = rnic.rnic.events().next(timeout(timeout_ms)) else { return Ok(0) };
        // SAFETY: as required by the header.
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
        reason: [0; IWARP_EVENT_REASON_BYTES],
    };
    match of {
        AsyncEvent::Established { queue_pair } => {
            (event.kind, event.queue_pair) = (IWARP_EVENT_ESTABLISHED, queue_pair.0);
        }
        AsyncEvent::Disconnected { queue_pair, failure } => {
            (event.kind, event.queue_pair) = (IWARP_EVENT_DISCONNECTED, queue_pair.0);
            event.reason = failure.as_ref().map_or(event.reason, fixed_text);
        }
        AsyncEvent::TerminateReceived { queue_pair, terminate }
        | AsyncEvent::TerminateSent { queue_pair, terminate } => {
            let sent = matches!(of, AsyncEvent::TerminateSent { .. });
            event.kind = if sent { IWARP_EVENT_TERMINATE_SENT } else { IWARP_EVENT_TERMINATE_RECEIVED };
            event.queue_pair = queue_pair.0;
            [event.layer, event.error_type, event.code] = terminate.error.numbers();
            event.reason = fixed_text(format!("{:?}", terminate.error));
        }
        AsyncEvent::CompletionQueueOverrun { token } => {
            (event.kind, event.token) = (IWARP_EVENT_COMPLETION_QUEUE_OVERRUN, *token);
        }
        AsyncEvent::SharedReceiveQueueLimit { token } => {
            (event.kind, event.token) = (IWARP_EVENT_SHARED_RECEIVE_LIMIT, *token);
        }
        _ => event.reason = fixed_text(format!("{of:?}")),
    }
    event
}

//! Completion channels, completion queues and shared receive queues.

use std::os::fd::{AsFd, AsRawFd};

use clearstream_iwarp::verbs::{
    CompletionChannel, Notify,
    raw::{Completion, CompletionQueue, ListError, SharedReceiveQueue},
};

use crate::{
    error::{CallError, IWARP_OK, verb},
    pointers::{at, give, give_handle, list, take, timeout},
    requests::{completion, iwarp_completion, iwarp_receive_request, receive_request},
    rnic::{iwarp_domain, iwarp_rnic},
};

/// Maximum number of completions polled at once.
const BATCH: usize = 16;

/// A completion event channel: reports which armed completion queue got a
/// completion.
pub struct iwarp_channel {
    channel: CompletionChannel,
}

/// A completion queue.
pub struct iwarp_completion_queue {
    pub(crate) queue: CompletionQueue,
}

/// A shared receive queue (SRQ).
pub struct iwarp_shared_receive_queue {
    pub(crate) queue: SharedReceiveQueue,
}

/// Creates a channel.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_create_channel(channel: *mut *mut iwarp_channel) -> i32 {
    verb!("iwarp_create_channel", || {
        let value = iwarp_channel { channel: CompletionChannel::new()? };
        // SAFETY: as required by the header.
        unsafe { give_handle(channel, value, "channel") }
    })
}

/// Destroys a channel.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_channel(channel: *mut iwarp_channel) -> i32 {
    verb!("iwarp_destroy_channel", || {
        // SAFETY: as required by the header.
        drop(unsafe { take(channel) });
        Ok(IWARP_OK)
    })
}

/// Returns a descriptor that is readable when iwarp_next_channel_event() can
/// make progress. It is owned by the channel: do not read, write or close it.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_channel_descriptor(channel: *const iwarp_channel) -> i32 {
    verb!("iwarp_channel_descriptor", || {
        // SAFETY: as required by the header.
        Ok(unsafe { at(channel, "channel")? }.channel.as_fd().as_raw_fd())
    })
}

/// Waits up to `timeout_ms` for an event, and returns the `token` of its queue,
/// which is disarmed then. Returns 1, or 0 on timeout.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_next_channel_event(
    channel: *const iwarp_channel,
    timeout_ms: i64,
    token: *mut u64,
) -> i32 {
    verb!("iwarp_next_channel_event", || {
        // SAFETY: as required by the header.
        let channel = unsafe { at(channel, "channel")? };
        // Before an event is taken, which nothing would report again.
        if token.is_null() {
            return Err(CallError::argument("`token` is NULL"));
        }
        let Some(value) = channel.channel.next(timeout(timeout_ms)) else { return Ok(0) };
        // SAFETY: as required by the header.
        unsafe { give(token, value, "token")? };
        Ok(1)
    })
}

/// Creates a completion queue for `capacity` completions. `token` identifies it
/// in events; `channel` may be NULL.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_create_completion_queue(
    rnic: *const iwarp_rnic,
    capacity: u32,
    token: u64,
    channel: *const iwarp_channel,
    queue: *mut *mut iwarp_completion_queue,
) -> i32 {
    verb!("iwarp_create_completion_queue", || {
        // SAFETY: as required by the header.
        let (rnic, channel) = unsafe { (at(rnic, "rnic")?, channel.as_ref()) };
        let channel = channel.map(|channel| &channel.channel);
        let value = CompletionQueue::new(&rnic.rnic, capacity, token, channel)?;
        // SAFETY: as required by the header.
        unsafe { give_handle(queue, iwarp_completion_queue { queue: value }, "queue") }
    })
}

/// Destroys a completion queue. Its queue pairs keep working.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_completion_queue(queue: *mut iwarp_completion_queue) -> i32 {
    verb!("iwarp_destroy_completion_queue", || {
        // SAFETY: as required by the header.
        drop(unsafe { take(queue) });
        Ok(IWARP_OK)
    })
}

/// Polls up to `room` completions, oldest first, and returns their number. With
/// inline progress an empty queue first polls its sockets.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_poll(
    queue: *const iwarp_completion_queue,
    completions: *mut iwarp_completion,
    room: u32,
) -> i32 {
    verb!("iwarp_poll", || {
        // SAFETY: as required by the header.
        let queue = unsafe { at(queue, "queue")? };
        if room > 0 && completions.is_null() {
            return Err(CallError::argument("`completions` is NULL"));
        }
        let room = room.min(i32::MAX as u32) as usize;
        let mut batch = [Completion::EMPTY; BATCH];
        let mut polled = 0;
        while polled < room {
            let most = BATCH.min(room - polled);
            let count = match queue.queue.poll(&mut batch[..most]) {
                Ok(count) => count,
                // The next call reports it again.
                Err(_) if polled > 0 => break,
                Err(overrun) => return Err(overrun.into()),
            };
            for (index, polled_now) in batch[..count].iter().enumerate() {
                // SAFETY: `polled + index` is below `room`, which the caller
                // provides.
                unsafe { completions.add(polled + index).write(completion(polled_now)) };
            }
            polled += count;
            if count < most {
                break;
            }
        }
        Ok(polled as i32)
    })
}

/// Waits up to `timeout_ms` for a completion: polls for a short while, then
/// sleeps. Returns 1, or 0 on timeout.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_wait(
    queue: *const iwarp_completion_queue,
    timeout_ms: i64,
    into: *mut iwarp_completion,
) -> i32 {
    verb!("iwarp_wait", || {
        // SAFETY: as required by the header.
        let queue = unsafe { at(queue, "queue")? };
        if into.is_null() {
            return Err(CallError::argument("`into` is NULL"));
        }
        // Practically without limit: a day at a time.
        let day = std::time::Duration::from_secs(86_400);
        let polled = loop {
            let polled = queue.queue.wait(timeout(timeout_ms).unwrap_or(day))?;
            if polled.is_some() || timeout_ms >= 0 {
                break polled;
            }
        };
        let Some(polled) = polled else { return Ok(0) };
        // SAFETY: as required by the header.
        unsafe { give(into, completion(&polled), "into")? };
        Ok(1)
    })
}

/// Requests one event on the channel: for the next completion, or, with
/// `solicited_only`, for the next that is solicited or in error. Completions
/// already in the queue generate none: poll again after this.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_arm(queue: *const iwarp_completion_queue, solicited_only: bool) -> i32 {
    verb!("iwarp_arm", || {
        // SAFETY: as required by the header.
        let queue = unsafe { at(queue, "queue")? };
        queue.queue.arm(if solicited_only { Notify::Solicited } else { Notify::Next })?;
        Ok(IWARP_OK)
    })
}

/// Makes inline progress without taking a completion. Returns 1 if there was
/// progress. For a program that waits for a peer's Write.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_progress(queue: *const iwarp_completion_queue) -> i32 {
    verb!("iwarp_progress", || {
        // SAFETY: as required by the header.
        Ok(unsafe { at(queue, "queue")? }.queue.progress().into())
    })
}

/// Creates a shared receive queue for `depth` receives; `token` identifies it
/// in events.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_create_shared_receive_queue(
    domain: *const iwarp_domain,
    depth: u32,
    token: u64,
    queue: *mut *mut iwarp_shared_receive_queue,
) -> i32 {
    verb!("iwarp_create_shared_receive_queue", || {
        // SAFETY: as required by the header.
        let domain = unsafe { at(domain, "domain")? };
        let value = SharedReceiveQueue::new(&domain.domain, depth, token)?;
        // SAFETY: as required by the header.
        unsafe { give_handle(queue, iwarp_shared_receive_queue { queue: value }, "queue") }
    })
}

/// Destroys a shared receive queue. Queue pairs that use it keep working.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_shared_receive_queue(queue: *mut iwarp_shared_receive_queue) -> i32 {
    verb!("iwarp_destroy_shared_receive_queue", || {
        // SAFETY: as required by the header.
        drop(unsafe { take(queue) });
        Ok(IWARP_OK)
    })
}

/// Posts `count` receives in order. `posted`, unless NULL, returns their
/// number: when one is rejected, those before it are posted.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_post_shared_receive(
    queue: *const iwarp_shared_receive_queue,
    requests: *const iwarp_receive_request,
    count: usize,
    posted: *mut usize,
) -> i32 {
    verb!("iwarp_post_shared_receive", || {
        // SAFETY: as required by the header.
        let (queue, requests) = unsafe { (at(queue, "queue")?, list(requests, count, "requests")?) };
        // SAFETY: as required by the header.
        unsafe {
            post(requests, posted, |request| receive_request(request), |requests| queue.queue.post(requests))
        }
    })
}

/// Requests one IWARP_EVENT_SHARED_RECEIVE_LIMIT as soon as fewer than `limit`
/// receives are left; 0 requests none.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_set_shared_receive_limit(
    queue: *const iwarp_shared_receive_queue,
    limit: u32,
) -> i32 {
    verb!("iwarp_set_shared_receive_limit", || {
        // SAFETY: as required by the header.
        unsafe { at(queue, "queue")? }.queue.set_limit(limit);
        Ok(IWARP_OK)
    })
}

/// Posts a list in one pass, up to the first request that is invalid or
/// rejected, and returns the number of posted requests.
///
/// # Safety
/// `posted` is NULL or has room.
pub(crate) unsafe fn post<Given, Request>(
    requests: &[Given],
    posted: *mut usize,
    convert: impl Fn(&Given) -> Result<Request, CallError>,
    take_all: impl FnOnce(&mut dyn Iterator<Item = Request>) -> Result<(), ListError>,
) -> Result<i32, CallError> {
    let (mut count, mut invalid) = (0, None);
    let mut converted = requests
        .iter()
        .map_while(|request| match convert(request) {
            Ok(request) => {
                count += 1;
                Some(request)
            }
            Err(failure) => {
                invalid = Some(failure);
                None
            }
        })
        .peekable();
    // An empty list cannot be rejected.
    let outcome = if converted.peek().is_some() { take_all(&mut converted) } else { Ok(()) };
    drop(converted);
    if !posted.is_null() {
        // SAFETY: upheld by the caller.
        unsafe { posted.write(outcome.map_or_else(|error| error.posted, |()| count)) };
    }
    outcome?;
    invalid.map_or(Ok(IWARP_OK), Err)
}

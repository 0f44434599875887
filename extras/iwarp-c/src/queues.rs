//! Completion channels, completion queues and shared receive queues.

use std::os::fd::{AsFd, AsRawFd};

use clearstream_iwarp::verbs::{
    CompletionChannel, Notify,
    raw::{Completion, CompletionQueue, ListError, SharedReceiveQueue},
};

use crate::{
    error::{IWARP_OK, Refusal, verb},
    pointers::{at, give, give_handle, list, take, timeout},
    requests::{completion, iwarp_completion, iwarp_receive_request, receive_request},
    rnic::{iwarp_domain, iwarp_rnic},
};

/// Completions that are taken at once.
const BATCH: usize = 16;

/// A completion event channel: tells which armed completion queue got one.
pub struct iwarp_channel {
    channel: CompletionChannel,
}

/// A completion queue.
pub struct iwarp_completion_queue {
    pub(crate) queue: CompletionQueue,
}

/// A receive queue that several queue pairs share.
pub struct iwarp_shared_receive_queue {
    pub(crate) queue: SharedReceiveQueue,
}

/// A new channel.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_create_channel(channel: *mut *mut iwarp_channel) -> i32 {
    verb!("iwarp_create_channel", || {
        let value = iwarp_channel { channel: CompletionChannel::new()? };
        // SAFETY: as the header says.
        unsafe { give_handle(channel, value, "channel") }
    })
}

/// Ends a channel.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_channel(channel: *mut iwarp_channel) -> i32 {
    verb!("iwarp_destroy_channel", || {
        // SAFETY: as the header says.
        drop(unsafe { take(channel) });
        Ok(IWARP_OK)
    })
}

/// A descriptor that is readable when iwarp_next_channel_event() has something
/// to do. It belongs to the channel: do not read, write or close it.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_channel_descriptor(channel: *const iwarp_channel) -> i32 {
    verb!("iwarp_channel_descriptor", || {
        // SAFETY: as the header says.
        Ok(unsafe { at(channel, "channel")? }.channel.as_fd().as_raw_fd())
    })
}

/// Waits up to `timeout_ms` for an event, and gives out the `token` of its
/// queue, which is disarmed then. Returns 1, or 0 when the time is over.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_next_channel_event(
    channel: *const iwarp_channel,
    timeout_ms: i64,
    token: *mut u64,
) -> i32 {
    verb!("iwarp_next_channel_event", || {
        // SAFETY: as the header says.
        let channel = unsafe { at(channel, "channel")? };
        let Some(value) = channel.channel.next(timeout(timeout_ms)) else { return Ok(0) };
        // SAFETY: as the header says.
        unsafe { give(token, value, "token")? };
        Ok(1)
    })
}

/// A new completion queue for `capacity` completions. `token` names it in
/// events; `channel` may be NULL.
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
        // SAFETY: as the header says.
        let (rnic, channel) = unsafe { (at(rnic, "rnic")?, channel.as_ref()) };
        let channel = channel.map(|channel| &channel.channel);
        let value = CompletionQueue::new(&rnic.rnic, capacity, token, channel)?;
        // SAFETY: as the header says.
        unsafe { give_handle(queue, iwarp_completion_queue { queue: value }, "queue") }
    })
}

/// Ends a completion queue. Queue pairs that complete there go on.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_completion_queue(queue: *mut iwarp_completion_queue) -> i32 {
    verb!("iwarp_destroy_completion_queue", || {
        // SAFETY: as the header says.
        drop(unsafe { take(queue) });
        Ok(IWARP_OK)
    })
}

/// Takes up to `room` completions, oldest first, and returns how many. With
/// inline progress an empty queue first looks at its sockets.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_poll(
    queue: *const iwarp_completion_queue,
    completions: *mut iwarp_completion,
    room: u32,
) -> i32 {
    verb!("iwarp_poll", || {
        // SAFETY: as the header says.
        let queue = unsafe { at(queue, "queue")? };
        if room > 0 && completions.is_null() {
            return Err(Refusal::argument("`completions` is NULL"));
        }
        let room = room.min(i32::MAX as u32) as usize;
        let mut batch = [Completion::EMPTY; BATCH];
        let mut taken = 0;
        while taken < room {
            let most = BATCH.min(room - taken);
            let count = match queue.queue.poll(&mut batch[..most]) {
                Ok(count) => count,
                // The next call says so again.
                Err(_) if taken > 0 => break,
                Err(overrun) => return Err(overrun.into()),
            };
            for (index, taken_now) in batch[..count].iter().enumerate() {
                // SAFETY: `taken + index` is below `room`, which the caller has.
                unsafe { completions.add(taken + index).write(completion(taken_now)) };
            }
            taken += count;
            if count < most {
                break;
            }
        }
        Ok(taken as i32)
    })
}

/// Waits up to `timeout_ms` for a completion: polls for a short while, then
/// sleeps. Returns 1, or 0 when the time is over.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_wait(
    queue: *const iwarp_completion_queue,
    timeout_ms: i64,
    into: *mut iwarp_completion,
) -> i32 {
    verb!("iwarp_wait", || {
        // SAFETY: as the header says.
        let queue = unsafe { at(queue, "queue")? };
        if into.is_null() {
            return Err(Refusal::argument("`into` is NULL"));
        }
        // As good as for ever: a day at a time.
        let day = std::time::Duration::from_secs(86_400);
        let taken = loop {
            let taken = queue.queue.wait(timeout(timeout_ms).unwrap_or(day))?;
            if taken.is_some() || timeout_ms >= 0 {
                break taken;
            }
        };
        let Some(taken) = taken else { return Ok(0) };
        // SAFETY: as the header says.
        unsafe { give(into, completion(&taken), "into")? };
        Ok(1)
    })
}

/// Asks for one event on the channel: for the next completion, or, with
/// `solicited_only`, for the next that the peer solicited or that failed.
/// Completions that are there already raise none: poll again after this.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_arm(queue: *const iwarp_completion_queue, solicited_only: bool) -> i32 {
    verb!("iwarp_arm", || {
        // SAFETY: as the header says.
        let queue = unsafe { at(queue, "queue")? };
        queue.queue.arm(if solicited_only { Notify::Solicited } else { Notify::Next })?;
        Ok(IWARP_OK)
    })
}

/// Inline progress: moves what can be moved and takes no completion. Returns 1
/// if something moved. For a program that waits for a peer's Write.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_progress(queue: *const iwarp_completion_queue) -> i32 {
    verb!("iwarp_progress", || {
        // SAFETY: as the header says.
        Ok(unsafe { at(queue, "queue")? }.queue.progress().into())
    })
}

/// A new shared receive queue for `depth` receives; `token` names it in events.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_create_shared_receive_queue(
    domain: *const iwarp_domain,
    depth: u32,
    token: u64,
    queue: *mut *mut iwarp_shared_receive_queue,
) -> i32 {
    verb!("iwarp_create_shared_receive_queue", || {
        // SAFETY: as the header says.
        let domain = unsafe { at(domain, "domain")? };
        let value = SharedReceiveQueue::new(&domain.domain, depth, token)?;
        // SAFETY: as the header says.
        unsafe { give_handle(queue, iwarp_shared_receive_queue { queue: value }, "queue") }
    })
}

/// Ends a shared receive queue. Queue pairs that use it go on.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_shared_receive_queue(queue: *mut iwarp_shared_receive_queue) -> i32 {
    verb!("iwarp_destroy_shared_receive_queue", || {
        // SAFETY: as the header says.
        drop(unsafe { take(queue) });
        Ok(IWARP_OK)
    })
}

/// Posts `count` receives in order. `posted`, unless NULL, is how many were:
/// when one is refused, those before it are posted.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_post_shared_receive(
    queue: *const iwarp_shared_receive_queue,
    requests: *const iwarp_receive_request,
    count: usize,
    posted: *mut usize,
) -> i32 {
    verb!("iwarp_post_shared_receive", || {
        // SAFETY: as the header says.
        let (queue, requests) = unsafe { (at(queue, "queue")?, list(requests, count, "requests")?) };
        // SAFETY: as the header says.
        unsafe {
            post(requests, posted, |request| receive_request(request), |requests| queue.queue.post(requests))
        }
    })
}

/// Asks for one IWARP_EVENT_SHARED_RECEIVE_LIMIT as soon as fewer than `limit`
/// receives are left; 0 asks for none.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_set_shared_receive_limit(
    queue: *const iwarp_shared_receive_queue,
    limit: u32,
) -> i32 {
    verb!("iwarp_set_shared_receive_limit", || {
        // SAFETY: as the header says.
        unsafe { at(queue, "queue")? }.queue.set_limit(limit);
        Ok(IWARP_OK)
    })
}

/// Posts a list in one pass, up to the first request that has no meaning or is
/// refused, and says how many were taken.
///
/// # Safety
/// `posted` is NULL or has room.
pub(crate) unsafe fn post<Given, Request>(
    requests: &[Given],
    posted: *mut usize,
    convert: impl Fn(&Given) -> Result<Request, Refusal>,
    take_all: impl FnOnce(&mut dyn Iterator<Item = Request>) -> Result<(), ListError>,
) -> Result<i32, Refusal> {
    let (mut count, mut meaningless) = (0, None);
    let mut converted = requests
        .iter()
        .map_while(|request| match convert(request) {
            Ok(request) => {
                count += 1;
                Some(request)
            }
            Err(refusal) => {
                meaningless = Some(refusal);
                None
            }
        })
        .peekable();
    // No request is what nobody can refuse.
    let taken = if converted.peek().is_some() { take_all(&mut converted) } else { Ok(()) };
    drop(converted);
    if !posted.is_null() {
        // SAFETY: the caller's.
        unsafe { posted.write(taken.map_or_else(|error| error.posted, |()| count)) };
    }
    taken?;
    meaningless.map_or(Ok(IWARP_OK), Err)
}

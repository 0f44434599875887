//! Completion channels.

use std::{
    collections::HashMap,
    ffi::{c_int, c_uint, c_void},
    os::fd::AsRawFd,
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicI32, Ordering},
    },
};

use clearstream_iwarp::verbs::CompletionChannel;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::{
    abi::{ibv_comp_channel, ibv_context, ibv_cq},
    completion::Queue,
    context::context,
    handle::{Handle, allocate, locked, take},
    kernel::await_item,
    report::{failed, null},
    runtime::{is_usable, runtime},
};

/// A completion channel of a program.
#[repr(C)]
pub struct Channel {
    abi: ibv_comp_channel,
    /// Channel of the RNIC.
    pub channel: CompletionChannel,
    /// Queues by the token of their events.
    queues: Mutex<HashMap<u64, Handle<ibv_cq>>>,
}

impl Channel {
    /// Adds a queue, whose events it reports.
    pub fn add(&self, token: u64, queue: Handle<ibv_cq>) {
        locked(&self.queues).insert(token, queue);
        self.abi.refcnt.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a queue that is destroyed: no event of it follows.
    pub fn remove(&self, token: u64) {
        locked(&self.queues).remove(&token);
        self.abi.refcnt.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Creates a channel.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_comp_channel(_context: *mut ibv_context) -> *mut ibv_comp_channel {
    if runtime().is_none() {
        return null(libc::EPERM);
    }
    let Ok(channel) = CompletionChannel::new() else { return null(libc::EMFILE) };
    let descriptor = channel.events();
    // Programs change this flag, and their setting decides whether a call waits.
    if let Ok(flags) = fcntl_getfl(descriptor) {
        let _ = fcntl_setfl(descriptor, flags - OFlags::NONBLOCK);
    }
    let abi = ibv_comp_channel { context: context(), fd: descriptor.as_raw_fd(), refcnt: AtomicI32::new(0) };
    allocate(Channel { abi, channel, queues: Mutex::default() }).cast()
}

/// Destroys a channel.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: of `ibv_create_comp_channel`.
    if unsafe { &(*channel).refcnt }.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: as above, and not used after this.
    drop(unsafe { take(channel.cast::<Channel>()) });
    0
}

/// Takes an event that was counted; NULL when its queue is destroyed.
///
/// # Safety
/// `channel` exists.
unsafe fn counted(channel: *mut ibv_comp_channel) -> *mut ibv_cq {
    // SAFETY: of `ibv_create_comp_channel`.
    let channel = unsafe { &*channel.cast::<Channel>() };
    let Some(token) = channel.channel.counted() else { return ptr::null_mut() };
    let queues = locked(&channel.queues);
    let Some(queue) = queues.get(&token) else { return ptr::null_mut() };
    // SAFETY: a queue exists until it is removed here and its events are acknowledged.
    unsafe { &(*queue.0.cast::<Queue>()).pending }.deliver();
    queue.0
}

/// Waits for an event, unless the program made the descriptor non-blocking. A
/// cancellation point.
///
/// # Safety
/// [The contract of this library](crate#safety); no frame above has a value to drop, because the thread may be
/// cancelled here.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    queue_context: *mut *mut c_void,
) -> c_int {
    if !is_usable() {
        return failed(libc::EPERM);
    }
    loop {
        // SAFETY: the caller's channel; nothing here has to be dropped.
        let next = unsafe {
            if !await_item((*channel).fd) {
                return -1;
            }
            counted(channel)
        };
        if !next.is_null() {
            // SAFETY: the caller's variables; the queue exists until its event is acknowledged.
            unsafe {
                queue.write(next);
                queue_context.write((*next).cq_context);
            }
            return 0;
        }
    }
}

/// Acknowledges events of a queue, whose destruction waits for it.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, count: c_uint) {
    // SAFETY: of `ibv_create_cq`; the last acknowledgement lets its destruction go on, which leaves the counter to this.
    let pending = unsafe { &(*queue.cast::<Queue>()).pending }.clone();
    pending.acknowledge(count as usize);
}

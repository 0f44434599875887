//! The context of the device: one per process, for every function that returns
//! one.

use std::{
    collections::VecDeque,
    ffi::c_int,
    io,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
    sync::{Condvar, Mutex},
};

use rustix::event::{EventfdFlags, eventfd};

use crate::{
    abi::{ibv_async_event, ibv_context, verbs_context},
    completion::{poll_cq, req_notify_cq},
    device::{device, query_device_ex, query_port},
    handle::{Handle, await_acknowledged, keep, locked},
    kernel::{await_item, discard_item},
    post::{post_recv, post_send},
    refusing,
    report::{failed, null},
    runtime::runtime,
    shared_receives::post_srq_recv,
};

/// Events with a descriptor that is readable while there are any.
pub struct AsyncQueue {
    events: Mutex<Events>,
    acknowledged: Condvar,
    descriptor: OwnedFd,
}

/// Events that are queued, and the objects of those that the program has and did not acknowledge.
#[derive(Default)]
struct Events {
    queued: VecDeque<(Handle<libc::c_void>, c_int)>,
    delivered: Vec<Handle<libc::c_void>>,
}

impl AsyncQueue {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { events: Mutex::default(), acknowledged: Condvar::new(), descriptor: counter()? })
    }

    /// Returns the descriptor.
    pub fn descriptor(&self) -> c_int {
        self.descriptor.as_raw_fd()
    }

    /// Adds an event about an object.
    pub fn push(&self, element: *mut libc::c_void, event_type: c_int) {
        let mut events = locked(&self.events);
        events.queued.push_back((Handle(element), event_type));
        raise(&self.descriptor);
    }

    /// Takes the event that a read of the descriptor counted.
    pub fn counted(&self) -> Option<ibv_async_event> {
        let mut events = locked(&self.events);
        let (element, event_type) = events.queued.pop_front()?;
        events.delivered.push(element);
        Some(ibv_async_event { element: element.0, event_type })
    }

    /// The program has acknowledged an event about an object.
    pub fn acknowledge(&self, element: *mut libc::c_void) {
        let mut events = locked(&self.events);
        if let Some(at) = events.delivered.iter().position(|about| about.0 == element) {
            events.delivered.swap_remove(at);
        }
        self.acknowledged.notify_all();
    }

    /// Removes the events about an object that is destroyed, and waits until the program has acknowledged those that it
    /// has: another thread may still follow them.
    pub fn forget(&self, element: *mut libc::c_void, call: &str) {
        let mut events = locked(&self.events);
        events.queued.retain(|(about, _)| {
            let keep = about.0 != element;
            if !keep {
                discard_item(self.descriptor());
            }
            keep
        });
        let is_followed = |events: &mut Events| events.delivered.contains(&Handle(element));
        drop(await_acknowledged(events, &self.acknowledged, call, is_followed));
    }
}

/// Creates a descriptor that counts items: readable while there are any. A read
/// of eight bytes entitles to one.
pub fn counter() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?)
}

/// Counts an item.
pub fn raise(descriptor: &OwnedFd) {
    // Blocks only at 2^64 - 1 items.
    let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
}

/// Makes the context, with what is offered in its tables; the rest of them refuses.
pub fn make_context(events: &AsyncQueue) -> Handle<verbs_context> {
    // SAFETY: the device is never freed, and has that room.
    let made = unsafe { refusing::context(device()) }.unwrap_or_else(empty_context);
    // SAFETY: made above, and nobody else has it yet.
    let known = unsafe { &mut *made };
    known.query_port = Some(query_port);
    known.query_device_ex = Some(query_device_ex);
    known.context.async_fd = events.descriptor();
    known.context.num_comp_vectors = 1;
    let ops = &mut known.context.ops;
    ops.poll_cq = Some(poll_cq);
    ops.req_notify_cq = Some(req_notify_cq);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.post_send = Some(post_send);
    ops.post_recv = Some(post_recv);
    Handle(made)
}

/// A context for a process without libibverbs: nothing is in its tables.
fn empty_context() -> *mut verbs_context {
    // SAFETY: all zero is NULL, or no function.
    let mut made: verbs_context = unsafe { std::mem::zeroed() };
    made.sz = size_of::<verbs_context>();
    made.context.device = device();
    made.context.cmd_fd = -1;
    made.context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // Marks a context inside of a `verbs_context`.
    made.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    keep(made)
}

/// Returns the context; NULL, with `errno`, when there is none.
pub fn context() -> *mut ibv_context {
    let Some(runtime) = runtime() else { return null(libc::ENODEV) };
    // SAFETY: allocated once and never freed.
    unsafe { &raw mut (*runtime.context.0).context }
}

/// Opens the device: the same context each time, so that memory and queues of
/// one belong to the other.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_open_device(_device: *mut crate::abi::ibv_device) -> *mut ibv_context {
    context()
}

/// Closes nothing: the context lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_close_device(_context: *mut ibv_context) -> c_int {
    0
}

/// Lists the contexts of the connection manager: one.
///
/// # Safety
/// [The contract of this library](crate#safety); `count` may be NULL; the program frees the list by
/// [`rdma_free_devices`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let context = context();
    if context.is_null() {
        return null(libc::ENODEV);
    }
    // SAFETY: NULL or the caller's variable.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = 1;
    }
    crate::device::list([context, ptr::null_mut()])
}

/// Frees the list.
///
/// # Safety
/// `list` is NULL or of [`rdma_get_devices`], and not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: of `rdma_get_devices`.
    unsafe { libc::free(list.cast()) };
}

/// Waits for an asynchronous event.
///
/// # Safety
/// [The contract of this library](crate#safety); no frame above has a value to drop, because the thread may be
/// cancelled here.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    _context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let Some(runtime) = runtime() else { return failed(libc::EPERM) };
    loop {
        // SAFETY: nothing here has to be dropped.
        if !unsafe { await_item(runtime.async_events.descriptor()) } {
            return -1;
        }
        if let Some(next) = runtime.async_events.counted() {
            // SAFETY: the caller's variable.
            unsafe { event.write(next) };
            return 0;
        }
    }
}

/// Acknowledges an event: the destruction of the object that it is about waits for it.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let Some(runtime) = runtime() else { return };
    // SAFETY: the caller's event.
    runtime.async_events.acknowledge(unsafe { (*event).element });
}

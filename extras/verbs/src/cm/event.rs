//! Event channels and events.

use std::{
    collections::VecDeque,
    ffi::c_int,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
    sync::{Arc, Mutex},
};

use crate::{
    abi::{RDMA_CM_EVENT_CONNECT_REQUEST, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel},
    context::{counter, raise},
    handle::{Handle, Pending, allocate, locked, take},
    kernel::{await_item, discard_item},
    report::{failed, null, set_errno},
    runtime::{Runtime, is_usable, runtime},
};

use super::{
    Connections,
    id::{self, Id, rdma_migrate_id},
};

/// An event channel of a program.
#[repr(C)]
pub struct EventChannel {
    abi: rdma_event_channel,
    descriptor: OwnedFd,
    events: Mutex<VecDeque<Handle<Event>>>,
}

/// An event of a program.
#[repr(C)]
pub struct Event {
    abi: rdma_cm_event,
    private_data: Vec<u8>,
    /// Counter of the identifier whose destruction waits for the event.
    pending: Arc<Pending>,
    is_delivered: bool,
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.is_delivered {
            self.pending.acknowledge(1);
        }
    }
}

/// Parameters of an event.
#[derive(Default)]
pub struct Details {
    /// Private data of the peer.
    pub private_data: Vec<u8>,
    /// Outstanding Reads: responder and initiator.
    pub reads: (u8, u8),
    /// Identifier that listens.
    pub listener: Option<Handle<Id>>,
}

impl Details {
    /// Parameters of a connection: its outstanding Reads.
    pub fn with_reads(reads: (u8, u8)) -> Self {
        Self { reads, ..Self::default() }
    }
}

impl EventChannel {
    fn add(&self, event: Handle<Event>) {
        let mut events = locked(&self.events);
        events.push_back(event);
        raise(&self.descriptor);
    }

    /// Takes the event that a read of the descriptor counted. From then on the destruction of its identifier waits for
    /// it: counted under the lock under which that removes the events that are queued.
    fn counted(&self) -> Option<Handle<Event>> {
        let mut events = locked(&self.events);
        let event = events.pop_front()?;
        // SAFETY: queued events exist.
        let known = unsafe { &mut *event.0 };
        known.pending.deliver();
        known.is_delivered = true;
        Some(event)
    }

    /// Number of a listener's requests whose events the program has not taken.
    pub fn requests_of(&self, listener: Handle<Id>) -> usize {
        let is_request = |event: &&Handle<Event>| {
            // SAFETY: queued events exist.
            let about = unsafe { &(*event.0).abi };
            about.event == RDMA_CM_EVENT_CONNECT_REQUEST && about.listen_id == listener.0.cast()
        };
        locked(&self.events).iter().filter(is_request).count()
    }

    /// Removes the events for which `select` holds.
    fn remove(&self, select: impl Fn(&rdma_cm_event) -> bool) -> Vec<Handle<Event>> {
        let mut events = locked(&self.events);
        let (removed, kept): (VecDeque<_>, VecDeque<_>) =
            // SAFETY: queued events exist.
            events.drain(..).partition(|event| select(unsafe { &(*event.0).abi }));
        *events = kept;
        removed.iter().for_each(|_| discard_item(self.abi.fd));
        removed.into()
    }

    /// Moves the events of an identifier to another channel.
    pub fn move_events(&self, id: Handle<Id>, to: &Self) {
        for event in self.remove(|event| event.id == id.0.cast()) {
            to.add(event);
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        for event in locked(&self.events).drain(..) {
            // SAFETY: queued, so that no program has it.
            unsafe { free_event(event.0) };
        }
    }
}

/// Creates a channel; NULL when no descriptor is left.
pub fn open_channel() -> *mut rdma_event_channel {
    let Ok(descriptor) = counter() else { return null(libc::EMFILE) };
    let abi = rdma_event_channel { fd: descriptor.as_raw_fd() };
    allocate(EventChannel { abi, descriptor, events: Mutex::default() }).cast()
}

/// Frees an event; NULL is ignored.
///
/// # Safety
/// It is of this library, and not used after this.
pub unsafe fn free_event(event: *mut Event) {
    if !event.is_null() {
        // SAFETY: as required of the caller.
        drop(unsafe { take(event) });
    }
}

/// Adds an event to the channel of an identifier. The caller holds the lock of
/// the connections.
pub fn push(id: Handle<Id>, event: c_int, status: c_int, details: Details) {
    let Details { private_data, reads, listener } = details;
    // SAFETY: the identifier exists while the lock is held.
    let known = unsafe { &*id.0 };
    let length = private_data.len().min(u8::MAX.into());
    let param = rdma_conn_param {
        private_data: if length == 0 { ptr::null() } else { private_data.as_ptr().cast() },
        private_data_len: length as u8,
        responder_resources: reads.0,
        initiator_depth: reads.1,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    };
    let abi = rdma_cm_event {
        id: id.0.cast(),
        listen_id: listener.map_or(ptr::null_mut(), |listener| listener.0.cast()),
        event,
        status,
        param,
        datagram: [0; 4],
    };
    // A request is an event of the identifier that listens.
    // SAFETY: it exists as long as the requests in its channel.
    let pending = listener.map_or(&known.inner, |listener| unsafe { &(*listener.0).inner }).pending.clone();
    let event = Handle(allocate(Event { abi, private_data, pending, is_delivered: false }));
    // SAFETY: the channel exists as long as its identifiers; that of a request
    // is the listener's.
    unsafe { (*known.abi.channel.cast::<EventChannel>()).add(event) };
}

/// Drops queued events of an identifier, and the requests that it listened for.
///
/// # Safety
/// The channel exists.
pub unsafe fn forget(
    runtime: &Runtime,
    connections: &mut Connections,
    channel: *mut rdma_event_channel,
    id: Handle<Id>,
) {
    // SAFETY: as required of the caller.
    let channel = unsafe { &*channel.cast::<EventChannel>() };
    let id: *mut rdma_cm_id = id.0.cast();
    for event in channel.remove(|event| event.id == id || event.listen_id == id) {
        // SAFETY: removed from the queue, so that no program has the event, nor
        // the identifier of its request.
        unsafe {
            let about = &(*event.0).abi;
            let child = (about.event == RDMA_CM_EVENT_CONNECT_REQUEST).then_some(about.id);
            if let Some(child) = child.filter(|child| *child != id) {
                id::destroy(runtime, connections, Handle(child.cast()));
            }
            free_event(event.0);
        }
    }
}

/// Creates a channel.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    if runtime().is_none() {
        return null(libc::ENODEV);
    }
    open_channel()
}

/// Destroys a channel. It is freed a moment later: programs have a thread that
/// waits for events, and destroy the channel while it begins the next wait.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); no identifier uses the channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: of this library, and not used after this.
    let channel = unsafe { take(channel.cast::<EventChannel>()) };
    if let Some(runtime) = runtime() {
        locked(&runtime.connections).retire(channel);
    }
}

/// Takes the event that was counted; NULL when it was removed since.
///
/// # Safety
/// The channel exists.
unsafe fn counted(channel: *mut rdma_event_channel) -> *mut Event {
    // SAFETY: as required of the caller.
    let Some(event) = (unsafe { (*channel.cast::<EventChannel>()).counted() }) else {
        return ptr::null_mut();
    };
    // SAFETY: an event exists until it is acknowledged, a listener longer than
    // the events of its channel.
    unsafe {
        let about = &(*event.0).abi;
        let listener = about.listen_id.cast::<Id>();
        if about.event == RDMA_CM_EVENT_CONNECT_REQUEST && !listener.is_null() && (*listener).is_sync() {
            rdma_migrate_id(about.id, ptr::null_mut());
        }
    }
    event.0
}

/// Waits for an event. A cancellation point.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `event` may be NULL; what is returned there exists until it is
/// acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if !is_usable() {
        return failed(libc::EPERM);
    }
    if event.is_null() {
        return failed(libc::EINVAL);
    }
    loop {
        // SAFETY: the caller's channel and variable; nothing has to be dropped.
        unsafe {
            if !await_item((*channel).fd) {
                return -1;
            }
            let next = counted(channel);
            if !next.is_null() {
                event.write(next.cast());
                return 0;
            }
        }
    }
}

/// Frees an event.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `event` may be NULL, and is not used after this, nor its private
/// data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return failed(libc::EINVAL);
    }
    // SAFETY: of `rdma_get_cm_event`, and not used after this.
    unsafe { free_event(event.cast()) };
    0
}

/// Waits for the event of the call just made, on an identifier whose calls
/// wait; it stays in `event` of the identifier. Returns at once on others.
///
/// # Safety
/// `id` exists, and is used by no other thread.
pub unsafe extern "C-unwind" fn complete(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's identifier.
    unsafe {
        if !(*id.cast::<Id>()).is_sync() {
            return 0;
        }
        free_event(std::mem::replace(&mut (*id).event, ptr::null_mut()).cast());
        let code = rdma_get_cm_event((*id).channel, &raw mut (*id).event);
        if code != 0 {
            return code;
        }
        match (*(*id).event).status {
            0 => 0,
            status => {
                set_errno(status.abs());
                -1
            }
        }
    }
}

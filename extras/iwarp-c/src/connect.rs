//! Listening, connecting, accepting and rejecting.

use std::{
    collections::VecDeque,
    ffi::c_char,
    os::fd::{AsFd, AsRawFd},
    sync::{Mutex, PoisonError},
};

use clearstream_iwarp::verbs::{ConnectError, ConnectOptions, Connecting, Incoming, Listener};

use crate::{
    error::{CallError, IWARP_OK, verb},
    options::{accept_options, connect_options, give_unless_null},
    pointers::{
        IWARP_ADDRESS_BYTES, IWARP_PRIVATE_DATA_BYTES, address, at, fixed_text, give, give_handle, list,
        private_data, take, timeout,
    },
    queue_pair::iwarp_queue_pair,
    rnic::{iwarp_rnic, milliseconds, sized},
};

/// A listening endpoint.
pub struct iwarp_listener {
    listener: Listener,
    /// Errors of peers that were not retrieved yet.
    failures: Mutex<VecDeque<ConnectError>>,
}

/// A connection request, to be accepted or rejected once.
pub struct iwarp_incoming {
    incoming: Incoming,
}

/// A connection setup in progress.
pub struct iwarp_connecting {
    connecting: Connecting,
}

/// Options for connecting and for accepting.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_connect_options {
    /// Set by iwarp_init_connect_options().
    pub size: usize,
    /// Private data for the peer's application; may be NULL.
    pub private_data: *const u8,
    /// Its length: up to 512 bytes, 4 of which revision 2 uses.
    pub private_data_length: u32,
    /// Maximum number of the peer's outstanding Reads and atomics (IRD).
    pub ird: u16,
    /// Maximum number of own outstanding Reads and atomics (ORD).
    pub ord: u16,
    /// Request CRC32C over each FPDU.
    pub crc: bool,
    /// Request markers in the incoming stream.
    pub markers: bool,
    /// Connect: either side may send first. Needs revision 2.
    pub peer_to_peer: bool,
    /// Offer, or accept, FPDUs larger than a TCP segment.
    pub large_fpdus: bool,
    /// Connect: MPA revision, 1 or 2.
    pub revision: u8,
    /// Connect: local address; NULL leaves it to the kernel.
    pub local: *const c_char,
    /// Connect: timeout of the whole setup.
    pub timeout_ms: u64,
    /// Connect: timeout of the reply once the request is sent.
    pub reply_timeout_ms: u64,
    /// Connect: delay of the first message after the reply; -1: the default for
    /// the peer.
    pub settle_us: i64,
}

/// Parameters of an established connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_established {
    /// Local address.
    pub local: [c_char; IWARP_ADDRESS_BYTES],
    /// Address of the peer.
    pub peer: [c_char; IWARP_ADDRESS_BYTES],
    /// Private data of the peer's application.
    pub private_data: [u8; IWARP_PRIVATE_DATA_BYTES],
    /// Its length.
    pub private_data_length: u32,
    /// Maximum length of a ULPDU.
    pub mulpdu_bytes: u32,
    /// Maximum number of the peer's outstanding Reads and atomics (IRD).
    pub ird: u16,
    /// Maximum number of own outstanding Reads and atomics (ORD).
    pub ord: u16,
    /// MPA revision.
    pub revision: u8,
    /// CRC32C is enabled, in both directions.
    pub crc: bool,
    /// Markers in the outgoing stream.
    pub markers_out: bool,
    /// Markers in the incoming stream.
    pub markers_in: bool,
    /// The setup is peer-to-peer, with a ready-to-receive message.
    pub peer_to_peer: bool,
    /// This side is the initiator.
    pub initiator: bool,
}

/// Attributes of a connection request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_incoming_attributes {
    /// Local address.
    pub local: [c_char; IWARP_ADDRESS_BYTES],
    /// Address of the peer.
    pub peer: [c_char; IWARP_ADDRESS_BYTES],
    /// Private data of the peer's application.
    pub private_data: [u8; IWARP_PRIVATE_DATA_BYTES],
    /// Its length.
    pub private_data_length: u32,
    /// The peer's IRD; -1: not negotiated.
    pub ird: i32,
    /// The peer's ORD; -1: not negotiated.
    pub ord: i32,
    /// MPA revision.
    pub revision: u8,
    /// The peer requests CRC32C.
    pub crc: bool,
    /// The peer requests markers in its incoming stream.
    pub markers: bool,
    /// The peer requests a connection on which either side may send first.
    pub peer_to_peer: bool,
}

/// Initialises the options with defaults, for connecting. `size` is sizeof
/// *options.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_init_connect_options(options: *mut iwarp_connect_options, size: usize) -> i32 {
    verb!("iwarp_init_connect_options", || {
        sized::<iwarp_connect_options>(size)?;
        let defaults = ConnectOptions::default();
        let value = iwarp_connect_options {
            size,
            private_data: std::ptr::null(),
            private_data_length: 0,
            ird: defaults.ird,
            ord: defaults.ord,
            crc: defaults.crc,
            markers: defaults.markers,
            peer_to_peer: defaults.peer_to_peer,
            large_fpdus: defaults.large_fpdus,
            revision: defaults.revision,
            local: std::ptr::null(),
            timeout_ms: milliseconds(defaults.timeout),
            reply_timeout_ms: milliseconds(defaults.reply_timeout),
            settle_us: defaults.settle.map_or(-1, |time| time.as_micros() as i64),
        };
        // SAFETY: as required by the header.
        unsafe { give(options, value, "options")? };
        Ok(IWARP_OK)
    })
}

/// Connects and waits until the connection is established. `options` and `into`
/// may be NULL. On failure the queue pair is idle again.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_connect(
    pair: *const iwarp_queue_pair,
    peer: *const c_char,
    options: *const iwarp_connect_options,
    into: *mut iwarp_established,
) -> i32 {
    verb!("iwarp_connect", || {
        // SAFETY: as required by the header.
        let (pair, peer, options) =
            unsafe { (at(pair, "pair")?, address(peer, "peer")?, connect_options(options)?) };
        let negotiated = pair.pair.connect(peer, &options)?;
        // SAFETY: as required by the header.
        unsafe { give_unless_null(into, &negotiated) }
    })
}

/// Starts a connection setup without blocking. `options` may be NULL.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_start_connect(
    pair: *const iwarp_queue_pair,
    peer: *const c_char,
    options: *const iwarp_connect_options,
    connecting: *mut *mut iwarp_connecting,
) -> i32 {
    verb!("iwarp_start_connect", || {
        // SAFETY: as required by the header.
        let (pair, peer, options) =
            unsafe { (at(pair, "pair")?, address(peer, "peer")?, connect_options(options)?) };
        let value = iwarp_connecting { connecting: pair.pair.start_connect(peer, &options)? };
        // SAFETY: as required by the header.
        unsafe { give_handle(connecting, value, "connecting") }
    })
}

/// Returns a descriptor that is readable when iwarp_advance() can make
/// progress, including timeouts. It is owned by `connecting`.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_connecting_descriptor(connecting: *const iwarp_connecting) -> i32 {
    verb!("iwarp_connecting_descriptor", || {
        // SAFETY: as required by the header.
        Ok(unsafe { at(connecting, "connecting")? }.connecting.as_fd().as_raw_fd())
    })
}

/// Advances a connection setup without blocking. Returns 1 when the connection
/// is established (with its parameters in `into`, unless NULL), 0 when it is
/// still in progress. Then, or after an error, release it by
/// iwarp_end_connecting().
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_advance(
    connecting: *mut iwarp_connecting,
    into: *mut iwarp_established,
) -> i32 {
    verb!("iwarp_advance", || {
        // SAFETY: as required by the header; one thread uses it at a time.
        let connecting =
            unsafe { connecting.as_mut() }.ok_or_else(|| CallError::argument("`connecting` is NULL"))?;
        let Some(negotiated) = connecting.connecting.advance()? else { return Ok(0) };
        // SAFETY: as required by the header.
        unsafe { give_unless_null(into, &negotiated)? };
        Ok(1)
    })
}

/// Releases the handle of a connection setup; one that is not established is
/// aborted, and its queue pair is idle again.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_end_connecting(connecting: *mut iwarp_connecting) -> i32 {
    verb!("iwarp_end_connecting", || {
        // SAFETY: as required by the header.
        drop(unsafe { take(connecting) });
        Ok(IWARP_OK)
    })
}

/// Listens on an address; port 0 selects a free one (iwarp_listener_address()).
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_listen(
    rnic: *const iwarp_rnic,
    local: *const c_char,
    listener: *mut *mut iwarp_listener,
) -> i32 {
    verb!("iwarp_listen", || {
        // SAFETY: as required by the header.
        let (rnic, local) = unsafe { (at(rnic, "rnic")?, address(local, "local")?) };
        let value =
            iwarp_listener { listener: Listener::bind(&rnic.rnic, local)?, failures: Mutex::default() };
        // SAFETY: as required by the header.
        unsafe { give_handle(listener, value, "listener") }
    })
}

/// Destroys a listener.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_listener(listener: *mut iwarp_listener) -> i32 {
    verb!("iwarp_destroy_listener", || {
        // SAFETY: as required by the header.
        drop(unsafe { take(listener) });
        Ok(IWARP_OK)
    })
}

/// Returns its local address: text into IWARP_ADDRESS_BYTES bytes.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_listener_address(listener: *const iwarp_listener, into: *mut c_char) -> i32 {
    verb!("iwarp_listener_address", || {
        // SAFETY: as required by the header.
        let listener = unsafe { at(listener, "listener")? };
        let text: [c_char; IWARP_ADDRESS_BYTES] = fixed_text(listener.listener.local_address());
        // SAFETY: as required by the header.
        unsafe { give(into.cast(), text, "into")? };
        Ok(IWARP_OK)
    })
}

/// Returns a descriptor that is readable when iwarp_next_incoming() can make
/// progress. It is owned by the listener.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_listener_descriptor(listener: *const iwarp_listener) -> i32 {
    verb!("iwarp_listener_descriptor", || {
        // SAFETY: as required by the header.
        Ok(unsafe { at(listener, "listener")? }.listener.as_fd().as_raw_fd())
    })
}

/// Waits up to `timeout_ms` for a connection request. Returns 1, or 0 on
/// timeout.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_next_incoming(
    listener: *const iwarp_listener,
    timeout_ms: i64,
    incoming: *mut *mut iwarp_incoming,
) -> i32 {
    verb!("iwarp_next_incoming", || {
        // SAFETY: as required by the header.
        let listener = unsafe { at(listener, "listener")? };
        if incoming.is_null() {
            return Err(CallError::argument("`incoming` is NULL"));
        }
        let Some(request) = listener.listener.accept(timeout(timeout_ms))? else { return Ok(0) };
        // SAFETY: as required by the header.
        unsafe { give_handle(incoming, iwarp_incoming { incoming: request }, "incoming")? };
        Ok(1)
    })
}

/// Returns the error of a peer without a complete request, oldest first: one
/// line of text, truncated to `room` bytes including its zero. Returns 1, or 0
/// when there is none left.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_next_listener_failure(
    listener: *const iwarp_listener,
    into: *mut c_char,
    room: usize,
) -> i32 {
    verb!("iwarp_next_listener_failure", || {
        // SAFETY: as required by the header.
        let listener = unsafe { at(listener, "listener")? };
        if into.is_null() || room == 0 {
            return Err(CallError::argument("`into` has no room"));
        }
        let mut failures = listener.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.extend(listener.listener.failures());
        let Some(failure) = failures.pop_front() else { return Ok(0) };
        let text = failure.to_string();
        let length = text.len().min(room - 1);
        // SAFETY: the caller provides `room` bytes.
        unsafe {
            into.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
            into.add(length).write(0);
        }
        Ok(1)
    })
}

/// Returns the attributes of a connection request.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_query_incoming(
    incoming: *const iwarp_incoming,
    attributes: *mut iwarp_incoming_attributes,
) -> i32 {
    verb!("iwarp_query_incoming", || {
        // SAFETY: as required by the header.
        let known = &unsafe { at(incoming, "incoming")? }.incoming;
        let (data, length) = private_data(&known.private_data);
        let value = iwarp_incoming_attributes {
            local: fixed_text(known.local),
            peer: fixed_text(known.peer),
            private_data: data,
            private_data_length: length,
            ird: known.ird.map_or(-1, i32::from),
            ord: known.ord.map_or(-1, i32::from),
            revision: known.revision,
            crc: known.crc,
            markers: known.markers,
            peer_to_peer: known.peer_to_peer,
        };
        // SAFETY: as required by the header.
        unsafe { give(attributes, value, "attributes")? };
        Ok(IWARP_OK)
    })
}

/// Accepts a connection request and releases its handle in any case. `options`
/// and `into` may be NULL.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_accept(
    pair: *const iwarp_queue_pair,
    incoming: *mut iwarp_incoming,
    options: *const iwarp_connect_options,
    into: *mut iwarp_established,
) -> i32 {
    verb!("iwarp_accept", || {
        // SAFETY: as required by the header.
        let request = unsafe { take(incoming) }.ok_or_else(|| CallError::argument("`incoming` is NULL"))?;
        // SAFETY: as required by the header.
        let pair = unsafe { at(pair, "pair")? };
        // SAFETY: as required by the header.
        let options = unsafe { accept_options(options)? };
        let negotiated = pair.pair.accept(request.incoming, &options)?;
        // SAFETY: as required by the header.
        unsafe { give_unless_null(into, &negotiated) }
    })
}

/// Rejects a connection request with private data, and releases its handle.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_reject(incoming: *mut iwarp_incoming, data: *const u8, length: usize) -> i32 {
    verb!("iwarp_reject", || {
        // SAFETY: as required by the header.
        let request = unsafe { take(incoming) }.ok_or_else(|| CallError::argument("`incoming` is NULL"))?;
        // SAFETY: as required by the header.
        request.incoming.reject(unsafe { list(data, length, "data")? })?;
        Ok(IWARP_OK)
    })
}

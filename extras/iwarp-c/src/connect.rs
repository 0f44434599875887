//! Listening, connecting, accepting and rejecting.

use std::{
    collections::VecDeque,
    ffi::c_char,
    os::fd::{AsFd, AsRawFd},
    sync::{Mutex, PoisonError},
};

use clearstream_iwarp::verbs::{
    AcceptOptions, ConnectError, ConnectOptions, Connecting, Established, Incoming, Listener,
};

use crate::{
    error::{IWARP_OK, Refusal, verb},
    options::{connect_options, said},
    pointers::{
        IWARP_ADDRESS_BYTES, IWARP_PRIVATE_DATA_BYTES, address, at, give, give_handle, list, private_data,
        take, timeout, words,
    },
    queue_pair::iwarp_queue_pair,
    rnic::{iwarp_rnic, milliseconds, sized},
};

/// A listening endpoint.
pub struct iwarp_listener {
    listener: Listener,
    /// What became of peers and was not asked for yet.
    failures: Mutex<VecDeque<ConnectError>>,
}

/// A peer's request to connect, to be accepted or rejected once.
pub struct iwarp_incoming {
    incoming: Incoming,
}

/// A connection that is being set up.
pub struct iwarp_connecting {
    connecting: Connecting,
}

/// How to connect, and how to accept.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_connect_options {
    /// Set by iwarp_init_connect_options().
    pub size: usize,
    /// For the peer's program; may be NULL.
    pub private_data: *const u8,
    /// Its length: up to 512 bytes, 4 of which revision 2 needs.
    pub private_data_length: u32,
    /// Reads and atomics that the peer may have outstanding here.
    pub ird: u16,
    /// Reads and atomics that may be outstanding towards the peer.
    pub ord: u16,
    /// Ask for CRC32C over each FPDU.
    pub crc: bool,
    /// Ask the peer to put markers into what it sends.
    pub markers: bool,
    /// Connect: either side may send first. Needs revision 2.
    pub peer_to_peer: bool,
    /// Ask for, or agree to, FPDUs larger than a TCP segment.
    pub large_fpdus: bool,
    /// Connect: MPA revision, 1 or 2.
    pub revision: u8,
    /// Connect: from where; NULL leaves it to the kernel.
    pub local: *const c_char,
    /// Connect: for all of it.
    pub timeout_ms: u64,
    /// Connect: for the reply once the request is sent.
    pub reply_timeout_ms: u64,
    /// Connect: how long after the reply the first message may leave; -1: as
    /// the peer is known to need it.
    pub settle_us: i64,
}

/// What both sides agreed on.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_established {
    /// This end.
    pub local: [c_char; IWARP_ADDRESS_BYTES],
    /// The other end.
    pub peer: [c_char; IWARP_ADDRESS_BYTES],
    /// What the peer's program had to say.
    pub private_data: [u8; IWARP_PRIVATE_DATA_BYTES],
    /// Its length.
    pub private_data_length: u32,
    /// Bytes of an FPDU's upper-layer data unit, at most.
    pub mulpdu_bytes: u32,
    /// Reads and atomics that the peer may have outstanding here.
    pub ird: u16,
    /// Reads and atomics that may be outstanding towards the peer.
    pub ord: u16,
    /// MPA revision.
    pub revision: u8,
    /// CRC32C is on, both ways.
    pub crc: bool,
    /// Markers in what is sent.
    pub markers_out: bool,
    /// Markers in what is received.
    pub markers_in: bool,
    /// A ready-to-receive message opens the connection.
    pub peer_to_peer: bool,
    /// This side connected.
    pub initiator: bool,
}

impl iwarp_established {
    pub(crate) const NONE: Self = Self {
        local: [0; IWARP_ADDRESS_BYTES],
        peer: [0; IWARP_ADDRESS_BYTES],
        private_data: [0; IWARP_PRIVATE_DATA_BYTES],
        private_data_length: 0,
        mulpdu_bytes: 0,
        ird: 0,
        ord: 0,
        revision: 0,
        crc: false,
        markers_out: false,
        markers_in: false,
        peer_to_peer: false,
        initiator: false,
    };
}

/// What a peer asks for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_incoming_attributes {
    /// This end.
    pub local: [c_char; IWARP_ADDRESS_BYTES],
    /// The other end.
    pub peer: [c_char; IWARP_ADDRESS_BYTES],
    /// What the peer's program had to say.
    pub private_data: [u8; IWARP_PRIVATE_DATA_BYTES],
    /// Its length.
    pub private_data_length: u32,
    /// How many Reads the peer takes at a time; -1: it does not say.
    pub ird: i32,
    /// How many Reads the peer wants outstanding; -1: it does not say.
    pub ord: i32,
    /// MPA revision.
    pub revision: u8,
    /// The peer wants CRC32C.
    pub crc: bool,
    /// The peer wants markers in what it receives.
    pub markers: bool,
    /// The peer wants a connection on which either side may send first.
    pub peer_to_peer: bool,
}

/// Fills in the defaults, for connecting. `size` is sizeof *options.
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
        // SAFETY: as the header says.
        unsafe { give(options, value, "options")? };
        Ok(IWARP_OK)
    })
}

/// Connects and waits until the peer has agreed. `options` and `into` may be
/// NULL. When it fails, the queue pair is idle again.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_connect(
    pair: *const iwarp_queue_pair,
    peer: *const c_char,
    options: *const iwarp_connect_options,
    into: *mut iwarp_established,
) -> i32 {
    verb!("iwarp_connect", || {
        // SAFETY: as the header says.
        let (pair, peer, options) =
            unsafe { (at(pair, "pair")?, address(peer, "peer")?, connect_options(options)?) };
        let agreed = pair.pair.connect(peer, &options)?;
        // SAFETY: as the header says.
        unsafe { give_unless_null(into, &agreed) }
    })
}

/// Starts to connect and does not wait. `options` may be NULL.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_start_connect(
    pair: *const iwarp_queue_pair,
    peer: *const c_char,
    options: *const iwarp_connect_options,
    connecting: *mut *mut iwarp_connecting,
) -> i32 {
    verb!("iwarp_start_connect", || {
        // SAFETY: as the header says.
        let (pair, peer, options) =
            unsafe { (at(pair, "pair")?, address(peer, "peer")?, connect_options(options)?) };
        let value = iwarp_connecting { connecting: pair.pair.start_connect(peer, &options)? };
        // SAFETY: as the header says.
        unsafe { give_handle(connecting, value, "connecting") }
    })
}

/// A descriptor that is readable when iwarp_advance() has something to do, a
/// time limit included. It belongs to `connecting`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_connecting_descriptor(connecting: *const iwarp_connecting) -> i32 {
    verb!("iwarp_connecting_descriptor", || {
        // SAFETY: as the header says.
        Ok(unsafe { at(connecting, "connecting")? }.connecting.as_fd().as_raw_fd())
    })
}

/// Goes on with a set-up without waiting. Returns 1 when it is established
/// (`into`, unless NULL, says how), 0 when there is more to wait for. Then, or
/// after an error, end it by iwarp_end_connecting().
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_advance(
    connecting: *mut iwarp_connecting,
    into: *mut iwarp_established,
) -> i32 {
    verb!("iwarp_advance", || {
        // SAFETY: as the header says; one thread uses it at a time.
        let connecting =
            unsafe { connecting.as_mut() }.ok_or_else(|| Refusal::argument("`connecting` is NULL"))?;
        let Some(agreed) = connecting.connecting.advance()? else { return Ok(0) };
        // SAFETY: as the header says.
        unsafe { give_unless_null(into, &agreed)? };
        Ok(1)
    })
}

/// Ends the handle of a set-up; one that is not established is given up, and
/// its queue pair is idle again.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_end_connecting(connecting: *mut iwarp_connecting) -> i32 {
    verb!("iwarp_end_connecting", || {
        // SAFETY: as the header says.
        drop(unsafe { take(connecting) });
        Ok(IWARP_OK)
    })
}

/// Listens at an address; port 0 takes a free one (iwarp_listener_address()).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_listen(
    rnic: *const iwarp_rnic,
    local: *const c_char,
    listener: *mut *mut iwarp_listener,
) -> i32 {
    verb!("iwarp_listen", || {
        // SAFETY: as the header says.
        let (rnic, local) = unsafe { (at(rnic, "rnic")?, address(local, "local")?) };
        let value =
            iwarp_listener { listener: Listener::bind(&rnic.rnic, local)?, failures: Mutex::default() };
        // SAFETY: as the header says.
        unsafe { give_handle(listener, value, "listener") }
    })
}

/// Ends a listener.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_listener(listener: *mut iwarp_listener) -> i32 {
    verb!("iwarp_destroy_listener", || {
        // SAFETY: as the header says.
        drop(unsafe { take(listener) });
        Ok(IWARP_OK)
    })
}

/// Where it listens: text into IWARP_ADDRESS_BYTES bytes.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_listener_address(listener: *const iwarp_listener, into: *mut c_char) -> i32 {
    verb!("iwarp_listener_address", || {
        // SAFETY: as the header says.
        let listener = unsafe { at(listener, "listener")? };
        let text: [c_char; IWARP_ADDRESS_BYTES] = words(listener.listener.local_address());
        // SAFETY: as the header says.
        unsafe { give(into.cast(), text, "into")? };
        Ok(IWARP_OK)
    })
}

/// A descriptor that is readable when iwarp_next_incoming() has something to
/// do. It belongs to the listener.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_listener_descriptor(listener: *const iwarp_listener) -> i32 {
    verb!("iwarp_listener_descriptor", || {
        // SAFETY: as the header says.
        Ok(unsafe { at(listener, "listener")? }.listener.as_fd().as_raw_fd())
    })
}

/// Waits up to `timeout_ms` for a peer's request. Returns 1, or 0 when the time
/// is over.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_next_incoming(
    listener: *const iwarp_listener,
    timeout_ms: i64,
    incoming: *mut *mut iwarp_incoming,
) -> i32 {
    verb!("iwarp_next_incoming", || {
        // SAFETY: as the header says.
        let listener = unsafe { at(listener, "listener")? };
        if incoming.is_null() {
            return Err(Refusal::argument("`incoming` is NULL"));
        }
        let Some(request) = listener.listener.accept(timeout(timeout_ms))? else { return Ok(0) };
        // SAFETY: as the header says.
        unsafe { give_handle(incoming, iwarp_incoming { incoming: request }, "incoming")? };
        Ok(1)
    })
}

/// What became of a peer that never had a complete request, oldest first: one
/// line of text, cut to `room` bytes with its zero. Returns 1, or 0 when there
/// is none left.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_next_listener_failure(
    listener: *const iwarp_listener,
    into: *mut c_char,
    room: usize,
) -> i32 {
    verb!("iwarp_next_listener_failure", || {
        // SAFETY: as the header says.
        let listener = unsafe { at(listener, "listener")? };
        if into.is_null() || room == 0 {
            return Err(Refusal::argument("`into` has no room"));
        }
        let mut failures = listener.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.extend(listener.listener.failures());
        let Some(failure) = failures.pop_front() else { return Ok(0) };
        let text = failure.to_string();
        let length = text.len().min(room - 1);
        // SAFETY: the caller has `room` bytes.
        unsafe {
            into.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
            into.add(length).write(0);
        }
        Ok(1)
    })
}

/// What a peer asks for.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_query_incoming(
    incoming: *const iwarp_incoming,
    attributes: *mut iwarp_incoming_attributes,
) -> i32 {
    verb!("iwarp_query_incoming", || {
        // SAFETY: as the header says.
        let known = &unsafe { at(incoming, "incoming")? }.incoming;
        let (data, length) = private_data(&known.private_data);
        let value = iwarp_incoming_attributes {
            local: words(known.local),
            peer: words(known.peer),
            private_data: data,
            private_data_length: length,
            ird: known.ird.map_or(-1, i32::from),
            ord: known.ord.map_or(-1, i32::from),
            revision: known.revision,
            crc: known.crc,
            markers: known.markers,
            peer_to_peer: known.peer_to_peer,
        };
        // SAFETY: as the header says.
        unsafe { give(attributes, value, "attributes")? };
        Ok(IWARP_OK)
    })
}

/// Accepts a request and ends its handle, whatever comes of it. `options` and
/// `into` may be NULL.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_accept(
    pair: *const iwarp_queue_pair,
    incoming: *mut iwarp_incoming,
    options: *const iwarp_connect_options,
    into: *mut iwarp_established,
) -> i32 {
    verb!("iwarp_accept", || {
        // SAFETY: as the header says.
        let request = unsafe { take(incoming) }.ok_or_else(|| Refusal::argument("`incoming` is NULL"))?;
        // SAFETY: as the header says.
        let pair = unsafe { at(pair, "pair")? };
        // SAFETY: as the header says.
        let options = match unsafe { options.as_ref() } {
            Some(options) => {
                sized::<iwarp_connect_options>(options.size)?;
                // SAFETY: as the header says.
                let data = unsafe { said(options)? };
                AcceptOptions {
                    private_data: data,
                    ird: options.ird,
                    ord: options.ord,
                    crc: options.crc,
                    markers: options.markers,
                    large_fpdus: options.large_fpdus,
                    ..AcceptOptions::default()
                }
            }
            None => AcceptOptions::default(),
        };
        let agreed = pair.pair.accept(request.incoming, &options)?;
        // SAFETY: as the header says.
        unsafe { give_unless_null(into, &agreed) }
    })
}

/// Refuses a request with a word of why, and ends its handle.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_reject(incoming: *mut iwarp_incoming, data: *const u8, length: usize) -> i32 {
    verb!("iwarp_reject", || {
        // SAFETY: as the header says.
        let request = unsafe { take(incoming) }.ok_or_else(|| Refusal::argument("`incoming` is NULL"))?;
        // SAFETY: as the header says.
        request.incoming.reject(unsafe { list(data, length, "data")? })?;
        Ok(IWARP_OK)
    })
}

unsafe fn give_unless_null(into: *mut iwarp_established, agreed: &Established) -> Result<i32, Refusal> {
    if !into.is_null() {
        // SAFETY: the caller's.
        unsafe { give(into, established(agreed), "into")? };
    }
    Ok(IWARP_OK)
}

pub(crate) fn established(agreed: &Established) -> iwarp_established {
    let (data, length) = private_data(&agreed.private_data);
    iwarp_established {
        local: words(agreed.local),
        peer: words(agreed.peer),
        private_data: data,
        private_data_length: length,
        mulpdu_bytes: agreed.mulpdu_bytes.try_into().unwrap_or(u32::MAX),
        ird: agreed.ird,
        ord: agreed.ord,
        revision: agreed.revision,
        crc: agreed.crc,
        markers_out: agreed.markers_out,
        markers_in: agreed.markers_in,
        peer_to_peer: agreed.peer_to_peer,
        initiator: agreed.initiator,
    }
}

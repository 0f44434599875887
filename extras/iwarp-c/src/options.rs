//! Conversion of a C program's options to those of the verbs, and of what they
//! negotiated.

use std::time::Duration;

use clearstream_iwarp::verbs::{AcceptOptions, ConnectOptions, Established};

use crate::{
    connect::{iwarp_connect_options, iwarp_established},
    error::{CallError, IWARP_OK},
    pointers::{
        IWARP_ADDRESS_BYTES, IWARP_PRIVATE_DATA_BYTES, address, fixed_text, give, list, private_data,
    },
    rnic::sized,
};

/// # Safety
/// `options` is NULL or initialised, with valid private data and an address that ends with a zero.
pub(crate) unsafe fn connect_options(
    options: *const iwarp_connect_options,
) -> Result<ConnectOptions, CallError> {
    // SAFETY: upheld by the caller.
    let Some(options) = (unsafe { options.as_ref() }) else { return Ok(ConnectOptions::default()) };
    sized::<iwarp_connect_options>(options.size)?;
    let local = if options.local.is_null() {
        None
    } else {
        // SAFETY: upheld by the caller.
        Some(unsafe { address(options.local, "local")? })
    };
    Ok(ConnectOptions {
        // SAFETY: upheld by the caller.
        private_data: unsafe { private_data_of(options)? },
        ird: options.ird,
        ord: options.ord,
        crc: options.crc,
        markers: options.markers,
        revision: options.revision,
        peer_to_peer: options.peer_to_peer,
        large_fpdus: options.large_fpdus,
        local,
        timeout: Duration::from_millis(options.timeout_ms),
        tcp_timeout: Duration::from_millis(options.timeout_ms),
        reply_timeout: Duration::from_millis(options.reply_timeout_ms),
        settle: u64::try_from(options.settle_us).ok().map(Duration::from_micros),
        ..ConnectOptions::default()
    })
}

/// # Safety
/// `options` is NULL or initialised, with valid private data.
pub(crate) unsafe fn accept_options(
    options: *const iwarp_connect_options,
) -> Result<AcceptOptions, CallError> {
    // SAFETY: upheld by the caller.
    let Some(options) = (unsafe { options.as_ref() }) else { return Ok(AcceptOptions::default()) };
    sized::<iwarp_connect_options>(options.size)?;
    Ok(AcceptOptions {
        // SAFETY: upheld by the caller.
        private_data: unsafe { private_data_of(options)? },
        ird: options.ird,
        ord: options.ord,
        crc: options.crc,
        markers: options.markers,
        large_fpdus: options.large_fpdus,
        ..AcceptOptions::default()
    })
}

/// # Safety
/// The private data has the length that the options say.
unsafe fn private_data_of(options: &iwarp_connect_options) -> Result<Vec<u8>, CallError> {
    // SAFETY: upheld by the caller.
    let data = unsafe { list(options.private_data, options.private_data_length as usize, "private_data")? };
    Ok(data.to_vec())
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

/// # Safety
/// `into` is NULL or has room.
pub(crate) unsafe fn give_unless_null(
    into: *mut iwarp_established,
    negotiated: &Established,
) -> Result<i32, CallError> {
    if !into.is_null() {
        // SAFETY: upheld by the caller.
        unsafe { give(into, established(negotiated), "into")? };
    }
    Ok(IWARP_OK)
}

pub(crate) fn established(negotiated: &Established) -> iwarp_established {
    let (data, length) = private_data(&negotiated.private_data);
    iwarp_established {
        local: fixed_text(negotiated.local),
        peer: fixed_text(negotiated.peer),
        private_data: data,
        private_data_length: length,
        mulpdu_bytes: negotiated.mulpdu_bytes.try_into().unwrap_or(u32::MAX),
        ird: negotiated.ird,
        ord: negotiated.ord,
        revision: negotiated.revision,
        crc: negotiated.crc,
        markers_out: negotiated.markers_out,
        markers_in: negotiated.markers_in,
        peer_to_peer: negotiated.peer_to_peer,
        initiator: negotiated.initiator,
    }
}

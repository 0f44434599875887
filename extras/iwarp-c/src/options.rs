//! Conversion of a C program's options to those of the verbs.

use std::time::Duration;

use clearstream_iwarp::verbs::ConnectOptions;

use crate::{
    connect::iwarp_connect_options,
    error::CallError,
    pointers::{address, list},
    rnic::sized,
};

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
        reply_timeout: Duration::from_millis(options.reply_timeout_ms),
        settle: u64::try_from(options.settle_us).ok().map(Duration::from_micros),
        ..ConnectOptions::default()
    })
}

pub(crate) unsafe fn private_data_of(options: &iwarp_connect_options) -> Result<Vec<u8>, CallError> {
    // SAFETY: upheld by the caller.
    let data = unsafe { list(options.private_data, options.private_data_length as usize, "private_data")? };
    Ok(data.to_vec())
}

//! Opening and closing an RNIC, and its protection domains.

use std::{ffi::c_char, time::Duration};

use clearstream_iwarp::verbs::{Progress, ProtectionDomain, Rnic, RnicOptions};

use crate::{
    error::{IWARP_OK, Refusal, verb},
    pointers::{at, give, give_handle, list, take},
};

/// The calls of the program move the bytes: posting sends, polling receives.
/// Lowest latency; nothing moves between calls.
pub const IWARP_PROGRESS_INLINE: u32 = 0;
/// Engine threads move the bytes, also while the program computes.
pub const IWARP_PROGRESS_OFFLOADED: u32 = 1;

/// An RNIC in software.
pub struct iwarp_rnic {
    pub(crate) rnic: Rnic,
}

/// A protection domain: queue pairs reach only memory of their own.
pub struct iwarp_domain {
    pub(crate) domain: ProtectionDomain,
}

/// How an RNIC is opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_rnic_options {
    /// Set by iwarp_init_rnic_options().
    pub size: usize,
    /// IWARP_PROGRESS_INLINE (the default) or IWARP_PROGRESS_OFFLOADED.
    pub progress: u32,
    /// How many cores are listed.
    pub core_count: u32,
    /// Offloaded: one engine is pinned to each of these. None: one engine that
    /// is not pinned.
    pub cores: *const u32,
    /// Send buffer of each socket in bytes; 0 leaves it to the kernel.
    pub send_buffer_bytes: u64,
    /// Receive buffer of each socket in bytes; 0 leaves it to the kernel.
    pub receive_buffer_bytes: u64,
    /// How long a peer may take for its request, and for its first message.
    pub request_timeout_ms: u64,
    /// A peer that shows no sign of life for so long is given up; 0: never.
    pub keepalive_ms: u64,
    /// How long an idle engine spins before it sleeps.
    pub engine_spin_us: u64,
}

/// What an RNIC can do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_rnic_attributes {
    /// Requests outstanding on a send or receive queue, at most.
    pub max_depth: u32,
    /// Completions that a queue holds, at most.
    pub max_completions: u32,
    /// Segments of one Send, Write or Receive, at most. A Read has one.
    pub max_segments: u32,
    /// Bytes of inline data, at most.
    pub max_inline_bytes: u32,
    /// Bytes of one message, at most.
    pub max_message_bytes: u32,
    /// Reads and atomics outstanding in each direction, at most.
    pub max_reads: u32,
    /// Bytes of private data, at most; revision 2 needs 4 of them.
    pub max_private_data_bytes: u32,
}

/// Fills in the defaults. `size` is sizeof *options.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_init_rnic_options(options: *mut iwarp_rnic_options, size: usize) -> i32 {
    verb!("iwarp_init_rnic_options", || {
        let defaults = RnicOptions::default();
        let value = iwarp_rnic_options {
            size,
            progress: IWARP_PROGRESS_INLINE,
            core_count: 0,
            cores: std::ptr::null(),
            send_buffer_bytes: 0,
            receive_buffer_bytes: 0,
            request_timeout_ms: milliseconds(defaults.request_timeout),
            keepalive_ms: defaults.keepalive.map_or(0, milliseconds),
            engine_spin_us: defaults.engine_spin.as_micros() as u64,
        };
        sized::<iwarp_rnic_options>(size)?;
        // SAFETY: as the header says.
        unsafe { give(options, value, "options")? };
        Ok(IWARP_OK)
    })
}

/// Opens an RNIC and starts its engines. `options` may be NULL: inline
/// progress.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_open_rnic(
    options: *const iwarp_rnic_options,
    rnic: *mut *mut iwarp_rnic,
) -> i32 {
    verb!("iwarp_open_rnic", || {
        // SAFETY: as the header says.
        let options = match unsafe { options.as_ref() } {
            // SAFETY: as the header says.
            Some(options) => unsafe { opened(options)? },
            None => RnicOptions::default(),
        };
        let value = iwarp_rnic { rnic: Rnic::open(options)? };
        // SAFETY: as the header says.
        unsafe { give_handle(rnic, value, "rnic") }
    })
}

/// Closes an RNIC. It goes on until the last object made from it is ended.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_close_rnic(rnic: *mut iwarp_rnic) -> i32 {
    verb!("iwarp_close_rnic", || {
        // SAFETY: as the header says.
        drop(unsafe { take(rnic) });
        Ok(IWARP_OK)
    })
}

/// What an RNIC can do.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_query_rnic(
    rnic: *const iwarp_rnic,
    attributes: *mut iwarp_rnic_attributes,
) -> i32 {
    verb!("iwarp_query_rnic", || {
        // SAFETY: as the header says.
        let rnic = unsafe { at(rnic, "rnic")? };
        let known = rnic.rnic.attributes();
        let value = iwarp_rnic_attributes {
            max_depth: known.max_depth,
            max_completions: known.max_completions,
            max_segments: known.max_segments,
            max_inline_bytes: known.max_inline_bytes,
            max_message_bytes: known.max_message_bytes,
            max_reads: known.max_reads.into(),
            max_private_data_bytes: known.max_private_data_bytes,
        };
        // SAFETY: as the header says.
        unsafe { give(attributes, value, "attributes")? };
        Ok(IWARP_OK)
    })
}

/// The version of this library, like "0.1.0".
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn iwarp_library_version() -> *const c_char {
    let version = concat!(env!("CARGO_PKG_VERSION"), "\0");
    verb!("iwarp_library_version", || Ok(IWARP_OK));
    version.as_ptr().cast()
}

/// A new protection domain.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_allocate_domain(
    rnic: *const iwarp_rnic,
    domain: *mut *mut iwarp_domain,
) -> i32 {
    verb!("iwarp_allocate_domain", || {
        // SAFETY: as the header says.
        let rnic = unsafe { at(rnic, "rnic")? };
        let value = iwarp_domain { domain: ProtectionDomain::new(&rnic.rnic) };
        // SAFETY: as the header says.
        unsafe { give_handle(domain, value, "domain") }
    })
}

/// Gives a protection domain up. Its queue pairs go on. Its memory stays
/// registered: deregister it first.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_deallocate_domain(domain: *mut iwarp_domain) -> i32 {
    verb!("iwarp_deallocate_domain", || {
        // SAFETY: as the header says.
        drop(unsafe { take(domain) });
        Ok(IWARP_OK)
    })
}

unsafe fn opened(options: &iwarp_rnic_options) -> Result<RnicOptions, Refusal> {
    sized::<iwarp_rnic_options>(options.size)?;
    // SAFETY: the caller's.
    let cores = unsafe { list(options.cores, options.core_count as usize, "cores")? };
    let progress = match options.progress {
        IWARP_PROGRESS_INLINE => Progress::Inline,
        IWARP_PROGRESS_OFFLOADED => Progress::Offloaded { cores: cores.to_vec() },
        other => return Err(Refusal::argument(format!("`progress` is {other}: use IWARP_PROGRESS_..."))),
    };
    let buffer = |bytes: u64| (bytes > 0).then_some(bytes as usize);
    Ok(RnicOptions {
        progress,
        send_buffer_bytes: buffer(options.send_buffer_bytes),
        receive_buffer_bytes: buffer(options.receive_buffer_bytes),
        request_timeout: Duration::from_millis(options.request_timeout_ms),
        keepalive: (options.keepalive_ms > 0).then(|| Duration::from_millis(options.keepalive_ms)),
        engine_spin: Duration::from_micros(options.engine_spin_us),
    })
}

/// Refuses a structure that its `iwarp_init_` function never saw.
pub(crate) fn sized<T>(size: usize) -> Result<(), Refusal> {
    if size == size_of::<T>() {
        return Ok(());
    }
    let name = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
    let (init, wanted) = (name.strip_prefix("iwarp_").unwrap_or(name), size_of::<T>());
    Err(Refusal::argument(format!(
        "size of struct {name} is {size} and not {wanted}: call iwarp_init_{init}(&it, sizeof it) first"
    )))
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

//! Opening and closing an RNIC, and its protection domains.

use std::{ffi::c_char, time::Duration};

use clearstream_iwarp::verbs::{Progress, ProtectionDomain, Rnic, RnicOptions};

use crate::{
    error::{CallError, IWARP_OK, verb},
    pointers::{at, give, give_handle, list, take},
};

/// Calls of the program make progress: posting sends, polling receives. Lowest
/// latency; no progress between calls.
pub const IWARP_PROGRESS_INLINE: u32 = 0;
/// Engine threads make progress, also while the program computes.
pub const IWARP_PROGRESS_OFFLOADED: u32 = 1;
/// Calls of the program make progress, and a helper thread while none polls.
pub const IWARP_PROGRESS_ADAPTIVE: u32 = 2;

/// A software RNIC.
pub struct iwarp_rnic {
    pub(crate) rnic: Rnic,
}

/// A protection domain: queue pairs access only memory of their own.
pub struct iwarp_domain {
    pub(crate) domain: ProtectionDomain,
}

/// Options for opening an RNIC.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_rnic_options {
    /// Set by iwarp_init_rnic_options().
    pub size: usize,
    /// IWARP_PROGRESS_INLINE (the default), IWARP_PROGRESS_OFFLOADED or
    /// IWARP_PROGRESS_ADAPTIVE.
    pub progress: u32,
    /// Number of cores.
    pub core_count: u32,
    /// Offloaded: each of these cores gets one pinned engine. None: one engine
    /// that is not pinned.
    pub cores: *const u32,
    /// Send buffer of each socket in bytes; 0 leaves it to the kernel.
    pub send_buffer_bytes: u64,
    /// Receive buffer of each socket in bytes; 0 leaves it to the kernel.
    pub receive_buffer_bytes: u64,
    /// Timeout for a peer's request, and for its first message.
    pub request_timeout_ms: u64,
    /// Idle time after which an unresponsive peer is disconnected; 0: never.
    pub keepalive_ms: u64,
    /// Time that an idle engine spins before it sleeps.
    pub engine_spin_us: u64,
}

/// Capabilities of an RNIC.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_rnic_attributes {
    /// Maximum number of outstanding requests of a send or receive queue.
    pub max_depth: u32,
    /// Maximum number of completion queue entries.
    pub max_completions: u32,
    /// Maximum number of segments of one Send, Write or Receive. A Read has
    /// one.
    pub max_segments: u32,
    /// Maximum bytes of inline data.
    pub max_inline_bytes: u32,
    /// Maximum bytes of one message.
    pub max_message_bytes: u32,
    /// Maximum number of outstanding Reads and atomics in each direction.
    pub max_reads: u32,
    /// Maximum bytes of private data; revision 2 uses 4 of them.
    pub max_private_data_bytes: u32,
}

/// Initialises the options with defaults. `size` is sizeof *options.
///
/// # Safety
/// [The contract of this library](crate#safety).
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
        // SAFETY: as required by the header.
        unsafe { give(options, value, "options")? };
        Ok(IWARP_OK)
    })
}

/// Opens an RNIC and starts its engines. `options` may be NULL: inline
/// progress.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_open_rnic(
    options: *const iwarp_rnic_options,
    rnic: *mut *mut iwarp_rnic,
) -> i32 {
    verb!("iwarp_open_rnic", || {
        // SAFETY: as required by the header.
        let options = match unsafe { options.as_ref() } {
            // SAFETY: as required by the header.
            Some(options) => unsafe { opened(options)? },
            None => RnicOptions::default(),
        };
        let value = iwarp_rnic { rnic: Rnic::open(options)? };
        // SAFETY: as required by the header.
        unsafe { give_handle(rnic, value, "rnic") }
    })
}

/// Closes an RNIC. It stays open until the last object created from it is
/// destroyed.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_close_rnic(rnic: *mut iwarp_rnic) -> i32 {
    verb!("iwarp_close_rnic", || {
        // SAFETY: as required by the header.
        drop(unsafe { take(rnic) });
        Ok(IWARP_OK)
    })
}

/// Returns the capabilities of an RNIC.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_query_rnic(
    rnic: *const iwarp_rnic,
    attributes: *mut iwarp_rnic_attributes,
) -> i32 {
    verb!("iwarp_query_rnic", || {
        // SAFETY: as required by the header.
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
        // SAFETY: as required by the header.
        unsafe { give(attributes, value, "attributes")? };
        Ok(IWARP_OK)
    })
}

/// Returns the version of this library, like "0.1.0".
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn iwarp_library_version() -> *const c_char {
    let version = concat!(env!("CARGO_PKG_VERSION"), "\0");
    verb!("iwarp_library_version", || Ok(IWARP_OK));
    version.as_ptr().cast()
}

/// Allocates a protection domain.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_allocate_domain(
    rnic: *const iwarp_rnic,
    domain: *mut *mut iwarp_domain,
) -> i32 {
    verb!("iwarp_allocate_domain", || {
        // SAFETY: as required by the header.
        let rnic = unsafe { at(rnic, "rnic")? };
        let value = iwarp_domain { domain: ProtectionDomain::new(&rnic.rnic) };
        // SAFETY: as required by the header.
        unsafe { give_handle(domain, value, "domain") }
    })
}

/// Deallocates a protection domain. Its queue pairs keep working. Its memory
/// stays registered: deregister it first.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_deallocate_domain(domain: *mut iwarp_domain) -> i32 {
    verb!("iwarp_deallocate_domain", || {
        // SAFETY: as required by the header.
        drop(unsafe { take(domain) });
        Ok(IWARP_OK)
    })
}

/// # Safety
/// The list of cores has as many as the options say.
unsafe fn opened(options: &iwarp_rnic_options) -> Result<RnicOptions, CallError> {
    sized::<iwarp_rnic_options>(options.size)?;
    // SAFETY: upheld by the caller.
    let cores = unsafe { list(options.cores, options.core_count as usize, "cores")? };
    let progress = match options.progress {
        IWARP_PROGRESS_INLINE => Progress::Inline,
        IWARP_PROGRESS_OFFLOADED => Progress::Offloaded { cores: cores.to_vec() },
        IWARP_PROGRESS_ADAPTIVE => Progress::Adaptive,
        other => return Err(CallError::argument(format!("`progress` is {other}: use IWARP_PROGRESS_..."))),
    };
    let buffer = |bytes: u64| (bytes > 0).then_some(bytes as usize);
    Ok(RnicOptions {
        progress,
        send_buffer_bytes: buffer(options.send_buffer_bytes),
        receive_buffer_bytes: buffer(options.receive_buffer_bytes),
        request_timeout: Duration::from_millis(options.request_timeout_ms),
        keepalive: (options.keepalive_ms > 0).then(|| Duration::from_millis(options.keepalive_ms)),
        engine_spin: Duration::from_micros(options.engine_spin_us),
        ..RnicOptions::default()
    })
}

/// Rejects a structure that was not initialised by its `iwarp_init_` function.
pub(crate) fn sized<T>(size: usize) -> Result<(), CallError> {
    if size == size_of::<T>() {
        return Ok(());
    }
    let name = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
    let (init, expected) = (name.strip_prefix("iwarp_").unwrap_or(name), size_of::<T>());
    Err(CallError::argument(format!(
        "size of struct {name} is {size} and not {expected}: call iwarp_init_{init}(&it, sizeof it) first"
    )))
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

//! Provider of libfabric over iWARP in software.
//!
//! An external provider (fi_provider(7)): libfabric loads `libclearstream-fi.so` from `FI_PROVIDER_PATH` and calls
//! [`fi_prov_ini`]. It offers reliable datagram endpoints (`FI_EP_RDM`) with tag matching, as MPI libraries use them,
//! directly over the RNIC of `iwarp`: no memory is registered by the program, no layer of libfabric (`ofi_rxm`) and no
//! verbs structures lie between.
//!
//! [`endpoint`] translates calls, [`engine`] moves messages: connections on first use, credits, small messages by Send
//! into posted buffers, large ones by RDMA Read. [`matching`] pairs messages and receives.

#![allow(unsafe_code, reason = "an interface for C takes pointers")]
#![allow(
    clippy::missing_safety_doc,
    reason = "requirements on pointers are those of the manual pages of libfabric"
)]

pub mod abi;
pub mod addresses;
pub mod completion;
pub mod counter;
pub mod domain;
pub mod endpoint;
pub mod engine;
pub mod info;
pub mod matching;
pub mod memory;
pub mod wire;

use std::{ffi::c_void, ptr};

use abi::fi_provider;

/// Version of this provider, 0.1.
const VERSION: u32 = 1;
/// Newest API of libfabric that it is written for: callers that require a newer one skip it.
const API: u32 = 2 << 16 | 6;

extern "C" fn cleanup() {}

/// Entry point of the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    static ONCE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    // libfabric writes to `context`: never freed.
    let address = ONCE.get_or_init(|| {
        let provider = fi_provider {
            version: VERSION,
            fi_version: API,
            context: [ptr::null_mut(); 4],
            name: info::NAME.as_ptr(),
            getinfo: info::getinfo,
            fabric: domain::fabric,
            cleanup,
        };
        ptr::from_mut(Box::leak(Box::new(provider))).expose_provenance()
    });
    ptr::with_exposed_provenance_mut::<c_void>(*address).cast()
}

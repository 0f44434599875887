//! Provider of libfabric over iWARP in software.
//!
//! An external provider (fi_provider(7)): libfabric loads `libclearstream-fi.so` from `FI_PROVIDER_PATH` and calls
//! [`fi_prov_ini`]. It offers reliable datagram endpoints (`FI_EP_RDM`) with tag matching, as MPI libraries use them,
//! directly over the RNIC of `iwarp`: no memory is registered by the program, no layer of libfabric (`ofi_rxm`) and no
//! verbs structures lie between.
//!
//! [`endpoint`] translates calls, [`engine`] moves messages: connections on first use, credits, small messages by Send
//! into posted buffers, large ones by RDMA Read. [`matching`] pairs messages and receives. [`memory`] is what peers may read
//! and write.
//!
//! # Safety
//!
//! The contract of this library, for each function that libfabric or a program calls, is that of the manual pages:
//!
//! - An object is of the function of this library that opens it. Its close is the last call with it, of all threads.
//! - A structure, variable or list of the caller is valid and initialised for what is read of it, and has room for what
//!   is written, during the call; what is returned there replaces what was there. It is not NULL where nothing says so.
//! - Contexts (`context`) are passed back and never followed, descriptors of memory (`desc`) and arguments whose names
//!   begin with `_` are not looked at: they may be anything.
//! - Memory of a message is the caller's until its completion; an endpoint that is closed leaves it alone.
//! - All threads may call at once, also with the same object (`FI_THREAD_SAFE`).
//! - Lists of `fi_getinfo` are freed by libfabric (`fi_freeinfo`), objects by their close.

#![allow(unsafe_code, reason = "an interface for C takes pointers")]

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
pub mod vector;
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

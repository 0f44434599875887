//! Structures and constants of libfabric's public headers (API 1.0 to 2.x), as far as this provider reads or fills them.
#![allow(non_camel_case_types, reason = "names of the headers")]
#![allow(missing_docs, reason = "described in fabric.h and its manual pages")]

mod info;
mod objects;

pub use info::*;
pub use objects::*;

use std::ffi::c_void;

pub const FI_MSG: u64 = 1 << 1;
pub const FI_RMA: u64 = 1 << 2;
pub const FI_TAGGED: u64 = 1 << 3;
pub const FI_RECV: u64 = 1 << 10;
pub const FI_SEND: u64 = 1 << 11;
pub const FI_MULTI_RECV: u64 = 1 << 16;
pub const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub const FI_PEEK: u64 = 1 << 19;
pub const FI_FENCE: u64 = 1 << 21;
/// Also an attribute of an address vector: its name is opened for reading alone.
pub const FI_READ: u64 = 1 << 8;
pub const FI_WRITE: u64 = 1 << 9;
pub const FI_REMOTE_READ: u64 = 1 << 12;
pub const FI_REMOTE_WRITE: u64 = 1 << 13;
pub const FI_COMPLETION: u64 = 1 << 24;
/// The same bit, as an attribute of an address vector.
pub const FI_EVENT: u64 = FI_COMPLETION;
pub const FI_INJECT: u64 = 1 << 25;
pub const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub const FI_LOCAL_COMM: u64 = 1 << 51;
pub const FI_REMOTE_COMM: u64 = 1 << 52;
pub const FI_SOURCE: u64 = 1 << 57;
/// The same bit as `FI_CLAIM` and `FI_SELECTIVE_COMPLETION`, which are flags of calls.
pub const FI_DIRECTED_RECV: u64 = 1 << 59;
pub const FI_CLAIM: u64 = 1 << 59;
pub const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
pub const FI_DISCARD: u64 = 1 << 58;

pub const FI_ADDR_UNSPEC: u64 = u64::MAX;
pub const FI_FORMAT_UNSPEC: u32 = 0;
pub const FI_SOCKADDR: u32 = 1;
pub const FI_SOCKADDR_IN: u32 = 2;
pub const FI_EP_UNSPEC: u32 = 0;
pub const FI_EP_RDM: u32 = 3;
pub const FI_PROTO_UNSPEC: u32 = 0;
pub const FI_PROTO_IWARP_RDM: u32 = 8;
pub const FI_THREAD_SAFE: u32 = 1;
pub const FI_PROGRESS_AUTO: u32 = 1;
pub const FI_PROGRESS_MANUAL: u32 = 2;
pub const FI_RM_ENABLED: u32 = 2;
pub const FI_AV_UNSPEC: u32 = 0;
pub const FI_AV_MAP: u32 = 1;
pub const FI_AV_TABLE: u32 = 2;
pub const FI_WAIT_NONE: u32 = 0;
/// A wait that the provider chooses: reading until something is there.
pub const FI_WAIT_UNSPEC: u32 = 1;
pub const FI_ORDER_RAW: u64 = 1 << 1;
pub const FI_ORDER_WAW: u64 = 1 << 4;
pub const FI_ORDER_SAW: u64 = 1 << 7;
pub const FI_ORDER_SAS: u64 = 1 << 8;
pub const FI_ORDER_RMA_RAW: u64 = 1 << 33;
pub const FI_ORDER_RMA_WAW: u64 = 1 << 35;
/// All 64 bits of a tag are the program's.
pub const FI_TAG_GENERIC: u64 = 0xAAAA_AAAA_AAAA_AAAA;

pub const FI_EAGAIN: i32 = 11;
pub const FI_EACCES: i32 = 13;
pub const FI_EINVAL: i32 = 22;
pub const FI_ENOSYS: i32 = 38;
pub const FI_ENOMSG: i32 = 42;
pub const FI_ENODATA: i32 = 61;
pub const FI_ENOPROTOOPT: i32 = 92;
pub const FI_EOPNOTSUPP: i32 = 95;
pub const FI_EADDRINUSE: i32 = 98;
pub const FI_EADDRNOTAVAIL: i32 = 99;
pub const FI_ECONNRESET: i32 = 104;
pub const FI_ETIMEDOUT: i32 = 110;
pub const FI_ECANCELED: i32 = 125;
pub const FI_ENOMEM: i32 = 12;
pub const FI_ETOOSMALL: i32 = 257;
pub const FI_EAVAIL: i32 = 259;
pub const FI_ETRUNC: i32 = 265;
pub const FI_ENOKEY: i32 = 266;

pub const FI_CLASS_FABRIC: usize = 1;
pub const FI_CLASS_DOMAIN: usize = 2;
pub const FI_CLASS_EP: usize = 3;
pub const FI_CLASS_AV: usize = 11;
pub const FI_CLASS_MR: usize = 12;
pub const FI_CLASS_EQ: usize = 13;
pub const FI_CLASS_CQ: usize = 14;
pub const FI_CLASS_CNTR: usize = 15;

/// Commands of `fi_control`.
pub const FI_ENABLE: i32 = 6;
pub const FI_GETOPSFLAG: i32 = 2;
pub const FI_SETOPSFLAG: i32 = 3;

/// Names of `fi_setopt`, of endpoints.
pub const FI_OPT_ENDPOINT: i32 = 0;
pub const FI_OPT_MIN_MULTI_RECV: i32 = 0;

/// A table of functions: its size in bytes, then pointers. Callers test the size before they use later members.
#[repr(C)]
pub struct Table<const N: usize> {
    size: usize,
    functions: [*const (); N],
}

// SAFETY: it is never written.
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    pub const fn new(functions: [*const (); N]) -> Self {
        Self { size: size_of::<Self>(), functions }
    }

    pub fn address(&'static self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }
}

/// Stands for each function that is not offered.
pub extern "C" fn not_offered() -> isize {
    -(FI_ENOSYS as isize)
}

/// [`not_offered`] in a table.
pub const NONE: *const () = not_offered as *const ();

//! Objects, requests and completions.

use std::ffi::{c_char, c_int, c_void};

use super::{fi_fabric_attr, fi_info};

#[repr(C)]
pub struct fi_provider {
    pub version: u32,
    pub fi_version: u32,
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const fi_info,
        *mut *mut fi_info,
    ) -> c_int,
    pub fabric: unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut c_void, *mut c_void) -> c_int,
    pub cleanup: extern "C" fn(),
}

#[repr(C)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const c_void,
}

#[repr(C)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *const c_void,
    pub api_version: u32,
}

#[repr(C)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *const c_void,
    pub mr: *const c_void,
}

/// `fid_av`, `fid_cq`, `fid_eq`: an object with one table of its own.
#[repr(C)]
pub struct fid_one {
    pub fid: fid,
    pub ops: *const c_void,
}

#[repr(C)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *const c_void,
    pub cm: *const c_void,
    pub msg: *const c_void,
    pub rma: *const c_void,
    pub tagged: *const c_void,
    pub atomic: *const c_void,
    pub collective: *const c_void,
}

#[repr(C)]
pub struct fi_msg {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct fi_msg_tagged {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub struct fi_msg_rma {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

/// The longest format; the shorter ones are its beginning.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_tagged_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// As of 1.17; 2.0 adds `src_addr` at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

//! Functions that receive objects of this library and are not offered: those of
//! the real libraries would read members that the objects do not have.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use crate::report::{not_offered, set_errno};

const CONNECT: &str = "use reliable connections (RC) with rdma_cm";

/// Defines functions that return the code.
macro_rules! returning_code {
    ($($name:ident: $instead:expr;)*) => {$(
        /// Not offered.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(_object: *mut c_void) -> c_int {
            not_offered(stringify!($name), $instead)
        }
    )*};
}

/// Defines functions that return -1 with `errno`.
macro_rules! returning_minus_one {
    ($($name:ident: $instead:expr;)*) => {$(
        /// Not offered.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(_object: *mut c_void) -> c_int {
            set_errno(not_offered(stringify!($name), $instead));
            -1
        }
    )*};
}

/// Defines functions that return NULL with `errno`.
macro_rules! returning_null {
    ($($name:ident: $instead:expr;)*) => {$(
        /// Not offered.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(_object: *mut c_void) -> *mut c_void {
            set_errno(not_offered(stringify!($name), $instead));
            ptr::null_mut()
        }
    )*};
}

returning_code! {
    ibv_attach_mcast: CONNECT;
    ibv_detach_mcast: CONNECT;
    ibv_destroy_ah: CONNECT;
    ibv_init_ah_from_wc: CONNECT;
    ibv_resolve_eth_l2_from_gid: CONNECT;
    ibv_query_ece: "the connection manager needs no extended connection establishment";
    ibv_set_ece: "the connection manager needs no extended connection establishment";
}

returning_minus_one! {
    rdma_join_multicast: CONNECT;
    rdma_join_multicast_ex: CONNECT;
    rdma_leave_multicast: CONNECT;
    rdma_create_srq_ex: "use rdma_create_srq";
    rdma_reject_ece: "use rdma_reject";
    rdma_set_local_ece: "the connection manager needs no extended connection establishment";
    rdma_get_remote_ece: "the connection manager needs no extended connection establishment";
    rdma_resolve_addrinfo: "use rdma_getaddrinfo and rdma_resolve_addr";
    rdma_query_addrinfo: "use rdma_getaddrinfo and rdma_resolve_addr";
    rdma_write_cm_event: "use an eventfd(2) beside the event channel";
}

returning_null! {
    ibv_create_ah: CONNECT;
    ibv_create_ah_from_wc: CONNECT;
    ibv_import_pd: "allocate the domain in each process";
    ibv_import_mr: "register the memory in each process";
    ibv_import_dm: "register ordinary memory";
    ibv_reg_dmabuf_mr: "register ordinary memory";
}

/// There is nothing imported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_pd(_object: *mut c_void) {}

/// There is nothing imported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_mr(_object: *mut c_void) {}

/// There is nothing imported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_dm(_object: *mut c_void) {}

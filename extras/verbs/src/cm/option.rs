//! Options and attributes of identifiers.

use std::ffi::{c_int, c_void};

use crate::{
    abi::{
        IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
        IBV_QP_STATE, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, ibv_qp_attr,
        rdma_cm_id,
    },
    handle::locked,
    report::{failed, not_offered},
    runtime::runtime,
};

use super::id::Id;

/// Sets an option.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `value` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: usize,
) -> c_int {
    let Some(runtime) = runtime() else { return failed(libc::EPERM) };
    match (level, name) {
        // Ports of ended connections can always be used again.
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => 0,
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) if length == size_of::<c_int>() => {
            let _connections = locked(&runtime.connections);
            // SAFETY: the caller's identifier, under the lock, and its value.
            unsafe { (*id.cast::<Id>()).inner.is_six_only = value.cast::<c_int>().read_unaligned() != 0 };
            0
        }
        (RDMA_OPTION_ID, _) => failed(not_offered(
            "an option of rdma_set_option",
            "use the defaults of TCP (type of service: a routing rule or nftables)",
        )),
        _ => failed(libc::EOPNOTSUPP),
    }
}

/// Fills the attributes of the next state of a queue pair that the program
/// moves by itself: on iWARP no more than its rights.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    _id: *mut rdma_cm_id,
    attributes: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: the caller's structures.
    unsafe {
        (*attributes).qp_access_flags =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        mask.write(IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
    }
    0
}

/// Nothing waits for the program's notice.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_notify(_id: *mut rdma_cm_id, _event: c_int) -> c_int {
    0
}

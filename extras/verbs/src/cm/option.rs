//! Options and attributes of identifiers.

use std::{
    ffi::{c_int, c_void},
    time::Duration,
};

use crate::{
    abi::{
        IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
        IBV_QP_STATE, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
        RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, ibv_qp_attr, rdma_cm_id,
    },
    handle::locked,
    report::failed,
    runtime::runtime,
};

use super::{
    id::{Id, Stage},
    resolve::bind_again,
};

/// Transmissions of a queue pair before its peer is given up: seven retries, the most that verbs can ask for, which
/// programs do.
const TRANSMISSIONS: u32 = 8;
/// TCP's retransmissions take longer than those of a card, and what they end cannot be repaired: no value ends a
/// connection sooner.
const USER_TIMEOUT_MIN: Duration = Duration::from_secs(10);

/// Sets an option, as `ucma_set_option` and the functions that it calls in the kernel do.
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
    if level != RDMA_OPTION_ID {
        return failed(libc::ENOSYS);
    }
    let size = match name {
        RDMA_OPTION_ID_TOS | RDMA_OPTION_ID_ACK_TIMEOUT => size_of::<u8>(),
        RDMA_OPTION_ID_REUSEADDR | RDMA_OPTION_ID_AFONLY => size_of::<c_int>(),
        _ => return failed(libc::ENOSYS),
    };
    if length != size || value.is_null() {
        return failed(libc::EINVAL);
    }
    // SAFETY: the caller's value, of that size.
    let value = unsafe {
        if size == 1 {
            c_int::from(value.cast::<u8>().read())
        } else {
            value.cast::<c_int>().read_unaligned()
        }
    };
    let _connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock.
    match set(unsafe { &mut *id.cast::<Id>() }, name, value) {
        Ok(()) => 0,
        Err(code) => failed(code),
    }
}

fn set(id: &mut Id, name: c_int, value: c_int) -> Result<(), c_int> {
    let (is_idle, is_bound, listens) = match id.inner.stage {
        Stage::Idle => (true, false, false),
        Stage::Bound => (false, true, false),
        Stage::Listening(_) => (false, false, true),
        _ => (false, false, false),
    };
    match name {
        RDMA_OPTION_ID_TOS => id.inner.socket.type_of_service = Some(value as u8),
        RDMA_OPTION_ID_ACK_TIMEOUT => id.inner.socket.user_timeout = user_timeout(value as u32),
        RDMA_OPTION_ID_REUSEADDR => {
            let shares = value != 0;
            if listens || !is_idle && !shares {
                return Err(libc::EINVAL);
            }
            if shares != std::mem::replace(&mut id.inner.shares_port, shares) && is_bound {
                bind_again(id).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
            }
        }
        _ if is_idle || is_bound => {
            id.inner.is_six_only = Some(value != 0);
            if is_bound {
                bind_again(id).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
            }
        }
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

/// Time without an acknowledgement after which a card gives up: 4.096 us, doubled `exponent` times, for each transmission
/// (InfiniBand Architecture Specification, volume 1, section 9.7.6.1.3); without end for 0.
fn user_timeout(exponent: u32) -> Option<Duration> {
    let one = Duration::from_nanos(4096 << exponent.min(31));
    (exponent > 0).then(|| (one * TRANSMISSIONS).max(USER_TIMEOUT_MIN))
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

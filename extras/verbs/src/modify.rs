//! Queue pairs: modify and query.

use std::{
    ffi::{c_int, c_void},
    sync::atomic::Ordering,
};

use clearstream_iwarp::verbs::State;

use crate::{
    abi::{
        IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
        ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    },
    async_events::takes_no_more,
    device::READS_MAX,
    queue_pair::Pair,
    report::not_offered,
    runtime::{is_usable, opened},
};

/// Attributes that name the peer: the program joins queue pairs by itself.
const PEER: c_int = 1 << 7 | 1 << 20;

/// Changes the state. The connection manager moves a queue pair to RTS; a
/// program may end it, or repeat the states that the manager gave it.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    if !is_usable() {
        return libc::EPERM;
    }
    if mask & PEER != 0 {
        return not_offered(
            "joining queue pairs by ibv_modify_qp",
            "use the connection manager (rdma_cm; perftest: -R, qperf: -cm1)",
        );
    }
    if mask & IBV_QP_STATE == 0 {
        return 0;
    }
    // SAFETY: the caller's structures.
    let (pair, state) = unsafe { (&*pair.cast::<Pair>(), (*attributes).qp_state) };
    match state {
        IBV_QPS_RESET | IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS => {}
        IBV_QPS_SQD => {
            // Closes gracefully: what rdma_disconnect does on iWARP.
            let _ = pair.pair.modify(State::Closing);
        }
        IBV_QPS_ERR => {
            pair.failed.store(true, Ordering::Release);
            // Not connected yet: nothing to end.
            let _ = pair.pair.modify(State::Error);
            if let Some(runtime) = opened() {
                takes_no_more(runtime, pair);
            }
        }
        _ => return libc::EINVAL,
    }
    pair.abi.state.store(state, Ordering::Relaxed);
    0
}

fn state(pair: &Pair) -> c_int {
    if pair.pair.query().established.is_none() {
        // A queue pair of an RNIC has no state RESET: the kernel's providers of iWARP report INIT for a new one.
        let state = pair.abi.state.load(Ordering::Relaxed);
        return if state == IBV_QPS_RESET { IBV_QPS_INIT } else { state };
    }
    match pair.pair.state() {
        State::Rts => IBV_QPS_RTS,
        State::Closing => IBV_QPS_SQD,
        State::Idle | State::Terminate | State::Error => IBV_QPS_ERR,
    }
}

/// Fills the attributes.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: c_int,
    options: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's structures; all zero is valid.
    unsafe {
        let pair = &*pair.cast::<Pair>();
        let mut known: ibv_qp_attr = std::mem::zeroed();
        known.qp_state = state(pair);
        known.cur_qp_state = known.qp_state;
        pair.abi.state.store(known.qp_state, Ordering::Relaxed);
        known.cap = pair.cap;
        known.port_num = 1;
        let reads = |value: u16| u8::try_from(value).unwrap_or(READS_MAX);
        if let Some(established) = pair.pair.query().established {
            known.max_rd_atomic = reads(established.ord);
            known.max_dest_rd_atomic = reads(established.ird);
        }
        attributes.write(known);
        options.write(ibv_qp_init_attr {
            qp_context: pair.abi.qp_context,
            send_cq: pair.abi.send_cq,
            recv_cq: pair.abi.recv_cq,
            srq: pair.abi.srq,
            cap: pair.cap,
            qp_type: pair.abi.qp_type,
            sq_sig_all: pair.signals_all.into(),
        });
    }
    0
}

/// Returns that data is placed in order: TCP delivers it so.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order(_pair: *mut c_void, _operation: c_int, _flags: u32) -> c_int {
    1
}

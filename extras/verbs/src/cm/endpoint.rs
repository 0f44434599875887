//! Queue pairs of identifiers, and endpoints: identifiers that are resolved and
//! have a queue pair.

use std::{ffi::c_int, ptr};

use crate::{
    abi::{
        IBV_QPS_INIT, RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, ibv_pd, ibv_qp_init_attr,
        ibv_qp_init_attr_ex, ibv_srq_init_attr, rdma_addrinfo, rdma_cm_id,
    },
    channel::{ibv_create_comp_channel, ibv_destroy_comp_channel},
    completion::{ibv_create_cq, ibv_destroy_cq},
    handle::Handle,
    queue_pair::{Pair, ibv_create_qp, ibv_destroy_qp, set_state},
    report::{failed, not_offered, set_errno},
    runtime::is_usable,
    shared_receives::{ibv_create_srq, ibv_destroy_srq},
};

use super::{
    event::{free_event, rdma_get_cm_event},
    id::{Id, Template, rdma_create_id, rdma_destroy_id},
    resolve::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route},
};

/// Bit of `comp_mask` for a domain.
const WITH_DOMAIN: u32 = 1;
/// Time that an endpoint may take to resolve its peer.
const RESOLVE_MS: c_int = 2000;

/// Creates the queue pair of an identifier.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `pd` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    options: *mut ibv_qp_init_attr,
) -> c_int {
    if !is_usable() {
        return failed(libc::EPERM);
    }
    // SAFETY: the caller's objects.
    unsafe {
        let pd = if pd.is_null() { (*id).pd } else { pd };
        // One queue pair per identifier, and none before its device is known.
        if pd.is_null() || !(*id).qp.is_null() || (*id).verbs.is_null() {
            return failed(libc::EINVAL);
        }
        let options = &mut *options;
        if create_queues(id, options) != 0 {
            return -1;
        }
        if options.srq.is_null() {
            options.srq = (*id).srq;
        }
        let pair = ibv_create_qp(pd, options);
        if pair.is_null() {
            destroy_queues(id);
            return -1;
        }
        set_state(Handle(pair.cast::<Pair>()), IBV_QPS_INIT);
        (*id).pd = pd;
        (*id).qp = pair;
    }
    0
}

/// The same with extended options, of which a domain is offered.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); a domain is read if the mask names one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp_ex(id: *mut rdma_cm_id, options: *mut ibv_qp_init_attr_ex) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        let extended = &mut *options;
        if extended.comp_mask & !WITH_DOMAIN != 0 {
            return failed(not_offered(
                "a queue pair with extended options",
                "use rdma_create_qp, and post with ibv_post_send",
            ));
        }
        let pd = if extended.comp_mask & WITH_DOMAIN != 0 { extended.pd } else { ptr::null_mut() };
        let mut base = ibv_qp_init_attr {
            qp_context: extended.qp_context,
            send_cq: extended.send_cq,
            recv_cq: extended.recv_cq,
            srq: extended.srq,
            cap: extended.cap,
            qp_type: extended.qp_type,
            sq_sig_all: extended.sq_sig_all,
        };
        let code = rdma_create_qp(id, pd, &raw mut base);
        extended.cap = base.cap;
        (extended.send_cq, extended.recv_cq) = (base.send_cq, base.recv_cq);
        code
    }
}

/// Creates the completion queues that the options lack.
///
/// # Safety
/// `id` exists.
unsafe fn create_queues(id: *mut rdma_cm_id, options: &mut ibv_qp_init_attr) -> c_int {
    let entries = |count: u32| c_int::try_from(count.max(1)).unwrap_or(c_int::MAX);
    // SAFETY: the caller's identifier.
    unsafe {
        let known = &mut *id;
        if options.send_cq.is_null() {
            known.send_cq_channel = ibv_create_comp_channel(known.verbs);
            let (count, channel) = (entries(options.cap.max_send_wr), known.send_cq_channel);
            known.send_cq = ibv_create_cq(known.verbs, count, id.cast(), channel, 0);
            options.send_cq = known.send_cq;
        }
        if options.recv_cq.is_null() {
            known.recv_cq_channel = ibv_create_comp_channel(known.verbs);
            let (count, channel) = (entries(options.cap.max_recv_wr), known.recv_cq_channel);
            known.recv_cq = ibv_create_cq(known.verbs, count, id.cast(), channel, 0);
            options.recv_cq = known.recv_cq;
        }
        if options.send_cq.is_null() || options.recv_cq.is_null() {
            destroy_queues(id);
            return failed(libc::ENOMEM);
        }
    }
    0
}

/// Destroys the completion queues that belong to an identifier. Sends and
/// receives may have the same: rsocket sets them so.
///
/// # Safety
/// `id` exists, and its queue pair is destroyed.
unsafe fn destroy_queues(id: *mut rdma_cm_id) {
    // SAFETY: the caller's identifier; its queue pair is destroyed.
    unsafe {
        let known = &mut *id;
        let sends = std::mem::replace(&mut known.send_cq, ptr::null_mut());
        let receives = std::mem::replace(&mut known.recv_cq, ptr::null_mut());
        for queue in [sends, if receives == sends { ptr::null_mut() } else { receives }] {
            if !queue.is_null() {
                ibv_destroy_cq(queue);
            }
        }
        let sends = std::mem::replace(&mut known.send_cq_channel, ptr::null_mut());
        let receives = std::mem::replace(&mut known.recv_cq_channel, ptr::null_mut());
        for channel in [sends, if receives == sends { ptr::null_mut() } else { receives }] {
            if !channel.is_null() {
                ibv_destroy_comp_channel(channel);
            }
        }
    }
}

/// Destroys the queue pair of an identifier, with the queues made for it.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); the queue pair of `id`, if any, is used by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the caller's identifier.
    unsafe {
        let pair = std::mem::replace(&mut (*id).qp, ptr::null_mut());
        if !pair.is_null() {
            ibv_destroy_qp(pair);
        }
        destroy_queues(id);
    }
}

/// Creates the shared receive queue of an identifier.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `pd` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    options: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        let pd = if pd.is_null() { (*id).pd } else { pd };
        if pd.is_null() {
            return failed(libc::EINVAL);
        }
        let queue = ibv_create_srq(pd, options);
        if queue.is_null() {
            return -1;
        }
        (*id).pd = pd;
        (*id).srq = queue;
    }
    0
}

/// Destroys the shared receive queue of an identifier.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); the queue of `id`, if any, is used by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: the caller's identifier.
    unsafe {
        let queue = std::mem::replace(&mut (*id).srq, ptr::null_mut());
        if !queue.is_null() {
            ibv_destroy_srq(queue);
        }
    }
}

/// Creates an endpoint: bound, with options for the queue pairs of requests; or
/// resolved, with a queue pair.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `pd` and `options` may be NULL; a domain outlives a listener,
/// which creates queue pairs in it, and so do the queues that `options` names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_ep(
    into: *mut *mut rdma_cm_id,
    addresses: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    options: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        let wanted = &*addresses;
        let mut id = ptr::null_mut();
        if rdma_create_id(ptr::null_mut(), &raw mut id, ptr::null_mut(), wanted.ai_port_space) != 0 {
            return -1;
        }
        let code = if wanted.ai_flags & RAI_PASSIVE != 0 {
            let template = Template(options.as_ref().map(|options| ibv_qp_init_attr {
                // As for an initiator: programs need not fill it (rdma_create_ep(3)).
                qp_type: wanted.ai_qp_type,
                ..*options
            }));
            (*id.cast::<Id>()).inner.template = Some((Handle(pd), template));
            rdma_bind_addr(id, wanted.ai_src_addr)
        } else {
            initiator(id, wanted, pd, options)
        };
        if code != 0 {
            let kept = *libc::__errno_location();
            rdma_destroy_ep(id);
            return failed(kept);
        }
        into.write(id);
    }
    0
}

/// # Safety
/// As for [`rdma_create_ep`]; `id` exists.
unsafe fn initiator(
    id: *mut rdma_cm_id,
    wanted: &rdma_addrinfo,
    pd: *mut ibv_pd,
    options: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        if rdma_resolve_addr(id, wanted.ai_src_addr, wanted.ai_dst_addr, RESOLVE_MS) != 0
            || rdma_resolve_route(id, RESOLVE_MS) != 0
        {
            return -1;
        }
        let Some(chosen) = options.as_mut() else { return 0 };
        chosen.qp_type = wanted.ai_qp_type;
        rdma_create_qp(id, pd, options)
    }
}

/// Destroys an endpoint.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `id` and its queues are not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the caller's identifier, not used after this.
    unsafe {
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        rdma_destroy_id(id);
    }
}

/// Waits for a connection request of an endpoint. A cancellation point.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        if !(*listener.cast::<Id>()).is_sync() {
            return failed(libc::EINVAL);
        }
        free_event(std::mem::replace(&mut (*listener).event, ptr::null_mut()).cast());
        let mut event = ptr::null_mut();
        let code = rdma_get_cm_event((*listener).channel, &raw mut event);
        if code != 0 {
            return code;
        }
        requested(listener, event, id)
    }
}

/// # Safety
/// `listener` exists, `event` is of its channel and not acknowledged, `into` is writable.
unsafe fn requested(
    listener: *mut rdma_cm_id,
    event: *mut crate::abi::rdma_cm_event,
    into: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller's objects, and an event that exists.
    unsafe {
        let about = &*event;
        if about.status != 0 || about.event != RDMA_CM_EVENT_CONNECT_REQUEST {
            let code = if about.status == 0 { libc::EINVAL } else { about.status.abs() };
            free_event(event.cast());
            set_errno(code);
            return -1;
        }
        let id = about.id;
        if let Some((pd, Template(Some(options)))) = &(*listener.cast::<Id>()).inner.template {
            let mut options = *options;
            if rdma_create_qp(id, pd.0, &raw mut options) != 0 {
                let kept = *libc::__errno_location();
                free_event(event.cast());
                rdma_destroy_id(id);
                return failed(kept);
            }
        }
        (*id).event = event;
        into.write(id);
    }
    0
}

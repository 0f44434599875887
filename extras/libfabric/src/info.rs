//! `fi_getinfo`: what is offered, on which addresses.

use std::{
    ffi::{CStr, c_char, c_int},
    net::SocketAddrV4,
    ptr,
};

use clearstream_iwarp::verbs::Attributes;

use crate::{
    abi::*,
    addresses::{self, Given},
    wire,
};

/// Name of the provider, in `FI_PROVIDER`.
pub const NAME: &CStr = c"clearstream";
/// Name of the fabric: the IP network, as other providers over TCP call it.
const FABRIC: &CStr = c"clearstream-iwarp";

/// Largest message that is copied when it is sent: its header is inline data of the same request.
pub const INJECT_BYTES: usize = Attributes::MAX_INLINE_BYTES as usize - wire::EAGER_BYTES;
/// Access to memory of either side; `FI_RMA` alone means all of it (fi_getinfo(3)).
const ACCESS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Capabilities, of endpoints and of both of their directions.
const CAPABILITIES: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | ACCESS
    | FI_SEND
    | FI_RECV
    | FI_DIRECTED_RECV
    | FI_SOURCE
    | FI_MULTI_RECV
    | FI_LOCAL_COMM
    | FI_REMOTE_COMM;
/// Those that the direction of sends does not have.
const OF_RECEIVES: u64 =
    FI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Those that the direction of receives does not have.
const OF_SENDS: u64 = FI_SEND | FI_READ | FI_WRITE;
/// Orders that one connection per peer keeps, whose Sends are taken in the order of the calls: a message, a write and the
/// request of a read after a write, and a message after a message. A read that was asked for before a write is done at any
/// time; a write does not wait for messages that their receiver still reads.
const ORDER: u64 =
    FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW;
/// Limit of one message, read or write: of a Send of the RNIC, with its header.
pub const MESSAGE_MAX: usize = u32::MAX as usize - wire::FULL_BYTES;
/// Segments of a request.
pub const SEGMENTS: usize = 8;

/// Allocates zeroed memory that libfabric frees. Newer versions of a structure are longer: the surplus reads as zero.
fn allocate<T>() -> *mut T {
    const SURPLUS: usize = 512;
    // SAFETY: any size is valid.
    let memory = unsafe { libc::calloc(1, size_of::<T>() + SURPLUS) };
    assert!(!memory.is_null(), "memory is exhausted");
    memory.cast()
}

fn text(from: &CStr) -> *mut c_char {
    // SAFETY: a valid string.
    unsafe { libc::strdup(from.as_ptr()) }
}

fn socket_address(address: SocketAddrV4) -> *mut std::ffi::c_void {
    let to: *mut libc::sockaddr_in = allocate();
    // SAFETY: allocated just now.
    unsafe { to.write(addresses::raw(address)) };
    to.cast()
}

/// What is returned for capabilities that are asked for.
fn granted(requested: u64) -> u64 {
    let access = requested & FI_RMA != 0 && requested & ACCESS == 0;
    match requested {
        0 => CAPABILITIES,
        _ => requested | FI_SEND | FI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | if access { ACCESS } else { 0 },
    }
}

/// Whether hints exclude this provider.
fn excluded(hints: &fi_info) -> bool {
    let beyond = |requested: u64, offered: u64| requested & !offered != 0;
    // SAFETY: attributes of hints are NULL or valid.
    let (ep, domain, tx, rx) = unsafe {
        (hints.ep_attr.as_ref(), hints.domain_attr.as_ref(), hints.tx_attr.as_ref(), hints.rx_attr.as_ref())
    };
    beyond(hints.caps, CAPABILITIES)
        || !matches!(hints.addr_format, FI_FORMAT_UNSPEC | FI_SOCKADDR | FI_SOCKADDR_IN)
        || ep.is_some_and(|ep| {
            !matches!(ep.r#type, FI_EP_UNSPEC | FI_EP_RDM)
                || !matches!(ep.protocol, FI_PROTO_UNSPEC | FI_PROTO_IWARP_RDM)
                || ep.max_msg_size > MESSAGE_MAX
                || ep.max_order_war_size > 0
        })
        || domain.is_some_and(|domain| {
            domain.cq_data_size > 8
                || !matches!(domain.av_type, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE)
                || domain.data_progress == FI_PROGRESS_AUTO
        })
        || tx.is_some_and(|tx| {
            beyond(tx.caps, CAPABILITIES)
                || beyond(tx.msg_order, ORDER)
                || tx.inject_size > INJECT_BYTES
                || tx.iov_limit > SEGMENTS
                || tx.rma_iov_limit > 1
        })
        || rx.is_some_and(|rx| beyond(rx.caps, CAPABILITIES) || rx.iov_limit > SEGMENTS)
}

/// Builds the description for one pair of addresses.
fn describe(
    hints: Option<&fi_info>,
    source: SocketAddrV4,
    destination: Option<SocketAddrV4>,
) -> *mut fi_info {
    let info: *mut fi_info = allocate();
    let (tx, rx): (*mut fi_tx_attr, *mut fi_rx_attr) = (allocate(), allocate());
    let (ep, domain, fabric): (*mut fi_ep_attr, *mut fi_domain_attr, *mut fi_fabric_attr) =
        (allocate(), allocate(), allocate());
    // SAFETY: allocated just now, zero is valid for each member; attributes of hints are NULL or valid.
    unsafe {
        let wished = hints.map_or((0, 0), |hints| {
            // Not offered as the default of an endpoint, which the program sees in what is returned: MPICH asks for it
            // on behalf of writes to memory, which have it anyway, and messages would wait for their receivers.
            let of_tx = hints.tx_attr.as_ref().map_or(0, |tx| tx.op_flags & !FI_DELIVERY_COMPLETE);
            (of_tx, hints.rx_attr.as_ref().map_or(0, |rx| rx.op_flags))
        });
        let caps = granted(hints.map_or(0, |hints| hints.caps));
        let info = &mut *info;
        (info.caps, info.addr_format) = (caps, FI_SOCKADDR_IN);
        info.src_addrlen = size_of::<libc::sockaddr_in>();
        info.src_addr = socket_address(source);
        if let Some(destination) = destination {
            info.dest_addrlen = size_of::<libc::sockaddr_in>();
            info.dest_addr = socket_address(destination);
        }
        (info.tx_attr, info.rx_attr, info.ep_attr) = (tx, rx, ep);
        (info.domain_attr, info.fabric_attr) = (domain, fabric);
        let tx = &mut *tx;
        (tx.caps, tx.op_flags, tx.msg_order) = (caps & !OF_RECEIVES, wished.0, ORDER);
        (tx.inject_size, tx.size, tx.iov_limit, tx.rma_iov_limit) = (INJECT_BYTES, 1024, SEGMENTS, 1);
        let rx = &mut *rx;
        (rx.caps, rx.op_flags, rx.msg_order) = (caps & !OF_SENDS, wished.1, ORDER);
        (rx.size, rx.iov_limit) = (1024, SEGMENTS);
        let ep = &mut *ep;
        (ep.r#type, ep.protocol, ep.protocol_version) = (FI_EP_RDM, FI_PROTO_IWARP_RDM, 1);
        (ep.max_msg_size, ep.mem_tag_format, ep.tx_ctx_cnt, ep.rx_ctx_cnt) =
            (MESSAGE_MAX, FI_TAG_GENERIC, 1, 1);
        (ep.max_order_raw_size, ep.max_order_waw_size) = (MESSAGE_MAX, MESSAGE_MAX);
        let domain = &mut *domain;
        domain.name = text(NAME);
        let wished = hints.and_then(|hints| hints.domain_attr.as_ref());
        // Every model is served: what the program says is returned, as MPICH expects.
        let of_program = |value: u32, otherwise| if value == 0 { otherwise } else { value };
        let (threading, control) =
            wished.map_or((0, 0), |wished| (wished.threading, wished.control_progress));
        (domain.threading, domain.resource_mgmt) = (of_program(threading, FI_THREAD_SAFE), FI_RM_ENABLED);
        (domain.control_progress, domain.data_progress) =
            (of_program(control, FI_PROGRESS_AUTO), FI_PROGRESS_MANUAL);
        // As libfabric's own providers: programs take the numbers of a table, which they asked for, to count from 0.
        domain.av_type = wished.map_or(FI_AV_UNSPEC, |wished| wished.av_type);
        (domain.cq_data_size, domain.mr_key_size, domain.cq_cnt, domain.ep_cnt) = (8, 8, 256, 256);
        (domain.tx_ctx_cnt, domain.rx_ctx_cnt, domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (256, 256, 1, 1);
        (domain.caps, domain.mr_iov_limit) = (FI_LOCAL_COMM | FI_REMOTE_COMM, 1);
        (*fabric).name = text(FABRIC);
    }
    info
}

/// `getinfo` of the provider.
///
/// # Safety
/// [The contract of this library](crate#safety); `node`, `service` and `hints` may be NULL; attributes and addresses
/// of `hints` too.
pub unsafe extern "C" fn getinfo(
    _version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    into: *mut *mut fi_info,
) -> c_int {
    // SAFETY: NULL or valid, as the other arguments.
    let hints = unsafe { hints.as_ref() };
    if hints.is_some_and(excluded) {
        return -FI_ENODATA;
    }
    // SAFETY: as above.
    let given = unsafe {
        let hinted = |address: *mut std::ffi::c_void| addresses::parse(address.cast_const().cast());
        let from_hints =
            hints.map_or((None, None), |hints| (hinted(hints.src_addr), hinted(hints.dest_addr)));
        let named = addresses::resolve(node, service);
        match named {
            Err(addresses::Unresolved) => return -FI_ENODATA,
            Ok(Some(named)) if flags & FI_SOURCE != 0 => {
                Given { source: Some(named), destination: from_hints.1 }
            }
            Ok(named) => Given { source: from_hints.0, destination: named.or(from_hints.1) },
        }
    };
    let mut first: *mut fi_info = ptr::null_mut();
    for source in addresses::sources(&given).into_iter().rev() {
        let info = describe(hints, source, given.destination);
        // SAFETY: of `describe`.
        unsafe { (*info).next = first };
        first = info;
    }
    if first.is_null() {
        return -FI_ENODATA;
    }
    // SAFETY: the caller's variable.
    unsafe { into.write(first) };
    0
}

//! The device and what it reports of itself.

use std::{
    ffi::{c_char, c_int},
    net::IpAddr,
    ptr,
    sync::OnceLock,
};

use crate::{
    abi::{
        IBV_ATOMIC_HCA, IBV_LINK_LAYER_ETHERNET, IBV_MTU_1024, IBV_MTU_4096, IBV_NODE_RNIC, IBV_PORT_ACTIVE,
        IBV_PORT_PHYS_LINK_UP, IBV_TRANSPORT_IWARP, ibv_context, ibv_device, ibv_device_attr,
        ibv_device_attr_ex, ibv_gid_entry, ibv_port_attr,
    },
    address,
    handle::{Handle, keep},
    report::{null, set_errno},
    runtime::{is_usable, runtime, settings},
};

/// Maximum number of requests of a queue that programs are told.
pub const DEPTH_MAX: u32 = 32_768;
/// Maximum number of completions of a queue.
pub const COMPLETIONS_MAX: u32 = 1 << 22;
/// Maximum number of segments of a request.
pub const SEGMENTS_MAX: u32 = 16;
/// Maximum number of outstanding Reads.
pub const READS_MAX: u8 = 128;
/// Longest message, in bytes.
pub const MESSAGE_MAX: u32 = i32::MAX as u32;
/// Vendor: none, as of the kernel's software RDMA (rxe).
const VENDOR: u32 = 0x00ff_ffff;
/// Bytes of the layout that `ibv_query_port` fills: all before `link_layer`.
const OLD_PORT_BYTES: usize = std::mem::offset_of!(ibv_port_attr, link_layer);

/// The device, and room for the members that libibverbs counts its users in (`struct verbs_device` of driver.h).
#[repr(C)]
struct Device {
    abi: ibv_device,
    zeros: [u64; 64],
}

/// Returns the device, which is never freed.
pub fn device() -> *mut ibv_device {
    static DEVICE: OnceLock<Handle<Device>> = OnceLock::new();
    let make = || {
        let name = settings().map_or("clearstream0", |settings| settings.name.as_str());
        let abi = ibv_device {
            ops: [ptr::null_mut(); 2],
            node_type: IBV_NODE_RNIC,
            transport_type: IBV_TRANSPORT_IWARP,
            name: text(name),
            dev_name: text("uverbs0"),
            dev_path: text("/sys/class/infiniband_verbs/uverbs0"),
            ibdev_path: text(&format!("/sys/class/infiniband/{name}")),
        };
        Handle(keep(Device { abi, zeros: [0; 64] }))
    };
    DEVICE.get_or_init(make).0.cast()
}

fn text<const LENGTH: usize>(value: &str) -> [c_char; LENGTH] {
    let mut text = [0; LENGTH];
    for (place, byte) in text.iter_mut().take(LENGTH - 1).zip(value.bytes()) {
        *place = byte as c_char;
    }
    text
}

/// Address of the GID.
pub fn device_address() -> IpAddr {
    static ADDRESS: OnceLock<IpAddr> = OnceLock::new();
    let find = || settings().and_then(|settings| settings.address).unwrap_or_else(address::of_this_host);
    *ADDRESS.get_or_init(find)
}

/// GUID: locally administered, with the end of the address.
fn guid() -> u64 {
    let gid = address::gid(device_address());
    u64::from_ne_bytes([0x02, 0x63, 0x73, 0, gid[12], gid[13], gid[14], gid[15]])
}

/// Allocates a list that ends with NULL.
pub fn list<T>(items: [*mut T; 2]) -> *mut *mut T {
    // SAFETY: allocated with the size of the items.
    unsafe {
        let list = libc::malloc(size_of_val(&items)).cast::<[*mut T; 2]>();
        if !list.is_null() {
            list.write(items);
        }
        list.cast()
    }
}

/// Lists the devices: one, or none when the settings are invalid.
///
/// # Safety
/// [The contract of this library](crate#safety); `count` may be NULL; the program frees the list by
/// [`ibv_free_device_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let first = if settings().is_some() && is_usable() { device() } else { ptr::null_mut() };
    // SAFETY: NULL or the caller's variable.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = (!first.is_null()).into();
    }
    list([first, ptr::null_mut()])
}

/// Frees the list.
///
/// # Safety
/// `list` is NULL or of [`ibv_get_device_list`], and not used after this; its devices stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: of `ibv_get_device_list`.
    unsafe { libc::free(list.cast()) };
}

/// Returns the name.
///
/// # Safety
/// [The contract of this library](crate#safety); the name is never freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: of `ibv_get_device_list`.
    unsafe { (&raw const (*device).name).cast() }
}

/// Returns the GUID, in network order.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    guid()
}

/// Returns the index: there is one device.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    0
}

/// Fills the attributes of the device.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(_context: *mut ibv_context, into: *mut ibv_device_attr) -> c_int {
    let reads = c_int::from(READS_MAX);
    let depth = DEPTH_MAX as c_int;
    // SAFETY: all zero is valid.
    let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
    attributes.fw_ver = text(env!("CARGO_PKG_VERSION"));
    attributes.node_guid = guid();
    attributes.sys_image_guid = guid();
    attributes.max_mr_size = u64::MAX;
    attributes.page_size_cap = 0xffff_f000;
    attributes.vendor_id = VENDOR;
    attributes.max_qp = 1 << 16;
    attributes.max_qp_wr = depth;
    attributes.max_sge = SEGMENTS_MAX as c_int;
    attributes.max_sge_rd = 1;
    attributes.max_cq = 1 << 16;
    attributes.max_cqe = COMPLETIONS_MAX as c_int;
    attributes.max_mr = 1 << 20;
    attributes.max_pd = 1 << 16;
    attributes.max_qp_rd_atom = reads;
    attributes.max_res_rd_atom = reads << 16;
    attributes.max_qp_init_rd_atom = reads;
    attributes.atomic_cap = IBV_ATOMIC_HCA;
    attributes.max_srq = 1 << 16;
    attributes.max_srq_wr = depth;
    attributes.max_srq_sge = SEGMENTS_MAX as c_int;
    attributes.max_pkeys = 1;
    attributes.phys_port_cnt = 1;
    // SAFETY: the caller's variable.
    unsafe { into.write(attributes) };
    0
}

/// Fills at most `length` bytes of the extended attributes; `input` begins with a mask of what none is defined for.
///
/// # Safety
/// [The contract of this library](crate#safety); `input` may be NULL; `into` has room for `length` bytes.
pub unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const u32,
    into: *mut ibv_device_attr_ex,
    length: usize,
) -> c_int {
    // SAFETY: NULL or the caller's structure.
    if unsafe { input.as_ref() }.is_some_and(|mask| *mask != 0) || length < size_of::<ibv_device_attr>() {
        return libc::EINVAL;
    }
    // SAFETY: all zero is valid; the caller's structure has `length` bytes.
    unsafe {
        let mut known: ibv_device_attr_ex = std::mem::zeroed();
        ibv_query_device(context, &raw mut known.orig_attr);
        known.phys_port_cnt_ex = known.orig_attr.phys_port_cnt.into();
        copy_known(&known, into, length);
    }
    0
}

/// Fills a structure of `length` bytes: members that are not known are zero.
///
/// # Safety
/// `into` has room for `length` bytes.
unsafe fn copy_known<T>(known: &T, into: *mut T, length: usize) {
    // SAFETY: as required of the caller.
    unsafe {
        ptr::write_bytes(into.cast::<u8>(), 0, length);
        let known = ptr::from_ref(known).cast::<u8>();
        ptr::copy_nonoverlapping(known, into.cast::<u8>(), length.min(size_of::<T>()));
    }
}

fn port() -> ibv_port_attr {
    ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        max_mtu: IBV_MTU_4096,
        active_mtu: IBV_MTU_1024,
        gid_tbl_len: 1,
        port_cap_flags: 0,
        max_msg_sz: MESSAGE_MAX,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 0,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: 2,
        active_speed: 4,
        phys_state: IBV_PORT_PHYS_LINK_UP,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: 0,
        port_cap_flags2: 0,
    }
}

/// Fills at most `length` bytes of the attributes of port 1.
///
/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `length` bytes.
pub unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    number: u8,
    into: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    if number != 1 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's structure has `length` bytes.
    unsafe { copy_known(&port(), into, length) };
    0
}

/// The same in the layout of old programs.
///
/// # Safety
/// [The contract of this library](crate#safety); `into` has room for all before `link_layer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    number: u8,
    into: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's structure ends before `link_layer`.
    unsafe { query_port(context, number, into, OLD_PORT_BYTES) }
}

/// Fills the GID.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    number: u8,
    index: c_int,
    into: *mut [u8; 16],
) -> c_int {
    if number != 1 || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's variable.
    unsafe { into.write(address::gid(device_address())) };
    0
}

fn gid_entry() -> ibv_gid_entry {
    let gid = address::gid(device_address());
    let half = |from: usize| u64::from_ne_bytes(std::array::from_fn(|at| gid[from + at]));
    ibv_gid_entry { gid: [half(0), half(8)], gid_index: 0, port_num: 1, gid_type: 0, ndev_ifindex: 0 }
}

/// Fills the entry of the GID table.
///
/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    _context: *mut ibv_context,
    number: u32,
    index: u32,
    into: *mut ibv_gid_entry,
    _flags: u32,
    size: usize,
) -> c_int {
    if number != 1 || index != 0 || size < size_of::<ibv_gid_entry>() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's variable.
    unsafe { into.write(gid_entry()) };
    0
}

/// Fills the GID table; returns the number of entries.
///
/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `count` entries of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    _context: *mut ibv_context,
    into: *mut ibv_gid_entry,
    count: usize,
    _flags: u32,
    size: usize,
) -> isize {
    // The table has one entry, which must fit.
    if size < size_of::<ibv_gid_entry>() || count < 1 {
        return -libc::EINVAL as isize;
    }
    // SAFETY: the caller's table has `count` entries.
    unsafe { into.write(gid_entry()) };
    1
}

/// Returns the type of the GID: that of InfiniBand, which iWARP reports.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut ibv_context,
    _number: u8,
    _index: u32,
    into: *mut c_int,
) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { into.write(0) };
    0
}

/// Fills the partition key.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    _number: u8,
    index: c_int,
    into: *mut u16,
) -> c_int {
    if index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's variable.
    unsafe { into.write(u16::MAX) };
    0
}

/// Returns the index of the partition key.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, _number: u8, key: u16) -> c_int {
    if key == u16::MAX { 0 } else { -1 }
}

/// Memory of the parent needs no protection from a fork: the RNIC is part of
/// the process.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Returns IBV_FORK_UNNEEDED.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}

/// Contexts of other processes are not offered.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_device(_fd: c_int) -> *mut ibv_context {
    let _opened = runtime();
    null(crate::report::not_offered("ibv_import_device", "open the device in each process"))
}

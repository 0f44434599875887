//! Fabrics, domains, address vectors and event queues: what an endpoint is made of.

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
    net::SocketAddrV4,
    ptr,
    sync::{Arc, Mutex},
};

use crate::{
    abi::*,
    addresses,
    completion::{self, locked},
    counter, endpoint, memory,
};

static FABRIC_OBJECT: Table<6> = Table::new([close_fabric as *const (), NONE, NONE, NONE, NONE, NONE]);
static FABRIC: Table<6> =
    Table::new([domain as *const (), NONE, events as *const (), NONE, trywait as *const (), NONE]);
static DOMAIN_OBJECT: Table<6> = Table::new([close_domain as *const (), NONE, NONE, NONE, NONE, NONE]);
static DOMAIN: Table<11> = Table::new([
    vector as *const (),
    completion::open as *const (),
    endpoint::open as *const (),
    NONE,
    counter::open as *const (),
    NONE,
    NONE,
    NONE,
    NONE,
    NONE,
    NONE,
]);
static VECTOR_OBJECT: Table<6> = Table::new([close_vector as *const (), NONE, NONE, NONE, NONE, NONE]);
static VECTOR: Table<7> =
    Table::new([insert as *const (), NONE, NONE, remove as *const (), lookup as *const (), NONE, NONE]);
static EVENTS_OBJECT: Table<6> = Table::new([close_events as *const (), NONE, NONE, NONE, NONE, NONE]);
static EVENTS: Table<5> =
    Table::new([no_event as *const (), no_event as *const (), NONE, no_event as *const (), NONE]);

/// `fi_fabric`.
///
/// # Safety
/// [The contract of this library](crate#safety).
pub unsafe extern "C" fn fabric(
    attributes: *mut fi_fabric_attr,
    into: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's attributes.
    let api_version = unsafe { (*attributes).api_version };
    let fabric = fid_fabric {
        fid: fid { fclass: FI_CLASS_FABRIC, context, ops: FABRIC_OBJECT.address() },
        ops: FABRIC.address(),
        api_version,
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(fabric)).cast()) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close_fabric(fabric: *mut fid_fabric) -> c_int {
    // SAFETY: of `fabric`, and not used after this.
    drop(unsafe { Box::from_raw(fabric) });
    0
}

extern "C" fn trywait() -> c_int {
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn domain(
    _fabric: *mut fid_fabric,
    _info: *mut fi_info,
    into: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    let domain = fid_domain {
        fid: fid { fclass: FI_CLASS_DOMAIN, context, ops: DOMAIN_OBJECT.address() },
        ops: DOMAIN.address(),
        mr: memory::OPERATIONS.address(),
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(domain))) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close_domain(domain: *mut fid_domain) -> c_int {
    // SAFETY: of `domain`, and not used after this.
    drop(unsafe { Box::from_raw(domain) });
    0
}

/// Event queue: nothing of this provider is reported there.
///
/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn events(
    _fabric: *mut fid_fabric,
    _attributes: *mut c_void,
    into: *mut *mut fid_one,
    context: *mut c_void,
) -> c_int {
    let events = fid_one {
        fid: fid { fclass: FI_CLASS_EQ, context, ops: EVENTS_OBJECT.address() },
        ops: EVENTS.address(),
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(events))) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close_events(events: *mut fid_one) -> c_int {
    // SAFETY: of `events`, and not used after this.
    drop(unsafe { Box::from_raw(events) });
    0
}

extern "C" fn no_event() -> isize {
    -(FI_EAGAIN as isize)
}

/// Addresses of peers, by number.
#[derive(Default)]
pub struct Addresses {
    list: Vec<Option<SocketAddrV4>>,
    numbers: HashMap<SocketAddrV4, u64>,
}

impl Addresses {
    /// The address of a number.
    pub fn address(&self, number: u64) -> Option<SocketAddrV4> {
        *self.list.get(usize::try_from(number).ok()?)?
    }

    /// The number of an address, or `FI_ADDR_UNSPEC`.
    pub fn number(&self, address: SocketAddrV4) -> u64 {
        self.numbers.get(&address).copied().unwrap_or(FI_ADDR_UNSPEC)
    }
}

/// Address vector (fi_av(3)).
#[repr(C)]
pub struct Vector {
    abi: fid_one,
    /// Its addresses.
    pub addresses: Arc<Mutex<Addresses>>,
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn vector(
    _domain: *mut fid_domain,
    _attributes: *mut fi_av_attr,
    into: *mut *mut Vector,
    context: *mut c_void,
) -> c_int {
    let vector = Vector {
        abi: fid_one {
            fid: fid { fclass: FI_CLASS_AV, context, ops: VECTOR_OBJECT.address() },
            ops: VECTOR.address(),
        },
        addresses: Arc::default(),
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(vector))) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close_vector(vector: *mut Vector) -> c_int {
    // SAFETY: of `vector`, and not used after this.
    drop(unsafe { Box::from_raw(vector) });
    0
}

/// # Safety
/// [The contract of this library](crate#safety); `from` has `count` addresses of the format of this provider, `into`
/// is NULL or has room for as many numbers.
unsafe extern "C" fn insert(
    vector: *mut Vector,
    from: *const libc::sockaddr_in,
    count: usize,
    into: *mut u64,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: of `vector`.
    let mut known = locked(unsafe { &(*vector).addresses });
    let mut inserted = 0;
    for at in 0..count {
        // SAFETY: the caller's addresses, of the format of this provider.
        let address = unsafe { addresses::parse(from.add(at)) };
        let number = known.list.len() as u64;
        if let Some(address) = address {
            known.list.push(Some(address));
            known.numbers.entry(address).or_insert(number);
            inserted += 1;
        }
        if !into.is_null() {
            // SAFETY: the caller has room for `count` numbers.
            unsafe { into.add(at).write(address.map_or(FI_ADDR_UNSPEC, |_| number)) };
        }
    }
    inserted
}

/// # Safety
/// [The contract of this library](crate#safety); `numbers` has `count` of them.
unsafe extern "C" fn remove(vector: *mut Vector, numbers: *const u64, count: usize, _flags: u64) -> c_int {
    // SAFETY: of `vector`.
    let mut known = locked(unsafe { &(*vector).addresses });
    for at in 0..count {
        // SAFETY: the caller's numbers.
        let number = unsafe { *numbers.add(at) };
        let place = usize::try_from(number).ok().and_then(|number| known.list.get_mut(number));
        if let Some(address) = place.and_then(Option::take)
            && known.number(address) == number
        {
            known.numbers.remove(&address);
        }
    }
    0
}

/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `length` bytes.
unsafe extern "C" fn lookup(vector: *mut Vector, number: u64, into: *mut u8, length: *mut usize) -> c_int {
    // SAFETY: of `vector`.
    let Some(address) = locked(unsafe { &(*vector).addresses }).address(number) else { return -FI_EINVAL };
    // SAFETY: the caller's memory and its length.
    unsafe { write_address(address, into, length) };
    0
}

/// Writes an address, as much of it as there is room for; returns whether all of it fitted.
///
/// # Safety
/// `into` has room for `length` bytes.
pub unsafe fn write_address(address: SocketAddrV4, into: *mut u8, length: *mut usize) -> bool {
    let raw = addresses::raw(address);
    // SAFETY: as required of the caller.
    unsafe {
        let room = length.read();
        ptr::copy_nonoverlapping(ptr::from_ref(&raw).cast::<u8>(), into, room.min(size_of_val(&raw)));
        length.write(size_of_val(&raw));
        room >= size_of_val(&raw)
    }
}

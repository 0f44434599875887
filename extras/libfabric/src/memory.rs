//! Memory regions (fi_mr(3)). Requests need none: a program that registers memory all the same, for its own requests, gets
//! an empty one. A region that peers may read or write is known to all endpoints of its domain, by the key that the program
//! chose; what peers name in it are offsets.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{c_int, c_void},
    ptr,
    sync::{Arc, Mutex, Weak},
};

use crate::{abi::*, completion::locked, domain::Domain, engine::Core};

/// Access of peers.
const OF_PEERS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Functions of a domain.
pub static OPERATIONS: Table<3> =
    Table::new([register as *const (), register_pieces as *const (), register_as as *const ()]);
static OBJECT: Table<6> = Table::new([close as *const (), NONE, NONE, NONE, NONE, NONE]);

/// Memory that peers may read or write, of one domain.
#[derive(Default)]
pub struct Regions {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    by_key: HashMap<u64, Range>,
    /// Regions so far: a key that is used again is another region.
    count: u64,
    endpoints: Vec<Weak<Core>>,
}

/// Memory of a region.
struct Range {
    number: u64,
    /// Address with exposed provenance.
    base: usize,
    length: usize,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE`.
    access: u64,
}

/// A part of a region.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Number of the region.
    pub region: u64,
    /// Address with exposed provenance.
    pub base: usize,
    /// The region begins at NULL: it is the address space, of which the program allocates what it likes (`FI_MR_ALLOCATED`
    /// is not demanded). MPI libraries register that for dynamic windows.
    pub is_sparse: bool,
}

impl Regions {
    /// Adds an endpoint, from which a region is withdrawn when it is closed.
    pub fn attach(&self, endpoint: &Arc<Core>) {
        let endpoints = &mut locked(&self.open).endpoints;
        endpoints.retain(|known| known.strong_count() > 0);
        endpoints.push(Arc::downgrade(endpoint));
    }

    /// A range of the region of a key that grants `access`; `None` without such a region, or beyond its end.
    pub fn range(&self, key: u64, offset: u64, length: usize, access: u64) -> Option<Part> {
        let open = locked(&self.open);
        let region = open.by_key.get(&key).filter(|region| region.access & access == access)?;
        let offset = usize::try_from(offset).ok()?;
        let inside = offset.checked_add(length).is_some_and(|end| end <= region.length);
        inside.then(|| Part {
            region: region.number,
            base: region.base + offset,
            is_sparse: region.base == 0,
        })
    }

    fn insert(&self, key: u64, piece: &libc::iovec, access: u64) -> Result<(), i32> {
        if (piece.iov_base.addr()).checked_add(piece.iov_len).is_none() {
            return Err(FI_EINVAL);
        }
        let mut open = locked(&self.open);
        open.count += 1;
        let number = open.count;
        let Entry::Vacant(place) = open.by_key.entry(key) else { return Err(FI_ENOKEY) };
        let base = piece.iov_base.expose_provenance();
        place.insert(Range { number, base, length: piece.iov_len, access });
        Ok(())
    }

    /// Closes the region of a key.
    fn remove(&self, key: u64) {
        let (region, endpoints) = {
            let mut open = locked(&self.open);
            (open.by_key.remove(&key), open.endpoints.clone())
        };
        let Some(Range { number, .. }) = region else { return };
        // An endpoint that found it meanwhile holds its lock until it knows what it has offered.
        for endpoint in endpoints.iter().filter_map(Weak::upgrade) {
            endpoint.with(|engine| engine.withdraw(number));
        }
    }
}

/// The program's handle.
#[repr(C)]
struct Region {
    abi: fid_mr,
    /// Where peers find it, if they may read or write it.
    exposed_in: Option<Arc<Regions>>,
}

/// # Safety
/// [The contract of this library](crate#safety); what peers may read or write is that until the region
/// is closed, but for what is not mapped in one that begins at NULL.
unsafe extern "C" fn register(
    domain: *mut Domain,
    buffer: *const c_void,
    length: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    into: *mut *mut Region,
    context: *mut c_void,
) -> c_int {
    let piece = libc::iovec { iov_base: buffer.cast_mut(), iov_len: length };
    // SAFETY: the caller's domain, memory and variable.
    unsafe { open(domain, &[piece], access, key, context, into) }
}

/// # Safety
/// [The contract of this library](crate#safety); as for [`register`].
unsafe extern "C" fn register_pieces(
    domain: *mut Domain,
    pieces: *const libc::iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    into: *mut *mut Region,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's domain, memory and variable.
    unsafe { open(domain, list(pieces, count), access, key, context, into) }
}

/// # Safety
/// [The contract of this library](crate#safety); as for [`register`].
unsafe extern "C" fn register_as(
    domain: *mut Domain,
    attributes: *const fi_mr_attr,
    _flags: u64,
    into: *mut *mut Region,
) -> c_int {
    // SAFETY: the caller's domain, attributes, memory and variable.
    unsafe {
        let of = &*attributes;
        open(domain, list(of.mr_iov, of.iov_count), of.access, of.requested_key, of.context, into)
    }
}

/// An array of the C library.
///
/// # Safety
/// `pieces` has `count` entries.
unsafe fn list<'a>(pieces: *const libc::iovec, count: usize) -> &'a [libc::iovec] {
    // SAFETY: as required of the caller; without entries it may be NULL.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pieces, count) } }
}

/// # Safety
/// `domain` exists, `into` is writable; what peers may read or write is that until the region is closed.
unsafe fn open(
    domain: *mut Domain,
    pieces: &[libc::iovec],
    access: u64,
    key: u64,
    context: *mut c_void,
    into: *mut *mut Region,
) -> c_int {
    if access & !(FI_SEND | FI_RECV | FI_READ | FI_WRITE | OF_PEERS) != 0 {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: of `domain`.
    let regions = unsafe { &(*domain).regions };
    let exposed = access & OF_PEERS != 0;
    if exposed {
        // `mr_iov_limit` is 1.
        let [piece] = pieces else { return -FI_EINVAL };
        if let Err(code) = regions.insert(key, piece, access & OF_PEERS) {
            return -code;
        }
    }
    let fid = fid { fclass: FI_CLASS_MR, context, ops: OBJECT.address() };
    let abi = fid_mr { fid, mem_desc: ptr::null_mut(), key };
    let region = Box::new(Region { abi, exposed_in: exposed.then(|| regions.clone()) });
    // SAFETY: as required of the caller.
    unsafe { into.write(Box::into_raw(region)) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close(region: *mut Region) -> c_int {
    // SAFETY: of `open`, and not used after this.
    let region = unsafe { Box::from_raw(region) };
    if let Some(regions) = &region.exposed_in {
        regions.remove(region.abi.key);
    }
    0
}

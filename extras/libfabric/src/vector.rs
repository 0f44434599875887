//! Address vectors (fi_av(3)): the identity of peers.
//!
//! An address has one number for the life of its vector, however often it is inserted: a message from it matches a receive
//! that names it, whichever insertion gave the number. MPI libraries insert a peer once more for each intercommunicator. As
//! in the address vectors that libfabric's own providers share, an address is known until it was removed as often as it was
//! inserted.

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
    net::SocketAddrV4,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{abi::*, addresses, completion::locked};

static OBJECT: Table<6> = Table::new([close as *const (), NONE, NONE, NONE, NONE, NONE]);
static VECTOR: Table<7> =
    Table::new([insert as *const (), NONE, NONE, remove as *const (), lookup as *const (), NONE, NONE]);

/// Addresses of peers, by number.
#[derive(Default)]
pub struct Addresses {
    known: Mutex<Known>,
    /// Addresses that ceased to be known: what was looked up before may be one of them.
    removals: AtomicU64,
}

#[derive(Default)]
struct Known {
    /// Address of each number, and how often it is inserted.
    list: Vec<(SocketAddrV4, u64)>,
    numbers: HashMap<SocketAddrV4, u64>,
}

impl Known {
    fn entry(&mut self, number: u64) -> Option<&mut (SocketAddrV4, u64)> {
        self.list.get_mut(usize::try_from(number).ok()?).filter(|(_, insertions)| *insertions > 0)
    }
}

impl Addresses {
    /// Inserts an address; returns its number.
    pub fn insert(&self, address: SocketAddrV4) -> u64 {
        let mut known = locked(&self.known);
        let next = known.list.len() as u64;
        let number = *known.numbers.entry(address).or_insert(next);
        if number == next {
            known.list.push((address, 0));
        }
        if let Some((_, insertions)) = known.list.get_mut(number as usize) {
            *insertions += 1;
        }
        number
    }

    /// Takes one insertion of a number back.
    pub fn remove(&self, number: u64) {
        if let Some((_, insertions)) = locked(&self.known).entry(number) {
            *insertions -= 1;
            if *insertions == 0 {
                self.removals.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// The address of a number.
    pub fn address(&self, number: u64) -> Option<SocketAddrV4> {
        locked(&self.known).entry(number).map(|(address, _)| *address)
    }

    /// The number of an address, or `FI_ADDR_UNSPEC`.
    pub fn number(&self, address: SocketAddrV4) -> u64 {
        let mut known = locked(&self.known);
        let number = known.numbers.get(&address).copied();
        number.filter(|number| known.entry(*number).is_some()).unwrap_or(FI_ADDR_UNSPEC)
    }

    /// Changes when an address ceases to be known.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }
}

/// The program's handle.
#[repr(C)]
pub struct Vector {
    abi: fid_one,
    /// Its addresses.
    pub addresses: Arc<Addresses>,
}

/// `fi_av_open`.
///
/// # Safety
/// [The contract of this library](crate#safety); `attributes` may be NULL.
pub unsafe extern "C" fn open(
    _domain: *mut fid_domain,
    attributes: *mut fi_av_attr,
    into: *mut *mut Vector,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's attributes.
    if let Some(wanted) = unsafe { attributes.as_ref() } {
        if !matches!(wanted.r#type, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE) {
            return -FI_EINVAL;
        }
        // A name stands for a vector that processes share, whose numbers are at `map_addr`: MPICH reads them there after
        // success. Insertions are done when the call returns, without an event.
        if !wanted.name.is_null() || wanted.flags & (FI_READ | FI_EVENT) != 0 {
            return -FI_ENOSYS;
        }
    }
    let vector = Vector {
        abi: fid_one {
            fid: fid { fclass: FI_CLASS_AV, context, ops: OBJECT.address() },
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
unsafe extern "C" fn close(vector: *mut Vector) -> c_int {
    // SAFETY: of `open`, and not used after this.
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
    // SAFETY: of `open`.
    let known = unsafe { &(*vector).addresses };
    let mut inserted = 0;
    for at in 0..count {
        // SAFETY: the caller's addresses, of the format of this provider.
        let number = unsafe { addresses::parse(from.add(at)) }.map(|address| known.insert(address));
        inserted += c_int::from(number.is_some());
        if !into.is_null() {
            // SAFETY: the caller has room for `count` numbers.
            unsafe { into.add(at).write(number.unwrap_or(FI_ADDR_UNSPEC)) };
        }
    }
    inserted
}

/// # Safety
/// [The contract of this library](crate#safety); `numbers` has `count` of them.
unsafe extern "C" fn remove(vector: *mut Vector, numbers: *const u64, count: usize, _flags: u64) -> c_int {
    // SAFETY: of `open`.
    let known = unsafe { &(*vector).addresses };
    for at in 0..count {
        // SAFETY: the caller's numbers.
        known.remove(unsafe { *numbers.add(at) });
    }
    0
}

/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `length` bytes.
unsafe extern "C" fn lookup(vector: *mut Vector, number: u64, into: *mut u8, length: *mut usize) -> c_int {
    // SAFETY: of `open`.
    let Some(address) = unsafe { &(*vector).addresses }.address(number) else { return -FI_EINVAL };
    // SAFETY: the caller's memory and its length.
    unsafe { addresses::write(address, into, length) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::Ipv4Addr;

    #[test]
    fn an_address_has_one_number_until_it_was_removed_as_often_as_inserted() {
        let [one, other] = [1, 2].map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let known = Addresses::default();
        let number = known.insert(one);
        assert_eq!(known.insert(one), number);
        assert_ne!(known.insert(other), number);
        known.remove(number);
        assert_eq!((known.address(number), known.number(one), known.removals()), (Some(one), number, 0));
        known.remove(number);
        assert_eq!((known.address(number), known.number(one)), (None, FI_ADDR_UNSPEC));
        assert_eq!(known.removals(), 1);
        // Once too often, and a number that never was.
        known.remove(number);
        known.remove(7);
        assert_eq!((known.insert(one), known.address(number), known.removals()), (number, Some(one), 1));
    }
}

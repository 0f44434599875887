//! Foreign memory.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clearstream_iwarp::{
    memory::{Access, AccessError, Piece, raw, receive, send},
    mpa::Crc,
    work::Segment,
};

use crate::memory::{PAIR, all, table};

#[test]
fn foreign_memory_belongs_to_its_owner_after_deregistration() {
    let (table, domain) = table();
    let memory = Box::leak(Box::new([0_u64; 8]));
    let base = NonNull::from(&mut *memory).cast();
    // SAFETY: allocated, and untouched until it is deregistered below.
    let stag = unsafe { raw::register(&table, domain, base, 64, 0x100, all(), 3, None) }.unwrap();
    assert_eq!(stag.key(), 3);
    let span = table.remote(domain, PAIR, stag, 0x100, 64, Access::REMOTE_WRITE).unwrap();
    span.write(8, b"from afar").unwrap();
    let counter = span.slice(0, 8);
    assert_eq!(counter.fetch_add(5, 0), Ok(0));
    table.deregister(stag).unwrap();

    // SAFETY: leaked above, and nobody else uses it any longer.
    let memory = unsafe { Box::from_raw(base.cast::<[u64; 8]>().as_ptr()) };
    assert_eq!(memory[0], 5);
    assert_eq!(&memory[1].to_ne_bytes(), b"from afa");
    drop(memory);

    // Later accesses of a request do not reach the memory, and fail.
    assert_eq!(span.write(0, b"too late"), Err(AccessError::InvalidStag));
    let mut bytes = [1; 8];
    assert_eq!(span.read(0, &mut bytes), Err(AccessError::InvalidStag));
    assert_eq!(bytes, [1; 8]);
    let mut appended = vec![3];
    assert_eq!(span.append_to(&mut appended), Err(AccessError::InvalidStag));
    assert_eq!(appended, [3]);
    assert_eq!(span.crc32c(&mut Crc::new()), Err(AccessError::InvalidStag));
    let mut crc = Crc::new();
    assert_eq!(span.append_checked(&mut appended, &mut crc), Err(AccessError::InvalidStag));
    assert_eq!((appended, crc.finish()), (vec![3], Crc::new().finish()));
    // Empty spans cannot be withdrawn.
    assert_eq!(span.slice(8, 0).write(0, b""), Ok(()));
    assert_eq!(counter.fetch_add(1, 0), Err(AccessError::InvalidStag));
    assert_eq!(counter.compare_swap(0, 0, 0, 0), Err(AccessError::InvalidStag));
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn a_socket_does_not_access_withdrawn_memory() {
    let (table, domain) = table();
    let mut memory = vec![7_u8; 64];
    let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: as above.
    let stag = unsafe { raw::register(&table, domain, base, 64, 0, all(), 0, None) }.unwrap();
    let span = table.local(domain, Segment { stag, address: 0, length: 64 }, true).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    assert_eq!(send(here.as_fd(), &[Piece::Memory(&span)], false).unwrap(), 64);
    table.deregister(stag).unwrap();
    drop(memory);
    let refused = send(here.as_fd(), &[Piece::Bytes(b"head"), Piece::Memory(&span)], false).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    let mut staging = [0; 256];
    let refused = receive(there.as_fd(), &[span], &mut staging).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    // Only what was sent before is there.
    assert_eq!(receive(there.as_fd(), &[], &mut staging).unwrap().staged, 64);
    assert_eq!(staging[..64], [7; 64]);
}

#[test]
fn an_owner_is_dropped_after_the_last_use() {
    struct Owner(Arc<AtomicBool>, Box<[u8; 32]>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (table, domain) = table();
    let gone = Arc::new(AtomicBool::new(false));
    let mut owner = Owner(gone.clone(), Box::new([9; 32]));
    let base = NonNull::from(&mut *owner.1).cast();
    let owner = Box::new(owner);
    // SAFETY: kept by the owner, which is kept by the registration.
    let stag = unsafe { raw::register(&table, domain, base, 32, 0, all(), 0, Some(owner)) }.unwrap();
    let span = table.local(domain, Segment { stag, address: 0, length: 32 }, false).unwrap();
    table.deregister(stag).unwrap();
    assert!(!gone.load(Ordering::SeqCst), "a span is left");
    drop(span);
    assert!(gone.load(Ordering::SeqCst));
}

#[test]
fn reregistering_other_memory_ends_the_use_of_the_first() {
    let (table, domain) = table();
    let mut first = vec![1_u64; 4];
    let mut second = vec![2_u64; 4];
    let memory = |of: &mut Vec<u64>| {
        let base = NonNull::new(of.as_mut_ptr().cast()).unwrap();
        // SAFETY: the vectors are dropped after their registration.
        unsafe { raw::memory(base, 32, 0x1000, None) }.unwrap()
    };
    let stag = table.register(domain, memory(&mut first), all(), 0).unwrap();
    let old = table.remote(domain, PAIR, stag, 0x1000, 32, Access::REMOTE_READ).unwrap();
    let stag = table.reregister(stag, None, Some(memory(&mut second)), None).unwrap();
    drop(first);
    let new = table.remote(domain, PAIR, stag, 0x1000, 32, Access::REMOTE_READ).unwrap();
    let (mut from_old, mut from_new) = ([1; 8], [1; 8]);
    assert_eq!(old.read(0, &mut from_old), Err(AccessError::InvalidStag));
    new.read(0, &mut from_new).unwrap();
    assert_eq!(u64::from_ne_bytes(from_new), 2);
    table.deregister(stag).unwrap();
}

#[test]
fn no_memory_is_longer_than_the_address_space() {
    // SAFETY: refused, so never used.
    let refused = unsafe { raw::memory(NonNull::<u8>::dangling(), usize::MAX, 0, None) };
    assert!(refused.is_err());
}

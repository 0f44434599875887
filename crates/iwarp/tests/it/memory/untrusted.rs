//! Memory that its owner may take away: held by the kernel, and checked at each access. What programs do to it is tried
//! with C programs over the drop-in (`extras/verbs/tests/c/memory.c`).
#![cfg(not(miri))]

use std::{
    io,
    net::TcpStream,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use clearstream_iwarp::{
    memory::{
        Access, AccessError, MemoryError, MemoryTable, Piece, Placements, Span,
        raw::{self, Keeping},
        receive, send,
    },
    mpa::Crc,
    stag::{DomainId, Stag},
    work::Segment,
};
use proptest::prelude::*;

use crate::memory::{PAIR, all, sockets::tcp, table};

const WAYS: [Keeping; 2] = [Keeping::Held, Keeping::Checked];

/// Memory of a program, whole pages.
struct Mapped {
    base: *mut u8,
    length: usize,
}

// SAFETY: an address and a length.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(length: usize) -> Self {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), length }
    }

    fn register(&self, table: &MemoryTable, domain: DomainId, way: Keeping) -> Stag {
        let address = self.base.addr() as u64;
        let registered = raw::register_untrusted(table, domain, self.base, self.length, address, all(), way);
        let (stag, not_held) = registered.unwrap();
        assert_eq!(not_held.is_none(), way == Keeping::Held, "{not_held:?}");
        stag
    }

    fn span(&self, table: &MemoryTable, domain: DomainId, stag: Stag) -> Span {
        let address = self.base.addr() as u64;
        table.local(domain, Segment { stag, address, length: self.length as u32 }, true).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: mapped, and no request is on its way.
        unsafe { std::slice::from_raw_parts(self.base, self.length) }.to_vec()
    }

    fn unmap(&mut self) {
        // SAFETY: of `new`; nothing in this program refers to it.
        assert_eq!(unsafe { libc::munmap(self.base.cast(), std::mem::take(&mut self.length)) }, 0);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.length > 0 {
            self.unmap();
        }
    }
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + at / 251 + seed * 7) % 255) as u8 + 1).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    /// Any pieces, one by one and together, at any place.
    #[test]
    fn pieces_are_where_they_were_written(
        way in prop::sample::select(&WAYS[..]),
        writes in prop::collection::vec((0_usize..300_000, 0_usize..3000, any::<bool>()), 0..200),
        from in 0_usize..300_000,
    ) {
        const LENGTH: usize = 303_104;
        let (table, domain) = table();
        let memory = Mapped::new(LENGTH);
        let stag = memory.register(&table, domain, way);
        let span = memory.span(&table, domain, stag);
        let (mut model, mut placements) = (vec![0; LENGTH], Placements::default());
        let mut behind = 0;
        for (seed, (at, length, follows)) in writes.into_iter().enumerate() {
            let at = if follows { behind.min(LENGTH - length) } else { at };
            let bytes = pattern(length, seed);
            placements.write(&span, at, &bytes).unwrap();
            model[at..at + length].copy_from_slice(&bytes);
            behind = at + length;
        }
        placements.flush().unwrap();
        prop_assert!(memory.bytes() == model);
        let part = span.slice(from, LENGTH - from);
        let mut appended = vec![1];
        part.append_to(&mut appended).unwrap();
        prop_assert!(appended[1..] == model[from..]);
        let (mut crc, mut copied, mut other) = (Crc::new(), Crc::new(), Crc::new());
        part.crc32c(&mut crc).unwrap();
        part.append_checked(&mut appended, &mut copied).unwrap();
        other.update(&model[from..]);
        let expected = other.finish();
        prop_assert_eq!((crc.finish(), copied.finish()), (expected, expected));
    }
}

#[test]
fn atomics_of_several_threads_lose_nothing() {
    for way in WAYS {
        let (table, domain) = table();
        let memory = Mapped::new(4096);
        let stag = memory.register(&table, domain, way);
        let counter = memory.span(&table, domain, stag).slice(64, 8);
        thread::scope(|scope| {
            for _ in 0..4 {
                let counter = &counter;
                scope.spawn(move || (0..500).for_each(|_| assert!(counter.fetch_add(3, 0).is_ok())));
            }
        });
        assert_eq!(counter.compare_swap(6000, u64::MAX, 7, u64::MAX), Ok(6000));
        assert_eq!(counter.compare_swap(6000, u64::MAX, 8, u64::MAX), Ok(7));
        assert_eq!(memory.bytes()[64..72], 7_u64.to_ne_bytes());
        let misaligned = memory.span(&table, domain, stag).slice(65, 8);
        assert_eq!(misaligned.fetch_add(1, 0), Err(AccessError::Misaligned));
    }
}

/// A megabyte in segments of every length, more pieces than a call takes.
#[test]
fn sockets_carry_it_by_address_and_by_pages() {
    const LENGTH: usize = 1 << 20;
    for (way, by_pages, piece) in
        [(WAYS[0], true, 70_000), (WAYS[0], true, 3_000), (WAYS[0], false, 3_000), (WAYS[1], false, 70_000)]
    {
        let (table, domain) = table();
        let (source, sink) = (Mapped::new(LENGTH), Mapped::new(LENGTH));
        let (one, two) = (source.register(&table, domain, way), sink.register(&table, domain, way));
        let (from, to) = (source.span(&table, domain, one), sink.span(&table, domain, two));
        let bytes = pattern(LENGTH, 5);
        from.write(0, &bytes).unwrap();
        let (here, there) = tcp();
        let (mut sent, mut received, mut staging) = (0, 0, vec![0; 100]);
        while received < LENGTH {
            let spans: Vec<Span> = (sent..LENGTH)
                .step_by(piece)
                .take(100)
                .map(|at| from.slice(at, piece.min(LENGTH - at)))
                .collect();
            let of = |span| if by_pages { Piece::Pages(span) } else { Piece::Memory(span) };
            let pieces: Vec<Piece<'_>> = spans.iter().map(of).collect();
            match send(here.as_fd(), &pieces, false) {
                Ok(transferred) => sent += transferred,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            let ends = [7_001, 9_000, 40_000].map(|length| (LENGTH - received).min(length));
            let straight = [to.slice(received, ends[0]), to.slice(received + ends[0], ends[1] - ends[0])];
            match receive(there.as_fd(), &straight, &mut staging) {
                Ok(transferred) => {
                    let behind = received + transferred.straight;
                    to.write(behind, &staging[..transferred.staged]).unwrap();
                    received = behind + transferred.staged;
                    assert!(transferred.error.is_none());
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert!(sink.bytes() == bytes, "{way:?}, {by_pages}, {piece}");
    }
}

/// What a socket says once is not lost behind bytes that came before it.
#[test]
fn a_reset_is_heard_behind_the_last_bytes() {
    let (table, domain) = table();
    let memory = Mapped::new(4096);
    let stag = memory.register(&table, domain, Keeping::Held);
    let span = memory.span(&table, domain, stag);
    let (here, there) = tcp();
    // Closed with bytes that nobody read: TCP answers with a reset (RFC 9293, section 3.6.1).
    io::Write::write_all(&mut (&there), &[3; 10]).unwrap();
    io::Write::write_all(&mut (&here), &[1; 4100]).unwrap();
    let close = |stream: TcpStream| {
        while stream.peek(&mut [0; 10]).unwrap() < 10 {}
        drop(stream);
    };
    close(here);
    let mut errors = Vec::new();
    let mut staging = [0; 100];
    for _ in 0..10_000 {
        match receive(there.as_fd(), std::slice::from_ref(&span), &mut staging) {
            Ok(received) => errors.extend(received.error),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) => errors.push(error),
        }
        if !errors.is_empty() {
            break;
        }
    }
    let kinds: Vec<_> = errors.iter().map(io::Error::kind).collect();
    assert_eq!(kinds, [io::ErrorKind::ConnectionReset]);
}

#[test]
fn it_is_written_after_it_went_and_read_by_a_peer() {
    for way in WAYS {
        let (table, domain) = table();
        let mut memory = Mapped::new(1 << 16);
        let address = memory.base.addr() as u64;
        let stag = memory.register(&table, domain, way);
        let span = memory.span(&table, domain, stag);
        span.write(100, b"before").unwrap();
        memory.unmap();
        let mut bytes = [0; 6];
        let peers = table.remote(domain, PAIR, stag, address + 100, 6, Access::REMOTE_READ).unwrap();
        let (read, written) = (peers.read(0, &mut bytes), span.write(5000, b"after"));
        match way {
            Keeping::Held => {
                assert_eq!((read, written), (Ok(()), Ok(())));
                assert_eq!(&bytes, b"before");
                let mut after = [0; 5];
                span.slice(5000, 5).read(0, &mut after).unwrap();
                assert_eq!(&after, b"after");
            }
            Keeping::Checked => {
                let gone = Err(AccessError::InvalidStag);
                assert_eq!((read, written), (gone, gone));
            }
        }
        let range = 0..1 << 16;
        let again = raw::register_untrusted(&table, domain, memory.base, range.len(), 0, all(), way);
        assert!(matches!(again, Err(MemoryError::Inaccessible { .. })), "{again:?}");
        table.deregister(stag).unwrap();
        assert_eq!(span.write(0, b"x"), Err(AccessError::InvalidStag));
    }
}

#[test]
fn memory_with_holes_is_reached_where_it_is_mapped() {
    let (table, domain) = table();
    let mut memory = Mapped::new(1 << 16);
    let (base, address) = (memory.base, memory.base.addr() as u64);
    let place = std::ptr::NonNull::new(base).unwrap();
    // SAFETY: what is mapped is written by this test alone.
    let sparse = unsafe { raw::sparse(place, 1 << 16, address) }.unwrap();
    let stag = table.register(domain, sparse, all(), 0).unwrap();
    let span = memory.span(&table, domain, stag);
    span.write(100, b"mapped").unwrap();
    assert_eq!(&memory.bytes()[100..106], b"mapped");
    memory.unmap();
    let gone = Err(AccessError::InvalidStag);
    assert_eq!((span.write(100, b"x"), span.read(100, &mut [0; 6])), (gone, gone));
    // It comes back at another time: registered is the address.
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: nothing else is there since `unmap`, or the call fails.
    let again = unsafe { libc::mmap(base.cast(), 1 << 16, rights, kind | libc::MAP_FIXED_NOREPLACE, -1, 0) };
    if again == base.cast() {
        span.write(100, b"again").unwrap();
        // SAFETY: of this test.
        assert_eq!(unsafe { libc::munmap(again, 1 << 16) }, 0);
    }
    // SAFETY: an address space beyond the end: refused.
    assert!(matches!(unsafe { raw::sparse(place, usize::MAX, address) }, Err(MemoryError::TooLong(_))));
}

/// Threads move bytes while others register and deregister.
#[test]
fn threads_do_not_meet_each_others_memory() {
    let (table, domain) = table();
    let is_over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let come_and_go = scope.spawn({
            let (table, is_over) = (&table, is_over.clone());
            move || {
                let mut registered = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let memory = Mapped::new(20_480);
                    let stag = memory.register(table, domain, Keeping::Held);
                    memory.span(table, domain, stag).write(9, &[0xee; 9000]).unwrap();
                    table.deregister(stag).unwrap();
                    registered += 1;
                }
                registered
            }
        });
        let writers: Vec<_> = (0..4)
            .map(|seed| {
                let table = &table;
                scope.spawn(move || {
                    let memory = Mapped::new(1 << 18);
                    let stag = memory.register(table, domain, Keeping::Held);
                    let span = memory.span(table, domain, stag);
                    for round in 0..50 {
                        let bytes = pattern(1 << 18, seed + 4 * round);
                        span.write(0, &bytes).unwrap();
                        assert!(memory.bytes() == bytes);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        assert!(come_and_go.join().unwrap() > 0);
    });
    assert_eq!(table.tag_count(), 4);
}

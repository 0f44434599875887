//! Concurrency: STags are registered and deregistered while other threads look
//! them up and use the spans.

use std::{
    ptr::NonNull,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use clearstream_iwarp::{
    memory::{Access, AccessError, Buffer, Invalidator, Region, raw},
    stag::Stag,
    work::Segment,
};

use crate::memory::{PAIR, all, region, table};

const ROUNDS: usize = if cfg!(miri) { 30 } else { 20_000 };

/// Placements race with deregistration; each is either rejected or complete.
#[test]
fn placements_and_deregistration() {
    let (table, domain) = table();
    let advertised = Mutex::new((Stag(0), 0_u64));
    let done = AtomicBool::new(false);
    let (placed, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 1..=2_u8 {
            let (table, advertised, done) = (&table, &advertised, &done);
            let (placed, refused) = (&placed, &refused);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let (stag, address) = *advertised.lock().unwrap();
                    match table.remote(domain, PAIR, stag, address, 100, Access::REMOTE_WRITE) {
                        Ok(span) => {
                            span.write(0, &[number; 100]).unwrap();
                            placed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert_eq!(error, AccessError::InvalidStag);
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    thread::yield_now();
                }
            });
        }
        for round in 1..=ROUNDS {
            let (region, stag) = region(&table, domain, 100, Access::REMOTE_WRITE);
            *advertised.lock().unwrap() = (stag, region.address());
            thread::yield_now();
            while round == ROUNDS && placed.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            table.deregister(stag).unwrap();
            assert!(region.to_vec(0, 100).iter().all(|byte| *byte <= 2));
        }
        // Deregistered for good: from now on all fail.
        while refused.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(table.tag_count(), 0);
}

/// The owner frees memory as soon as it was deregistered, while others write
/// through spans looked up before.
#[test]
fn foreign_memory_is_freed_at_once() {
    let (table, domain) = table();
    let spans = Mutex::new(Vec::new());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let span = spans.lock().unwrap().last().cloned();
                    if let Some(span) = span {
                        let span: clearstream_iwarp::memory::Span = span;
                        let mut read = [0; 333];
                        for used in [span.write(0, &[5; 333]), span.read(0, &mut read)] {
                            assert!(matches!(used, Ok(()) | Err(AccessError::InvalidStag)), "{used:?}");
                        }
                    }
                    thread::yield_now();
                }
            });
        }
        for _ in 0..ROUNDS / 4 {
            let mut memory = vec![0_u8; 333];
            let base = NonNull::new(memory.as_mut_ptr()).unwrap();
            // SAFETY: dropped after it was deregistered, not touched before.
            let stag = unsafe { raw::register(&table, domain, base, 333, 0, all(), 0, None) }.unwrap();
            let segment = Segment { stag, address: 0, length: 333 };
            let span = table.local(domain, segment, true).unwrap();
            *spans.lock().unwrap() = vec![span];
            thread::yield_now();
            table.deregister(stag).unwrap();
            // There are no writers any more: a plain read, then it is freed.
            assert!(memory.iter().all(|byte| *byte == 5) || memory.iter().all(|byte| *byte == 0));
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A buffer moves to another thread and back; its current owner may use it.
#[test]
fn a_buffer_moves_between_threads() {
    let (table, domain) = table();
    let mut next = Some(Buffer::new(&table, domain, 64).unwrap());
    for round in 0..ROUNDS / 20 {
        let number = (round % 256) as u8;
        let mut buffer = next.take().unwrap();
        buffer.fill(number);
        let segment = buffer.segment();
        let mut loan = buffer.lend();
        thread::scope(|scope| {
            scope.spawn(|| {
                // It may be reclaimed for a moment: then the lookup fails.
                let span = loop {
                    match table.local(domain, segment, true) {
                        Ok(span) => break span,
                        Err(error) => assert_eq!(error, AccessError::AccessRights),
                    }
                    thread::yield_now();
                };
                let mut bytes = [0; 64];
                span.read(0, &mut bytes).unwrap();
                assert_eq!(bytes, [number; 64]);
                span.write(10, &[number.wrapping_add(1); 11]).unwrap();
            });
            // Reclaimed when the other thread has released it, never before.
            next = Some(loop {
                match loan.reclaim() {
                    Ok(early) if early[10] == number => loan = early.lend(),
                    Ok(buffer) => break buffer,
                    Err(still) => loan = still,
                }
                thread::yield_now();
            });
        });
        assert_eq!(next.as_ref().unwrap()[9..22], {
            let mut expected = [number; 13];
            expected[1..12].fill(number.wrapping_add(1));
            expected
        });
    }
}

/// Atomic additions of several threads are all counted; a word written
/// atomically is never read torn.
#[test]
fn atomics_and_aligned_writes_are_not_torn() {
    let region = Region::new(64).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let counter = region.span().slice(8, 8);
                for _ in 0..ROUNDS {
                    counter.fetch_add(1, 0).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for round in 0..ROUNDS {
                region.write(16, &[(round % 2 * 255) as u8; 8]);
                // Neighbouring bytes of the same word, not atomic.
                region.write(30, b"xy");
            }
        });
        for _ in 0..ROUNDS {
            let value = region.load(16);
            assert!(value == 0 || value == u64::MAX, "{value:#x}");
            assert_eq!(region.to_vec(24, 6), [0; 6]);
        }
    });
    assert_eq!(region.load(8), 3 * ROUNDS as u64);
}

/// Parts of one word by two threads: no byte is lost.
#[test]
fn adjacent_bytes_of_two_writers_are_preserved() {
    let region = Region::new(8).unwrap();
    thread::scope(|scope| {
        for part in 0..2 {
            let region = &region;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let bytes = [(round % 251) as u8; 3];
                    region.write(part * 4, &bytes);
                    assert_eq!(region.to_vec(part * 4, 3), bytes);
                }
            });
        }
    });
}

/// Windows are bound and invalidated by two queue pairs while a peer looks them
/// up.
#[test]
fn windows_change_during_lookups() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 64, all());
    let part = Segment { stag, address: region.address(), length: 64 };
    let windows = [table.allocate_window(domain).unwrap(), table.allocate_window(domain).unwrap()];
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let binders = windows.map(|mut window| {
            let table = &table;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    window = table.bind_window(PAIR, domain, window, part, Access::REMOTE_READ).unwrap();
                    let read = table.remote(domain, PAIR, window, part.address, 64, Access::REMOTE_READ);
                    assert!(read.is_ok());
                    table.invalidate(domain, PAIR, window, Invalidator::Remote).unwrap();
                }
            })
        });
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for index in windows.map(Stag::index) {
                    for key in 0..4 {
                        let stag = Stag::new(index, key);
                        let _ = table.remote(domain, PAIR, stag, part.address, 64, Access::REMOTE_READ);
                    }
                }
            }
        });
        for binder in binders {
            binder.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    table.deregister(stag).unwrap();
}

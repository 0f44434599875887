//! The life of a memory window.

use clearstream_iwarp::{
    memory::{Access, AccessError, Invalidator, MemoryError},
    stag::{QueuePairId, Stag},
    work::Segment,
};

use crate::memory::{PAIR, all, region, table};

const OTHER_PAIR: QueuePairId = QueuePairId(8);

#[test]
fn a_window_is_bound_rebound_and_released() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 256, Access::LOCAL_WRITE | Access::BIND_WINDOW);
    let window = table.allocate_window(domain).unwrap();
    let at = region.address();
    let remote = |window, address, length, right| table.remote(domain, PAIR, window, address, length, right);

    // Unbound.
    assert_eq!(remote(window, at, 1, Access::REMOTE_READ).unwrap_err(), AccessError::InvalidStag);

    // Bound for reading: only this access, only this range, only with the new
    // key.
    let part = Segment { stag, address: at + 64, length: 64 };
    let bound = table.bind_window(PAIR, domain, window, part, Access::REMOTE_READ).unwrap();
    assert_eq!(bound, window.next_key());
    region.write(64, b"shown");
    let mut bytes = [0; 5];
    remote(bound, at + 64, 5, Access::REMOTE_READ).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"shown");
    assert_eq!(remote(window, at + 64, 5, Access::REMOTE_READ).unwrap_err(), AccessError::InvalidStag);
    assert_eq!(remote(bound, at + 64, 5, Access::REMOTE_WRITE).unwrap_err(), AccessError::AccessRights);
    for (address, length) in [(at + 63, 1), (at + 128, 1), (at + 64, 65), (at, 256)] {
        let refused = remote(bound, address, length, Access::REMOTE_READ).unwrap_err();
        assert_eq!(refused, AccessError::BaseOrBounds);
    }
    // The region itself grants nothing to peers.
    assert_eq!(remote(stag, at + 64, 1, Access::REMOTE_READ).unwrap_err(), AccessError::AccessRights);

    // Rebound: another range, zero-based, for writing.
    let part = Segment { stag, address: at + 200, length: 8 };
    let rebound =
        table.bind_window(PAIR, domain, bound, part, Access::REMOTE_WRITE | Access::ZERO_BASED).unwrap();
    assert_eq!(remote(bound, at + 64, 1, Access::REMOTE_READ).unwrap_err(), AccessError::InvalidStag);
    remote(rebound, 0, 8, Access::REMOTE_WRITE).unwrap().write(0, b"placed!!").unwrap();
    assert_eq!(region.to_vec(200, 8), b"placed!!");
    assert_eq!(remote(rebound, 1, 8, Access::REMOTE_WRITE).unwrap_err(), AccessError::BaseOrBounds);

    // The region cannot be deregistered while a window shows it.
    assert!(matches!(table.deregister(stag).unwrap_err(), MemoryError::WindowsBound(_, 1)));
    assert!(matches!(table.reregister(stag, None, None, None).unwrap_err(), MemoryError::WindowsBound(_, 1)));
    let refused = table.invalidate(domain, PAIR, stag, Invalidator::Local).unwrap_err();
    assert_eq!(refused, AccessError::CannotInvalidate);

    // A bind of length zero releases.
    let nothing = Segment { stag: Stag(0), address: 0, length: 0 };
    let released = table.bind_window(PAIR, domain, rebound, nothing, Access::NONE).unwrap();
    assert_eq!(remote(released, 0, 1, Access::REMOTE_WRITE).unwrap_err(), AccessError::InvalidStag);
    table.deregister(stag).unwrap();
    table.deregister(released).unwrap();
    table.deallocate_domain(domain).unwrap();
}

#[test]
fn a_window_is_for_its_queue_pair_and_domain_only() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 64, all());
    let part = Segment { stag, address: region.address(), length: 64 };
    let window = table.allocate_window(domain).unwrap();
    let window = table.bind_window(PAIR, domain, window, part, Access::REMOTE_READ).unwrap();
    let read = |domain, pair| table.remote(domain, pair, window, part.address, 1, Access::REMOTE_READ);
    assert!(read(domain, PAIR).is_ok());
    assert_eq!(read(domain, OTHER_PAIR).unwrap_err(), AccessError::NotAssociated);
    let other = table.allocate_domain();
    assert_eq!(read(other, PAIR).unwrap_err(), AccessError::NotAssociated);
    assert_eq!(table.registration(window).unwrap().queue_pair, Some(PAIR));
    for by in [Invalidator::Local, Invalidator::Remote] {
        let refused = table.invalidate(domain, OTHER_PAIR, window, by).unwrap_err();
        assert_eq!(refused, AccessError::NotAssociated);
    }
    // A window cannot be used as local memory.
    let segment = Segment { stag: window, address: part.address, length: 1 };
    assert_eq!(table.local(domain, segment, false).unwrap_err(), AccessError::AccessRights);
}

#[test]
fn invalidating_a_window_releases_its_region() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 64, all());
    let part = Segment { stag, address: region.address(), length: 64 };
    let mut window = table.allocate_window(domain).unwrap();
    for by in [Invalidator::Local, Invalidator::Remote] {
        window = table.bind_window(PAIR, domain, window, part, Access::REMOTE_READ).unwrap();
        table.invalidate(domain, PAIR, window, by).unwrap();
        let read = table.remote(domain, PAIR, window, part.address, 1, Access::REMOTE_READ);
        assert_eq!(read.unwrap_err(), AccessError::InvalidStag);
        assert_eq!(table.invalidate(domain, PAIR, window, by).unwrap_err(), AccessError::InvalidStag);
        assert!(!table.registration(window).unwrap().valid);
    }
    table.deregister(stag).unwrap();
}

#[test]
fn deregistering_a_bound_window_releases_its_region() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 64, all());
    let part = Segment { stag, address: region.address(), length: 64 };
    let window = table.allocate_window(domain).unwrap();
    let window = table.bind_window(PAIR, domain, window, part, Access::REMOTE_READ).unwrap();
    table.deregister(window).unwrap();
    table.deregister(stag).unwrap();
}

#[test]
fn a_failed_bind_changes_nothing() {
    let (table, domain) = table();
    let (plain, closed) = region(&table, domain, 64, Access::LOCAL_WRITE);
    let (shown, open) = region(&table, domain, 64, Access::BIND_WINDOW);
    let other = table.allocate_domain();
    let window = table.allocate_window(domain).unwrap();
    let part = Segment { stag: open, address: shown.address(), length: 64 };
    let window = table.bind_window(PAIR, domain, window, part, Access::REMOTE_READ).unwrap();
    let bind = |domain, window, part, access| table.bind_window(PAIR, domain, window, part, access);

    // The region does not allow windows, or not with these rights.
    let no_right = Segment { stag: closed, address: plain.address(), length: 64 };
    assert!(matches!(
        bind(domain, window, no_right, Access::REMOTE_READ).unwrap_err(),
        MemoryError::WindowRights
    ));
    for writes in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        assert!(matches!(bind(domain, window, part, writes).unwrap_err(), MemoryError::WindowRights));
    }
    // Longer than the region, or no region at all.
    let long = Segment { length: 65, ..part };
    let stale = Segment { stag: open.next_key(), ..part };
    for (part, expected) in [(long, AccessError::BaseOrBounds), (stale, AccessError::InvalidStag)] {
        let refused = bind(domain, window, part, Access::REMOTE_READ).unwrap_err();
        assert!(matches!(refused, MemoryError::Access(_, why) if why == expected), "{refused}");
    }
    // Another domain, a window that is none, a region that is a window.
    assert!(matches!(
        bind(other, window, part, Access::REMOTE_READ).unwrap_err(),
        MemoryError::Access(_, AccessError::NotAssociated)
    ));
    assert!(matches!(bind(domain, open, part, Access::REMOTE_READ).unwrap_err(), MemoryError::WrongKind(_)));
    let second = table.allocate_window(domain).unwrap();
    let on_window = Segment { stag: window, address: part.address, length: 1 };
    assert!(matches!(
        bind(domain, second, on_window, Access::REMOTE_READ).unwrap_err(),
        MemoryError::WrongKind(_) | MemoryError::WindowRights
    ));
    assert!(matches!(table.reregister(window, None, None, None).unwrap_err(), MemoryError::WrongKind(_)));

    // The first bind remains valid, and is the only reference to the region.
    assert!(table.remote(domain, PAIR, window, part.address, 64, Access::REMOTE_READ).is_ok());
    table.deregister(window).unwrap();
    table.deregister(open).unwrap();
    table.deregister(closed).unwrap();
}

#[test]
fn a_retired_region_is_removed_with_its_last_window() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 64, all());
    let part = Segment { stag, address: region.address(), length: 64 };
    let window = table.allocate_window(domain).unwrap();
    let bound = table.bind_window(PAIR, domain, window, part, Access::REMOTE_READ).unwrap();
    table.retire(stag);
    // Its own tag is invalid at once, the window still shows it.
    let read = |tag| table.remote(domain, PAIR, tag, region.address(), 8, Access::REMOTE_READ);
    assert_eq!(read(stag).unwrap_err(), AccessError::InvalidStag);
    assert_eq!(table.local(domain, part, false).unwrap_err(), AccessError::InvalidStag);
    assert!(read(bound).is_ok());
    let other = table.allocate_window(domain).unwrap();
    assert!(table.bind_window(PAIR, domain, other, part, Access::REMOTE_READ).is_err());
    assert_eq!(table.tag_count(), 3);
    table.deregister(bound).unwrap();
    assert_eq!(table.tag_count(), 1);
    table.deregister(other).unwrap();
    // Nothing of it keeps the domain allocated.
    table.deallocate_domain(domain).unwrap();
}

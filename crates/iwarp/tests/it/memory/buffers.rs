//! Exclusively owned memory.

use clearstream_iwarp::{
    memory::{Access, AccessError, Buffer, MemoryError},
    work::Segment,
};

use crate::memory::{PAIR, table};

#[test]
fn a_buffer_is_found_only_while_it_is_lent() {
    let (table, domain) = table();
    let mut buffer = Buffer::new(&table, domain, 100).unwrap();
    buffer[..4].copy_from_slice(b"mine");
    let segment = buffer.segment();
    assert_eq!(segment.length, 100);
    assert_eq!(table.local(domain, segment, true).unwrap_err(), AccessError::AccessRights);

    let loan = buffer.lend();
    assert_eq!(loan.segment(), segment);
    let span = table.local(domain, segment, true).unwrap();
    span.write(4, b" and yours").unwrap();
    let beyond = Segment { length: 101, ..segment };
    assert_eq!(table.local(domain, beyond, true).unwrap_err(), AccessError::BaseOrBounds);

    // In use, it cannot be reclaimed.
    let loan = loan.reclaim().unwrap_err();
    assert!(table.local(domain, segment, false).is_ok(), "still lent");
    drop(span);
    let buffer = loan.reclaim().unwrap();
    assert_eq!(&buffer[..14], b"mine and yours");
    assert_eq!(table.local(domain, segment, false).unwrap_err(), AccessError::AccessRights);
}

#[test]
fn buffers_of_one_allocation_are_lent_one_by_one() {
    let (table, domain) = table();
    let mut first = Buffer::new(&table, domain, 30).unwrap();
    let mut second = first.split_off(13);
    let mut third = second.split_off(4);
    let empty = third.split_off(13);
    assert_eq!([first.len(), second.len(), third.len(), empty.len()], [13, 4, 13, 0]);
    assert_eq!(table.tag_count(), 1);
    first.fill(1);
    third.fill(3);

    let (at_second, at_third) = (second.segment(), third.segment());
    let loan = second.lend();
    let span = table.local(domain, at_second, true).unwrap();
    span.write(0, b"2222").unwrap();
    for refused in [
        first.segment(),
        at_third,
        Segment { length: 5, ..at_second },
        Segment { address: at_second.address - 1, ..at_second },
    ] {
        assert_eq!(table.local(domain, refused, true).unwrap_err(), AccessError::AccessRights);
    }
    // Both lent, they are still separate.
    let other = third.lend();
    let both = Segment { length: 17, ..at_second };
    assert_eq!(table.local(domain, both, true).unwrap_err(), AccessError::AccessRights);
    drop(span);
    let (second, third) = (loan.reclaim().unwrap(), other.reclaim().unwrap());
    assert_eq!((&first[..], &second[..], &third[..]), (&[1; 13][..], &b"2222"[..], &[3; 13][..]));
    let empty = empty.lend().reclaim().unwrap();
    assert!(empty.is_empty());
}

#[test]
fn the_tag_ends_with_the_last_buffer_or_span() {
    let (table, domain) = table();
    let mut first = Buffer::new(&table, domain, 64).unwrap();
    let second = first.split_off(32);
    let segment = second.segment();
    drop(first);
    let loan = second.lend();
    let span = table.local(domain, segment, true).unwrap();
    drop(loan);
    assert_eq!(table.local(domain, segment, true).unwrap_err(), AccessError::AccessRights);
    span.write(0, b"its memory is there").unwrap();
    assert_eq!(table.tag_count(), 1);
    drop(span);
    assert_eq!(table.tag_count(), 0);
    assert_eq!(table.local(domain, segment, true).unwrap_err(), AccessError::InvalidStag);
    table.deallocate_domain(domain).unwrap();
}

#[test]
fn a_peer_never_reaches_a_buffer() {
    let (table, domain) = table();
    let buffer = Buffer::new(&table, domain, 64).unwrap();
    let segment = buffer.segment();
    let _loan = buffer.lend();
    let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    for right in rights {
        let refused = table.remote(domain, PAIR, segment.stag, segment.address, 8, right).unwrap_err();
        assert_eq!(refused, AccessError::AccessRights);
    }
    for right in rights.into_iter().chain([Access::BIND_WINDOW, Access::ZERO_BASED]) {
        let refused = table.reregister(segment.stag, None, None, Some(right)).unwrap_err();
        assert!(matches!(refused, MemoryError::Exclusive), "{refused}");
    }
    let window = table.allocate_window(domain).unwrap();
    assert!(table.bind_window(PAIR, domain, window, segment, Access::REMOTE_READ).is_err());
}

#[test]
fn buffers_are_for_an_existing_domain() {
    let (table, domain) = table();
    table.deallocate_domain(domain).unwrap();
    assert!(matches!(Buffer::new(&table, domain, 64).unwrap_err(), MemoryError::UnknownDomain(_)));
    assert_eq!(table.tag_count(), 0);
}

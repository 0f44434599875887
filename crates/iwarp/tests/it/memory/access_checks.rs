//! Every reason for which an access is rejected (RFC 5040, section 4.8; RFC
//! 5041, section 6.2).

use std::ptr::NonNull;

use clearstream_iwarp::{
    memory::{Access, AccessError, Invalidator, MemoryError, MemoryTable, Region, Span, raw},
    stag::{DomainId, QueuePairId, Stag},
    work::Segment,
};
use proptest::prelude::*;

use crate::memory::{PAIR, all, region, table};

/// A peer's access of one byte.
fn touch(table: &MemoryTable, domain: DomainId, stag: Stag, address: u64) -> Result<Span, AccessError> {
    table.remote(domain, PAIR, stag, address, 1, Access::REMOTE_READ)
}

#[test]
fn an_unknown_tag_or_key_is_invalid() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 64, all());
    let at = region.address();
    assert!(touch(&table, domain, stag, at).is_ok());
    for key in (0..=255).filter(|key| *key != stag.key()) {
        let wrong = Stag::new(stag.index(), key);
        assert_eq!(touch(&table, domain, wrong, at).unwrap_err(), AccessError::InvalidStag);
        let segment = Segment { stag: wrong, address: at, length: 1 };
        assert_eq!(table.local(domain, segment, false).unwrap_err(), AccessError::InvalidStag);
    }
    for index in [0, stag.index() ^ 1, (1 << 24) - 1].into_iter().filter(|index| *index != stag.index()) {
        let wrong = Stag::new(index, stag.key());
        assert_eq!(touch(&table, domain, wrong, at).unwrap_err(), AccessError::InvalidStag);
    }
}

/// RFC 5040, section 8.1.1, rule 8: "in a way difficult to predict", and
/// "sparsely" over "the full available range".
#[test]
#[cfg_attr(miri, ignore = "a thousand registrations")]
fn one_tag_does_not_reveal_the_next() {
    let indices = || -> Vec<u32> {
        let (table, domain) = table();
        let region = Region::new(8).unwrap();
        let tag = || table.register(domain, region.memory(), Access::NONE, 0).unwrap().index();
        std::iter::repeat_with(tag).take(500).collect()
    };
    let [one, other] = [indices(), indices()];
    assert!(one.iter().zip(&other).filter(|(a, b)| a == b).count() < 5, "another table, another order");
    let steps: std::collections::BTreeSet<_> =
        one.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > 490, "{} steps", steps.len());
    // Of 24 bits: all sixteenths of the range are used.
    let parts: std::collections::BTreeSet<_> = one.iter().map(|index| index >> 20).collect();
    assert_eq!(parts.len(), 16);
}

#[test]
fn a_deregistered_tag_stays_invalid() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 64, all());
    table.deregister(stag).unwrap();
    let refused = table.deregister(stag).unwrap_err();
    assert!(matches!(refused, MemoryError::Access(_, AccessError::InvalidStag)), "{refused}");
    // The index is not reused as long as there are others.
    for _ in 0..if cfg!(miri) { 20 } else { 10_000 } {
        let other = table.register(domain, region.memory(), all(), stag.key()).unwrap();
        assert_ne!(other.index(), stag.index());
        assert_ne!(other.index(), 0);
        table.deregister(other).unwrap();
        assert_eq!(touch(&table, domain, stag, region.address()).unwrap_err(), AccessError::InvalidStag);
    }
    assert_eq!(table.tag_count(), 0);
}

#[test]
fn reregistering_changes_the_key_and_the_attributes() {
    let (table, domain) = table();
    let (first, stag) = region(&table, domain, 64, Access::REMOTE_READ);
    let other = table.allocate_domain();
    let (second, spare) = region(&table, other, 4096, all());
    table.deregister(spare).unwrap();

    let moved = table.reregister(stag, Some(other), Some(second.memory()), Some(all())).unwrap();
    assert_eq!(moved, stag.next_key());
    assert_eq!(touch(&table, domain, stag, first.address()).unwrap_err(), AccessError::InvalidStag);
    assert_eq!(touch(&table, domain, moved, second.address()).unwrap_err(), AccessError::NotAssociated);
    assert!(table.remote(other, PAIR, moved, second.address(), 4096, Access::REMOTE_WRITE).is_ok());
    assert_eq!(table.registration(moved).unwrap().length_bytes, 4096);
    // The old domain is free, the new one is not.
    table.deallocate_domain(domain).unwrap();
    let busy = table.deallocate_domain(other).unwrap_err();
    assert!(matches!(busy, MemoryError::DomainInUse(_, 1)), "{busy}");

    // A failed reregistration changes nothing.
    let unknown = table.reregister(moved, Some(domain), None, Some(Access::NONE)).unwrap_err();
    assert!(matches!(unknown, MemoryError::UnknownDomain(_)), "{unknown}");
    assert!(table.remote(other, PAIR, moved, second.address(), 4096, Access::REMOTE_WRITE).is_ok());
}

#[test]
fn out_of_bounds_accesses_are_rejected() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 100, all());
    let base = region.address();
    let remote = |address, length| table.remote(domain, PAIR, stag, address, length, Access::REMOTE_WRITE);
    for (address, length) in [(base, 100), (base, 1), (base + 99, 1), (base + 40, 60)] {
        assert_eq!(remote(address, length).unwrap().len(), length as usize);
    }
    for (address, length) in
        [(base - 1, 1), (base - 1, 2), (base + 100, 1), (base, 101), (base + 99, 2), (0, 1), (0, u32::MAX)]
    {
        assert_eq!(remote(address, length).unwrap_err(), AccessError::BaseOrBounds, "{address:#x} +{length}");
        let segment = Segment { stag, address, length };
        assert_eq!(table.local(domain, segment, true).unwrap_err(), AccessError::BaseOrBounds);
    }
}

#[test]
fn zero_based_offsets_count_from_the_first_byte() {
    let (table, domain) = table();
    let (region, stag) = region(&table, domain, 100, all() | Access::ZERO_BASED);
    region.write(0, b"first");
    let mut bytes = [0; 5];
    table.remote(domain, PAIR, stag, 0, 5, Access::REMOTE_READ).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"first");
    assert_eq!(touch(&table, domain, stag, 100).unwrap_err(), AccessError::BaseOrBounds);
    assert_eq!(touch(&table, domain, stag, region.address()).unwrap_err(), AccessError::BaseOrBounds);
}

#[test]
fn the_end_of_64_bits_is_reached_and_not_passed() {
    let (table, domain) = table();
    let mut memory = vec![0_u64; 512];
    let base = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
    let register = |address, length| {
        // SAFETY: the memory outlives the table and is not touched meanwhile.
        unsafe { raw::register(&table, domain, base, length, address, all(), 0, None) }
    };
    let refused = register(u64::MAX - 4094, 4096).unwrap_err();
    assert!(matches!(refused, MemoryError::AddressWrap { length_bytes: 4096, .. }), "{refused}");
    let stag = register(u64::MAX - 4095, 4096).unwrap();
    let remote = |address, length| table.remote(domain, PAIR, stag, address, length, Access::REMOTE_WRITE);
    assert_eq!(remote(u64::MAX, 1).unwrap().len(), 1);
    assert_eq!(remote(u64::MAX - 4095, 4096).unwrap().len(), 4096);
    for (address, length) in [(u64::MAX, 2), (u64::MAX - 4095, 4097), (u64::MAX, u32::MAX), (u64::MAX - 1, 3)]
    {
        assert_eq!(remote(address, length).unwrap_err(), AccessError::AddressWrap, "{address:#x} +{length}");
    }
    assert_eq!(remote(0, 1).unwrap_err(), AccessError::BaseOrBounds);
    assert_eq!(remote(u64::MAX - 4096, 1).unwrap_err(), AccessError::BaseOrBounds);
    table.deregister(stag).unwrap();
}

#[test]
fn an_access_without_the_right_is_rejected() {
    let (table, domain) = table();
    let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    let others = [Access::LOCAL_WRITE, Access::BIND_WINDOW];
    for bits in 0..32 {
        let all = rights.iter().chain(&others).enumerate();
        let chosen = all.filter(|(place, _)| bits & (1 << place) != 0);
        let access = chosen.fold(Access::NONE, |access, (_, right)| access | *right);
        let (region, stag) = region(&table, domain, 64, access);
        let at = region.address();
        for right in rights {
            let result = table.remote(domain, PAIR, stag, at, 8, right);
            let expected = if access.allows(right) { None } else { Some(AccessError::AccessRights) };
            assert_eq!(result.err(), expected, "{access:?} {right:?}");
        }
        let segment = Segment { stag, address: at, length: 8 };
        let write = table.local(domain, segment, true);
        assert_eq!(write.is_ok(), access.allows(Access::LOCAL_WRITE));
        assert!(write.is_ok() || write.unwrap_err() == AccessError::AccessRights);
        assert!(table.local(domain, segment, false).is_ok(), "reading locally is always allowed");
    }
}

#[test]
fn memory_of_another_domain_is_rejected() {
    let (table, domain) = table();
    let other = table.allocate_domain();
    let (region, stag) = region(&table, domain, 64, all());
    assert_eq!(touch(&table, other, stag, region.address()).unwrap_err(), AccessError::NotAssociated);
    let segment = Segment { stag, address: region.address(), length: 1 };
    assert_eq!(table.local(other, segment, false).unwrap_err(), AccessError::NotAssociated);
    for by in [Invalidator::Local, Invalidator::Remote] {
        assert_eq!(table.invalidate(other, PAIR, stag, by).unwrap_err(), AccessError::NotAssociated);
    }
    // A region is for every queue pair of its domain.
    assert!(table.remote(domain, QueuePairId(99), stag, region.address(), 1, Access::REMOTE_READ).is_ok());
}

#[test]
fn atomics_need_eight_bytes_at_a_multiple_of_eight() {
    let (table, domain) = table();
    for access in [all(), all() | Access::ZERO_BASED] {
        let (region, stag) = region(&table, domain, 64, access);
        let base = if access.allows(Access::ZERO_BASED) { 0 } else { region.address() };
        for offset in 0..=56 {
            let result = table.remote(domain, PAIR, stag, base + offset, 8, Access::REMOTE_ATOMIC);
            let expected = if offset % 8 == 0 { None } else { Some(AccessError::Misaligned) };
            assert_eq!(result.err(), expected, "{offset}");
        }
        let short = table.remote(domain, PAIR, stag, base, 4, Access::REMOTE_ATOMIC);
        assert_eq!(short.unwrap_err(), AccessError::Misaligned);
    }
    // An offset that is a multiple of eight does not help where the memory is not.
    let mut memory = vec![0_u64; 8];
    let base = NonNull::new(memory.as_mut_ptr().cast::<u8>()).unwrap();
    // SAFETY: inside the vector, which outlives the table.
    let stag = unsafe { raw::register(&table, domain, base.add(1), 32, 8, all(), 0, None) }.unwrap();
    let result = table.remote(domain, PAIR, stag, 8, 8, Access::REMOTE_ATOMIC);
    assert_eq!(result.unwrap_err(), AccessError::Misaligned);
    table.deregister(stag).unwrap();
}

#[test]
fn invalidating_ends_all_use_until_reregistration() {
    let (table, domain) = table();
    for by in [Invalidator::Local, Invalidator::Remote] {
        let (region, stag) = region(&table, domain, 64, all());
        table.invalidate(domain, PAIR, stag, by).unwrap();
        assert_eq!(touch(&table, domain, stag, region.address()).unwrap_err(), AccessError::InvalidStag);
        let segment = Segment { stag, address: region.address(), length: 1 };
        assert_eq!(table.local(domain, segment, false).unwrap_err(), AccessError::InvalidStag);
        assert_eq!(table.invalidate(domain, PAIR, stag, by).unwrap_err(), AccessError::InvalidStag);
        assert!(!table.registration(stag).unwrap().valid);
        let stag = table.reregister(stag, None, None, None).unwrap();
        assert!(touch(&table, domain, stag, region.address()).is_ok());
        table.deregister(stag).unwrap();
    }
}

#[test]
fn a_peer_cannot_invalidate_inaccessible_memory() {
    let (table, domain) = table();
    let (_region, stag) = region(&table, domain, 64, Access::LOCAL_WRITE | Access::BIND_WINDOW);
    let remote = table.invalidate(domain, PAIR, stag, Invalidator::Remote);
    assert_eq!(remote.unwrap_err(), AccessError::CannotInvalidate);
    table.invalidate(domain, PAIR, stag, Invalidator::Local).unwrap();
}

#[test]
fn no_bytes_need_no_tag() {
    let (table, domain) = table();
    let nothing = Segment { stag: Stag(1), address: u64::MAX, length: 0 };
    assert!(table.local(domain, nothing, true).unwrap().is_empty());
    assert!(table.remote(domain, PAIR, Stag(1), 0, 0, Access::REMOTE_WRITE).unwrap().is_empty());
}

#[test]
fn domains_are_deallocated_when_empty() {
    let (table, domain) = table();
    let (_region, stag) = region(&table, domain, 64, all());
    let (_other, second) = region(&table, domain, 64, all());
    for (left, stag) in [(2, stag), (1, second)] {
        let busy = table.deallocate_domain(domain).unwrap_err();
        assert!(matches!(busy, MemoryError::DomainInUse(_, users) if users == left), "{busy}");
        table.deregister(stag).unwrap();
    }
    table.deallocate_domain(domain).unwrap();
    assert!(matches!(table.deallocate_domain(domain), Err(MemoryError::UnknownDomain(_))));
    let refused =
        table.register(domain, crate::memory::Region::new(8).unwrap().memory(), all(), 0).unwrap_err();
    assert!(matches!(refused, MemoryError::UnknownDomain(_)), "{refused}");
}

proptest! {
    /// The table agrees with plain arithmetic in 128 bits.
    #[test]
    fn ranges_match_plain_arithmetic(
        length in 1_usize..300,
        base in prop_oneof![0_u64..400, (u64::MAX - 700)..=(u64::MAX - 300), any::<u64>()],
        near in -400_i64..700,
        far in any::<u64>(),
        use_far in any::<bool>(),
        requested in prop_oneof![1_u32..700, any::<u32>()],
    ) {
        let base = base.min(u64::MAX - 300);
        let (table, domain) = table();
        let mut memory = vec![0_u8; length];
        let place = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector outlives the table, and nothing is read or written.
        let stag = unsafe { raw::register(&table, domain, place, length, base, all(), 0, None) }.unwrap();
        let address = if use_far { far } else { base.wrapping_add_signed(near) };
        prop_assume!(requested > 0);
        let (first, last) = (u128::from(address), u128::from(address) + u128::from(requested) - 1);
        let (low, high) = (u128::from(base), u128::from(base) + length as u128 - 1);
        let expected = if last > u128::from(u64::MAX) {
            Some(AccessError::AddressWrap)
        } else if first < low || last > high {
            Some(AccessError::BaseOrBounds)
        } else {
            None
        };
        let result = table.remote(domain, PAIR, stag, address, requested, Access::REMOTE_WRITE);
        prop_assert_eq!(result.as_ref().err().copied(), expected);
        if let Ok(span) = result {
            prop_assert_eq!(span.len(), requested as usize);
        }
        table.deregister(stag).unwrap();
    }
}

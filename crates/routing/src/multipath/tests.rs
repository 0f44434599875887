use proptest::prelude::*;

use super::*;

/// Test vectors of the paper on SipHash (Aumasson and Bernstein 2012, appendix
/// A, and its reference implementation): key 00..0f, message 00, 01, 02...
#[test]
fn siphash_is_as_published() {
    let key = HashKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
    let message: Vec<u8> = (0..15).collect();
    assert_eq!(siphash(&message, key), 0xa129_ca61_49be_45e5);
    assert_eq!(siphash(&[], key), 0x726f_db47_dd0e_0e31);
    assert_eq!(siphash(&message[..8], key), 0x93f5_f579_9a93_2462);
}

#[test]
fn thresholds_are_those_of_the_kernel() {
    // nh_hthr_group_rebalance for equal weights: 2^31 * k / n - 1.
    assert_eq!(thresholds(&[1_u16, 1]), [(1 << 30) - 1, u32::MAX / 2]);
    assert_eq!(thresholds(&[3_u16, 1]), [3 * (1 << 29) - 1, u32::MAX / 2]);
    let bounds = thresholds(&[1_u32, 1, 1]);
    assert_eq!(choose(&bounds, 0), 0);
    assert_eq!(choose(&bounds, bounds[0]), 0);
    assert_eq!(choose(&bounds, bounds[0] + 1), 1);
    assert_eq!(choose(&bounds, u32::MAX / 2), 2);
}

fn flow(ipv6: bool, source: u32, destination: u32, ports: [u16; 2]) -> FlowKey {
    let address = |number: u32| -> IpAddr {
        if ipv6 {
            IpAddr::V6((0xfd64_u128 << 112 | u128::from(number)).into())
        } else {
            IpAddr::V4(number.into())
        }
    };
    FlowKey {
        source: address(source),
        destination: address(destination),
        protocol: 6,
        source_port: ports[0],
        destination_port: ports[1],
    }
}

/// ip-sysctl.rst: policy 1 is layer 4, 2 layer 3 or inner layer 3, 3 the fields; bits 0x10 and 0x20
/// of these are the source and the destination port.
#[test]
fn ports_are_hashed_by_policy_1_and_by_3_with_their_bits() {
    for (policy, fields, expected) in [
        (None, None, None),
        (Some("0"), Some("0x0037"), Some(false)),
        (Some("1"), Some("0x0007"), Some(true)),
        (Some("2"), Some("0x0037"), Some(false)),
        (Some("3"), None, None),
        (Some("3"), Some("not a number"), None),
        (Some("3"), Some("0x0007"), Some(false)),
        (Some("3"), Some("0x0017"), Some(true)),
        (Some("3"), Some("32"), Some(true)),
    ] {
        for (ipv6, family) in
            [(false, "net.ipv4.fib_multipath_hash_"), (true, "net.ipv6.fib_multipath_hash_")]
        {
            let read = |key: &str| match key.strip_prefix(family) {
                Some("policy") => policy,
                Some("fields") => fields,
                other => panic!("{key}: {other:?}"),
            };
            assert_eq!(ports_are_hashed(ipv6, read), expected, "{policy:?} {fields:?}");
        }
    }
}

proptest! {
    /// Documentation/networking/ip-sysctl.rst promises no such thing; the
    /// kernel does it (`__flow_hash_consistentify`).
    #[test]
    fn a_reply_hashes_as_its_request(ipv6: bool, one: u32, other: u32, ports: [u16; 2], seed in 1_u32..) {
        for policy in [HashPolicy::Layer3, HashPolicy::Layer4] {
            let flow = flow(ipv6, one, other, ports);
            let key = HashKey::of_seed(seed);
            let hash = multipath_hash(&flow, policy, key);
            prop_assert_eq!(hash, multipath_hash(&flow.reversed(), policy, key));
            prop_assert!(hash <= u32::MAX / 2);
        }
    }

    #[test]
    fn chosen_buckets_give_the_shares_of_the_weights(weights in prop::collection::vec(1_u16..9, 1..65)) {
        let count = bucket_count(&weights);
        prop_assert!(usize::from(count) >= (20 * weights.len()).max(120));
        let buckets = Buckets::new(count, &weights);
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        for (member, weight) in weights.iter().enumerate() {
            let own = buckets.owners.iter().filter(|owner| **owner == Some(member)).count() as u64;
            prop_assert_eq!(own * total, u64::from(*weight) * u64::from(count));
        }
    }

    /// Every bucket belongs to a member with a weight; none of a healthy one
    /// moves while it is busy; idle ones balance to within one bucket.
    #[test]
    fn buckets_stay_with_the_healthy(weights in prop::collection::vec(1_u16..8, 2..12), gone in 0_usize..12, spare in 0_u16..200) {
        let gone = gone % weights.len();
        let count = weights.iter().sum::<u16>() + spare;
        let first = Buckets::new(count, &weights);
        let total: u16 = weights.iter().sum();
        for (member, weight) in weights.iter().enumerate() {
            let has = first.owners.iter().filter(|owner| **owner == Some(member)).count() as f64;
            let ideal = f64::from(count) * f64::from(*weight) / f64::from(total);
            prop_assert!((has - ideal).abs() <= 1.0, "{has} for {ideal}");
        }
        let mut without = weights.clone();
        without[gone] = 0;
        let mut after = first.clone();
        after.change(&without, false);
        for (old, new) in first.owners.iter().zip(&after.owners) {
            prop_assert!(new.is_some_and(|member| member != gone));
            prop_assert!(old == new || *old == Some(gone));
        }
        let mut back = after.clone();
        back.change(&weights, false);
        prop_assert_eq!(&back.owners, &after.owners, "busy buckets stay");
        back.change(&weights, true);
        for member in 0..weights.len() {
            let count_of = |buckets: &Buckets| buckets.owners.iter().filter(|owner| **owner == Some(member)).count();
            prop_assert_eq!(count_of(&back), count_of(&first), "idle ones come back");
        }
    }
}

//! Gateways that drop packets of some kinds: one protocol, large ones, those of some ports, and any of them where few
//! remote hosts have a watch.

use super::{faults::is_tcp, *};

/// A fault by kind: what is dropped, the reason that fits, and within how many rounds it is found.
type Fault = (&'static str, fn(ProbeKind) -> bool, OutReason);

const FAULTS: [Fault; 12] = [
    ("tcp", |kind| kind.class.transport == Transport::Tcp, OutReason::NoTcp),
    ("udp", |kind| kind.class.transport == Transport::Udp, OutReason::NoUdp),
    ("large", |kind| kind.class.large, OutReason::NoLarge),
    ("large tcp", |kind| kind.class.large && kind.class.transport == Transport::Tcp, OutReason::NoLarge),
    ("large udp", |kind| kind.class.large && kind.class.transport == Transport::Udp, OutReason::NoLarge),
    ("odd ports", |kind| kind.port % 2 == 1, OutReason::SomePorts),
    (
        "even ports of tcp",
        |kind| kind.port % 2 == 0 && kind.class.transport == Transport::Tcp,
        OutReason::SomePorts,
    ),
    ("a quarter of the ports", |kind| kind.port / 2 == 2, OutReason::SomePorts),
    ("one port of eight", |kind| kind.port == 5, OutReason::SomePorts),
    (
        "one port of udp",
        |kind| kind.port == 0 && kind.class.transport == Transport::Udp,
        OutReason::SomePorts,
    ),
    (
        "one port of tcp",
        |kind| kind.port == 7 && kind.class.transport == Transport::Tcp,
        OutReason::SomePorts,
    ),
    ("all but one port", |kind| kind.port != 3, OutReason::SomePorts),
];

/// 3 s at 20 ms: the bound of the guide.
const BOUND: Duration = ms(3000);

/// Where half or more is lost, three in a row may be before any kind is confirmed.
fn is_fit(name: &str, found: OutReason, fit: OutReason) -> bool {
    let is_much = ["odd ports", "all but one port"].contains(&name);
    found == fit || is_much && [OutReason::NoAnswer, OutReason::NoTcp, OutReason::NoUdp].contains(&found)
}

#[test]
fn a_gateway_that_drops_some_kind_is_withdrawn_in_time_for_the_reason_and_returns() {
    let replies = |_, _, _| WATCH;
    for (name, fault, reason) in FAULTS {
        for targets in [1, 2, 4] {
            for start in [ms(1000), ms(1170)] {
                let mut world = World::new(&[true; 6], targets, ms(20), &replies);
                world.run(start);
                world.drops = Box::new(move |probe| probe.gateway == 3 && fault(probe.kind));
                world.run(start + BOUND);
                let outs = world.outs();
                assert!(outs.iter().all(|(_, gateway, _)| *gateway == 3), "{name}, {targets}: {outs:?}");
                assert_eq!(outs.len(), 1, "{name}, {targets} targets: {outs:?}");
                assert!(is_fit(name, outs[0].2, reason), "{name}, {targets}: {outs:?}");
                let since = world.log.iter().find_map(|(_, action)| match action {
                    PathAction::Out { since, .. } => *since,
                    _ => None,
                });
                // Six losses are five intervals, and three are two; then comes a timeout.
                let least = if outs[0].2 == OutReason::NoAnswer { ms(100) } else { ms(160) };
                assert!(since.is_some_and(|since| since >= start && since + least <= outs[0].0), "{since:?}");
                world.run(start + ms(5000));
                assert_eq!(world.ins(), [], "{name}, {targets}: it is still broken");
                world.drops = Box::new(|_| false);
                world.run(start + ms(8500));
                assert_eq!(world.path.members(), [true; 6], "{name}, {targets}");
            }
        }
    }
}

/// The dead member of a link that spreads flows by a hash of addresses and ports: which tuples it takes is random, each
/// of them always.
#[test]
fn a_dead_member_of_a_hashed_link_is_found_in_time() {
    for members in [2, 3, 4, 6, 8] {
        for seed in 0..20u64 {
            let replies = |_, _, _| WATCH;
            let mut world = World::new(&[true; 6], 3, ms(20), &replies);
            let is_dead = move |target: usize, port: u8, tcp: bool| {
                let tuple = (target * 64 + usize::from(port) * 2 + usize::from(tcp)) as u64;
                let mixed = (tuple ^ seed.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                ((mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40).is_multiple_of(members)
            };
            let tuples = (0..3).flat_map(|target| {
                (0..8).flat_map(move |port| [false, true].map(|tcp| is_dead(target, port, tcp)))
            });
            // Chance may give it less than a tenth of those in use, in which case it is not found.
            if tuples.filter(|dead| *dead).count() < 5 {
                continue;
            }
            world.run(ms(1000));
            world.drops = Box::new(move |probe| {
                probe.gateway == 2 && is_dead(probe.target, probe.kind.port, is_tcp(probe))
            });
            world.run(ms(1000) + BOUND);
            let outs = world.outs();
            assert_eq!(outs.first().map(|(_, gateway, _)| *gateway), Some(2), "{members} members, {seed}");
            assert_eq!(outs.len(), 1, "{outs:?}");
        }
    }
}

/// What every gateway drops, the remote network or this host's link does: nothing is withdrawn, and the rest is judged.
#[test]
fn a_kind_that_no_gateway_carries_withdraws_none_and_the_rest_is_judged() {
    for (name, fault, _) in FAULTS {
        let replies = |gateway, _, at| if gateway == 2 && at >= ms(5000) { None } else { WATCH };
        let mut world = World::new(&[true; 4], 3, ms(20), &replies);
        world.drops = Box::new(move |probe| fault(probe.kind));
        // Without UDP no remote host is known to have a watch.
        if name == "udp" {
            continue;
        }
        world.run(ms(5000));
        assert_eq!(world.outs(), [], "{name}");
        if name == "large" {
            assert_eq!(world.path.responding().large(), 0);
        }
        world.run(ms(5500));
        assert_eq!(world.outs().len(), 1, "{name}: {:?}", world.outs());
    }
}

/// Some remote hosts have a watch, at any places; the others are probed by echo alone.
#[test]
fn remote_hosts_with_a_watch_are_found_and_preferred() {
    for (hosts, with_watch) in [
        (9, vec![7]),
        (9, vec![5, 8]),
        (9, vec![1, 4, 6, 8]),
        (64, vec![63]),
        (64, vec![20, 40, 60]),
        (3, vec![1]),
    ] {
        for (name, fault, reason) in FAULTS {
            let places = with_watch.clone();
            let replies = move |_: usize, target: usize, _| {
                Some(if places.contains(&target) { ReplyKind::Watch } else { ReplyKind::Echo })
            };
            let mut world = World::new(&[true; 6], hosts, ms(20), &replies);
            world.run(ms(4000));
            assert_eq!(world.outs(), []);
            let probed: Vec<usize> =
                world.path.targets().filter(|target| with_watch.contains(target)).collect();
            assert_eq!(
                probed.len(),
                with_watch.len().min(3),
                "{hosts} hosts, {with_watch:?}: {:?}",
                world.log
            );
            assert_eq!(world.path.responding().tcp(), probed.len());
            world.drops = Box::new(move |probe| probe.gateway == 3 && fault(probe.kind));
            world.run(ms(4000) + BOUND);
            let outs = world.outs();
            assert!(
                outs.len() == 1 && outs[0].1 == 3 && is_fit(name, outs[0].2, reason),
                "{name}, {with_watch:?} of {hosts}: {outs:?}"
            );
        }
    }
}

/// A watch that is started later is found at the low rate, and the search costs little.
#[test]
fn a_watch_that_starts_later_is_found() {
    let replies = |_: usize, target: usize, at: Duration| {
        Some(if target == 11 && at > ms(10_000) { ReplyKind::Watch } else { ReplyKind::Echo })
    };
    let mut world = World::new(&[true; 6], 20, ms(20), &replies);
    world.run(ms(9000));
    let probes_before = world.sent.len();
    world.run(ms(10_000));
    // 50 rounds through six gateways, and one candidate through two of them.
    assert!(
        (300..=306).contains(&(world.sent.len() - probes_before)),
        "{}",
        world.sent.len() - probes_before
    );
    assert_eq!(world.path.responding().tcp(), 0);
    world.run(ms(10_000 + 18_000));
    assert_eq!(world.path.responding().tcp(), 1, "{:?}", world.log);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Random loss below the limit, at any rate of rounds, withdraws no gateway, whatever is repeated to confirm it.
    #[test]
    fn random_losses_below_the_limit_withdraw_no_gateway(
        seed: u64, percent in 0u64..3, steady in 20u64..100, targets in 1usize..5,
    ) {
        let count = Cell::new(seed);
        let replies = |_: usize, _: usize, _: Duration| {
            count.set(count.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
            if (count.get() >> 33) % 100 < percent { None } else { WATCH }
        };
        let mut world = World::new(&[true; 4], targets, ms(steady), &replies);
        world.run(ms(30_000));
        prop_assert_eq!(world.outs(), vec![]);
    }

    /// Any set of kinds that one gateway drops, whatever: no other gateway is withdrawn, and that one is if it drops a
    /// class or a port of a transport altogether.
    #[test]
    fn only_the_gateway_that_drops_kinds_is_withdrawn(
        mask in any::<[u8; 4]>(), who in 0usize..4, from in 100u64..3_000, targets in 1usize..5,
    ) {
        let replies = |_: usize, _: usize, _: Duration| WATCH;
        let mut world = World::new(&[true; 4], targets, ms(20), &replies);
        world.run(ms(from));
        world.drops = Box::new(move |probe| {
            probe.gateway == who && mask[probe.kind.class.index()] >> probe.kind.port & 1 == 1
        });
        world.run(ms(from) + BOUND);
        let outs = world.outs();
        prop_assert!(outs.iter().all(|(_, gateway, _)| *gateway == who), "{outs:?}");
        let is_found = mask[0] != 0 || mask[1] != 0 || mask[2] == 255 || mask[3] == 255;
        prop_assert!(!is_found || !world.path.members()[who], "{:?}", mask);
    }
}

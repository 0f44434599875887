//! Gateways that drop one protocol or lose a fraction of the packets.

use super::*;

/// Pseudo-random event with probability `percent`: not periodic, and reproducible.
fn happens(percent: u64, seed: u64, at: Duration) -> bool {
    let mixed = (at.as_nanos() as u64 ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33 < percent * (1 << 31) / 100
}

pub(super) fn is_tcp(probe: &Probe) -> bool {
    probe.kind.class.transport == Transport::Tcp
}

#[test]
fn gateway_that_drops_only_tcp_is_withdrawn() {
    let replies = |_, _, _| WATCH;
    for targets in 1..=4 {
        let mut world = World::new(&[true; 6], targets, ms(20), &replies);
        world.run(ms(1000));
        world.drops = Box::new(|probe| probe.gateway == 3 && is_tcp(probe));
        world.run(ms(2000));
        let outs = world.outs();
        assert_eq!(outs.len(), 1, "{outs:?}");
        assert_eq!((outs[0].1, outs[0].2), (3, OutReason::NoTcp));
        // Six rounds by TCP are at most eighteen rounds.
        assert!(outs[0].0 <= ms(1000 + 18 * 20 + 60), "{outs:?}");
        world.drops = Box::new(|_| false);
        world.run(ms(6000));
        assert_eq!(world.path.members(), [true; 6]);
    }
}

#[test]
fn without_tcp_replies_udp_alone_decides_as_fast() {
    let replies = |gateway, _, at| if gateway == 2 && at >= ms(3000) { None } else { WATCH };
    let mut world = World::new(&[true; 4], 3, ms(20), &replies);
    world.drops = Box::new(is_tcp);
    world.run(ms(3000));
    assert_eq!(world.log, []);
    assert_eq!(world.path.responding().tcp(), 0);
    world.run(ms(3000 + 5 * 20 + 60));
    assert_eq!(world.outs().len(), 1, "{:?}", world.log);
    // The filter is gone.
    world.drops = Box::new(|_| false);
    world.run(ms(6000));
    assert!(world.path.responding().tcp() > 0);
}

#[test]
fn gateway_that_loses_a_third_is_withdrawn_within_two_seconds_and_stays_withdrawn() {
    for seed in 0..8 {
        let replies = |gateway, _, at| {
            let lost = gateway == 1 && at > ms(5000) && happens(30, seed, at);
            if lost { None } else { WATCH }
        };
        let mut world = World::new(&[true; 6], 3, ms(20), &replies);
        world.run(ms(15_000));
        let outs = world.outs();
        assert!(outs.iter().all(|(_, gateway, _)| *gateway == 1), "{outs:?}");
        assert!(outs[0].0 < ms(7000), "{outs:?}");
        assert_eq!(world.ins().len(), 0, "a hundred consecutive replies do not occur");
    }
}

#[test]
fn loss_common_to_all_gateways_is_loss_of_the_remote_network() {
    for seed in 0..5 {
        let replies = |gateway: usize, _, at| {
            if happens(6, seed * 8 + gateway as u64, at) { None } else { WATCH }
        };
        let mut world = World::new(&[true; 6], 3, ms(20), &replies);
        world.run(ms(20_000));
        let lossy = world.outs().into_iter().filter(|(.., reason)| *reason == OutReason::Loss).count();
        assert_eq!(lossy, 0, "{:?}", world.outs());
    }
}

/// Withdrawn for loss, a gateway returns when a full window has at most half of the
/// permitted losses, not after a hundred replies by chance.
#[test]
fn lossy_gateway_returns_after_a_clean_window() {
    let replies = |gateway, _, at: Duration| {
        let lost = gateway == 1 && at < ms(10_000) && (at.as_millis() / 20).is_multiple_of(7);
        if lost { None } else { WATCH }
    };
    let mut world = World::new(&[true; 3], 3, ms(20), &replies);
    world.run(ms(9_900));
    assert_eq!(
        world.outs().first().map(|(_, gateway, reason)| (*gateway, *reason)),
        Some((1, OutReason::Loss))
    );
    assert_eq!(world.ins(), []);
    world.run(ms(20_000));
    let (at, _) = world.ins()[0];
    assert!(at > ms(12_000) && at < ms(14_100), "two hundred rounds are four seconds: {at:?}");
}

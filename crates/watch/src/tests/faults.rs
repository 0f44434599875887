//! Gateways that drop one protocol or lose a share of what they forward.

use super::*;

/// Whether something that happens in `percent` of all cases happens now: no
/// period, and the same in every run.
fn happens(percent: u64, seed: u64, at: Duration) -> bool {
    let mixed = (at.as_nanos() as u64 ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33 < percent * (1 << 31) / 100
}

#[test]
fn a_gateway_that_drops_tcp_alone_is_out() {
    let answers = |_, _, _| WATCH;
    for targets in 1..=4 {
        let mut world = World::new(&[true; 6], targets, ms(20), &answers);
        world.run(ms(1000));
        world.no_tcp.push(3);
        world.run(ms(2000));
        let outs = world.outs();
        assert_eq!(outs.len(), 1, "{outs:?}");
        assert_eq!((outs[0].1, outs[0].2), (3, OutReason::NoTcp));
        // Six rounds by TCP are at most eighteen rounds.
        assert!(outs[0].0 <= ms(1000 + 18 * 20 + 60), "{outs:?}");
        world.no_tcp.clear();
        world.run(ms(6000));
        assert_eq!(world.way.members(), [true; 6]);
    }
}

#[test]
fn where_nobody_answers_tcp_udp_alone_is_judged_and_as_soon() {
    let answers = |gateway, _, at| if gateway == 2 && at >= ms(3000) { None } else { WATCH };
    let mut world = World::new(&[true; 4], 3, ms(20), &answers);
    world.old_far_watches = true;
    world.run(ms(3000));
    assert_eq!(world.log, []);
    assert!(!world.way.tcp_heard());
    world.run(ms(3000 + 5 * 20 + 60));
    assert_eq!(world.outs().len(), 1, "{:?}", world.log);
    // They are replaced by newer ones.
    world.old_far_watches = false;
    world.run(ms(6000));
    assert!(world.way.tcp_heard());
}

#[test]
fn a_gateway_that_loses_a_third_is_out_within_two_seconds_and_stays_out() {
    for seed in 0..8 {
        let answers = |gateway, _, at| {
            let lost = gateway == 1 && at > ms(5000) && happens(30, seed, at);
            if lost { None } else { WATCH }
        };
        let mut world = World::new(&[true; 6], 3, ms(20), &answers);
        world.run(ms(15_000));
        let outs = world.outs();
        assert!(outs.iter().all(|(_, gateway, _)| *gateway == 1), "{outs:?}");
        assert!(outs[0].0 < ms(7000), "{outs:?}");
        assert_eq!(world.ins().len(), 0, "a hundred answers in a row do not happen");
    }
}

#[test]
fn loss_that_all_gateways_have_is_that_of_the_far_network() {
    for seed in 0..5 {
        let answers = |gateway: usize, _, at| {
            if happens(6, seed * 8 + gateway as u64, at) { None } else { WATCH }
        };
        let mut world = World::new(&[true; 6], 3, ms(20), &answers);
        world.run(ms(20_000));
        let lossy = world.outs().into_iter().filter(|(.., reason)| *reason == OutReason::Loss).count();
        assert_eq!(lossy, 0, "{:?}", world.outs());
    }
}

/// Out for loss, it returns when a whole window has at most half of the losses
/// that it may have, not after a hundred answers that came by chance.
#[test]
fn a_gateway_that_lost_returns_after_a_clean_window() {
    let answers = |gateway, _, at: Duration| {
        let lost = gateway == 1 && at < ms(10_000) && (at.as_millis() / 20).is_multiple_of(7);
        if lost { None } else { WATCH }
    };
    let mut world = World::new(&[true; 3], 3, ms(20), &answers);
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

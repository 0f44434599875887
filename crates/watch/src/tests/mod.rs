//! The path state machine against a simulated network in virtual time.

mod faults;
mod flaps;
mod gray;

use std::{cell::Cell, collections::BTreeMap, time::Duration};

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{NeighbourState, OutReason},
};
use proptest::prelude::*;

use super::{
    network_path::{PathAction, PathHealth, PathSetup, Probe, ProbeReply, ReplyKind},
    probe_kind::{ProbeClass, ProbeKind, Transport},
};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Reply to a probe through `gateway` to `target`, sent at `at`.
type Replies<'a> = dyn Fn(usize, usize, Duration) -> Option<ReplyKind> + 'a;

/// A simulated network, which the path observes only through replies.
struct World<'a> {
    path: PathHealth,
    replies: &'a Replies<'a>,
    round_trip: Duration,
    arriving: BTreeMap<(Duration, u64, usize), (ReplyKind, ProbeKind)>,
    /// Which probes a gateway drops by their kind.
    drops: Box<dyn Fn(&Probe) -> bool + 'a>,
    now: Duration,
    log: Vec<(Duration, PathAction)>,
    sent: Vec<(Duration, usize)>,
}

impl<'a> World<'a> {
    fn new(members: &[bool], targets: usize, steady: Duration, replies: &'a Replies<'a>) -> Self {
        let setup = PathSetup { members: members.to_vec(), candidate_count: targets, steady, brisk: steady };
        let mut path = PathHealth::new(&setup, WatchSettings::default(), Duration::ZERO);
        path.set_mtu(Some(1500));
        Self {
            path,
            replies,
            round_trip: ms(1),
            arriving: BTreeMap::new(),
            drops: Box::new(|_| false),
            now: Duration::ZERO,
            log: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Advances the time. Replies are processed before rounds are evaluated, as in
    /// the event loop.
    fn run(&mut self, until: Duration) {
        loop {
            let arrival = self.arriving.keys().next().map(|(at, ..)| *at);
            let wake = self.path.next_wake();
            let next = arrival.map_or(wake, |at| at.min(wake)).max(self.now);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            self.step();
        }
    }

    fn step(&mut self) {
        while let Some(entry) = self.arriving.first_entry() {
            let (at, round, gateway) = *entry.key();
            if at > self.now {
                break;
            }
            let (origin, kind) = entry.remove();
            let actions = self.path.reply(self.now, ProbeReply { gateway, round, origin, kind });
            self.take(actions);
        }
        let actions = self.path.advance(self.now);
        self.take(actions);
    }

    fn take(&mut self, actions: Vec<PathAction>) {
        for action in actions {
            match &action {
                PathAction::Probe(probe) => {
                    self.sent.push((self.now, probe.gateway));
                    if (self.drops)(probe) {
                        continue;
                    }
                    match (self.replies)(probe.gateway, probe.target, self.now) {
                        Some(ReplyKind::Echo) if !probe.echo => {}
                        Some(kind) => {
                            let key = (self.now + self.round_trip, probe.round, probe.gateway);
                            self.arriving.insert(key, (kind, probe.kind));
                        }
                        None => {}
                    }
                }
                PathAction::Members(members) => {
                    assert!(members.contains(&true), "no member left at {:?}", self.now);
                    self.log.push((self.now, action));
                }
                _ => self.log.push((self.now, action)),
            }
        }
    }

    fn outs(&self) -> Vec<(Duration, usize, OutReason)> {
        let out = |(at, action): &(Duration, PathAction)| match action {
            PathAction::Out { gateway, reason, .. } => Some((*at, *gateway, *reason)),
            _ => None,
        };
        self.log.iter().filter_map(out).collect()
    }

    fn ins(&self) -> Vec<(Duration, usize)> {
        let back = |(at, action): &(Duration, PathAction)| match action {
            PathAction::In { gateway } => Some((*at, *gateway)),
            _ => None,
        };
        self.log.iter().filter_map(back).collect()
    }
}

const WATCH: Option<ReplyKind> = Some(ReplyKind::Watch);

#[test]
fn dead_gateway_is_withdrawn_after_three_rounds_and_a_timeout() {
    let replies = |gateway, _, at| if gateway == 2 && at >= ms(1000) { None } else { WATCH };
    let mut world = World::new(&[true; 6], 4, ms(20), &replies);
    world.run(ms(3000));
    let outs = world.outs();
    assert_eq!(outs.len(), 1, "{outs:?}");
    let (at, gateway, reason) = outs[0];
    assert_eq!((gateway, reason), (2, OutReason::NoAnswer));
    // Three rounds of 20 ms, and the timeout of the last one, 60 ms.
    assert!(at > ms(1000) && at <= ms(1000 + 3 * 20 + 60), "{at:?}");
    let PathAction::Out { since: Some(since), .. } = world.log[0].1 else { panic!("{:?}", world.log) };
    assert!(since >= ms(1000) && since <= ms(1020), "{since:?}");
    assert_eq!(world.path.members(), [true, true, false, true, true, true]);
}

#[test]
fn large_fabric_probes_slowly_and_confirms_quickly() {
    let replies = |gateway, _, at| if gateway == 2 && at >= ms(5000) { None } else { WATCH };
    let mut world = World::new(&[true; 6], 100, ms(500), &replies);
    world.run(ms(4999));
    // One probe per gateway and round.
    assert!((55..=66).contains(&world.sent.len()), "{}", world.sent.len());
    world.sent.clear();
    world.run(ms(6000));
    let outs = world.outs();
    assert_eq!(outs.len(), 1, "{outs:?}");
    assert!(outs[0].0 <= ms(5000 + 500 + 60 + 2 * 20 + 60), "{outs:?}");
    // The quick rounds go through the suspect and one other gateway.
    let quick = world.sent.iter().filter(|(at, _)| *at >= ms(5060) && *at <= outs[0].0).count();
    assert!(quick <= 6 + 2 * 8, "{quick}");
}

#[test]
fn dead_target_withdraws_no_gateway_and_is_replaced() {
    let replies = |_, target, at| if target == 1 && at >= ms(500) { None } else { WATCH };
    let mut world = World::new(&[true; 3], 5, ms(20), &replies);
    world.run(ms(5000));
    assert_eq!(world.outs(), []);
    assert!(world.log.iter().any(|(_, action)| matches!(action, PathAction::TargetChanged { from: 1, .. })));
    assert!(!world.path.targets().any(|target| target == 1));
}

#[test]
fn one_responding_target_is_enough() {
    // Nine remote hosts, of which only the seventh responds.
    let replies = |gateway, target, at| {
        if target != 6 || (gateway == 2 && at >= ms(10_000)) { None } else { WATCH }
    };
    let mut world = World::new(&[true; 6], 9, ms(20), &replies);
    world.run(ms(9_999));
    assert_eq!(world.outs(), []);
    assert!(world.path.targets().any(|target| target == 6));
    world.run(ms(12_000));
    let outs = world.outs();
    assert_eq!(outs.len(), 1, "{outs:?}");
    // Every fourth round probes a silent target: three rounds that count take four or five.
    assert!(outs[0].0 <= ms(10_000 + 5 * 20 + 60), "{outs:?}");
}

#[test]
fn silent_remote_network_changes_nothing() {
    let replies = |_, _, at: Duration| if (ms(1000)..ms(2000)).contains(&at) { None } else { WATCH };
    let mut world = World::new(&[true; 3], 3, ms(20), &replies);
    world.run(ms(4000));
    let actions: Vec<&PathAction> = world.log.iter().map(|(_, action)| action).collect();
    assert_eq!(actions, [&PathAction::Silent, &PathAction::Reachable]);
}

#[test]
fn pause_of_the_program_withdraws_no_gateway() {
    let replies = |_, _, _| WATCH;
    let mut world = World::new(&[true; 4], 3, ms(20), &replies);
    for _ in 0..20 {
        let until = world.now + ms(300);
        world.run(until);
        // Not scheduled for half a second: replies wait in the socket meanwhile.
        world.now += ms(500);
        world.step();
    }
    assert_eq!(world.outs(), []);
}

#[test]
fn one_of_two_targets_behind_a_broken_gateway_port_is_not_enough() {
    // The gateway does not reach target 1 and reaches the others.
    let replies = |gateway, target, _| if gateway == 0 && target == 1 { None } else { WATCH };
    let mut world = World::new(&[true; 2], 3, ms(20), &replies);
    world.run(ms(10_000));
    assert_eq!(world.outs(), []);
}

#[test]
fn gateway_that_loses_half_is_withdrawn() {
    let replies = |gateway, _, at: Duration| {
        let lost = gateway == 1 && (at.as_millis() / 20).is_multiple_of(2);
        if lost { None } else { WATCH }
    };
    let mut world = World::new(&[true; 3], 3, ms(20), &replies);
    world.run(ms(10_000));
    // By chance three rounds of one protocol may be lost in a row before.
    let first = world.outs().first().map(|(_, gateway, reason)| (*gateway, *reason));
    let reasons = [OutReason::Loss, OutReason::NoTcp, OutReason::NoUdp];
    assert!(reasons.iter().any(|reason| first == Some((1, *reason))), "{first:?}");
    assert!(!world.path.members()[1]);
}

#[test]
fn gateway_returns_after_a_hundred_replies_and_later_after_each_further_failure() {
    // Dead for the first second of every ten.
    let replies = |gateway, _, at: Duration| {
        if gateway == 0 && at.as_millis() % 10_000 < 1000 && at > ms(5000) { None } else { WATCH }
    };
    let mut world = World::new(&[true; 3], 3, ms(20), &replies);
    world.run(ms(65_000));
    let waits: Vec<u128> = world.ins().iter().map(|(at, _)| at.as_millis() % 10_000 - 1000).collect();
    // 100, 200, 400 replies at 20 ms each; 800 do not fit between two failures.
    assert_eq!(waits.len(), 3, "{waits:?}");
    for (wait, wanted) in waits.iter().zip([2000, 4000, 8000]) {
        assert!((wanted..wanted + 100).contains(wait), "{waits:?}");
    }
}

#[test]
fn gateway_found_withdrawn_at_start_is_restored_when_it_responds() {
    let replies = |_, _, _| WATCH;
    let mut world = World::new(&[true, false], 2, ms(20), &replies);
    world.run(ms(3000));
    assert_eq!(world.ins().len(), 1);
    assert_eq!(world.path.members(), [true, true]);
}

#[test]
fn without_a_healthy_member_a_responding_gateway_is_restored_at_once() {
    // 1 is withdrawn and responds from 5 s on; 0 dies at 5.5 s.
    let replies = |gateway, _, at: Duration| match gateway {
        0 if at >= ms(5500) => None,
        1 if at >= ms(1000) && at < ms(5000) => None,
        _ => WATCH,
    };
    let mut world = World::new(&[true; 2], 3, ms(20), &replies);
    world.run(ms(6000));
    assert_eq!(world.path.members(), [false, true]);
    let (at, _) = world.ins()[0];
    assert!(at < ms(5700), "{at:?}");
}

#[test]
fn remote_hosts_without_a_watch_are_probed_by_echo() {
    let replies = |gateway, _, at| {
        if gateway == 1 && at >= ms(2000) { None } else { Some(ReplyKind::Echo) }
    };
    let mut world = World::new(&[true; 3], 3, ms(20), &replies);
    world.run(ms(1500));
    assert_eq!(world.log, []);
    world.run(ms(2200));
    assert_eq!(world.outs().len(), 1, "{:?}", world.log);
}

#[test]
fn reply_of_a_watch_takes_precedence_over_an_echo() {
    // Gateway 1 forwards requests, but not the watches' pinned replies.
    let replies = |gateway, _, at| {
        if gateway == 1 && at >= ms(1000) { Some(ReplyKind::Echo) } else { WATCH }
    };
    let mut world = World::new(&[true; 2], 3, ms(20), &replies);
    world.run(ms(2000));
    assert_eq!(world.path.members(), [true, false]);
}

#[test]
fn a_failed_neighbour_needs_one_round_only() {
    let replies = |gateway, _, at| if gateway == 1 && at >= ms(1000) { None } else { WATCH };
    let mut world = World::new(&[true; 2], 3, ms(20), &replies);
    world.run(ms(1000));
    world.path.neighbour(1, NeighbourState::Failed);
    world.run(ms(2000));
    let (at, _, reason) = world.outs()[0];
    assert_eq!(reason, OutReason::NoNeighbour);
    assert!(at <= ms(1081), "{at:?}");
}

#[test]
fn drained_gateway_stays_withdrawn_until_it_is_undrained() {
    let replies = |_, _, _| WATCH;
    let mut world = World::new(&[true; 2], 2, ms(20), &replies);
    world.run(ms(3000));
    assert!(world.path.can_drain(0));
    let actions = world.path.drain(0);
    assert!(actions.contains(&PathAction::Members(vec![false, true])));
    assert!(!world.path.can_drain(1), "the last one must not be drained");
    world.run(ms(9000));
    assert_eq!(world.path.members(), [false, true]);
    let actions = world.path.undrain(world.now, 0);
    assert!(actions.contains(&PathAction::Members(vec![true, true])), "{actions:?}");
}

#[test]
fn all_interfaces_down_change_nothing() {
    let replies = |_, _, _| WATCH;
    let mut world = World::new(&[true; 3], 2, ms(20), &replies);
    world.run(ms(100));
    for gateway in 0..3 {
        let actions = world.path.link(world.now, gateway, false);
        world.take(actions);
    }
    assert!(world.path.members().contains(&true));
    assert!(world.log.iter().any(|(_, action)| matches!(action, PathAction::KeptLast { .. })));
}

/// Outages of `count` hosts: start and length in milliseconds.
fn outages(count: usize) -> impl Strategy<Value = Vec<Vec<(u64, u64)>>> {
    let one = prop::collection::vec((0u64..20_000, 50u64..5_000), 0..3);
    prop::collection::vec(one, count)
}

fn dead(outages: &[(u64, u64)], at: Duration) -> bool {
    outages.iter().any(|(from, length)| (*from..from + length).contains(&(at.as_millis() as u64)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever dies, a member is left (checked at every change). When everything has
    /// been healthy for long enough, all gateways are members.
    #[test]
    fn a_member_is_always_left_and_all_gateways_return(
        gateways in outages(5), targets in outages(4), steady in 20u64..300,
    ) {
        let replies = |gateway: usize, target: usize, at: Duration| {
            if dead(&gateways[gateway], at) || dead(&targets[target], at) { None } else { WATCH }
        };
        let mut world = World::new(&[true; 5], 4, ms(steady), &replies);
        // Two failures within the memory double the wait twice.
        world.run(ms(26_000) + ms(steady) * 110 * 8);
        prop_assert_eq!(world.path.members(), vec![true; 5]);
    }

    /// Dead remote hosts and a probe loss of up to two percent withdraw no gateway.
    #[test]
    fn dead_remote_hosts_and_single_losses_withdraw_no_gateway(
        targets in outages(6), lossy in 0usize..4, every in 50u32..100, steady in 20u64..100,
    ) {
        // Every n-th probe is lost, whatever its time: a loss is followed by faster
        // probes, and a lossy period would hit more of them than `every` permits.
        let probes = Cell::new(0);
        let replies = |gateway: usize, target: usize, at: Duration| {
            probes.set(probes.get() + u32::from(gateway == lossy));
            let lost = gateway == lossy && probes.get().is_multiple_of(every);
            if lost || dead(&targets[target], at) { None } else { WATCH }
        };
        let mut world = World::new(&[true; 4], 6, ms(steady), &replies);
        world.run(ms(30_000));
        prop_assert_eq!(world.outs(), vec![]);
    }

    /// A gateway that stays dead is withdrawn within the bound, as long as another
    /// gateway and a remote host are alive.
    #[test]
    fn dead_gateway_is_withdrawn_in_time(
        from in 100u64..5_000, who in 0usize..4, steady in 20u64..500, trip in 0u64..50,
    ) {
        let replies = |gateway: usize, _: usize, at: Duration| {
            if gateway == who && at >= ms(from) { None } else { WATCH }
        };
        let mut world = World::new(&[true; 4], 3, ms(steady), &replies);
        world.round_trip = ms(trip);
        // An overdue reply begins the rounds that confirm it; where it takes so long by all gateways, the timeout does.
        let suspicion = if trip < 20 { 1 } else { 60 + 20 };
        world.run(ms(from + steady + suspicion + 2 * 20 + 60));
        prop_assert!(!world.path.members()[who], "{:?}", world.log);
        prop_assert_eq!(world.outs().len(), 1);
    }

    /// No input leaves the path without members, or panics.
    #[test]
    fn arbitrary_inputs_are_survived(
        inputs in prop::collection::vec((0u8..6, 0usize..7, any::<u16>()), 1..400),
    ) {
        let replies = |_: usize, _: usize, _: Duration| None;
        let mut world = World::new(&[true; 4], 3, ms(20), &replies);
        for (kind, index, number) in inputs {
            let gateway = index % 4;
            let actions = match kind {
                0 | 1 => {
                    let origin = if kind == 0 { ReplyKind::Watch } else { ReplyKind::Echo };
                    let class = ProbeClass::ALL[usize::from(number / 64 % 4)];
                    let kind = ProbeKind { class, port: (number / 256) as u8 };
                    let round = u64::from(number % 64);
                    world.path.reply(world.now, ProbeReply { gateway: index, round, origin, kind })
                }
                2 => world.path.link(world.now, gateway, number % 2 == 0),
                3 if world.path.can_drain(gateway) => world.path.drain(gateway),
                4 => world.path.undrain(world.now, gateway),
                _ => {
                    world.now += ms(u64::from(number % 200));
                    world.path.advance(world.now)
                }
            };
            world.take(actions);
            prop_assert!(world.path.members().contains(&true));
        }
    }
}

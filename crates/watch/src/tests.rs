//! The decisions against a simulated network in virtual time.

mod faults;
mod flaps;

use std::{cell::Cell, collections::BTreeMap, time::Duration};

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{NeighbourState, OutReason},
};
use proptest::prelude::*;

use super::{
    gateway::Transport,
    network_path::{Answer, AnswerKind, WayAction, WayHealth, WaySetup},
};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Whether a probe through `gateway` to `target`, sent at `at`, is answered.
type Answers<'a> = dyn Fn(usize, usize, Duration) -> Option<AnswerKind> + 'a;

/// A network of which the way sees nothing but answers.
struct World<'a> {
    way: WayHealth,
    answers: &'a Answers<'a>,
    round_trip: Duration,
    arriving: BTreeMap<(Duration, u64, usize), (AnswerKind, Transport)>,
    /// Gateways that drop TCP.
    no_tcp: Vec<usize>,
    /// A far watch of an earlier release answers UDP only.
    old_far_watches: bool,
    now: Duration,
    log: Vec<(Duration, WayAction)>,
    sent: Vec<(Duration, usize)>,
}

impl<'a> World<'a> {
    fn new(members: &[bool], targets: usize, steady: Duration, answers: &'a Answers<'a>) -> Self {
        let setup = WaySetup { members: members.to_vec(), candidate_count: targets, steady };
        Self {
            way: WayHealth::new(&setup, WatchSettings::default(), Duration::ZERO),
            answers,
            round_trip: ms(1),
            arriving: BTreeMap::new(),
            no_tcp: Vec::new(),
            old_far_watches: false,
            now: Duration::ZERO,
            log: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Lets time pass; what arrived is handed over before rounds are judged,
    /// as the loop around it does.
    fn run(&mut self, until: Duration) {
        loop {
            let arrival = self.arriving.keys().next().map(|(at, ..)| *at);
            let wake = self.way.next_wake();
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
            let (kind, transport) = entry.remove();
            let actions = self.way.answer(self.now, Answer { gateway, round, kind, transport });
            self.take(actions);
        }
        let actions = self.way.advance(self.now);
        self.take(actions);
    }

    fn take(&mut self, actions: Vec<WayAction>) {
        for action in actions {
            match &action {
                WayAction::Probe(probe) => {
                    self.sent.push((self.now, probe.gateway));
                    let tcp = probe.transport == Transport::Tcp;
                    if tcp && (self.old_far_watches || self.no_tcp.contains(&probe.gateway)) {
                        continue;
                    }
                    match (self.answers)(probe.gateway, probe.target, self.now) {
                        Some(AnswerKind::Echo) if !probe.echo => {}
                        Some(kind) => {
                            let key = (self.now + self.round_trip, probe.round, probe.gateway);
                            self.arriving.insert(key, (kind, probe.transport));
                        }
                        None => {}
                    }
                }
                WayAction::Members(members) => {
                    assert!(members.contains(&true), "nobody left at {:?}", self.now);
                    self.log.push((self.now, action));
                }
                _ => self.log.push((self.now, action)),
            }
        }
    }

    fn outs(&self) -> Vec<(Duration, usize, OutReason)> {
        let out = |(at, action): &(Duration, WayAction)| match action {
            WayAction::Out { gateway, reason, .. } => Some((*at, *gateway, *reason)),
            _ => None,
        };
        self.log.iter().filter_map(out).collect()
    }

    fn ins(&self) -> Vec<(Duration, usize)> {
        let back = |(at, action): &(Duration, WayAction)| match action {
            WayAction::In { gateway } => Some((*at, *gateway)),
            _ => None,
        };
        self.log.iter().filter_map(back).collect()
    }
}

const WATCH: Option<AnswerKind> = Some(AnswerKind::Watch);

#[test]
fn a_dead_gateway_is_out_after_three_rounds_and_a_timeout() {
    let answers = |gateway, _, at| if gateway == 2 && at >= ms(1000) { None } else { WATCH };
    let mut world = World::new(&[true; 6], 4, ms(20), &answers);
    world.run(ms(3000));
    let outs = world.outs();
    assert_eq!(outs.len(), 1, "{outs:?}");
    let (at, gateway, reason) = outs[0];
    assert_eq!((gateway, reason), (2, OutReason::NoAnswer));
    // Three rounds of 20 ms, the last of which is waited for 60 ms.
    assert!(at > ms(1000) && at <= ms(1000 + 3 * 20 + 60), "{at:?}");
    let WayAction::Out { since: Some(since), .. } = world.log[0].1 else { panic!("{:?}", world.log) };
    assert!(since >= ms(1000) && since <= ms(1020), "{since:?}");
    assert_eq!(world.way.members(), [true, true, false, true, true, true]);
}

#[test]
fn a_large_fabric_probes_slowly_and_makes_sure_quickly() {
    let answers = |gateway, _, at| if gateway == 2 && at >= ms(5000) { None } else { WATCH };
    let mut world = World::new(&[true; 6], 100, ms(500), &answers);
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
fn a_dead_far_host_condemns_nobody_and_is_replaced() {
    let answers = |_, target, at| if target == 1 && at >= ms(500) { None } else { WATCH };
    let mut world = World::new(&[true; 3], 5, ms(20), &answers);
    world.run(ms(5000));
    assert_eq!(world.outs(), []);
    assert!(world.log.iter().any(|(_, action)| *action == WayAction::TargetChanged { from: 1, to: 3 }));
    assert_eq!(world.way.targets().collect::<Vec<_>>(), [0, 3, 2]);
}

#[test]
fn one_far_host_that_answers_is_enough() {
    // Nine far hosts of which the seventh alone is there.
    let answers = |gateway, target, at| {
        if target != 6 || (gateway == 2 && at >= ms(10_000)) { None } else { WATCH }
    };
    let mut world = World::new(&[true; 6], 9, ms(20), &answers);
    world.run(ms(9_999));
    assert_eq!(world.outs(), []);
    assert!(world.way.targets().any(|target| target == 6));
    world.run(ms(12_000));
    let outs = world.outs();
    assert_eq!(outs.len(), 1, "{outs:?}");
    // Every fourth round looks for another one: three rounds that count are four or five.
    assert!(outs[0].0 <= ms(10_000 + 5 * 20 + 60), "{outs:?}");
}

#[test]
fn a_silent_far_network_changes_nothing() {
    let answers = |_, _, at: Duration| if (ms(1000)..ms(2000)).contains(&at) { None } else { WATCH };
    let mut world = World::new(&[true; 3], 3, ms(20), &answers);
    world.run(ms(4000));
    let actions: Vec<&WayAction> = world.log.iter().map(|(_, action)| action).collect();
    assert_eq!(actions, [&WayAction::Silent, &WayAction::Heard]);
}

#[test]
fn a_pause_of_the_program_condemns_nobody() {
    let answers = |_, _, _| WATCH;
    let mut world = World::new(&[true; 4], 3, ms(20), &answers);
    for _ in 0..20 {
        let until = world.now + ms(300);
        world.run(until);
        // Asleep for half a second: answers wait in the socket meanwhile.
        world.now += ms(500);
        world.step();
    }
    assert_eq!(world.outs(), []);
}

#[test]
fn one_of_two_far_hosts_behind_a_broken_gateway_port_is_not_enough() {
    // The gateway does not reach target 1 and reaches the others.
    let answers = |gateway, target, _| if gateway == 0 && target == 1 { None } else { WATCH };
    let mut world = World::new(&[true; 2], 3, ms(20), &answers);
    world.run(ms(10_000));
    assert_eq!(world.outs(), []);
}

#[test]
fn a_gateway_that_loses_half_is_out() {
    let answers = |gateway, _, at: Duration| {
        let lost = gateway == 1 && (at.as_millis() / 20).is_multiple_of(2);
        if lost { None } else { WATCH }
    };
    let mut world = World::new(&[true; 3], 3, ms(20), &answers);
    world.run(ms(10_000));
    // By chance three rounds of one protocol may be lost in a row before.
    let first = world.outs().first().map(|(_, gateway, reason)| (*gateway, *reason));
    let reasons = [OutReason::Loss, OutReason::NoTcp, OutReason::NoUdp];
    assert!(reasons.iter().any(|reason| first == Some((1, *reason))), "{first:?}");
    assert!(!world.way.members()[1]);
}

#[test]
fn it_comes_back_after_a_hundred_answers_and_later_each_time_it_fails_again() {
    // Dead for a second, well for four, again and again.
    let answers = |gateway, _, at: Duration| {
        if gateway == 0 && at.as_millis() % 10_000 < 1000 && at > ms(5000) { None } else { WATCH }
    };
    let mut world = World::new(&[true; 3], 3, ms(20), &answers);
    world.run(ms(65_000));
    let waits: Vec<u128> = world.ins().iter().map(|(at, _)| at.as_millis() % 10_000 - 1000).collect();
    // 100, 200, 400 answers at 20 ms each; 800 do not fit between two failures.
    assert_eq!(waits.len(), 3, "{waits:?}");
    for (wait, wanted) in waits.iter().zip([2000, 4000, 8000]) {
        assert!((wanted..wanted + 100).contains(wait), "{waits:?}");
    }
}

#[test]
fn found_out_at_the_start_it_is_put_back_when_it_answers() {
    let answers = |_, _, _| WATCH;
    let mut world = World::new(&[true, false], 2, ms(20), &answers);
    world.run(ms(3000));
    assert_eq!(world.ins().len(), 1);
    assert_eq!(world.way.members(), [true, true]);
}

#[test]
fn with_nobody_well_left_one_that_answers_is_taken_at_once() {
    // 1 is out and answers since 5 s; 0 dies at 5.5 s.
    let answers = |gateway, _, at: Duration| match gateway {
        0 if at >= ms(5500) => None,
        1 if at >= ms(1000) && at < ms(5000) => None,
        _ => WATCH,
    };
    let mut world = World::new(&[true; 2], 3, ms(20), &answers);
    world.run(ms(6000));
    assert_eq!(world.way.members(), [false, true]);
    let (at, _) = world.ins()[0];
    assert!(at < ms(5700), "{at:?}");
}

#[test]
fn far_hosts_without_a_watch_are_asked_by_echo() {
    let answers = |gateway, _, at| {
        if gateway == 1 && at >= ms(2000) { None } else { Some(AnswerKind::Echo) }
    };
    let mut world = World::new(&[true; 3], 3, ms(20), &answers);
    world.run(ms(1500));
    assert_eq!(world.log, []);
    world.run(ms(2200));
    assert_eq!(world.outs().len(), 1, "{:?}", world.log);
}

#[test]
fn an_answer_of_a_watch_beats_an_echo() {
    // Gateway 1 forwards requests, but not the watches' pinned answers.
    let answers = |gateway, _, at| {
        if gateway == 1 && at >= ms(1000) { Some(AnswerKind::Echo) } else { WATCH }
    };
    let mut world = World::new(&[true; 2], 3, ms(20), &answers);
    world.run(ms(2000));
    assert_eq!(world.way.members(), [true, false]);
}

#[test]
fn a_failed_neighbour_needs_one_round_only() {
    let answers = |gateway, _, at| if gateway == 1 && at >= ms(1000) { None } else { WATCH };
    let mut world = World::new(&[true; 2], 3, ms(20), &answers);
    world.run(ms(1000));
    world.way.neighbour(1, NeighbourState::Failed);
    world.run(ms(2000));
    let (at, _, reason) = world.outs()[0];
    assert_eq!(reason, OutReason::NoNeighbour);
    assert!(at <= ms(1081), "{at:?}");
}

#[test]
fn a_drained_gateway_stays_out_until_it_is_undrained() {
    let answers = |_, _, _| WATCH;
    let mut world = World::new(&[true; 2], 2, ms(20), &answers);
    world.run(ms(3000));
    assert!(world.way.can_drain(0));
    let actions = world.way.drain(0);
    assert!(actions.contains(&WayAction::Members(vec![false, true])));
    assert!(!world.way.can_drain(1), "the last one must not be drained");
    world.run(ms(9000));
    assert_eq!(world.way.members(), [false, true]);
    let actions = world.way.undrain(world.now, 0);
    assert!(actions.contains(&WayAction::Members(vec![true, true])), "{actions:?}");
}

#[test]
fn all_interfaces_down_change_nothing() {
    let answers = |_, _, _| WATCH;
    let mut world = World::new(&[true; 3], 2, ms(20), &answers);
    world.run(ms(100));
    for gateway in 0..3 {
        let actions = world.way.link(world.now, gateway, false);
        world.take(actions);
    }
    assert!(world.way.members().contains(&true));
    assert!(world.log.iter().any(|(_, action)| matches!(action, WayAction::KeptLast { .. })));
}

/// When each of some things is dead: from a time, for a while.
fn outages(count: usize) -> impl Strategy<Value = Vec<Vec<(u64, u64)>>> {
    let one = prop::collection::vec((0u64..20_000, 50u64..5_000), 0..3);
    prop::collection::vec(one, count)
}

fn dead(outages: &[(u64, u64)], at: Duration) -> bool {
    outages.iter().any(|(from, length)| (*from..from + length).contains(&(at.as_millis() as u64)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever dies, someone is left (checked with every change), and in the
    /// end, with everything well for long enough, everyone is back.
    #[test]
    fn someone_is_always_left_and_everyone_returns(
        gateways in outages(5), targets in outages(4), steady in 20u64..300,
    ) {
        let answers = |gateway: usize, target: usize, at: Duration| {
            if dead(&gateways[gateway], at) || dead(&targets[target], at) { None } else { WATCH }
        };
        let mut world = World::new(&[true; 5], 4, ms(steady), &answers);
        // Two failures within the memory double the wait twice.
        world.run(ms(26_000) + ms(steady) * 110 * 8);
        prop_assert_eq!(world.way.members(), vec![true; 5]);
    }

    /// Far hosts that die and lost probes up to four in a hundred condemn no gateway.
    #[test]
    fn far_hosts_and_single_losses_condemn_nobody(
        targets in outages(6), lossy in 0usize..4, every in 50u32..100, steady in 20u64..100,
    ) {
        // Losses are counted in probes: a loss is followed by quicker probes,
        // and whatever loses all of a time loses more of those than its share.
        let probes = Cell::new(0);
        let answers = |gateway: usize, target: usize, at: Duration| {
            probes.set(probes.get() + u32::from(gateway == lossy));
            let lost = gateway == lossy && probes.get().is_multiple_of(every);
            if lost || dead(&targets[target], at) { None } else { WATCH }
        };
        let mut world = World::new(&[true; 4], 6, ms(steady), &answers);
        world.run(ms(30_000));
        prop_assert_eq!(world.outs(), vec![]);
    }

    /// A gateway that is dead for good is out within the bound, however the
    /// program is held up, as long as some other one and some far host live.
    #[test]
    fn the_dead_are_out_in_time(
        from in 100u64..5_000, who in 0usize..4, steady in 20u64..500, trip in 0u64..50,
    ) {
        let answers = |gateway: usize, _: usize, at: Duration| {
            if gateway == who && at >= ms(from) { None } else { WATCH }
        };
        let mut world = World::new(&[true; 4], 3, ms(steady), &answers);
        world.round_trip = ms(trip);
        world.run(ms(from + steady + 60 + 2 * 20 + 60 + 20));
        prop_assert!(!world.way.members()[who], "{:?}", world.log);
        prop_assert_eq!(world.outs().len(), 1);
    }

    /// No input of any kind leaves nobody or ends the program.
    #[test]
    fn nonsense_is_survived(
        inputs in prop::collection::vec((0u8..6, 0usize..7, any::<u16>()), 1..400),
    ) {
        let answers = |_: usize, _: usize, _: Duration| None;
        let mut world = World::new(&[true; 4], 3, ms(20), &answers);
        for (kind, index, number) in inputs {
            let gateway = index % 4;
            let actions = match kind {
                0 | 1 => {
                    let kind = if kind == 0 { AnswerKind::Watch } else { AnswerKind::Echo };
                    let transport = if number % 3 == 0 { Transport::Tcp } else { Transport::Udp };
                    let round = u64::from(number % 64);
                    world.way.answer(world.now, Answer { gateway: index, round, kind, transport })
                }
                2 => world.way.link(world.now, gateway, number % 2 == 0),
                3 if world.way.can_drain(gateway) => world.way.drain(gateway),
                4 => world.way.undrain(world.now, gateway),
                _ => {
                    world.now += ms(u64::from(number % 200));
                    world.way.advance(world.now)
                }
            };
            world.take(actions);
            prop_assert!(world.way.members().contains(&true));
        }
    }
}

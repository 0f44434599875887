//! Health of one network path (to a remote network, in one address family): rounds
//! of probes through all its gateways, and the decisions that follow from them.
//!
//! A round probes one remote host through every gateway. A missing reply counts
//! against a gateway only if another gateway carried a reply in that round: a dead
//! remote host, a pause of this program or an unreachable remote network affects
//! all gateways alike, and withdraws none.

use std::{collections::VecDeque, time::Duration};

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{NeighbourState, OutReason},
};

use super::{
    gateway::{GatewayHealth, RoundEnd, Transport},
    target::Target,
};

/// While some targets respond, one of this many rounds probes a silent one.
const SEARCH_EVERY: u64 = 4;
/// Consecutive rounds without any reply after which the remote network is reported silent.
const SILENT_AFTER: u32 = 15;

/// Initial state of a path.
#[derive(Debug, Clone)]
pub(super) struct PathSetup {
    /// For each gateway, whether it is among the next hops now.
    pub(super) members: Vec<bool>,
    /// Remote hosts that can be probed; the first ones are the initial targets.
    pub(super) candidate_count: usize,
    /// Time between rounds while nothing fails.
    pub(super) steady: Duration,
}

/// Origin of a probe reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The watch of the remote host, through the same gateway.
    Watch,
    /// The remote host's kernel (ICMP echo), by its own route.
    Echo,
}

/// A probe to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    /// Gateway that forwards it.
    pub(super) gateway: usize,
    /// Remote host: index among the candidates.
    pub(super) target: usize,
    /// Number of the round.
    pub(super) round: u64,
    /// Transport protocol.
    pub(super) transport: Transport,
    /// Send an ICMP echo request too.
    pub(super) echo: bool,
}

/// A received probe reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeReply {
    /// Gateway that carried it.
    pub(super) gateway: usize,
    /// Number of the round.
    pub(super) round: u64,
    /// Origin.
    pub(super) kind: ReplyKind,
    /// Transport protocol.
    pub(super) transport: Transport,
}

/// An action or event that a path requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathAction {
    /// Send this probe.
    Probe(Probe),
    /// Use these gateways as next hops: one flag per gateway, at least one set.
    Members(Vec<bool>),
    /// A gateway was withdrawn.
    Out {
        /// Index of the gateway.
        gateway: usize,
        /// Cause.
        reason: OutReason,
        /// Send time of the first probe that failed.
        since: Option<Duration>,
    },
    /// A gateway was restored.
    In {
        /// Index of the gateway.
        gateway: usize,
    },
    /// A faulty gateway stays, because it is the last one.
    KeptLast {
        /// Index of the gateway.
        gateway: usize,
        /// Fault.
        reason: OutReason,
    },
    /// No target responds through any gateway.
    Silent,
    /// A target responds after [`Self::Silent`].
    Reachable,
    /// Another remote host is probed from now on; indices among the candidates.
    TargetChanged {
        /// Previous target.
        from: usize,
        /// New target.
        to: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    NotProbed,
    Waiting,
    Replied(ReplyKind),
}

#[derive(Debug, Clone)]
struct Round {
    number: u64,
    target: usize,
    transport: Transport,
    sent: Duration,
    slots: Vec<Slot>,
}

/// State machine of one path: inputs carry their time, outputs are [`PathAction`]s.
#[derive(Debug, Clone)]
pub(super) struct PathHealth {
    pub(super) gateways: Vec<GatewayHealth>,
    pub(super) steady: Duration,
    pub(super) reachable: bool,
    targets: Vec<Target>,
    spare: VecDeque<usize>,
    rounds: VecDeque<Round>,
    next_round: u64,
    next_at: Duration,
    silent_rounds: u32,
    first_failure: Vec<Option<Duration>>,
    reported_last: Option<usize>,
    settings: WatchSettings,
}

impl PathHealth {
    /// A path whose first round is due at `start`.
    pub(super) fn new(setup: &PathSetup, settings: WatchSettings, start: Duration) -> Self {
        let active = setup.candidate_count.min(settings.target_count.max(1) as usize);
        Self {
            gateways: setup.members.iter().map(|member| GatewayHealth::new(*member)).collect(),
            steady: setup.steady.max(settings.interval.to_std()),
            reachable: true,
            targets: (0..active).map(|place| Target::new(place, place as u64)).collect(),
            spare: (active..setup.candidate_count).collect(),
            rounds: VecDeque::new(),
            next_round: 0,
            next_at: start,
            silent_rounds: 0,
            first_failure: vec![None; setup.members.len()],
            reported_last: None,
            settings,
        }
    }

    /// Postpones the first round.
    pub(super) fn start_at(&mut self, at: Duration) {
        self.next_at = at;
    }

    /// Current targets: indices among the candidates.
    pub(super) fn targets(&self) -> impl Iterator<Item = usize> {
        self.targets.iter().map(|target| target.candidate)
    }

    /// Time at which [`advance`](Self::advance) has work to do next.
    pub(super) fn next_wake(&self) -> Duration {
        let timeout = self.settings.timeout.to_std();
        let oldest = self.rounds.front().map(|round| round.sent + timeout);
        oldest.map_or(self.next_at, |oldest| oldest.min(self.next_at))
    }

    /// Ends rounds that timed out and begins one that is due. Every reply received
    /// until `now` must have been passed to [`reply`](Self::reply) before.
    pub(super) fn advance(&mut self, now: Duration) -> Vec<PathAction> {
        let mut actions = Vec::new();
        let timeout = self.settings.timeout.to_std();
        while self.rounds.front().is_some_and(|round| now >= round.sent + timeout) {
            if let Some(round) = self.rounds.pop_front() {
                self.end(&round, &mut actions);
            }
        }
        self.settle(now, &mut actions);
        if now >= self.next_at && !self.targets.is_empty() {
            self.begin(now, &mut actions);
        }
        actions
    }

    /// Processes a reply. One to a round that has ended is a late reply.
    pub(super) fn reply(&mut self, now: Duration, reply: ProbeReply) -> Vec<PathAction> {
        let ProbeReply { gateway, round, kind, transport } = reply;
        let mut actions = Vec::new();
        if gateway >= self.gateways.len() || round >= self.next_round {
            return actions;
        }
        let place = self.rounds.iter().position(|waiting| waiting.number == round);
        let Some(place) = place else {
            if kind == ReplyKind::Watch {
                self.gateways[gateway].alive(round, transport);
                self.first_failure[gateway] = None;
            }
            return actions;
        };
        let slots = &mut self.rounds[place].slots;
        match slots[gateway] {
            Slot::NotProbed | Slot::Replied(ReplyKind::Watch) => return actions,
            Slot::Waiting | Slot::Replied(ReplyKind::Echo) => slots[gateway] = Slot::Replied(kind),
        }
        let complete =
            slots.iter().all(|slot| matches!(slot, Slot::NotProbed | Slot::Replied(ReplyKind::Watch)));
        if complete && let Some(round) = self.rounds.remove(place) {
            self.end(&round, &mut actions);
            self.settle(now, &mut actions);
        }
        actions
    }

    /// Processes a link state: the local interface to a gateway came up or went down.
    pub(super) fn link(&mut self, now: Duration, gateway: usize, up: bool) -> Vec<PathAction> {
        let mut actions = Vec::new();
        self.gateways[gateway].link_up = up;
        self.settle(now, &mut actions);
        actions
    }

    /// Sets a gateway's state in the kernel's neighbour table.
    pub(super) fn neighbour(&mut self, gateway: usize, state: NeighbourState) {
        self.gateways[gateway].neighbour = state;
    }

    /// Sets the state of a routing daemon's BFD session with a gateway.
    pub(super) fn session(&mut self, gateway: usize, up: Option<bool>) {
        self.gateways[gateway].session_up = up;
    }

    /// Whether a gateway can be drained: another usable one must remain.
    pub(super) fn can_drain(&self, gateway: usize) -> bool {
        self.gateways
            .iter()
            .enumerate()
            .any(|(index, other)| index != gateway && other.member && !other.is_suspect() && other.link_up)
    }

    /// Withdraws a gateway for an operator; see [`can_drain`](Self::can_drain).
    pub(super) fn drain(&mut self, gateway: usize) -> Vec<PathAction> {
        let mut actions = Vec::new();
        if self.gateways[gateway].drain() {
            actions.push(PathAction::Out { gateway, reason: OutReason::Drained, since: None });
            actions.push(PathAction::Members(self.members()));
        }
        actions
    }

    /// Ends a drain: the gateway is restored like any other withdrawn one.
    pub(super) fn undrain(&mut self, now: Duration, gateway: usize) -> Vec<PathAction> {
        let mut actions = Vec::new();
        let undrained = &mut self.gateways[gateway];
        if undrained.drained {
            undrained.drained = false;
            undrained.reason = Some(OutReason::FoundOut);
            self.settle(now, &mut actions);
        }
        actions
    }

    /// A withdrawn gateway responds, and will be restored if that continues.
    pub(super) fn expects_return(&self) -> bool {
        self.gateways
            .iter()
            .any(|gateway| !gateway.member && !gateway.drained && gateway.has_consecutive_replies(1))
    }

    /// Gateways wanted among the next hops, one flag each.
    pub(super) fn members(&self) -> Vec<bool> {
        self.gateways.iter().map(|gateway| gateway.member).collect()
    }

    /// Sends the probes of a round. While a gateway is suspect, rounds use the
    /// shorter interval; where that exceeds the steady rate, they go through the
    /// suspects and one gateway that responds only.
    fn begin(&mut self, now: Duration, actions: &mut Vec<PathAction>) {
        let number = self.next_round;
        let quick = self.settings.interval.to_std();
        let suspects: Vec<bool> =
            self.gateways.iter().map(|gateway| gateway.member && gateway.is_suspect()).collect();
        let hurry = suspects.contains(&true) && self.steady > quick;
        let reference = hurry.then(|| self.reference(number)).flatten();
        let place = self.next_target(number);
        let target = &mut self.targets[place];
        let transport = target.next_transport();
        let mut slots = vec![Slot::NotProbed; self.gateways.len()];
        for (gateway, slot) in slots.iter_mut().enumerate() {
            if hurry && !suspects[gateway] && reference != Some(gateway) {
                continue;
            }
            *slot = Slot::Waiting;
            let counts = &mut self.gateways[gateway].counts;
            counts.sent_count += 1;
            counts.tcp_sent_count += u64::from(transport == Transport::Tcp);
            let (target, echo) = (target.candidate, target.echo);
            actions.push(PathAction::Probe(Probe { gateway, target, round: number, transport, echo }));
        }
        self.rounds.push_back(Round { number, target: place, transport, sent: now, slots });
        self.next_round += 1;
        let wait = if hurry { quick } else { self.steady };
        // After a pause of the program, rounds continue from now, without a burst.
        self.next_at = (self.next_at + wait).max(now + wait / 2);
    }

    /// Target of a round: round robin over those that respond, with occasional
    /// rounds to a silent one, to detect its recovery.
    fn next_target(&self, number: u64) -> usize {
        let (responding, silent): (Vec<usize>, Vec<usize>) =
            (0..self.targets.len()).partition(|place| self.targets[*place].responds());
        let searches = number % SEARCH_EVERY == SEARCH_EVERY - 1;
        let turn = |of: &[usize], number: u64| of[(number % of.len() as u64) as usize];
        match (responding.is_empty(), silent.is_empty()) {
            (true, _) => turn(&silent, number),
            (false, true) => turn(&responding, number),
            (false, false) if searches => turn(&silent, number / SEARCH_EVERY),
            // Rounds to silent targets do not advance the round robin.
            (false, false) => turn(&responding, number - number / SEARCH_EVERY),
        }
    }

    /// A gateway that responds, another one in each round.
    fn reference(&self, number: u64) -> Option<usize> {
        let responding: Vec<usize> = (0..self.gateways.len())
            .filter(|gateway| self.gateways[*gateway].has_consecutive_replies(1))
            .collect();
        (!responding.is_empty()).then(|| responding[(number % responding.len() as u64) as usize])
    }

    /// Evaluates a round that ended.
    fn end(&mut self, round: &Round, actions: &mut Vec<PathAction>) {
        let by_watch = round.slots.contains(&Slot::Replied(ReplyKind::Watch));
        let by_echo = round.slots.contains(&Slot::Replied(ReplyKind::Echo));
        self.note_target(round, by_watch, by_echo, actions);
        if !by_watch && !by_echo {
            if round.transport == Transport::Tcp && !self.targets[round.target].responds_to_tcp() {
                return;
            }
            self.silent_rounds = self.silent_rounds.saturating_add(1);
            if self.silent_rounds >= SILENT_AFTER && std::mem::take(&mut self.reachable) {
                actions.push(PathAction::Silent);
            }
            return;
        }
        self.silent_rounds = 0;
        if !std::mem::replace(&mut self.reachable, true) {
            actions.push(PathAction::Reachable);
        }
        let end = RoundEnd { number: round.number, target: round.target, transport: round.transport };
        for (gateway, slot) in round.slots.iter().enumerate() {
            let has_reply = match slot {
                Slot::NotProbed => continue,
                Slot::Waiting => false,
                // Where a watch responds, only its pinned replies count.
                Slot::Replied(kind) => *kind == ReplyKind::Watch || !by_watch,
            };
            if has_reply {
                self.gateways[gateway].succeeded(&end, &self.settings);
                self.first_failure[gateway] = None;
            } else {
                self.gateways[gateway].failed(&end, &self.settings);
                if self.gateways[gateway].is_suspect() {
                    self.first_failure[gateway].get_or_insert(round.sent);
                    // The next round does not wait for the steady interval.
                    if self.gateways[gateway].member {
                        let timeout = self.settings.timeout.to_std();
                        self.next_at = self.next_at.min(round.sent + timeout);
                    }
                }
            }
        }
    }

    fn note_target(&mut self, round: &Round, by_watch: bool, by_echo: bool, actions: &mut Vec<PathAction>) {
        let target = &mut self.targets[round.target];
        if target.note(round.transport, by_watch, by_echo)
            && let Some(to) = self.spare.pop_front()
        {
            let from = std::mem::replace(target, Target::new(to, round.number)).candidate;
            self.spare.push_back(from);
            actions.push(PathAction::TargetChanged { from, to });
        }
    }

    /// Whether some remote watch responds to TCP probes.
    pub(super) fn tcp_reachable(&self) -> bool {
        self.targets.iter().any(|target| target.responds() && target.responds_to_tcp())
    }

    /// Fault for which a member is to be withdrawn.
    fn fault(&self, gateway: usize, responding: usize) -> Option<OutReason> {
        let health = self.gateways.get(gateway).filter(|health| health.member)?;
        let lossy = || {
            let mut others: Vec<u32> = (self.gateways.iter().enumerate())
                .filter(|(other, health)| *other != gateway && health.member)
                .map(|(_, health)| health.loss.lost_count())
                .collect();
            others.sort_unstable();
            let usual = others.get(others.len().saturating_sub(1) / 2).copied().unwrap_or(0);
            health.is_too_lossy(&self.settings, responding, usual).then_some(OutReason::Loss)
        };
        health.fault(&self.settings, responding).or_else(lossy)
    }

    /// Withdraws faulty gateways and restores healthy ones; never withdraws the last one.
    fn settle(&mut self, now: Duration, actions: &mut Vec<PathAction>) {
        let before = self.members();
        let responding = self.targets.iter().filter(|target| target.responds()).count();
        let faults: Vec<Option<OutReason>> =
            (0..self.gateways.len()).map(|gateway| self.fault(gateway, responding)).collect();
        let stays = |index: usize, gateway: &GatewayHealth| gateway.member && faults[index].is_none();
        let remaining = self.gateways.iter().enumerate().any(|(index, gateway)| stays(index, gateway));
        // With no working member left, a gateway that responds is restored at once.
        let wanted = if remaining { None } else { Some(self.settings.down_count) };
        for gateway in 0..self.gateways.len() {
            let health = &mut self.gateways[gateway];
            let ready = match wanted {
                None => health.is_well(&self.settings),
                Some(count) => health.link_up && health.has_consecutive_replies(count),
            };
            if !health.member && !health.drained && ready {
                health.enter(now);
                actions.push(PathAction::In { gateway });
            }
        }
        let spared = self.spared(&faults);
        let kept = faults.iter().position(|fault| fault.is_some_and(|reason| spared.contains(&reason)));
        if let Some(gateway) = kept
            && let Some(reason) = faults[gateway]
            && self.reported_last != kept
        {
            actions.push(PathAction::KeptLast { gateway, reason });
        }
        self.reported_last = kept;
        for (gateway, fault) in faults.into_iter().enumerate() {
            let Some(reason) = fault.filter(|reason| !spared.contains(reason)) else { continue };
            self.gateways[gateway].leave(now, reason, self.steady, &self.settings);
            let since = self.first_failure[gateway].take();
            actions.push(PathAction::Out { gateway, reason, since });
        }
        let after = self.members();
        if after != before {
            actions.push(PathAction::Members(after));
        }
    }

    /// Faults that withdraw no gateway now, because no gateway without a fault is
    /// left: the mildest one present. A gateway that loses some packets is better
    /// than one that drops a protocol, and that one is better than none; where all
    /// are equally bad, all stay.
    fn spared(&self, faults: &[Option<OutReason>]) -> Vec<OutReason> {
        let well = |gateway: &GatewayHealth, fault: &Option<OutReason>| gateway.member && fault.is_none();
        if self.gateways.iter().zip(faults).any(|(gateway, fault)| well(gateway, fault)) {
            return Vec::new();
        }
        let found: Vec<OutReason> = faults.iter().flatten().copied().collect();
        let mild = [vec![OutReason::Loss], vec![OutReason::NoUdp], vec![OutReason::NoTcp]];
        mild.into_iter().find(|kinds| found.contains(&kinds[0])).unwrap_or(found)
    }
}

//! Health of one network path (to a remote network, in one address family): rounds
//! of probes through all its gateways, and the decisions that follow from them.
//!
//! A round probes one remote host through every gateway. A missing reply counts
//! against a gateway only if another gateway carried a reply in that round: a dead
//! remote host, a pause of this program or an unreachable remote network affects
//! all gateways alike, and withdraws none.

mod action;
mod begin;
mod settle;

use std::{collections::VecDeque, time::Duration};

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{NeighbourState, OutReason, TargetReason},
};

pub(super) use self::action::{PathAction, PathSetup, Probe, ProbeReply, ReplyKind};
use super::{
    gateway::{GatewayHealth, Responding, RoundEnd},
    probe_kind::{PortTurns, ProbeClass, ProbeKind},
    search::Search,
    target::Target,
};

/// Consecutive rounds without any reply after which the remote network is reported silent.
const SILENT_AFTER: u32 = 15;
/// One of this many rounds is of large packets, one of more where they are so large that those took most of the octets.
const LARGE_EVERY: u64 = 8;
/// Octets of a large packet that are sent so often; of a larger one, the same octets in as much time.
const LARGE_BYTES: u64 = 9216;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    NotProbed,
    Waiting,
    Replied(ReplyKind),
}

/// What a round probes.
#[derive(Debug, Clone, Copy)]
enum Aim {
    /// A target: index among them.
    Target(usize),
    /// A candidate, to find whether it has a watch. Proves nothing of gateways.
    Candidate(usize),
}

#[derive(Debug, Clone)]
struct Round {
    number: u64,
    aim: Aim,
    kind: ProbeKind,
    sent: Duration,
    slots: Vec<Slot>,
}

/// State machine of one path: inputs carry their time, outputs are [`PathAction`]s.
#[derive(Debug, Clone)]
pub(super) struct PathHealth {
    pub(super) gateways: Vec<GatewayHealth>,
    pub(super) steady: Duration,
    brisk: Duration,
    pub(super) reachable: bool,
    targets: Vec<Target>,
    search: Search,
    rounds: VecDeque<Round>,
    next_round: u64,
    /// Rounds that probed targets.
    turn: u64,
    /// The same that confirm a suspicion.
    confirm_turn: u64,
    ports: PortTurns,
    /// One of so many rounds is large; none while no size is known.
    large_every: Option<u64>,
    /// Something has changed since the last decision.
    has_changed: bool,
    next_at: Duration,
    /// When the last round is looked at, before its timeout.
    look_at: Option<Duration>,
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
            brisk: setup.brisk.max(settings.interval.to_std()),
            reachable: true,
            targets: (0..active).map(|place| Target::new(place, place as u64)).collect(),
            search: Search::among(active..setup.candidate_count),
            rounds: VecDeque::new(),
            next_round: 0,
            turn: 0,
            confirm_turn: 0,
            ports: PortTurns::default(),
            large_every: None,
            has_changed: true,
            next_at: start,
            look_at: None,
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

    /// Sets the size of the largest packets of the path, headers included; absent while it is unknown.
    pub(super) fn set_mtu(&mut self, bytes: Option<u32>) {
        self.large_every = bytes.map(|bytes| LARGE_EVERY * u64::from(bytes).div_ceil(LARGE_BYTES));
        if self.large_every.is_none() {
            self.forget(|class| class.large);
        }
    }

    /// Current targets: indices among the candidates.
    pub(super) fn targets(&self) -> impl Iterator<Item = usize> {
        self.targets.iter().map(|target| target.candidate)
    }

    /// Time at which [`advance`](Self::advance) has work to do next.
    pub(super) fn next_wake(&self) -> Duration {
        let timeout = self.settings.timeout.to_std();
        let oldest = self.rounds.front().map(|round| round.sent + timeout);
        [oldest, self.look_at].into_iter().flatten().fold(self.next_at, Duration::min)
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
        if self.look_at.is_some_and(|at| now >= at) {
            self.look_at = None;
            if self.gateways.iter().enumerate().any(|(gateway, _)| self.is_overdue(now, gateway)) {
                self.next_at = self.next_at.min(now);
            }
        }
        if now >= self.next_at && !self.targets.is_empty() {
            self.begin(now, &mut actions);
        }
        actions
    }

    /// A member has not replied to a round that others have replied to, after the time between quick rounds. No loss yet:
    /// but if it is one, the rounds that confirm it have begun before the timeout says so.
    fn is_overdue(&self, now: Duration, gateway: usize) -> bool {
        let quick = self.settings.interval.to_std();
        let is_overdue = |round: &Round| {
            matches!(round.aim, Aim::Target(_))
                && now >= round.sent + quick
                && round.slots[gateway] == Slot::Waiting
                && round.slots.iter().any(|slot| matches!(slot, Slot::Replied(_)))
        };
        self.gateways[gateway].member && self.rounds.iter().any(is_overdue)
    }

    /// Processes a reply. One to a round that has ended is a late reply.
    pub(super) fn reply(&mut self, now: Duration, reply: ProbeReply) -> Vec<PathAction> {
        let ProbeReply { gateway, round, origin, kind } = reply;
        let mut actions = Vec::new();
        if gateway >= self.gateways.len() || round >= self.next_round {
            return actions;
        }
        let place = self.rounds.iter().position(|waiting| waiting.number == round);
        let Some(place) = place else {
            if origin == ReplyKind::Watch {
                self.gateways[gateway].alive(round, kind);
                self.note_recovery(gateway);
                self.has_changed = true;
            }
            return actions;
        };
        if self.rounds[place].kind != kind {
            return actions;
        }
        if let Aim::Candidate(candidate) = self.rounds[place].aim {
            if origin == ReplyKind::Watch {
                self.rounds.remove(place);
                self.found(candidate, round, &mut actions);
            }
            return actions;
        }
        let slots = &mut self.rounds[place].slots;
        match slots[gateway] {
            Slot::NotProbed | Slot::Replied(ReplyKind::Watch) => return actions,
            Slot::Waiting | Slot::Replied(ReplyKind::Echo) => slots[gateway] = Slot::Replied(origin),
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
        self.has_changed |= std::mem::replace(&mut self.gateways[gateway].link_up, up) != up;
        self.settle(now, &mut actions);
        actions
    }

    /// Sets a gateway's state in the kernel's neighbour table.
    pub(super) fn neighbour(&mut self, gateway: usize, state: NeighbourState) {
        self.has_changed |= std::mem::replace(&mut self.gateways[gateway].neighbour, state) != state;
    }

    /// Sets the state of a routing daemon's BFD session with a gateway.
    pub(super) fn session(&mut self, gateway: usize, up: Option<bool>) {
        self.has_changed |= std::mem::replace(&mut self.gateways[gateway].session_up, up) != up;
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
            self.has_changed = true;
            self.settle(now, &mut actions);
        }
        actions
    }

    /// A withdrawn gateway responds, and will be restored if that continues.
    pub(super) fn expects_return(&self) -> bool {
        self.gateways.iter().any(|gateway| !gateway.member && !gateway.drained && gateway.responds(1))
    }

    /// Gateways wanted among the next hops, one flag each.
    pub(super) fn members(&self) -> Vec<bool> {
        self.gateways.iter().map(|gateway| gateway.member).collect()
    }

    /// Evaluates a round that ended.
    fn end(&mut self, round: &Round, actions: &mut Vec<PathAction>) {
        let Aim::Target(target) = round.aim else { return };
        self.has_changed = true;
        let by_watch = round.slots.contains(&Slot::Replied(ReplyKind::Watch));
        let by_echo = round.slots.contains(&Slot::Replied(ReplyKind::Echo));
        self.note_target(target, round, by_watch, by_echo, actions);
        let class = round.kind.class;
        if !by_watch && !by_echo {
            if class.large || !self.targets[target].responds_to(class) {
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
        self.judge(target, round, by_watch);
        if !self.gateways.iter().any(GatewayHealth::is_suspect) {
            return;
        }
        let targets = std::mem::take(&mut self.targets);
        self.forget(|class| !targets.iter().any(|target| target.responds_to(class)));
        self.targets = targets;
    }

    /// What a round with some reply shows of each gateway.
    fn judge(&mut self, target: usize, round: &Round, by_watch: bool) {
        let end = RoundEnd { number: round.number, target, kind: round.kind };
        for (gateway, slot) in round.slots.iter().enumerate() {
            let has_reply = match slot {
                Slot::NotProbed => continue,
                Slot::Waiting => false,
                // Where a watch responds, only its pinned replies count.
                Slot::Replied(kind) => *kind == ReplyKind::Watch || !by_watch,
            };
            if has_reply {
                self.gateways[gateway].succeeded(&end, &self.settings);
                self.note_recovery(gateway);
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

    /// The next failure is the first one, unless some kind fails still.
    fn note_recovery(&mut self, gateway: usize) {
        if !self.gateways[gateway].is_suspect() {
            self.first_failure[gateway] = None;
        }
    }

    /// Forgets losses of classes that no remote host replies to any more: they prove nothing.
    fn forget(&mut self, is_mute: impl Fn(ProbeClass) -> bool) {
        for class in ProbeClass::ALL.into_iter().filter(|class| is_mute(*class)) {
            self.gateways.iter_mut().for_each(|gateway| gateway.forget(class));
        }
    }

    fn note_target(
        &mut self,
        place: usize,
        round: &Round,
        by_watch: bool,
        by_echo: bool,
        actions: &mut Vec<PathAction>,
    ) {
        let target = &mut self.targets[place];
        let had_watch = !target.echo;
        let is_given_up = target.note(round.kind.class, by_watch, by_echo);
        if had_watch && target.echo {
            self.search.begin();
        }
        if is_given_up && let Some(to) = self.search.replace(target.candidate) {
            let from = std::mem::replace(target, Target::new(to, round.number)).candidate;
            actions.push(PathAction::TargetChanged { from, to, reason: TargetReason::Silent });
        }
    }

    /// A candidate has a watch: it replaces a target that has none, of those one that does not respond at all.
    fn found(&mut self, candidate: usize, round: u64, actions: &mut Vec<PathAction>) {
        let without = |target: &Target| target.echo;
        let silent = self.targets.iter().position(|target| without(target) && !target.responds());
        let Some(place) = silent.or_else(|| self.targets.iter().position(without)) else { return };
        let from = self.targets[place].candidate;
        if self.search.take(candidate, from) {
            self.targets[place] = Target::new(candidate, round);
            let reason = if silent.is_some() { TargetReason::Silent } else { TargetReason::NoWatch };
            actions.push(PathAction::TargetChanged { from, to: candidate, reason });
        }
    }

    /// How many targets respond, to what.
    pub(super) fn responding(&self) -> Responding {
        let count = |is_such: &dyn Fn(&Target) -> bool| {
            self.targets.iter().filter(|target| target.responds() && is_such(target)).count()
        };
        let class = |class: ProbeClass| match class.large && self.large_every.is_none() {
            true => 0,
            false => count(&|target: &Target| target.responds_to(class)),
        };
        Responding { any: count(&|_| true), classes: ProbeClass::ALL.map(class) }
    }
}

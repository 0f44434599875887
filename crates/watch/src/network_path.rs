//! One way (to a far network, in one family): rounds of probes through all its
//! gateways to one far host after the other, and what follows from them.
//!
//! A round probes one far host through every gateway. Only when some gateway
//! carried an answer does the silence of another one count against it: a dead
//! far host, a pause of this program, or a far network that is gone fail
//! through all of them alike and condemn nobody.

use std::{collections::VecDeque, time::Duration};

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{NeighbourState, OutReason},
};

use super::{
    gateway::{GatewayHealth, RoundEnd, Transport},
    target::Target,
};

/// While some far hosts answer, every so many rounds go to one that does not.
const SEARCH_EVERY: u64 = 4;
/// Rounds in a row without any answer after which the far network is called silent.
const SILENT_AFTER: u32 = 15;

/// What a way begins with.
#[derive(Debug, Clone)]
pub(super) struct WaySetup {
    /// For each gateway, whether it is among the next hops now.
    pub(super) members: Vec<bool>,
    /// Far hosts that can be probed; the first ones are.
    pub(super) candidate_count: usize,
    /// Time between rounds while nothing fails.
    pub(super) steady: Duration,
}

/// What a probe is answered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// By the watch of the far host, through the same gateway.
    Watch,
    /// By the far host's kernel (ICMP echo), by whatever way it has.
    Echo,
}

/// A probe to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    /// Gateway to go through.
    pub(super) gateway: usize,
    /// Far host, by its place among the candidates.
    pub(super) target: usize,
    /// Number of the round.
    pub(super) round: u64,
    /// What it is carried by.
    pub(super) transport: Transport,
    /// Ask by ICMP echo too.
    pub(super) echo: bool,
}

/// An answer that came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// Gateway that carried it.
    pub(super) gateway: usize,
    /// Number of the round.
    pub(super) round: u64,
    /// Who answered.
    pub(super) kind: AnswerKind,
    /// What it was carried by.
    pub(super) transport: Transport,
}

/// What a way wants done or told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WayAction {
    /// Send this.
    Probe(Probe),
    /// Make these the next hops (one truth value for each gateway, at least one true).
    Members(Vec<bool>),
    /// This gateway went out.
    Out {
        /// Index of the gateway.
        gateway: usize,
        /// Cause.
        reason: OutReason,
        /// When the first of the probes that failed was sent.
        since: Option<Duration>,
    },
    /// This gateway came back.
    In {
        /// Index of the gateway.
        gateway: usize,
    },
    /// This one should go, and is the last.
    KeptLast {
        /// Index of the gateway.
        gateway: usize,
        /// What is wrong with it.
        reason: OutReason,
    },
    /// No far host answers by any gateway.
    Silent,
    /// One answers again.
    Heard,
    /// Another far host is probed from now on; places among the candidates.
    TargetChanged {
        /// Before.
        from: usize,
        /// Now.
        to: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    NotProbed,
    Waiting,
    Answered(AnswerKind),
}

#[derive(Debug, Clone)]
struct Round {
    number: u64,
    target: usize,
    transport: Transport,
    sent: Duration,
    slots: Vec<Slot>,
}

/// One way.
#[derive(Debug, Clone)]
pub(super) struct WayHealth {
    pub(super) gateways: Vec<GatewayHealth>,
    pub(super) steady: Duration,
    pub(super) heard: bool,
    targets: Vec<Target>,
    spare: VecDeque<usize>,
    rounds: VecDeque<Round>,
    next_round: u64,
    next_at: Duration,
    silent_rounds: u32,
    first_failure: Vec<Option<Duration>>,
    told_last: Option<usize>,
    settings: WatchSettings,
}

impl WayHealth {
    /// A way whose first round is due at `start`.
    pub(super) fn new(setup: &WaySetup, settings: WatchSettings, start: Duration) -> Self {
        let active = setup.candidate_count.min(settings.target_count.max(1) as usize);
        Self {
            gateways: setup.members.iter().map(|member| GatewayHealth::new(*member)).collect(),
            steady: setup.steady.max(settings.interval.to_std()),
            heard: true,
            targets: (0..active).map(|place| Target::new(place, place as u64)).collect(),
            spare: (active..setup.candidate_count).collect(),
            rounds: VecDeque::new(),
            next_round: 0,
            next_at: start,
            silent_rounds: 0,
            first_failure: vec![None; setup.members.len()],
            told_last: None,
            settings,
        }
    }

    /// Puts off the first round.
    pub(super) fn start_at(&mut self, at: Duration) {
        self.next_at = at;
    }

    /// Far hosts probed now, by their place among the candidates.
    pub(super) fn targets(&self) -> impl Iterator<Item = usize> {
        self.targets.iter().map(|target| target.candidate)
    }

    /// When [`advance`](Self::advance) has something to do next.
    pub(super) fn next_wake(&self) -> Duration {
        let timeout = self.settings.timeout.to_std();
        let oldest = self.rounds.front().map(|round| round.sent + timeout);
        oldest.map_or(self.next_at, |oldest| oldest.min(self.next_at))
    }

    /// Ends rounds whose time is over and begins one that is due. Everything that
    /// has arrived until `now` must have been handed to [`answer`](Self::answer)
    /// before.
    pub(super) fn advance(&mut self, now: Duration) -> Vec<WayAction> {
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

    /// An answer came. What is not of a known round is taken as a late answer.
    pub(super) fn answer(&mut self, now: Duration, answer: Answer) -> Vec<WayAction> {
        let Answer { gateway, round, kind, transport } = answer;
        let mut actions = Vec::new();
        if gateway >= self.gateways.len() || round >= self.next_round {
            return actions;
        }
        let place = self.rounds.iter().position(|waiting| waiting.number == round);
        let Some(place) = place else {
            if kind == AnswerKind::Watch {
                self.gateways[gateway].alive(round, transport);
                self.first_failure[gateway] = None;
            }
            return actions;
        };
        let slots = &mut self.rounds[place].slots;
        match slots[gateway] {
            Slot::NotProbed | Slot::Answered(AnswerKind::Watch) => return actions,
            Slot::Waiting | Slot::Answered(AnswerKind::Echo) => slots[gateway] = Slot::Answered(kind),
        }
        let complete =
            slots.iter().all(|slot| matches!(slot, Slot::NotProbed | Slot::Answered(AnswerKind::Watch)));
        if complete && let Some(round) = self.rounds.remove(place) {
            self.end(&round, &mut actions);
            self.settle(now, &mut actions);
        }
        actions
    }

    /// The own interface to a gateway came up or went down.
    pub(super) fn link(&mut self, now: Duration, gateway: usize, up: bool) -> Vec<WayAction> {
        let mut actions = Vec::new();
        self.gateways[gateway].link_up = up;
        self.settle(now, &mut actions);
        actions
    }

    /// What the kernel knows of a gateway as a neighbour.
    pub(super) fn neighbour(&mut self, gateway: usize, word: NeighbourState) {
        self.gateways[gateway].neighbour = word;
    }

    /// What a routing daemon says of its BFD session with a gateway.
    pub(super) fn session(&mut self, gateway: usize, up: Option<bool>) {
        self.gateways[gateway].session_up = up;
    }

    /// Whether a gateway can be drained: another one must be there to take over.
    pub(super) fn can_drain(&self, gateway: usize) -> bool {
        self.gateways
            .iter()
            .enumerate()
            .any(|(index, other)| index != gateway && other.member && !other.is_suspect() && other.link_up)
    }

    /// Takes a gateway out for an operator; see [`can_drain`](Self::can_drain).
    pub(super) fn drain(&mut self, gateway: usize) -> Vec<WayAction> {
        let mut actions = Vec::new();
        if self.gateways[gateway].drain() {
            actions.push(WayAction::Out { gateway, reason: OutReason::Drained, since: None });
            actions.push(WayAction::Members(self.members()));
        }
        actions
    }

    /// Ends a draining: the gateway comes back as any other one that was out.
    pub(super) fn undrain(&mut self, now: Duration, gateway: usize) -> Vec<WayAction> {
        let mut actions = Vec::new();
        let undrained = &mut self.gateways[gateway];
        if undrained.drained {
            undrained.drained = false;
            undrained.reason = Some(OutReason::FoundOut);
            self.settle(now, &mut actions);
        }
        actions
    }

    /// A gateway that is out answers again, and will be put back if it goes on so.
    pub(super) fn expects_return(&self) -> bool {
        self.gateways.iter().any(|gateway| !gateway.member && !gateway.drained && gateway.answers_at_least(1))
    }

    /// The gateways that are wanted among the next hops.
    pub(super) fn members(&self) -> Vec<bool> {
        self.gateways.iter().map(|gateway| gateway.member).collect()
    }

    /// Sends the probes of a round. While a gateway is under suspicion, rounds
    /// follow each other quickly; where a quick round is more than the steady
    /// rate, it goes through the suspects and one gateway that answers.
    fn begin(&mut self, now: Duration, actions: &mut Vec<WayAction>) {
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
            actions.push(WayAction::Probe(Probe { gateway, target, round: number, transport, echo }));
        }
        self.rounds.push_back(Round { number, target: place, transport, sent: now, slots });
        self.next_round += 1;
        let wait = if hurry { quick } else { self.steady };
        // A program that was held up goes on from now, without a burst.
        self.next_at = (self.next_at + wait).max(now + wait / 2);
    }

    /// The far host of a round: those that answer take turns, and now and then
    /// one that does not, in case it does again.
    fn next_target(&self, number: u64) -> usize {
        let (answering, silent): (Vec<usize>, Vec<usize>) =
            (0..self.targets.len()).partition(|place| self.targets[*place].answers());
        let searches = number % SEARCH_EVERY == SEARCH_EVERY - 1;
        let turn = |of: &[usize], number: u64| of[(number % of.len() as u64) as usize];
        match (answering.is_empty(), silent.is_empty()) {
            (true, _) => turn(&silent, number),
            (false, true) => turn(&answering, number),
            (false, false) if searches => turn(&silent, number / SEARCH_EVERY),
            // Rounds that search are left out of the turns.
            (false, false) => turn(&answering, number - number / SEARCH_EVERY),
        }
    }

    /// A gateway that answers, another one in each round.
    fn reference(&self, number: u64) -> Option<usize> {
        let answering: Vec<usize> =
            (0..self.gateways.len()).filter(|gateway| self.gateways[*gateway].answers_at_least(1)).collect();
        (!answering.is_empty()).then(|| answering[(number % answering.len() as u64) as usize])
    }

    /// Judges a round.
    fn end(&mut self, round: &Round, actions: &mut Vec<WayAction>) {
        let by_watch = round.slots.contains(&Slot::Answered(AnswerKind::Watch));
        let by_echo = round.slots.contains(&Slot::Answered(AnswerKind::Echo));
        self.note_target(round, by_watch, by_echo, actions);
        if !by_watch && !by_echo {
            if round.transport == Transport::Tcp && !self.targets[round.target].answers_tcp() {
                return;
            }
            self.silent_rounds = self.silent_rounds.saturating_add(1);
            if self.silent_rounds >= SILENT_AFTER && std::mem::take(&mut self.heard) {
                actions.push(WayAction::Silent);
            }
            return;
        }
        self.silent_rounds = 0;
        if !std::mem::replace(&mut self.heard, true) {
            actions.push(WayAction::Heard);
        }
        let end = RoundEnd { number: round.number, target: round.target, transport: round.transport };
        for (gateway, slot) in round.slots.iter().enumerate() {
            let answered = match slot {
                Slot::NotProbed => continue,
                Slot::Waiting => false,
                // Where a watch answers, its pinned answers alone count.
                Slot::Answered(kind) => *kind == AnswerKind::Watch || !by_watch,
            };
            if answered {
                self.gateways[gateway].answered(&end, &self.settings);
                self.first_failure[gateway] = None;
            } else {
                self.gateways[gateway].failed(&end, &self.settings);
                if self.gateways[gateway].is_suspect() {
                    self.first_failure[gateway].get_or_insert(round.sent);
                    // The next round need not wait for the steady interval.
                    if self.gateways[gateway].member {
                        let timeout = self.settings.timeout.to_std();
                        self.next_at = self.next_at.min(round.sent + timeout);
                    }
                }
            }
        }
    }

    fn note_target(&mut self, round: &Round, by_watch: bool, by_echo: bool, actions: &mut Vec<WayAction>) {
        let target = &mut self.targets[round.target];
        if target.note(round.transport, by_watch, by_echo)
            && let Some(to) = self.spare.pop_front()
        {
            let from = std::mem::replace(target, Target::new(to, round.number)).candidate;
            self.spare.push_back(from);
            actions.push(WayAction::TargetChanged { from, to });
        }
    }

    /// Some far watch answers TCP probes.
    pub(super) fn tcp_heard(&self) -> bool {
        self.targets.iter().any(|target| target.answers() && target.answers_tcp())
    }

    /// Why a member is not well enough to stay.
    fn fault(&self, gateway: usize, answering: usize) -> Option<OutReason> {
        let health = self.gateways.get(gateway).filter(|health| health.member)?;
        let lossy = || {
            let mut others: Vec<u32> = (self.gateways.iter().enumerate())
                .filter(|(other, health)| *other != gateway && health.member)
                .map(|(_, health)| health.loss.lost_count())
                .collect();
            others.sort_unstable();
            let usual = others.get(others.len().saturating_sub(1) / 2).copied().unwrap_or(0);
            health.is_too_lossy(&self.settings, answering, usual).then_some(OutReason::Loss)
        };
        health.fault(&self.settings, answering).or_else(lossy)
    }

    /// Takes out what is not well, puts back what is, and never leaves none.
    fn settle(&mut self, now: Duration, actions: &mut Vec<WayAction>) {
        let before = self.members();
        let answering = self.targets.iter().filter(|target| target.answers()).count();
        let faults: Vec<Option<OutReason>> =
            (0..self.gateways.len()).map(|gateway| self.fault(gateway, answering)).collect();
        let stays = |index: usize, gateway: &GatewayHealth| gateway.member && faults[index].is_none();
        let remaining = self.gateways.iter().enumerate().any(|(index, gateway)| stays(index, gateway));
        // With nobody left who works, a gateway that answers need not wait.
        let wanted = if remaining { None } else { Some(self.settings.down_count) };
        for gateway in 0..self.gateways.len() {
            let health = &mut self.gateways[gateway];
            let ready = match wanted {
                None => health.is_well(&self.settings),
                Some(count) => health.link_up && health.answers_at_least(count),
            };
            if !health.member && !health.drained && ready {
                health.enter(now);
                actions.push(WayAction::In { gateway });
            }
        }
        let spared = self.spared(&faults);
        let kept = faults.iter().position(|fault| fault.is_some_and(|reason| spared.contains(&reason)));
        if let Some(gateway) = kept
            && let Some(reason) = faults[gateway]
            && self.told_last != kept
        {
            actions.push(WayAction::KeptLast { gateway, reason });
        }
        self.told_last = kept;
        for (gateway, fault) in faults.into_iter().enumerate() {
            let Some(reason) = fault.filter(|reason| !spared.contains(reason)) else { continue };
            self.gateways[gateway].leave(now, reason, self.steady, &self.settings);
            let since = self.first_failure[gateway].take();
            actions.push(WayAction::Out { gateway, reason, since });
        }
        let after = self.members();
        if after != before {
            actions.push(WayAction::Members(after));
        }
    }

    /// The kinds of faults for which nobody is withdrawn now, because no gateway
    /// without a fault is left: the mildest there is. One that loses some packets
    /// is better than one that drops a protocol, that one is better than none,
    /// and where none is better than another all stay.
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

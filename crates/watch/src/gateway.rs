//! What is known of one gateway on one way, and when that is enough to take it
//! out or to put it back.

use std::time::Duration;

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{GatewayCounts, NeighbourState, OutReason},
};

use super::loss::LossWindow;

/// A gateway that fails again within this time after it came back waits twice
/// as long for the next return.
const FLAP_MEMORY: Duration = Duration::from_secs(60);
/// The wait is doubled at most so many times.
const MOST_DOUBLINGS: u32 = 6;

/// What a probe is carried by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// A UDP datagram.
    Udp,
    /// A TCP segment.
    Tcp,
}

/// Rounds lost in a row, none of which was answered since.
#[derive(Debug, Clone, Default)]
struct Streak {
    failures: u32,
    targets: Vec<usize>,
    last_answered: Option<u64>,
}

impl Streak {
    fn answered(&mut self, round: u64) {
        self.last_answered = self.last_answered.max(Some(round));
        self.failures = 0;
        self.targets.clear();
    }

    fn failed(&mut self, round: u64, target: usize) {
        // A later answer proves more than an earlier loss.
        if self.last_answered.is_none_or(|answered| answered < round) {
            self.failures = self.failures.saturating_add(1);
            if !self.targets.contains(&target) {
                self.targets.push(target);
            }
        }
    }

    /// One far host alone condemns nobody, unless it is the only one that answers.
    fn is_enough(&self, failures: u32, answering_targets: usize) -> bool {
        self.failures >= failures && self.targets.len() >= answering_targets.min(2)
    }
}

/// What a round through a gateway was.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundEnd {
    /// Its number.
    pub(super) number: u64,
    /// The far host.
    pub(super) target: usize,
    /// What it was carried by.
    pub(super) transport: Transport,
}

/// One gateway on one way.
#[derive(Debug, Clone)]
pub(super) struct GatewayHealth {
    /// It is wanted among the next hops.
    pub(super) member: bool,
    /// Taken out by an operator.
    pub(super) drained: bool,
    /// The own interface to it can carry packets.
    pub(super) link_up: bool,
    /// What the kernel knows of it as a neighbour.
    pub(super) neighbour: NeighbourState,
    /// What a routing daemon's BFD session says.
    pub(super) session_up: Option<bool>,
    /// Why it is out.
    pub(super) reason: Option<OutReason>,
    pub(super) counts: GatewayCounts,
    /// Of all rounds, of those by UDP and of those by TCP.
    any: Streak,
    udp: Streak,
    tcp: Streak,
    answers: u32,
    pub(super) loss: LossWindow,
    doublings: u32,
    returned: Option<Duration>,
}

impl GatewayHealth {
    pub(super) fn new(member: bool) -> Self {
        Self {
            member,
            drained: false,
            link_up: true,
            neighbour: NeighbourState::Unknown,
            session_up: None,
            reason: (!member).then_some(OutReason::FoundOut),
            counts: GatewayCounts::default(),
            any: Streak::default(),
            udp: Streak::default(),
            tcp: Streak::default(),
            answers: 0,
            loss: LossWindow::default(),
            doublings: 0,
            returned: None,
        }
    }

    /// A probe of this round was answered, in time or late: it forwards.
    pub(super) fn alive(&mut self, round: u64, transport: Transport) {
        self.any.answered(round);
        self.streak(transport).answered(round);
        self.loss.found(round);
    }

    /// A round ended with an answer.
    pub(super) fn answered(&mut self, round: &RoundEnd, settings: &WatchSettings) {
        self.alive(round.number, round.transport);
        self.counts.answered_count += 1;
        self.counts.tcp_answered_count += u64::from(round.transport == Transport::Tcp);
        self.answers = self.answers.saturating_add(1);
        self.loss.push(round.number, round.target, false, settings);
    }

    /// A round ended without an answer, while another gateway carried one from
    /// the same far host.
    pub(super) fn failed(&mut self, round: &RoundEnd, settings: &WatchSettings) {
        self.counts.lost_count += 1;
        self.answers = 0;
        self.loss.push(round.number, round.target, true, settings);
        self.any.failed(round.number, round.target);
        self.streak(round.transport).failed(round.number, round.target);
    }

    fn streak(&mut self, transport: Transport) -> &mut Streak {
        match transport {
            Transport::Udp => &mut self.udp,
            Transport::Tcp => &mut self.tcp,
        }
    }

    /// Rounds failed in a row, by some transport, and none was answered since.
    pub(super) fn is_suspect(&self) -> bool {
        self.any.failures > 0 || self.udp.failures > 0 || self.tcp.failures > 0
    }

    /// It answered so many rounds in a row, the last one too.
    pub(super) fn answers_at_least(&self, count: u32) -> bool {
        !self.is_suspect() && self.answers >= count.max(1)
    }

    /// Why it is to be taken out; absent while it is well enough. So many far
    /// hosts answer: one alone condemns nobody, unless it is the only one.
    pub(super) fn fault(&self, settings: &WatchSettings, answering_targets: usize) -> Option<OutReason> {
        if !self.link_up {
            return Some(OutReason::LinkDown);
        }
        if self.any.failures > 0 && self.neighbour == NeighbourState::Failed {
            return Some(OutReason::NoNeighbour);
        }
        if self.any.failures > 0 && self.session_up == Some(false) {
            return Some(OutReason::SessionDown);
        }
        let down_count = settings.down_count.max(1);
        // The other transport's answers do not end such a streak, and one short
        // loss meets several probes of a doubted gateway: twice as many.
        let of_one = down_count.saturating_mul(2);
        let streaks = [
            (&self.any, down_count, OutReason::NoAnswer),
            (&self.tcp, of_one, OutReason::NoTcp),
            (&self.udp, of_one, OutReason::NoUdp),
        ];
        let condemned =
            streaks.iter().find(|(streak, failures, _)| streak.is_enough(*failures, answering_targets));
        condemned.map(|(.., reason)| *reason)
    }

    /// It loses more than it may. What another gateway that stands for all loses
    /// (`usual_loss`) counts three times in its favour: loss that all of them
    /// have is that of the far network, and its numbers vary.
    pub(super) fn is_too_lossy(
        &self,
        settings: &WatchSettings,
        answering_targets: usize,
        usual_loss: u32,
    ) -> bool {
        self.loss.is_too_lossy(settings, answering_targets, usual_loss.saturating_mul(3))
    }

    /// Answers in a row after which it is put back.
    pub(super) fn answers_wanted(&self, settings: &WatchSettings) -> u32 {
        settings.up_count.max(1).saturating_mul(1 << self.doublings)
    }

    /// It has answered for long enough to be put back.
    pub(super) fn is_well(&self, settings: &WatchSettings) -> bool {
        let clean = self.reason != Some(OutReason::Loss) || self.loss.is_clean(settings);
        self.link_up && clean && self.answers_at_least(self.answers_wanted(settings))
    }

    /// Takes it out. The more often it failed lately, the longer it stays out.
    pub(super) fn leave(
        &mut self,
        at: Duration,
        reason: OutReason,
        steady: Duration,
        settings: &WatchSettings,
    ) {
        let last_wait = steady.saturating_mul(self.answers_wanted(settings));
        if let Some(returned) = self.returned {
            let lately = at.saturating_sub(returned) < FLAP_MEMORY.max(last_wait.saturating_mul(2));
            self.doublings = if lately { (self.doublings + 1).min(MOST_DOUBLINGS) } else { 0 };
        }
        self.member = false;
        self.reason = Some(reason);
        self.answers = 0;
        // What it loses from now on says whether it is well again.
        self.loss.clear();
        self.counts.out_count += 1;
    }

    /// Takes it out for an operator; true when it was in. That is no failure, so
    /// it makes no later return wait.
    pub(super) fn drain(&mut self) -> bool {
        self.drained = true;
        self.reason = Some(OutReason::Drained);
        let was_member = std::mem::take(&mut self.member);
        self.counts.out_count += u64::from(was_member);
        was_member
    }

    /// Puts it back.
    pub(super) fn enter(&mut self, at: Duration) {
        self.member = true;
        self.reason = None;
        self.returned = Some(at);
        self.loss.clear();
        self.counts.in_count += 1;
    }
}

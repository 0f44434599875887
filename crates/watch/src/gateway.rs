//! Health of one gateway on one path, and the conditions for withdrawing and
//! restoring it.

use std::time::Duration;

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{GatewayCounts, NeighbourState, OutReason},
};

use super::{
    loss::LossWindow,
    probe_kind::{ProbeClass, ProbeKind, Transport},
    streaks::{Streak, Streaks},
};

/// A gateway that fails within this time after its return waits twice as long for
/// the next return (flap damping).
const FLAP_MEMORY: Duration = Duration::from_secs(60);
/// Maximum number of doublings of the wait.
const MOST_DOUBLINGS: u32 = 6;

/// A round through a gateway that ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundEnd {
    /// Number of the round.
    pub(super) number: u64,
    /// Target: index among the current ones.
    pub(super) target: usize,
    /// What was sent.
    pub(super) kind: ProbeKind,
}

/// Numbers of targets that respond: losses to one of several prove nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Responding {
    /// To anything.
    pub(super) any: usize,
    /// To each class.
    pub(super) classes: [usize; ProbeClass::ALL.len()],
}

impl Responding {
    /// To TCP.
    pub(super) fn tcp(&self) -> usize {
        self.classes[ProbeClass { transport: Transport::Tcp, large: false }.index()]
    }

    /// To large packets.
    pub(super) fn large(&self) -> usize {
        let large = ProbeClass::ALL.iter().filter(|class| class.large);
        large.map(|class| self.classes[class.index()]).max().unwrap_or(0)
    }
}

/// Health of one gateway on one path.
#[derive(Debug, Clone)]
pub(super) struct GatewayHealth {
    /// Wanted among the next hops.
    pub(super) member: bool,
    /// Withdrawn by an operator.
    pub(super) drained: bool,
    /// The local interface to it can carry packets.
    pub(super) link_up: bool,
    /// State in the kernel's neighbour table.
    pub(super) neighbour: NeighbourState,
    /// State of a routing daemon's BFD session.
    pub(super) session_up: Option<bool>,
    /// Cause of its withdrawal.
    pub(super) reason: Option<OutReason>,
    pub(super) counts: GatewayCounts,
    streaks: Streaks,
    consecutive_replies: u32,
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
            streaks: Streaks::default(),
            consecutive_replies: 0,
            loss: LossWindow::default(),
            doublings: 0,
            returned: None,
        }
    }

    /// A probe was sent through it.
    pub(super) fn sent(&mut self, kind: ProbeKind) {
        self.counts.sent_count += 1;
        self.counts.tcp_sent_count += u64::from(kind.class.transport == Transport::Tcp);
    }

    /// A reply of a round that has ended arrived: the gateway forwards.
    pub(super) fn alive(&mut self, round: u64, kind: ProbeKind) {
        self.streaks.succeeded(round, kind);
        self.loss.found(round);
    }

    /// A round ended with a reply.
    pub(super) fn succeeded(&mut self, round: &RoundEnd, settings: &WatchSettings) {
        self.streaks.succeeded(round.number, round.kind);
        self.counts.answered_count += 1;
        self.counts.tcp_answered_count += u64::from(round.kind.class.transport == Transport::Tcp);
        self.consecutive_replies = self.consecutive_replies.saturating_add(1);
        self.loss.push(round.number, round.target, false, settings);
    }

    /// A round ended without a reply, while another gateway carried one from the
    /// same target.
    pub(super) fn failed(&mut self, round: &RoundEnd, settings: &WatchSettings) {
        self.counts.lost_count += 1;
        self.consecutive_replies = 0;
        self.loss.push(round.number, round.target, true, settings);
        self.streaks.failed(round.number, round.kind, round.target);
    }

    /// No remote host replies to a class any more.
    pub(super) fn forget(&mut self, class: ProbeClass) {
        self.streaks.forget(class);
    }

    /// The latest round, of some kind, failed.
    pub(super) fn is_suspect(&self) -> bool {
        self.streaks.has_failed()
    }

    /// The kind that failed most often in a row, if any did.
    pub(super) fn worst(&self) -> Option<(ProbeClass, Option<u8>)> {
        self.streaks.worst()
    }

    /// It carried at least `count` consecutive rounds, the latest one too, and small ones by both transports.
    pub(super) fn responds(&self, count: u32) -> bool {
        let small = ProbeClass::ALL.iter().filter(|class| !class.large);
        let has_failed = small.map(|class| self.streaks.class(*class)).any(Streak::has_failed);
        !self.streaks.any.has_failed() && !has_failed && self.consecutive_replies >= count.max(1)
    }

    /// Fault for which it is to be withdrawn. Losses to a single target are not
    /// enough, unless no other responds to such probes.
    pub(super) fn fault(&self, settings: &WatchSettings, responding: &Responding) -> Option<OutReason> {
        if !self.link_up {
            return Some(OutReason::LinkDown);
        }
        if !self.is_suspect() {
            return None;
        }
        let any = &self.streaks.any;
        if any.has_failed() && self.neighbour == NeighbourState::Failed {
            return Some(OutReason::NoNeighbour);
        }
        if any.has_failed() && self.session_up == Some(false) {
            return Some(OutReason::SessionDown);
        }
        let down_count = settings.down_count.max(1);
        if any.is_enough(down_count, responding.any) {
            return Some(OutReason::NoAnswer);
        }
        // Replies by another kind do not end such a streak, and one short
        // loss affects several probes of a suspect gateway: twice the number.
        let of_one = down_count.saturating_mul(2);
        let count = |class: ProbeClass| responding.classes[class.index()];
        let is_enough = |class: &&ProbeClass| self.streaks.class(**class).is_enough(of_one, count(**class));
        let without = |class: &ProbeClass| match class.transport {
            Transport::Tcp => OutReason::NoTcp,
            Transport::Udp => OutReason::NoUdp,
        };
        // TCP first, without which nothing else matters.
        let (small, large): (Vec<&ProbeClass>, Vec<&ProbeClass>) =
            ProbeClass::ALL.iter().rev().partition(|class| !class.large);
        if let Some(class) = small.iter().copied().find(is_enough) {
            return Some(without(class));
        }
        if let Some(class) = large.into_iter().find(is_enough) {
            let is_size = !self.streaks.class(class.small()).has_failed();
            return Some(if is_size { OutReason::NoLarge } else { without(class) });
        }
        let of_ports = |class: &&ProbeClass| {
            self.streaks.ports(**class).iter().any(|port| port.is_enough(of_one, count(**class)))
        };
        small.iter().copied().find(of_ports).map(|_| OutReason::SomePorts)
    }

    /// It loses more than the limit. Three times the median loss of the other
    /// gateways (`usual_loss`) is added to the limit: loss that all gateways have
    /// is loss of the remote network, and varies between them.
    pub(super) fn is_too_lossy(
        &self,
        settings: &WatchSettings,
        responding_targets: usize,
        usual_loss: u32,
    ) -> bool {
        self.loss.is_too_lossy(settings, responding_targets, usual_loss.saturating_mul(3))
    }

    /// Consecutive replies after which it is restored.
    pub(super) fn required_replies(&self, settings: &WatchSettings) -> u32 {
        settings.up_count.max(1).saturating_mul(1 << self.doublings)
    }

    /// It has responded for long enough to be restored.
    pub(super) fn is_well(&self, settings: &WatchSettings) -> bool {
        let clean = self.reason != Some(OutReason::Loss) || self.loss.is_clean(settings);
        self.link_up && clean && !self.is_suspect() && self.responds(self.required_replies(settings))
    }

    /// Withdraws it. The more often it failed recently, the longer it stays withdrawn.
    pub(super) fn leave(
        &mut self,
        at: Duration,
        reason: OutReason,
        steady: Duration,
        settings: &WatchSettings,
    ) {
        let last_wait = steady.saturating_mul(self.required_replies(settings));
        if let Some(returned) = self.returned {
            let lately = at.saturating_sub(returned) < FLAP_MEMORY.max(last_wait.saturating_mul(2));
            self.doublings = if lately { (self.doublings + 1).min(MOST_DOUBLINGS) } else { 0 };
        }
        self.member = false;
        self.reason = Some(reason);
        self.consecutive_replies = 0;
        // Losses from now on decide about its recovery.
        self.loss.clear();
        self.counts.out_count += 1;
    }

    /// Withdraws it for an operator; returns whether it was a member. A drain is no
    /// failure: it does not delay a later return.
    pub(super) fn drain(&mut self) -> bool {
        self.drained = true;
        self.reason = Some(OutReason::Drained);
        let was_member = std::mem::take(&mut self.member);
        self.counts.out_count += u64::from(was_member);
        was_member
    }

    /// Restores it.
    pub(super) fn enter(&mut self, at: Duration) {
        self.member = true;
        self.reason = None;
        self.returned = Some(at);
        self.loss.clear();
        self.counts.in_count += 1;
    }
}

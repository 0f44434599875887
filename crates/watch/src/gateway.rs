//! Health of one gateway on one path, and the conditions for withdrawing and
//! restoring it.

use std::time::Duration;

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{GatewayCounts, NeighbourState, OutReason},
};

use super::loss::LossWindow;

/// A gateway that fails within this time after its return waits twice as long for
/// the next return (flap damping).
const FLAP_MEMORY: Duration = Duration::from_secs(60);
/// Maximum number of doublings of the wait.
const MOST_DOUBLINGS: u32 = 6;

/// Transport protocol of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// A UDP datagram.
    Udp,
    /// A TCP segment.
    Tcp,
}

/// Consecutive lost rounds since the last reply.
#[derive(Debug, Clone, Default)]
struct Streak {
    failures: u32,
    targets: Vec<usize>,
    last_success: Option<u64>,
}

impl Streak {
    fn succeeded(&mut self, round: u64) {
        self.last_success = self.last_success.max(Some(round));
        self.failures = 0;
        self.targets.clear();
    }

    fn failed(&mut self, round: u64, target: usize) {
        // A later reply outweighs an earlier loss.
        if self.last_success.is_none_or(|success| success < round) {
            self.failures = self.failures.saturating_add(1);
            if !self.targets.contains(&target) {
                self.targets.push(target);
            }
        }
    }

    /// Losses to a single target are not enough, unless only one responds.
    fn is_enough(&self, failures: u32, responding_targets: usize) -> bool {
        self.failures >= failures && self.targets.len() >= responding_targets.min(2)
    }
}

/// A round through a gateway that ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundEnd {
    /// Number of the round.
    pub(super) number: u64,
    /// Target: index among the current ones.
    pub(super) target: usize,
    /// Transport protocol.
    pub(super) transport: Transport,
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
    // All rounds, those by UDP and those by TCP.
    any: Streak,
    udp: Streak,
    tcp: Streak,
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
            any: Streak::default(),
            udp: Streak::default(),
            tcp: Streak::default(),
            consecutive_replies: 0,
            loss: LossWindow::default(),
            doublings: 0,
            returned: None,
        }
    }

    /// A reply of this round arrived, in time or late: the gateway forwards.
    pub(super) fn alive(&mut self, round: u64, transport: Transport) {
        self.any.succeeded(round);
        self.streak(transport).succeeded(round);
        self.loss.found(round);
    }

    /// A round ended with a reply.
    pub(super) fn succeeded(&mut self, round: &RoundEnd, settings: &WatchSettings) {
        self.alive(round.number, round.transport);
        self.counts.answered_count += 1;
        self.counts.tcp_answered_count += u64::from(round.transport == Transport::Tcp);
        self.consecutive_replies = self.consecutive_replies.saturating_add(1);
        self.loss.push(round.number, round.target, false, settings);
    }

    /// A round ended without a reply, while another gateway carried one from the
    /// same target.
    pub(super) fn failed(&mut self, round: &RoundEnd, settings: &WatchSettings) {
        self.counts.lost_count += 1;
        self.consecutive_replies = 0;
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

    /// The latest round, of some transport, failed.
    pub(super) fn is_suspect(&self) -> bool {
        self.any.failures > 0 || self.udp.failures > 0 || self.tcp.failures > 0
    }

    /// At least `count` consecutive rounds had replies, the latest one too.
    pub(super) fn has_consecutive_replies(&self, count: u32) -> bool {
        !self.is_suspect() && self.consecutive_replies >= count.max(1)
    }

    /// Fault for which it is to be withdrawn. Losses to a single target are not
    /// enough, unless `responding_targets` is 1.
    pub(super) fn fault(&self, settings: &WatchSettings, responding_targets: usize) -> Option<OutReason> {
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
        // Replies by the other transport do not end such a streak, and one short
        // loss affects several probes of a suspect gateway: twice the number.
        let of_one = down_count.saturating_mul(2);
        let streaks = [
            (&self.any, down_count, OutReason::NoAnswer),
            (&self.tcp, of_one, OutReason::NoTcp),
            (&self.udp, of_one, OutReason::NoUdp),
        ];
        let faulty =
            streaks.iter().find(|(streak, failures, _)| streak.is_enough(*failures, responding_targets));
        faulty.map(|(.., reason)| *reason)
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
        self.link_up && clean && self.has_consecutive_replies(self.required_replies(settings))
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

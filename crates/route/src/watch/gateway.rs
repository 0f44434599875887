//! What is known of one gateway on one way, and when that is enough to take it
//! out or to put it back.

use std::time::Duration;

use clearstream_schema::{
    fabric::WatchSettings,
    watch::{GatewayCounts, NeighbourWord, OutReason},
};

/// A gateway that fails again within this time after it came back waits twice
/// as long for the next return.
const FLAP_MEMORY: Duration = Duration::from_secs(60);
/// The wait is doubled at most so many times.
const MOST_DOUBLINGS: u32 = 6;
/// Rounds that the share of losses is taken over.
const LOSS_WINDOW: u32 = 64;
/// So many of them lost take a gateway out that still answers now and then.
const MOST_LOSSES: u32 = LOSS_WINDOW / 2;

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
    pub(super) neighbour: NeighbourWord,
    /// What a routing daemon's BFD session says.
    pub(super) session_up: Option<bool>,
    /// Why it is out.
    pub(super) reason: Option<OutReason>,
    pub(super) counts: GatewayCounts,
    failures: u32,
    failed_targets: Vec<usize>,
    answers: u32,
    last_answered: Option<u64>,
    window: u64,
    window_filled: u32,
    doublings: u32,
    returned: Option<Duration>,
}

impl GatewayHealth {
    pub(super) fn new(member: bool) -> Self {
        Self {
            member,
            drained: false,
            link_up: true,
            neighbour: NeighbourWord::Unknown,
            session_up: None,
            reason: (!member).then_some(OutReason::FoundOut),
            counts: GatewayCounts::default(),
            failures: 0,
            failed_targets: Vec::new(),
            answers: 0,
            last_answered: None,
            window: 0,
            window_filled: 0,
            doublings: 0,
            returned: None,
        }
    }

    /// A probe of this round was answered, in time or late: it forwards.
    pub(super) fn alive(&mut self, round: u64) {
        self.last_answered = self.last_answered.max(Some(round));
        self.failures = 0;
        self.failed_targets.clear();
    }

    /// A round ended with an answer.
    pub(super) fn answered(&mut self, round: u64) {
        self.alive(round);
        self.counts.answered_count += 1;
        self.answers = self.answers.saturating_add(1);
        self.note_loss(false);
    }

    /// A round ended without an answer, while another gateway carried one from
    /// the same far host.
    pub(super) fn failed(&mut self, round: u64, target: usize) {
        self.counts.lost_count += 1;
        self.answers = 0;
        self.note_loss(true);
        // A later answer proves more than an earlier loss.
        if self.last_answered.is_none_or(|answered| answered < round) {
            self.failures = self.failures.saturating_add(1);
            if !self.failed_targets.contains(&target) {
                self.failed_targets.push(target);
            }
        }
    }

    fn note_loss(&mut self, lost: bool) {
        self.window = self.window << 1 | u64::from(lost);
        self.window_filled = (self.window_filled + 1).min(LOSS_WINDOW);
    }

    /// Rounds failed in a row, none of them answered since.
    pub(super) fn is_suspect(&self) -> bool {
        self.failures > 0
    }

    /// It answered so many rounds in a row, the last one too.
    pub(super) fn answers_at_least(&self, count: u32) -> bool {
        self.failures == 0 && self.answers >= count.max(1)
    }

    /// Why it is to be taken out; absent while it is well enough. So many far
    /// hosts answer: one alone condemns nobody, unless it is the only one.
    pub(super) fn fault(&self, settings: &WatchSettings, answering_targets: usize) -> Option<OutReason> {
        if !self.link_up {
            return Some(OutReason::LinkDown);
        }
        if self.failures > 0 && self.neighbour == NeighbourWord::Failed {
            return Some(OutReason::NoNeighbour);
        }
        if self.failures > 0 && self.session_up == Some(false) {
            return Some(OutReason::SessionDown);
        }
        if self.failures >= settings.down_count.max(1)
            && self.failed_targets.len() >= answering_targets.min(2)
        {
            return Some(OutReason::NoAnswer);
        }
        let lossy = self.window_filled == LOSS_WINDOW && self.window.count_ones() >= MOST_LOSSES;
        lossy.then_some(OutReason::Loss)
    }

    /// Answers in a row after which it is put back.
    pub(super) fn answers_wanted(&self, settings: &WatchSettings) -> u32 {
        settings.up_count.max(1).saturating_mul(1 << self.doublings)
    }

    /// It has answered for long enough to be put back.
    pub(super) fn is_well(&self, settings: &WatchSettings) -> bool {
        self.link_up && self.answers_at_least(self.answers_wanted(settings))
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
        self.window = 0;
        self.window_filled = 0;
        self.counts.in_count += 1;
    }
}

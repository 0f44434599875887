//! Loss ratio of a gateway over its latest probes, and the number of targets affected.

use std::collections::VecDeque;

use clearstream_schema::fabric::WatchSettings;

/// One round that counted.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    round: u64,
    target: usize,
    lost: bool,
}

/// The last rounds through one gateway, `loss-window` of them.
#[derive(Debug, Clone, Default)]
pub(super) struct LossWindow {
    outcomes: VecDeque<Outcome>,
    lost_count: u32,
}

impl LossWindow {
    /// A round ended.
    pub(super) fn push(&mut self, round: u64, target: usize, lost: bool, settings: &WatchSettings) {
        while self.outcomes.len() >= settings.loss_window.max(1) as usize {
            let oldest = self.outcomes.pop_front();
            self.lost_count -= u32::from(oldest.is_some_and(|oldest| oldest.lost));
        }
        self.outcomes.push_back(Outcome { round, target, lost });
        self.lost_count += u32::from(lost);
    }

    /// A reply of a round counted as lost arrived late: a delay, no loss.
    pub(super) fn found(&mut self, round: u64) {
        if self.lost_count > 0
            && let Some(late) = self.outcomes.iter_mut().rev().find(|outcome| outcome.round == round)
        {
            self.lost_count -= u32::from(std::mem::take(&mut late.lost));
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Probes lost.
    pub(super) fn lost_count(&self) -> u32 {
        self.lost_count
    }

    /// Fraction of the probes lost; absent before the first one.
    pub(super) fn ratio(&self) -> Option<f64> {
        (!self.outcomes.is_empty()).then(|| f64::from(self.lost_count) / self.outcomes.len() as f64)
    }

    /// More is lost than the limit.
    pub(super) fn exceeds_limit(&self, settings: &WatchSettings) -> bool {
        most(settings).is_some_and(|most| self.lost_count > most)
    }

    /// More is lost than the limit plus `allowance`, whatever the rest of the window
    /// brings. Where several targets respond, losses to a single one prove nothing
    /// about the gateway: at least a quarter must be to others.
    pub(super) fn is_too_lossy(
        &self,
        settings: &WatchSettings,
        responding_targets: usize,
        allowance: u32,
    ) -> bool {
        let Some(most) = most(settings) else { return false };
        let most = most.saturating_add(allowance);
        if self.lost_count <= most {
            return false;
        }
        let elsewhere = self.lost_count - self.lost_to_the_worst();
        responding_targets < 2 || elsewhere * 4 > most
    }

    /// A full window with at most half of the permitted losses.
    pub(super) fn is_clean(&self, settings: &WatchSettings) -> bool {
        let is_full = self.outcomes.len() >= settings.loss_window.max(1) as usize;
        is_full && most(settings).is_none_or(|most| self.lost_count <= most / 2)
    }

    fn lost_to_the_worst(&self) -> u32 {
        let lost = |target: usize| {
            self.outcomes.iter().filter(|outcome| outcome.lost && outcome.target == target).count() as u32
        };
        let mut targets: Vec<usize> = self.outcomes.iter().map(|outcome| outcome.target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets.into_iter().map(lost).max().unwrap_or(0)
    }
}

/// Maximum number of lost probes per window; absent for no limit.
fn most(settings: &WatchSettings) -> Option<u32> {
    let percent = settings.loss_percent;
    (percent > 0).then(|| settings.loss_window.max(1).saturating_mul(percent) / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(percent: u32, window: u32) -> WatchSettings {
        WatchSettings { loss_percent: percent, loss_window: window, ..WatchSettings::default() }
    }

    #[test]
    fn a_window_holds_the_last_rounds_only() {
        let settings = settings(5, 100);
        let mut window = LossWindow::default();
        (0..10).for_each(|round| window.push(round, 0, true, &settings));
        assert!(window.is_too_lossy(&settings, 1, 0));
        (10..110).for_each(|round| window.push(round, 0, false, &settings));
        assert_eq!((window.lost_count(), window.ratio()), (0, Some(0.0)));
        assert!(window.is_clean(&settings));
    }

    #[test]
    fn late_replies_are_no_losses() {
        let settings = settings(5, 100);
        let mut window = LossWindow::default();
        for round in 0..50 {
            window.push(round, 0, true, &settings);
            window.found(round);
            window.found(round);
        }
        assert_eq!(window.lost_count(), 0);
        window.found(9999);
    }

    #[test]
    fn losses_to_one_target_of_several_do_not_count() {
        let settings = settings(5, 200);
        let mut window = LossWindow::default();
        (0..100).for_each(|round| window.push(round, (round % 3) as usize, round % 3 == 1, &settings));
        assert!(!window.is_too_lossy(&settings, 3, 0));
        assert!(window.is_too_lossy(&settings, 1, 0));
        (100..130).for_each(|round| window.push(round, (round % 3) as usize, round % 2 == 0, &settings));
        assert!(window.is_too_lossy(&settings, 3, 0));
    }

    #[test]
    fn zero_percent_is_no_limit() {
        let settings = settings(0, 50);
        let mut window = LossWindow::default();
        (0..50).for_each(|round| window.push(round, 0, true, &settings));
        assert!(!window.is_too_lossy(&settings, 1, 0));
    }
}

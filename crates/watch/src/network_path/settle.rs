//! Decisions: which gateways a path withdraws and restores.

use std::time::Duration;

use clearstream_schema::watch::OutReason;

use super::{PathAction, PathHealth};
use crate::gateway::GatewayHealth;

/// Faults of gateways that carry something, the mildest first.
const MILD: [OutReason; 5] =
    [OutReason::Loss, OutReason::SomePorts, OutReason::NoUdp, OutReason::NoLarge, OutReason::NoTcp];

impl PathHealth {
    /// Withdraws faulty gateways and restores healthy ones; never withdraws the last one.
    pub(super) fn settle(&mut self, now: Duration, actions: &mut Vec<PathAction>) {
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let before = self.members();
        let faults = self.faults();
        let stays = |index: usize, gateway: &GatewayHealth| gateway.member && faults[index].is_none();
        let remaining = self.gateways.iter().enumerate().any(|(index, gateway)| stays(index, gateway));
        // With no working member left, a gateway that responds is restored at once.
        let wanted = if remaining { None } else { Some(self.settings.down_count) };
        for gateway in 0..self.gateways.len() {
            let health = &mut self.gateways[gateway];
            let ready = match wanted {
                None => health.is_well(&self.settings),
                Some(count) => health.link_up && health.responds(count),
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
            self.gateways[gateway].leave(now, reason, self.brisk, &self.settings);
            let since = self.first_failure[gateway].take();
            actions.push(PathAction::Out { gateway, reason, since });
        }
        let after = self.members();
        if after != before {
            // The others are judged by those that are left.
            self.has_changed = true;
            actions.push(PathAction::Members(after));
        }
    }

    /// Faults for which members are to be withdrawn.
    fn faults(&self) -> Vec<Option<OutReason>> {
        let responding = self.responding();
        let is_lossy = |health: &GatewayHealth| health.member && health.loss.exceeds_limit(&self.settings);
        // Sorted for the medians only where one may be too lossy.
        let mut losses: Vec<u32> = Vec::new();
        if self.gateways.iter().any(is_lossy) {
            let members = self.gateways.iter().filter(|health| health.member);
            losses.extend(members.map(|health| health.loss.lost_count()));
            losses.sort_unstable();
        }
        let fault = |health: &GatewayHealth| {
            let lossy = || {
                let usual = usual_loss(&losses, health.loss.lost_count());
                let is_too_lossy = health.loss.exceeds_limit(&self.settings)
                    && health.is_too_lossy(&self.settings, responding.any, usual);
                is_too_lossy.then_some(OutReason::Loss)
            };
            health.fault(&self.settings, &responding).or_else(lossy)
        };
        self.gateways.iter().map(|health| health.member.then(|| fault(health)).flatten()).collect()
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
        let mildest = MILD.into_iter().find(|kind| found.contains(kind));
        mildest.map_or(found, |mildest| vec![mildest])
    }
}

/// Median of the sorted losses of all members but one that lost `own`.
fn usual_loss(losses: &[u32], own: u32) -> u32 {
    let own = losses.partition_point(|lost| *lost < own);
    let middle = losses.len().saturating_sub(2) / 2;
    let middle = if middle < own { middle } else { middle + 1 };
    losses.get(middle).copied().unwrap_or(0)
}

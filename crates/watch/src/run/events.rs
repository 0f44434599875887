//! Events and status in their published format.

use std::{sync::PoisonError, time::Duration};

use clearstream_schema::watch::{
    GatewayStatus, MissingObject, OutReason, PathStatus, WATCH_EVENT_SCHEMA, WATCH_STATUS_SCHEMA, WatchEvent,
    WatchEventKind, WatchStatus,
};

use super::{Watch, balance::Group};
use crate::{kernel::Missing, network_path::PathAction, setup::WatchedPath};

impl Watch<'_> {
    pub(super) fn event_kind(
        &self,
        index: usize,
        action: PathAction,
        now: Duration,
    ) -> Option<WatchEventKind> {
        let at = &self.config.paths[index];
        let name = |gateway: usize| at.gateways[gateway].name.clone();
        let address = |candidate: usize| at.candidates[candidate];
        let used = || self.health[index].members().iter().filter(|member| **member).count() as u32;
        let path = at.id.clone();
        Some(match action {
            PathAction::Probe(_) | PathAction::Members(_) => return None,
            PathAction::Out { gateway, reason, since } => {
                let delay = since.map(|since| now.saturating_sub(since).as_nanos());
                let delay_ns =
                    delay.filter(|_| reason != OutReason::Drained).and_then(|ns| ns.try_into().ok());
                WatchEventKind::Out { path, gateway: name(gateway), reason, left_count: used(), delay_ns }
            }
            PathAction::In { gateway } => {
                WatchEventKind::In { path, gateway: name(gateway), used_count: used() }
            }
            PathAction::KeptLast { gateway, reason } => {
                WatchEventKind::KeptLast { path, gateway: name(gateway), reason }
            }
            PathAction::Silent => WatchEventKind::Silent { path },
            PathAction::Reachable => WatchEventKind::Reachable { path },
            PathAction::TargetChanged { from, to, reason } => {
                WatchEventKind::TargetChanged { path, from: address(from), to: address(to), reason }
            }
        })
    }

    pub(super) fn report(&mut self, event: WatchEventKind) {
        match &event {
            WatchEventKind::Failed { message } => tracing::error!(message, "watch"),
            WatchEventKind::Lost { what, reason } => tracing::error!(what, reason, "watch"),
            WatchEventKind::Held { what, holder } => tracing::error!(what, holder, "watch"),
            event => tracing::info!(event = event.name(), gateway = event.changed_gateway(), "watch"),
        }
        (self.on_event)(&WatchEvent {
            schema: WATCH_EVENT_SCHEMA.to_owned(),
            version: 1,
            time: jiff::Timestamp::now().to_string(),
            host: self.config.host.clone(),
            event,
        });
    }

    /// `6 of 6 gateways to storage IPv4`.
    pub(super) fn summary(&self) -> String {
        let text = |(index, path): (usize, &WatchedPath)| {
            let members = self.health[index].members().into_iter().enumerate();
            let used = members.filter(|(gateway, member)| *member && self.is_led_to(index, *gateway)).count();
            let remark = if self.is_installed(index) { "" } else { " (not all of its routes are installed)" };
            format!("{used} of {} gateways to {}{remark}", path.gateways.len(), path.id)
        };
        self.config.paths.iter().enumerate().map(text).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn publish(&self) {
        let paths = (self.config.paths.iter().enumerate())
            .map(|(index, path)| {
                let responding = self.health[index].responding();
                PathStatus {
                    path: path.id.clone(),
                    interval_ns: u64::try_from(self.health[index].steady.as_nanos()).unwrap_or(u64::MAX),
                    targets: self.health[index].targets().map(|target| path.candidates[target]).collect(),
                    installed: self.is_installed(index),
                    missing: self.missing_of(index).map(missing_status).collect(),
                    reachable: self.health[index].reachable,
                    tcp_reachable: Some(responding.tcp() > 0),
                    tcp_target_count: responding.tcp() as u32,
                    large_target_count: responding.large() as u32,
                    large_bytes: self.mtu_bytes(index),
                    group: self.groups[index].as_ref().map(Group::status),
                    gateways: self.gateway_statuses(index, path),
                }
            })
            .collect();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.running_ns = u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX);
        shared.served_count = self.served_count;
        shared.paths = paths;
    }

    fn gateway_statuses(&self, index: usize, path: &WatchedPath) -> Vec<GatewayStatus> {
        (path.gateways.iter().zip(&self.health[index].gateways).enumerate())
            .map(|(gateway, (at, health))| GatewayStatus {
                name: at.name.clone(),
                address: at.local_address,
                used: health.member && self.is_led_to(index, gateway),
                drained: health.drained,
                reason: health.reason,
                neighbour: health.neighbour,
                session_up: health.session_up,
                round_trip_ns: self.round_trips[index][gateway],
                loss_ratio: health.loss.ratio(),
                bucket_count: self.groups[index].as_ref().and_then(|group| group.bucket_count(gateway)),
                counts: health.counts,
            })
            .collect()
    }
}

fn missing_status(missing: &Missing) -> MissingObject {
    MissingObject { what: missing.name.clone(), holder: missing.why.holder().map(str::to_owned) }
}

/// Status before the first check.
pub fn empty_status(fabric: &str, host: &str) -> WatchStatus {
    WatchStatus {
        schema: WATCH_STATUS_SCHEMA.to_owned(),
        version: 1,
        host: host.to_owned(),
        fabric: fabric.to_owned(),
        running_ns: 0,
        served_count: 0,
        change_count: 0,
        failed_change_count: 0,
        repair_count: 0,
        restored_count: 0,
        paths: Vec::new(),
    }
}

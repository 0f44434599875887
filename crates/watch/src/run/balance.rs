//! Until a gateway that came back has its buckets of the resilient group again.
//!
//! The kernel gives it idle buckets at once, and busy ones when the group has
//! been unbalanced for `unbalanced_timer`
//! (Documentation/networking/nexthop-group-resilient.rst). A connected socket
//! does not notice that: it keeps its route until routes change. So the group is
//! replaced by itself once, after the buckets have moved.

use std::{collections::BTreeMap, time::Duration};

use clearstream_schema::{
    routing::{Nexthop, NexthopTarget, Resilient},
    watch::{GroupStatus, WatchEventKind},
};

use super::Watch;
use crate::{network_path::WayAction, setup::WatchedWay};

/// The resilient group of a path, and what it was seen to be.
#[derive(Debug, Clone)]
pub(super) struct Group {
    id: u32,
    resilient: Resilient,
    /// Nexthop of each gateway of the path.
    members: Vec<Option<u32>>,
    /// Buckets by nexthop.
    counts: BTreeMap<u32, u32>,
}

/// A gateway that came back and lacks buckets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Return {
    way: usize,
    gateway: usize,
    at: Duration,
}

impl Group {
    /// The group of a plan that has the gateways of a path.
    pub(super) fn of(nexthops: &[Nexthop], way: &WatchedWay) -> Option<Self> {
        let is_at = |nexthop: &Nexthop, address| match &nexthop.target {
            NexthopTarget::Gateway { via, .. } => *via == address,
            _ => false,
        };
        let ids: Vec<Option<u32>> = (way.gateways.iter())
            .map(|gateway| nexthops.iter().find(|nexthop| is_at(nexthop, gateway.near)).map(|found| found.id))
            .collect();
        nexthops.iter().find_map(|nexthop| match &nexthop.target {
            NexthopTarget::Group { members, resilient: Some(resilient) } => {
                let has =
                    |id: &Option<u32>| id.is_some_and(|id| members.iter().any(|member| member.id == id));
                ids.iter().any(has).then(|| Self {
                    id: nexthop.id,
                    resilient: *resilient,
                    members: ids.clone(),
                    counts: BTreeMap::new(),
                })
            }
            _ => None,
        })
    }

    pub(super) fn status(&self) -> GroupStatus {
        GroupStatus {
            id: self.id,
            bucket_total: self.total(),
            idle_seconds: self.resilient.idle_seconds,
            unbalanced_seconds: self.resilient.unbalanced_seconds,
        }
    }

    /// Buckets that lead to a gateway; absent before the first look.
    pub(super) fn bucket_count(&self, gateway: usize) -> Option<u32> {
        let id = (*self.members.get(gateway)?)?;
        (!self.counts.is_empty()).then(|| self.counts.get(&id).copied().unwrap_or(0))
    }

    fn total(&self) -> u32 {
        u32::from(self.resilient.bucket_count)
    }
}

impl Watch<'_> {
    /// Notes who came back, and forgets who went.
    pub(super) fn note_return(&mut self, way: usize, action: &WayAction, now: Duration) {
        let (gateway, back) = match action {
            WayAction::In { gateway } => (*gateway, true),
            WayAction::Out { gateway, .. } => (*gateway, false),
            _ => return,
        };
        self.returns.retain(|pending| (pending.way, pending.gateway) != (way, gateway));
        if back && self.groups[way].is_some() {
            self.returns.push(Return { way, gateway, at: now });
        }
    }

    /// Reads the buckets, and has sockets look again when a gateway that came
    /// back has its share.
    pub(super) fn look_at_buckets(&mut self) {
        for place in 0..self.groups.len() {
            let Some(group) = &mut self.groups[place] else { continue };
            match self.kernel.socket().bucket_counts(group.id) {
                Ok(counts) => group.counts = counts,
                Err(error) => self.problem(error.to_string()),
            }
        }
        let pending = std::mem::take(&mut self.returns);
        let (restored, pending): (Vec<Return>, Vec<Return>) =
            pending.into_iter().partition(|pending| self.has_share(pending));
        self.returns = pending;
        if restored.is_empty() {
            return;
        }
        let wanted = self.wanted();
        if let Err(error) = self.kernel.refresh(&wanted) {
            self.problem(format!("established flows stay on other gateways: {error}"));
        }
        let now = self.now();
        for Return { way, gateway, at } in restored {
            let Some(group) = &self.groups[way] else { continue };
            let event = WatchEventKind::Rebalanced {
                path: self.config.ways[way].way.clone(),
                gateway: self.config.ways[way].gateways[gateway].name.clone(),
                bucket_count: group.bucket_count(gateway).unwrap_or(0),
                bucket_total: group.total(),
                delay_ns: u64::try_from(now.saturating_sub(at).as_nanos()).unwrap_or(u64::MAX),
            };
            self.tell(event);
        }
    }

    /// Whether a gateway has the buckets of its weight among those in use. The
    /// kernel rounds shares to whole buckets (`nh_res_group_rebalance`).
    fn has_share(&self, pending: &Return) -> bool {
        let Some(group) = &self.groups[pending.way] else { return true };
        let gateways = &self.config.ways[pending.way].gateways;
        let members = self.health[pending.way].members();
        let used = gateways.iter().zip(members).filter(|(_, member)| *member);
        let sum: u64 = used.map(|(gateway, _)| u64::from(gateway.weight)).sum();
        let share = u64::from(group.total()) * u64::from(gateways[pending.gateway].weight) / sum.max(1);
        group.bucket_count(pending.gateway).is_some_and(|count| u64::from(count) >= share)
    }
}

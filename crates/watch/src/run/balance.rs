//! Rebalancing: from a gateway's return until it has its buckets of the resilient group.
//!
//! The kernel gives it idle buckets at once, and busy ones when the group has
//! been unbalanced for `unbalanced_timer`
//! (Documentation/networking/nexthop-group-resilient.rst). A connected socket
//! keeps its cached route until routes change. The group is therefore replaced by
//! an identical one once the buckets have moved.

use std::{collections::BTreeMap, time::Duration};

use clearstream_schema::{
    routing::{Nexthop, NexthopTarget, Resilient},
    watch::{GroupStatus, WatchEventKind},
};

use super::{Watch, problems::Problem};
use crate::{network_path::PathAction, setup::WatchedPath};

/// The resilient group of a path, and its buckets when last read.
#[derive(Debug, Clone)]
pub(super) struct Group {
    id: u32,
    resilient: Resilient,
    /// Nexthop of each gateway of the path.
    members: Vec<Option<u32>>,
    /// Buckets by nexthop.
    counts: BTreeMap<u32, u32>,
}

/// A restored gateway that lacks buckets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Return {
    path: usize,
    gateway: usize,
    at: Duration,
}

impl Group {
    /// The group of a plan that has the gateways of a path.
    pub(super) fn of(nexthops: &[Nexthop], path: &WatchedPath) -> Option<Self> {
        let is_at = |nexthop: &Nexthop, address| match &nexthop.target {
            NexthopTarget::Gateway { via, .. } => *via == address,
            _ => false,
        };
        let ids: Vec<Option<u32>> = (path.gateways.iter())
            .map(|gateway| {
                nexthops.iter().find(|nexthop| is_at(nexthop, gateway.local_address)).map(|found| found.id)
            })
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

    /// Buckets that lead to a gateway; absent before they were first read.
    pub(super) fn bucket_count(&self, gateway: usize) -> Option<u32> {
        let id = (*self.members.get(gateway)?)?;
        (!self.counts.is_empty()).then(|| self.counts.get(&id).copied().unwrap_or(0))
    }

    fn total(&self) -> u32 {
        u32::from(self.resilient.bucket_count)
    }
}

impl Watch<'_> {
    /// Records a gateway's return; a withdrawal removes the record.
    pub(super) fn note_return(&mut self, path: usize, action: &PathAction, now: Duration) {
        let (gateway, back) = match action {
            PathAction::In { gateway } => (*gateway, true),
            PathAction::Out { gateway, .. } => (*gateway, false),
            _ => return,
        };
        self.returns.retain(|pending| (pending.path, pending.gateway) != (path, gateway));
        if back && self.groups[path].is_some() {
            self.returns.push(Return { path, gateway, at: now });
        }
    }

    /// Reads the buckets, and makes sockets repeat their route lookups once a
    /// restored gateway has the buckets of its weight.
    pub(super) fn check_buckets(&mut self) {
        let mut read = Ok(());
        for place in 0..self.groups.len() {
            let is_installed = self.is_installed(place);
            let Some(group) = &mut self.groups[place] else { continue };
            group.counts.clear();
            if !is_installed {
                continue;
            }
            match self.kernel.socket().bucket_counts(group.id) {
                Ok(counts) => group.counts = counts,
                Err(error) => read = Err(error.to_string()),
            }
        }
        self.attempted(Problem::Buckets, read);
        let pending = std::mem::take(&mut self.returns);
        let (restored, pending): (Vec<Return>, Vec<Return>) =
            pending.into_iter().partition(|pending| self.is_balanced(pending));
        self.returns = pending;
        if restored.is_empty() {
            return;
        }
        let wanted = self.wanted();
        let refreshed = self.kernel.refresh(&wanted);
        self.attempted(Problem::Refresh, refreshed.map_err(|error| error.to_string()));
        let now = self.now();
        for Return { path, gateway, at } in restored {
            let Some(group) = &self.groups[path] else { continue };
            let event = WatchEventKind::Rebalanced {
                path: self.config.paths[path].id.clone(),
                gateway: self.config.paths[path].gateways[gateway].name.clone(),
                bucket_count: group.bucket_count(gateway).unwrap_or(0),
                bucket_total: group.total(),
                delay_ns: u64::try_from(now.saturating_sub(at).as_nanos()).unwrap_or(u64::MAX),
            };
            self.report(event);
        }
    }

    /// Whether a gateway has the buckets of its weight among the used gateways. The
    /// kernel rounds to whole buckets (`nh_res_group_rebalance`).
    fn is_balanced(&self, pending: &Return) -> bool {
        let Some(group) = &self.groups[pending.path] else { return true };
        let gateways = &self.config.paths[pending.path].gateways;
        let members = self.health[pending.path].members();
        let used = gateways.iter().zip(members).filter(|(_, member)| *member);
        let sum: u64 = used.map(|(gateway, _)| u64::from(gateway.weight)).sum();
        let wanted = u64::from(group.total()) * u64::from(gateways[pending.gateway].weight) / sum.max(1);
        group.bucket_count(pending.gateway).is_some_and(|count| u64::from(count) >= wanted)
    }
}

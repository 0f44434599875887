//! The next hops and routes as they are to be: setting them, and restoring what was taken away.

use std::{net::IpAddr, sync::PoisonError};

use clearstream_schema::{
    routing::{NexthopTarget, RouteAction},
    watch::WatchEventKind,
};

use super::{Standing, Watch, members, problems::Problem};
use crate::{
    desired::{NextHops, PathMembers, desired, via},
    kernel::{Absence, Leads, Missing},
};

/// Names in one text; further ones are counted.
const NAMED: usize = 4;

impl Watch<'_> {
    pub(super) fn wanted(&self) -> NextHops {
        let paths: Vec<PathMembers> = (self.config.paths.iter().zip(&self.health))
            .map(|(path, health)| members(path, Some(health.members())))
            .collect();
        desired(&self.config.routing, &paths)
    }

    /// Looks for the addresses that the plan's routes depend on.
    pub(super) fn check_addresses(&mut self) {
        let (standing, added) = (self.config.standing, self.config.added);
        let added = || if standing() == Standing::Reverted { Vec::new() } else { added() };
        match self.kernel.apply_addresses(&self.config.routing, added) {
            Ok(changes) => {
                self.attempted(Problem::Addresses, Ok(()));
                self.lost_addresses = changes.missing;
                self.restored_addresses.extend(changes.restored);
            }
            Err(error) => self.attempted(Problem::Addresses, Err(error.to_string())),
        }
    }

    /// Sets the kernel's next hops as wanted; returns the deviations found, as text.
    pub(super) fn apply(&mut self) -> Vec<String> {
        let wanted = self.wanted();
        let standing = self.config.standing;
        let mut found = Standing::Unknown;
        let applied = self.kernel.apply(&wanted, || {
            found = standing();
            found != Standing::Reverted
        });
        let mut changes = match applied {
            Ok(changes) => changes,
            Err(error) => {
                self.unsettled = true;
                self.shared.lock().unwrap_or_else(PoisonError::into_inner).failed_change_count += 1;
                self.attempted(Problem::NextHops, Err(error.to_string()));
                return Vec::new();
            }
        };
        tracing::debug!(?changes, "next hops");
        self.unsettled = false;
        self.attempted(Problem::NextHops, Ok(()));
        changes.restored.splice(0..0, std::mem::take(&mut self.restored_addresses));
        changes.missing.splice(0..0, self.lost_addresses.iter().cloned());
        {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.change_count += (changes.changed.len() + changes.followed_count) as u64;
            shared.restored_count += changes.restored.len() as u64;
        }
        self.note_missing(changes.missing, changes.restored, found);
        changes.changed
    }

    /// Reports what has become missing, what others hold, and what is in effect again: each once.
    fn note_missing(&mut self, missing: Vec<Missing>, mut restored: Vec<String>, standing: Standing) {
        let before = std::mem::replace(&mut self.missing, missing);
        let was = |missing: &Missing| {
            let same = before.iter().find(|before| before.name == missing.name);
            same.is_some_and(|before| before.why.holder() == missing.why.holder())
        };
        let is_back = |before: &&Missing| !self.missing.iter().any(|missing| missing.name == before.name);
        let back: Vec<String> = before.iter().filter(is_back).map(|before| before.name.clone()).collect();
        restored.extend(back.into_iter().filter(|name| !restored.contains(name)).collect::<Vec<_>>());
        let (held, gone): (Vec<&Missing>, Vec<&Missing>) =
            (self.missing.iter().filter(|missing| !was(missing)))
                .partition(|missing| missing.why.holder().is_some());
        let mut events = Vec::new();
        if !gone.is_empty() {
            let what: Vec<String> = gone.iter().map(|missing| missing.name.clone()).collect();
            let reason = reason(&gone, standing);
            events.push(WatchEventKind::Lost { what: listed(&what), reason });
        }
        for missing in held {
            let holder = missing.why.holder().unwrap_or_default().to_owned();
            events.push(WatchEventKind::Held { what: missing.name.clone(), holder });
        }
        if !restored.is_empty() {
            events.push(WatchEventKind::Restored { what: listed(&restored) });
        }
        events.into_iter().for_each(|event| self.report(event));
    }

    /// Whether an object leads to the gateways of a path.
    fn is_of_path(&self, path: usize, missing: &Missing) -> bool {
        let routing = &self.config.routing;
        let is_here = |address| self.config.paths[path].gateways.iter().any(|at| at.local_address == address);
        match &missing.leads {
            Leads::To(action) => via(routing, action).is_some_and(is_here),
            Leads::ToTable(table, ipv6) => (routing.routes.iter())
                .filter(|route| route.table == *table && route.destination.address.is_ipv6() == *ipv6)
                .filter_map(|route| via(routing, &route.action))
                .any(is_here),
            Leads::FromAddress(address) => self.config.paths[path].address == *address,
            Leads::Nowhere => false,
        }
    }

    /// What is not in effect of that which leads to the gateways of a path.
    pub(super) fn missing_of(&self, path: usize) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(move |missing| self.is_of_path(path, missing))
    }

    /// Whether all that leads to the gateways of a path is there.
    pub(super) fn is_installed(&self, path: usize) -> bool {
        self.missing_of(path).next().is_none()
    }

    /// Whether packets go by a gateway that is wanted among the next hops.
    pub(super) fn is_led_to(&self, path: usize, gateway: usize) -> bool {
        let address = self.config.paths[path].gateways[gateway].local_address;
        self.missing_of(path).all(|missing| match &missing.leads {
            // One gateway's object: groups go on by the others.
            Leads::To(RouteAction::Nexthop(id)) => {
                self.gateway_object(*id).is_some_and(|other| other != address)
            }
            Leads::To(_) | Leads::ToTable(..) | Leads::FromAddress(_) | Leads::Nowhere => false,
        })
    }

    /// The gateway that a nexthop object is; none for a group.
    fn gateway_object(&self, id: u32) -> Option<IpAddr> {
        let object = self.config.routing.nexthops.iter().find(|nexthop| nexthop.id == id)?;
        match &object.target {
            NexthopTarget::Gateway { via, .. } => Some(*via),
            NexthopTarget::Group { .. } | NexthopTarget::Blackhole => None,
        }
    }
}

fn reason(gone: &[&Missing], standing: Standing) -> String {
    let refusal = gone.iter().find_map(|missing| match &missing.why {
        Absence::Gone(refusal) => refusal.as_deref(),
        Absence::Held(_) | Absence::Others => None,
    });
    let is_for_others = gone.iter().any(|missing| missing.why == Absence::Others);
    match (standing, refusal) {
        (Standing::Reverted, _) => "the plan that installed them was reverted".to_owned(),
        _ if is_for_others => {
            "whoever manages the interface has to add the address; what depends on it is restored then"
                .to_owned()
        }
        (_, Some(refusal)) => format!("{refusal}; it is tried again"),
        (_, None) => "they are restored soon".to_owned(),
    }
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

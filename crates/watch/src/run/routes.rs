//! The next hops and routes as they are to be: setting them, and restoring what was taken away.

use std::sync::PoisonError;

use clearstream_schema::watch::WatchEventKind;

use super::{Standing, Watch, members, problems::Problem};
use crate::{
    desired::{NextHops, PathMembers, desired, via},
    kernel::Missing,
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

    /// Sets the kernel's next hops as wanted; returns the deviations found, as text.
    pub(super) fn apply(&mut self) -> Vec<String> {
        let wanted = self.wanted();
        let standing = self.config.standing;
        let mut found = Standing::Unknown;
        let applied = self.kernel.apply(&wanted, || {
            found = standing();
            found != Standing::Reverted
        });
        let changes = match applied {
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
        {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.change_count += changes.changed.len() as u64;
            shared.restored_count += changes.restored.len() as u64;
        }
        if !changes.restored.is_empty() {
            self.report(WatchEventKind::Restored { what: listed(&changes.restored) });
        }
        self.note_missing(changes.missing, found);
        changes.changed
    }

    /// Reports what is missing when it is not the same as before.
    fn note_missing(&mut self, missing: Vec<Missing>, standing: Standing) {
        let names = |missing: &[Missing]| -> Vec<String> {
            missing.iter().map(|missing| missing.name.clone()).collect()
        };
        let (before, now) = (names(&self.missing), names(&missing));
        self.missing = missing;
        // Fewer are a restoration, which has been reported.
        if now.is_empty() || now.iter().all(|name| before.contains(name)) {
            return;
        }
        let reason = match (standing, self.missing.iter().find_map(|missing| missing.refusal.clone())) {
            (Standing::Reverted, _) => "the plan that installed them was reverted".to_owned(),
            (_, Some(refusal)) => format!("{refusal}; it is tried again"),
            (_, None) => "they are restored soon".to_owned(),
        };
        self.report(WatchEventKind::Lost { what: listed(&now), reason });
    }

    /// Whether all that leads to the gateways of a path is there.
    pub(super) fn is_installed(&self, path: usize) -> bool {
        let gateways = &self.config.paths[path].gateways;
        let is_of_path = |missing: &Missing| {
            let gateway = via(&self.config.routing, &missing.action);
            gateways.iter().any(|at| Some(at.local_address) == gateway)
        };
        !self.missing.iter().any(is_of_path)
    }
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

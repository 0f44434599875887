//! Control requests to the running watch: status, drain, undrain.

use std::sync::PoisonError;

use clearstream_schema::watch::{WatchEventKind, WatchReply, WatchRequest};

use super::{Watch, problems::Problem};

impl Watch<'_> {
    pub(super) fn reply(&mut self, request: &WatchRequest) -> WatchReply {
        let done = match request {
            WatchRequest::Status => Ok(()),
            WatchRequest::Drain(name) => self.drain(name, false),
            WatchRequest::Undrain(name) => self.undrain(name),
        };
        self.publish();
        match done {
            Ok(()) => WatchReply::Status(self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            Err(reason) => WatchReply::Refused(reason),
        }
    }

    /// Indices (path, gateway) of a gateway.
    fn places(&self, name: &str) -> Result<Vec<(usize, usize)>, String> {
        let found: Vec<(usize, usize)> = (self.config.paths.iter().enumerate())
            .filter_map(|(index, path)| {
                let gateway = path.gateways.iter().position(|gateway| gateway.name == name)?;
                Some((index, gateway))
            })
            .collect();
        if found.is_empty() {
            let mut names: Vec<&str> = self
                .config
                .paths
                .iter()
                .flat_map(|path| &path.gateways)
                .map(|gateway| gateway.name.as_str())
                .collect();
            names.sort_unstable();
            names.dedup();
            return Err(format!(
                "no gateway is named \"{name}\" here: the gateways are {}",
                names.join(", ")
            ));
        }
        Ok(found)
    }

    pub(super) fn drain(&mut self, name: &str, is_restored: bool) -> Result<(), String> {
        let places = self.places(name)?;
        for &(path, gateway) in &places {
            if !self.health[path].can_drain(gateway) {
                return Err(format!(
                    "{name} is the last gateway that works on the path to {}: it cannot be drained",
                    self.config.paths[path].id
                ));
            }
        }
        let mut actions = Vec::new();
        for (path, gateway) in places {
            actions.extend(self.health[path].drain(gateway).into_iter().map(|action| (path, action)));
        }
        self.carry_out(actions);
        if !is_restored {
            self.keep_drained(name, true);
            self.report(WatchEventKind::Drained { gateway: name.to_owned() });
        }
        self.problems.of(Problem::NextHops).map_or(Ok(()), Err)
    }

    fn undrain(&mut self, name: &str) -> Result<(), String> {
        let places = self.places(name)?;
        let now = self.now();
        let mut actions = Vec::new();
        for (path, gateway) in places {
            actions.extend(self.health[path].undrain(now, gateway).into_iter().map(|action| (path, action)));
        }
        self.keep_drained(name, false);
        self.report(WatchEventKind::Undrained { gateway: name.to_owned() });
        self.carry_out(actions);
        self.problems.of(Problem::NextHops).map_or(Ok(()), Err)
    }

    fn keep_drained(&mut self, name: &str, drained: bool) {
        let stored = self.drained.set(name, drained);
        self.attempted(Problem::Drained, stored.map_err(|error| error.to_string()));
    }
}

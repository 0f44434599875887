//! What the running watch does when it is asked.

use std::sync::PoisonError;

use clearstream_schema::watch::{WatchEventKind, WatchReply, WatchRequest};

use super::Watch;

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

    /// Places of a gateway, by way.
    fn places(&self, name: &str) -> Result<Vec<(usize, usize)>, String> {
        let found: Vec<(usize, usize)> = (self.config.ways.iter().enumerate())
            .filter_map(|(index, way)| {
                let gateway = way.gateways.iter().position(|gateway| gateway.name == name)?;
                Some((index, gateway))
            })
            .collect();
        if found.is_empty() {
            let mut names: Vec<&str> = self
                .config
                .ways
                .iter()
                .flat_map(|way| &way.gateways)
                .map(|gateway| gateway.name.as_str())
                .collect();
            names.sort_unstable();
            names.dedup();
            return Err(format!("there is no gateway \"{name}\" here: they are {}", names.join(", ")));
        }
        Ok(found)
    }

    pub(super) fn drain(&mut self, name: &str, again: bool) -> Result<(), String> {
        let places = self.places(name)?;
        for &(way, gateway) in &places {
            if !self.health[way].can_drain(gateway) {
                return Err(format!(
                    "{name} is the last gateway that works on the path to {}: it cannot be drained",
                    self.config.ways[way].way
                ));
            }
        }
        let mut actions = Vec::new();
        for (way, gateway) in places {
            actions.extend(self.health[way].drain(gateway).into_iter().map(|action| (way, action)));
        }
        self.carry_out(actions);
        if !again {
            self.keep_drained(name, true);
            self.tell(WatchEventKind::Drained { gateway: name.to_owned() });
        }
        if self.unsettled { Err(self.told_problem.clone().unwrap_or_default()) } else { Ok(()) }
    }

    fn undrain(&mut self, name: &str) -> Result<(), String> {
        let places = self.places(name)?;
        let now = self.now();
        let mut actions = Vec::new();
        for (way, gateway) in places {
            actions.extend(self.health[way].undrain(now, gateway).into_iter().map(|action| (way, action)));
        }
        self.keep_drained(name, false);
        self.tell(WatchEventKind::Undrained { gateway: name.to_owned() });
        self.carry_out(actions);
        Ok(())
    }

    fn keep_drained(&mut self, name: &str, drained: bool) {
        if let Err(error) = self.drained.set(name, drained) {
            self.problem(format!("what is drained is not remembered over a restart: {error}"));
        }
    }
}

//! Settings of the trials of a cell that figures order, place and mark it by: number of flows, window, cores, how the
//! receiver reads. Of all others only the table of settings has something to say.

use core::net::IpAddr;
use std::collections::BTreeMap;

use clearstream_schema::outcome::SettingValue;
use serde_json::Value;

/// Names of those that are kept: thousands of trials have dozens of settings each.
const KEPT: [&str; 10] = [
    "flows",
    "burst-flows",
    "receive",
    "receive-buffer",
    "destination-address",
    "sender-cores",
    "receiver-cores",
    "sender-core-seen",
    "receiver-core-seen",
    "interrupt-core",
];

/// Each different setting with the number of trials that have it, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellSettings(Vec<(SettingValue, usize)>);

impl CellSettings {
    /// Adds the settings of a trial.
    pub(crate) fn add(&mut self, settings: &[SettingValue]) {
        for setting in settings.iter().filter(|setting| KEPT.contains(&setting.name.as_str())) {
            match self.0.iter_mut().find(|(known, _)| known == setting) {
                Some((_, trials)) => *trials += 1,
                None => self.0.push((setting.clone(), 1)),
            }
        }
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a (SettingValue, usize)> {
        self.0.iter().filter(move |(setting, _)| setting.name == name)
    }

    /// A number as requested, else as in effect, in the first trial that has one; of a list its first.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.of(name).find_map(|(setting, _)| {
            setting
                .requested
                .as_ref()
                .and_then(first_number)
                .or_else(|| first_number(setting.effective.as_ref()?))
        })
    }

    /// A number of bytes as requested in the first trial where it is.
    pub(crate) fn requested_bytes(&self, name: &str) -> Option<u64> {
        self.of(name).find_map(|(setting, _)| setting.requested.as_ref()?.as_u64())
    }

    /// An address in effect.
    pub(crate) fn address(&self, name: &str) -> Option<IpAddr> {
        self.of(name).find_map(|(setting, _)| setting.effective.as_ref()?.as_str()?.parse().ok())
    }

    /// Whether some trial requested this level, or had it.
    fn has(&self, name: &str, level: &str) -> bool {
        let is = |value: &Option<Value>| value.as_ref().and_then(Value::as_str) == Some(level);
        self.of(name).any(|(setting, _)| is(&setting.requested) || is(&setting.effective))
    }

    /// The receiver discarded in the kernel: every figure and table calls it so.
    pub(crate) fn discards(&self) -> bool {
        self.has("receive", "discard")
    }

    /// Data went to the client alone.
    pub(crate) fn is_reverse(&self) -> bool {
        let at = |role: &str| self.of("receive").any(|(setting, _)| setting.role.as_deref() == Some(role));
        at("client") && !at("server")
    }

    /// Number of trials by the core that took the receiver's packets.
    fn interrupt_cores(&self) -> impl Iterator<Item = (u32, usize)> {
        self.of("interrupt-core").filter_map(|(setting, trials)| {
            Some((u32::try_from(setting.effective.as_ref()?.as_u64()?).ok()?, *trials))
        })
    }
}

fn first_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_array()?.first()?.as_u64())
}

/// The interrupt core that most trials name, how many do, and how many name any.
pub(crate) fn most_named<'a>(cells: impl Iterator<Item = &'a CellSettings>) -> Option<(u32, usize, usize)> {
    let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
    for (core, trials) in cells.flat_map(CellSettings::interrupt_cores) {
        *votes.entry(core).or_default() += trials;
    }
    let total = votes.values().sum();
    let (core, count) = votes.into_iter().max_by_key(|(core, count)| (*count, u32::MAX - core))?;
    Some((core, count, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_vote_for_the_interrupt_core_and_the_lower_of_equals_wins() {
        let named = |core: u32| SettingValue::of("interrupt-core").at("server").effective(Some(core));
        let mut cells = [CellSettings::default(), CellSettings::default()];
        for (cell, core) in [(0, 3), (0, 3), (0, 5), (1, 5), (1, 4)] {
            cells[cell].add(&[named(core), SettingValue::of("dscp").requested(Some(core))]);
        }
        assert_eq!(most_named(cells.iter()), Some((3, 2, 5)));
        assert_eq!(most_named(cells[1..].iter()), Some((4, 1, 2)));
        assert_eq!(cells[0].0.len(), 2, "others are not kept");
    }

    #[test]
    fn a_receiver_at_the_client_alone_is_reverse() {
        let receives = |role: &str| SettingValue::of("receive").at(role).requested(Some("discard"));
        let mut cell = CellSettings::default();
        assert!(!cell.is_reverse() && !cell.discards());
        cell.add(&[receives("client")]);
        assert!(cell.is_reverse() && cell.discards());
        cell.add(&[receives("server")]);
        assert!(!cell.is_reverse(), "both");
    }

    #[test]
    fn a_number_is_that_of_the_first_flow_as_requested_and_else_as_seen() {
        let mut cell = CellSettings::default();
        let cores = SettingValue::of("sender-cores");
        cell.add(&[cores.requested(Some([3, 4])).effective(Some([Some(5), None]))]);
        cell.add(&[SettingValue::of("receiver-cores").effective(Some([Some(6)]))]);
        assert_eq!(cell.number("sender-cores"), Some(3));
        assert_eq!(cell.number("receiver-cores"), Some(6));
        assert_eq!(cell.number("interrupt-core"), None);
    }
}

//! What became of this host's routes, by the journals of plans.

use clearstream_plan::{Options, PlanError, added, is_changing, standing};
use clearstream_schema::plan::{JournalState, Setting, Value};
use clearstream_watch::{AddedAddress, Standing};

/// State of the newest plan of routes here.
pub(super) fn of_routes(options: &Options) -> Result<Option<JournalState>, PlanError> {
    standing(|setting| matches!(setting, Setting::Nexthop { .. } | Setting::Route { .. }), options)
}

/// What a watch has to know of it.
pub(super) fn of_watch() -> Standing {
    let Ok(options) = Options::live() else { return Standing::Unknown };
    if is_changing(&options) {
        return Standing::Reverted;
    }
    match of_routes(&options) {
        Ok(Some(JournalState::Applied | JournalState::Pending)) => Standing::Applied,
        Ok(Some(JournalState::Applying | JournalState::Reverting | JournalState::Reverted)) => {
            Standing::Reverted
        }
        Ok(Some(JournalState::Gone | JournalState::Unreadable) | None) | Err(_) => Standing::Unknown,
    }
}

/// The addresses that plans have added and not taken away since; none while one is being changed.
pub(super) fn added_addresses() -> Vec<AddedAddress> {
    let Ok(options) = Options::live() else { return Vec::new() };
    if is_changing(&options) {
        return Vec::new();
    }
    let found = added(|setting| matches!(setting, Setting::Address { .. }), &options).unwrap_or_default();
    let address = |(setting, value): (Setting, Value)| match (value, setting) {
        (Value::Address(value), Setting::Address { interface, prefix }) => {
            Some(AddedAddress { interface, prefix, protocol: value.protocol })
        }
        _ => None,
    };
    found.into_iter().filter_map(address).collect()
}

//! What became of this host's routes, by the journals of plans.

use clearstream_plan::{Options, PlanError, is_changing, standing};
use clearstream_schema::plan::{JournalState, Setting};
use clearstream_watch::Standing;

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

//! Options that have an effect only beside another one: alone they are an error on the command
//! line, and ignored as a default.

use std::collections::BTreeSet;

/// An option, and the ids of those of which one has to be there.
const NEEDS: [(&str, &[&str]); 4] = [
    ("--burst-on", &["burst_flows"]),
    ("--burst-off", &["burst_flows"]),
    ("--force-buffers", &["window", "send_buffer", "receive_buffer"]),
    ("--steer-interface", &["steer"]),
];

/// Whether an argument has what it needs among the ids that are `there`.
pub(super) fn are_met(argument: &str, there: &BTreeSet<String>) -> bool {
    let option = argument.split('=').next().unwrap_or_default();
    let needs = NEEDS.iter().find(|(dependent, _)| *dependent == option);
    needs.is_none_or(|(_, ids)| ids.iter().any(|id| there.contains(*id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_needs_another_is_kept_beside_it() {
        let there = BTreeSet::from(["window".to_owned()]);
        assert!(are_met("--force-buffers", &there) && are_met("--flows=2", &there));
        assert!(!are_met("--burst-on=1ms", &there) && !are_met("--force-buffers", &BTreeSet::new()));
    }
}

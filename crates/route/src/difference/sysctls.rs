//! Sysctls that differ, and those that the kernel changes with them.

use clearstream_schema::plan::{Setting, Value};

use super::Draft;

const FORWARD: &str = "net.ipv4.ip_forward";
/// `net.ipv4.neigh.default.gc_thresh1` to `3`, and of IPv6.
const NEIGHBOURS: &str = ".neigh.default.gc_thresh";
const FORWARD_IPV6: &str = "net.ipv6.conf.all.forwarding";

pub(super) fn add(draft: &mut Draft<'_>) {
    let wanted = draft.wanted.routing;
    for (key, value) in &wanted.sysctls {
        let live = draft.current.routing.sysctls.get(key).map(|live| live.value.clone());
        if live.as_deref().is_some_and(|live| same(live, &value.value) || is_enough(key, live, &value.value))
        {
            continue;
        }
        // Containers and other namespaces share the machine's tables, and have no settings of them.
        if live.is_none() && key.contains(NEIGHBOURS) {
            draft.advice.push(format!(
                "{key} is a setting of the whole machine, which this namespace does not have: set it to {} there",
                value.value
            ));
            continue;
        }
        let turns_on = value.value == "1" && live.as_deref() == Some("0");
        draft.step(
            Setting::Sysctl(key.clone()),
            live.map(Value::Text),
            Some(Value::Text(value.value.clone())),
            std::slice::from_ref(key),
            "the fabric wants it",
        );
        if turns_on && (key == FORWARD || key == FORWARD_IPV6) {
            taken_along(draft, key);
        }
    }
}

/// Turning forwarding on sets it on every interface and turns the acceptance of
/// redirects off; turning it off resets all of them to the values of a host without
/// forwarding (inet_forward_change, dev_forward_change). The plan names those with
/// other values now, so that a revert restores them.
fn taken_along(draft: &mut Draft<'_>, key: &str) {
    let (prefix, usual_redirects) = match key {
        FORWARD => ("net.ipv4.conf.", Some("net.ipv4.conf.all.accept_redirects")),
        _ => ("net.ipv6.conf.", None),
    };
    let wanted = &draft.wanted.routing.sysctls;
    let found: Vec<(String, &str)> = draft
        .current
        .routing
        .sysctls
        .iter()
        .filter(|(other, live)| {
            let is_forwarding = other.starts_with(prefix) && other.ends_with(".forwarding");
            (is_forwarding && live.value == "1") || (usual_redirects == Some(other) && live.value == "0")
        })
        .filter(|(other, _)| !wanted.contains_key(*other) && *other != key)
        .map(|(other, live)| (other.clone(), if live.value == "1" { "1" } else { "0" }))
        .collect();
    for (other, value) in found {
        let why = format!("{key} changes it too; it is named so that a revert restores it");
        let value = Some(Value::Text(value.to_owned()));
        draft.step(Setting::Sysctl(other), value.clone(), value, &[], &why);
    }
}

/// Limits of neighbour tables: larger ones are for more than this fabric.
fn is_enough(key: &str, live: &str, wanted: &str) -> bool {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    key.contains(NEIGHBOURS) && number(live) >= number(wanted)
}

/// Numbers between any blanks.
fn same(live: &str, wanted: &str) -> bool {
    live.split_whitespace().eq(wanted.split_whitespace())
}

//! Desired states inside other documents: policies of kubernetes-nmstate
//! (`NodeNetworkConfigurationPolicy`, `spec.desiredState`), `NMStateConfig` (`spec.config`) and `NodeNetworkState`
//! (`status.currentState`), the hosts of OpenShift's `AgentConfig` (`networkConfig`) and `install-config.yaml`.

use super::{has_state, read};
use crate::read::{gathering::Gathering, yaml::Yaml};

/// Where a state is in a document, by its keys.
const PATHS: [[&str; 2]; 3] = [["spec", "desiredState"], ["spec", "config"], ["status", "currentState"]];

/// A state and the host that it is for, where the document names one.
pub(super) struct State<'a> {
    host: Option<&'a str>,
    state: &'a Yaml,
}

/// The states in a document; none where it has none.
pub(super) fn states(document: &Yaml) -> Option<Vec<State<'_>>> {
    for [outer, inner] in PATHS {
        if let Some(state) = document.get(outer).and_then(|outer| outer.get(inner)).filter(|it| has_state(it))
        {
            return Some(vec![State { host: None, state }]);
        }
    }
    // A policy of nmpolicy.
    if let Some(state) = document.get("desiredState").filter(|it| has_state(it)) {
        return Some(vec![State { host: None, state }]);
    }
    let platform = document.get("platform").and_then(|platform| platform.get("baremetal"));
    let hosts = document.get("hosts").or_else(|| platform.and_then(|platform| platform.get("hosts")))?;
    let states: Vec<State<'_>> = hosts
        .items()
        .iter()
        .filter_map(|host| {
            let state = host.get("networkConfig").filter(|state| has_state(state))?;
            let name = host.get("hostname").or_else(|| host.get("name")).and_then(Yaml::text);
            Some(State { host: name, state })
        })
        .collect();
    (!states.is_empty()).then_some(states)
}

/// Reads them; several are as many hosts.
pub(super) fn read(file: &str, document: &Yaml, gathering: &mut Gathering) {
    let states = states(document).unwrap_or_default();
    let is_of_several = states.len() > 1;
    for State { host, state } in states {
        if !is_of_several {
            if let Some(host) = host {
                host.clone_into(&mut gathering.routing.host);
            }
            read::read(file, state, gathering);
            continue;
        }
        let mut own = Gathering::default();
        read::read(file, state, &mut own);
        gathering.understood();
        let (mut routing, unread) = own.finish();
        routing.host = host.unwrap_or_default().to_owned();
        gathering.others.push(routing);
        gathering.add_unread(unread);
    }
}

//! Hosts to check, from files, from a captured host or from the running one.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::Path,
};

use clearstream_host::{HostRoot, capture::CAPTURED_NAME};
use clearstream_netconfig::read::Reading;
use clearstream_routing::live;
use clearstream_schema::{
    routing::{HostRouting, files::Loader},
    tune,
};
use clearstream_sys::document;
use clearstream_tune::{Assumed, HostState, Value, syntax};

use super::{CONNECTION_COUNT, Subject};

/// The hosts that files describe. A host whose files do not contain its name is
/// called `name`; `assumed` is what the settings are for.
pub fn of_files(reading: Reading, name: &str, assumed: &Assumed) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = Vec::new();
    let mut by_file: HashMap<String, usize> = HashMap::new();
    // Lines of sysctl files that are findings of their own.
    let mut slips: HashSet<(String, u32)> = HashSet::new();
    for routing in reading.hosts {
        let name = if routing.host.is_empty() { name.to_owned() } else { routing.host.clone() };
        let settings = settings(&name, &routing, assumed);
        for file in places(&routing) {
            by_file.entry(file).or_insert(subjects.len());
        }
        for (file, slip) in settings.iter().flat_map(|state| &state.slips) {
            slips.insert((file.clone(), slip.line));
        }
        subjects.push(Subject { name, routing, is_whole: false, settings, missing: Vec::new() });
    }
    for unread in reading.unread {
        let place = unread.place;
        let line = place.line.map_or_else(String::new, |line| format!(":{line}"));
        let at = by_file.get(&place.file).copied().unwrap_or(0);
        if place.line.is_some_and(|line| slips.contains(&(place.file.clone(), line))) {
            continue;
        }
        if let Some(subject) = subjects.get_mut(at) {
            subject.missing.push(format!("{}{line}: {} ({})", place.file, unread.text, unread.reason));
        }
    }
    subjects
}

/// The running host, or a captured one; `name` is for a bundle that keeps none.
pub fn of_host(root: &HostRoot, name: &str) -> Subject {
    let mut missing = Vec::new();
    let mut routing = root.routing().unwrap_or_else(|reason| {
        missing.push(format!("addresses, routes and rules: {reason}"));
        HostRouting::default()
    });
    live::complete(root, &mut routing);
    live::add_sysctls(root, &mut routing, [CONNECTION_COUNT].into_iter());
    if routing.host.is_empty() || routing.host == CAPTURED_NAME {
        name.clone_into(&mut routing.host);
    }
    let is_whole = missing.is_empty();
    let settings = HostState::of_host(root);
    Subject { name: routing.host.clone(), routing, is_whole, settings: Some(settings), missing }
}

/// Files that a host's routing was read from.
fn places(routing: &HostRouting) -> BTreeSet<String> {
    let of_addresses = routing.interfaces.iter().flat_map(|it| it.addresses.iter().map(|at| &at.place));
    let of_routes = routing.routes.iter().map(|route| &route.place);
    let of_rules = routing.rules.iter().map(|rule| &rule.place);
    let of_sysctls = routing.sysctls.values().map(|value| &value.place);
    let all = of_addresses.chain(of_routes).chain(of_rules).chain(of_sysctls);
    let read = routing.files.read_files.iter().cloned();
    all.flatten().map(|place| place.file.clone()).chain(read).collect()
}

/// The sysctls for the rules of `tune lint`: lines of files that hold nothing
/// else, values of others.
fn settings(name: &str, routing: &HostRouting, assumed: &Assumed) -> Option<HostState> {
    let places = routing.sysctls.values().filter_map(|value| value.place.as_ref());
    let files: BTreeSet<(&str, Loader)> = places.map(|place| (place.file.as_str(), place.by)).collect();
    if files.is_empty() {
        return None;
    }
    let mut state = HostState::of_file(name, "", assumed.clone());
    for (file, by) in files {
        let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
        // Tools that turn keys of their own into sysctls have no lines of sysctls.
        let is_list = matches!(by, Loader::Command | Loader::Conditional)
            && !matches!(extension, Some("yml" | "yaml" | "service"));
        match document::read_text(Path::new(file), document::DOCUMENT_BYTES) {
            Ok(text) if is_list && !syntax::parse(&text).statements.is_empty() => {
                state = state.with_file(file, &text);
            }
            _ => add_values(&mut state, routing, file),
        }
    }
    name.clone_into(&mut state.subject);
    Some(state)
}

fn add_values(state: &mut HostState, routing: &HostRouting, file: &str) {
    for (key, value) in &routing.sysctls {
        let Some(place) = value.place.as_ref().filter(|place| place.file == file) else { continue };
        let place = Some(tune::Place { file: place.file.clone(), line: place.line.unwrap_or(1) });
        state.values.insert(key.clone(), Value { text: value.value.clone(), place, effective: false });
    }
}

//! From a diagnosis to changes that may help, the most promising first.

use clearstream_schema::{
    CoreList,
    diagnosis::{Cause, Diagnosis, End, Finding, Remedy, Role, Verdict},
    flow::FlowConfig,
    improvement::{Candidate, Change},
    plan::{self, Effect, LinkAttribute, Setting, Step},
};
use serde_json::Value;

use crate::{ImproveError, Testbed};

/// Keys of the measurement's length and rate, not of the flow.
const KEYS_OF_THE_MEASUREMENT: [&str; 5] = ["duration", "bytes", "warm-up", "interval", "direction"];

/// Changes worth a comparison: the remedies of the primary cause, then those of the
/// secondary ones, then the experiment that an unclear diagnosis requests, then
/// the scheduler's own choice where the flow's threads were pinned (first, when
/// a core is what limits).
///
/// # Errors
/// When a host cannot be queried for a setting's present value.
pub fn candidates<B: Testbed + ?Sized>(
    testbed: &mut B,
    diagnosis: &Diagnosis,
    config: &FlowConfig,
) -> Result<Vec<Candidate>, ImproveError> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut add = |candidate: Candidate| {
        if !candidate.changes.is_empty() && found.iter().all(|other| other.id != candidate.id) {
            found.push(candidate);
        }
    };
    let primary = match &diagnosis.primary {
        Verdict::Found(finding) => Some(finding),
        Verdict::Unknown { .. } => None,
    };
    // A core that is too small for what was put on it: first without the pins.
    if primary.is_some_and(|finding| matches!(finding.cause, Cause::Cpu { .. })) {
        add(unpinned(config));
    }
    for finding in primary.into_iter().chain(&diagnosis.secondary) {
        for remedy in &finding.remedies {
            of_remedy(testbed, remedy, finding, config)?.into_iter().for_each(&mut add);
        }
    }
    if let Verdict::Unknown { because, experiment } = &diagnosis.primary {
        add(of_options(&difference(config, &experiment.flow), because));
    }
    add(unpinned(config));
    add(default_congestion_control(config));
    Ok(found)
}

/// The hosts' own congestion control, where the flow requested another.
fn default_congestion_control(config: &FlowConfig) -> Candidate {
    let key = "congestion-control".to_owned();
    let keys = if config.congestion_control.is_some() { vec![(key, Value::Null)] } else { Vec::new() };
    of_options(&keys, "the congestion control was chosen by hand; the host's own may do better")
}

fn of_remedy<B: Testbed + ?Sized>(
    testbed: &mut B,
    remedy: &Remedy,
    finding: &Finding,
    config: &FlowConfig,
) -> Result<Vec<Candidate>, ImproveError> {
    let reason = &finding.sentence;
    Ok(match remedy {
        Remedy::RaiseSysctl { end, name, field, at_least } => {
            let setting = Setting::Sysctl(name.clone());
            let current = testbed.read(*end, &setting)?;
            raised(*end, name, current, *field as usize, *at_least, reason).into_iter().collect()
        }
        Remedy::ChangeFlow { key, value } => vec![of_options(&[(key.clone(), value.clone())], reason)],
        Remedy::MoveThread { role, to_cores, .. } => moved(*role, to_cores, config, reason),
        Remedy::SetMtu { end, interface: Some(interface), mtu_bytes } => {
            let setting = Setting::Link { interface: interface.clone(), attribute: LinkAttribute::Mtu };
            let current = testbed.read(*end, &setting)?;
            let step = Step {
                setting,
                current,
                desired: Some(plan::Value::Number(*mtu_bytes)),
                reason: reason.clone(),
                effect: Effect::LinkFlap,
            };
            vec![Candidate {
                id: format!("mtu-{}-{interface}-{mtu_bytes}", label(*end)),
                title: format!("MTU of {interface} at the {} {mtu_bytes}", label(*end)),
                reason: reason.clone(),
                changes: vec![Change::Setting { end: *end, step }],
            }]
        }
        Remedy::SetMtu { interface: None, .. } | Remedy::Physical { .. } => Vec::new(),
    })
}

/// A maximum is raised to this many times what it is: what is needed is known
/// for the goal of one diagnosis only, and grows when the limit is gone. The
/// kernel takes no more of it than a connection needs.
const RAISE_FACTOR: u64 = 16;
/// That alone raises it no further than this (the window of 100 Gb/s over 20 ms).
const RAISE_LIMIT: u64 = 256 << 20;

/// The value with one of its numbers raised; nothing when it is large enough
/// or no list of numbers.
fn raised(
    end: End,
    name: &str,
    current: Option<plan::Value>,
    field: usize,
    at_least: u64,
    reason: &str,
) -> Option<Candidate> {
    let current = current?;
    let mut numbers: Vec<u64> =
        current.to_string().split_whitespace().map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let number = numbers.get_mut(field)?;
    if *number >= at_least {
        return None;
    }
    *number = at_least.max(number.saturating_mul(RAISE_FACTOR).min(RAISE_LIMIT));
    let desired = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let step = Step {
        setting: Setting::Sysctl(name.to_owned()),
        current: Some(current),
        desired: Some(plan::Value::Text(desired.clone())),
        reason: reason.to_owned(),
        effect: Effect::NewSockets,
    };
    Some(Candidate {
        id: format!("{name}-{}: {desired}", label(end)),
        title: format!("{name} = {desired} at the {}", label(end)),
        reason: reason.to_owned(),
        changes: vec![Change::Setting { end, step }],
    })
}

/// The thread on the best of the cores named: as many cores as there are flows.
fn moved(role: Role, to_cores: &[u32], config: &FlowConfig, reason: &str) -> Vec<Candidate> {
    let keys: &[&str] = match role {
        Role::Sender => &["sender-cores"],
        Role::Receiver => &["receiver-cores"],
    };
    let cores: Vec<u32> = to_cores.iter().copied().take(config.flows.max(1) as usize).collect();
    if cores.is_empty() {
        return Vec::new();
    }
    let value = Value::String(CoreList(cores).to_string());
    keys.iter().map(|key| of_options(&[((*key).to_owned(), value.clone())], reason)).collect()
}

fn of_options(options: &[(String, Value)], reason: &str) -> Candidate {
    let shown = |value: &Value| match value {
        Value::Null => "left out".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let parts: Vec<String> = options.iter().map(|(key, value)| format!("{key} {}", shown(value))).collect();
    Candidate {
        id: format!("flow: {}", parts.join(", ")),
        title: parts.join(", "),
        reason: reason.to_owned(),
        changes: options
            .iter()
            .map(|(key, value)| Change::Option { key: key.clone(), value: value.clone() })
            .collect(),
    }
}

/// Options in which one flow differs from another; null where it has none.
fn difference(from: &FlowConfig, to: &FlowConfig) -> Vec<(String, Value)> {
    let document = |config| match clearstream_schema::json::to_value(config) {
        Ok(Value::Object(keys)) => keys,
        _ => serde_json::Map::new(),
    };
    let (from, to) = (document(from), document(to));
    let mut keys: Vec<&String> = from.keys().chain(to.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .filter(|key| !KEYS_OF_THE_MEASUREMENT.contains(&key.as_str()) && from.get(*key) != to.get(*key))
        .map(|key| (key.clone(), to.get(key).cloned().unwrap_or(Value::Null)))
        .collect()
}

/// Threads where the scheduler puts them, where they were pinned.
fn unpinned(config: &FlowConfig) -> Candidate {
    let mut keys = Vec::new();
    if config.sender_cores.is_some() {
        keys.push(("sender-cores".to_owned(), Value::Null));
    }
    if config.receiver_cores.is_some() {
        keys.push(("receiver-cores".to_owned(), Value::Null));
    }
    of_options(&keys, "the cores were chosen by hand; the scheduler may do better")
}

fn label(end: End) -> &'static str {
    match end {
        End::Client => "client",
        End::Server => "server",
    }
}

//! Builder of a plan: steps with their current values, and advice for what
//! cannot be a step.

use clearstream_schema::plan::{Effect, Setting, Step, Value};

use crate::{knowledge::Knowledge, state::HostState};

pub(super) struct Draft<'a> {
    state: &'a HostState,
    steps: Vec<Step>,
    advice: Vec<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(state: &'a HostState) -> Self {
        Self { state, steps: Vec::new(), advice: Vec::new() }
    }

    /// Adds a sysctl, unless it has the value or is not writable from here.
    pub(super) fn sysctl(&mut self, key: &str, desired: String, reason: String) {
        let Some(current) = self.state.text(key) else { return self.explain_absent(key) };
        if current == desired {
            return;
        }
        if self.is_out_of_reach(key) {
            return self.advise(format!(
                "{key} = {desired} ({reason}): it belongs to the host and cannot be written from this network namespace"
            ));
        }
        let effect = Knowledge::embedded().key(key).map_or(Effect::Now, |known| known.effect);
        self.steps.push(Step {
            setting: Setting::Sysctl(key.to_owned()),
            current: Some(Value::Text(current.to_owned())),
            desired: Some(Value::Text(desired)),
            reason,
            effect,
        });
    }

    /// Adds the root qdisc of an interface.
    pub(super) fn qdisc(&mut self, interface: &str, current: &str, desired: &str, reason: String) {
        self.steps.push(Step {
            setting: Setting::Qdisc { interface: interface.to_owned() },
            current: Some(Value::Text(current.to_owned())),
            desired: Some(Value::Text(desired.to_owned())),
            reason,
            effect: Effect::Now,
        });
    }

    /// Adds a driver feature, switched on.
    pub(super) fn feature(&mut self, interface: &str, name: &str, reason: String) {
        self.steps.push(Step {
            setting: Setting::Ethtool {
                interface: interface.to_owned(),
                group: "features".to_owned(),
                name: name.to_owned(),
            },
            current: Some(Value::Text("off".to_owned())),
            desired: Some(Value::Text("on".to_owned())),
            reason,
            effect: Effect::LinkFlap,
        });
    }

    /// Adds advice.
    pub(super) fn advise(&mut self, text: String) {
        if !self.advice.contains(&text) {
            self.advice.push(text);
        }
    }

    /// Explains why a key that the plan would use is missing.
    pub(super) fn explain_absent(&mut self, key: &str) {
        let known = Knowledge::embedded().key(key);
        let is_shared = known.is_some_and(|known| !known.is_per_namespace(self.state.kernel));
        let why = if is_shared && self.state.own_network_namespace == Some(true) {
            "belongs to the host and is not visible in this network namespace: set it there"
        } else if self.state.present.is_some() {
            "is not there in this kernel"
        } else {
            "was not captured, so nothing is planned for it"
        };
        self.advise(format!("{key} {why}"));
    }

    /// Whether a key is visible here but writable by the host only.
    fn is_out_of_reach(&self, key: &str) -> bool {
        let known = Knowledge::embedded().key(key);
        let is_shared = known.is_some_and(|known| !known.is_per_namespace(self.state.kernel));
        is_shared && key.starts_with("net.") && self.state.own_network_namespace == Some(true)
    }

    pub(super) fn finish(self) -> (Vec<Step>, Vec<String>) {
        (self.steps, self.advice)
    }
}

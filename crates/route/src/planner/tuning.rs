//! Tuning of a class: the sysctls of the plan that `tune` would make for a host
//! with this kernel and its default values.

use clearstream_schema::{plan::Setting, tune::PathGoal};
use clearstream_tune::{HostState, KernelVersion, Profile, Value, knowledge::Knowledge, recommend};

use crate::fabric::Fabric;

/// The kernel whose values are assumed where the file names none: the oldest
/// in wide use that has everything the plan may request.
const USUAL_KERNEL: KernelVersion = KernelVersion::new(6, 12, 0);

/// Tuning of the hosts of a class.
#[derive(Debug, Default)]
pub(super) struct Tuning {
    /// Key, value, reason.
    pub(super) sysctls: Vec<(String, String, String)>,
    /// Settings that are no sysctls.
    pub(super) advice: Vec<String>,
}

impl Tuning {
    /// Tuning of a class that names a profile; empty for others.
    pub(super) fn of(fabric: &Fabric, class: usize) -> Self {
        let class = &fabric.file().classes[class];
        let profile = class.tuning.as_ref().and_then(|name| name.parse::<Profile>().ok());
        let (Some(profile), Some(path)) = (profile, fabric.file().path) else { return Self::default() };
        let kernel = class.kernel.as_ref().and_then(|text| text.parse().ok()).unwrap_or(USUAL_KERNEL);
        let goal = PathGoal { rate: path.rate, rtt: path.rtt, flow_count: path.flow_count };
        let plan = recommend(&untouched(kernel), &goal, profile);
        let mut tuning = Self { sysctls: Vec::new(), advice: plan.advice };
        for step in plan.steps {
            match (step.setting, step.desired) {
                (Setting::Sysctl(key), Some(value)) => {
                    tuning.sysctls.push((key, value.to_string(), step.reason))
                }
                (setting, desired) => {
                    let value = desired.map(|value| value.to_string()).unwrap_or_default();
                    tuning.advice.push(format!("{setting} = {value}: {} (not part of routing)", step.reason));
                }
            }
        }
        tuning
    }
}

/// A host with its kernel's default values.
fn untouched(kernel: KernelVersion) -> HostState {
    let with_default = |key: &clearstream_tune::knowledge::Key| {
        let text = key.default_at(kernel)?.to_owned();
        Some((key.name.clone(), Value { text, place: None, effective: false }))
    };
    let mut state = HostState::default();
    state.release = Some(kernel.to_string());
    state.kernel = Some(kernel);
    state.values = Knowledge::embedded().keys().filter_map(with_default).collect();
    state
}

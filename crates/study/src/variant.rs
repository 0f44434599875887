//! An experiment as it is run: with what the lab and the mode change.

use std::{collections::BTreeMap, fmt, str::FromStr};

use clearstream_schema::{
    TimeSpan,
    study::{Experiment, Levels, Variant, WorkloadOptions},
};
use serde_json::Value;

/// Thoroughness of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Seconds per trial, few levels.
    Quick,
    /// As in the study file.
    #[default]
    Standard,
    /// As the papers did: minutes per trial, every core.
    Full,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        })
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "quick" => Ok(Self::Quick),
            "standard" => Ok(Self::Standard),
            "full" => Ok(Self::Full),
            _ => Err(format!("there is no mode \"{text}\": write quick, standard or full")),
        }
    }
}

/// Result of base, lab and mode overlaid in this order.
#[derive(Debug, Clone)]
pub(crate) struct Effective {
    /// Options of the experiment's workload.
    pub(crate) options: BTreeMap<String, Value>,
    pub(crate) factors: BTreeMap<String, Levels>,
    pub(crate) repetitions: u32,
    pub(crate) precision_ratio: Option<f64>,
    pub(crate) budget: Option<TimeSpan>,
    pub(crate) interface: Option<String>,
}

impl Effective {
    pub(crate) fn of(common: &WorkloadOptions, experiment: &Experiment, mode: Mode, in_lab: bool) -> Self {
        let mut effective = Self {
            options: common.of(&experiment.workload),
            factors: experiment.factors.clone(),
            repetitions: experiment.repetitions,
            precision_ratio: experiment.precision_ratio,
            budget: None,
            interface: None,
        };
        effective.options.extend(experiment.options.of(&experiment.workload));
        for variant in experiment.variants(in_lab, &mode.to_string()) {
            effective.change(&experiment.workload, variant);
        }
        effective
    }

    fn change(&mut self, workload: &str, variant: &Variant) {
        self.options.extend(variant.options.of(workload));
        self.factors.extend(variant.factors.clone());
        self.repetitions = variant.repetitions.unwrap_or(self.repetitions);
        self.precision_ratio = variant.precision_ratio.or(self.precision_ratio);
        self.budget = variant.budget.or(self.budget);
        self.interface = variant.interface.clone().or_else(|| self.interface.take());
    }
}

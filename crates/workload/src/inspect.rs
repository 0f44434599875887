//! The workload `inspect`: no measurement, only the host descriptions that every run collects before its
//! first trial.

use clearstream_schema::JsonSchema;
use clearstream_schema::{
    TimeSpan,
    outcome::{MetricKind, Outcome},
    study::Figure,
};
use serde::{Deserialize, Serialize};

use crate::{Context, TrialError, Workload};

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inspect;

/// It has no options.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InspectConfig {}

impl Workload for Inspect {
    type Config = InspectConfig;

    fn name(&self) -> &'static str {
        "inspect"
    }

    fn title(&self) -> &'static str {
        "Description of the hosts, without traffic"
    }

    fn varies(&self) -> bool {
        false
    }

    fn figure(&self) -> Figure {
        Figure::Topology
    }

    fn time(&self, _: &InspectConfig) -> TimeSpan {
        TimeSpan(0)
    }

    fn overhead(&self) -> TimeSpan {
        TimeSpan::from_millis(100)
    }

    fn metrics(&self, _: &InspectConfig) -> Vec<MetricKind> {
        Vec::new()
    }

    fn run(&self, _: &mut Context<'_, '_>, _: &InspectConfig) -> Result<Outcome, TrialError> {
        Ok(Outcome::default())
    }
}

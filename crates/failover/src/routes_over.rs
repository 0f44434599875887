//! The factor `routes-over`: routes over the gateways of a lab with the name of
//! a fabric, for the duration of a cell.

use clearstream_lab::RunningLab;
use clearstream_schema::{fabric::ReturnPath, gateways::GatewayConfig};
use clearstream_workload::{EnvironmentFactor, Guard, TrialError};
use serde::Deserialize;
use serde_json::Value;

use crate::{participants::Participants, routes::LabRoutes};

/// The factor `routes-over`.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoutesOver;

/// Gateways of the lab that forward the traffic between its networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    /// The first one, by a plain route on each side.
    OneGateway,
    /// All, as computed by the route planner.
    AllGateways,
}

fn level(value: &Value) -> Result<Level, String> {
    Level::deserialize(value)
        .map_err(|_| format!("cannot route over {value}: write \"one-gateway\" or \"all-gateways\""))
}

impl EnvironmentFactor for RoutesOver {
    fn name(&self) -> &'static str {
        "routes-over"
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        level(value).map(drop)
    }

    fn set<'lab>(&self, lab: &'lab RunningLab, value: &Value) -> Result<Box<dyn Guard + 'lab>, TrialError> {
        let level = level(value).map_err(TrialError::internal)?;
        let everyone = u32::MAX;
        let mut config = GatewayConfig {
            fabric: lab.file().name.clone(),
            clients: everyone,
            servers: everyone,
            return_path: Some(ReturnPath::None),
            ..GatewayConfig::default()
        };
        if level == Level::OneGateway {
            let count = Participants::of(lab, &config)?.gateways.len();
            config.weights = (0..count).map(|place| u16::from(place == 0)).collect();
        }
        Ok(Box::new(LabRoutes::apply(lab, &Participants::of(lab, &config)?.routing)?))
    }
}

impl Guard for LabRoutes<'_> {}

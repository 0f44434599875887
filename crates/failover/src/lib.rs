//! The workload `gateways`: request/response flows through the gateways of a
//! lab, the path of each, and their interruption when a gateway fails; and the
//! factor `routes-over`, routes over one or all gateways of a lab for other
//! workloads.
//!
//! [`experiment`] performs it, with [`participants`] of a fabric, [`routes`]
//! that are removed afterwards, [`flows`] of requests, and [`gaps`] between
//! their responses, which [`summary`] combines.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod experiment;
mod flows;
mod gaps;
mod participants;
mod routes;
mod routes_over;
mod summary;

use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    gateways::GatewayConfig,
    outcome::{MetricKind, Outcome},
    study::Figure,
};
use clearstream_workload::{Context, TrialError, Workload};

pub use routes_over::RoutesOver;

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Failover;

impl Workload for Failover {
    type Config = GatewayConfig;

    fn name(&self) -> &'static str {
        "gateways"
    }

    fn title(&self) -> &'static str {
        "Requests and responses through the gateways of a lab, one of which may fail"
    }

    fn roles(&self) -> &'static [&'static str] {
        // It starts its own programs on the hosts of the lab.
        &[]
    }

    fn needs_lab(&self) -> Option<&'static str> {
        Some("gateways fail on purpose in a lab only: use --lab gateways-6")
    }

    fn figure(&self) -> Figure {
        Figure::Gateways
    }

    fn compares(&self) -> bool {
        // Gaps after a failure depend on retransmission timers.
        false
    }

    fn time(&self, config: &GatewayConfig) -> TimeSpan {
        config.time()
    }

    fn overhead(&self) -> TimeSpan {
        // Routes, and in half of the cases watches that have to start.
        TimeSpan::from_millis(2500)
    }

    fn metrics(&self, config: &GatewayConfig) -> Vec<MetricKind> {
        config.metrics()
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &GatewayConfig) -> Result<Outcome, TrialError> {
        let lab = context.hosts.lab().ok_or_else(|| Failure {
            kind: FailureKind::Unsupported,
            message: "gateways fail on purpose in a lab only".to_owned(),
        })?;
        Ok(experiment::run(lab, context.hosts.program(), config, context.stop)?.outcome()?)
    }
}

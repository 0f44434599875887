//! The workload `gateways`: request/response flows through the gateways of a
//! lab, which path each of them takes, and what becomes of them when a gateway
//! fails; and the factor `routes-over`, routes over one or all gateways of a lab
//! for other workloads.
//!
//! [`experiment`] carries it out, with [`participants`] of a fabric, [`routes`]
//! that are removed afterwards, [`flows`] that send requests, and [`gaps`] in
//! their answers, which [`summary`] puts together.
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
    outcome::Outcome,
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
        "Requests and answers through the gateways of a lab, one of which may fail"
    }

    fn roles(&self) -> &'static [&'static str] {
        // It starts its own programs on the hosts of the lab.
        &[]
    }

    fn needs_lab(&self) -> Option<&'static str> {
        Some("gateways fail on purpose in a lab only: use --lab gateways-6")
    }

    fn compares(&self) -> bool {
        // Gaps after a failure are a matter of retransmission timers.
        false
    }

    fn time(&self, config: &GatewayConfig) -> TimeSpan {
        config.time()
    }

    fn overhead(&self) -> TimeSpan {
        // Routes, and half of the time watches that have to start.
        TimeSpan::from_millis(2500)
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &GatewayConfig) -> Result<Outcome, TrialError> {
        let lab = context.hosts.lab().ok_or_else(|| Failure {
            kind: FailureKind::Unsupported,
            message: "gateways fail on purpose in a lab only".to_owned(),
        })?;
        Ok(experiment::run(lab, context.hosts.program(), config, context.stop)?.outcome()?)
    }
}

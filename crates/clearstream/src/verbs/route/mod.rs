//! `clearstream route`

mod plan;

use clap::Subcommand;

use crate::exit::CommandError;

/// Routes over several gateways between networks: plan, files, proof, health.
#[derive(Debug, Subcommand)]
pub enum RouteVerb {
    /// Plan what each host of a fabric will route by, and why
    Plan(plan::PlanArgs),
}

impl RouteVerb {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        match self {
            Self::Plan(args) => args.run(),
        }
    }
}

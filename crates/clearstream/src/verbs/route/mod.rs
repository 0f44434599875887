//! `clearstream route`

mod plan;
mod render;

use clap::Subcommand;

use crate::exit::CommandError;

/// Routes over several gateways between networks: plan, files, proof, health.
#[derive(Debug, Subcommand)]
pub enum RouteVerb {
    /// Plan what each host of a fabric will route by, and why
    Plan(plan::PlanArgs),
    /// Write the files for NetworkManager, networkd, netplan, ifcfg, nmstate, Ansible or iproute2
    Render(render::RenderArgs),
}

impl RouteVerb {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        match self {
            Self::Plan(args) => args.run(),
            Self::Render(args) => args.run(),
        }
    }
}

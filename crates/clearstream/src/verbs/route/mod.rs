//! `clearstream route`

mod apply;
mod guardian;
mod health;
mod here;
mod plan;
mod prove;
mod render;
mod revert;
mod verify;
mod watch;

use clap::Subcommand;

use crate::exit::CommandError;

/// Routes over several gateways between networks: plan, files, proof, health.
#[derive(Debug, Subcommand)]
pub enum RouteVerb {
    /// Plan what each host of a fabric will route by, and why
    Plan(plan::PlanArgs),
    /// Write the files for NetworkManager, networkd, netplan, ifcfg, nmstate, Ansible or iproute2
    Render(render::RenderArgs),
    /// Make this host route as the fabric plans it
    Apply(apply::ApplyArgs),
    /// Keep what was applied with --confirm-within
    Confirm(revert::ConfirmArgs),
    /// Compare what is planned for this host with what is in force
    Verify(verify::VerifyArgs),
    /// Send real flows through every gateway, and show where they went
    Prove(prove::ProveArgs),
    /// Keep next hops to gateways that forward: take the dead out, put them back
    Watch(watch::WatchArgs),
    /// How the gateways are, as the running watch sees it
    Health(health::HealthArgs),
    /// Take a gateway out for maintenance, through the running watch
    Drain(health::DrainArgs),
    /// End the draining of a gateway
    Undrain(health::DrainArgs),
    /// Put back the routes that were there before
    Revert(revert::RevertArgs),
    /// Watch over an apply or revert; started by them
    #[command(hide = true)]
    Guard(guardian::GuardArgs),
}

impl RouteVerb {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        match self {
            Self::Plan(args) => args.run(),
            Self::Render(args) => args.run(),
            Self::Apply(args) => args.run(),
            Self::Confirm(args) => args.run(),
            Self::Verify(args) => args.run(),
            Self::Prove(args) => args.run(),
            Self::Watch(args) => args.run(),
            Self::Health(args) => args.run(),
            Self::Drain(args) => args.drain(),
            Self::Undrain(args) => args.undrain(),
            Self::Revert(args) => args.run(),
            Self::Guard(args) => args.run(),
        }
    }
}

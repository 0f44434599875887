//! `clearstream route`

mod apply;
mod health;
mod here;
mod lint;
mod new;
mod plan;
mod printer;
mod prove;
mod render;
mod standing;
mod verify;
mod watch;

use std::path::Path;

use clap::Subcommand;

use crate::{exit::CommandError, output::Output};

/// Routes over several gateways between networks: plan, files, proof, health.
#[derive(Debug, Subcommand)]
pub enum RouteVerb {
    /// Plan the routing of each host of a fabric, with the reasons
    Plan(plan::PlanArgs),
    /// Write the files for NetworkManager, networkd, netplan, ifcfg, nmstate, Ansible or iproute2
    Render(render::RenderArgs),
    /// Check routing configuration for mistakes: files, captured hosts, this host
    Lint(Box<lint::LintArgs>),
    /// Generate a fabric file from existing hosts
    New(new::NewArgs),
    /// Apply the fabric's plan for this host: `plan apply` with that plan
    Apply(apply::ApplyArgs),
    /// Compare the plan for this host with what is in effect
    Verify(verify::VerifyArgs),
    /// Send real flows through every gateway, and show where they went
    Prove(prove::ProveArgs),
    /// Monitor gateways: remove failed ones from the next-hop set, restore them on recovery
    Watch(watch::WatchArgs),
    /// Show the state of the gateways, as reported by the running watch
    Health(health::HealthArgs),
    /// Remove a gateway from the next-hop set for maintenance, through the running watch
    Drain(health::DrainArgs),
    /// Restore a drained gateway
    Undrain(health::DrainArgs),
}

impl RouteVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Plan(args) => args.run(out),
            Self::Render(args) => args.run(out),
            Self::Lint(args) => args.run(out),
            Self::New(args) => args.run(out),
            Self::Apply(args) => args.run(out),
            Self::Verify(args) => args.run(out),
            Self::Prove(args) => args.run(out),
            Self::Watch(args) => args.run(out),
            Self::Health(args) => args.run(out),
            Self::Drain(args) => args.drain(out),
            Self::Undrain(args) => args.undrain(out),
        }
    }
}

/// Name for a host whose files or bundle have none: that of the file.
fn name_of(path: &Path) -> String {
    let name = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
    let name = name.strip_suffix(".tar.gz").unwrap_or(&name);
    name.to_owned()
}

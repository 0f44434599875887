//! `clearstream route plan`

use clearstream_route::{
    fabric::{self, Fabric, HostId},
    planner::{Planner, shares::Population},
};
use clearstream_schema::route_plan::{ProofOutcome, RoutePlan};

use crate::{
    exit::CommandError,
    output::{self, Output, Paint, fabric as shown},
};

/// Plan the routing of each host of a fabric, with the reasons, the cost of each
/// return path, a symmetry check, and the load distribution over the gateways.
/// Nothing is changed. Exits with code 8 when a symmetry check fails.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Name of a built-in fabric, or a fabric file
    fabric: String,
    /// Show this host in full; may be repeated (default: the first host of each class, abridged)
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Show the hosts of this class in full; may be repeated
    #[arg(long = "class", value_name = "NAME")]
    classes: Vec<String>,
    /// Flows from each client to each server in the simulated load distribution
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    flows: u32,
    /// Server port of these flows
    #[arg(long, value_name = "PORT", default_value_t = 1191, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

impl PlanArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let fabric = fabric::load(&self.fabric)?;
        let planner = Planner::new(&fabric);
        let hosts = self.shown(&fabric)?;
        let in_full = !self.hosts.is_empty() || !self.classes.is_empty();
        let population = Population { flows_per_pair: self.flows, port: self.port, ..Population::default() };
        let document = planner.overview(&population);
        if !out.is_human() {
            out.document_in_parts::<RoutePlan>(&planner.with_hosts(&document, &hosts))?;
        } else {
            let paint = Paint::for_stdout();
            output::line(&shown::overview(&document, fabric.file().title.as_deref(), paint))?;
            for host in hosts {
                output::line(&shown::host(&document, &planner.explain(host), in_full, paint))?;
            }
            output::line(&shown::notices(&document))?;
        }
        let failed = document.routes.iter().filter(|route| route.proof.outcome == ProofOutcome::Fails);
        match failed.count() {
            0 => Ok(()),
            count => Err(CommandError::Partial(format!(
                "the symmetry check failed for {count} of {} routes: see above",
                document.routes.len()
            ))),
        }
    }

    /// Hosts to show.
    fn shown(&self, fabric: &Fabric) -> Result<Vec<HostId>, CommandError> {
        let mut hosts = Vec::new();
        for name in &self.hosts {
            hosts.push(fabric.find(name)?);
        }
        for name in &self.classes {
            hosts.extend(fabric.class_hosts(fabric.find_class(name)?));
        }
        if hosts.is_empty() {
            let classes = 0..fabric.file().classes.len();
            hosts.extend(classes.map(|class| HostId { class, index: 0 }));
        }
        Ok(hosts)
    }
}

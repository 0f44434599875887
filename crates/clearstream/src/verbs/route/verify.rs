//! `clearstream route verify`: whether this host routes as planned, by settings
//! read back and by the kernel's own lookups.

use clearstream_host::HostRoot;
use clearstream_netlink::RouteSocket;
use clearstream_plan::{Options, plan_of, verify};
use clearstream_route::effective;
use clearstream_schema::plan::Verification;

use super::{here::Planned, revert::newest_with_routes};
use crate::{exit::CommandError, output::Output, verbs::plan::report};

/// Compare a fabric's plan for this host, or a journal, with what is in effect:
/// settings read back, and the kernel's route lookups.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// Name of a built-in fabric or a fabric file (default: the newest journal with routes)
    fabric: Option<String>,
    /// Name of this host in the fabric (default: its host name)
    #[arg(long, value_name = "NAME", requires = "fabric")]
    host: Option<String>,
}

impl VerifyArgs {
    /// Runs it. Exits with code 8 when anything is not as planned.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let verification = match &self.fabric {
            Some(fabric) => self.against(fabric)?,
            None => verify(&plan_of(&newest_with_routes(&options, "verified")?, &options)?, &options)?,
        };
        report(&verification, &options, out)
    }

    fn against(&self, fabric: &str) -> Result<Verification, CommandError> {
        let root = HostRoot::live();
        let planned = Planned::of(fabric, self.host.as_deref(), &root)?;
        let current = planned.current(&root)?;
        let mut checks = effective::read_back(&current, &planned.wanted())?;
        let questions = planned.questions(&current.routing);
        let wanted = planned.wanted();
        checks.extend(effective::lookups(&questions, &current, &wanted, &mut RouteSocket::open()?));
        Ok(Verification { checks })
    }
}

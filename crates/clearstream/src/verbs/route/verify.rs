//! `clearstream route verify`: whether this host routes as planned, by settings
//! read back and by the kernel's own lookups. Without a fabric, what was applied here is what is
//! wanted: its routes are looked up too, to any address behind them.

use clearstream_host::HostRoot;
use clearstream_netlink::RouteSocket;
use clearstream_plan::{Options, plan_of, verify};
use clearstream_route::{
    difference::{Current, Wanted},
    effective, live, ways,
};
use clearstream_schema::plan::Verification;

use super::here::Planned;
use crate::{
    exit::CommandError,
    output::Output,
    verbs::plan::{newest, report},
};

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
            None => Self::of_applied(&options)?,
        };
        report(&verification, &options, out)
    }

    fn of_applied(options: &Options) -> Result<Verification, CommandError> {
        let has_routes = |journal: &str| {
            plan_of(journal, options)
                .is_ok_and(|plan| plan.steps.iter().any(|step| step.setting.may_be_absent()))
        };
        let journal = newest(options, "no routes are", "verified", has_routes)?;
        let plan = plan_of(&journal, options)?;
        let mut verification = verify(&plan, options)?;
        let root = HostRoot::live();
        let routing = live::live(&root)?;
        let wanted = ways::applied(&plan, &routing);
        let kernel = root.read("proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let current = Current { routing, kernel, ..Current::default() };
        let questions = ways::questions_of(&wanted, &current.routing);
        let protocol = ways::protocol(&wanted);
        let wanted = Wanted { fabric: &plan.purpose, routing: &wanted, reasons: &[], protocol };
        let mut checks = effective::lookups(&questions, &current, &wanted, &mut RouteSocket::open()?);
        if let Some(first) = checks.first_mut() {
            let given = format!(
                "journal {journal} names no hosts: one address of each part of its destinations was looked up, not \
                 those of servers, and what gateways carry not at all: `clearstream route verify FABRIC` does"
            );
            first.note =
                Some(first.note.take().map_or_else(|| given.clone(), |note| format!("{note}; {given}")));
        }
        verification.checks.extend(checks);
        Ok(verification)
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

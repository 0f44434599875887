//! A placement of queues, interrupts and processes, and the plan that makes it.
//!
//! The order of its steps is that in which they depend on each other: a change
//! of the channels makes new queues and vectors, whose affinity and steering
//! masks come after it.

mod assign;
mod steps;
mod table;

use crate::document::{PLACEMENT_SCHEMA, Placement, SpreadMethod};
use clearstream_host::HostRoot;
use clearstream_schema::{
    CoreList,
    host::{HostReport, Nic},
    human::count,
    plan::{PLAN_SCHEMA, Plan, PlanHost},
};

use self::{assign::Assignment, steps::Steps};
use crate::{PlaceError, interface, rank};

/// Plans the placement of `flows` flows through an interface. `root` is what
/// the host was described from; texts of settings are read there.
pub fn plan(root: &HostRoot, host: &HostReport, name: &str, flows: u32) -> Result<Placement, PlaceError> {
    let nic = interface(host, name)?;
    let view = rank::View::new(host, nic)?;
    let assignment = Assignment::new(host, nic, &view, flows.max(1));
    let mut steps = Steps::new(root, host, nic, &assignment);
    steps.all();
    let (steps, mut advice) = (steps.steps, steps.advice);
    advice.extend(view.notes.iter().cloned());
    let memory_node = rank::memory_node(host, nic);
    advice.extend(processes(&assignment, memory_node));
    let ban = ban(nic, &assignment);
    advice.extend(irqbalance(root, ban.as_deref()));
    let purpose = format!(
        "placement of {} through {name}: {}, {}",
        count(flows, "flow"),
        count(assignment.queues.len(), "queue"),
        match assignment.method {
            SpreadMethod::Queues => "one interrupt core each",
            SpreadMethod::Software => "spread by RPS",
        }
    );
    Ok(Placement {
        schema: PLACEMENT_SCHEMA.to_owned(),
        version: 1,
        interface: name.to_owned(),
        node: nic.node,
        method: assignment.method,
        queues: assignment.queues,
        flows: assignment.flows,
        memory_node,
        irqbalance_ban: ban,
        plan: Plan {
            schema: PLAN_SCHEMA.to_owned(),
            version: 1,
            purpose,
            host: PlanHost {
                name: host.name.clone(),
                kernel: host.kernel.release.clone().unwrap_or_else(|| "unknown".to_owned()),
            },
            steps,
            advice,
        },
    })
}

/// Start options of the processes: no setting of the host.
fn processes(assignment: &Assignment, memory_node: Option<u32>) -> Vec<String> {
    let list = |core: fn(&crate::document::FlowPlacement) -> u32| {
        CoreList(assignment.flows.iter().map(core).collect()).to_string()
    };
    let memory = memory_node.map_or(String::new(), |node| format!(" --memory-node {node}"));
    vec![format!(
        "processes: --receiver-cores {} where this host receives, --sender-cores {} where it sends{memory}",
        list(|flow| flow.reader_core),
        list(|flow| flow.writer_core),
    )]
}

/// irqbalance(1): `--banirq` keeps it off one interrupt; its unit file reads
/// `IRQBALANCE_ARGS` from `/etc/sysconfig/irqbalance` or `/etc/default/irqbalance`.
fn ban(nic: &Nic, assignment: &Assignment) -> Option<String> {
    let pinned: Vec<String> = nic
        .interrupts
        .iter()
        .filter(|number| assignment.pinned.iter().any(|(pinned, _)| pinned == *number))
        .map(|number| format!("--banirq={number}"))
        .collect();
    (!pinned.is_empty()).then(|| format!("IRQBALANCE_ARGS=\"{}\"", pinned.join(" ")))
}

/// irqbalance overwrites affinities every 10 s.
fn irqbalance(root: &HostRoot, ban: Option<&str>) -> Option<String> {
    let ban = ban?;
    let files = "/etc/sysconfig/irqbalance or /etc/default/irqbalance, then restart it";
    if !root.is_live() {
        return Some(format!("where irqbalance runs, keep it off these interrupts: {ban} in {files}"));
    }
    let running = root.list("proc").unwrap_or_default().into_iter().any(|name| {
        name.bytes().all(|byte| byte.is_ascii_digit())
            && root.read(&format!("proc/{name}/comm")).is_ok_and(|comm| comm.trim() == "irqbalance")
    });
    running.then(|| {
        format!("irqbalance is running and will move these interrupts within 10 s: put {ban} into {files}")
    })
}

//! This host: its name in a fabric, its current routing, its planned routing.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use clearstream_host::HostRoot;
use clearstream_netlink::RouteSocket;
use clearstream_plan::{Host, Target};
use clearstream_route::{
    difference::{Current, MARK_TABLE, Wanted, difference, learn_marks, unknown_gateways},
    fabric::{self, Fabric, HostId},
    planner::Planner,
    probe_kernel,
    ways::{Population, Question, questions, shadowed},
};
use clearstream_routing::live;
use clearstream_schema::{
    plan::{Plan, Setting},
    route_plan::PlannedHost,
    routing::HostRouting,
};

use crate::exit::CommandError;

/// Maximum wait for the link addresses of gateways (ARP, neighbour discovery).
const TIMEOUT: Duration = Duration::from_secs(2);
/// Discard (RFC 863): a datagram starts neighbour resolution, with or without a listener.
const DISCARD_PORT: u16 = 9;

/// What a fabric plans for this host.
#[derive(Debug)]
pub(super) struct Planned {
    fabric: Fabric,
    id: HostId,
    pub(super) host: PlannedHost,
}

impl Planned {
    /// Of the named host, or of the host with this machine's name.
    pub(super) fn of(name: &str, host: Option<&str>, root: &HostRoot) -> Result<Self, CommandError> {
        let fabric = fabric::load(name)?;
        let own = root.read("proc/sys/kernel/hostname").unwrap_or_default();
        let id = match host {
            Some(host) => fabric.find(host)?,
            None => own_id(&fabric, own.trim())?,
        };
        let planner = Planner::new(&fabric).with_kernel(id.class, probe_kernel::features(root));
        let mut host = planner.explain(id);
        learn(&mut host.routing)?;
        Ok(Self { fabric, id, host })
    }

    /// Packets of the fabric on this host, for each class that its routing tells apart.
    pub(super) fn questions(&self, live: &HostRouting) -> Vec<Question> {
        let population = Population::new(&self.fabric);
        questions(&self.fabric, &population, self.id, &self.host.routing, live, true)
    }

    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted {
            fabric: self.fabric.name(),
            routing: &self.host.routing,
            reasons: &self.host.reasons,
            protocol: self.fabric.file().numbers.protocol,
        }
    }

    /// The minimal plan from the effective state to the wanted one, with what leads packets away
    /// all the same as advice.
    pub(super) fn difference(&self, root: &HostRoot) -> Result<Plan, CommandError> {
        let current = self.current(root)?;
        let mut plan = difference(&current, &self.wanted())?;
        plan.advice.extend(shadowed(&self.fabric, self.id, &self.host.routing, &current.routing));
        Ok(plan)
    }

    /// What is in effect, with every sysctl that the plan names.
    pub(super) fn current(&self, root: &HostRoot) -> Result<Current, CommandError> {
        let mut routing = live::live(root)?;
        live::add_sysctls(root, &mut routing, self.host.routing.sysctls.keys().map(String::as_str));
        let table = Setting::NetfilterTable { name: MARK_TABLE.to_owned() };
        // A host without nft has no table of ours; whether it needs one, the plan finds out.
        let mark_table = Host::live().read(&table).ok().flatten();
        let kernel = root.read("proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let addresses = RouteSocket::open()?.all_addresses()?;
        Ok(Current { routing, addresses, mark_table, kernel })
    }
}

/// By the host name, else by its first part.
pub(super) fn own_id(fabric: &Fabric, name: &str) -> Result<HostId, CommandError> {
    let short = name.split('.').next().unwrap_or(name);
    match fabric.find(name) {
        Ok(id) => Ok(id),
        Err(error) => fabric.find(short).map_err(|_| error.into()),
    }
}

/// Resolves link addresses of neighbours that the fabric does not specify.
fn learn(routing: &mut HostRouting) -> Result<(), CommandError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let unknown = unknown_gateways(routing);
        if unknown.is_empty() {
            return Ok(());
        }
        learn_marks(routing, &RouteSocket::open()?.neighbours()?);
        let still = unknown_gateways(routing);
        if still.is_empty() || Instant::now() >= deadline {
            // The difference reports those that stay unknown.
            return Ok(());
        }
        for (gateway, _) in still {
            let any: IpAddr =
                if gateway.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            // Whether anybody listens does not matter: the kernel requests the neighbour.
            if let Ok(socket) = UdpSocket::bind(SocketAddr::new(any, 0)) {
                let _ = socket.send_to(&[], SocketAddr::new(gateway, DISCARD_PORT));
            }
        }
        thread::sleep(TIMEOUT / 20);
    }
}

//! Whether this kernel has what a host's routing needs: tried out in a temporary
//! network namespace, or read from its configuration where that is not permitted.

use std::{io, net::IpAddr};

use clearstream_host::HostRoot;
use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    prefix::Prefix,
    routing::{
        GroupMember, Hop, HostRouting, MAIN_TABLE, Nexthop, NexthopTarget, Resilient, RouteAction,
        RouteEntry, RuleAction, RuleEntry, RuleSelector,
    },
};
use clearstream_sys::namespace::{Holder, NamespaceSet};

use crate::planner::kernel::{KernelFeatures, KernelNeed, needs};

/// Numbers in the temporary namespace.
const NUMBER: u32 = 7001;

/// Something that the kernel lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// `CONFIG_IP_MULTIPLE_TABLES`, `nexthop objects`.
    pub name: String,
    /// First release that has it; absent for an option.
    pub since: Option<String>,
    /// What needs it.
    pub what_for: String,
}

impl Missing {
    /// One line.
    pub fn description(&self) -> String {
        let since = self.since.as_ref().map_or_else(String::new, |since| format!(" (Linux {since})"));
        format!("{}{since} for {}", self.name, self.what_for)
    }

    fn of(need: &KernelNeed) -> Self {
        Self {
            name: need.name.to_owned(),
            since: need.since.map(|since| since.to_string()),
            what_for: need.what_for.to_owned(),
        }
    }
}

/// What this kernel lacks for a host's routing. Needs `CAP_SYS_ADMIN` to try;
/// without it the configuration of the kernel is read, and nothing is reported
/// where that is absent too.
pub fn missing(root: &HostRoot, routing: &HostRouting) -> Vec<Missing> {
    let needed = needs(routing);
    if needed.is_empty() {
        return Vec::new();
    }
    let by_sysctl = |need: &KernelNeed| {
        let path = need.name.replace('.', "/");
        need.name.starts_with("net.") && !root.exists(&format!("proc/sys/{path}"))
    };
    let lacking: Vec<KernelNeed> = match try_out() {
        Ok(refused) => {
            needed.into_iter().filter(|need| refused.contains(&need.name) || by_sysctl(need)).collect()
        }
        Err(_) => features(root).missing(routing),
    };
    lacking.iter().map(Missing::of).collect()
}

/// Release and configuration from files.
pub fn features(root: &HostRoot) -> KernelFeatures {
    let release = root.read("proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned());
    let file = release.as_ref().map(|release| format!("boot/config-{release}"));
    let configuration = file.and_then(|file| root.read(&file).ok());
    KernelFeatures::read(release.as_deref(), configuration.as_deref())
}

/// Names of the features that the kernel refuses.
fn try_out() -> io::Result<Vec<&'static str>> {
    let holder = Holder::start()?;
    let inside = NamespaceSet::of_process(holder.pid())?;
    let net = NamespaceSet::of_process(holder.pid())?;
    inside.run(|| try_inside(&net))?.map_err(io::Error::other)
}

fn try_inside(net: &NamespaceSet) -> Result<Vec<&'static str>, NetlinkError> {
    let mut socket = RouteSocket::open()?;
    socket.add_veth("one", "two", net.net())?;
    for name in ["two", "one"] {
        socket.set_up(name, true)?;
    }
    for address in [[192, 0, 2, 1].into(), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])] {
        // A kernel without IPv6 has no IPv6 rules to lack.
        let length = if address.is_ipv4() { 24 } else { 64 };
        let _ = socket.add_address("one", Prefix { address, length });
    }
    let mut refused = Vec::new();
    let mut tried = |name: &'static str, result: Result<(), NetlinkError>| {
        if result.is_err() {
            refused.push(name);
        }
    };
    tried("CONFIG_IP_MULTIPLE_TABLES", socket.add_rule(&rule(false)));
    tried("CONFIG_IPV6_MULTIPLE_TABLES", socket.add_rule(&rule(true)));
    let gateways = [[192, 0, 2, 2].into(), [192, 0, 2, 3].into()];
    tried("CONFIG_IP_ROUTE_MULTIPATH", socket.set_route(&multipath(&gateways), false));
    let mut objects = Ok(());
    for (id, via) in (NUMBER..).zip(gateways) {
        let target = NexthopTarget::Gateway { via, interface: "one".to_owned() };
        objects = objects.and(socket.set_nexthop(&nexthop(id, target)));
    }
    let members: Vec<GroupMember> = [NUMBER, NUMBER + 1].map(|id| GroupMember { id, weight: 1 }).into();
    let plain = NexthopTarget::Group { members: members.clone(), resilient: None };
    tried("nexthop objects", objects.and_then(|()| socket.set_nexthop(&nexthop(NUMBER + 2, plain))));
    let resilient = Some(Resilient { bucket_count: 8, idle_seconds: 1, unbalanced_seconds: 0 });
    let resilient = NexthopTarget::Group { members, resilient };
    tried("resilient nexthop groups", socket.set_nexthop(&nexthop(NUMBER + 3, resilient)));
    refused.extend(marks_refused());
    Ok(refused)
}

fn nexthop(id: u32, target: NexthopTarget) -> Nexthop {
    Nexthop { id, target, protocol: 0, place: None }
}

fn rule(ipv6: bool) -> RuleEntry {
    RuleEntry {
        ipv6,
        priority: Some(NUMBER),
        selector: RuleSelector { mark: Some((NUMBER, u32::MAX)), ..RuleSelector::default() },
        action: RuleAction::Table(NUMBER),
        protocol: 0,
        place: None,
    }
}

fn multipath(gateways: &[IpAddr]) -> RouteEntry {
    let hop = |via: &IpAddr| Hop { via: *via, interface: Some("one".to_owned()), weight: 1, place: None };
    RouteEntry {
        destination: Prefix { address: [198, 51, 100, 0].into(), length: 24 },
        table: MAIN_TABLE,
        metric: 0,
        action: RouteAction::Gateways(gateways.iter().map(hop).collect()),
        source: None,
        mtu: None,
        protocol: 0,
        place: None,
    }
}

/// The plan crate, which runs nft, tries the table of marks.
fn marks_refused() -> Vec<&'static str> {
    use clearstream_schema::plan::{Setting, Value};
    let setting = Setting::NetfilterTable { name: "tried".to_owned() };
    let text = "chain leave { type route hook output priority mangle; ct mark != 0 meta mark set ct mark; }";
    let target = clearstream_plan::Host::live();
    match clearstream_plan::Target::write(&target, &setting, &Value::of(&setting, text)) {
        Err(error) if matches!(*error.fault, clearstream_plan::Fault::Rejected { .. }) => {
            vec!["CONFIG_NF_TABLES"]
        }
        // A program that is not there is named when the plan is checked.
        Ok(()) | Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::routing::ConnectionMark;

    use super::*;

    /// Rules of both families, groups, classic multipath and marks.
    fn everything() -> HostRouting {
        let gateways = [[192, 0, 2, 2].into(), [192, 0, 2, 3].into()];
        let members = vec![GroupMember { id: 1, weight: 1 }];
        let resilient = Some(Resilient { bucket_count: 8, idle_seconds: 1, unbalanced_seconds: 0 });
        HostRouting {
            nexthops: vec![nexthop(2, NexthopTarget::Group { members, resilient })],
            routes: vec![multipath(&gateways)],
            rules: vec![rule(false), rule(true)],
            connection_marks: vec![ConnectionMark {
                interface: "one".to_owned(),
                link_address: "02:00:00:00:00:01".to_owned(),
                gateway: "gw1".to_owned(),
                mark: 1,
            }],
            ..HostRouting::default()
        }
    }

    /// The kernels that these tests run on have all of it: their other tests use it.
    #[test]
    fn root_nothing_is_missing_where_it_can_be_tried_out() {
        assert_eq!(missing(&HostRoot::live(), &everything()), Vec::new());
        assert_eq!(try_out().unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn a_configuration_names_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "5.4.0-1-amd64\n");
        write(
            "boot/config-5.4.0-1-amd64",
            "CONFIG_IP_ADVANCED_ROUTER=y\nCONFIG_IP_ROUTE_MULTIPATH=y\n# CONFIG_IP_MULTIPLE_TABLES is not set\nCONFIG_NF_TABLES=m\n",
        );
        let missing = features(&HostRoot::directory(folder.path())).missing(&everything());
        let description: Vec<String> = missing.iter().map(|need| Missing::of(need).description()).collect();
        assert!(
            description.iter().any(|description| description.starts_with("CONFIG_IP_MULTIPLE_TABLES for")),
            "{description:?}"
        );
        assert!(
            description
                .iter()
                .any(|description| description.starts_with("resilient nexthop groups (Linux 5.13)")),
            "{description:?}"
        );
        assert!(
            !description.iter().any(|description| description.contains("CONFIG_IP_ROUTE_MULTIPATH")),
            "{description:?}"
        );
    }
}

//! Any small fabric has no finding as planned, and one about the host in which one
//! thing is changed.

use clearstream_schema::{
    fabric::{Multipath, ReturnPath, ReversePathFilter},
    routing::NexthopTarget,
};
use proptest::prelude::*;

use super::*;
use crate::{fabric::made::Shape, planner::Planner};

fn made(gateways: usize, path: ReturnPath, multipath: Multipath, rp_filter: ReversePathFilter) -> Fabric {
    Shape { rp_filter: Some(rp_filter), ..Shape::new(gateways, path, multipath) }.fabric()
}

fn planned(fabric: &Fabric) -> Vec<Subject> {
    let planner = Planner::new(fabric);
    let subject =
        |host| Subject { name: fabric.host_name(host), routing: planner.routing(host), ..Subject::default() };
    fabric.hosts().map(subject).collect()
}

/// The kind of mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    NoRoutes,
    Discards(u8),
    LeavesOut,
    NoForwarding,
    WrongHost,
    NobodyHasIt,
    NoSuchSource,
    Duplicate,
}

const BREAKS: [Break; 10] = [
    Break::NoRoutes,
    Break::Discards(0),
    Break::Discards(1),
    Break::Discards(2),
    Break::LeavesOut,
    Break::NoForwarding,
    Break::WrongHost,
    Break::NobodyHasIt,
    Break::NoSuchSource,
    Break::Duplicate,
];

/// Changes every next hop `from` of a host.
fn replace_hop(routing: &mut HostRouting, from: &str, to: &str) {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    for nexthop in &mut routing.nexthops {
        if let NexthopTarget::Gateway { via, .. } = &mut nexthop.target
            && *via == from
        {
            *via = to;
        }
    }
    for route in &mut routing.routes {
        if let RouteAction::Gateways(hops) = &mut route.action {
            hops.iter_mut().filter(|hop| hop.via == from).for_each(|hop| hop.via = to);
        }
    }
}

/// Adds a mistake to one host; returns its name.
fn apply(hosts: &mut [Subject], what: Break, is_client: bool) -> String {
    let name = match (what, is_client) {
        (Break::NoForwarding, _) => "g1",
        (Break::Duplicate | Break::WrongHost, _) | (_, true) => "c2",
        _ => "s2",
    };
    let routing = &mut hosts.iter_mut().find(|host| host.name == name).unwrap().routing;
    let (far, gateway, unused) = match name {
        "s2" => ("10.1.0.0/16", "10.2.0.1", "10.2.255.7"),
        _ => ("10.2.0.0/16", "10.1.0.1", "10.1.255.7"),
    };
    let far: Prefix = far.parse().unwrap();
    let mut main = routing.routes.iter_mut().filter(|it| it.destination == far && it.table == MAIN_TABLE);
    match what {
        Break::NoRoutes => routing.routes.clear(),
        Break::Discards(kind) => {
            main.next().unwrap().action =
                [RouteAction::Blackhole, RouteAction::Unreachable, RouteAction::Prohibit][usize::from(kind)]
                    .clone();
        }
        // All hosts are in the lower half.
        Break::LeavesOut => {
            let upper = far.to_string().replace(".0.0/16", ".128.0/17");
            main.for_each(|route| route.destination = upper.parse().unwrap());
        }
        Break::NoForwarding => {
            for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
                routing.sysctls.insert(key.to_owned(), "0".to_owned().into());
            }
        }
        Break::WrongHost => replace_hop(routing, gateway, "10.1.1.1"),
        Break::NobodyHasIt => replace_hop(routing, gateway, unused),
        Break::NoSuchSource => main.next().unwrap().source = Some(unused.parse().unwrap()),
        Break::Duplicate => {
            let mut addresses = routing.interfaces.iter_mut().flat_map(|it| &mut it.addresses);
            addresses.next().unwrap().value = "10.1.1.1/16".parse().unwrap();
        }
    }
    name.to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn one_thing_broken_is_found_at_its_host(
        gateways in 2_usize..5,
        path in prop::sample::select(vec![
            ReturnPath::None, ReturnPath::Alias, ReturnPath::ConnectionMark, ReturnPath::EqualSeed,
        ]),
        multipath in prop::sample::select(vec![Multipath::Resilient, Multipath::Group, Multipath::Classic]),
        rp_filter in prop::sample::select(vec![
            ReversePathFilter::Off, ReversePathFilter::Strict, ReversePathFilter::Loose,
        ]),
        what in prop::sample::select(BREAKS.to_vec()),
        is_client: bool,
        is_whole: bool,
        knows_fabric: bool,
    ) {
        let fabric = made(gateways, path, multipath, rp_filter);
        let mut hosts = planned(&fabric);
        hosts.iter_mut().for_each(|host| host.is_whole = is_whole);
        let known = knows_fabric.then_some(&fabric);
        let grave = |hosts: &[Subject]| {
            let mut report = lint(hosts, known, &MuteList::default());
            // Without the fabric this cannot be recognised as intended; marks of a
            // whole host are not read.
            report.findings.retain(|it| it.severity > Severity::Note && it.id != "return:routing:asymmetric");
            report.findings
        };
        let before = grave(&hosts);
        prop_assert!(before.is_empty(), "{before:#?}");
        let name = apply(&mut hosts, what, is_client);
        let found = grave(&hosts);
        if what == Break::NobodyHasIt && !knows_fabric {
            // It may be a gateway that was not given.
            let missing = report_of(&hosts).missing;
            prop_assert!(missing.iter().any(|it| it.contains("next hop of")), "{name}: {missing:#?}");
            prop_assert!(found.iter().all(|it| it.severity < Severity::Error), "{name}: {found:#?}");
            return Ok(());
        }
        let is_its = |finding: &&Finding| finding.host.as_ref() == Some(&name);
        prop_assert!(found.iter().any(|it| is_its(&it)), "{name} {what:?}: {found:#?}");
        let others: Vec<_> =
            found.iter().filter(|it| it.severity == Severity::Error && !is_its(it)).collect();
        prop_assert!(others.is_empty() || what == Break::Duplicate, "{name} {what:?}: {others:#?}");
    }
}

/// A gateway that lacks an address by which the fabric makes it one.
#[test]
fn the_fabric_knows_whose_address_is_missing() {
    let fabric = made(2, ReturnPath::Alias, Multipath::Group, ReversePathFilter::Off);
    let mut hosts = planned(&fabric);
    let gateway = hosts.iter_mut().find(|host| host.name == "g1").unwrap();
    let link = gateway.routing.interfaces.iter_mut().find(|it| it.name == "b0").unwrap();
    link.addresses.retain(|address| address.value.address.is_ipv6());
    let report = lint(&hosts, Some(&fabric), &MuteList::default());
    let found: Vec<_> = report.findings.iter().map(|it| (it.host.as_deref(), it.id.as_str())).collect();
    assert_eq!(found, [(Some("g1"), "address:routing:missing")], "{:#?}", report.findings);
}

/// Hosts of a class are walked once: many equal ones take no longer.
#[test]
fn many_hosts_are_walked_by_class() {
    let mut file = made(4, ReturnPath::Alias, Multipath::Resilient, ReversePathFilter::Off).file().clone();
    file.classes[1].hosts = vec!["s[1-8]".to_owned()];
    file.classes[2].hosts = vec!["c[1-56]".to_owned()];
    let fabric = Fabric::new(file).unwrap();
    let mut hosts = planned(&fabric);
    assert!(report_of(&hosts).findings.is_empty(), "{:#?}", report_of(&hosts).findings);
    let missing = report_of(&hosts).missing;
    assert!(!missing.iter().any(|it| it.contains("were walked")), "{missing:?}");
    // Each host that lacks it has one finding.
    for host in hosts.iter_mut().filter(|host| host.name.starts_with('c')) {
        host.routing
            .routes
            .retain(|route| route.destination.length > 16 || route.destination.address.is_ipv6());
    }
    let found = report_of(&hosts).findings;
    let hosts: BTreeSet<_> = found.iter().filter_map(|it| it.host.clone()).collect();
    assert_eq!((found.len(), hosts.len()), (56, 56), "{:#?}", &found[..2]);
}

//! Whose an object is, for every kind that a watch restores, against the kernel in a namespace.

use std::process::Command;

use clearstream_schema::{
    prefix::Prefix,
    routing::{Hop, Located, RoutingInterface, RuleSelector},
};
use clearstream_sys::namespace::{Holder, NamespaceSet};

use super::*;

const OWN: u8 = 70;

/// Namespaces in which every test is alone.
fn alone(test: impl FnOnce() + Send) {
    let holder = Holder::start().unwrap();
    let set = NamespaceSet::of_process(holder.pid()).unwrap();
    set.run(|| {
        for line in [
            "link add e0 type veth peer name e1",
            "link set e0 up",
            "link set e1 up",
            "addr add 10.9.0.1/24 dev e0",
            "addr add fd09::1/64 dev e0 nodad",
        ] {
            ip(line);
        }
        test();
    })
    .unwrap();
}

fn ip(line: &str) -> String {
    let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Everything, so that nothing changes unseen.
fn shown() -> Vec<String> {
    ["route show table all", "-6 route show table all", "nexthop", "rule", "-6 rule"]
        .iter()
        .flat_map(|line| ip(line).lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
        .filter(|line| !line.contains("proto kernel"))
        .collect()
}

fn gateway(id: u32, via: &str) -> Nexthop {
    let target = NexthopTarget::Gateway { via: via.parse().unwrap(), interface: "e0".to_owned() };
    Nexthop { id, target, protocol: OWN, place: None }
}

fn group(id: u32, members: &[u32]) -> Nexthop {
    let members = members.iter().map(|id| GroupMember { id: *id, weight: 1 }).collect();
    Nexthop { id, target: NexthopTarget::Group { members, resilient: None }, protocol: OWN, place: None }
}

fn route(destination: &str, table: u32, metric: u32, action: RouteAction) -> RouteEntry {
    RouteEntry {
        destination: destination.parse().unwrap(),
        table,
        metric,
        action,
        source: None,
        mtu: None,
        protocol: OWN,
        place: None,
    }
}

fn by(gateways: &[&str]) -> RouteAction {
    let hop = |via: &&str| Hop {
        via: via.parse().unwrap(),
        interface: Some("e0".to_owned()),
        weight: 1,
        place: None,
    };
    RouteAction::Gateways(gateways.iter().map(hop).collect())
}

fn rule(from: &str, ipv6: bool) -> RuleEntry {
    RuleEntry {
        ipv6,
        priority: Some(700),
        selector: RuleSelector { from: Some(from.parse().unwrap()), ..RuleSelector::default() },
        action: RuleAction::Table(77),
        protocol: OWN,
        place: None,
    }
}

/// Each kind of object in both families. IPv6 routes without metric have 1024.
fn plan() -> NextHops {
    NextHops {
        gateways: vec![
            gateway(71, "10.9.0.2"),
            gateway(72, "10.9.0.3"),
            gateway(81, "fd09::2"),
            gateway(82, "fd09::3"),
        ],
        groups: vec![group(90, &[71, 72]), group(91, &[81, 82])],
        routes: vec![
            route("10.8.0.0/24", MAIN_TABLE, 0, RouteAction::Nexthop(90)),
            route("10.8.0.0/24", MAIN_TABLE, 1, by(&["10.9.0.2", "10.9.0.3"])),
            route("fd08::/64", MAIN_TABLE, 0, RouteAction::Nexthop(91)),
            route("fd08::/64", MAIN_TABLE, 1025, by(&["fd09::2", "fd09::3"])),
            route("0.0.0.0/0", 77, 0, by(&["10.9.0.2"])),
            route("::/0", 77, 0, by(&["fd09::2"])),
        ],
        rules: vec![rule("10.9.0.1/32", false), rule("fd09::1/128", true)],
    }
}

fn installed() -> KernelRoutes {
    let mut kernel = KernelRoutes::open().unwrap();
    let changes = kernel.apply(&plan(), || true).unwrap();
    assert_eq!((changes.changed.len(), changes.restored.len()), (0, 14), "{changes:?}");
    assert!(changes.missing.is_empty(), "{changes:?}");
    assert_eq!(kernel.apply(&plan(), || panic!("nothing is missing")).unwrap(), Changes::default());
    kernel
}

#[test]
fn root_what_others_put_in_a_place_of_ours_stays_is_named_and_is_replaced_when_it_goes() {
    // How it gets there, what is said of it, the lines of `ip` that are theirs, how it goes.
    let cases: &[(&[&str], &str, &str, &[&str])] = &[
        (
            &["route replace 10.8.0.0/24 via 10.9.0.9"],
            "route 10.8.0.0/24",
            "10.8.0.0/24 via 10.9.0.9",
            &["route del 10.8.0.0/24 via 10.9.0.9"],
        ),
        (
            &["route replace blackhole 10.8.0.0/24 metric 1 proto bird"],
            "route 10.8.0.0/24 metric 1",
            "blackhole 10.8.0.0/24 proto bird metric 1",
            &["route del 10.8.0.0/24 metric 1"],
        ),
        (
            &["-6 route replace fd08::/64 via fd09::9 metric 1024 proto ra"],
            "route fd08::/64",
            "fd08::/64 via fd09::9 dev e0 proto ra metric 1024",
            &["-6 route del fd08::/64 metric 1024"],
        ),
        (
            &["-6 route replace fd08::/64 via fd09::9 metric 1025"],
            "route fd08::/64 metric 1025",
            "fd08::/64 via fd09::9 dev e0 metric 1025",
            &["-6 route del fd08::/64 metric 1025"],
        ),
        (
            &["route replace default via 10.9.0.9 table 77"],
            "route 0.0.0.0/0 in table 77",
            "default via 10.9.0.9 dev e0 table 77",
            &["route del default table 77"],
        ),
        (
            &["nexthop replace id 71 via 10.9.0.9 dev e0"],
            "nexthop 71",
            "id 71 via 10.9.0.9 dev e0 scope link",
            &["nexthop del id 71"],
        ),
        (
            &["nexthop replace id 81 via fd09::9 dev e0 proto zebra"],
            "nexthop 81",
            "id 81 via fd09::9 dev e0 scope link proto zebra",
            &["nexthop del id 81"],
        ),
        (
            &["nexthop del id 90", "nexthop add id 90 via 10.9.0.9 dev e0"],
            "group 90",
            "id 90 via 10.9.0.9 dev e0 scope link",
            &["nexthop del id 90"],
        ),
        (
            &["nexthop del id 91", "nexthop add id 99 via fd09::9 dev e0", "nexthop add id 91 group 99"],
            "group 91",
            "id 91 group 99",
            &["nexthop del id 91", "nexthop del id 99"],
        ),
        (
            &["rule del pref 700", "rule add pref 700 from 10.9.0.1 table 99"],
            "IPv4 rule 700 from 10.9.0.1",
            "700: from 10.9.0.1 lookup 99",
            &["rule del pref 700"],
        ),
        (
            &["-6 rule del pref 700", "-6 rule add pref 700 from fd09::1 table 99"],
            "IPv6 rule 700 from fd09::1",
            "700: from fd09::1 lookup 99",
            &["-6 rule del pref 700"],
        ),
    ];
    for (there, name, theirs, away) in cases {
        alone(|| {
            let mut kernel = installed();
            let whole = shown();
            there.iter().for_each(|line| drop(ip(line)));
            let is_theirs = |shown: &[String]| {
                shown.iter().any(|line| line.replace('\t', " ").trim().starts_with(theirs))
            };
            assert!(is_theirs(&shown()), "{name}: {:#?}", shown());
            // As often as the watch looks, also while it withdraws the other gateway.
            let mut without_two = plan();
            without_two.groups = vec![group(90, &[71]), group(91, &[81])];
            without_two.routes[1].action = by(&["10.9.0.2"]);
            without_two.routes[3].action = by(&["fd09::2"]);
            for wanted in [plan(), plan(), without_two, plan()] {
                let changes = kernel.apply(&wanted, || true).unwrap();
                assert!(is_theirs(&shown()), "{name}: {changes:?} {:#?}", shown());
                let held = |missing: &&Missing| missing.why.holder().is_some();
                let held: Vec<&Missing> = changes.missing.iter().filter(held).collect();
                let [held] = held[..] else { panic!("{name}: {changes:?}") };
                assert_eq!(held.name, *name, "{changes:?}");
                assert!(held.why.holder().unwrap().starts_with("proto "), "{held:?}");
            }
            // No packet of ours goes by what others chose.
            let members = |id: &str| ip(&format!("nexthop show id {id}"));
            match *name {
                "nexthop 71" => assert!(members("90").contains("group 72"), "{}", members("90")),
                "nexthop 81" => assert!(members("91").contains("group 82"), "{}", members("91")),
                "group 90" => assert!(!ip("route show 10.8.0.0/24").contains("nhid 90")),
                "group 91" => assert!(!ip("-6 route show fd08::/64").contains("nhid 91")),
                _ => {}
            }
            away.iter().for_each(|line| drop(ip(line)));
            let changes = kernel.apply(&plan(), || true).unwrap();
            assert!(changes.restored.contains(&(*name).to_owned()), "{name}: {changes:?}");
            assert!(changes.missing.is_empty(), "{name}: {changes:?}");
            assert_eq!(sorted(shown()), sorted(whole), "{name}");
            assert_eq!(kernel.apply(&plan(), || true).unwrap(), Changes::default(), "{name}");
        });
    }
}

/// The kernel would replace the first of two with one metric, which is not ours.
#[test]
fn root_a_route_of_others_before_ours_is_not_replaced_in_its_stead() {
    alone(|| {
        let mut kernel = installed();
        ip("route prepend 10.8.0.0/24 via 10.9.0.9 metric 1 proto static");
        let mut fewer = plan();
        fewer.routes[1].action = by(&["10.9.0.3"]);
        let changes = kernel.apply(&fewer, || true).unwrap();
        let held: Vec<&str> = changes.missing.iter().filter_map(|missing| missing.why.holder()).collect();
        assert_eq!(held, ["proto static (via 10.9.0.9 dev e0)"], "{changes:?}");
        assert!(ip("route show 10.8.0.0/24").contains("via 10.9.0.9"));
    });
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn root_what_is_ours_and_was_altered_or_taken_away_comes_back() {
    let altered = [
        "route replace 10.8.0.0/24 metric 1 via 10.9.0.2 proto 70",
        "route replace 10.8.0.0/24 nhid 71 proto 70",
        "-6 route replace fd08::/64 metric 1025 via fd09::2 proto 70",
        "nexthop replace id 71 via 10.9.0.9 dev e0 proto 70",
        "nexthop replace id 90 group 71",
        "nexthop replace id 91 group 82 proto zebra",
    ];
    let gone = [
        "route del 10.8.0.0/24 metric 1",
        "-6 route del fd08::/64 metric 1025",
        "route flush table 77",
        "nexthop del id 71",
        "nexthop del id 90",
        "nexthop flush",
        "rule del pref 700",
        "-6 rule del pref 700",
    ];
    for (is_altered, line) in
        altered.map(|line| (true, line)).into_iter().chain(gone.map(|line| (false, line)))
    {
        alone(|| {
            let mut kernel = installed();
            let whole = shown();
            ip(line);
            if !is_altered {
                let changes = kernel.apply(&plan(), || false).unwrap();
                assert!(changes.restored.is_empty() && !changes.missing.is_empty(), "{line}: {changes:?}");
            }
            let changes = kernel.apply(&plan(), || true).unwrap();
            assert!(!is_altered || !changes.changed.is_empty(), "{line}: {changes:?}");
            assert!(is_altered || !changes.restored.is_empty(), "{line}: {changes:?}");
            assert!(changes.missing.is_empty(), "{line}: {changes:?}");
            assert_eq!(sorted(shown()), sorted(whole), "{line}");
        });
    }
}

#[test]
fn root_what_others_put_there_just_as_the_plan_has_it_is_the_plans() {
    alone(|| {
        let mut kernel = installed();
        ip("route replace 10.8.0.0/24 metric 1 nexthop via 10.9.0.2 dev e0 nexthop via 10.9.0.3 dev e0");
        ip("nexthop replace id 71 via 10.9.0.2 dev e0");
        let before = shown();
        assert_eq!(kernel.apply(&plan(), || true).unwrap(), Changes::default());
        assert_eq!(shown(), before);
        // It follows the gateways from then on.
        let mut fewer = plan();
        fewer.routes[1].action = by(&["10.9.0.3"]);
        let changes = kernel.apply(&fewer, || true).unwrap();
        assert_eq!((changes.changed.len(), changes.missing.len()), (1, 0), "{changes:?}");
    });
    // What files installed before the watch began.
    alone(|| {
        ip("route add 10.8.0.0/24 via 10.9.0.2 proto static");
        let one = NextHops {
            routes: vec![route("10.8.0.0/24", MAIN_TABLE, 0, by(&["10.9.0.2", "10.9.0.3"]))],
            ..NextHops::default()
        };
        for (any_owner, held) in [(false, 1), (true, 0)] {
            let mut kernel = KernelRoutes::open().unwrap();
            let found = kernel.present(&one, &HostRouting::default(), any_owner).unwrap();
            assert_eq!(found.is_some(), any_owner);
            assert_eq!(kernel.apply(&one, || true).unwrap().missing.len(), held);
        }
    });
}

#[test]
fn root_an_address_is_named_when_it_is_lost_and_comes_back_if_the_plan_added_it() {
    for address in ["10.9.0.1/24", "fd09::1/64"] {
        alone(|| {
            let prefix: Prefix = address.parse().unwrap();
            let interface = RoutingInterface {
                name: "e0".to_owned(),
                addresses: vec![Located { value: prefix, place: None }],
                mtu: None,
                infiniband_mode: None,
                link_address: None,
            };
            let plan = HostRouting { interfaces: vec![interface], ..HostRouting::default() };
            let mut kernel = KernelRoutes::open().unwrap();
            let nothing = || panic!("nothing is lost");
            assert_eq!(kernel.apply_addresses(&plan, nothing).unwrap(), Changes::default());
            ip(&format!("addr del {address} dev e0"));
            let changes = kernel.apply_addresses(&plan, Vec::new).unwrap();
            let [missing] = &changes.missing[..] else { panic!("{changes:?}") };
            assert_eq!(missing.name, format!("address {} of e0", prefix.address));
            assert_eq!(
                (&missing.leads, &missing.why),
                (&Leads::FromAddress(prefix.address), &Absence::Others)
            );
            let added = || vec![AddedAddress { interface: "e0".to_owned(), prefix, protocol: OWN }];
            let changes = kernel.apply_addresses(&plan, added).unwrap();
            assert_eq!(changes.restored, std::slice::from_ref(&missing.name));
            assert!(ip("addr show e0").contains(address));
        });
    }
}

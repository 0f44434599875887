//! What is rendered reads back as the same plan, for every format.

use std::{collections::BTreeMap, net::IpAddr};

use clearstream_netconfig::{
    read,
    routes::{self, Content, FolderWriter, Format},
};
use clearstream_schema::{
    fabric::InfinibandMode,
    prefix::Prefix,
    routing::{
        ConnectionMark, GroupMember, Hop, HostRouting, Located, Nexthop, NexthopTarget, Resilient,
        RouteAction, RouteEntry, RoutingInterface, RuleAction, RuleEntry, RuleSelector,
    },
};
use proptest::prelude::*;

fn format(name: &str) -> Format {
    name.parse().unwrap()
}

/// The plan without places, in one order, and without what `format` cannot
/// express: owners of routes and rules.
fn plain(mut routing: HostRouting, format: Format) -> HostRouting {
    for route in &mut routing.routes {
        route.place = None;
        if let RouteAction::Gateways(hops) = &mut route.action {
            hops.iter_mut().for_each(|hop| hop.place = None);
        }
    }
    routing.rules.iter_mut().for_each(|rule| rule.place = None);
    routing.nexthops.iter_mut().for_each(|nexthop| nexthop.place = None);
    let (routes, rules) = match format.name() {
        "networkmanager" | "netplan" | "nmstate" => (false, false),
        "networkd" => (true, false),
        "ifcfg" | "ansible" | "iproute2" => (true, true),
        other => panic!("owners of {other}"),
    };
    if !routes {
        routing.routes.iter_mut().for_each(|route| route.protocol = 0);
    }
    if !rules {
        routing.rules.iter_mut().for_each(|rule| rule.protocol = 0);
        routing.nexthops.iter_mut().for_each(|nexthop| nexthop.protocol = 0);
    }
    routing.routes.sort_by_key(|route| format!("{route:?}"));
    routing.rules.sort_by_key(|rule| format!("{rule:?}"));
    routing.nexthops.sort_by_key(|nexthop| nexthop.id);
    routing.interfaces.sort_by(|one, other| one.name.cmp(&other.name));
    routing.interfaces.iter_mut().for_each(|known| known.addresses.sort_by_key(|address| address.value));
    routing.connection_marks.sort_by_key(|mark| mark.mark);
    routing
}

fn of_class(routing: &HostRouting) -> (String, HostRouting) {
    ("some-class".to_owned(), routing.clone())
}

fn there_and_back(routings: &[HostRouting], format: Format) -> Vec<HostRouting> {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    let mut writer = FolderWriter::create(&out, format).unwrap();
    writer.add(routings, &of_class).unwrap();
    let summary = writer.finish().unwrap();
    assert_eq!(summary.host_count, routings.len());
    let reading = read::folder(&out).unwrap();
    assert_eq!(reading.unread, [], "{format}");
    reading.hosts
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn any_interface_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["ib0", "ib1.8001", "eth0"]).prop_map(str::to_owned)
}

fn any_gateway(ipv6: bool) -> impl Strategy<Value = IpAddr> {
    (1_u8..=250).prop_map(move |last| {
        if ipv6 { address(&format!("fd00:a::{last:x}")) } else { address(&format!("10.10.0.{last}")) }
    })
}

fn any_destination(ipv6: bool) -> impl Strategy<Value = Prefix> {
    (0_u8..=255, 0_u8..=24).prop_map(move |(part, length)| {
        let text = if ipv6 { format!("fd{part:02x}::/{length}") } else { format!("10.{part}.0.0/{length}") };
        prefix(&text).network()
    })
}

fn any_action(ipv6: bool) -> impl Strategy<Value = RouteAction> {
    let hops = move |interface: String| {
        prop::collection::vec((any_gateway(ipv6), 1_u16..=256), 1..5).prop_map(move |hops| {
            let is_alone = hops.len() == 1;
            let hop = |(via, weight): &(IpAddr, u16)| Hop {
                via: *via,
                interface: Some(interface.clone()),
                // A single hop has no weight to speak of.
                weight: if is_alone { 1 } else { *weight },
                place: None,
            };
            RouteAction::Gateways(hops.iter().map(hop).collect())
        })
    };
    prop_oneof![
        4 => any_interface_name().prop_flat_map(hops),
        2 => any_interface_name().prop_map(|interface| RouteAction::Link { interface }),
        1 => prop::sample::select(vec![
            RouteAction::Blackhole,
            RouteAction::Unreachable,
            RouteAction::Prohibit,
            RouteAction::Throw,
            RouteAction::Nexthop(100),
            RouteAction::Nexthop(1),
        ]),
    ]
}

prop_compose! {
    fn any_route()(ipv6 in any::<bool>())(
        destination in any_destination(ipv6),
        table in prop::sample::select(vec![254_u32, 1, 7001, 70_000]),
        metric in prop::sample::select(vec![0_u32, 50, 1024]),
        action in any_action(ipv6),
        source in prop::option::of(any_gateway(ipv6)),
        mtu in prop::option::of(1280_u32..9000),
        protocol in prop::sample::select(vec![0_u8, 117]),
    ) -> RouteEntry {
        RouteEntry { destination, table, metric, action, source, mtu, protocol, place: None }
    }
}

prop_compose! {
    fn any_rule()(ipv6 in any::<bool>())(
        ipv6 in Just(ipv6),
        priority in prop::option::weighted(0.9, 1_u32..32000),
        from in prop::option::of(any_destination(ipv6)),
        to in prop::option::of(any_gateway(ipv6).prop_map(Prefix::host)),
        mark in prop::option::of((any::<u32>(), prop::sample::select(vec![u32::MAX, 0xff]))),
        input in prop::option::weighted(0.2, any_interface_name()),
        output in prop::option::weighted(0.2, any_interface_name()),
        other in prop::sample::select(vec!["", "", "", "ipproto 6", "suppress_prefixlength 0", "l3mdev", "dport 22-22"]),
        inverted in prop::bool::weighted(0.2),
        table in 1_u32..80_000,
        blackhole in prop::bool::weighted(0.1),
        protocol in prop::sample::select(vec![0_u8, 117]),
    ) -> RuleEntry {
        let selector = RuleSelector {
            from: from.filter(|from| from.length > 0),
            to,
            mark,
            input,
            output,
            other: other.split_whitespace().map(str::to_owned).collect(),
            inverted,
        };
        let action = if blackhole { RuleAction::Other("blackhole".to_owned()) } else { RuleAction::Table(table) };
        RuleEntry { ipv6, priority, selector, action, protocol, place: None }
    }
}

fn nexthops(resilient: bool, weight: u16) -> Vec<Nexthop> {
    let gateway = |id: u32| Nexthop {
        id,
        target: NexthopTarget::Gateway {
            via: address(&format!("10.10.0.{id}")),
            interface: "ib0".to_owned(),
        },
        protocol: 117,
        place: None,
    };
    let timers = Resilient { bucket_count: 120, idle_seconds: 60, unbalanced_seconds: 0 };
    let members = vec![GroupMember { id: 1, weight }, GroupMember { id: 2, weight: 1 }];
    let group = NexthopTarget::Group { members, resilient: resilient.then_some(timers) };
    vec![gateway(1), gateway(2), Nexthop { id: 100, target: group, protocol: 117, place: None }]
}

fn interface(
    name: &str,
    addresses: &[&str],
    mtu: Option<u32>,
    mode: Option<InfinibandMode>,
) -> RoutingInterface {
    RoutingInterface {
        name: name.to_owned(),
        addresses: addresses.iter().map(|text| Located::from(prefix(text))).collect(),
        mtu: mtu.map(Located::from),
        infiniband_mode: mode.map(Located::from),
        link_address: None,
    }
}

prop_compose! {
    fn any_host()(
        routes in prop::collection::vec(any_route(), 0..8),
        rules in prop::collection::vec(any_rule(), 0..6),
        weight in 1_u16..200,
        mtu in prop::option::of(1280_u32..65520),
        mode in prop::option::of(prop::sample::select(vec![InfinibandMode::Connected, InfinibandMode::Datagram])),
        only_ipv4 in any::<bool>(),
        marks in 0_u32..3,
    ) -> HostRouting {
        // Several routes of the same destination, table and metric are one
        // route with several hops to some formats; here each comes once.
        let mut seen = std::collections::BTreeSet::new();
        let routes = routes.into_iter().filter(|route| {
            seen.insert((route.destination, route.table, route.metric))
        });
        let mark = |number: u32| ConnectionMark {
            interface: "ib0".to_owned(),
            link_address: format!("02:00:00:00:00:{number:02x}"),
            gateway: format!("gw{number}"),
            mark: 7001 + number,
        };
        let six: &[&str] = if only_ipv4 { &[] } else { &["fd00:a::211/64", "fd00:a::212/128"] };
        let addresses: Vec<&str> = ["10.10.0.211/24", "10.10.0.212/32"].iter().chain(six).copied().collect();
        HostRouting {
            host: "storage-1".to_owned(),
            interfaces: vec![
                interface("ib0", &addresses, mtu, mode),
                interface("ib1.8001", &["10.100.0.1/16"], None, None),
                interface("eth0", &[], Some(9000), None),
            ],
            nexthops: nexthops(weight % 2 == 0, weight),
            routes: routes.collect(),
            rules,
            special_routes: Vec::new(),
            connection_marks: (0..marks).map(mark).collect(),
            source_translations: None,
            kernel: Default::default(),
            files: Default::default(),
            sysctls: BTreeMap::from([
                ("net.ipv4.ip_forward".to_owned(), Located::from("1".to_owned())),
                ("net.ipv4.conf.ib1/8001.rp_filter".to_owned(), Located::from("2".to_owned())),
                ("net.ipv4.tcp_rmem".to_owned(), Located::from("4096 87380 268435456".to_owned())),
            ]),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whatever is planned: every format reads back the same plan, and nothing
    /// that was written is left unread.
    #[test]
    fn what_is_rendered_reads_back(routing in any_host()) {
        for format in Format::all() {
            let back = there_and_back(std::slice::from_ref(&routing), format);
            prop_assert_eq!(back.len(), 1);
            prop_assert_eq!(
                plain(back[0].clone(), format), plain(routing.clone(), format), "{}", format
            );
        }
    }
}

#[test]
fn hosts_of_a_class_share_what_is_the_same() {
    let host = |name: &str, seed: &str| HostRouting {
        host: name.to_owned(),
        interfaces: vec![interface("ib0", &[&format!("10.100.0.{}/16", &name[1..])], None, None)],
        sysctls: BTreeMap::from([(
            "net.ipv4.fib_multipath_hash_seed".to_owned(),
            Located::from(seed.to_owned()),
        )]),
        routes: vec![RouteEntry {
            destination: prefix("10.10.0.0/24"),
            table: 254,
            metric: 0,
            action: RouteAction::Gateways(vec![Hop {
                via: address("10.100.0.91"),
                interface: Some("ib0".to_owned()),
                weight: 1,
                place: None,
            }]),
            source: None,
            mtu: None,
            protocol: 117,
            place: None,
        }],
        ..HostRouting::default()
    };
    let hosts =
        [host("c1", "7"), host("c2", "7"), HostRouting { sysctls: BTreeMap::new(), ..host("c3", "7") }];
    let back = there_and_back(&hosts, format("ansible"));
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("play");
    let mut writer = FolderWriter::create(&out, format("ansible")).unwrap();
    for host in &hosts {
        writer.add(std::slice::from_ref(host), &of_class).unwrap();
    }
    writer.finish().unwrap();
    // The address alone is the second host's own; the third has no sysctls.
    let vars = |name: &str| std::fs::read_to_string(out.join("host_vars").join(name)).unwrap();
    assert_eq!(vars("c2.yml").lines().count(), 3);
    assert!(vars("c3.yml").contains("clearstream_route_sysctls: {}"));
    for (back, host) in back.into_iter().zip(hosts) {
        assert_eq!(plain(back, format("ansible")), plain(host, format("ansible")));
    }
}

/// What a tool cannot express is named, and written for another.
#[test]
fn what_a_format_cannot_express_is_reported() {
    let routing = HostRouting {
        host: "storage-1".to_owned(),
        interfaces: vec![interface("ib0", &["10.10.0.211/24"], None, None)],
        nexthops: nexthops(true, 2),
        routes: vec![RouteEntry {
            destination: prefix("10.100.0.0/16"),
            table: 254,
            metric: 0,
            action: RouteAction::Nexthop(100),
            source: None,
            mtu: None,
            protocol: 117,
            place: None,
        }],
        ..HostRouting::default()
    };
    for (format, expected) in [
        ("networkmanager", "NetworkManager: nexthop objects"),
        ("networkd", "systemd-networkd: resilient nexthop groups"),
        ("netplan", "netplan: nexthop objects"),
        ("ifcfg", "network scripts (ifcfg): nexthop objects"),
        ("nmstate", "nmstate: nexthop objects"),
    ] {
        let rendered = routes::host(&routing, self::format(format)).unwrap();
        assert!(rendered.notices.iter().any(|notice| notice.starts_with(expected)), "{:?}", rendered.notices);
        let batch = rendered.files.iter().find(|file| file.path == "etc/clearstream/routes/routes.batch");
        let Content::Text { text, .. } = &batch.unwrap().content else { panic!("{format}") };
        assert!(text.contains("type resilient buckets 120"), "{format}: {text}");
    }
    let rendered = routes::host(&routing, format("iproute2")).unwrap();
    assert_eq!(rendered.notices, [""; 0]);
}

#[test]
fn what_cannot_stand_in_a_file_is_refused_and_nothing_is_left() {
    let good = HostRouting { host: "h1".to_owned(), ..HostRouting::default() };
    let named = |host: &str| HostRouting { host: host.to_owned(), ..HostRouting::default() };
    let with_interface =
        |name: &str| HostRouting { interfaces: vec![interface(name, &[], None, None)], ..good.clone() };
    let with_sysctl = |key: &str, value: &str| HostRouting {
        sysctls: BTreeMap::from([(key.to_owned(), Located::from(value.to_owned()))]),
        ..good.clone()
    };
    let parent = tempfile::tempdir().unwrap();
    for (bad, expected) in [
        (named("../etc"), "host name"),
        (named(""), "host name"),
        (named("a/b"), "host name"),
        (HostRouting { host: "h2".to_owned(), ..with_interface("ib*") }, "interface"),
        (with_interface("a b"), "interface"),
        (with_interface("interface-of-16b"), "interface"),
        (with_interface("ib0"), "h1 comes twice"),
        (with_interface("$(reboot)"), "interface"),
        (with_sysctl("net.ipv4.x", "1\nkernel.panic = 1"), "sysctl value"),
        (with_sysctl("net ipv4", "1"), "sysctl"),
    ] {
        let out = parent.path().join("out");
        let mut writer = FolderWriter::create(&out, format("iproute2")).unwrap();
        let message = writer.add(&[good.clone(), bad], &of_class).unwrap_err().to_string();
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        drop(writer);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "nothing is left behind");
    }
}

#[test]
fn a_folder_that_holds_something_is_left_alone() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::write(parent.path().join("mine"), "x").unwrap();
    let error = FolderWriter::create(parent.path(), format("netplan")).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
    assert_eq!(std::fs::read_to_string(parent.path().join("mine")).unwrap(), "x");
    // A file in the place of the folder, and a parent that is none.
    assert!(FolderWriter::create(&parent.path().join("mine"), format("netplan")).is_err());
    assert!(FolderWriter::create(&parent.path().join("mine/x"), format("netplan")).is_err());
    // An empty folder is as good as none.
    let empty = parent.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    FolderWriter::create(&empty, format("netplan")).unwrap().finish().unwrap();
}

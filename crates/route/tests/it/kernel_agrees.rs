//! Computed lookups, hashes, thresholds and buckets against the kernel, in network
//! namespaces of this machine.

use std::{collections::BTreeSet, fmt::Write as _, net::IpAddr, process::Command};

use clearstream_route::{
    fabric::{self, Fabric},
    planner::Planner,
};
use clearstream_routing::{
    lookup::{Lookup, Packet, Verdict},
    multipath::{Buckets, FlowKey, HashKey, choose, multipath_hash, thresholds},
};
use clearstream_schema::{
    fabric::{HashPolicy, ReturnPath},
    prefix::Prefix,
    routing::{
        Hop, HostRouting, NexthopTarget, RouteAction, RouteEntry, RoutingInterface, RuleAction, RuleEntry,
        RuleSelector,
    },
};

/// Runs a script in a network namespace of its own, which ends with it.
fn in_namespace(script: &str) -> String {
    let script = format!("set -e\nip link set lo up\n{script}");
    let output = Command::new("unshare").args(["-n", "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits, ten seconds at most, for what the kernel does by its workers after
/// `ip` has ended: an interface's carrier (net/core/link_watch.c), and the local
/// route of an IPv6 address, which comes with the end of duplicate address
/// detection also where there is none (addrconf_dad_work of net/ipv6/addrconf.c).
fn until_usable(interface: &str, addresses: impl Iterator<Item = IpAddr>) -> String {
    let until = |condition: String| {
        format!("n=0; until {condition}; do n=$((n+1)); [ $n -lt 500 ] || exit 9; sleep 0.02; done\n")
    };
    let carrier = until(format!("ip -o link show dev {interface} | grep -q 'state UP'"));
    let local = |address: IpAddr| until(format!("ip -6 route show table local {address} | grep -q ^local"));
    carrier + &addresses.filter(IpAddr::is_ipv6).map(local).collect::<String>()
}

/// A host's routing as commands of `ip`.
fn script(routing: &HostRouting) -> String {
    let mut text = String::new();
    for interface in &routing.interfaces {
        let name = &interface.name;
        let _ = writeln!(text, "ip link add {name} type veth peer name {name}p");
        let _ = writeln!(text, "ip link set {name}p up; ip link set {name} up");
        for address in &interface.addresses {
            let nodad = if address.value.address.is_ipv6() { " nodad" } else { "" };
            let _ = writeln!(text, "ip address add {} dev {name}{nodad}", address.value);
        }
    }
    for interface in &routing.interfaces {
        let addresses = interface.addresses.iter().map(|address| address.value.address);
        text.push_str(&until_usable(&interface.name, addresses));
    }
    for nexthop in &routing.nexthops {
        let arguments = match &nexthop.target {
            NexthopTarget::Gateway { via, interface } => format!("via {via} dev {interface}"),
            NexthopTarget::Group { members, resilient } => {
                let members = members.iter().map(|member| format!("{},{}", member.id, member.weight));
                let members = members.collect::<Vec<_>>().join("/");
                let resilient = resilient.map(|group| {
                    format!(
                        " type resilient buckets {} idle_timer {}",
                        group.bucket_count, group.idle_seconds
                    )
                });
                format!("group {members}{}", resilient.unwrap_or_default())
            }
            NexthopTarget::Blackhole => "blackhole".to_owned(),
        };
        let _ = writeln!(text, "ip nexthop add id {} {arguments}", nexthop.id);
    }
    for route in &routing.routes {
        let _ = writeln!(text, "{}", route_command(route));
    }
    for rule in &routing.rules {
        let _ = writeln!(text, "{}", rule_command(rule));
    }
    for (key, value) in routing.sysctls.iter().filter(|(key, _)| key.contains("fib_multipath")) {
        let _ = writeln!(text, "sysctl -qw {key}={}", value.value);
    }
    text
}

fn route_command(route: &RouteEntry) -> String {
    let family = if route.destination.address.is_ipv6() { "-6" } else { "-4" };
    let (kind, rest) = match &route.action {
        RouteAction::Link { interface } => ("", format!("dev {interface}")),
        RouteAction::Nexthop(id) => ("", format!("nhid {id}")),
        RouteAction::Gateways(hops) => {
            let hop = |hop: &Hop| {
                format!(
                    "nexthop via {} dev {} weight {}",
                    hop.via,
                    hop.interface.as_deref().unwrap(),
                    hop.weight
                )
            };
            ("", hops.iter().map(hop).collect::<Vec<_>>().join(" "))
        }
        RouteAction::Blackhole => ("blackhole", String::new()),
        RouteAction::Unreachable => ("unreachable", String::new()),
        RouteAction::Prohibit => ("prohibit", String::new()),
        RouteAction::Throw => ("throw", String::new()),
    };
    let mut command = format!("ip {family} route add {kind} {} table {}", route.destination, route.table);
    if route.metric > 0 {
        let _ = write!(command, " metric {}", route.metric);
    }
    if let Some(source) = route.source {
        let _ = write!(command, " src {source}");
    }
    format!("{command} {rest}")
}

fn rule_command(rule: &RuleEntry) -> String {
    let mut command = format!("ip {} rule add", if rule.ipv6 { "-6" } else { "-4" });
    if rule.selector.inverted {
        command.push_str(" not");
    }
    let from = rule.selector.from.map_or("all".to_owned(), |from| from.to_string());
    let _ = write!(command, " from {from}");
    if let Some(to) = rule.selector.to {
        let _ = write!(command, " to {to}");
    }
    if let Some((mark, mask)) = rule.selector.mark {
        let _ = write!(command, " fwmark {mark}/{mask:#x}");
    }
    if let Some(priority) = rule.priority {
        let _ = write!(command, " priority {priority}");
    }
    match &rule.action {
        RuleAction::Table(table) => command + &format!(" lookup {table}"),
        RuleAction::Other(action) => format!("{command} {action}"),
    }
}

/// Whether a route of this table may go by that gateway through a nexthop object.
/// Of IPv6 the kernel keeps the result of a lookup with the nexthop, one for each
/// processor (`rt6_get_pcpu_route`, net/ipv6/route.c): a route of another table
/// that has the same nexthop then determines the table in the reply.
fn shares_nexthop(routing: &HostRouting, table: u32, via: &str) -> bool {
    let target = |id| routing.nexthops.iter().find(|nexthop| nexthop.id == id).map(|nexthop| &nexthop.target);
    let goes = |id| matches!(target(id), Some(NexthopTarget::Gateway { via: gateway, .. }) if gateway.to_string() == via);
    routing.routes.iter().filter(|route| route.table == table).any(|route| match route.action {
        RouteAction::Nexthop(id) => match target(id) {
            Some(NexthopTarget::Group { members, .. }) => members.iter().any(|member| goes(member.id)),
            _ => goes(id),
        },
        _ => false,
    })
}

/// Compares computed lookups with the kernel's. Sources are addresses of the host:
/// the kernel refuses others for what a host sends itself.
fn compare(routing: &HostRouting, packets: &[Packet<'_>]) {
    let mut text = script(routing);
    for packet in packets {
        let from = packet.source.map(|source| format!(" from {source}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{{ ip route get {}{from} mark {} 2>&1 || true; }} | head -1",
            packet.destination, packet.mark
        );
    }
    let outputs = in_namespace(&text);
    let outputs: Vec<&str> = outputs.lines().collect();
    assert_eq!(outputs.len(), packets.len());
    let lookup = Lookup::new(routing);
    for (packet, output) in packets.iter().zip(outputs) {
        let found = lookup.find(packet);
        let value = |name: &str| {
            let mut fields = output.split_whitespace().skip_while(|field| *field != name);
            fields.nth(1).map(str::to_owned)
        };
        let agrees = match &found.verdict {
            Verdict::Local => output.starts_with("local "),
            Verdict::Link(interface) => value("dev").as_deref() == Some(interface) && value("via").is_none(),
            Verdict::Gateways(hops, _) => hops.iter().any(|hop| value("via") == Some(hop.via.to_string())),
            // Errors of net/ipv4/fib_rules.c and fib_props of net/ipv4/fib_semantics.c.
            Verdict::Refused("blackhole") => output.contains("Invalid argument"),
            Verdict::Refused("prohibit") => output.contains("Permission denied"),
            Verdict::Refused(_) => output.contains("No route to host") || output.contains("unreachable"),
            Verdict::NoRoute => output.contains("Network is unreachable"),
            Verdict::Unknown(_) => false,
        };
        let is_routed = matches!(found.verdict, Verdict::Link(_) | Verdict::Gateways(..));
        // `ip` shows the table of IPv4 lookups only, by name where it has one.
        let table = match value("table").as_deref() {
            Some("default") => Some(253),
            Some("local") => Some(255),
            Some(text) => Some(text.parse().unwrap()),
            None => packet.destination.is_ipv4().then_some(254),
        };
        let is_routed = is_routed && table.is_some();
        let is_named = table == Some(found.table)
            || packet.destination.is_ipv6()
                && table.zip(value("via")).is_some_and(|(table, via)| shares_nexthop(routing, table, &via));
        assert!(agrees && (!is_routed || is_named), "{packet:?}\n{found:?}\n{output}\n{}", script(routing));
    }
}

fn with_path(path: ReturnPath) -> Fabric {
    let mut file = fabric::load("gateways-6").unwrap().file().clone();
    file.routes[0].return_path = path;
    Fabric::new(file).unwrap()
}

/// Planned hosts: every address of theirs to every address of the others.
#[test]
fn root_lookups_of_planned_hosts_are_the_kernels() {
    for path in [ReturnPath::Alias, ReturnPath::ConnectionMark, ReturnPath::EqualSeed] {
        let fabric = with_path(path);
        let planner = Planner::new(&fabric);
        for (name, others) in [
            ("storage-1", ["10.100.0.3", "fd64:100::3", "10.10.0.202", "10.10.0.201", "192.0.2.1"]),
            ("compute-1", ["10.10.0.201", "10.10.0.214", "fd64:10::302", "fd64:10::202", "fd64:100::4"]),
        ] {
            let routing = planner.routing(fabric.find(name).unwrap());
            let own = routing.interfaces.iter().flat_map(|interface| &interface.addresses);
            let own: Vec<_> = own.map(|address| address.value.address).collect();
            let mut packets = Vec::new();
            for destination in others.map(|text| text.parse::<IpAddr>().unwrap()) {
                // Rules of IPv6 with a source choose an address where there is none.
                let chooses = routing.rules.iter().any(|rule| rule.ipv6 && rule.selector.from.is_some());
                let first = own.iter().copied().find(|source| source.is_ipv4() == destination.is_ipv4());
                let source = if chooses && destination.is_ipv6() { first } else { None };
                packets.push(Packet { source, destination, mark: 0, input: None });
                for source in own.iter().filter(|source| source.is_ipv4() == destination.is_ipv4()) {
                    packets.push(Packet::sent(*source, destination));
                }
                for mark in [7001, 7004, 7006, 7007] {
                    packets.push(Packet { source, destination, mark, input: None });
                }
            }
            compare(&routing, &packets);
        }
    }
}

/// Numbers in a fixed order (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % end
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

const DESTINATIONS: [&str; 7] = [
    "0.0.0.0/0",
    "172.16.0.0/12",
    "172.16.1.0/24",
    "172.16.1.7/32",
    "172.20.0.0/16",
    "10.0.0.128/25",
    "192.0.2.0/24",
];

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// Arbitrary rules and tables.
fn any_routing(draw: &mut Draw) -> HostRouting {
    let interface = |name: &str, addresses: &[&str]| RoutingInterface {
        name: name.to_owned(),
        addresses: addresses.iter().map(|text| prefix(text).into()).collect(),
        ..RoutingInterface::default()
    };
    let interfaces =
        vec![interface("e0", &["10.0.0.1/24", "10.0.0.5/32"]), interface("e1", &["10.9.0.1/16"])];
    let gateways = [("10.0.0.11", "e0"), ("10.0.0.12", "e0"), ("10.9.3.4", "e1")];
    let mut taken = BTreeSet::new();
    let mut routes = Vec::new();
    for _ in 0..10 {
        let destination = prefix(draw.one_of(&DESTINATIONS));
        let (table, metric) = (draw.one_of(&[10, 11, 12, 254]), draw.one_of(&[0, 5, 9]));
        if !taken.insert((destination, table, metric)) {
            continue;
        }
        let hop = |(via, interface): (&str, &str)| Hop {
            via: via.parse().unwrap(),
            interface: Some(interface.to_owned()),
            weight: 1,
            place: None,
        };
        let action = match draw.below(9) {
            0 => RouteAction::Blackhole,
            1 => RouteAction::Unreachable,
            2 => RouteAction::Prohibit,
            3 => RouteAction::Throw,
            4 => RouteAction::Link { interface: draw.one_of(&["e0", "e1"]).to_owned() },
            5 => RouteAction::Gateways(gateways.map(hop).to_vec()),
            _ => RouteAction::Gateways(vec![hop(draw.one_of(&gateways))]),
        };
        routes.push(RouteEntry {
            destination,
            table,
            metric,
            action,
            source: None,
            mtu: None,
            protocol: 0,
            place: None,
        });
    }
    let mut rules: Vec<RuleEntry> = Vec::new();
    for _ in 0..6 {
        let from = draw.one_of(&[
            None,
            Some("10.0.0.5/32"),
            Some("10.0.0.0/24"),
            Some("10.9.0.0/16"),
            Some("192.0.2.0/24"),
        ]);
        let to = draw.one_of(&[None, None, Some("172.16.0.0/12"), Some("172.16.1.0/24")]);
        let selector = RuleSelector {
            from: from.map(prefix),
            to: to.map(prefix),
            mark: draw.one_of(&[None, None, Some((1, u32::MAX)), Some((2, 6))]),
            inverted: draw.below(5) == 0,
            ..RuleSelector::default()
        };
        let action = match draw.below(10) {
            0 => RuleAction::Other("blackhole".to_owned()),
            1 => RuleAction::Other("unreachable".to_owned()),
            2 => RuleAction::Other("prohibit".to_owned()),
            _ => RuleAction::Table(draw.one_of(&[10, 11, 12, 254])),
        };
        let priority = draw.one_of(&[None, Some(100), Some(200), Some(300)]);
        rules.push(RuleEntry { ipv6: false, priority, selector, action, protocol: 0, place: None });
    }
    let mut distinct: Vec<RuleEntry> = Vec::new();
    for rule in rules {
        // The kernel takes a rule and its inversion for one.
        let plain = |rule: &RuleEntry| RuleSelector { inverted: false, ..rule.selector.clone() };
        let selects_something = plain(&rule) != RuleSelector::default();
        if selects_something && !distinct.iter().any(|other| plain(other) == plain(&rule)) {
            distinct.push(rule);
        }
    }
    HostRouting { interfaces, routes, rules: distinct, ..HostRouting::default() }
}

#[test]
fn root_lookups_of_any_rules_are_the_kernels() {
    let mut draw = Draw(1);
    for _ in 0..12 {
        let routing = any_routing(&mut draw);
        let mut packets = Vec::new();
        for destination in [
            "172.16.1.7",
            "172.16.1.8",
            "172.20.0.1",
            "172.30.0.1",
            "10.0.0.200",
            "10.0.0.5",
            "192.0.2.9",
            "198.51.100.1",
        ] {
            for source in [None, Some("10.0.0.1"), Some("10.0.0.5"), Some("10.9.0.1")] {
                for mark in [0, 1, 2] {
                    let source = source.map(|text| text.parse().unwrap());
                    packets.push(Packet {
                        source,
                        destination: destination.parse().unwrap(),
                        mark,
                        input: None,
                    });
                }
            }
        }
        compare(&routing, &packets);
    }
}

const SEED: u32 = 1_234_567;

/// What a namespace needs to choose among four gateways of both families.
fn choice_script(policy: &str, members: [u32; 4], kind: &str) -> String {
    let mut text = "ip link add e0 type veth peer name e0p; ip link set e0p up; ip link set e0 up\n\
        ip address add 10.1.0.1/16 dev e0; ip address add fd01::1/64 dev e0 nodad\n"
        .to_owned();
    text.push_str(&until_usable("e0", "fd01::1".parse::<IpAddr>().into_iter()));
    for key in ["net.ipv4.fib_multipath_hash_policy", "net.ipv6.fib_multipath_hash_policy"] {
        let _ = writeln!(text, "sysctl -qw {key}={policy}");
    }
    let _ = writeln!(text, "sysctl -qw net.ipv4.fib_multipath_hash_seed={SEED}");
    for number in 1..=4 {
        let _ = writeln!(text, "ip nexthop add id {number} via 10.1.0.10{number} dev e0");
        let _ = writeln!(text, "ip nexthop add id 1{number} via fd01::10{number} dev e0");
    }
    let [a, b, c, d] = members;
    let _ = writeln!(text, "ip nexthop add id 100 group 1,{a}/2,{b}/3,{c}/4,{d} {kind}");
    let _ = writeln!(text, "ip nexthop add id 101 group 11,{a}/12,{b}/13,{c}/14,{d} {kind}");
    text.push_str("ip route add 10.2.0.0/16 nhid 100; ip -6 route add fd02::/64 nhid 101\n");
    text
}

/// The kernel's choice for each flow is the one computed from its seed.
#[test]
fn root_the_kernel_chooses_as_computed() {
    let weights = [1_u16, 3, 1, 2];
    let members = weights.map(u32::from);
    for (policy, number) in [(HashPolicy::Layer4, "1"), (HashPolicy::Layer3, "0")] {
        for kind in ["", "type resilient buckets 64 idle_timer 60"] {
            let mut text = choice_script(number, members, kind);
            let mut flows = Vec::new();
            for at in 0_u16..60 {
                let last = 1 + at % 7;
                for (source, destination) in
                    [("10.1.0.1", format!("10.2.0.{last}")), ("fd01::1", format!("fd02::{last}"))]
                {
                    let flow = FlowKey {
                        source: source.parse().unwrap(),
                        destination: destination.parse().unwrap(),
                        protocol: 6,
                        source_port: 1024 + at * 997,
                        destination_port: 1191,
                    };
                    let _ = writeln!(
                        text,
                        "ip route get {destination} from {source} ipproto tcp sport {} dport 1191 | head -1",
                        flow.source_port
                    );
                    flows.push(flow);
                }
            }
            let outputs = in_namespace(&text);
            let bounds = thresholds(&weights);
            let buckets = Buckets::new(64, &weights);
            for (flow, output) in flows.iter().zip(outputs.lines()) {
                let hash = multipath_hash(flow, policy, HashKey::of_seed(SEED));
                let chosen = if kind.is_empty() {
                    choose(&bounds, hash)
                } else {
                    buckets.owners[hash as usize % 64].unwrap()
                };
                let via = if flow.source.is_ipv4() { "10.1.0.10" } else { "fd01::10" };
                let expected = format!("via {via}{} ", chosen + 1);
                assert!(output.contains(&expected), "{policy:?} {kind}: {flow:?}: {expected} in {output}");
            }
        }
    }
}

/// Buckets of a resilient group, new and after a member has gone and returned.
#[test]
fn root_buckets_are_the_kernels() {
    let show = "ip nexthop bucket show id 100 | sed 's/.*index \\([0-9]*\\) .*nhid \\([0-9]*\\).*/\\1 \\2/'; echo done";
    for (weights, gone) in [([1, 1, 1, 1], 2), ([3, 1, 2, 1], 0), ([1, 5, 1, 1], 3)] {
        let mut text = choice_script("1", weights, "type resilient buckets 61 idle_timer 60");
        let [a, b, c, d] = weights;
        let back = format!(
            "ip nexthop replace id 100 group 1,{a}/2,{b}/3,{c}/4,{d} type resilient buckets 61 idle_timer 60"
        );
        let gateway = gone + 1;
        let _ = writeln!(text, "{show}\nip nexthop del id {gateway}\n{show}");
        let _ = writeln!(text, "ip nexthop add id {gateway} via 10.1.0.10{gateway} dev e0\n{back}\n{show}");
        let output = in_namespace(&text);
        let mut there: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
        for line in output.lines() {
            match line.split_once(' ') {
                Some((index, id)) => {
                    there.last_mut().unwrap().push((index.parse().unwrap(), id.parse().unwrap()))
                }
                None => there.push(Vec::new()),
            }
        }
        let owners = |buckets: &Buckets| -> Vec<(usize, usize)> {
            buckets.owners.iter().enumerate().map(|(index, owner)| (index, owner.unwrap() + 1)).collect()
        };
        let weights = weights.map(|weight| weight as u16);
        let mut without = weights;
        without[gone] = 0;
        let mut buckets = Buckets::new(61, &weights);
        assert_eq!(owners(&buckets), there[0], "new {weights:?}");
        // A bucket that has seen no packet yet is idle.
        buckets.change(&without, true);
        assert_eq!(owners(&buckets), there[1], "without {gateway} of {weights:?}");
        buckets.change(&weights, true);
        assert_eq!(owners(&buckets), there[2], "with {gateway} back of {weights:?}");
    }
}

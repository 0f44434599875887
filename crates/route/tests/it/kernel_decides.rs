//! What takes packets from the plan of a fabric, one thing after the other on hosts that
//! route as planned: the kernel's lookups show it and name it.

use std::{process::Command, thread, time::Duration};

use clearstream_host::HostRoot;
use clearstream_netlink::RouteSocket;
use clearstream_route::{
    difference::{Current, Wanted},
    effective,
    fabric::{self, Fabric, HostId},
    live,
    planner::Planner,
    ways::{Population, questions},
};
use clearstream_schema::{
    plan::Check,
    routing::{HostRouting, NexthopTarget},
};
use clearstream_testkit::{fabric::WITH_ALIASES, namespace::Host};

/// A host of the fabric of six gateways, in namespaces of its own, with its plan in effect.
struct Planned {
    host: Host,
    fabric: Fabric,
    id: HostId,
    wanted: HostRouting,
}

impl Planned {
    fn new(name: &str) -> Self {
        Self::of(fabric::load("gateways-6").unwrap(), name)
    }

    fn of(fabric: Fabric, name: &str) -> Self {
        let id = fabric.find(name).unwrap();
        let wanted = Planner::new(&fabric).routing(id);
        let planned = Self { host: Host::new(), fabric, id, wanted };
        planned.shell("ip link set lo up");
        for interface in &planned.wanted.interfaces {
            let name = &interface.name;
            planned.shell(&format!("ip link add {name} type veth peer name peer-{name}"));
            planned.shell(&format!("ip link set peer-{name} up; ip link set {name} up"));
            for address in &interface.addresses {
                let nodad = if address.value.address.is_ipv6() { "nodad" } else { "" };
                planned.shell(&format!("ip address add {} dev {name} {nodad}", address.value));
            }
        }
        for (key, value) in &planned.wanted.sysctls {
            let path = format!("/proc/sys/{}", key.replace('.', "/"));
            planned.shell(&format!("[ ! -e {path} ] || echo '{}' > {path}", value.value));
        }
        planned.host.run(|| planned.apply());
        planned.settle();
        planned
    }

    /// Gateways first, then the groups of them.
    fn apply(&self) {
        let mut socket = RouteSocket::open().unwrap();
        let is_group = |nexthop: &clearstream_schema::routing::Nexthop| {
            matches!(nexthop.target, NexthopTarget::Group { .. })
        };
        let mut nexthops = self.wanted.nexthops.clone();
        nexthops.sort_by_key(is_group);
        nexthops.iter().for_each(|nexthop| socket.set_nexthop(nexthop).unwrap());
        self.wanted.routes.iter().for_each(|route| socket.set_route(route, false).unwrap());
        self.wanted.rules.iter().for_each(|rule| socket.add_rule(rule).unwrap());
    }

    fn shell(&self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script]);
        self.host.enter(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Until everything is as planned: the kernel finishes addresses and carriers by itself.
    fn settle(&self) {
        for _ in 0..250 {
            if self.wrong().is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("{:#?}", self.wrong());
    }

    fn checks(&self) -> Vec<Check> {
        self.host.run(|| {
            let live = live::live(&HostRoot::live()).unwrap();
            let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned();
            let population = Population::new(&self.fabric);
            let asked = questions(&self.fabric, &population, self.id, &self.wanted, &live, true);
            let wanted = Wanted { fabric: "gateways-6", routing: &self.wanted, reasons: &[], protocol: 117 };
            let current = Current { routing: live, kernel, ..Current::default() };
            effective::lookups(&asked, &current, &wanted, &mut RouteSocket::open().unwrap())
        })
    }

    fn wrong(&self) -> Vec<Check> {
        self.checks().into_iter().filter(|check| !check.holds).collect()
    }

    /// Each row: what somebody does, how it is undone, and what the notes of the packets
    /// that are led away contain.
    fn rows(&self, rows: &[(&str, &str, &[&str])]) {
        for (change, undo, texts) in rows {
            self.shell(change);
            let wrong = self.wrong();
            assert!(!wrong.is_empty(), "not seen: {change}\n{:#?}", self.checks());
            for text in *texts {
                let named = |check: &Check| check.note.as_ref().is_some_and(|note| note.contains(text));
                assert!(wrong.iter().any(named), "{change}: nothing says \"{text}\":\n{wrong:#?}");
            }
            self.shell(undo);
            self.settle();
        }
    }
}

#[test]
fn root_what_takes_requests_from_the_plan_is_named() {
    let client = Planned::new("compute-1");
    let checks = client.checks();
    assert!(checks.len() >= 4, "both families, with and without a source: {checks:#?}");
    client.rows(&[
        (
            "ip route add 10.10.0.128/25 via 10.100.0.91",
            "ip route del 10.10.0.128/25",
            &["10.10.0.128/25 via 10.100.0.91 dev compute0", "more exact than the plan's 10.10.0.0/24", "proto boot", "`ip route del 10.10.0.128/25"],
        ),
        (
            "ip -6 route add fd64:10::/64 via fd64:100::91 metric 100 proto ra",
            "ip -6 route del fd64:10::/64 metric 100",
            &["its metric 100 comes before the plan's 1024", "proto ra", "router advertisements", "`ip -6 route del fd64:10::/64 metric 100"],
        ),
        ("ip route add blackhole 10.10.0.201", "ip route del blackhole 10.10.0.201", &["blackhole 10.10.0.201", "more exact"]),
        ("ip route add unreachable 10.10.0.201", "ip route del unreachable 10.10.0.201", &["unreachable 10.10.0.201"]),
        ("ip route add prohibit 10.10.0.201", "ip route del prohibit 10.10.0.201", &["prohibit 10.10.0.201"]),
        ("ip -6 route add unreachable fd64:10::200/120", "ip -6 route del unreachable fd64:10::200/120", &["unreachable fd64:10::200/120"]),
        (
            "ip route add default via 10.100.0.92 table 100 proto static; ip rule add pref 100 to 10.10.0.0/24 lookup 100",
            "ip rule del pref 100; ip route flush table 100",
            &["the rule \"100: from all to 10.10.0.0/24 lookup 100\" leads there first", "default table 100 via 10.100.0.92", "`ip rule del pref 100 from all to 10.10.0.0/24"],
        ),
        ("ip rule add pref 100 to 10.10.0.202 prohibit", "ip rule del pref 100", &["the rule 100: from all to 10.10.0.202 prohibit"]),
        (
            "ip -6 route add fd64:10::/64 from fd64:100::1/128 via fd64:100::92",
            "ip -6 route del fd64:10::/64 from fd64:100::1/128",
            &["from fd64:100::1/128", "via fd64:100::92", "for some sources"],
        ),
        ("ip address add 10.10.0.201/32 dev lo", "ip address del 10.10.0.201/32 dev lo", &["10.10.0.201 is an address of this host"]),
        ("ip route add local 10.10.0.201 dev lo", "ip route del local 10.10.0.201", &["local 10.10.0.201", "comes before every rule"]),
        (
            "ip route add 10.10.0.201 via 10.100.0.93 table local",
            "ip route del 10.10.0.201 table local",
            &["10.10.0.201 table local via 10.100.0.93", "comes before every rule"],
        ),
        (
            "ip route add default via 10.100.0.92 table 100; ip rule add pref 90 uidrange 1000-2000 lookup 100",
            "ip rule del pref 90; ip route flush table 100",
            &["uidrange 1000-2000"],
        ),
        (
            "ip route add default via 10.100.0.92 table 100; ip rule add pref 90 ipproto tcp dport 988 lookup 100",
            "ip rule del pref 90; ip route flush table 100",
            &["dport 988"],
        ),
        (
            "ip route add default via 10.100.0.92 table 100; ip rule add pref 80 lookup main suppress_prefixlength 24; ip rule add pref 90 lookup 100",
            "ip rule del pref 80; ip rule del pref 90; ip route flush table 100",
            &["the rule \"90: from all lookup 100\" leads there first"],
        ),
        ("ip route add 10.10.0.202 via 10.100.0.94 proto dhcp metric 50", "ip route del 10.10.0.202", &["10.10.0.202 metric 50 via 10.100.0.94", "DHCP"]),
        (
            "ip route add 10.10.0.192/26 proto bird nexthop via 10.100.0.91 nexthop via 10.100.0.92",
            "ip route del 10.10.0.192/26",
            &["10.10.0.192/26 over 2 gateways", "BIRD", "`ip route del 10.10.0.192/26`"],
        ),
        ("sysctl -qw net.ipv4.fib_multipath_hash_policy=0", "sysctl -qw net.ipv4.fib_multipath_hash_policy=1", &["net.ipv4.fib_multipath_hash_policy is 0"]),
        ("ip address add 10.10.0.77/25 dev compute0", "ip address del 10.10.0.77/25 dev compute0", &["10.10.0.0/25, the network of an address"]),
        ("ip rule del pref 32766", "ip rule add pref 32766 lookup main", &["`ip rule add pref 32766 lookup main`"]),
        ("ip route add 10.10.0.64/26 via 10.100.0.99", "ip route del 10.10.0.64/26", &["10.10.0.64/26 via 10.100.0.99"]),
        ("ip route add throw 10.10.0.201", "ip route del throw 10.10.0.201", &["throw 10.10.0.201 (proto boot): it ends the lookup", "`ip route del throw 10.10.0.201"]),
        ("ip rule add pref 80 goto 32767", "ip rule del pref 80", &["the rule 80: from all goto 32767", "leads past the table of the plan's route"]),
        ("ip rule add pref 80 to 10.10.0.202 goto 32767", "ip rule del pref 80", &["to 10.10.0.202 goto 32767"]),
        ("ip route add 10.10.0.128/25 via 10.100.0.91 proto kernel", "ip route del 10.10.0.128/25", &["10.10.0.128/25 via 10.100.0.91 dev compute0 (proto kernel): it is more exact"]),
        (
            "ip -6 route append fd64:10::/64 via fd64:100::92 metric 1024 pref high proto ra",
            "ip -6 route del fd64:10::/64 via fd64:100::92 metric 1024 proto ra",
            &["fd64:10::/64 via fd64:100::92 dev compute0 (proto ra)"],
        ),
        (
            "ip rule add pref 90 iif lo ipproto tcp dport 988 lookup 100; ip route add 10.10.0.201 via 10.100.0.92 table 100",
            "ip rule del pref 90; ip route flush table 100",
            &["iif lo dport 988-988 ipproto 6 lookup 100"],
        ),
        (
            "ip rule add pref 90 not dport 22 ipproto tcp lookup 100; ip route add default via 10.100.0.92 table 100",
            "ip rule del pref 90; ip route flush table 100",
            &["90: not from all dport 22-22 ipproto 6 lookup 100"],
        ),
        (
            "ip rule add pref 90 not dport 2049 lookup 100; ip route add default via 10.100.0.92 table 100",
            "ip rule del pref 90; ip route flush table 100",
            &["90: not from all dport 2049-2049 lookup 100"],
        ),
        (
            "ip rule add pref 90 not from 10.100.0.77 lookup 100; ip route add default via 10.100.0.92 table 100",
            "ip rule del pref 90; ip route flush table 100",
            &["90: not from 10.100.0.77 lookup 100"],
        ),
        (
            "ip nexthop replace id 7003 via 10.100.0.91 dev compute0",
            "ip nexthop replace id 7003 via 10.100.0.93 dev compute0 proto 117",
            &["nexthop 7003 is \"via 10.100.0.91 dev compute0\"", "`ip nexthop replace id 7003 via 10.100.0.93"],
        ),
        (
            "ip rule add pref 10 lookup local; ip rule del pref 0; ip rule add pref 5 to 10.100.0.1 blackhole",
            "ip rule add pref 0 lookup local; ip rule del pref 10; ip rule del pref 5",
            &["the rule 5: from all to 10.100.0.1 blackhole"],
        ),
        (
            "sysctl -qw net.ipv4.conf.compute0.rp_filter=1; ip rule add pref 90 to 10.10.0.201 iif compute0 lookup 100; ip route add 10.10.0.201 dev lo table 100; ip route add 10.10.0.201 dev lo",
            "sysctl -qw net.ipv4.conf.compute0.rp_filter=0; ip rule del pref 90; ip route flush table 100; ip route del 10.10.0.201",
            &["reverse path filter of compute0"],
        ),
    ]);
    // What looks like it and changes nothing.
    for (change, undo) in [
        (
            "ip rule add pref 80 lookup main suppress_prefixlength 0; ip rule add pref 90 lookup 100; ip route add default via 10.100.0.92 table 100",
            "ip rule del pref 80; ip rule del pref 90; ip route flush table 100",
        ),
        ("ip route add default via 10.100.0.254", "ip route del default"),
        ("ip route add 10.0.0.0/8 via 10.100.0.254 metric 1", "ip route del 10.0.0.0/8 metric 1"),
        (
            "ip rule add pref 90 from 192.0.2.7 lookup 100; ip route add blackhole default table 100",
            "ip rule del pref 90; ip route flush table 100",
        ),
        (
            "ip rule add pref 90 tos 0x10 lookup 100; ip route add blackhole default table 100",
            "ip rule del pref 90; ip route flush table 100",
        ),
    ] {
        client.shell(change);
        assert_eq!(client.wrong(), Vec::new(), "{change}");
        client.shell(undo);
    }
    // What is said, and is no failure: sockets that are bound, and addresses that come before the plan's.
    for (change, undo, text) in [
        (
            "ip rule add pref 90 oif compute0 lookup 100; ip route add default via 10.100.0.92 table 100",
            "ip rule del pref 90; ip route flush table 100",
            "only what binds its sockets to an interface",
        ),
        (
            "ip address change fd64:100::1/64 dev compute0 preferred_lft 0; ip address add fd64:100::7777/64 dev compute0 nodad",
            "ip address del fd64:100::7777/64 dev compute0; ip address change fd64:100::1/64 dev compute0 preferred_lft forever",
            "sockets without an address send from fd64:100::7777",
        ),
    ] {
        client.shell(change);
        assert_eq!(client.wrong(), Vec::new(), "{change}");
        let said = |check: &Check| check.note.as_ref().is_some_and(|note| note.contains(text));
        assert!(client.checks().iter().any(said), "{change}: {:#?}", client.checks());
        client.shell(undo);
    }
    // A mark that nothing sets is said, and no failure; one that the firewall sets is one.
    client.shell("ip route add blackhole default table 100; ip rule add pref 90 fwmark 0x5 lookup 100");
    let said = |check: &Check| check.note.as_ref().is_some_and(|note| note.contains("fwmark 0x5"));
    assert_eq!(client.wrong(), Vec::new());
    assert!(client.checks().iter().any(said), "{:#?}", client.checks());
    client.shell("nft 'table ip t { chain c { type route hook output priority mangle; tcp dport 988 meta mark set 5; }; }'");
    assert!(client.wrong().iter().any(said), "{:#?}", client.checks());
}

#[test]
fn root_what_takes_replies_from_the_plan_is_named() {
    let server = Planned::new("storage-1");
    server.rows(&[
        (
            "ip route add 10.100.0.1 via 10.10.0.11",
            "ip route del 10.100.0.1",
            &["10.100.0.1 via 10.10.0.11", "`ip route del 10.100.0.1"],
        ),
        (
            "ip -6 route add fd64:100::3 via fd64:10::12",
            "ip -6 route del fd64:100::3",
            &["fd64:100::3 via fd64:10::12"],
        ),
        (
            "ip rule add pref 70 from 10.10.0.201 lookup 100; ip route add default via 10.10.0.13 table 100",
            "ip rule del pref 70; ip route flush table 100",
            &["from 10.10.0.201 lookup 100"],
        ),
    ]);
}

#[test]
fn root_what_a_gateway_does_not_carry_as_planned_is_named() {
    let gateway = Planned::new("gw4");
    gateway.rows(&[
        ("ip route add blackhole 10.10.0.201", "ip route del blackhole 10.10.0.201", &["blackhole 10.10.0.201", "`ip route del blackhole 10.10.0.201`"]),
        ("ip -6 route add blackhole fd64:100::2", "ip -6 route del blackhole fd64:100::2", &["blackhole fd64:100::2"]),
        (
            "ip rule add pref 60 iif compute0 lookup 100; ip route add default via 10.10.0.77 table 100",
            "ip rule del pref 60; ip route flush table 100",
            &["from all iif compute0 lookup 100"],
        ),
        (
            "ip rule add pref 60 from 10.100.0.2 lookup 100; ip route add 10.10.0.202 via 10.10.0.77 table 100",
            "ip rule del pref 60; ip route flush table 100",
            &["from 10.100.0.2 lookup 100"],
        ),
        ("sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.ip_forward=1; sysctl -qw net.ipv6.conf.all.forwarding=1", &["forwarding is off"]),
        ("sysctl -qw net.ipv4.conf.storage0.forwarding=0", "sysctl -qw net.ipv4.conf.storage0.forwarding=1", &["net.ipv4.conf.storage0.forwarding is 0"]),
        ("ip route del 10.10.0.0/24", "ip route add 10.10.0.0/24 dev storage0 proto kernel scope link src 10.10.0.14", &["the route to 10.10.0.0/24, the network of an address of storage0, is gone"]),
        ("ip rule add pref 60 ipproto tcp dport 988 blackhole", "ip rule del pref 60", &["the rule 60: from all dport 988-988 ipproto 6 blackhole"]),
        (
            "ip rule add pref 60 fwmark 5 blackhole; nft 'table ip t { chain c { type filter hook prerouting priority mangle; meta mark set 5; }; }'",
            "ip rule del pref 60; nft delete table ip t",
            &["the rule 60: from all fwmark 0x5 blackhole"],
        ),
        ("ip -6 rule add pref 60 from fd64:10::/64 iif storage0 unreachable", "ip -6 rule del pref 60", &["60: from fd64:10::/64 iif storage0 unreachable"]),
        (
            "sysctl -qw net.ipv4.conf.compute0.rp_filter=1; ip route add 10.100.0.1 dev storage0",
            "sysctl -qw net.ipv4.conf.compute0.rp_filter=0; ip route del 10.100.0.1",
            &["reverse path filter of compute0", "10.100.0.1 dev storage0"],
        ),
    ]);
}

/// Each reply by the gateway of its alias: of IPv6, the kernel names another route that has the
/// same nexthop object, which is no deviation.
#[test]
fn root_replies_by_aliases_are_as_planned_and_what_takes_them_is_named() {
    let fabric = fabric::parse(std::path::Path::new("small.toml"), WITH_ALIASES).unwrap();
    let server = Planned::of(fabric, "here");
    let by_alias = |check: &Check| check.subject.contains("from fd00::212");
    assert!(server.checks().iter().any(by_alias), "{:#?}", server.checks());
    server.rows(&[
        (
            "ip -6 rule add pref 90 from fd00::212 unreachable",
            "ip -6 rule del pref 90",
            &["the rule 90: from fd00::212 unreachable"],
        ),
        (
            "ip -6 route replace fd09::/64 nhid 7003 table 7002",
            "ip -6 route replace fd09::/64 nhid 7004 table 7002 proto 117",
            &["fd09::/64 table 7002 nhid 7003"],
        ),
        (
            "ip rule del pref 7001",
            "ip rule add pref 7001 from 10.0.0.211 lookup 7001 proto 117",
            &["10.9.0.0/24"],
        ),
    ]);
}

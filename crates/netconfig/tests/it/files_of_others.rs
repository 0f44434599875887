//! Files that other people have written, and what `ip` makes of the same arguments.

use crate::tools::private;
use std::path::{Path, PathBuf};

use crate::tools::compare::{difference, plain};
use clearstream_netconfig::read::{self, Source, Unread};
use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{HostRouting, RouteAction, RouteEntry, RuleAction, RuleEntry},
};
use proptest::prelude::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/configs/routing").join(name)
}

fn read_fixture(name: &str) -> (HostRouting, Vec<Unread>) {
    let mut reading = read::files(&[fixture(name)]).unwrap();
    (reading.hosts.remove(0), reading.unread)
}

fn read_text(path: &str, text: &str) -> (HostRouting, Vec<Unread>) {
    read::texts(&[Source { path: path.to_owned(), text: text.to_owned() }])
}

/// Short form of a route: `10.0.0.0/8 7001 5 10.0.0.1@ib1*2,...`.
fn route_text(route: &RouteEntry) -> String {
    let action = match &route.action {
        RouteAction::Gateways(hops) => hops
            .iter()
            .map(|hop| format!("{}@{}*{}", hop.via, hop.interface.as_deref().unwrap_or("?"), hop.weight))
            .collect::<Vec<_>>()
            .join(","),
        RouteAction::Link { interface } => format!("on {interface}"),
        other => format!("{other:?}"),
    };
    format!("{} {} {} {action}", route.destination, route.table, route.metric)
}

fn rule_text(rule: &RuleEntry) -> String {
    let selector = &rule.selector;
    let mut text = format!("{}:", rule.priority.map_or("?".to_owned(), |priority| priority.to_string()));
    for (name, value) in [
        ("from", selector.from.map(|from| from.to_string())),
        ("to", selector.to.map(|to| to.to_string())),
        ("mark", selector.mark.map(|(mark, mask)| format!("{mark:#x}/{mask:#x}"))),
    ] {
        text.extend(value.map(|value| format!(" {name} {value}")));
    }
    match &rule.action {
        RuleAction::Table(table) => format!("{text} -> {table}"),
        RuleAction::Other(other) => format!("{text} -> {other}"),
    }
}

fn routes_and_rules(routing: &HostRouting) -> (Vec<String>, Vec<String>) {
    (routing.routes.iter().map(route_text).collect(), routing.rules.iter().map(rule_text).collect())
}

fn lines(routing: &HostRouting) -> Vec<u32> {
    routing.routes.iter().filter_map(|route| route.place.as_ref()?.line).collect()
}

#[test]
fn netplans_example_of_source_routing() {
    let (routing, unread) = read_fixture("netplan-source-routing.yaml");
    assert_eq!(unread, []);
    let (routes, rules) = routes_and_rules(&routing);
    assert_eq!(
        routes,
        [
            "192.168.3.0/24 101 0 192.168.3.1@ens3*1",
            "0.0.0.0/0 254 0 192.168.5.1@ens5*1",
            "192.168.5.0/24 102 0 192.168.5.1@ens5*1",
        ]
    );
    assert_eq!(rules, ["?: from 192.168.3.0/24 -> 101", "?: from 192.168.5.0/24 -> 102"]);
    assert_eq!(lines(&routing), [10, 21, 23]);
    assert_eq!(routing.rules[1].place.as_ref().unwrap().line, Some(27));
    // With the renderer NetworkManager netplan writes no rules without priority, which must be reported.
    let text = std::fs::read_to_string(fixture("netplan-source-routing.yaml")).unwrap();
    let (routing, unread) =
        read_text("x.yaml", &text.replace("renderer: networkd", "renderer: NetworkManager"));
    assert_eq!((unread.len(), routing.rules.len(), routing.files.refused.len()), (0, 0, 2));
    assert!(routing.files.refused[0].reason.contains("refuses a rule without priority"));
}

#[test]
fn nmstate_with_rules_and_absent_routes() {
    let (routing, unread) = read_fixture("nmstate-rules.yml");
    assert_eq!(unread, []);
    let (routes, rules) = routes_and_rules(&routing);
    assert_eq!(
        routes,
        ["198.51.100.0/24 254 150 192.0.2.1@eth1*1", "203.0.113.0/24 500 100 192.0.2.2@eth1*1"]
    );
    assert_eq!(rules, ["1000: from 192.0.3.0/24 to 198.51.100.0/24 -> 500"]);
    assert_eq!(routing.interfaces[0].addresses[0].value.to_string(), "192.0.2.251/24");
    assert_eq!(routing.interfaces[0].mtu.as_ref().unwrap().value, 9000);
}

#[test]
fn a_play_with_the_network_role_and_tasks() {
    let (routing, unread) = read_fixture("role-network-connections.yml");
    assert_eq!(unread, []);
    let (routes, rules) = routes_and_rules(&routing);
    assert_eq!(
        routes,
        [
            "198.51.100.128/26 254 2 198.51.100.1@eth0*1",
            "198.51.100.64/26 30200 100 198.51.100.6@eth0*1",
            "10.100.0.0/16 254 0 10.10.0.11@ib1*1,10.10.0.13@ib1*1",
        ]
    );
    assert_eq!(rules, ["30200: from 198.51.100.58/26 -> 30200", "30201: mark 0x1/0x1 -> 30200"]);
    assert_eq!(routing.sysctls["net.ipv4.ip_forward"].value, "1");
    assert_eq!(lines(&routing)[2], 35);
}

#[test]
fn a_network_file_with_all_its_sections() {
    let (routing, unread) = read_fixture("wan.network");
    let (routes, rules) = routes_and_rules(&routing);
    assert_eq!(
        routes,
        ["0.0.0.0/0 254 0 10.10.0.1@enp1s0*1", "10.100.0.0/16 254 0 10.10.0.11@enp1s0*2,10.10.0.12@enp1s0*1"]
    );
    // Family=both is for rules without addresses; this one has an address.
    assert_eq!(rules, ["101: from 10.10.0.211/32 mark 0x7/0xff -> 7001"]);
    assert_eq!(routing.interfaces[0].mtu.as_ref().unwrap().value, 9216, "K is 1024 (systemd.syntax)");
    assert_eq!(routing.sysctls["net.ipv4.ip_forward"].value, "1");
    let reported: Vec<_> = unread.iter().map(|unread| (unread.place.line, unread.text.as_str())).collect();
    assert_eq!(reported, [(Some(20), "InitialCongestionWindow=20")]);
    // A drop-in adds to its file; without that nobody knows its interface.
    let rule = "[RoutingPolicyRule]\nFrom=10.10.0.9\nTable=9\n[Route]\nGateway=10.10.0.2\nTable=9\n";
    let drop_in = Source { path: "n/wan.network.d/rules.conf".to_owned(), text: rule.to_owned() };
    let text = std::fs::read_to_string(fixture("wan.network")).unwrap();
    let main = Source { path: "n/wan.network".to_owned(), text };
    let (routing, _) = read::texts(&[drop_in.clone(), main]);
    assert_eq!(routes_and_rules(&routing).0[2], "0.0.0.0/0 9 0 10.10.0.2@enp1s0*1");
    let (routing, unread) = read::texts(&[drop_in]);
    assert!(routing.routes.is_empty() && unread[0].reason.contains("wan.network"), "{unread:?}");
    // A pattern stands for the interface that it will be.
    let (routing, unread) = read_text("all.network", "[Match]\nName=en*\n[Network]\nAddress=10.0.0.1/8\n");
    assert!(unread.is_empty() && routing.files.nameless.contains("en*"), "{unread:?}");
    // Files for all but one, or for none, are not guessed at.
    let (routing, unread) = read_text("all.network", "[Match]\nName=!eth0\n[Network]\nAddress=10.0.0.1/8\n");
    assert!(routing.interfaces.is_empty() && unread[0].place.line == Some(2));
}

#[test]
fn a_script_as_they_are() {
    let (routing, unread) = read_fixture("routes.sh");
    let (routes, rules) = routes_and_rules(&routing);
    assert_eq!(
        routes,
        [
            "0.0.0.0/0 7001 0 10.10.0.11@ib1*1",
            "10.100.0.0/16 254 0 10.10.0.11@ib1*2,10.10.0.13@ib1*1",
            "10.200.0.0/16 254 9 Blackhole",
            "::/0 7001 0 fd00::1@ib1*1",
        ]
    );
    assert_eq!(rules, ["101: from 10.10.0.211/32 -> 7001", "102: mark 0x1/0xffffffff -> 7001"]);
    assert_eq!(lines(&routing), [12, 14, 17, 18]);
    let RouteAction::Gateways(hops) = &routing.routes[1].action else { panic!() };
    let hop_lines: Vec<_> = hops.iter().map(|hop| hop.place.as_ref().unwrap().line).collect();
    assert_eq!(hop_lines, [Some(15), Some(16)]);
    let ib1 = &routing.interfaces[0];
    assert_eq!((ib1.name.as_str(), ib1.mtu.as_ref().unwrap().value), ("ib1", 65520));
    assert_eq!(ib1.infiniband_mode.as_ref().unwrap().value, InfinibandMode::Connected);
    assert_eq!(routing.sysctls["net.ipv4.conf.ib1.rp_filter"].value, "2");
    let reported: Vec<_> =
        unread.iter().map(|unread| (unread.place.line.unwrap(), unread.text.as_str())).collect();
    assert_eq!(reported, [(19, "ip route add $OTHER via 10.10.0.11")]);
    assert!(unread[0].reason.contains("shell fills this in"), "{}", unread[0].reason);
    // The route is there, to somewhere.
    assert_eq!(routing.files.unknown_routes[0].table, Some(254));
}

#[test]
fn files_of_the_network_scripts_old_and_older() {
    let sources = [
        ("etc/iproute2/rt_tables", std::fs::read_to_string(fixture("rt_tables")).unwrap()),
        (
            "etc/sysconfig/network-scripts/ifcfg-ib1",
            "DEVICE=ib1\nTYPE=InfiniBand\nBOOTPROTO=static\nIPADDR=10.10.0.201\nNETMASK=255.255.255.0\n\
             IPADDR1=\"10.10.0.211\"\nPREFIX1=32\nCONNECTED_MODE=yes\nMTU=65520 # jumbo\n"
                .to_owned(),
        ),
        (
            "etc/sysconfig/network-scripts/rule-ib1",
            "from 10.10.0.211 table gateway-1\n# second\nfwmark 2 lookup gateway-2 prio 5\n".to_owned(),
        ),
        (
            "etc/sysconfig/network-scripts/route-ib1",
            "10.100.0.0/16 via 10.10.0.11 table gateway-2\n10.101.0.0/16 dev ib1\n\n".to_owned(),
        ),
        (
            "etc/sysconfig/network-scripts/route-eth0",
            "ADDRESS0=10.20.0.0\nNETMASK0=255.255.0.0\nGATEWAY0=192.0.2.1\nADDRESS1=10.30.0.0\n".to_owned(),
        ),
    ]
    .map(|(path, text)| Source { path: path.to_owned(), text });
    let (routing, unread) = read::texts(&sources);
    let (mut routes, rules) = routes_and_rules(&routing);
    routes.sort();
    assert_eq!(
        routes,
        [
            "10.100.0.0/16 7002 0 10.10.0.11@ib1*1",
            "10.101.0.0/16 254 0 on ib1",
            "10.20.0.0/16 254 0 192.0.2.1@eth0*1",
        ]
    );
    assert_eq!(rules, ["?: from 10.10.0.211/32 -> 7001", "5: mark 0x2/0xffffffff -> 7002"]);
    let ib1 = routing.interfaces.iter().find(|known| known.name == "ib1").unwrap();
    let addresses: Vec<String> = ib1.addresses.iter().map(|address| address.value.to_string()).collect();
    assert_eq!(addresses, ["10.10.0.201/24", "10.10.0.211/32"]);
    assert_eq!(ib1.mtu.as_ref().unwrap().value, 65520);
    let reported: Vec<_> = unread.iter().map(|unread| unread.text.as_str()).collect();
    assert_eq!(reported, ["ADDRESS1=10.30.0.0"]);
}

#[test]
fn an_old_profile_of_networkmanager() {
    let text = "[connection]\nid=storage\ninterface-name=ib0\ntype=infiniband\n\n[infiniband]\n\
                transport-mode=datagram\n\n[ipv4]\nmethod=manual\naddress1=10.10.0.5/24,10.10.0.1\n\
                route1=10.100.0.0/16,10.10.0.11\nroute1_options=initcwnd=20,table=7\n\
                route2=10.101.0.0/16,0.0.0.0,50\nrouting-rule1=priority 5 from 10.10.0.5 table 7\n\
                routing-rule2=from 10.10.0.6 table 8\nshiny-new-key=1\n";
    let (routing, unread) = read_text("storage.nmconnection", text);
    let (routes, rules) = routes_and_rules(&routing);
    assert_eq!(
        routes,
        [
            "10.100.0.0/16 7 150 10.10.0.11@ib0*1",
            "10.101.0.0/16 254 50 on ib0",
            "0.0.0.0/0 254 150 10.10.0.1@ib0*1",
        ]
    );
    assert_eq!(rules, ["5: from 10.10.0.5/32 -> 7"]);
    let reported: Vec<_> =
        unread.iter().map(|unread| (unread.place.line.unwrap(), unread.text.as_str())).collect();
    assert_eq!(reported, [(13, "initcwnd=20"), (17, "shiny-new-key=1")]);
    assert_eq!(routing.files.refused[0].place.line, Some(16));
}

/// Printed text in which lines were wrapped, as papers and tickets have it.
#[test]
fn printed_routes_may_be_wrapped() {
    let text = "# ip route show table all\ndefault via 10.100.0.91 dev ipogif0 table 1\n10.10.1.0/24\n \
                nexthop via 10.100.0.91 dev ipogif0 weight 1\n nexthop via 10.100.0.94\n              \
                dev ipogif0 weight 1\nlocal 10.100.0.1 dev ipogif0 table local\n  proto kernel scope host\n";
    let (routing, unread) = read_text("routes.txt", text);
    assert_eq!(unread, []);
    let (routes, _) = routes_and_rules(&routing);
    assert_eq!(
        routes,
        [
            "0.0.0.0/0 1 0 10.100.0.91@ipogif0*1",
            "10.10.1.0/24 254 0 10.100.0.91@ipogif0*1,10.100.0.94@ipogif0*1",
        ]
    );
}

/// The same script to `sh` and to the reader: the kernel holds what was read.
#[test]
fn root_ip_accepts_arguments_as_they_are_read() {
    let script = "ip link set mtu 1400 dev ib1\nip address add 10.10.0.201/24 dev ib1\n\
        ip a a dev ib1 10.10.0.211/32\nip -6 addr add fd00::5/64 dev ib1\n\
        ip ro a table 7001 default via 10.10.0.11 dev ib1\n\
        ip r r 10.100/16 table 7002 proto 117 metric 5 via 10.10.0.12\n\
        ip route add mtu 1300 src 10.10.0.201 to 10.101.0.0/16 dev ib1 via 10.10.0.13\n\
        ip route add 10.102.0.0/16 proto static scope global \\\n  nexthop dev ib1 via 10.10.0.11 weight 2 \\\n  \
        nexthop via 10.10.0.13 dev ib1\n\
        ip route add prohibit 10.103.0.0/16 metric 9\nip route add 10.104.0.0/16 dev ib1\n\
        ip -6 route add default via fd00::1 dev ib1 table 7002 metric 30\n\
        ip nexthop add id 1 via 10.10.0.11 dev ib1\nip nexthop add id 2 dev ib1 via 10.10.0.12 proto 117\n\
        ip nexthop add id 10 group 1,3/2 type resilient buckets 64 idle_timer 30\n\
        ip route add 10.105.0.0/16 nhid 10 table 7003\n\
        ip route add 10.106.0.0/16 via 10.10.0.11; ip route del 10.106.0.0/16\n\
        ip ru a pref 101 table 7001 from 10.10.0.211; ip rule add lookup 7001 fwmark 0x1/0xff order 102\n\
        ip rule add not to 10.100.0.0/16 iif ib1 priority 103 blackhole\n\
        ip rule add from all suppress_prefixlength 0 table main pref 104 protocol 117\n\
        ip -6 rule add ipproto tcp dport 22 preference 105 lookup 7002\n\
        ip rule add pref 106 goto 32766\n\
        ip rule add pref 107 from 10.1.0.0/16 lookup 9 && ip rule del pref 107\n";
    let (ours, unread) = read_text("routes.sh", &format!("#!/bin/sh\n{script}"));
    assert_eq!(unread, []);
    let setup = "sysctl -q net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0\n\
                 ip link add ib1 type veth peer name far-ib1\nip link set ib1 up\nip link set far-ib1 up\n";
    let output = private::run(&format!("{setup}{script}{}", private::SHOW));
    assert_eq!(output.stderr, "");
    let theirs = private::states(&output.stdout).remove(0);
    let mut ours = plain(&ours);
    for route in &mut ours.routes {
        // The kernel fills in the interface.
        if let RouteAction::Gateways(hops) = &mut route.action {
            hops.iter_mut().for_each(|hop| hop.interface = Some("ib1".to_owned()));
        }
    }
    assert_eq!(difference(&plain(&theirs), &ours), [""; 0], "{}", output.stdout);
}

#[test]
fn a_folder_is_one_host_or_many() {
    let parent = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = parent.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("s1/etc/sysconfig/network-scripts/rule-ib1", "from 10.0.0.1 table 1\n");
    write("s1/etc/hostname", "storage-1\n");
    write("s1/etc/motd", "welcome\n");
    write("s2/rule-ib1", "from 10.0.0.2 table 1\n");
    write("README", "nothing\n");
    let reading = read::folder(parent.path()).unwrap();
    let names: Vec<&str> = reading.hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(names, ["storage-1", "s2"]);
    assert_eq!(reading.unread, []);
    let one = read::folder(&parent.path().join("s1")).unwrap();
    assert_eq!((one.hosts.len(), one.hosts[0].rules.len()), (1, 1));
    let nothing = parent.path().join("s1/etc/motd");
    let error = read::files(&[nothing]).unwrap_err().to_string();
    assert!(error.contains("no file there is a routing configuration"), "{error}");
    assert!(read::folder(&parent.path().join("none")).unwrap_err().to_string().contains("cannot read"));
}

proptest! {
    /// No text of any name makes a reader panic, and lines that are reported
    /// are lines of the file.
    #[test]
    fn readers_never_panic(
        name in prop::sample::select(vec![
            "x.nmconnection", "x.network", "x.yaml", "ifcfg-x", "route-x", "rule6-x", "x.batch", "x.sh",
            "x.service", "x.nft", "sysctl.conf", "x.txt", "routes/modes", "rt_tables", "network/interfaces", "x.netdev",
            "networkd.conf", "x.link", "x.json", "sysconfig/network", "motd",
        ]),
        lines in prop::collection::vec(prop::sample::select(vec![
            "[connection]", "id=x", "[ipv4]", "address1=10.0.0.1/24,", "route1=10.0.0.0/8,,", "[Match]",
            "Name=x", "[Route]", "Destination=", "MultiPathRoute=@", "[NextHop]", "Group=1:", "network:",
            "  ethernets:", "    x:", "      routes:", "        - to: default", "          via:", "- &a [*a, x]",
            "ip route add", "ip rule add from", "7001:", "7001: from all", "2: ib0: <", "nexthop", "default via",
            "id 1 group 1,/", "10/8 dev", "\\", "ip route add 1/8 dev x \\", "=", "ADDRESS0=x", "IPADDR=1.2.3.4",
            "PREFIX=99", "ct mark set", "iifname \"\" ether saddr ct mark set", "ib0 connected", "\u{fffd}\u{1}",
            "iface x inet static", "iface", "  address 1.2.3.4", "  netmask /", "gateway 1", "up ip route add $X", "mapping x",
            "source", "# ip route show table", "$ ip -d ro", "10/8 \\", "nh_info id", "[{\"dst\":1,\"nexthops\":[{}]}]", "[{\"ifname\":[]}]",
            "route add -net 1.2.3.4 netmask gw", "X=$X", "X=1", "if", "}", "fi", "Name=", "RouteTable=:", "[VRF]", "spec: {desiredState: {routes: 1}}",
            "hosts: [{networkConfig: {interfaces: [{}]}}]", "  vrfs: {x: }", "echo 1 x >> rt_tables", "sh -c",
            "route replace default nhid", "rule del", "ip -6 route del default", "ip é", "for i in {1..3}; do", "done", "f() {", "f $1",
            "A=\"$A$A\"", "while read a b; do", "done <<EOF", "EOF", "$((1 << A))", "a: {b: [", "clearstream_route_marks: [x]",
        ]), 0..12),
    ) {
        let text = lines.join("\n");
        let (_, unread) = read_text(name, &text);
        let count = u32::try_from(text.lines().count().max(1)).unwrap();
        for unread in unread {
            prop_assert!(unread.place.line.unwrap() <= count + 1, "{:?}", unread);
            prop_assert!(!unread.text.chars().any(char::is_control));
        }
    }
}

//! What decides on hosts as their kernels have them: link-local networks beside the real
//! ones, routes and rules that come before a fabric's, short netmasks, several interfaces on
//! one network, the source's part in the choice of a next hop.

use clearstream_tune::{Assumed, HostState};

use super::*;
use crate::fabric;

/// A host whose routing is known completely, with what every kernel adds.
fn captured(name: &str, text: &str) -> Subject {
    let number = name.bytes().map(u64::from).sum::<u64>();
    let text = format!(
        "{text}address lo 127.0.0.1/8\naddress lo ::1/128\naddress e0 fe80::{number:x}/64\naddress e0 169.254.{}.1/16\n",
        number % 250
    );
    Subject { is_whole: true, ..host(name, &text) }
}

/// `host id` of every finding above notes.
fn found(hosts: &[Subject], fabric: Option<&fabric::Fabric>) -> Vec<String> {
    let report = lint(hosts, fabric, &MuteList::default());
    let loud = report.findings.iter().filter(|finding| finding.severity > Severity::Note);
    let mut found: Vec<String> = loud
        .map(|finding| format!("{} {}", finding.host.as_deref().unwrap_or(&hosts[0].name), finding.id))
        .collect();
    found.sort();
    found
}

const FORWARDS: &str = "net.ipv4.ip_forward = 1\nnet.netfilter.nf_conntrack_count = 7\n";

fn two_firewalls(make: fn(&str, &str) -> Subject) -> [Subject; 4] {
    let router = |name: &str, last: u8| {
        make(name, &format!("address e0 10.1.0.{last}/24\naddress e1 10.2.0.{last}/24\n{FORWARDS}"))
    };
    [
        make("c", "address e0 10.1.0.9/24\nroute 10.2.0.0/24 via 10.1.0.1 dev e0\n"),
        make("s", "address e0 10.2.0.9/24\nroute 10.1.0.0/24 via 10.2.0.2 dev e0\n"),
        router("r1", 1),
        router("r2", 2),
    ]
}

#[test]
fn a_link_local_network_is_none_that_two_hosts_share() {
    let stateful = "return:unsafe:asymmetric-through-stateful";
    for hosts in [two_firewalls(host), two_firewalls(captured)] {
        let ids = found(&hosts, None);
        assert!(ids.iter().any(|id| id.ends_with(stateful)), "{ids:?}");
    }
    // The same over one firewall is as it ought to be.
    let mut hosts = two_firewalls(captured);
    hosts[1] = captured("s", "address e0 10.2.0.9/24\nroute 10.1.0.0/24 via 10.2.0.1 dev e0\n");
    assert_eq!(found(&hosts, None), Vec::<String>::new());
}

#[test]
fn routers_of_two_networks_that_were_not_given_need_not_be_alike() {
    let hosts = [
        captured("a", "address e0 fd00:1::9/64\nroute ::/0 via fe80::a1,fe80::a2,fe80::a3 dev e0\n"),
        captured("b", "address e0 fd00:2::9/64\nroute ::/0 via fe80::b1,fe80::b2 dev e0\n"),
    ];
    let ids = found(&hosts, None);
    assert!(ids.iter().all(|id| !id.contains("one-side-only") && !id.contains("nobody")), "{ids:?}");
}

/// A host of the fabric of six gateways, and further lines.
fn compute(more: &str) -> Subject {
    let gateways = |prefix: &str| (1..=6).map(|at| format!("{prefix}9{at}")).collect::<Vec<_>>().join(",");
    let text = format!(
        "address e0 10.100.0.1/16\naddress e0 fd64:100::1/64\n\
         route 10.10.0.0/24 via {} dev e0\nroute fd64:10::/64 via {} dev e0\n\
         net.ipv4.fib_multipath_hash_policy = 1\nnet.ipv6.fib_multipath_hash_policy = 1\n{more}",
        gateways("10.100.0."),
        gateways("fd64:100::")
    );
    captured("compute-1", &text)
}

#[test]
fn what_leads_a_fabrics_packets_away_is_found() {
    let six = fabric::load("gateways-6").unwrap();
    assert_eq!(found(&[compute("")], Some(&six)), Vec::<String>::new());
    let (route, rule) = ("compute-1 route:routing:overridden", "compute-1 rule:routing:overridden");
    for (more, id, texts) in [
        ("route 10.10.0.128/25 via 10.100.0.91 dev e0\n", route, "10.10.0.128/25 via 10.100.0.91"),
        ("route fd64:10::/64 via fd64:100::91 dev e0 metric 100\n", route, "its metric 100 comes before"),
        ("route 10.10.0.201 blackhole\n", route, "blackhole 10.10.0.201"),
        ("route 10.10.0.202 prohibit\n", route, "prohibit 10.10.0.202"),
        ("address e1 10.10.0.77/24\n", route, "10.10.0.0/24, the network of an address"),
        ("address e1 10.10.0.201/32\n", route, "10.10.0.201 is an address of this host"),
        (
            "rule priority 90 to 10.10.0.0/24 table 100\nroute default via 10.100.0.92 dev e0 table 100\n",
            rule,
            "90: from all to 10.10.0.0/24 lookup 100",
        ),
        (
            "rule priority 90 from 10.100.0.1 table 100\nroute default blackhole table 100\n",
            rule,
            "90: from 10.100.0.1 lookup 100",
        ),
        ("rule priority 90 to 10.10.0.201 unreachable\n", rule, "the rule 90: from all to 10.10.0.201"),
    ] {
        let hosts = [compute(more)];
        let ids = found(&hosts, Some(&six));
        assert!(ids.contains(&id.to_owned()), "{more}: {ids:?}");
        let report = lint(&hosts, Some(&six), &MuteList::default());
        assert!(
            report.findings.iter().any(|it| it.message.contains(texts)),
            "{more}: {:#?}",
            report.findings
        );
    }
    // What changes nothing for the fabric.
    for more in [
        "route default via 10.100.0.254 dev e0\n",
        "route 10.0.0.0/8 via 10.100.0.254 dev e0\n",
        "rule priority 90 from 192.0.2.1 table 100\nroute default blackhole table 100\n",
        "route 10.10.0.0/24 via 10.100.0.91 dev e0 metric 500\n",
    ] {
        let ids = found(&[compute(more)], Some(&six));
        assert!(ids.iter().all(|id| !id.contains("overridden")), "{more}: {ids:?}");
    }
}

#[test]
fn what_a_gateway_of_a_fabric_does_not_carry_is_found() {
    let six = fabric::load("gateways-6").unwrap();
    let gateway = |more: &str| {
        let text = "address e0 10.100.0.94/16\naddress e0 fd64:100::94/64\naddress e1 10.10.0.14/24\n\
                    address e1 fd64:10::14/64\nnet.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 1\n";
        captured("gw4", &format!("{text}{more}"))
    };
    assert_eq!(found(&[gateway("")], Some(&six)), Vec::<String>::new());
    let (route, rule) = ("gw4 route:routing:overridden", "gw4 rule:routing:overridden");
    for (more, id) in [
        ("route 10.10.0.201 blackhole\n", route),
        ("route fd64:100::2 unreachable\n", route),
        ("route 10.100.0.0/17 via 10.10.0.77 dev e1\n", route),
        (
            "rule priority 60 from 10.100.0.2 table 9\nroute 10.10.0.0/24 via 10.10.0.77 dev e1 table 9\n",
            rule,
        ),
        ("rule priority 60 to 10.10.0.202 prohibit\n", rule),
    ] {
        let ids = found(&[gateway(more)], Some(&six));
        assert!(ids.contains(&id.to_owned()), "{more}: {ids:?}");
    }
}

#[test]
fn a_host_without_any_route_to_a_network_of_the_fabric_is_found_alone() {
    let six = fabric::load("gateways-6").unwrap();
    let bare = "address e0 10.100.0.8/16\naddress e0 fd64:100::8/64\n";
    let no_route = ["compute-8 route:routing:no-route", "compute-8 route:routing:no-route"];
    assert_eq!(found(&[captured("compute-8", bare)], Some(&six)), no_route, "of both families");
    // Files need not hold everything.
    assert_eq!(found(&[host("compute-8", bare)], Some(&six)), Vec::<String>::new());
    // By its name without the ending of a file, by its addresses alone, or not at all.
    let renamed = found(&[captured("compute-8.cap", bare)], Some(&six));
    assert_eq!(renamed, no_route.map(|line| line.replace("compute-8", "compute-8.cap")));
    let by_address = found(&[captured("elsewhere", bare)], Some(&six));
    assert_eq!(by_address, ["elsewhere route:routing:no-route", "elsewhere route:routing:no-route"]);
    for (name, addresses, why) in [
        ("stranger", "address e0 10.100.7.7/16\n", "neither this name nor an address"),
        ("compute-8", "address e0 10.36.7.7/16\n", "--keep-addresses"),
    ] {
        let report = lint(&[captured(name, addresses)], Some(&six), &MuteList::default());
        assert!(report.missing.iter().any(|line| line.contains(why)), "{:?}", report.missing);
        assert_eq!(report.findings, [], "{name}");
    }
}

#[test]
fn a_netmask_that_takes_in_the_remote_network_is_found() {
    let id = "c address:routing:swallows-a-network";
    for make in [host, captured] {
        for (own, wide, gateway, near, far, server) in [
            ("10.1.0.9", 8, "10.1.0.1", "10.1.0.8/24", "10.2.0.1/24", "10.2.0.9/24"),
            ("fd00:1::9", 16, "fd00:1::1", "fd00:1::8/64", "fd00:2::1/64", "fd00:2::9/64"),
        ] {
            let (zero, length) = if own.contains(':') { ("::/0", 64) } else { ("0.0.0.0/0", 24) };
            let other_side = far.split('/').next().unwrap();
            let hosts = |wide: u8| {
                let ends = format!("address e0 {gateway}/{length}\naddress e1 {far}\n");
                [
                    make("c", &format!("address e0 {own}/{wide}\nroute {zero} via {gateway} dev e0\n")),
                    make("d", &format!("address e0 {near}\nroute {zero} via {gateway} dev e0\n")),
                    make("r", &format!("{ends}net.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 1\n")),
                    make("s", &format!("address e0 {server}\nroute {zero} via {other_side} dev e0\n")),
                ]
            };
            let ids = found(&hosts(wide), None);
            assert!(ids.contains(&id.to_owned()), "{own}/{wide}: {ids:?}");
            let ids = found(&hosts(length), None);
            assert!(ids.iter().all(|it| !it.contains("swallows")), "{own}: {ids:?}");
            // A router that replies for the others makes it work (proxy ARP).
            let mut proxied = hosts(wide);
            let proxy = "net.ipv4.conf.all.proxy_arp = 1\nnet.ipv6.conf.all.proxy_ndp = 1\n";
            proxied[2].routing.sysctls.extend(host("r", proxy).routing.sysctls);
            let ids = found(&proxied, None);
            assert!(ids.iter().all(|it| !it.contains("swallows")), "{own}: {ids:?}");
        }
    }
}

#[test]
fn a_netmask_that_takes_in_a_network_of_the_fabric_is_one_finding() {
    let six = fabric::load("gateways-6").unwrap();
    let wide = "address e0 10.100.0.1/8\naddress e0 fd64:100::1/64\n";
    let routes = "route 10.10.0.0/24 via 10.100.0.91,10.100.0.92,10.100.0.93,10.100.0.94,10.100.0.95,10.100.0.96 dev e0\n\
                  net.ipv4.fib_multipath_hash_policy = 1\n";
    let of = |text: &str| {
        let ids = found(&[captured("compute-1", text)], Some(&six));
        ids.into_iter().filter(|id| !id.ends_with("no-route")).collect::<Vec<_>>()
    };
    assert_eq!(of(wide), ["compute-1 address:routing:swallows-a-network"]);
    assert_eq!(of(&format!("{wide}{routes}")), Vec::<String>::new(), "its route is more exact");
}

#[test]
fn several_interfaces_on_one_network_are_noted_unless_they_are_kept_apart() {
    const TWO: &str = "address e0 10.1.0.9/24\naddress e1 10.1.0.10/24\n";
    let noted = |more: &str| {
        let report = report_of(&[captured("h", &format!("{TWO}{more}"))]);
        report.findings.iter().filter(|it| it.id == "link:routing:same-network-twice").count()
    };
    assert_eq!(noted(""), 1);
    assert_eq!(noted("address e2 10.1.0.11/24\n"), 1, "one finding however many");
    for more in [
        "net.ipv4.conf.all.arp_filter = 1\n",
        "net.ipv4.conf.e0.arp_ignore = 1\nnet.ipv4.conf.e1.arp_ignore = 2\n",
        "rule priority 10 from 10.1.0.10 table 10\nroute 10.1.0.0/24 dev e1 table 10\n",
    ] {
        assert_eq!(noted(more), 0, "{more}");
    }
    let report = report_of(&[captured("h", "address e0 10.1.0.9/24\naddress e1 10.2.0.10/24\n")]);
    assert!(report.findings.iter().all(|it| !it.id.contains("several")), "{:#?}", report.findings);
}

#[test]
fn a_strict_filter_on_many_interfaces_of_one_network_is_one_finding() {
    let adapters: String = (0..8).map(|at| format!("address ib{at} 10.1.0.{}/16\n", 10 + at)).collect();
    let hosts = [captured("h", &format!("{adapters}net.ipv4.conf.all.rp_filter = 1\n"))];
    let report = report_of(&hosts);
    let drops: Vec<_> = report.findings.iter().filter(|it| it.id == "rp_filter:routing:will-drop").collect();
    assert_eq!(drops.len(), 1, "{drops:#?}");
    assert!(drops[0].message.contains("ib1") && drops[0].message.contains("ib7"), "{:?}", drops[0]);
}

/// Two uplinks without rules by source: since Linux 6.16 a packet leaves by the gateway of its
/// source, so that the routers' strict filters let it pass.
#[test]
fn the_source_takes_part_in_the_choice_since_6_16() {
    let findings = |release: Option<&str>| {
        let settings = |mut subject: Subject| {
            let assumed = Assumed { release: release.map(str::to_owned), ..Assumed::default() };
            subject.settings = Some(HostState::of_file(&subject.name, "", assumed));
            subject
        };
        let router = |name: &str, near: &str, far: &str| {
            captured(
                name,
                &format!(
                    "address e0 {near}/24\naddress e1 {far}/24\nnet.ipv4.ip_forward = 1\n\
                     net.ipv4.conf.all.rp_filter = 1\n{}",
                    if name == "r1" {
                        "route 10.3.0.0/24 via 10.9.0.2 dev e1\n"
                    } else {
                        "route 10.1.0.0/24 via 10.9.0.1 dev e1\n"
                    }
                ),
            )
        };
        let hosts = [
            settings(captured(
                "h",
                "address e0 10.1.0.9/24\naddress e1 10.3.0.9/24\nroute default via 10.1.0.1,10.3.0.1\n",
            )),
            router("r1", "10.1.0.1", "10.9.0.1"),
            router("r2", "10.3.0.1", "10.9.0.2"),
            captured(
                "s",
                "address e0 10.9.0.9/24\nroute 10.1.0.0/24 via 10.9.0.1\nroute 10.3.0.0/24 via 10.9.0.2\n",
            ),
        ];
        let findings = lint(&hosts, None, &MuteList::default()).findings.into_iter();
        findings.filter(|finding| finding.id.contains("will-drop")).collect::<Vec<_>>()
    };
    let before = findings(Some("6.12.0"));
    assert!(!before.is_empty() && before.iter().all(|finding| finding.severity == Severity::Error));
    assert_eq!(findings(Some("6.16.0")), []);
    assert_eq!(findings(Some("6.18.44-generic")), []);
    // Files without a release are judged by both.
    let open = findings(None);
    assert_eq!(open.len(), before.len(), "{open:#?}");
    for finding in open {
        let text = &finding.message;
        assert!(finding.severity == Severity::Warning && text.contains("only before Linux 6.16"), "{text}");
        assert!(text.contains("--kernel"), "{text}");
    }
}

/// Leaves and spines: the first routers of both ends differ, and what they forward over further
/// ones is asymmetric by design.
#[test]
fn leaves_and_spines_of_captured_hosts_have_no_finding() {
    let forwards = "net.ipv4.ip_forward = 1\nnet.ipv4.fib_multipath_hash_policy = 1\n";
    let leaf = |at: u8, far: u8| {
        captured(
            &format!("leaf{at}"),
            &format!(
                "address e0 10.1.{at}.1/24\naddress u1 10.9.{at}.0/31\naddress u2 10.8.{at}.0/31\n\
                 route 10.1.{far}.0/24 via 10.9.{at}.1,10.8.{at}.1\n{forwards}"
            ),
        )
    };
    let spine = |name: &str, net: u8| {
        captured(
            name,
            &format!(
                "address d1 10.{net}.1.1/31\naddress d2 10.{net}.2.1/31\nroute 10.1.1.0/24 via 10.{net}.1.0\n\
                 route 10.1.2.0/24 via 10.{net}.2.0\n{forwards}"
            ),
        )
    };
    let end = |name: &str, at: u8| {
        captured(name, &format!("address e0 10.1.{at}.9/24\nroute default via 10.1.{at}.1 dev e0\n"))
    };
    let hosts = [end("a", 1), end("b", 2), leaf(1, 2), leaf(2, 1), spine("s9", 9), spine("s8", 8)];
    assert_eq!(found(&hosts, None), Vec::<String>::new());
}

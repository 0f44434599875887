//! The text of each finding about a path: severity, host, line, reason, and what to
//! write.

use super::{
    paths::{FABRIC, FORWARDING, site, with},
    *,
};

const ROUTE: &str = "route 10.2.0.0/24 via 10.1.0.1,10.1.0.2 dev e0\n";
const BACK: &str = "route 10.1.0.0/24 via 10.2.0.1,10.2.0.2 dev e0\n";
const HOPS: &str = "10.1.0.1,10.1.0.2";
const ASYMMETRIC: &str = "return:routing:asymmetric";
const NOBODY: &str = "gateway:routing:nobody-has-it";

/// The finding of an id at a host, as `severity line: message -> advice`.
fn finding_of(hosts: &[Subject], name: &str, id: &str) -> Option<String> {
    finding_in(&report_of(hosts), name, id)
}

fn finding_in(report: &LintReport, name: &str, id: &str) -> Option<String> {
    let mut found = report.findings.iter();
    let found = found.find(|it| it.id == id && it.host.as_deref() == Some(name))?;
    let line = found.place.as_ref().map_or(0, |place| place.line);
    let advice = found.advice.as_deref().unwrap_or_default();
    Some(format!("{:?} {line}: {} -> {advice}", found.severity, found.message))
}

#[test]
fn every_broken_path_has_host_line_reason_and_correction() {
    // Host, what is replaced, by what, id, severity and line, reason, correction.
    for (name, from, to, id, place, reason, correction) in [
        (
            "c11",
            ROUTE,
            "",
            "route:routing:no-route",
            "Error 0:",
            "no route to 10.2.0.0/24: cannot reach 2 addresses, first 10.2.0.201 of s201",
            "ip route add 10.2.0.0/24 nexthop via 10.1.0.1 nexthop via 10.1.0.2",
        ),
        (
            "c11",
            "10.2.0.0/24",
            "10.2.0.0/25",
            "route:routing:leaves-hosts-out",
            "Error 2:",
            "10.2.0.0/25 is part of 10.2.0.0/24 only, and the rest has no route",
            "write 10.2.0.0/24 in place of 10.2.0.0/25",
        ),
        (
            "c11",
            "via 10.1.0.1,10.1.0.2 dev e0",
            "blackhole",
            "route:routing:black-hole",
            "Error 2:",
            "what goes to 10.2.0.0/24 meets a blackhole route",
            "delete it, or add a route that is more exact",
        ),
        (
            "s201",
            "via 10.2.0.1,10.2.0.2 dev e0",
            "prohibit",
            "route:routing:prohibit",
            "Error 2:",
            "what goes to 10.1.0.0/24 meets a prohibit route: cannot reply to",
            "ip route add 10.1.0.0/24 nexthop via 10.2.0.1 nexthop via 10.2.0.2",
        ),
        (
            "s201",
            BACK,
            &format!("{BACK}rule priority 5 to 10.1.0.0/24 prohibit\n"),
            "rule:routing:prohibit",
            "Error 3:",
            "what goes to 10.1.0.0/24 meets a prohibit rule",
            "delete it",
        ),
        (
            "c11",
            HOPS,
            "10.1.0.1,10.1.0.12",
            "gateway:routing:wrong-host",
            "Error 2:",
            "10.1.0.12 is c12, which does not forward and is not on 10.2.0.0/24",
            "10.1.0.2 (gw2)",
        ),
        (
            "c11",
            "10.1.0.2 dev e0\n",
            "10.1.0.2 dev e0 src 10.1.0.99\n",
            "route:range:no-such-source",
            "Error 2:",
            "10.1.0.99",
            "10.1.0.11",
        ),
        (
            "c11",
            "10.1.0.2 dev e0\n",
            "10.1.0.2 dev e7\n",
            "route:range:no-such-interface",
            "Warning 2:",
            "e7",
            "e0",
        ),
        (
            "c11",
            "10.1.0.11/24",
            "10.1.0.2/24",
            "address:contradiction:duplicate",
            "Error 1:",
            "10.1.0.2 is an address of gw2 too",
            "give one of them another address",
        ),
        (
            "gw1",
            FORWARDING,
            "net.ipv4.ip_forward = 0\n",
            "net.ipv4.ip_forward:routing:gateway-does-not-forward",
            "Error 3:",
            "forward",
            "ip_forward",
        ),
    ] {
        let finding = finding_of(&with(name, from, to), name, id).unwrap_or_else(|| panic!("{id} of {name}"));
        let (found, advice) = finding.split_once(" -> ").unwrap();
        assert!(found.starts_with(place) && found.contains(reason), "{id}: {finding}");
        assert!(advice.contains(correction), "{id}: {finding}");
    }
}

#[test]
fn strict_filter_names_its_line_the_interface_and_both_corrections() {
    let client = "address e0 10.1.0.11/24\nroute 10.2.0.0/24 via 10.1.0.1 dev e0\n";
    let server = "address e0 10.2.0.201/24\naddress e1 10.3.0.201/24\n\
                  route 10.1.0.0/24 via 10.3.0.1 dev e1\nnet.ipv4.conf.all.rp_filter = 1\n";
    let gateway =
        format!("address e0 10.1.0.1/24\naddress e1 10.2.0.1/24\naddress e2 10.3.0.1/24\n{FORWARDING}");
    let hosts = [host("c1", client), host("s1", server), host("gw1", &gateway)];
    let finding = finding_of(&hosts, "s1", "rp_filter:routing:will-drop").unwrap();
    assert!(finding.starts_with("Error 4: what arrives on e0 from 10.1.0.0/24 is dropped"), "{finding}");
    assert!(finding.contains("lead the route back to 10.1.0.0/24 over e0, or set the filter"), "{finding}");
}

#[test]
fn next_hop_that_nobody_has_is_an_error_where_the_fabric_names_all_gateways() {
    let fabric = Fabric::new(toml::from_str(FABRIC).unwrap()).unwrap();
    // In place of a gateway, and beside all of them.
    for hops in ["10.1.0.1,10.1.0.77", "10.1.0.1,10.1.0.2,10.1.0.77"] {
        let hosts = with("c11", HOPS, hops);
        let report = lint(&hosts, Some(&fabric), &MuteList::default());
        let finding = finding_in(&report, "c11", NOBODY).unwrap_or_else(|| panic!("{hops}"));
        assert!(
            finding.starts_with("Error 2: next hop 10.1.0.77: no gateway of the fabric has it"),
            "{finding}"
        );
        assert!(finding.contains("10.1.0.2 (gw2)"), "{finding}");
        assert_eq!(report.missing, Vec::<String>::new());
        // Without the fabric another gateway may be there: reported once, as not
        // given.
        let report = report_of(&hosts);
        assert_eq!(finding_in(&report, "c11", NOBODY), None);
        assert!(
            report.missing.iter().any(|it| it.contains("10.1.0.77, next hop of c11")),
            "{:?}",
            report.missing
        );
    }
}

#[test]
fn only_next_hops_that_nobody_has_are_an_error_where_gateways_were_given() {
    for hops in ["10.1.0.77,10.1.0.78", "10.1.0.77"] {
        let hosts = with("c11", HOPS, hops);
        let finding = finding_of(&hosts, "c11", NOBODY).unwrap_or_else(|| panic!("{hops}"));
        let begin = "Error 2: next hop 10.1.0.77: no given host has it; it cannot reach 2 addresses";
        assert!(finding.starts_with(begin), "{finding}");
        assert!(finding.contains("10.1.0.1 (gw1) and 10.1.0.2 (gw2)"), "{finding}");
        assert_eq!(report_of(&hosts).missing, Vec::<String>::new());
        // No statement about the replies to what never arrives.
        assert_eq!(finding_of(&hosts, "c11", ASYMMETRIC), None, "{:?}", report_of(&hosts).findings);
        for finding in report_of(&hosts).findings.iter().filter(|finding| finding.id == ASYMMETRIC) {
            assert!(!finding.message.contains("c11"), "{}", finding.message);
        }
    }
    // Of a server, whose replies go there.
    let hosts = with("s201", "10.2.0.1,10.2.0.2", "10.2.0.77");
    assert!(finding_of(&hosts, "s201", NOBODY).is_some(), "{:?}", report_of(&hosts).findings);
}

/// A virtual address (VRRP) that no file has, or routers that were not given.
#[test]
fn next_hops_of_both_sides_that_nobody_has_are_a_notice() {
    let mut hosts = site();
    for host in &mut hosts {
        let virtual_address = match host.name.as_bytes()[0] {
            b'c' => "10.1.0.254",
            b's' => "10.2.0.254",
            _ => continue,
        };
        let RouteAction::Gateways(hops) = &mut host.routing.routes[0].action else { unreachable!() };
        hops.truncate(1);
        hops[0].via = virtual_address.parse().unwrap();
    }
    let report = report_of(&hosts);
    assert_eq!(ids(&report), Vec::<String>::new());
    assert!(report.missing.iter().any(|it| it.contains("10.1.0.254")), "{:?}", report.missing);
    // A default route to a router that was not given.
    let hosts = with("c11", ROUTE, "route default via 10.1.0.254 dev e0\n");
    assert_eq!(finding_of(&hosts, "c11", NOBODY), None, "{:?}", report_of(&hosts).findings);
}

#[test]
fn replies_are_counted_by_the_next_hops_of_the_replier() {
    let client = "address e0 10.1.0.11/24\nroute 10.2.0.0/24 via 10.1.0.1,10.1.0.2 dev e0\n";
    let server = "address e0 10.2.0.201/24\nroute 10.1.0.0/24 via 10.2.0.1 dev e0\n";
    // No gateway is known, and the server has one only.
    let hosts = [host("s1", server), host("c1", client)];
    assert_eq!(finding_of(&hosts, "s1", ASYMMETRIC), None);
    let hosts = [&hosts[..], &site()[4..]].concat();
    let finding = finding_of(&hosts, "s1", ASYMMETRIC).unwrap();
    assert!(finding.contains("replies leave by gw1 alone") && finding.contains("about 50 %"), "{finding}");
}

#[test]
fn prefix_of_an_interface_that_leaves_hosts_out() {
    let id = "address:routing:leaves-hosts-out";
    // Nothing of the site is beyond the half, except for a host of its own.
    let third = host("c13", "address e0 10.1.0.211/24\nroute 10.2.0.0/24 via 10.1.0.1,10.1.0.2 dev e0\n");
    let hosts = [with("c11", "10.1.0.11/24", "10.1.0.11/25"), vec![third.clone()]].concat();
    let expected = "Warning 1: 10.1.0.11/25 is part of 10.1.0.0/24 only, the network of most hosts there: the \
                    rest of it (10.1.0.211 of c13) is no neighbour of this host";
    let finding = finding_of(&hosts, "c11", id).unwrap();
    assert!(finding.starts_with(expected) && finding.ends_with("-> write 10.1.0.11/24"), "{finding}");
    let count = report_of(&hosts).findings.iter().filter(|finding| finding.id == id).count();
    assert_eq!(count, 1);
    // By the fabric, two hosts alone.
    let fabric = Fabric::new(toml::from_str(FABRIC).unwrap()).unwrap();
    let two = [hosts[0].clone(), third];
    assert_eq!(finding_of(&two, "c11", id), None, "which of the two is wrong is not known");
    let report = lint(&two, Some(&fabric), &MuteList::default());
    let finding = finding_in(&report, "c11", id).unwrap();
    assert!(finding.contains("10.1.0.0/24 only, the network of the fabric"), "{finding}");
    // A route or another address makes the whole network the link; another interface
    // on it makes two links of them.
    for right in ["route 10.1.0.0/24 dev e0\n", "address e0 10.1.0.12/24\n", "address e1 10.1.0.13/24\n"] {
        let mut hosts = hosts.clone();
        hosts[0] = host("c11", &format!("address e0 10.1.0.11/25\n{right}"));
        assert_eq!(finding_of(&hosts, "c11", id), None, "{right}");
    }
}

#[test]
fn next_hop_that_may_be_a_host_that_was_not_given_is_mentioned_once() {
    // A third gateway that was not given, known to both sides.
    let mut hosts = site();
    for host in &mut hosts {
        let third = match host.name.as_bytes()[0] {
            b'c' => "10.1.0.77",
            b's' => "10.2.0.77",
            _ => continue,
        };
        let RouteAction::Gateways(hops) = &mut host.routing.routes[0].action else { unreachable!() };
        hops.push(Hop { via: third.parse().unwrap(), ..hops[0].clone() });
    }
    let report = report_of(&hosts);
    let grave: Vec<_> = report.findings.iter().filter(|it| it.severity > Severity::Warning).collect();
    assert!(grave.is_empty(), "{grave:?}");
    assert!(!ids(&report).iter().any(|id| id.starts_with(NOBODY)), "{:?}", ids(&report));
    let not_given = report.missing.iter().filter(|it| it.contains("10.1.0.77") && it.contains("10.2.0.77"));
    assert_eq!(not_given.count(), 1, "{:?}", report.missing);
}

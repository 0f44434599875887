//! Forwarding between given hosts: each mistake alone in a small, otherwise correct
//! site.

use super::*;

pub(super) const FORWARDING: &str = "net.ipv4.ip_forward = 1\n";

/// Two clients and two servers behind two gateways, one route for all.
pub(super) fn site() -> Vec<Subject> {
    let client = |at: u8| {
        let text = format!("address e0 10.1.0.{at}/24\nroute 10.2.0.0/24 via 10.1.0.1,10.1.0.2 dev e0\n");
        host(&format!("c{at}"), &format!("{text}net.ipv4.fib_multipath_hash_policy = 1\n"))
    };
    let server = |at: u8| {
        let text = format!("address e0 10.2.0.{at}/24\nroute 10.1.0.0/24 via 10.2.0.1,10.2.0.2 dev e0\n");
        host(&format!("s{at}"), &format!("{text}net.ipv4.fib_multipath_hash_policy = 1\n"))
    };
    let gateway = |at: u8| {
        host(
            &format!("gw{at}"),
            &format!("address e0 10.1.0.{at}/24\naddress e1 10.2.0.{at}/24\n{FORWARDING}"),
        )
    };
    vec![client(11), client(12), server(201), server(202), gateway(1), gateway(2)]
}

/// The site with one host's text changed.
pub(super) fn with(name: &str, from: &str, to: &str) -> Vec<Subject> {
    let texts = [
        ("c11", "address e0 10.1.0.11/24\nroute 10.2.0.0/24 via 10.1.0.1,10.1.0.2 dev e0\nnet.ipv4.fib_multipath_hash_policy = 1\n".to_owned()),
        ("s201", "address e0 10.2.0.201/24\nroute 10.1.0.0/24 via 10.2.0.1,10.2.0.2 dev e0\nnet.ipv4.fib_multipath_hash_policy = 1\n".to_owned()),
        ("gw1", format!("address e0 10.1.0.1/24\naddress e1 10.2.0.1/24\n{FORWARDING}")),
        ("gw2", format!("address e0 10.1.0.2/24\naddress e1 10.2.0.2/24\n{FORWARDING}")),
    ];
    let text = &texts.iter().find(|(known, _)| *known == name).unwrap().1;
    assert!(text.contains(from), "{from} in {text}");
    let mut hosts = site();
    let at = hosts.iter().position(|host| host.name == name).unwrap();
    hosts[at] = host(name, &text.replace(from, to));
    hosts
}

/// `host id@line` of every finding but those of independent hashes.
fn broken(hosts: &[Subject]) -> Vec<String> {
    findings(&report_of(hosts))
}

fn findings(report: &LintReport) -> Vec<String> {
    let of = |finding: &Finding| {
        let line = finding.place.as_ref().map_or(0, |place| place.line);
        format!("{} {}@{line}", finding.host.as_deref().unwrap_or_default(), finding.id)
    };
    let is_other = |finding: &&Finding| !finding.id.starts_with("return:routing:asymmetric");
    report.findings.iter().filter(is_other).map(of).collect()
}

#[test]
fn what_works_has_no_finding() {
    assert_eq!(broken(&site()), Vec::<String>::new());
    assert_eq!(report_of(&site()).missing, Vec::<String>::new());
    // Filters that let through what comes, strict ones too.
    for value in ["1", "2"] {
        let mut hosts = site();
        for host in &mut hosts {
            host.routing.sysctls.insert("net.ipv4.conf.all.rp_filter".to_owned(), value.to_owned().into());
        }
        assert_eq!(broken(&hosts), Vec::<String>::new(), "{value}");
    }
}

/// The smallest site in which no pair can communicate.
#[test]
fn nobody_can_communicate() {
    let client = host(
        "c1",
        "address e0 10.1.0.11/24\nroute 10.2.0.0/25 via 10.1.0.1,10.1.0.2 dev e0\nnet.ipv4.fib_multipath_hash_policy = 1\n",
    );
    let server = host("s1", "address e0 10.2.0.201/24\n");
    let hosts = [client, server, site()[4].clone(), site()[5].clone()];
    assert_eq!(broken(&hosts), ["c1 route:routing:leaves-hosts-out@2", "s1 route:routing:no-route@0"]);
    let report = report_of(&hosts);
    let advice: Vec<&str> = report.findings.iter().filter_map(|finding| finding.advice.as_deref()).collect();
    assert!(advice[0].contains("10.2.0.0/24 in place of 10.2.0.0/25"), "{advice:?}");
    assert!(advice[1].contains("10.1.0.0/24 nexthop via 10.2.0.1 nexthop via 10.2.0.2"), "{advice:?}");
}

/// The fabric of the site.
pub(super) const FABRIC: &str = r#"
schema = "clearstream.fabric"
version = 1
name = "site"
[[network]]
name = "near"
prefixes = ["10.1.0.0/24"]
[[network]]
name = "far"
prefixes = ["10.2.0.0/24"]
[[class]]
name = "gateway"
role = "gateway"
hosts = ["gw[1-2]"]
[[class.link]]
network = "near"
interface = "e0"
addresses = ["10.1.0.[1-2]"]
[[class.link]]
network = "far"
interface = "e1"
addresses = ["10.2.0.[1-2]"]
[[class]]
name = "compute"
role = "compute"
hosts = ["c1"]
[[class.link]]
network = "near"
interface = "e0"
addresses = ["10.1.0.11"]
[[class]]
name = "storage"
role = "storage"
hosts = ["s1"]
[[class.link]]
network = "far"
interface = "e0"
addresses = ["10.2.0.201"]
[[route]]
between = ["near", "far"]
via = ["gateway"]
return-path = "none"
"#;

/// With the fabric too, and where that names hosts that were not given.
#[test]
fn nobody_can_communicate_by_the_fabric() {
    let fabric = Fabric::new(toml::from_str(FABRIC).unwrap()).unwrap();
    let by_fabric = |hosts: &[Subject]| findings(&lint(hosts, Some(&fabric), &MuteList::default()));
    let policy = "net.ipv4.fib_multipath_hash_policy = 1\n";
    let hosts = |to: &str, back: &str| {
        let client = format!("address e0 10.1.0.11/24\nroute {to} via 10.1.0.1,10.1.0.2 dev e0\n{policy}");
        let server = format!("address e0 10.2.0.201/24\n{back}{policy}");
        [host("c1", &client), host("s1", &server), site()[4].clone(), site()[5].clone()]
    };
    let back = "route 10.1.0.0/24 via 10.2.0.1,10.2.0.2 dev e0\n";
    assert_eq!(by_fabric(&hosts("10.2.0.0/24", back)), Vec::<String>::new());
    let lost = ["c1 route:routing:leaves-hosts-out@2", "s1 route:routing:no-route@0"];
    assert_eq!(by_fabric(&hosts("10.2.0.0/25", "")), lost);
}

#[test]
fn each_mistake_is_reported_for_its_host() {
    let route = "route 10.2.0.0/24 via 10.1.0.1,10.1.0.2 dev e0\n";
    let back = "route 10.1.0.0/24 via 10.2.0.1,10.2.0.2 dev e0\n";
    for (name, from, to, expected) in [
        ("c11", route, "", "c11 route:routing:no-route@0"),
        ("s201", back, "", "s201 route:routing:no-route@0"),
        ("c11", "10.2.0.0/24", "10.2.0.0/25", "c11 route:routing:leaves-hosts-out@2"),
        ("c11", "via 10.1.0.1,10.1.0.2 dev e0", "blackhole", "c11 route:routing:black-hole@2"),
        ("s201", "via 10.2.0.1,10.2.0.2 dev e0", "unreachable", "s201 route:routing:unreachable@2"),
        ("s201", "via 10.2.0.1,10.2.0.2 dev e0", "prohibit", "s201 route:routing:prohibit@2"),
        (
            "s201",
            back,
            &format!("{back}rule priority 5 to 10.1.0.0/24 prohibit\n"),
            "s201 rule:routing:prohibit@3",
        ),
        (
            "gw1",
            FORWARDING,
            "net.ipv4.ip_forward = 0\n",
            "gw1 net.ipv4.ip_forward:routing:gateway-does-not-forward@3",
        ),
        (
            "gw1",
            FORWARDING,
            &format!("{FORWARDING}route 10.2.0.201 blackhole\n"),
            "gw1 route:routing:black-hole@4",
        ),
        ("c11", "10.1.0.1,10.1.0.2", "10.1.0.1,10.1.0.12", "c11 gateway:routing:wrong-host@2"),
        ("c11", "dev e0\n", "dev e0 src 10.1.0.99\n", "c11 route:range:no-such-source@2"),
        ("c11", "10.1.0.2 dev e0\n", "10.1.0.2 dev e7\n", "c11 route:range:no-such-interface@2"),
        ("c11", "10.1.0.1,10.1.0.2", "10.1.0.1,10.1.0.11", "c11 gateway:range:own-address@2"),
    ] {
        let found = broken(&with(name, from, to));
        let count = found.iter().filter(|it| it.starts_with(&format!("{name} "))).count();
        assert!(found.contains(&expected.to_owned()), "{to}: {expected} in {found:?}");
        assert!(found.len() == count, "{to}: of {name} alone: {found:?}");
    }
    // A gateway with another address makes the routes of others wrong. Without the
    // fabric another host, which was not given, may have it.
    let moved = with("gw1", "address e1 10.2.0.1/24", "address e1 10.2.0.9/24");
    assert_eq!(broken(&moved), Vec::<String>::new());
    let missing = report_of(&moved).missing;
    assert!(missing.len() == 1 && missing[0].contains("10.2.0.1, next hop of s201"), "{missing:?}");
}

/// A hundred clients that lack the route back to one are one finding.
#[test]
fn one_cause_is_one_finding() {
    let mut hosts = with("s201", "route 10.1.0.0/24 via 10.2.0.1,10.2.0.2 dev e0\n", "");
    for at in 20..120 {
        let mut more = hosts[1].clone();
        more.name = format!("c{at}");
        more.routing.host.clone_from(&more.name);
        of(&mut more.routing, "e0").addresses[0].value = format!("10.1.0.{at}/24").parse().unwrap();
        hosts.push(more);
    }
    assert_eq!(broken(&hosts), ["s201 route:routing:no-route@0"]);
    let report = report_of(&hosts);
    let found = report.findings.iter().find(|it| it.id == "route:routing:no-route").unwrap();
    assert!(found.message.contains("102 hosts"), "{}", found.message);
}

#[test]
fn a_strict_filter_where_the_return_path_is_another() {
    // The reply to a request by gw1 leaves by e1, towards gw2.
    let server =
        "address e0 10.2.0.201/24\naddress e1 10.3.0.201/24\nroute 10.1.0.0/24 via 10.3.0.1 dev e1\n";
    let gateway =
        format!("address e0 10.1.0.1/24\naddress e1 10.2.0.1/24\naddress e2 10.3.0.1/24\n{FORWARDING}");
    let client = "address e0 10.1.0.11/24\nroute 10.2.0.0/24 via 10.1.0.1 dev e0\nroute 10.3.0.0/24 via 10.1.0.1 dev e0\n";
    let hosts =
        |filter: &str| [host("c1", client), host("s1", &format!("{server}{filter}")), host("gw1", &gateway)];
    assert_eq!(broken(&hosts("")), Vec::<String>::new());
    assert_eq!(broken(&hosts("net.ipv4.conf.all.rp_filter = 2\n")), Vec::<String>::new());
    let strict = broken(&hosts("net.ipv4.conf.all.rp_filter = 1\n"));
    assert_eq!(strict, ["s1 rp_filter:routing:will-drop@4"]);
    // The larger of all and the interface's own counts: loose is larger.
    let loose = "net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.e0.rp_filter = 2\n";
    assert_eq!(broken(&hosts(loose)), Vec::<String>::new());
}

#[test]
fn packets_that_go_round() {
    let client = "address e0 10.1.0.11/24\nroute 10.2.0.0/24 via 10.1.0.1 dev e0\n";
    let first = format!(
        "address e0 10.1.0.1/24\naddress e1 10.9.0.1/24\nroute 10.2.0.0/24 via 10.9.0.2 dev e1\n{FORWARDING}"
    );
    let second = format!(
        "address e0 10.9.0.2/24\naddress e1 10.2.0.1/24\nroute 10.1.0.0/24 via 10.9.0.1 dev e0\n{FORWARDING}"
    );
    let server = "address e0 10.2.0.201/24\nroute 10.1.0.0/24 via 10.2.0.1 dev e0\n";
    let hosts =
        |second: &str| [host("c1", client), host("r1", &first), host("r2", second), host("s1", server)];
    assert_eq!(broken(&hosts(&second)), Vec::<String>::new());
    let round = second.replace("10.2.0.1/24\n", "10.2.9.1/24\nroute 10.2.0.0/24 via 10.9.0.1 dev e0\n");
    let found = broken(&hosts(&round));
    assert!(found.contains(&"r1 route:routing:loop@3".to_owned()), "{found:?}");
}

#[test]
fn an_address_that_two_hosts_have() {
    let twice = broken(&with("c11", "10.1.0.11/24", "10.1.0.12/24"));
    assert_eq!(twice, ["c12 address:contradiction:duplicate@1"]);
    // Another host with a gateway's address is not the gateway.
    let of_gateway = broken(&with("c11", "10.1.0.11/24", "10.1.0.2/24"));
    assert!(of_gateway.contains(&"c11 address:contradiction:duplicate@1".to_owned()), "{of_gateway:?}");
    // Bridges of container engines have the same address everywhere.
    let mut hosts = site();
    for host in &mut hosts {
        of(&mut host.routing, "docker0").addresses.push("172.17.0.1/16".parse::<Prefix>().unwrap().into());
    }
    assert_eq!(broken(&hosts), Vec::<String>::new());
}

/// A host that was not given is reported once, without findings about it.
#[test]
fn hosts_that_were_not_given() {
    let hosts = &site()[..4];
    assert_eq!(broken(hosts), Vec::<String>::new());
    let missing = report_of(hosts).missing;
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].contains("10.1.0.1"), "{missing:?}");
    // A default route to a router that was not given leads anywhere.
    let elsewhere = with("c11", "10.2.0.0/24", "10.9.0.0/24");
    let found = broken(&elsewhere);
    assert!(found.iter().all(|it| it.starts_with("c11 ")) && !found.is_empty(), "{found:?}");
}

#[test]
fn a_wrong_weight_accuses_one_gateway_of_one_host() {
    let heavy = with("s201", "10.2.0.1,10.2.0.2", "10.2.0.1*3,10.2.0.2");
    assert_eq!(broken(&heavy), ["s201 gateway:routing:weights-differ@2"]);
    let report = report_of(&heavy);
    let found = report.findings.iter().find(|it| it.id.ends_with("weights-differ")).unwrap();
    assert!(found.message.starts_with("gw1 has another weight"), "{}", found.message);
    let light = with("c11", "10.1.0.1,10.1.0.2", "10.1.0.1,10.1.0.2*2");
    assert_eq!(broken(&light), ["c11 gateway:routing:weights-differ@2"]);
}

/// One weight of six is wrong: the gateway that has it is named, and no other.
#[test]
fn a_wrong_weight_with_six_gateways_is_one_finding() {
    let hops = |network: u8, heavy: Option<u8>| {
        let hop = |at: u8| {
            let weight = if heavy == Some(at) { "*3" } else { "" };
            format!("10.{network}.0.{at}{weight}")
        };
        (1..=6).map(hop).collect::<Vec<_>>().join(",")
    };
    let policy = "net.ipv4.fib_multipath_hash_policy = 1\n";
    let site = |heavy: Option<u8>| {
        let mut hosts = Vec::new();
        for at in [11, 12] {
            let route = format!("route 10.2.0.0/24 via {} dev e0\n", hops(1, None));
            hosts.push(host(&format!("c{at}"), &format!("address e0 10.1.0.{at}/24\n{route}{policy}")));
        }
        for at in [201, 202] {
            let hops = hops(2, heavy.filter(|_| at == 201));
            let route = format!("route 10.1.0.0/24 via {hops} dev e0\n");
            hosts.push(host(&format!("s{at}"), &format!("address e0 10.2.0.{at}/24\n{route}{policy}")));
        }
        for at in 1..=6 {
            let addresses = format!("address e0 10.1.0.{at}/24\naddress e1 10.2.0.{at}/24\n");
            hosts.push(host(&format!("gw{at}"), &format!("{addresses}{FORWARDING}")));
        }
        hosts
    };
    assert_eq!(broken(&site(None)), Vec::<String>::new());
    for heavy in [1, 4] {
        let hosts = site(Some(heavy));
        assert_eq!(broken(&hosts), ["s201 gateway:routing:weights-differ@2"]);
        let report = report_of(&hosts);
        let found = report.findings.iter().find(|it| it.id.ends_with("weights-differ")).unwrap();
        assert!(found.message.starts_with(&format!("gw{heavy} has another weight")), "{}", found.message);
    }
}

#[test]
fn ipv6_is_walked_too() {
    let client = "address e0 fd01::11/64\nroute fd02::/64 via fd01::1 dev e0\n";
    let server = "address e0 fd02::c9/64\n";
    let gateway = "address e0 fd01::1/64\naddress e1 fd02::1/64\nnet.ipv6.conf.all.forwarding = 1\n";
    let hosts = |server: &str, gateway: &str| [host("c1", client), host("s1", server), host("gw1", gateway)];
    assert_eq!(broken(&hosts(server, gateway)), ["s1 route:routing:no-route@0"]);
    let back = format!("{server}route fd01::/64 via fd02::1 dev e0\n");
    assert_eq!(broken(&hosts(&back, gateway)), Vec::<String>::new());
    // Of IPv6 the interface's own value does not stop packets (ip-sysctl.rst).
    let half = format!("{gateway}net.ipv6.conf.e0.forwarding = 0\n");
    assert_eq!(broken(&hosts(&back, &half)), Vec::<String>::new());
}

/// A mark is of one host: what arrives elsewhere has none, so that a filter that sees
/// marks looks the main table up (`IN_DEV_SRC_VMARK`, net/ipv4/fib_frontend.c).
#[test]
fn a_mark_does_not_cross_a_link() {
    let client = "address e0 10.1.0.11/24\nroute 10.2.0.0/24 via 10.1.0.1,10.1.0.2 dev e0\n\
                  route 10.2.0.0/24 blackhole table 9\nrule priority 100 fwmark 7 table 9\n\
                  net.ipv4.conf.e0.rp_filter = 1\nnet.ipv4.conf.e0.src_valid_mark = 1\n";
    let server = "address e0 10.2.0.201/24\nroute 10.1.0.0/24 via 10.2.0.1,10.2.0.2 dev e0\n\
                  route 10.1.0.0/24 via 10.2.0.1 dev e0 table 7\nrule priority 100 fwmark 7 table 7\n";
    let mut hosts = site();
    hosts[0] = host("c11", client);
    hosts[2] = host("s201", server);
    let mark = |gateway: &str| ConnectionMark {
        interface: "e0".to_owned(),
        link_address: String::new(),
        gateway: gateway.to_owned(),
        mark: 7,
    };
    hosts[2].routing.connection_marks = vec![mark("gw1"), mark("gw2")];
    let broken = broken(&hosts);
    assert!(!broken.iter().any(|it| it.contains("will-drop")), "{broken:?}");
}

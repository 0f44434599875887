//! Hosts that belong together.

use super::*;

const PLAIN_SERVER: &str = "\
address ib1 10.10.0.201/24
route 10.100.0.0/16 via 10.10.0.11,10.10.0.12 dev ib1
net.ipv4.fib_multipath_hash_policy = 1
";
const PLAIN_CLIENT: &str = "\
address ipogif0 10.100.0.1/16
route 10.10.0.0/24 via 10.100.0.91,10.100.0.92 dev ipogif0
net.ipv4.fib_multipath_hash_policy = 1
";

fn sides(server: &str, client: &str) -> [Subject; 4] {
    [host("nsd1", server), host("c1", client), gateway(1, 1), gateway(2, 1)]
}

#[test]
fn replies_that_return_by_another_gateway() {
    let id = "return:routing:asymmetric";
    assert_eq!(lines_of(&sides(PLAIN_SERVER, PLAIN_CLIENT), id), [2]);
    let report = report_of(&sides(PLAIN_SERVER, PLAIN_CLIENT));
    assert!(report.findings[0].message.contains("about 50 %"), "{}", report.findings[0].message);
    assert_eq!(report.findings[0].host.as_deref(), Some("nsd1"));
    // An address for each gateway, a mark, or equal seeds.
    assert_eq!(lines_of(&sides(SERVER, CLIENT), id), NONE);
    let marks = format!(
        "{PLAIN_SERVER}rule priority 1 fwmark 7 table 1\nroute default via 10.10.0.11 dev ib1 table 1\nmark 7\n"
    );
    assert_eq!(lines_of(&sides(&marks, PLAIN_CLIENT), id), NONE);
    let seed = "net.ipv4.fib_multipath_hash_seed = 7\n";
    let seeded = sides(&format!("{PLAIN_SERVER}{seed}"), &format!("{PLAIN_CLIENT}{seed}"));
    assert_eq!(lines_of(&seeded, id), NONE);
    let other = sides(&format!("{PLAIN_SERVER}{seed}"), &format!("{PLAIN_CLIENT}{}", seed.replace('7', "8")));
    assert_eq!(lines_of(&other, id), [2]);
    // One gateway there, another one back.
    let one = sides(
        "address ib1 10.10.0.201/24\nroute 10.100.0.0/16 via 10.10.0.11 dev ib1\n",
        "address ipogif0 10.100.0.1/16\nroute 10.10.0.0/24 via 10.100.0.92 dev ipogif0\n",
    );
    assert_eq!(lines_of(&one, id), [2]);
}

#[test]
fn a_stateful_gateway_makes_it_an_error() {
    let mut hosts = sides(PLAIN_SERVER, PLAIN_CLIENT);
    hosts[3].routing.sysctls.insert(CONNECTION_COUNT.to_owned(), "12".to_owned().into());
    assert_eq!(lines_of(&hosts, "return:unsafe:asymmetric-through-stateful"), [2]);
    assert_eq!(lines_of(&hosts, "return:routing:asymmetric"), NONE);
    let mut hosts = sides(SERVER, CLIENT);
    hosts[3].routing.sysctls.insert(CONNECTION_COUNT.to_owned(), "12".to_owned().into());
    assert!(report_of(&hosts).findings.is_empty());
}

/// Tables for each gateway that the server's own packets never reach.
#[test]
fn tables_that_are_never_reached_leave_replies_to_chance() {
    let text = "rule priority 1 from 10.10.0.11 table 1\nrule priority 2 from 10.10.0.12 table 2\n\
                route default via 10.10.0.11 dev ib1 table 1\nroute default via 10.10.0.12 dev ib1 table 2\n\
                route 10.100.0.0/16 via 10.10.0.11,10.10.0.12 dev ib1\n";
    assert_eq!(lines(text, "return:routing:asymmetric"), [5]);
    assert_eq!(lines(SERVER, "return:routing:asymmetric"), NONE);
}

#[test]
fn gateways_of_one_side_only() {
    let id = "gateway:routing:one-side-only";
    let three = PLAIN_CLIENT.replace("10.100.0.92 dev", "10.100.0.92,10.100.0.93 dev");
    let mut hosts = sides(PLAIN_SERVER, &three).to_vec();
    // Their hosts are not all known: by the count.
    assert_eq!(lines_of(&hosts, id), [2]);
    hosts.push(gateway(3, 1));
    let report = report_of(&hosts);
    let found: Vec<_> = report.findings.iter().filter(|finding| finding.id == id).collect();
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("sn3"), "{}", found[0].message);
    assert_eq!(lines_of(&sides(PLAIN_SERVER, PLAIN_CLIENT), id), NONE);
}

#[test]
fn weights_and_order() {
    let weighted = PLAIN_SERVER.replace("10.10.0.11,", "10.10.0.11*3,");
    let id = "gateway:routing:weights-differ";
    assert_eq!(lines_of(&sides(&weighted, PLAIN_CLIENT), id), [2]);
    let both = PLAIN_CLIENT.replace("10.100.0.91,", "10.100.0.91*3,");
    assert_eq!(lines_of(&sides(&weighted, &both), id), NONE);

    let id = "gateway:routing:order-differs";
    let seed = "net.ipv4.fib_multipath_hash_seed = 7\n";
    let turned = PLAIN_CLIENT.replace("10.100.0.91,10.100.0.92", "10.100.0.92,10.100.0.91");
    let with =
        |client: &str| lines_of(&sides(&format!("{PLAIN_SERVER}{seed}"), &format!("{client}{seed}")), id);
    assert_eq!(with(&turned), [2]);
    assert_eq!(with(PLAIN_CLIENT), NONE);
    assert_eq!(lines_of(&sides(PLAIN_SERVER, &turned), id), NONE, "without seeds the order is of no account");
}

#[test]
fn a_destination_that_is_not_the_other_network() {
    let id = "route:routing:not-the-other-network";
    let wrong = PLAIN_CLIENT.replace("10.10.0.0/24", "10.10.1.0/24");
    assert_eq!(lines_of(&[host("nsd1", PLAIN_SERVER), host("c1", &wrong)], id), [2]);
    assert_eq!(lines_of(&[host("nsd1", PLAIN_SERVER), host("c1", PLAIN_CLIENT)], id), NONE);
    // The server's address is not known, but its gateways are its neighbours.
    let nameless = PLAIN_SERVER.replace("address ib1 10.10.0.201/24", "");
    assert_eq!(lines_of(&[host("nsd1", &nameless), host("c1", &wrong)], id), [2]);
    assert_eq!(lines_of(&[host("nsd1", &nameless), host("c1", PLAIN_CLIENT)], id), NONE);
}

#[test]
fn mtu_and_mode_on_one_link() {
    let mut hosts = sides(SERVER, CLIENT);
    let id = "link.mtu:path:differs-on-the-link";
    let set = |hosts: &mut [Subject; 4], at: usize, name: &str, bytes: u32| {
        of(&mut hosts[at].routing, name).mtu = Some(bytes.into());
    };
    for (at, name) in [(0, "ib1"), (2, "ib0"), (3, "ib0")] {
        set(&mut hosts, at, name, 65520);
    }
    assert_eq!(lines_of(&hosts, id), NONE);
    set(&mut hosts, 3, "ib0", 2044);
    assert_eq!(lines_of(&hosts, id), [0]);
    assert_eq!(report_of(&hosts).findings[0].host.as_deref(), Some("sn2"));

    let server = format!("{SERVER}mode ib1 connected\n");
    let mut hosts = sides(&server, CLIENT);
    for at in [2, 3] {
        of(&mut hosts[at].routing, "ib0").infiniband_mode =
            Some(clearstream_schema::fabric::InfinibandMode::Datagram.into());
    }
    assert_eq!(lines_of(&hosts, "link.infiniband-mode:contradiction:differs-on-the-link"), [10]);
}

#[test]
fn mtu_along_the_path() {
    let id = "link.mtu:path:differs-along-the-path";
    let server = format!("{PLAIN_SERVER}mtu ib1 65520\n");
    let client = format!("{PLAIN_CLIENT}mtu ipogif0 16000\n");
    assert_eq!(lines_of(&sides(&server, &client), id), [4]);
    let with_mtu = server.replace("dev ib1", "dev ib1 mtu 16000");
    assert_eq!(lines_of(&sides(&with_mtu, &client), id), NONE);
    // Narrower in between than at both ends.
    let mut hosts = sides(&server.replace("65520", "9000"), &client.replace("16000", "9000"));
    of(&mut hosts[2].routing, "ib0").mtu = Some(1500.into());
    let report = report_of(&hosts);
    let found: Vec<_> = report.findings.iter().filter(|finding| finding.id == id).collect();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].severity, Severity::Warning);
}

/// Work grows with the hosts and not with their square, however they differ; a
/// mistake is reported for each host that has it.
#[test]
fn many_hosts_that_differ() {
    let many = |count: u32, client: &dyn Fn(u32) -> String| -> Vec<Subject> {
        let address = |at: u32| format!("10.100.{}.{}", 10 + at / 250, 1 + at % 250);
        let clients = (0..count).map(|at| {
            host(&format!("c{at}"), &client(at).replace("10.100.0.1/", &format!("{}/", address(at))))
        });
        let servers = (0..count / 10).map(|at| {
            let text = PLAIN_SERVER.replace("10.10.0.201", &format!("10.10.0.{}", 100 + at));
            host(&format!("nsd{at}"), &format!("{text}route 192.0.2.{at} via 10.10.0.11 dev ib1\n"))
        });
        clients.chain(servers).chain([gateway(1, 1), gateway(2, 1)]).collect()
    };
    let differing = |at: u32| {
        format!("{PLAIN_CLIENT}route 198.51.100.{}/32 via 10.100.0.91 dev ipogif0 metric {at}\n", at % 250)
    };
    let pairs = |hosts: &[Subject]| {
        let views: Vec<View<'_>> = hosts.iter().map(|host| View::new(host, false)).collect();
        let compared = among::compared(&views);
        (compared.pairs.len(), compared.is_cut)
    };
    let (few, many_hosts) = (many(20, &differing), many(1000, &differing));
    assert_eq!(pairs(&few), (20 * 2, false), "each with each");
    let (count, is_cut) = pairs(&many_hosts);
    assert!(is_cut && count <= many_hosts.len() * among::MOST_COMPARED, "{count}");
    assert!(report_of(&many_hosts).missing.iter().any(|line| line.contains("commonest kinds first")));
    assert_eq!(report_of(&few).missing, Vec::<String>::new());

    // Every fourth has the same wrong network.
    let id = "route:routing:not-the-other-network";
    let wrong = |at: u32| match at % 4 {
        0 => PLAIN_CLIENT.replace("10.10.0.0/24", "10.10.1.0/24"),
        _ => PLAIN_CLIENT.to_owned(),
    };
    assert_eq!(lines_of(&many(100, &wrong), id).len(), 25);
}

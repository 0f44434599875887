//! Setups that work and have no finding: address translation, bridges that each
//! host has for itself, gateways that share an address, routers that were not
//! given, proxies of ARP.

use clearstream_schema::routing::{SourceTranslation, files::UnknownRoute};

use super::{paths::FORWARDING, *};

const CLIENT: &str = "address e0 10.1.0.11/24\nroute 10.2.0.0/24 via 10.1.0.1 dev e0\n";
const SERVER: &str = "address e0 10.2.0.201/24\n";

/// A client behind a gateway, and a server without a route back.
fn behind(translations: Option<Vec<SourceTranslation>>) -> Vec<Subject> {
    let gateway =
        format!("address e0 10.1.0.1/24\naddress e1 10.2.0.1/24\n{FORWARDING}{CONNECTION_COUNT} = 3\n");
    let mut hosts = vec![host("c1", CLIENT), host("s1", SERVER), host("gw1", &gateway)];
    for host in &mut hosts {
        host.is_whole = true;
        host.routing.source_translations = Some(Vec::new());
    }
    hosts[2].routing.source_translations = translations;
    hosts
}

fn by(output: &str) -> SourceTranslation {
    SourceTranslation { output: Some(output.to_owned()), ..SourceTranslation::default() }
}

fn found(hosts: &[Subject]) -> Vec<String> {
    let report = report_of(hosts);
    report.findings.iter().map(|it| format!("{} {}", it.host.as_deref().unwrap_or_default(), it.id)).collect()
}

const NONE_FOUND: [&str; 0] = [];
const NO_ROUTE: [&str; 1] = ["s1 route:routing:no-route"];

#[test]
fn behind_masquerade_the_server_needs_no_route_back() {
    let translated = behind(Some(vec![by("e1")]));
    assert_eq!(found(&translated), NONE_FOUND);
    assert_eq!(report_of(&translated).missing, NONE_FOUND);
    // Loose and strict filters of the server see the gateway's address.
    for value in ["1", "2"] {
        let mut hosts = behind(Some(vec![by("e1")]));
        hosts[1].routing.sysctls.insert("net.ipv4.conf.all.rp_filter".to_owned(), value.to_owned().into());
        assert_eq!(found(&hosts), NONE_FOUND, "{value}");
    }
    // Two gateways behind each other that both translate.
    let mut hosts = behind(Some(vec![by("e1")]));
    let first = format!(
        "address e0 10.1.0.1/24\naddress e1 10.9.0.1/24\nroute 10.2.0.0/24 via 10.9.0.2 dev e1\n{FORWARDING}"
    );
    let second = format!("address e0 10.9.0.2/24\naddress e1 10.2.0.1/24\n{FORWARDING}");
    hosts[2] = host("gw1", &first);
    hosts.push(host("gw2", &second));
    for gateway in &mut hosts[2..] {
        gateway.is_whole = true;
        gateway.routing.source_translations = Some(vec![by("e1")]);
    }
    assert_eq!(found(&hosts), NONE_FOUND);
    hosts[3].routing.source_translations = Some(Vec::new());
    assert_eq!(found(&hosts), ["s1 route:routing:no-route"]);
}

/// A default route by DHCP, or one whose gateway a shell fills in: the way back is not known, and no error. A known
/// route that is more exact decides.
#[test]
fn a_route_that_is_not_known_completely_is_not_missing() {
    let unknown = |table: Option<u32>, destination: Option<&str>| UnknownRoute {
        table,
        destination: destination.map(prefix),
        reason: "by DHCP".to_owned(),
    };
    for route in
        [unknown(Some(MAIN_TABLE), Some("default")), unknown(None, None), unknown(None, Some("10.1.0.0/16"))]
    {
        let mut hosts = behind(Some(Vec::new()));
        hosts[1].is_whole = false;
        hosts[1].routing.files.unknown_routes.push(route.clone());
        assert_eq!(found(&hosts), NONE_FOUND, "{route:?}");
        assert!(
            report_of(&hosts).missing[0].contains("not known completely"),
            "{:?}",
            report_of(&hosts).missing
        );
    }
    for route in [unknown(Some(7), Some("default")), unknown(Some(MAIN_TABLE), Some("192.0.2.0/24"))] {
        let mut hosts = behind(Some(Vec::new()));
        hosts[1].routing.files.unknown_routes.push(route.clone());
        assert_eq!(found(&hosts), NO_ROUTE, "{route:?}");
    }
}

/// A packet of an interface of a VRF is looked up in its table first, and its addresses are there.
#[test]
fn a_router_with_vrfs_leads_by_their_tables() {
    let router = format!("address e0 10.1.0.1/24\naddress e1 10.2.0.1/24\n{FORWARDING}");
    let server = format!("{SERVER}route 10.1.0.0/24 via 10.2.0.1 dev e0\n");
    let mut hosts = [host("c1", CLIENT), host("s1", &server), host("r1", &router)];
    assert_eq!(found(&hosts), NONE_FOUND);
    let files = &mut hosts[2].routing.files;
    for name in ["e0", "e1"] {
        files.vrf_members.insert(name.to_owned(), 10);
        files.connected.insert((name.to_owned(), false), 10);
    }
    assert_eq!(found(&hosts), NONE_FOUND);
    // Two VRFs do not lead to each other.
    hosts[2].routing.files.vrf_members.insert("e1".to_owned(), 11);
    hosts[2].routing.files.connected.insert(("e1".to_owned(), false), 11);
    assert!(found(&hosts).contains(&"r1 route:routing:no-route".to_owned()), "{:?}", found(&hosts));
}

/// SNAT to an address that only the gateway's own link leads to: the server's
/// reply finds no route to it.
#[test]
fn a_source_that_nobody_routes_is_found() {
    let to = |to: &str| SourceTranslation { to: Some(to.parse().unwrap()), ..by("e1") };
    assert_eq!(found(&behind(Some(vec![to("10.2.0.1")]))), NONE_FOUND);
    assert_eq!(found(&behind(Some(vec![to("192.0.2.9")]))), NO_ROUTE);
}

/// A rule for other packets than these changes nothing.
#[test]
fn translation_of_others_is_none() {
    let docker = SourceTranslation {
        from: Some("172.17.0.0/16".parse().unwrap()),
        is_conditional: true,
        ..SourceTranslation::default()
    };
    let ipv6 = SourceTranslation { ipv6: Some(true), ..SourceTranslation::default() };
    for translations in [vec![], vec![by("e0")], vec![docker], vec![ipv6]] {
        assert_eq!(found(&behind(Some(translations.clone()))), NO_ROUTE, "{translations:?}");
    }
}

#[test]
fn what_may_be_translated_is_a_notice() {
    let conditional = SourceTranslation { is_conditional: true, ..by("e1") };
    for translations in [None, Some(vec![conditional])] {
        let hosts = behind(translations.clone());
        assert_eq!(found(&hosts), NONE_FOUND, "{translations:?}");
        let missing = report_of(&hosts).missing;
        assert_eq!(missing.len(), 1, "{missing:?}");
        let unknown = "whether gw1 replaces source addresses (masquerade, SNAT)";
        assert!(
            missing[0].contains(unknown) && missing[0].contains("from c1 to 10.2.0.201 of s1"),
            "{missing:?}"
        );
    }
    // A kernel that tracks no connections translates nothing; nor do files without
    // such rules.
    let mut untracked = behind(None);
    untracked[2].routing.sysctls.remove(CONNECTION_COUNT);
    assert_eq!(found(&untracked), NO_ROUTE);
    // What fails with and without translation is a finding: the gateway has no
    // route.
    let mut broken = behind(None);
    broken[2].routing.interfaces.retain(|interface| interface.name != "e1");
    assert!(!found(&broken).is_empty());
}

/// Bridges with the same address everywhere are as many links.
#[test]
fn a_bridge_of_each_host_has_an_mtu_of_its_own() {
    let one = |name: &str, own: u8, bridge: &str, mtu: u32| {
        host(name, &format!("address e0 10.1.0.{own}/24\naddress docker0 {bridge}\nmtu docker0 {mtu}\n"))
    };
    let alone = "172.17.0.1/16";
    assert_eq!(found(&[one("a", 1, alone, 1500), one("b", 2, alone, 1450)]), NONE_FOUND);
    let differ = found(&[one("a", 1, alone, 1500), one("b", 2, "172.17.0.2/16", 1450)]);
    assert_eq!(differ, ["b link.mtu:path:differs-on-the-link"]);
}

/// The anycast gateway of EVPN: two routers with one address, and one of their own.
#[test]
fn gateways_may_share_an_address() {
    let router = |name: &str, at: u8| {
        let own = format!("address e0 10.1.0.{at}/24\naddress e1 10.2.0.{at}/24\n");
        host(name, &format!("address e0 10.1.0.1/24\naddress e1 10.2.0.1/24\n{own}{FORWARDING}"))
    };
    let server = format!("{SERVER}route 10.1.0.0/24 via 10.2.0.1 dev e0\n");
    let hosts = [host("c1", CLIENT), host("s1", &server), router("leaf1", 2), router("leaf2", 3)];
    assert_eq!(found(&hosts), NONE_FOUND);
    // A host with the gateways' address is none of them.
    let stranger = host("c2", "address e0 10.1.0.1/24\n");
    let with = [&hosts[..], &[stranger]].concat();
    assert!(found(&with).contains(&"c2 address:contradiction:duplicate".to_owned()), "{:?}", found(&with));
}

/// A second router that is used in one direction and was not given may exist.
#[test]
fn a_router_that_was_not_given_is_a_notice() {
    let client = CLIENT.replace("10.1.0.1 ", "10.1.0.1,10.1.0.9 ");
    let server = format!("{SERVER}route 10.1.0.0/24 via 10.2.0.1 dev e0\n");
    let gateway = format!("address e0 10.1.0.1/24\naddress e1 10.2.0.1/24\n{FORWARDING}");
    let hosts = [host("c1", &client), host("s1", &server), host("gw1", &gateway)];
    let found = found(&hosts);
    assert!(found.iter().all(|it| !it.contains("nobody-has-it")), "{found:?}");
    let missing = report_of(&hosts).missing;
    assert!(missing.iter().any(|it| it.contains("10.1.0.9")), "{missing:?}");
}

/// A router that replies to ARP for the network behind it.
#[test]
fn a_proxy_of_arp_makes_neighbours() {
    let client = "address e0 10.1.0.11/24\nroute 10.2.0.0/24 dev e0\n";
    let server = format!("{SERVER}route 10.1.0.0/24 via 10.2.0.1 dev e0\n");
    let router = |proxies: &str| {
        let text = format!("address e0 10.1.0.1/24\naddress e1 10.2.0.1/24\n{FORWARDING}{proxies}");
        [host("c1", client), host("s1", &server), host("r1", &text)]
    };
    for key in ["all", "e0"] {
        assert_eq!(found(&router(&format!("net.ipv4.conf.{key}.proxy_arp = 1\n"))), NONE_FOUND, "{key}");
    }
    for proxies in ["", "net.ipv4.conf.e0.proxy_arp = 0\n", "net.ipv4.conf.e1.proxy_arp = 1\n"] {
        assert_eq!(found(&router(proxies)), ["c1 route:routing:not-on-the-link"], "{proxies}");
    }
}

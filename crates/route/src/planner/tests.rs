use std::collections::BTreeSet;

use clearstream_schema::{
    fabric::FabricFile,
    route_plan::{ProofMethod, ProofOutcome},
    routing::{NexthopTarget, RouteAction, RuleAction},
};
use clearstream_tune::KernelVersion;

use super::{
    lookup::{Lookup, Packet, Verdict},
    *,
};
use crate::fabric;

/// A built-in fabric with its only route changed.
fn with(name: &str, change: impl FnOnce(&mut FabricFile)) -> Fabric {
    let mut file = fabric::load(name).unwrap().file().clone();
    change(&mut file);
    Fabric::new(file).unwrap()
}

fn with_path(name: &str, path: ReturnPath) -> Fabric {
    with(name, |file| file.routes[0].return_path = path)
}

fn gateways_of(verdict: &Verdict<'_>) -> Vec<String> {
    match verdict {
        Verdict::Gateways(hops, _) => hops.iter().map(|hop| hop.via.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

/// The paper's site: section IV of the paper, and the two mistakes in what it prints.
#[test]
fn the_site_of_the_paper_gets_what_it_meant() {
    let fabric = fabric::load("cumulus-wolf").unwrap();
    let planner = Planner::new(&fabric);
    let server = planner.routing(fabric.find("nsd1").unwrap());
    // "There exists one table per service node", and the rules are for
    // addresses that the server has.
    let own: BTreeSet<_> =
        server.interfaces[0].addresses.iter().map(|address| address.value.address).collect();
    assert_eq!(server.rules.len(), 6);
    for rule in &server.rules {
        assert!(own.contains(&rule.selector.from.unwrap().address), "{rule:?}");
        let RuleAction::Table(table) = rule.action else { panic!() };
        let routes: Vec<_> = server.routes.iter().filter(|route| route.table == table).collect();
        // No neighbour route hides the gateway of a table.
        assert_eq!(routes.len(), 1);
        assert!(!matches!(routes[0].action, RouteAction::Link { .. }));
        assert_eq!(routes[0].destination.to_string(), "10.100.0.0/16");
    }
    let lookup = Lookup::new(&server);
    let client = "10.100.0.7".parse().unwrap();
    // All six, each once, by the addresses of table I.
    let main = lookup.find(&Packet::sent("10.10.0.201".parse().unwrap(), client));
    let all: Vec<String> = (11..=16).map(|last| format!("10.10.0.{last}")).collect();
    assert_eq!(gateways_of(&main.verdict), all);
    // "ensures response traffic on the IPoIB network uses the same I/O node"
    for (alias, gateway) in (211..=216).zip(&all) {
        let alias = format!("10.10.0.{alias}").parse().unwrap();
        let found = lookup.find(&Packet::sent(alias, client));
        assert_eq!(gateways_of(&found.verdict), std::slice::from_ref(gateway));
    }
    let gateway = planner.routing(fabric.find("sn1").unwrap());
    assert_eq!(gateway.sysctls["net.ipv4.ip_forward"].value, "1");
    assert!(gateway.routes.is_empty() && gateway.rules.is_empty());
    let proof = planner.prove(0);
    assert_eq!((proof.outcome, proof.method), (ProofOutcome::Symmetric, ProofMethod::Exhaustive));
    // 66 clients, 4 servers: 6 gateways for the first address and one for each alias.
    assert_eq!(proof.walk_count, 66 * 4 * (6 + 6));
}

#[test]
fn each_promise_is_proved_in_both_families() {
    for path in [ReturnPath::Alias, ReturnPath::ConnectionMark, ReturnPath::EqualSeed] {
        let fabric = with_path("gateways-6", path);
        let proof = Planner::new(&fabric).prove(0);
        assert_eq!(proof.outcome, ProofOutcome::Symmetric, "{path:?}: {:?}", proof.counterexample);
        let addresses = if path == ReturnPath::Alias { 12 } else { 6 };
        assert_eq!(proof.walk_count, 9 * 2 * 2 * addresses, "{path:?}");
        assert!(!proof.conditions.is_empty());
    }
    let fabric = with_path("gateways-6", ReturnPath::None);
    assert_eq!(Planner::new(&fabric).prove(0).outcome, ProofOutcome::NotPromised);
}

/// A mistake in the files of one host is found, with the walk.
#[test]
fn what_breaks_symmetry_or_reach_is_found() {
    type Break = fn(&mut HostRouting);
    let cases: [(ReturnPath, &str, Break, &str); 9] = [
        (ReturnPath::Alias, "storage-1", |host| host.rules.truncate(3), "the reply of storage-1"),
        (
            ReturnPath::Alias,
            "storage-1",
            |host| host.rules[0].action = RuleAction::Table(7002),
            "goes over gw2",
        ),
        (
            ReturnPath::Alias,
            "compute-3",
            |host| host.routes.retain(|route| route.destination.length != 32),
            "the reply of",
        ),
        (
            ReturnPath::ConnectionMark,
            "storage-2",
            |host| host.connection_marks.clear(),
            "the reply of storage-2",
        ),
        // The paper's mistake: the remote network as a neighbour in a gateway's
        // table.
        (
            ReturnPath::ConnectionMark,
            "storage-2",
            |host| {
                for route in host.routes.iter_mut().filter(|route| route.table == 7003) {
                    route.action = RouteAction::Link { interface: "storage0".to_owned() };
                }
            },
            "as a neighbour on storage0 in table 7003",
        ),
        (
            ReturnPath::EqualSeed,
            "compute-2",
            |host| {
                host.sysctls.insert("net.ipv4.fib_multipath_hash_seed".to_owned(), "7".to_owned().into());
            },
            "fib_multipath_hash_seed",
        ),
        (
            ReturnPath::EqualSeed,
            "compute-2",
            |host| {
                for nexthop in &mut host.nexthops {
                    if let NexthopTarget::Group { members, .. } = &mut nexthop.target {
                        members.swap(0, 1);
                    }
                }
            },
            "other gateways, orders or weights",
        ),
        (ReturnPath::None, "gw4", |host| host.sysctls.clear(), "gw4 does not forward"),
        (ReturnPath::None, "compute-1", |host| host.routes.clear(), "no route"),
    ];
    for (path, name, break_it, expected) in cases {
        let fabric = with_path("gateways-6", path);
        let planner = Planner::new(&fabric);
        let proof = planner.prove_with(0, &|host| {
            let mut routing = planner.routing(host);
            if routing.host == name {
                break_it(&mut routing);
            }
            routing
        });
        assert_eq!(proof.outcome, ProofOutcome::Fails, "{path:?} {name}");
        let found = proof.counterexample.unwrap();
        assert!(found.problem.contains(expected), "{path:?} {name}: {found:?}");
    }
}

/// A host on two networks that replies by the first: the strict filter drops what
/// came by the second (RFC 3704), so the loose one is planned.
#[test]
fn a_strict_filter_on_a_host_with_two_uplinks_is_found() {
    let two = with("gateways-6", |file| {
        let mut other = file.networks[0].clone();
        other.name = "second".to_owned();
        other.prefixes = vec!["10.101.0.0/16".parse().unwrap()];
        file.networks.push(other);
        let mut link = file.classes[0].links[0].clone();
        (link.network, link.interface) = ("second".to_owned(), "second0".to_owned());
        link.addresses = vec!["10.101.0.[91-96]".to_owned()];
        file.classes[0].links.push(link.clone());
        link.addresses = vec!["10.101.0.[1-8]".to_owned()];
        file.classes[2].links.push(link);
        let mut route = file.routes[0].clone();
        route.between[0] = "second".to_owned();
        file.routes.push(route);
    });
    let planner = Planner::new(&two);
    let host = planner.routing(two.find("compute-1").unwrap());
    assert_eq!(host.sysctls["net.ipv4.conf.second0.rp_filter"].value, "2");
    assert_ne!(planner.prove(1).outcome, ProofOutcome::Fails);
    let strict = planner.prove_with(1, &|host| {
        let mut routing = planner.routing(host);
        routing.sysctls.insert("net.ipv4.conf.second0.rp_filter".to_owned(), "1".to_owned().into());
        routing
    });
    let found = strict.counterexample.unwrap();
    assert!(found.problem.contains("strict reverse path filter"), "{found:?}");
}

#[test]
fn the_reason_names_what_one_gateway_failure_affects() {
    assert_eq!(
        super::choice::choose(&fabric::load("gateways-6").unwrap(), 0).because,
        "no gateway keeps state, so nothing breaks when 83 % of the flows return by another gateway; the cost is \
         that 31 % instead of 17 % of the flows are affected by one gateway failure"
    );
}

#[test]
fn the_recommendation_follows_the_fabric() {
    let recommended = |fabric: &Fabric| Planner::new(fabric).choice(0).recommended;
    let stateful = |file: &mut FabricFile| file.classes[0].stateful = true;
    assert_eq!(recommended(&fabric::load("gateways-6").unwrap()), ReturnPath::None);
    assert_eq!(recommended(&with("gateways-6", stateful)), ReturnPath::ConnectionMark);
    assert_eq!(recommended(&fabric::load("dual-stack").unwrap()), ReturnPath::ConnectionMark);
    // IPoIB shows no Ethernet source address: the spare addresses are taken.
    assert_eq!(recommended(&with("cumulus-wolf", stateful)), ReturnPath::Alias);
    let without_spare = with("cumulus-wolf", |file| {
        stateful(file);
        file.routes[0].return_path = ReturnPath::Auto;
        file.classes[1].links[0].alias_addresses.clear();
    });
    assert_eq!(recommended(&without_spare), ReturnPath::EqualSeed);
    let one_gateway = with("gateways-6", |file| {
        file.classes[0].hosts = vec!["gw1".to_owned()];
        for (link, address) in [(0, "10.100.0.91"), (1, "10.10.0.11")] {
            file.classes[0].links[link].addresses = vec![address.to_owned()];
        }
        file.classes[1].links[0].alias_addresses.clear();
    });
    assert_eq!(recommended(&one_gateway), ReturnPath::None);
    assert_eq!(Planner::new(&one_gateway).prove(0).outcome, ProofOutcome::Symmetric);
}

/// Flows that never pause return to a gateway after a minute, as the fabric's
/// default wants it, but not over gateways that keep state of them.
#[test]
fn busy_buckets_move_unless_a_gateway_keeps_state() {
    let timers = |fabric: &Fabric| {
        let planner = Planner::new(fabric);
        let mut found = BTreeSet::new();
        for host in ["compute-1", "login-1", "storage-2"] {
            let routing = planner.routing(fabric.find(host).unwrap());
            let resilient = routing.nexthops.iter().filter_map(|nexthop| match &nexthop.target {
                NexthopTarget::Group { resilient, .. } => *resilient,
                _ => None,
            });
            let before = found.len();
            found.extend(resilient.map(|resilient| (resilient.idle_seconds, resilient.unbalanced_seconds)));
            assert!(!found.is_empty() && found.len() <= before.max(1), "{host}: {found:?}");
        }
        found.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(timers(&fabric::load("gateways-6").unwrap()), [(60, 60)]);
    // One of them is enough: a flow may go by any.
    let stateful = with("gateways-6", |file| {
        let mut keeper = file.classes[0].clone();
        keeper.name = "keeper".to_owned();
        keeper.stateful = true;
        keeper.hosts = vec!["gw7".to_owned()];
        keeper.links[0].addresses = vec!["10.100.0.97".to_owned(), "fd64:100::97".to_owned()];
        keeper.links[1].addresses = vec!["10.10.0.17".to_owned(), "fd64:10::17".to_owned()];
        file.classes.push(keeper);
        file.classes[1].links[0].alias_addresses.clear();
        file.routes[0].via.push("keeper".to_owned());
    });
    assert_eq!(timers(&stateful), [(60, 0)]);
    let unbounded = |fabric: &Fabric| {
        Planner::new(fabric).notices().iter().filter(|it| it.contains("no time bounds until when")).count()
    };
    assert_eq!((unbounded(&stateful), unbounded(&fabric::load("gateways-6").unwrap())), (1, 0));
    let configured = with("gateways-6", |file| file.numbers.unbalanced_seconds = 7);
    assert_eq!(timers(&configured), [(60, 7)]);
}

/// Measured on Linux 6.18 with six gateways: 79 to 85 % of the flows returned
/// by another gateway, 5/6 are expected; none did with the other mechanisms.
#[test]
fn prices_agree_with_what_was_measured() {
    let fabric = fabric::load("gateways-6").unwrap();
    let planner = Planner::new(&fabric);
    for price in &planner.choice(0).costs {
        let expected = if price.return_path == ReturnPath::None { 5.0 / 6.0 } else { 0.0 };
        assert!((price.other_gateway_ratio - expected).abs() < 1e-9, "{price:?}");
        let hit = if price.return_path == ReturnPath::None { 11.0 / 36.0 } else { 1.0 / 6.0 };
        assert!((price.hit_ratio - hit).abs() < 1e-9, "{price:?}");
    }
    let shares = shares::simulate(&planner, 0, &Population { flows_per_pair: 300, ..Population::default() });
    assert!((0.79..=0.86).contains(&shares.other_gateway_ratio), "{}", shares.other_gateway_ratio);
}

#[test]
fn shares_follow_the_weights_and_seeds_make_them_symmetric() {
    let weighted = with("gateways-6", |file| {
        file.routes[0].return_path = ReturnPath::EqualSeed;
        let mut heavy = file.classes[0].clone();
        heavy.name = "heavy".to_owned();
        heavy.weight = 3;
        heavy.hosts = vec!["gw7".to_owned()];
        heavy.links[0].addresses = vec!["10.100.0.97".to_owned()];
        heavy.links[1].addresses = vec!["10.10.0.17".to_owned()];
        file.classes.push(heavy);
        file.classes[1].links[0].alias_addresses.clear();
        file.routes[0].via.push("heavy".to_owned());
    });
    let planner = Planner::new(&weighted);
    let shares = shares::simulate(&planner, 0, &Population { flows_per_pair: 400, ..Population::default() });
    assert!(shares.seed_is_known);
    assert!(shares.other_gateway_ratio.abs() < f64::EPSILON);
    for share in &shares.gateways {
        let expected = if share.name == "gw7" { 3.0 / 9.0 } else { 1.0 / 9.0 };
        assert!((share.expected_ratio - expected).abs() < 1e-9);
        // Five standard deviations of a binomial.
        let deviation = (expected * (1.0 - expected) / shares.flow_count as f64).sqrt();
        assert!((share.forward_ratio - expected).abs() < 5.0 * deviation, "{share:?}");
    }
}

#[test]
fn old_kernels_get_classic_routes_without_what_they_lack() {
    let fabric = fabric::load("dual-stack").unwrap();
    let planner = Planner::new(&fabric);
    let old = planner.routing(fabric.find("instrument1").unwrap());
    assert!(old.nexthops.is_empty());
    let RouteAction::Gateways(hops) = &old.routes[0].action else { panic!("{old:?}") };
    let weights: Vec<u16> = hops.iter().map(|hop| hop.weight).collect();
    assert_eq!(weights, [3, 3, 1, 1]);
    let new = planner.routing(fabric.find("desk01").unwrap());
    let resilient = |nexthop: &clearstream_schema::routing::Nexthop| {
        matches!(nexthop.target, NexthopTarget::Group { resilient: Some(_), .. })
    };
    assert_eq!(new.nexthops.iter().filter(|nexthop| resilient(nexthop)).count(), 2, "one for each family");
    // 5.14 has resilient groups, 5.4 has groups; the kernel of a known host
    // overrides the file.
    let class = fabric.find_class("desk").unwrap();
    for (release, expected) in [
        ("5.14.0-427.el9", Multipath::Resilient),
        ("5.4.0-42-generic", Multipath::Group),
        ("3.10.0-1160", Multipath::Classic),
    ] {
        let planner = Planner::new(&fabric).with_kernel(class, KernelFeatures::read(Some(release), None));
        assert_eq!(planner.multipath(0, class).0, expected, "{release}");
    }
}

#[test]
fn kernel_options_that_are_missing_are_named() {
    let fabric = fabric::load("dual-stack").unwrap();
    let planner = Planner::new(&fabric);
    let server = planner.routing(fabric.find("server1").unwrap());
    // The compute kernel of the paper before it was rebuilt (section IV.B.2).
    let kernel = KernelFeatures::read(
        Some("6.12.1"),
        Some("CONFIG_IP_ADVANCED_ROUTER=y\n# CONFIG_IP_MULTIPLE_TABLES is not set\n"),
    );
    let missing: Vec<&str> = kernel.missing(&server).iter().map(|need| need.name).collect();
    assert!(
        missing.contains(&"CONFIG_IP_MULTIPLE_TABLES") && missing.contains(&"CONFIG_IP_ROUTE_MULTIPATH"),
        "{missing:?}"
    );
    assert!(!missing.contains(&"CONFIG_IP_ADVANCED_ROUTER"));
    let all = "CONFIG_IP_ADVANCED_ROUTER=y\nCONFIG_IP_MULTIPLE_TABLES=y\nCONFIG_IPV6_MULTIPLE_TABLES=y\nCONFIG_IP_ROUTE_MULTIPATH=y\nCONFIG_NF_CONNTRACK=m\nCONFIG_NF_CONNTRACK_MARK=y\nCONFIG_NF_TABLES=m\nCONFIG_NFT_CT=m\n";
    assert!(KernelFeatures::read(Some("6.12.1"), Some(all)).missing(&server).is_empty());
    let old = KernelFeatures::read(Some("5.4"), None).missing(&server);
    assert!(old.iter().any(|need| need.since == Some(KernelVersion::new(5, 13, 0))), "{old:?}");
}

#[test]
fn mtu_mode_and_reverse_path_are_planned() {
    let fabric = fabric::load("dual-stack").unwrap();
    let planner = Planner::new(&fabric);
    let server = planner.routing(fabric.find("server1").unwrap());
    assert_eq!(server.interfaces[0].mtu.as_ref().unwrap().value, 9000);
    assert!(server.routes.iter().all(|route| route.mtu == Some(1500)), "the campus has 1500");
    let desk = planner.routing(fabric.find("desk01").unwrap());
    assert!(desk.routes.iter().all(|route| route.mtu.is_none()));
    assert_eq!(server.sysctls["net.ipv4.conf.ens2.src_valid_mark"].value, "1");
    assert_eq!(server.connection_marks[0].link_address, "02:00:5e:00:01:01");
    assert_eq!(server.connection_marks[3].mark, 7004);
    let loose = with("gateways-6", |file| {
        file.classes[1].rp_filter = Some(clearstream_schema::fabric::ReversePathFilter::Loose);
        file.classes[1].links[0].interface = "bond0.12".to_owned();
    });
    let server = Planner::new(&loose).routing(loose.find("storage-1").unwrap());
    assert_eq!(server.sysctls["net.ipv4.conf.bond0/12.rp_filter"].value, "2");
}

#[test]
fn a_profile_brings_its_sysctls_with_their_arithmetic() {
    let fabric = fabric::load("cumulus-wolf").unwrap();
    let planner = Planner::new(&fabric);
    let server = planner.explain(fabric.find("nsd1").unwrap());
    // 75 Gb/s x 100 us = 0.94 MB: the kernel's 6 MiB do; a pause must not shrink the window.
    assert_eq!(server.routing.sysctls["net.ipv4.tcp_slow_start_after_idle"].value, "0");
    assert!(!server.routing.sysctls.contains_key("net.ipv4.tcp_rmem"));
    assert!(server.reasons.iter().any(|reason| reason.item == "net.ipv4.tcp_slow_start_after_idle"));
    let gateway = planner.routing(fabric.find("sn1").unwrap());
    assert!(!gateway.sysctls.contains_key("net.ipv4.tcp_slow_start_after_idle"));
}

#[test]
fn every_item_has_its_reason() {
    for name in fabric::built_in_names() {
        let fabric = fabric::load(name).unwrap();
        let planner = Planner::new(&fabric);
        for class in 0..fabric.file().classes.len() {
            let planned = planner.explain(HostId { class, index: 0 });
            assert_eq!(planned.routing, planner.routing(HostId { class, index: 0 }));
            let has = |item: String| planned.reasons.iter().any(|reason| reason.item == item);
            for rule in &planned.routing.rules {
                assert!(has(format!("rule {}", rule.priority.unwrap())));
            }
            for nexthop in &planned.routing.nexthops {
                assert!(has(format!("nexthop {}", nexthop.id)) || has(format!("group {}", nexthop.id)));
            }
            for key in planned.routing.sysctls.keys() {
                assert!(has(key.clone()), "{key}");
            }
            for route in &planned.routing.routes {
                let lengths = ["6 routes of length", "12 routes of length", "24 routes of length"];
                let alias = planned
                    .reasons
                    .iter()
                    .any(|reason| lengths.iter().any(|length| reason.item.starts_with(length)));
                assert!(
                    has(format!("route {}", route.destination))
                        || has(format!("table {}", route.table))
                        || alias
                );
            }
        }
    }
}

/// Hosts written one by one give the published document.
#[test]
fn hosts_are_written_one_at_a_time_into_the_published_document() {
    let fabric = fabric::load("dual-stack").unwrap();
    let planner = Planner::new(&fabric);
    let hosts: Vec<HostId> = fabric.hosts().collect();
    let overview = planner.overview(&Population::default());
    let text = clearstream_schema::json::to_string(&planner.with_hosts(&overview, &hosts)).unwrap();
    let read: RoutePlan = clearstream_schema::json::from_str(&text).unwrap();
    let planned: Vec<PlannedHost> = hosts.iter().map(|host| planner.explain(*host)).collect();
    assert_eq!(read, RoutePlan { hosts: planned, ..overview });
}

/// Eight of 64 gateways had one of 120 buckets where the others had two.
#[test]
fn buckets_that_are_too_few_for_the_weights_are_named() {
    let few = with("ten-thousand", |file| file.numbers.bucket_count = Some(120));
    let notices = Planner::new(&few).notices().join("\n");
    assert!(notices.contains("bucket-count = 1280"), "{notices}");
    let enough = fabric::load("ten-thousand").unwrap();
    let notices = Planner::new(&enough).notices();
    assert!(notices.iter().all(|it| !it.contains("bucket-count")), "{notices:?}");
}

/// Scale: 10 000 hosts and 64 gateways are planned and checked by class.
#[test]
fn ten_thousand_hosts_are_planned_and_proved() {
    let fabric = fabric::load("ten-thousand").unwrap();
    let planner = Planner::new(&fabric);
    let (mut hosts, mut rules, mut nexthops) = (0, 0, 0);
    for host in fabric.hosts() {
        let routing = planner.routing(host);
        hosts += 1;
        rules += routing.rules.len();
        nexthops += routing.nexthops.len();
    }
    assert_eq!(hosts, 10_000);
    assert_eq!(rules, 48 * 64, "a rule for each gateway on each server");
    assert_eq!(nexthops, (10_000 - 64) * 65, "64 gateways and their group on each end host");
    let proof = planner.prove(0);
    assert_eq!((proof.outcome, proof.method), (ProofOutcome::Symmetric, ProofMethod::PerClass));
    assert_eq!(proof.compared_count, 9871 + 15 + 47);
    assert_eq!(proof.walk_count, 2 * 48 * 64 + 9872 + 48, "each gateway to each server, and everybody once");
}

/// The check by class finds one host that differs.
#[test]
fn one_of_ten_thousand_that_differs_is_found() {
    let fabric = fabric::load("ten-thousand").unwrap();
    let planner = Planner::new(&fabric);
    let odd = fabric.find("nid07777").unwrap();
    let proof = planner.prove_with(0, &|host| {
        let mut routing = planner.routing(host);
        if host == odd {
            routing.routes.clear();
        }
        routing
    });
    assert_eq!(proof.outcome, ProofOutcome::Fails);
    assert_eq!(proof.counterexample.unwrap().server, "nid07777");
}

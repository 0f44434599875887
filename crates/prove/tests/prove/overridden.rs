//! Routes, rules and gateways that lead flows away: the one that decides is named with its
//! owner, and no cause that the hosts' settings exclude.

use clearstream_prove::ProofOptions;
use clearstream_prove::document::RouteVerification;
use clearstream_schema::{TimeSpan, fabric::ReturnPath};

use crate::net::{Net, found, quick};

fn brief() -> ProofOptions {
    ProofOptions { flow_count: 150, timeout: TimeSpan::from_millis(400), path_mtu: false, ..quick() }
}

/// What the findings about a host say.
fn said(proof: &RouteVerification, id: &str, host: &str) -> String {
    let of = proof.findings.iter().filter(|it| it.id == id && it.host == host);
    of.map(|it| format!("{} => {}", it.message, it.correction)).collect::<Vec<_>>().join("\n")
}

/// A host, lines of `ip` that change it and that restore it, the finding, and what it says.
type Change<'r> = (&'r str, &'r str, &'r str, &'r str, &'r [&'r str]);

/// Each round is one verification of several hosts that were changed.
fn rounds(net: &Net, rounds: &[&[Change<'_>]]) {
    net.route_all();
    for changes in rounds {
        changes.iter().for_each(|(host, change, ..)| net.ip(host, change));
        let proof = net.prove(&net.tested_route(ReturnPath::None), &brief());
        for (host, change, undo, id, texts) in *changes {
            let said = said(&proof, id, host);
            assert!(!said.is_empty(), "{host} {change}: {:?}\n{:#?}", found(&proof), proof.findings);
            for text in *texts {
                assert!(said.contains(text), "{host} {change}: \"{text}\" is not said: {said}");
            }
            net.ip(host, undo);
        }
        // Every host hashes ports, and no route has a gateway twice.
        for finding in &proof.findings {
            let all = format!("{} {}", finding.message, finding.correction);
            assert!(finding.id != "ports-ignored" && !all.contains("(it is 1)"), "{changes:?}: {all}");
            assert!(!all.contains("lists it") && !all.contains("twice"), "{changes:?}: {all}");
        }
    }
    let proof = net.prove(&net.tested_route(ReturnPath::None), &brief());
    assert_eq!(found(&proof), [], "{:#?}", proof.findings);
}

#[test]
fn root_a_route_or_rule_that_leads_flows_away_is_named() {
    let net = Net::new(false);
    let table = |via: &str, rule: &str| {
        format!("route add default via {via} table 100\nrule add pref 100 {rule} lookup 100")
    };
    let no_table = "rule del pref 100\nroute flush table 100";
    let (by_destination, by_source) =
        (table("10.100.0.92", "to 10.10.0.0/24"), table("10.10.0.12", "from 10.10.0.201"));
    rounds(
        &net,
        &[
            &[
                (
                    "c1",
                    "route add 10.10.0.128/25 via 10.100.0.91",
                    "route del 10.10.0.128/25",
                    "overridden",
                    &[
                        "10.10.0.128/25 via 10.100.0.91 dev near0",
                        "proto boot",
                        "requests to s1",
                        "`ip route del 10.10.0.128/25",
                    ],
                ),
                (
                    "s1",
                    "route add 10.100.0.2/32 via 10.10.0.11 proto static",
                    "route del 10.100.0.2/32",
                    "overridden",
                    &["10.100.0.2 via 10.10.0.11", "proto static", "replies to c2"],
                ),
                (
                    "g2",
                    "route add blackhole 10.10.0.201",
                    "route del blackhole 10.10.0.201",
                    "not-forwarding",
                    &["blackhole 10.10.0.201", "`ip route del blackhole 10.10.0.201`"],
                ),
            ],
            &[
                (
                    "c2",
                    &by_destination,
                    no_table,
                    "overridden",
                    &["by the rule 100: from all to 10.10.0.0/24 lookup 100", "`ip rule del pref 100"],
                ),
                (
                    "g3",
                    "rule add pref 60 iif far0 prohibit",
                    "rule del pref 60",
                    "not-forwarding",
                    &["60: from all iif far0 prohibit"],
                ),
            ],
            &[(
                "s1",
                &by_source,
                no_table,
                "overridden",
                &["100: from 10.10.0.201 lookup 100", "replies to c1 and c2"],
            )],
            &[
                (
                    "c2",
                    "route add unreachable 10.10.0.201",
                    "route del unreachable 10.10.0.201",
                    "no-route",
                    &["unreachable 10.10.0.201", "`ip route del unreachable 10.10.0.201`"],
                ),
                (
                    "s1",
                    "route add blackhole 10.100.0.1",
                    "route del blackhole 10.100.0.1",
                    "no-reply",
                    &["blackhole 10.100.0.1"],
                ),
            ],
        ],
    );
}

#[test]
fn root_a_better_metric_and_a_source_of_ipv6_are_named() {
    rounds(
        &Net::new(true),
        &[&[
            (
                "c1",
                "route add fd64:10::/64 via fd64:100::5b metric 100 proto ra",
                "route del fd64:10::/64 metric 100",
                "overridden",
                &[
                    "fd64:10::/64 metric 100 via fd64:100::5b",
                    "proto ra",
                    "`ip -6 route del fd64:10::/64 metric 100",
                ],
            ),
            (
                "s1",
                "route add fd64:100::/64 from fd64:10::c9/128 via fd64:10::b",
                "route del fd64:100::/64 from fd64:10::c9/128",
                "overridden",
                &["from fd64:10::c9/128 via fd64:10::b"],
            ),
        ]],
    );
}

#[test]
fn root_buckets_that_have_not_moved_are_no_missing_gateway() {
    let net = Net::new(false);
    net.route_all();
    let hops: String =
        (1..=3).map(|at| format!("nexthop add id {at} via 10.100.0.9{at} dev near0\n")).collect();
    let buckets = "type resilient buckets 60 idle_timer 60";
    net.ip("c1", &format!("{hops}nexthop add id 9 group 1/2 {buckets}\nroute replace 10.10.0.0/24 nhid 9\n"));
    // Busy buckets stay.
    net.prove(&net.tested_route(ReturnPath::None), &brief());
    net.ip("c1", &format!("nexthop replace id 9 group 1/2/3 {buckets}\n"));
    let proof = net.prove(&net.tested_route(ReturnPath::None), &brief());
    let said = said(&proof, "gateway-missing", "c1");
    for text in ["0 of 60 buckets", "has been unbalanced for", "idle for 60 s", "nothing to apply"] {
        assert!(said.contains(text), "{text}: {said}\n{:#?}", proof.findings);
    }
    assert!(!said.contains("add 10.100.0.93"), "{said}");
}

#[test]
fn root_a_stateful_gateway_drops_exactly_what_it_saw_no_request_of() {
    let net = Net::new(false);
    net.route_all();
    let rules = "table inet t {\n chain c {\n type filter hook forward priority 0; policy drop;\n \
         ct state established,related accept\n ct state invalid drop\n iifname near0 ct state new accept\n }\n}\n";
    for gateway in ["g1", "g2", "g3"] {
        net.run(gateway, &["nft", "-f", "-"], rules);
    }
    let proof = net.prove(&net.tested_route(ReturnPath::None), &brief());
    let said = said(&proof, "not-forwarding", "g2");
    assert!(
        said.contains("exactly the flows are dropped whose request took another gateway (g1 and g3)"),
        "{said}"
    );
    assert!(!said.contains("route to both networks") && !said.contains("reverse path filter"), "{said}");
}

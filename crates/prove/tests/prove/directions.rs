//! Return paths and hash policies that are as planned.

use clearstream_prove::document::{RouteVerification, VerificationVerdict};
use clearstream_schema::{
    TimeSpan,
    fabric::{HashPolicy, ReturnPath},
};

use clearstream_prove::ProofOptions;

use crate::net::{GATEWAYS, Net, found, quick};

/// Asserts that every flow was observed in both directions.
fn assert_whole(proof: &RouteVerification) {
    assert_eq!(found(proof), [], "{:#?}", proof.findings);
    assert!(proof.notices.iter().all(|notice| notice.id == "unused"), "{:?}", proof.notices);
    assert_eq!(proof.verdict, VerificationVerdict::Proven);
    let route = &proof.routes[0];
    let all = route.flow_count + route.targeted_count;
    assert_eq!((route.answered_count, route.judged_count), (all, all));
    assert!(route.flows.iter().all(|flow| flow.forward.is_some() && flow.reply.is_some()));
}

#[test]
fn root_without_a_return_path_two_of_three_flows_return_elsewhere() {
    for ipv6 in [false, true] {
        let net = Net::new(ipv6);
        net.route_all();
        // A witness that is not ours: nft counts the first packet of each flow.
        let family = if ipv6 { "ip6" } else { "ip" };
        let table = format!(
            "table inet t {{\n counter forward {{}}\n counter reply {{}}\n chain c {{\n type filter hook forward priority 0;\n \
             {family} daddr {far} tcp flags & (syn|ack) == syn counter name forward\n \
             {family} saddr {far} tcp flags & (syn|ack) == (syn|ack) counter name reply\n }}\n}}\n",
            far = net.network("far"),
        );
        for gateway in 1..=GATEWAYS {
            net.run(&format!("g{gateway}"), &["nft", "-f", "-"], &table);
        }
        let proof = net.prove(&net.tested_route(ReturnPath::None), &quick());
        assert_whole(&proof);
        let route = &proof.routes[0];
        let elsewhere = route.asymmetric_count as f64 / route.judged_count as f64;
        assert!((route.asymmetric_expected_ratio - 2.0 / 3.0).abs() < 1e-9);
        assert!((0.5..0.84).contains(&elsewhere), "{elsewhere}: (n-1)/n of the flows are expected");
        assert_eq!(route.predicted_count, [route.judged_count; 2], "the kernel's own hash");
        assert!(route.forward_fit.is_some() && route.reply_fit.is_some());
        for (place, gateway) in route.gateways.iter().enumerate() {
            assert_eq!((gateway.path_mtu_bytes, gateway.reply_path_mtu_bytes), (Some(1500), Some(1500)));
            assert!(gateway.rate.is_none(), "not requested");
            let listing = net.run(&gateway.gateway, &["nft", "list", "counters"], "");
            let count = |name: &str| {
                let rest = listing.split_once(&format!("counter {name} {{")).unwrap().1;
                rest.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
            };
            let sum = |counts: fn(&clearstream_prove::document::PairResult) -> &Vec<u64>| -> u64 {
                route.pairs.iter().map(|pair| counts(pair)[place]).sum()
            };
            assert_eq!(count("forward"), sum(|pair| &pair.forward_counts), "{}", gateway.gateway);
            assert_eq!(count("reply"), sum(|pair| &pair.reply_counts), "{}", gateway.gateway);
            let packets = gateway.packets.unwrap();
            assert!(packets.forward_count > 0 && packets.forward_interface_count >= packets.forward_count);
            assert!(packets.reply_interface_count >= packets.reply_count);
        }
    }
}

#[test]
fn root_connections_marked_by_the_gateway_return_by_it() {
    let net = Net::new(false);
    net.route_all();
    // The recipe with link addresses, marks, rules and tables.
    let mut marks = String::new();
    let mut lines = String::new();
    for gateway in 1..=GATEWAYS {
        let shown = net.run(&format!("g{gateway}"), &["ip", "-o", "link", "show", "far0"], "");
        let link = shown.split_once("link/ether ").unwrap().1.split_whitespace().next().unwrap();
        marks.push_str(&format!("ct state new ether saddr {link} ct mark set {gateway}\n"));
        let via = net.address("far", 10 + gateway);
        lines.push_str(&format!("route add default via {via} dev far0 table {gateway}\n"));
        lines.push_str(&format!("rule add fwmark {gateway} lookup {gateway} pref {}\n", 100 + gateway));
    }
    net.ip("s1", &lines);
    let table = format!(
        "table inet t {{\n chain in {{\n type filter hook prerouting priority mangle;\n {marks} }}\n \
         chain out {{\n type route hook output priority mangle;\n ct mark != 0 meta mark set ct mark\n }}\n}}\n"
    );
    net.run("s1", &["nft", "-f", "-"], &table);
    let proof = net.prove(&net.tested_route(ReturnPath::ConnectionMark), &quick());
    assert_whole(&proof);
    assert_eq!(proof.routes[0].asymmetric_count, 0);
    // Without the marks the same promise is broken, and the server is named.
    net.run("s1", &["nft", "flush", "ruleset"], "");
    let broken = net.prove(&net.tested_route(ReturnPath::ConnectionMark), &quick());
    assert_eq!(found(&broken), [("asymmetric", "s1")]);
    assert_eq!(broken.verdict, VerificationVerdict::Failed);
    assert!(broken.findings[0].correction.contains("nft"), "{:?}", broken.findings);
}

#[test]
fn root_an_address_for_each_gateway_returns_by_it() {
    let net = Net::new(false);
    net.route_all();
    let mut route = net.tested_route(ReturnPath::Alias);
    for gateway in 1..=GATEWAYS {
        let alias = net.address("far", 210 + gateway);
        route.servers[0].aliases.push(alias.parse().unwrap());
        let (near, far) = (net.address("near", 90 + gateway), net.address("far", 10 + gateway));
        net.ip(
            "s1",
            &format!(
                "address add {alias}/32 dev far0\nroute add default via {far} dev far0 table {gateway}\n\
             rule add from {alias} lookup {gateway} pref {}\n",
                100 + gateway
            ),
        );
        for client in ["c1", "c2"] {
            net.ip(client, &format!("route add {alias}/32 via {near} dev near0\n"));
        }
    }
    let proof = net.prove(&route, &quick());
    assert_whole(&proof);
    let route = &proof.routes[0];
    assert_eq!(route.asymmetric_count, 0);
    assert!(route.forward_fit.is_none(), "the address chooses, nothing is hashed");
    let counts: Vec<u64> = route.gateways.iter().map(|gateway| gateway.forward_count).collect();
    assert_eq!(counts, [100, 100, 100], "as many flows to each address");
}

#[test]
fn root_equal_seeds_and_bound_ports_return_by_the_same_gateway() {
    let net = Net::new(false);
    net.route_all();
    for host in ["c1", "c2", "s1"] {
        net.sysctl(host, &["net.ipv4.fib_multipath_hash_seed=4242"]);
    }
    let proof = net.prove(&net.tested_route(ReturnPath::EqualSeed), &quick());
    assert_whole(&proof);
    assert_eq!(proof.routes[0].asymmetric_count, 0);
}

#[test]
fn root_a_hash_of_addresses_gives_each_pair_one_gateway() {
    let net = Net::new(false);
    net.route_all();
    for host in ["c1", "c2", "s1"] {
        net.sysctl(host, &["net.ipv4.fib_multipath_hash_policy=0"]);
    }
    let mut route = net.tested_route(ReturnPath::None);
    route.hash_policy = HashPolicy::Layer3;
    let proof = net.prove(&route, &quick());
    assert_whole(&proof);
    for pair in &proof.routes[0].pairs {
        let used = pair.forward_counts.iter().filter(|count| **count > 0).count();
        assert_eq!(used, 1, "{pair:?}");
    }
    // The same hosts under a plan that hashes ports: each client is named.
    route.hash_policy = HashPolicy::Layer4;
    let wrong = net.prove(&route, &quick());
    assert_eq!(found(&wrong), [("ports-ignored", "c1"), ("ports-ignored", "c2")]);
    assert!(wrong.findings[0].correction.contains("fib_multipath_hash_policy = 1 on c1 (it is 0)"));
}

#[test]
fn root_weights_and_rates_are_seen() {
    let net = Net::new(false);
    for host in ["c1", "c2", "s1"] {
        net.route(host, &[(1, 4), (2, 1), (3, 1)]);
    }
    let mut route = net.tested_route(ReturnPath::None);
    route.gateways[0].weight = 4;
    let rates = ProofOptions { rate_duration: TimeSpan::from_millis(200), ..quick() };
    let proof = net.prove(&route, &rates);
    assert_whole(&proof);
    for gateway in &proof.routes[0].gateways {
        let rate = gateway.rate.as_ref().unwrap();
        assert!(rate.goodput_bps > 1e6 && rate.packets_per_second > 100.0, "{rate:?}");
        assert!(!rate.reason.is_empty());
    }
    // Equal weights are not what these routes give.
    route.gateways[0].weight = 1;
    let wrong = net.prove(&route, &quick());
    assert_eq!(found(&wrong)[0], ("share", "g1"), "{:#?}", wrong.findings);
    assert!(wrong.findings[0].message.contains("by the kernels' lookups"), "{:#?}", wrong.findings);
}

#[test]
fn root_lookups_show_shares_that_flows_cannot_and_chosen_ports_are_even() {
    let net = Net::new(false);
    // A weight that is a third too large: 300 flows do not show it.
    for host in ["c1", "c2"] {
        net.route(host, &[(1, 4), (2, 3), (3, 3)]);
    }
    net.route("s1", &[(1, 1), (2, 1), (3, 1)]);
    let options = ProofOptions { path_mtu: false, ..quick() };
    let wrong = net.prove(&net.tested_route(ReturnPath::None), &options);
    assert_eq!(found(&wrong), [("share", "g1")], "{:#?}", wrong.findings);
    let route = &wrong.routes[0];
    let (opened, lookups) = (route.forward_fit.unwrap(), route.asked_forward_fit.unwrap());
    assert!(opened.chance_deviation_ratio > 0.15, "{opened:?}");
    assert!(lookups.chance_deviation_ratio <= 0.05, "{lookups:?}");
    assert!(lookups.flow_count > 4 * opened.flow_count, "{lookups:?}");
    // 4 of 10 instead of 1 of 3.
    let first = route.gateways[0].asked_forward_ratio.unwrap();
    assert!((0.37..0.43).contains(&first), "{first}");
    let replies = route.asked_reply_fit.unwrap();
    assert!(replies.worst_deviation_ratio < 0.1, "{replies:?}");

    net.route_all();
    let even = ProofOptions { even: true, ..options };
    let proof = net.prove(&net.tested_route(ReturnPath::None), &even);
    assert_whole(&proof);
    let route = &proof.routes[0];
    assert!(route.even && route.flow_count >= 295, "{}", route.flow_count);
    let fit = route.forward_fit.unwrap();
    assert!(fit.worst_deviation_ratio < 0.03, "{fit:?}");
}

#[test]
fn root_without_lookups_every_gateway_is_found_by_trial() {
    let net = Net::new(false);
    net.route_all();
    // Two flows for each pair of hosts, which three gateways cannot share.
    let few = ProofOptions { flow_count: 4, path_mtu: false, ..quick() };
    let proof = net.prove_with(&net.tested_route(ReturnPath::None), &few, true);
    assert_eq!(found(&proof), [], "{:#?}", proof.findings);
    let ids: Vec<&str> = proof.notices.iter().map(|notice| notice.id.as_str()).collect();
    assert_eq!(ids, ["no-lookup", "no-lookup"]);
    let route = &proof.routes[0];
    assert_eq!((route.flow_count, route.predicted_count), (4, [0, 0]));
    assert!(route.targeted_count >= 2 * 36, "{}", route.targeted_count);
    for pair in &route.pairs {
        assert!(pair.forward_counts.iter().all(|count| *count > 0), "{pair:?}");
    }
}

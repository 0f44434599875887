//! Replies that take another table by a mark or by their alias: what no lookup without the mark
//! shows is said as such, and no link, bucket or weight is blamed.

use clearstream_prove::document::RouteVerification;
use clearstream_prove::{ProofOptions, TestedRoute};
use clearstream_schema::{TimeSpan, fabric::ReturnPath};

use crate::net::{GATEWAYS, Net, quick};

fn brief() -> ProofOptions {
    ProofOptions { flow_count: 150, timeout: TimeSpan::from_millis(400), path_mtu: false, ..quick() }
}

fn texts(proof: &RouteVerification) -> String {
    let of = proof.findings.iter();
    of.map(|it| format!("{} {}: {} => {}", it.id, it.host, it.message, it.correction))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn root_replies_by_a_mark_of_others_are_said_to_be_not_known() {
    let net = Net::new(false);
    net.route_all();
    // The mark of the connection is restored into that of each reply.
    net.run(
        "s1",
        &["nft", "-f", "-"],
        "table ip t {\n chain a { type filter hook prerouting priority mangle; ct state new ct mark set 5; }\n \
         chain b { type route hook output priority mangle; meta mark set ct mark; }\n}\n",
    );
    net.ip("s1", "route add default via 10.10.0.11 table 100\nrule add pref 100 fwmark 5 lookup 100");
    let proof = net.prove(&net.tested_route(ReturnPath::None), &brief());
    let said = texts(&proof);
    for text in ["packets with mark 0x5 go by 10.10.0.11", "100: from all fwmark 0x5", "`nft list ruleset`"] {
        assert!(said.contains(text), "{text}: {said}");
    }
    for wrong in ["neighbour entry is down", "repeat with more flows", "route apply"] {
        assert!(!said.contains(wrong), "{wrong}: {said}");
    }
}

/// A server with an address for each gateway, from which it replies by that one.
fn with_aliases(net: &Net) -> TestedRoute {
    let mut lines = String::new();
    for gateway in 1..=GATEWAYS {
        lines += &format!(
            "address add 10.10.0.{}/24 dev far0\nroute add 10.100.0.0/16 via 10.10.0.1{gateway} table {}\n\
             rule add pref {} from 10.10.0.{} lookup {}\n",
            210 + gateway,
            7000 + gateway,
            7000 + gateway,
            210 + gateway,
            7000 + gateway
        );
    }
    net.ip("s1", &lines);
    let mut route = net.tested_route(ReturnPath::Alias);
    route.servers[0].aliases =
        (1..=GATEWAYS).map(|it| format!("10.10.0.{}", 210 + it).parse().unwrap()).collect();
    for client in ["c1", "c2"] {
        let to: String =
            (1..=GATEWAYS).map(|it| format!("route add 10.10.0.{} via 10.100.0.9{it}\n", 210 + it)).collect();
        net.ip(client, &to);
    }
    route
}

#[test]
fn root_replies_of_one_alias_that_are_led_away_are_named() {
    let net = Net::new(false);
    net.route_all();
    let route = with_aliases(&net);
    let proof = net.prove(&route, &brief());
    assert_eq!(proof.findings, [], "as planned");
    net.ip("s1", "rule add pref 60 from 10.10.0.212 lookup 7003");
    let said = texts(&net.prove(&route, &brief()));
    for text in
        ["replies from 10.10.0.212", "not by g2", "60: from 10.10.0.212 lookup 7003", "`ip rule del pref 60"]
    {
        assert!(said.contains(text), "{text}: {said}");
    }
}

use std::{collections::BTreeSet, path::Path};

use clearstream_schema::{fabric::FabricFile, route_plan::ProofOutcome, routing::RouteAction};
use proptest::prelude::*;

use super::*;
use crate::fabric;

/// A fabric with these numbers of hosts.
fn made(
    gateways: usize,
    servers: usize,
    clients: usize,
    path: ReturnPath,
    multipath: Multipath,
    weight: u16,
) -> Fabric {
    let text = format!(
        r#"
schema = "clearstream.fabric"
version = 1
name = "made"
[[network]]
name = "a"
prefixes = ["10.1.0.0/16", "fd01::/64"]
[[network]]
name = "b"
prefixes = ["10.2.0.0/16", "fd02::/64"]
[[class]]
name = "g"
role = "gateway"
hosts = ["g[1-{gateways}]"]
weight = {weight}
[[class.link]]
network = "a"
interface = "a0"
addresses = ["10.1.0.1+", "fd01::1+"]
[[class.link]]
network = "b"
interface = "b0"
addresses = ["10.2.0.1+", "fd02::1+"]
[[class]]
name = "s"
role = "storage"
hosts = ["s[1-{servers}]"]
[[class.link]]
network = "b"
interface = "b0"
addresses = ["10.2.1.1+", "fd02::1:1+"]
alias-addresses = ["10.2.2.1+", "fd02::2:1+"]
[[class]]
name = "c"
role = "compute"
hosts = ["c[1-{clients}]"]
[[class.link]]
network = "a"
interface = "a0"
addresses = ["10.1.1.1+", "fd01::1:1+"]
[[route]]
between = ["a", "b"]
via = ["g"]
"#
    );
    let mut file: FabricFile = toml::from_str(&text).unwrap();
    file.routes[0].return_path = path;
    file.routes[0].multipath = multipath;
    fabric::parse(Path::new("made.toml"), &toml::to_string(&file).unwrap()).unwrap()
}

fn any_path() -> impl Strategy<Value = ReturnPath> {
    prop::sample::select(vec![
        ReturnPath::Auto,
        ReturnPath::None,
        ReturnPath::Alias,
        ReturnPath::ConnectionMark,
        ReturnPath::EqualSeed,
    ])
}

fn any_multipath() -> impl Strategy<Value = Multipath> {
    prop::sample::select(vec![Multipath::Auto, Multipath::Resilient, Multipath::Group, Multipath::Classic])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is planned keeps what it promises, and hosts share no number.
    #[test]
    fn every_plan_holds(
        gateways in 1_usize..10,
        servers in 1_usize..4,
        clients in 1_usize..6,
        path in any_path(),
        multipath in any_multipath(),
        weight in 1_u16..5,
    ) {
        let fabric = made(gateways, servers, clients, path, multipath, weight);
        let planner = Planner::new(&fabric);
        let proof = planner.prove(0);
        prop_assert_ne!(proof.outcome, ProofOutcome::Fails, "{:?}", proof.counterexample);
        let promised = planner.choice(0).return_path != ReturnPath::None || gateways == 1;
        prop_assert_eq!(proof.outcome == ProofOutcome::Symmetric, promised);
        for host in fabric.hosts() {
            let routing = planner.routing(host);
            let ids: BTreeSet<u32> = routing.nexthops.iter().map(|nexthop| nexthop.id).collect();
            prop_assert_eq!(ids.len(), routing.nexthops.len());
            let rules: BTreeSet<_> = routing.rules.iter().map(|rule| (rule.ipv6, rule.priority)).collect();
            prop_assert_eq!(rules.len(), routing.rules.len());
            for route in &routing.routes {
                if let RouteAction::Nexthop(id) = route.action {
                    prop_assert!(ids.contains(&id));
                }
            }
            let text = serde_json::to_string(&routing).unwrap();
            prop_assert_eq!(serde_json::from_str::<HostRouting>(&text).unwrap(), routing);
        }
    }
}

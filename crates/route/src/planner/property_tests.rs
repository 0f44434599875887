use std::collections::BTreeSet;

use clearstream_schema::{route_plan::ProofOutcome, routing::RouteAction};
use proptest::prelude::*;

use super::*;
use crate::fabric::made::Shape;

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

    /// Every plan is symmetric if its return path promises it, and uses no number
    /// twice.
    #[test]
    fn every_plan_holds(
        gateways in 1_usize..10,
        servers in 1_usize..4,
        clients in 1_usize..6,
        path in any_path(),
        multipath in any_multipath(),
        weight in 1_u16..5,
    ) {
        let shape = Shape::new(gateways, path, multipath);
        let fabric = Shape { server_count: servers, client_count: clients, weight, ..shape }.fabric();
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
            let text = clearstream_schema::json::to_string(&routing).unwrap();
            prop_assert_eq!(clearstream_schema::json::from_str::<HostRouting>(&text).unwrap(), routing);
        }
    }
}

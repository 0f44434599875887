//! Wrong configurations and dead gateways are found and reported.

use clearstream_prove::document::{LostAt, VerificationVerdict};
use clearstream_schema::fabric::ReturnPath;

use crate::net::{Net, found, quick};

#[test]
fn root_a_gateway_that_one_side_lacks_is_named() {
    let net = Net::new(false);
    net.route_all();
    net.route("c2", &[(1, 1), (2, 1)]);
    let proof = net.prove(&net.tested_route(ReturnPath::None), &quick());
    assert_eq!(found(&proof), [("gateway-missing", "c2")], "{:#?}", proof.findings);
    let finding = &proof.findings[0];
    assert!(finding.message.contains("g3") && finding.correction.contains("10.100.0.93"), "{finding:?}");
    assert_eq!(proof.routes[0].pairs[1].unreached, ["g3"]);
    net.route("c2", &[(1, 1), (2, 1), (3, 1)]);
    net.route("s1", &[(1, 1), (3, 1)]);
    let proof = net.prove(&net.tested_route(ReturnPath::None), &quick());
    assert_eq!(found(&proof), [("gateway-missing", "s1")], "{:#?}", proof.findings);
    assert!(proof.findings[0].correction.contains("10.10.0.12"), "{:?}", proof.findings);
}

#[test]
fn root_a_gateway_that_does_not_forward_is_named_in_both_directions() {
    let net = Net::new(false);
    net.route_all();
    net.sysctl("g2", &["net.ipv4.ip_forward=0"]);
    let proof = net.prove(&net.tested_route(ReturnPath::None), &quick());
    assert_eq!(proof.verdict, VerificationVerdict::Failed);
    // Requests and replies that came to it.
    assert_eq!(found(&proof), [("not-forwarding", "g2"), ("not-forwarding", "g2")], "{:#?}", proof.findings);
    assert!(
        proof.findings.iter().all(|finding| finding.correction.contains("net.ipv4.ip_forward = 1 on g2"))
    );
    let route = &proof.routes[0];
    let gateway = &route.gateways[1];
    assert!(gateway.stuck_count > 80 && gateway.path_mtu_bytes.is_none(), "{gateway:?}");
    assert!(route.pairs.iter().all(|pair| pair.forward_counts[1] == 0 && pair.reply_counts[1] == 0));
    let lost = route.flows.iter().filter_map(|flow| flow.lost.as_ref());
    let (mut there, mut back) = (0, 0);
    for place in lost {
        match place {
            LostAt::InGateway(name) if name == "g2" => there += 1,
            LostAt::ReplyInGateway(name) if name == "g2" => back += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(there > 50 && back > 30, "{there} {back}: a third, and a third of the rest");
}

#[test]
fn root_a_smaller_mtu_behind_one_gateway_is_named_with_its_interface() {
    let net = Net::new(false);
    net.route_all();
    net.ip("g1", "link set far0 mtu 1400\n");
    let proof = net.prove(&net.tested_route(ReturnPath::None), &quick());
    // Forward it is reported by ICMP; in the reply direction the link drops longer frames.
    assert_eq!(found(&proof), [("path-mtu", "g1"), ("mtu-black-hole", "g1")], "{:#?}", proof.findings);
    assert!(
        proof.findings.iter().all(|one| one.correction.contains("MTU of far0 on g1 to 1500 (it is 1400)"))
    );
    let sizes: Vec<_> = proof.routes[0].gateways.iter().map(|gateway| gateway.path_mtu_bytes).collect();
    assert_eq!(sizes, [Some(1400), Some(1500), Some(1500)]);
}

#[test]
fn root_a_gateway_that_is_cut_off_is_named() {
    let net = Net::new(false);
    net.route_all();
    net.ip("near", "link set to-g3 down\n");
    let proof = net.prove(&net.tested_route(ReturnPath::None), &quick());
    let ids = found(&proof);
    assert!(ids.contains(&("not-arrived", "g3")), "{:#?}", proof.findings);
    assert!(ids.iter().all(|(_, host)| *host == "g3"), "no other host is reported: {:#?}", proof.findings);
}

#[test]
fn root_path_that_the_fabric_lacks_is_named() {
    let net = Net::new(false);
    net.route_all();
    let mut route = net.tested_route(ReturnPath::None);
    route.gateways.pop();
    let proof = net.prove(&route, &quick());
    let strange: Vec<_> = proof.findings.iter().filter(|finding| finding.id == "foreign-gateway").collect();
    assert_eq!(strange.iter().map(|finding| finding.host.as_str()).collect::<Vec<_>>(), ["c1", "c2"]);
    assert_eq!(strange[0].address, Some("10.100.0.93".parse().unwrap()));
    let past = proof.findings.iter().filter(|finding| finding.id == "elsewhere").count();
    assert_eq!(past, 2, "requests and replies: {:#?}", proof.findings);
}

#[test]
fn root_a_host_without_a_route_is_named() {
    let net = Net::new(false);
    net.route("c1", &[(1, 1), (2, 1), (3, 1)]);
    net.route("s1", &[(1, 1), (2, 1), (3, 1)]);
    let proof = net.prove(&net.tested_route(ReturnPath::None), &quick());
    assert_eq!(found(&proof), [("no-route", "c2")], "{:#?}", proof.findings);
    // A server without one receives all requests and replies to none.
    net.route("c2", &[(1, 1), (2, 1), (3, 1)]);
    net.ip("s1", "route del 10.100.0.0/16\n");
    let proof = net.prove(&net.tested_route(ReturnPath::None), &quick());
    assert_eq!(found(&proof), [("no-reply", "s1")], "{:#?}", proof.findings);
    assert!(proof.findings[0].correction.contains("Network is unreachable"), "{:?}", proof.findings);
}

use clearstream_schema::{
    plan::{Effect, PLAN_SCHEMA, PlanHost, Step},
    routing::{Hop, MAIN_TABLE, RouteEntry},
};

use super::*;

fn routing() -> HostRouting {
    let link = |name: &str, address: &str| RoutingInterface {
        name: name.to_owned(),
        addresses: vec![Located::from(address.parse::<clearstream_schema::prefix::Prefix>().unwrap())],
        ..RoutingInterface::default()
    };
    let hop = Hop {
        via: "10.0.0.254".parse().unwrap(),
        interface: Some("eth0".to_owned()),
        weight: 1,
        place: None,
    };
    HostRouting {
        interfaces: vec![link("eth0", "10.0.0.1/24"), link("ib0", "10.10.0.1/24")],
        routes: vec![RouteEntry {
            destination: "0.0.0.0/0".parse().unwrap(),
            table: MAIN_TABLE,
            metric: 0,
            action: RouteAction::Gateways(vec![hop]),
            source: None,
            mtu: None,
            protocol: 4,
            place: None,
        }],
        ..HostRouting::default()
    }
}

fn plan(steps: &[(Setting, Option<&str>)]) -> Plan {
    let step = |(setting, desired): &(Setting, Option<&str>)| Step {
        setting: setting.clone(),
        current: None,
        desired: desired.map(|text| Value::of(setting, text)),
        reason: "a test".to_owned(),
        effect: Effect::Now,
    };
    Plan {
        schema: PLAN_SCHEMA.to_owned(),
        version: 1,
        purpose: "a test".to_owned(),
        host: PlanHost { name: "h".to_owned(), kernel: "6".to_owned() },
        steps: steps.iter().map(step).collect(),
        advice: Vec::new(),
    }
}

fn setting(table: u32, destination: &str) -> Setting {
    Setting::Route { table, destination: destination.parse().unwrap(), metric: 0 }
}

fn session() -> [Controlling; 1] {
    [Controlling {
        what: "the ssh session",
        peer: "203.0.113.7".parse().unwrap(),
        local: "10.0.0.1".parse().unwrap(),
    }]
}

fn predicted(steps: &[(Setting, Option<&str>)]) -> Vec<String> {
    dangers(&routing(), &plan(steps), &session()).iter().map(Danger::to_string).collect()
}

#[test]
fn a_route_beside_the_session_is_no_danger() {
    assert_eq!(
        predicted(&[(setting(254, "10.100.0.0/16"), Some("via 10.10.0.9 dev ib0 proto 117"))]),
        Vec::<String>::new()
    );
}

#[test]
fn a_route_that_takes_the_session_along_is_one() {
    let found = predicted(&[(setting(254, "203.0.113.0/24"), Some("via 10.10.0.9 dev ib0 proto 117"))]);
    assert_eq!(
        found,
        [
            "it would move the ssh session from 203.0.113.7: by 10.0.0.254 on eth0 now, by 10.10.0.9 on ib0 afterwards"
        ]
    );
    let found = predicted(&[(setting(254, "203.0.113.7/32"), Some("blackhole"))]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("it would cut the ssh session"), "{found:?}");
}

#[test]
fn the_default_route_is_guarded_without_a_session() {
    let lost = dangers(&routing(), &plan(&[(setting(254, "0.0.0.0/0"), None)]), &[]);
    assert_eq!(lost.len(), 1);
    assert!(lost[0].is_cut && lost[0].to_string().contains("the IPv4 default route"), "{lost:?}");
    let half = [
        (setting(254, "128.0.0.0/1"), Some("via 10.10.0.9 dev ib0")),
        (setting(254, "0.0.0.0/1"), Some("unreachable")),
    ];
    assert!(dangers(&routing(), &plan(&half), &[]).iter().any(|danger| danger.subject.contains("default")));
    // A rule that leads all packets elsewhere.
    let everything = Setting::Rule { ipv6: false, priority: 100, selector: Box::default() };
    let steps =
        [(setting(7001, "0.0.0.0/0"), Some("via 10.10.0.9 dev ib0")), (everything, Some("lookup 7001"))];
    assert_eq!(dangers(&routing(), &plan(&steps), &session()).len(), 2);
}

#[test]
fn the_address_of_the_session_stays() {
    let address = Setting::Address { interface: "eth0".to_owned(), prefix: "10.0.0.1/24".parse().unwrap() };
    let found = predicted(&[(address, None)]);
    assert!(
        found
            .iter()
            .any(|danger| danger.contains("cut the ssh session") && danger.contains("its address 10.0.0.1")),
        "{found:?}"
    );
}

/// ssh(1), ENVIRONMENT; Documentation/networking/proc_net_tcp.rst.
#[test]
fn sessions_come_from_the_environment_or_from_the_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("proc/thread-self/net");
    std::fs::create_dir_all(&net).unwrap();
    // 10.0.0.1:22 with 203.0.113.7 and with loopback, and a client's connection.
    let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
        1: 0100000A:0016 077100CB:C350 01 00000000:00000000 00:00000000 00000000     0        0 12 1\n\
        2: 0100007F:0016 0100007F:C351 01 00000000:00000000 00:00000000 00000000     0        0 13 1\n\
        3: 0100000A:C352 087100CB:0016 01 00000000:00000000 00:00000000 00000000     0        0 14 1\n";
    std::fs::write(net.join("tcp"), text).unwrap();
    let root = clearstream_host::HostRoot::directory(folder.path());
    let found = controlling(&root, None);
    let expected: (IpAddr, IpAddr) = ("203.0.113.7".parse().unwrap(), "10.0.0.1".parse().unwrap());
    assert_eq!(found.iter().map(|session| (session.peer, session.local)).collect::<Vec<_>>(), [expected]);
    // The client's connection is this process' own, such as an agent's to its controller.
    let descriptors = folder.path().join("proc/self/fd");
    std::fs::create_dir_all(&descriptors).unwrap();
    std::os::unix::fs::symlink("/dev/null", descriptors.join("0")).unwrap();
    std::os::unix::fs::symlink("socket:[14]", descriptors.join("7")).unwrap();
    let own = of_this_process(&root);
    let expected: (IpAddr, IpAddr) = ("203.0.113.8".parse().unwrap(), "10.0.0.1".parse().unwrap());
    assert_eq!(own.iter().map(|session| (session.peer, session.local)).collect::<Vec<_>>(), [expected]);
    let named = controlling(&root, Some("fe80::7%eth0 40000 fe80::1%eth0 22"));
    assert_eq!(named.len(), 1);
    assert_eq!(named[0].peer, "fe80::7".parse::<IpAddr>().unwrap());
}

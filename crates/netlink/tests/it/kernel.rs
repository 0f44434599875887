//! Changes made through netlink, checked with iproute2: `ip -j` and `tc -j` are the oracle. Each test has its
//! own network namespaces.

use std::net::IpAddr;

use clearstream_netlink::{Netem, NetlinkError, Prefix, RouteSocket, ethtool::Ethtool};
use clearstream_testkit::namespace;
use serde_json::Value;

struct Host {
    inside: namespace::Host,
    socket: RouteSocket,
}

impl Host {
    fn new() -> Self {
        let inside = namespace::Host::new();
        let socket = inside.run(RouteSocket::open).unwrap();
        Self { inside, socket }
    }

    /// Runs iproute2 inside and parses its JSON.
    fn json(&self, program: &str, arguments: &str) -> Value {
        serde_json::from_str(&self.inside.tool(&format!("{program} {arguments}"))).unwrap()
    }
}

fn pair() -> (Host, Host) {
    let (mut one, two) = (Host::new(), Host::new());
    one.socket.add_veth("left", "right", two.inside.namespaces().net()).unwrap();
    (one, two)
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

#[test]
fn root_veth_pair_matches_ip() {
    let (mut one, mut two) = pair();
    one.socket.set_mtu("left", 9000).unwrap();
    one.socket.set_transmit_queue("left", 4321).unwrap();
    one.socket.set_up("left", true).unwrap();
    two.socket.set_up("right", true).unwrap();
    let shown = &one.json("ip", "-j -d link show left")[0];
    assert_eq!(shown["mtu"], 9000);
    assert_eq!(shown["txqlen"], 4321);
    assert_eq!(shown["linkinfo"]["info_kind"], "veth");
    assert!(shown["flags"].as_array().unwrap().contains(&"UP".into()));
    let ours = one.socket.interface("left").unwrap();
    assert_eq!(u64::from(ours.index), shown["ifindex"].as_u64().unwrap());
    assert_eq!((ours.mtu_bytes, ours.up, ours.transmit_queue_count), (9000, true, 4321));
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned()).collect()
    };
    let ours: Vec<String> =
        two.socket.interfaces().unwrap().into_iter().map(|interface| interface.name).collect();
    assert_eq!(ours, names(&two.json("ip", "-j link show")));
    one.socket.set_up("left", false).unwrap();
    assert!(!one.json("ip", "-j link show left")[0]["flags"].as_array().unwrap().contains(&"UP".into()));
}

#[test]
fn root_addresses_match_ip() {
    let (mut one, _two) = pair();
    one.socket.set_up("left", true).unwrap();
    for text in ["10.1.0.1/24", "192.0.2.9/32", "fd00::1/64"] {
        one.socket.add_address("left", prefix(text)).unwrap();
    }
    let shown = one.json("ip", "-j address show dev left");
    let mut shown: Vec<String> = shown[0]["addr_info"]
        .as_array()
        .unwrap()
        .iter()
        .map(|address| format!("{}/{}", address["local"].as_str().unwrap(), address["prefixlen"]))
        .collect();
    let mut ours: Vec<String> = one.socket.addresses("left").unwrap().iter().map(Prefix::to_string).collect();
    shown.sort();
    ours.sort();
    assert_eq!(ours, shown);
    for text in ["10.1.0.1/24", "192.0.2.9/32", "fd00::1/64"] {
        assert!(shown.contains(&text.to_owned()), "{text} in {shown:?}");
    }
    let error = one.socket.add_address("left", prefix("10.1.0.1/24")).unwrap_err();
    assert!(error.to_string().contains("add the address 10.1.0.1/24 to left"), "{error}");
}

#[test]
fn root_routes_match_ip() {
    let (mut one, mut two) = pair();
    two.socket.set_up("right", true).unwrap();
    one.socket.set_up("left", true).unwrap();
    one.socket.add_address("left", prefix("10.1.0.1/24")).unwrap();
    one.socket.add_address("left", prefix("fd00::1/64")).unwrap();
    let gateway: IpAddr = "10.1.0.254".parse().unwrap();
    one.socket.add_route(prefix("10.9.7.5/16"), gateway, Some("reno")).unwrap();
    one.socket.add_route(prefix("0.0.0.0/0"), gateway, None).unwrap();
    one.socket.add_route(prefix("::/0"), "fd00::fe".parse().unwrap(), None).unwrap();
    let by_ip = |family: &str| -> Vec<(String, Option<String>)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        one.json("ip", &format!("-j {family} route show"))
            .as_array()
            .unwrap()
            .iter()
            .map(|route| (text(&route["dst"]).unwrap(), text(&route["gateway"])))
            .collect()
    };
    let mut shown = by_ip("-4");
    shown.extend(by_ip("-6"));
    let mut ours: Vec<(String, Option<String>)> = one
        .socket
        .routes()
        .unwrap()
        .iter()
        .map(|route| {
            let to = if route.to.length == 0 { "default".to_owned() } else { route.to.to_string() };
            (to, route.via.map(|via| via.to_string()))
        })
        .collect();
    shown.sort();
    ours.sort();
    assert_eq!(ours, shown);
    assert!(shown.contains(&("10.9.0.0/16".to_owned(), Some("10.1.0.254".to_owned()))));
    let links = ["10.1.0.1/24", "fd00::1/64"];
    for link in links {
        one.socket.set_link_congestion_control("left", prefix(link), "reno").unwrap();
    }
    // Link-local routes appear after duplicate address detection.
    let lasting = |routes: &[clearstream_netlink::Route]| -> Vec<String> {
        routes.iter().map(|route| route.to.to_string()).filter(|to| !to.starts_with("fe80")).collect()
    };
    let after = lasting(&one.socket.routes().unwrap());
    assert_eq!(after.len(), ours.iter().filter(|(to, _)| !to.starts_with("fe80")).count(), "{after:?}");
    for (family, count) in [("-4", 2), ("-6", 1)] {
        let shown = one.json("ip", &format!("-j {family} route show")).to_string();
        assert_eq!(shown.matches("\"congestion\":\"reno\"").count(), count, "{shown}");
    }
    let error =
        one.socket.add_route(prefix("10.77.0.0/16"), "172.16.0.1".parse().unwrap(), None).unwrap_err();
    assert_eq!(error.refused_with(), Some(rustix::io::Errno::NETUNREACH.raw_os_error()), "{error}");
}

#[test]
fn root_netem_matches_tc_or_is_named_as_missing() {
    let (mut one, _two) = pair();
    let netem = Netem {
        delay_ns: 8_500_000,
        jitter_ns: 200_000,
        loss_ratio: 0.25,
        rate_bps: Some(19_000_000_000),
        limit_count: 1000,
    };
    match one.socket.set_netem("left", &netem) {
        Ok(()) => {
            let shown = &one.json("tc", "-j qdisc show dev left root")[0];
            assert_eq!(shown["kind"], "netem");
            assert_eq!(shown["options"]["limit"], 1000);
            let delay = &shown["options"]["delay"];
            assert!((delay["delay"].as_f64().unwrap() - 0.0085).abs() < 1e-9, "{shown}");
            assert!((delay["jitter"].as_f64().unwrap() - 0.0002).abs() < 1e-9, "{shown}");
            assert_eq!(one.socket.root_discipline("left").unwrap().as_deref(), Some("netem"));
        }
        Err(error) => {
            // This kernel has none; nothing may have changed.
            assert_eq!(error.refused_with(), Some(rustix::io::Errno::NOENT.raw_os_error()), "{error}");
            assert_ne!(one.socket.root_discipline("left").unwrap().as_deref(), Some("netem"));
        }
    }
}

#[test]
fn root_unknown_interface_is_named() {
    let mut host = Host::new();
    let error = host.socket.set_mtu("nowhere", 1500).unwrap_err();
    assert!(matches!(error, NetlinkError::NoInterface { .. }));
    assert!(error.to_string().contains("nowhere"));
}

#[test]
fn root_a_set_feature_matches_ethtool() {
    let (one, _two) = pair();
    let gro = |host: &Host| {
        let text = host.inside.tool("ethtool -k left");
        text.lines().find(|line| line.starts_with("generic-receive-offload")).unwrap().ends_with(": on")
    };
    for on in [true, false, true] {
        let set = || Ethtool::open().unwrap().set_feature("left", "rx-gro", on);
        one.inside.run(set).unwrap();
        assert_eq!(gro(&one), on);
    }
    let set = || Ethtool::open().unwrap().set_feature("left", "no-such-feature", true);
    assert!(one.inside.run(set).is_err());
}

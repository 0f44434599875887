//! Errors of the kernel, with the message that iproute2 and ethtool print for the same request.

use clearstream_netlink::{RouteSocket, ethtool::Ethtool};
use clearstream_schema::routing::{GroupMember, Nexthop, NexthopTarget, RouteAction, RouteEntry};
use clearstream_testkit::namespace;

struct Host {
    inside: namespace::Host,
    socket: RouteSocket,
}

impl Host {
    fn new() -> Self {
        let inside = namespace::Host::new();
        let socket = inside.run(RouteSocket::open).unwrap();
        let host = Self { inside, socket };
        for line in [
            "link add ib0 numrxqueues 2 numtxqueues 2 type veth peer name other",
            "link set other up",
            "link set ib0 up",
            "address add 10.10.0.200/24 dev ib0",
        ] {
            assert_eq!(host.error_of(&format!("ip {line}")), "", "{line}");
        }
        host
    }

    /// The message that a command prints about a failure.
    fn error_of(&self, line: &str) -> String {
        let output = self.inside.output(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let first = text.lines().next().unwrap_or_default();
        // "Error: SENTENCE." of iproute2, "netlink error: SENTENCE (offset 32)" of ethtool.
        let message = first.split_once(": ").map_or("", |(_, rest)| rest);
        message.split(" (offset").next().unwrap_or_default().trim_end_matches('.').to_owned()
    }
}

#[test]
fn root_errors_contain_the_kernels_message_as_iproute2_prints_it() {
    let mut host = Host::new();
    let gateway = "172.16.0.1".parse().unwrap();
    let nexthop = |id, target| Nexthop { id, target, protocol: 117, place: None };
    let unknown = NexthopTarget::Group { members: vec![GroupMember { id: 99, weight: 1 }], resilient: None };
    let by_object = RouteEntry {
        destination: "10.78.0.0/16".parse().unwrap(),
        table: 254,
        metric: 0,
        action: RouteAction::Nexthop(77),
        source: None,
        mtu: None,
        protocol: 117,
        place: None,
    };
    let refused = [
        (
            "ip route add 10.77.0.0/16 via 172.16.0.1",
            host.socket.add_route("10.77.0.0/16".parse().unwrap(), gateway, None).unwrap_err(),
        ),
        ("ip nexthop add id 5 group 99", host.socket.set_nexthop(&nexthop(5, unknown)).unwrap_err()),
        ("ip link set dev ib0 mtu 999999", host.socket.set_mtu("ib0", 999_999).unwrap_err()),
        ("ip route add 10.78.0.0/16 nhid 77", host.socket.set_route(&by_object, false).unwrap_err()),
    ];
    for (line, error) in refused {
        let message = host.error_of(line);
        assert!(message.len() > 10, "{line}: {message:?}");
        assert!(error.to_string().ends_with(&format!(": {message}")), "{error}, and {line}: {message}");
        assert!(error.refused_with().is_some(), "{error}");
    }
}

#[test]
fn root_errors_contain_the_drivers_message_as_ethtool_prints_it() {
    let host = Host::new();
    let mut ethtool = host.inside.run(Ethtool::open).unwrap();
    let message = host.error_of("ethtool -L ib0 rx 99");
    assert!(message.contains("exceeds maximum"), "{message}");
    let error = ethtool.set_value("ib0", "channels", "rx", "99").unwrap_err();
    assert!(error.to_string().ends_with(&format!(": {message}")), "{error}, and ethtool: {message}");
}

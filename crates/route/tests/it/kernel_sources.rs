//! A host with two uplinks and one multipath route, behind routers with strict filters: the linter
//! agrees with the kernel about whether a packet leaves by the gateway of its source.

use std::process::Command;

use clearstream_host::HostRoot;
use clearstream_lint::MuteList;
use clearstream_netlink::{RouteQuery, RouteSocket};
use clearstream_route::lint;
use clearstream_testkit::namespace::Host;

fn shell(host: &Host, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]);
    host.enter(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn root_two_uplinks_are_judged_as_the_kernel_chooses() {
    let [ours, first, second, server, switch] = [(); 5].map(|()| Host::new());
    let hosts = [("h", &ours), ("r1", &first), ("r2", &second), ("s", &server)];
    for (_, host) in hosts.iter().chain(&[("switch", &switch)]) {
        shell(host, "ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6");
    }
    let join = |host: &Host, name: &str, other: &Host, peer: &str| {
        shell(host, &format!("ip link add {name} type veth peer name {peer} netns {}", other.pid()));
        shell(host, &format!("ip link set {name} up"));
        shell(other, &format!("ip link set {peer} up"));
    };
    join(&ours, "e0", &first, "e0");
    join(&ours, "e1", &second, "e0");
    shell(&switch, "ip link add sw type bridge; ip link set sw up");
    for (number, (host, name)) in [(&first, "e1"), (&second, "e1"), (&server, "e0")].into_iter().enumerate() {
        join(host, name, &switch, &format!("p{number}"));
        shell(&switch, &format!("ip link set p{number} master sw"));
    }
    shell(
        &ours,
        "ip address add 10.1.0.9/24 dev e0; ip address add 10.3.0.9/24 dev e1
         ip route add default nexthop via 10.1.0.1 dev e0 nexthop via 10.3.0.1 dev e1
         echo 1 > /proc/sys/net/ipv4/fib_multipath_hash_policy",
    );
    let forwards = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter";
    shell(
        &first,
        &format!(
            "ip address add 10.1.0.1/24 dev e0; ip address add 10.9.0.1/24 dev e1; {forwards}; ip route add 10.3.0.0/24 via 10.9.0.2"
        ),
    );
    shell(
        &second,
        &format!(
            "ip address add 10.3.0.1/24 dev e0; ip address add 10.9.0.2/24 dev e1; {forwards}; ip route add 10.1.0.0/24 via 10.9.0.1"
        ),
    );
    shell(
        &server,
        "ip address add 10.9.0.9/24 dev e0; ip route add 10.1.0.0/24 via 10.9.0.1; ip route add 10.3.0.0/24 via 10.9.0.2",
    );
    let by_source = ours.run(|| {
        let mut socket = RouteSocket::open().unwrap();
        [("10.1.0.9", "10.1.0.1"), ("10.3.0.9", "10.3.0.1")].into_iter().all(|(source, gateway)| {
            (20_000..20_064).all(|port| {
                let query = RouteQuery {
                    ports: Some((6, port, 2049)),
                    ..RouteQuery::to("10.9.0.9".parse().unwrap()).from(source.parse().unwrap())
                };
                socket.lookup(&query).unwrap().via == Some(gateway.parse().unwrap())
            })
        })
    });
    let subjects = hosts.map(|(name, host)| {
        let mut subject = host.run(|| lint::of_host(&HostRoot::live(), name));
        // Namespaces share the machine's name.
        (subject.name, subject.routing.host) = (name.to_owned(), name.to_owned());
        subject
    });
    let report = lint::lint(&subjects, None, &MuteList::default());
    let drops: Vec<_> = report.findings.iter().filter(|it| it.id == "rp_filter:routing:will-drop").collect();
    assert_eq!(drops.is_empty(), by_source, "{drops:#?}");
}

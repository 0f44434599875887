//! Switches and faults in real labs, verified by `ip`, `ping`, and by packets
//! that the hosts do not receive.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use clearstream_lab::{LabError, RunningLab, down, file};
use clearstream_schema::{
    control::FailureKind,
    failure::Classified,
    lab::{FaultKind, LabFault, LabFile},
};

use crate::common::{Inside, Lab, keeper, network_namespaces, output, pair};

/// Three hosts and two routers on two switches; `client` reaches `server` by `one`.
fn switched(name: &str, mtu: u32) -> LabFile {
    let text = format!(
        r#"schema = "clearstream.lab"
version = 1
name = "{name}-{}"
title = "test"
[[host]]
name = "client"
[[host.route]]
to = "10.98.2.0/24"
via = "10.98.1.11"
[[host.route]]
to = "fd98:2::/64"
via = "fd98:1::11"
[[host]]
name = "beside"
[[host]]
name = "one"
router = true
[[host]]
name = "two"
router = true
[[host]]
name = "server"
[[host.route]]
to = "10.98.1.0/24"
via = "10.98.2.11"
[[host.route]]
to = "fd98:1::/64"
via = "fd98:2::11"
[[switch]]
name = "left"
mtu = {mtu}
ends = [
  {{ host = "client", interface = "eth0", addresses = ["10.98.1.1/24", "fd98:1::1/64"] }},
  {{ host = "beside", interface = "eth0", addresses = ["10.98.1.2/24", "fd98:1::2/64"] }},
  {{ host = "one", interface = "left0", addresses = ["10.98.1.11/24", "fd98:1::11/64"] }},
  {{ host = "two", interface = "left0", addresses = ["10.98.1.12/24", "fd98:1::12/64"] }},
]
[[switch]]
name = "right"
mtu = {mtu}
ends = [
  {{ host = "one", interface = "right0", addresses = ["10.98.2.11/24", "fd98:2::11/64"] }},
  {{ host = "two", interface = "right0", addresses = ["10.98.2.12/24", "fd98:2::12/64"] }},
  {{ host = "server", interface = "eth0", addresses = ["10.98.2.1/24", "fd98:2::1/64"] }},
]
"#,
        std::process::id()
    );
    file::parse(Path::new("test.toml"), &text).unwrap()
}

/// Whether one of three packets gets a reply soon.
fn replies_soon(lab: &RunningLab, host: &str, to: &str, size: u32) -> bool {
    let mut ping = Command::new("ping");
    ping.args(["-n", "-q", "-c", "3", "-i", "0.05", "-W", "0.5", "-M", "do", "-s", &size.to_string(), to]);
    lab.command(host, ping).unwrap().output().unwrap().status.success()
}

/// Whether packets get replies eventually: a loaded machine is slow.
fn replies(lab: &RunningLab, host: &str, to: &str, size: u32) -> bool {
    (0..20).any(|_| replies_soon(lab, host, to, size))
}

/// Whether none of three packets gets a reply.
fn silent(lab: &RunningLab, host: &str, to: &str, size: u32) -> bool {
    !replies_soon(lab, host, to, size)
}

/// Whether a UDP packet to a closed port gets a port unreachable error (ICMP,
/// RFC 1122, 3.2.2.1): a check independent of ping's.
fn port_replies(inside: &Inside, to: &str) -> bool {
    let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), 9);
    inside.run(|| {
        let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        // The error of the first one may have made the second fail: that is a
        // reply.
        (0..3).any(|_| {
            socket.send(b"?").is_err() || {
                let refused = socket.recv(&mut [0; 8]).unwrap_err();
                refused.kind() == std::io::ErrorKind::ConnectionRefused
            }
        })
    })
}

/// Network namespaces of the processes that a keeper has started.
fn held_by(keeper_pid: u32) -> BTreeSet<PathBuf> {
    let children = fs::read_to_string(format!("/proc/{keeper_pid}/task/{keeper_pid}/children")).unwrap();
    children.split_whitespace().map(|child| fs::read_link(format!("/proc/{child}/ns/net")).unwrap()).collect()
}

fn fault(host: &str, interface: Option<&str>, kind: FaultKind) -> LabFault {
    LabFault { host: host.to_owned(), interface: interface.map(str::to_owned), kind }
}

fn carrier(lab: &RunningLab, host: &str, interface: &str) -> String {
    output(lab, host, &format!("cat /sys/class/net/{interface}/carrier")).trim().to_owned()
}

#[test]
fn root_hosts_at_a_switch_reach_each_other_in_its_mtu() {
    let file = switched("switch", 4000);
    let lab = Lab::up(&file).unwrap();
    assert_eq!(lab.0.address("beside").unwrap().to_string(), "10.98.1.2");
    // 20 and 40 bytes of IP header and 8 of ICMP (RFC 791, RFC 8200, RFC 792).
    for (to, fits) in [("10.98.1.2", 3972), ("fd98:1::2", 3952), ("10.98.2.1", 3972), ("fd98:2::1", 3952)] {
        assert!(replies(&lab.0, "client", to, fits), "{to}");
        assert!(silent(&lab.0, "client", to, fits + 1), "{to}");
    }
    assert!(output(&lab.0, "client", "getent hosts server").contains("fd98:2::1"));
    // The switch is no host: only its hosts are neighbours.
    let neighbours = output(&lab.0, "client", "ip -j -4 neighbour show dev eth0");
    let neighbours: Vec<serde_json::Value> = serde_json::from_str(&neighbours).unwrap();
    let seen: BTreeSet<&str> = neighbours.iter().map(|one| one["dst"].as_str().unwrap()).collect();
    assert_eq!(seen, BTreeSet::from(["10.98.1.11", "10.98.1.2"]));
    lab.0.set_mtu(0, 1500).unwrap();
    assert!(replies(&lab.0, "client", "10.98.1.2", 1472) && silent(&lab.0, "client", "10.98.1.2", 1473));
    lab.0.set_mtu(0, 9000).unwrap();
    assert!(replies(&lab.0, "client", "10.98.1.2", 8972));
    let error = lab.0.set_mtu(2, 1500).unwrap_err();
    assert!(error.to_string().contains("links 0 to 1"), "{error}");
    lab.0.set_receive_cores("beside", "eth0", Some(&"0".parse().unwrap())).unwrap();
    assert_eq!(
        u32::from_str_radix(
            output(&lab.0, "beside", "cat /sys/class/net/eth0/queues/rx-0/rps_cpus").trim(),
            16
        )
        .unwrap(),
        1
    );
}

#[test]
fn root_every_host_has_its_own_multipath_hash_seed() {
    let lab = Lab::up(&switched("seeds", 1500)).unwrap();
    let seed = |host: &str| output(&lab.0, host, "cat /proc/sys/net/ipv4/fib_multipath_hash_seed");
    let seeds: BTreeSet<String> = ["client", "beside", "one", "two", "server"]
        .into_iter()
        .map(|host| seed(host).trim().to_owned())
        .collect();
    assert_eq!(seeds.len(), 5);
    assert!(!seeds.contains("0"), "0 is the kernel's own secret, the same in every namespace");
    let mut own = switched("own-seed", 1500);
    own.hosts[0].sysctls.insert("net.ipv4.fib_multipath_hash_seed".to_owned(), "7".to_owned());
    let lab = Lab::up(&own).unwrap();
    assert_eq!(output(&lab.0, "client", "cat /proc/sys/net/ipv4/fib_multipath_hash_seed").trim(), "7");
}

#[test]
fn root_a_gateway_that_forwards_nothing_still_replies() {
    let lab = Lab::up(&switched("drop", 1500)).unwrap();
    let client = Inside::of(&lab.0, "client");
    assert!(port_replies(&client, "10.98.2.1") && port_replies(&client, "fd98:2::1"));
    let fault = fault("one", None, FaultKind::NoForwarding);
    lab.0.inject_fault(&fault).unwrap();
    assert_eq!(lab.0.faults().unwrap(), std::slice::from_ref(&fault));
    for address in ["10.98.2.1", "fd98:2::1"] {
        assert!(!port_replies(&client, address) && silent(&lab.0, "client", address, 56), "{address}");
        // In the other direction too.
        assert!(silent(&lab.0, "server", if address.contains(':') { "fd98:1::1" } else { "10.98.1.1" }, 56));
    }
    // It responds for both its addresses, and its neighbour entry is valid.
    for own in ["10.98.1.11", "10.98.2.11", "fd98:1::11", "fd98:2::11"] {
        assert!(replies(&lab.0, "client", own, 56), "{own}");
    }
    // ARP and neighbour discovery too: a host without the entry resolves it.
    output(&lab.0, "beside", "ip neighbour flush dev eth0");
    assert!(replies(&lab.0, "beside", "10.98.1.11", 56) && replies(&lab.0, "beside", "fd98:1::11", 56));
    assert_eq!(output(&lab.0, "one", "cat /proc/sys/net/ipv4/ip_forward").trim(), "1", "sysctls stay");
    assert!(replies(&lab.0, "one", "10.98.2.1", 56), "its own packets leave");
    lab.0.inject_fault(&fault).unwrap();
    assert_eq!(lab.0.clear_faults(Some("one"), None).unwrap(), [fault], "twice the same is one");
    assert!(port_replies(&client, "10.98.2.1") && port_replies(&client, "fd98:2::1"));
    assert!(lab.0.faults().unwrap().is_empty());
}

#[test]
fn root_cut_behind_the_switch_keeps_the_carrier_and_link_down_does_not() {
    let lab = Lab::up(&switched("cut", 1500)).unwrap();
    lab.0.inject_fault(&fault("one", Some("right0"), FaultKind::Cut)).unwrap();
    assert_eq!(carrier(&lab.0, "one", "right0"), "1");
    assert!(silent(&lab.0, "client", "10.98.2.1", 56) && silent(&lab.0, "server", "10.98.2.11", 56));
    assert!(replies(&lab.0, "client", "10.98.1.11", 56), "the other side is as it was");
    assert!(replies(&lab.0, "server", "10.98.2.12", 56), "and the other router too");
    // All its ports, while one of its links is cut already: clearing one fault
    // does not clear the other.
    lab.0.inject_fault(&fault("one", None, FaultKind::Cut)).unwrap();
    assert!(silent(&lab.0, "client", "10.98.1.11", 56));
    assert_eq!((carrier(&lab.0, "one", "left0"), carrier(&lab.0, "one", "right0")), ("1".into(), "1".into()));
    assert_eq!(lab.0.clear_faults(Some("one"), Some("right0")).unwrap().len(), 1);
    assert!(silent(&lab.0, "server", "10.98.2.11", 56));
    assert_eq!(lab.0.clear_faults(None, None).unwrap().len(), 1);
    assert!(replies(&lab.0, "client", "10.98.2.1", 56) && replies(&lab.0, "client", "fd98:2::1", 56));
    // With loss of carrier.
    lab.0.inject_fault(&fault("one", Some("left0"), FaultKind::LinkDown)).unwrap();
    assert_eq!(
        (carrier(&lab.0, "one", "left0"), carrier(&lab.0, "client", "eth0")),
        ("0".into(), "1".into())
    );
    assert!(silent(&lab.0, "client", "10.98.2.1", 56));
    lab.0.clear_faults(None, None).unwrap();
    assert_eq!(carrier(&lab.0, "one", "left0"), "1");
    assert!(replies(&lab.0, "client", "10.98.2.1", 56) && replies(&lab.0, "client", "fd98:2::1", 56));
}

#[test]
fn root_a_link_between_two_hosts_is_cut_and_restored() {
    for (name, link) in [("cut-veth", "mtu = 1500"), ("cut-line", "delay = \"1ms\"")] {
        let lab = Lab::up(&pair(name, link)).unwrap();
        assert!(replies(&lab.0, "here", "10.0.0.2", 56));
        lab.0.inject_fault(&fault("there", Some("eth0"), FaultKind::Cut)).unwrap();
        assert!(silent(&lab.0, "here", "10.0.0.2", 56), "{name}");
        assert_eq!(carrier(&lab.0, "here", "eth0"), "1");
        lab.0.clear_faults(Some("there"), None).unwrap();
        assert!(replies(&lab.0, "here", "10.0.0.2", 56), "{name}");
    }
}

#[test]
fn root_impossible_faults_are_rejected_and_change_nothing() {
    let lab = Lab::up(&switched("refused", 1500)).unwrap();
    for (fault, expected, kind) in [
        (fault("three", None, FaultKind::Cut), "client, beside, one, two, server", FailureKind::Name),
        (fault("one", Some("eth9"), FaultKind::Cut), "left0, right0", FailureKind::Name),
        (fault("client", None, FaultKind::NoForwarding), "no router", FailureKind::Invalid),
        (fault("one", Some("eth9"), FaultKind::NoForwarding), "left0, right0", FailureKind::Name),
    ] {
        let error = lab.0.inject_fault(&fault).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.failure_kind(), kind, "{error}");
    }
    assert!(matches!(lab.0.clear_faults(Some("three"), None), Err(LabError::NoHost { .. })));
    assert!(lab.0.faults().unwrap().is_empty() && replies(&lab.0, "client", "10.98.2.1", 56));
    let lab = Lab::up(&pair("no-switch", "")).unwrap();
    let error = lab.0.inject_fault(&fault("here", None, FaultKind::LinkDown)).unwrap_err();
    assert!(error.to_string().contains("cut the link instead"), "{error}");
    // A qdisc of another owner at the root of an end stays, and the peer is
    // unchanged.
    output(&lab.0, "there", "tc qdisc replace dev eth0 root pfifo limit 10");
    let error = lab.0.inject_fault(&fault("here", None, FaultKind::Cut)).unwrap_err();
    assert!(error.to_string().contains("pfifo limit 10"), "{error}");
    assert!(replies(&lab.0, "here", "10.0.0.2", 56));
}

#[test]
fn root_a_lab_of_switches_leaves_nothing_with_faults_or_by_kill() {
    let file = switched("leaves", 1500);
    let lab = Lab::up(&file).unwrap();
    lab.0.inject_fault(&fault("one", None, FaultKind::Cut)).unwrap();
    lab.0.inject_fault(&fault("two", None, FaultKind::NoForwarding)).unwrap();
    let held = held_by(lab.0.keeper_pid());
    assert_eq!(held.len(), 7, "five hosts and two switches");
    down(&file.name).unwrap();
    assert!(network_namespaces().is_disjoint(&held));
    assert!(!Path::new("/run/clearstream/labs").join(&file.name).exists());

    let lab = Lab::up(&file).unwrap();
    assert!(lab.0.faults().unwrap().is_empty(), "a fresh lab works");
    assert!(replies(&lab.0, "client", "10.98.2.1", 56));
    let held = held_by(lab.0.keeper_pid());
    let keeper_pid = rustix::process::Pid::from_raw(lab.0.keeper_pid().cast_signed()).unwrap();
    rustix::process::kill_process(keeper_pid, rustix::process::Signal::KILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !network_namespaces().is_disjoint(&held) {
        assert!(Instant::now() < deadline, "the namespaces end with the keeper");
        std::thread::sleep(Duration::from_millis(20));
    }
    let restarted = clearstream_lab::up(&file, keeper()).unwrap();
    assert!(replies(&restarted, "client", "10.98.2.1", 56));
    down(&file.name).unwrap();
}

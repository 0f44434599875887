//! Sysctls of one host.

use super::*;

const FILTER: &str = "rp_filter:routing:will-drop";

#[test]
fn a_filter_that_drops() {
    // Clients are reached by table 1 alone, and no rule of the return path leads
    // there.
    let text = "address ib1 10.10.0.201/24\nnet.ipv4.conf.all.rp_filter = 1\n\
                route 10.100.0.0/16 via 10.10.0.11 dev ib1 table 1\nrule priority 1 to 10.55.0.0/16 table 1\n";
    assert_eq!(lines(text, FILTER), [2]);
    // A rule for the destination of the packets is part of the return path.
    let by_address = text.replace("to 10.55.0.0/16", "from 10.10.0.201");
    assert_eq!(lines(&by_address, FILTER), NONE);
    // Loose: some return path must exist, and there is none.
    let loose = text.replace("rp_filter = 1", "rp_filter = 2");
    assert_eq!(lines(&loose, FILTER), [2]);
    let elsewhere = format!("{loose}address eth0 192.168.0.2/24\nroute default via 192.168.0.1 dev eth0\n");
    assert_eq!(lines(&elsewhere, FILTER), NONE);
    assert_eq!(lines(&elsewhere.replace("rp_filter = 2", "rp_filter = 1"), FILTER), [2]);
    assert_eq!(lines(&text.replace("rp_filter = 1", "rp_filter = 0"), FILTER), NONE);
}

/// ip-sysctl: the maximum of all and the interface's own is used.
#[test]
fn the_larger_filter_is_in_effect() {
    let text = "address ib1 10.10.0.201/24\nroute 10.100.0.0/16 via 10.10.0.11 dev ib1 table 1\n\
                net.ipv4.conf.all.rp_filter = 0\nnet.ipv4.conf.ib1.rp_filter = 1\n";
    assert_eq!(lines(text, FILTER), [4]);
    let loose_wins = text.replace("all.rp_filter = 0", "all.rp_filter = 2")
        + "address eth0 192.168.0.2/24\nroute default via 192.168.0.1 dev eth0\n";
    assert_eq!(lines(&loose_wins, FILTER), NONE);
}

#[test]
fn a_filter_that_does_not_see_the_mark() {
    let id = "src_valid_mark:routing:will-drop";
    let text = "address ib1 10.10.0.201/24\nnet.ipv4.conf.all.rp_filter = 1\n\
                route 10.100.0.0/16 via 10.10.0.11 dev ib1 table 1\nrule priority 1 fwmark 7 table 1\nmark 7\n";
    assert_eq!(lines(text, id), [2]);
    assert_eq!(lines(text, FILTER), NONE);
    assert_eq!(lines(&format!("{text}net.ipv4.conf.all.src_valid_mark = 1\n"), id), NONE);
    // With a return path in the main table the mark is not needed.
    assert_eq!(lines(&format!("{text}route 10.100.0.0/16 via 10.10.0.11 dev ib1\n"), id), NONE);
}

#[test]
fn a_gateway_that_does_not_forward() {
    let id = "net.ipv4.ip_forward:routing:gateway-does-not-forward";
    let client = || host("c1", CLIENT);
    assert_eq!(lines_of(&[client(), gateway(1, 0)], id), [3]);
    assert_eq!(lines_of(&[client(), gateway(1, 1)], id), NONE);
    // No host sends to it.
    assert_eq!(lines_of(&[gateway(1, 0)], id), NONE);
    // Only one side of the gateway is known, and no host beyond it.
    let text = "address ipogif0 10.100.0.91/16\nnet.ipv4.ip_forward = 0\n";
    assert_eq!(lines_of(&[client(), host("sn1", text)], id), [2]);
    // Not for one interface.
    let mut half = gateway(1, 1);
    half.routing.sysctls.insert("net.ipv4.conf.ib0.forwarding".to_owned(), "0".to_owned().into());
    assert_eq!(lines_of(&[client(), half], id), [0]);
    // Files without it leave the kernel's default.
    let mut silent = gateway(1, 1);
    silent.routing.sysctls.clear();
    assert_eq!(report_of(&[client(), silent]).findings[0].severity, Severity::Warning);
}

#[test]
fn a_hash_without_ports() {
    let id = "net.ipv4.fib_multipath_hash_policy:routing:ignores-ports";
    let route = "route 10.100.0.0/16 via 10.10.0.11,10.10.0.12 dev ib1\n";
    let with = |line: &str| lines(&format!("{route}{line}"), id);
    assert_eq!(with("net.ipv4.fib_multipath_hash_policy = 0\n"), [2]);
    assert_eq!(with("net.ipv4.fib_multipath_hash_policy = 2\n"), [2]);
    assert_eq!(with("net.ipv4.fib_multipath_hash_policy = 3\n"), [2]);
    assert_eq!(with("net.ipv4.fib_multipath_hash_policy = 1\n"), NONE);
    assert_eq!(
        with("net.ipv4.fib_multipath_hash_policy = 3\nnet.ipv4.fib_multipath_hash_fields = 0x0037\n"),
        NONE
    );
    assert_eq!(with("net.ipv4.ip_forward = 0\n"), [1], "the kernel's default is 0");
    assert_eq!(lines("route default via 10.10.0.11\nnet.ipv4.ip_forward = 0\n", id), NONE);
}

#[test]
fn errors_in_sysctls_are_those_of_tune() {
    let text = "net.ipv4.tcp rmem = 4096 87380 268435456\nnet.ipv4.tcp_mem = 4096 87380 268435456\n";
    let mut subject = host("nsd1", "");
    subject.settings = Some(HostState::of_file("sysctl.conf", text, clearstream_tune::Assumed::default()));
    let report = report_of(&[subject]);
    let found = ids(&report);
    assert!(found.contains(&"net.ipv4.tcp_rmem:syntax:blank-in-name@1".to_owned()), "{found:?}");
    assert!(found.iter().any(|id| id.starts_with("net.ipv4.tcp_mem:unit:copied-triple@2")), "{found:?}");
}

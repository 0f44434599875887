//! The choice among equal paths, against what the kernel itself chooses.

use std::{collections::BTreeSet, process::Command};

use clearstream_place::{hash::Tuple, path::PathHash};

const PORTS: std::ops::Range<u16> = 40_000..40_200;

/// Queries the kernel, in a network namespace of its own that ends with the
/// command, for the next hop of each port (`ip route get ... sport`).
fn chosen_by_the_kernel(version: &str, seed: u32, weights: [u32; 2]) -> Vec<u32> {
    let (source, destination, prefix) = match version {
        "-4" => ("192.0.2.1", "198.51.100.2", 24),
        _ => ("2001:db8:1::1", "2001:db8:2::2", 64),
    };
    let family = if version == "-4" { "ipv4" } else { "ipv6" };
    let queries: String = PORTS
        .map(|port| format!("route get {destination} from {source} ipproto tcp sport {port} dport 5201\n"))
        .collect();
    let script = format!(
        "set -e
        for i in 0 1; do
            ip link add v$i type veth peer name p$i
            ip link set p$i up; ip link set v$i up
            ip addr add 203.0.113.$((i * 4 + 1))/30 dev v$i
            ip -6 addr add 2001:db8:f$i::1/64 dev v$i nodad
        done
        ip link set lo up
        ip {version} addr add {source}/{host} dev lo {nodad}
        echo 1 > /proc/sys/net/{family}/fib_multipath_hash_policy
        echo {seed} > /proc/sys/net/ipv4/fib_multipath_hash_seed
        ip {version} route add {network}/{prefix} \
            nexthop via {first} dev v0 weight {a} nexthop via {second} dev v1 weight {b}
        ip {version} -batch -",
        host = if version == "-4" { 32 } else { 128 },
        nodad = if version == "-4" { "" } else { "nodad" },
        network = if version == "-4" { "198.51.100.0" } else { "2001:db8:2::" },
        first = if version == "-4" { "203.0.113.2" } else { "2001:db8:f0::2" },
        second = if version == "-4" { "203.0.113.6" } else { "2001:db8:f1::2" },
        a = weights[0],
        b = weights[1],
    );
    let mut child = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), queries.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output_text}{}", String::from_utf8_lossy(&output.stderr));
    output_text
        .lines()
        .filter(|line| line.contains(" dev v"))
        .map(|line| if line.contains(" dev v0 ") { 0 } else { 1 })
        .collect()
}

fn agrees(version: &str, seed: u32, weights: [u32; 2]) {
    if !std::path::Path::new("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists() {
        panic!("this test needs net.ipv4.fib_multipath_hash_seed, which came with Linux 6.11");
    }
    let (source, destination) = match version {
        "-4" => ("192.0.2.1:0", "198.51.100.2:5201"),
        _ => ("[2001:db8:1::1]:0", "[2001:db8:2::2]:5201"),
    };
    let tuple = Tuple { source: source.parse().unwrap(), destination: destination.parse().unwrap() };
    let landing = PathHash::Linux { seed, weights: weights.to_vec() }.landing(tuple);
    let ours: Vec<u32> = PORTS.map(|port| landing.of(port).unwrap()).collect();
    let kernels = chosen_by_the_kernel(version, seed, weights);
    assert_eq!(kernels, ours);
    assert_eq!(kernels.iter().collect::<BTreeSet<_>>().len(), 2, "both paths are taken");
}

#[test]
fn root_the_kernel_takes_the_computed_path() {
    agrees("-4", 7, [1, 1]);
    agrees("-4", 123_456_789, [1, 3]);
}

#[test]
fn root_the_kernel_takes_the_computed_path_of_ipv6() {
    agrees("-6", 7, [1, 1]);
}

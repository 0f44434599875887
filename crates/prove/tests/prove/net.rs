//! A small fabric in namespaces of its own, made with `ip`, `sysctl` and `nft`:
//! clients, gateways and a server on two switches, each host with an agent.

use std::{
    collections::BTreeMap,
    io::Write,
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
};

use clearstream_control::{Peer, Registration, Service, Services, memory_pair};
use clearstream_flow::FlowAgent;
use clearstream_probe::ProbeAgent;
use clearstream_prove::document::RouteVerification;
use clearstream_prove::{End, GatewayEnds, ProofAgent, ProofOptions, TestedRoute, calls::Lookup, prove};
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    fabric::{HashPolicy, ReturnPath},
};
use clearstream_testkit::namespace::Host;

/// Gateways of the fabric.
pub(crate) const GATEWAYS: usize = 3;

/// A kernel that cannot be queried for the gateway of a flow.
struct Blind;

impl Service for Blind {
    fn register(calls: &mut Registration<Self>) {
        let old = || Failure { kind: FailureKind::Unsupported, message: "an old kernel".to_owned() };
        calls.on(move |_, _: Lookup, _| Err(old()));
    }
}

/// Services of an agent.
fn services(blind: bool) -> Services {
    let services =
        Services::new().with(ProofAgent::default()).with(FlowAgent::new()).with(ProbeAgent::default());
    if blind { services.with(Blind) } else { services }
}

/// The namespaces; gone when dropped.
pub(crate) struct Net {
    hosts: BTreeMap<String, Host>,
    ipv6: bool,
}

impl Net {
    /// Clients c1 c2, gateways g1 g2 g3 and the server s1, with addresses and
    /// forwarding and without routes over the gateways.
    pub(crate) fn new(ipv6: bool) -> Self {
        let mut net = Self { hosts: BTreeMap::new(), ipv6 };
        for name in ["near", "far", "c1", "c2", "g1", "g2", "g3", "s1"] {
            net.hosts.insert(name.to_owned(), Host::new());
        }
        // Without duplicate address detection for link-local addresses.
        for host in net.hosts.keys() {
            net.sysctl(
                host,
                &["net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.dad_transmits=0"],
            );
        }
        for (switch, hosts) in
            [("near", ["c1", "c2", "g1", "g2", "g3"].as_slice()), ("far", &["g1", "g2", "g3", "s1"])]
        {
            let mut lines =
                "link set lo up\nlink add sw type bridge mcast_snooping 0\nlink set sw up\n".to_owned();
            for host in hosts {
                let pid = net.hosts[*host].pid();
                lines.push_str(&format!("link add to-{host} type veth peer name {switch}0 netns {pid}\n"));
                lines.push_str(&format!("link set to-{host} master sw\nlink set to-{host} up\n"));
            }
            net.ip(switch, &lines);
        }
        for (number, host) in ["c1", "c2"].into_iter().enumerate() {
            net.up(host, "near0", 1 + number);
        }
        for gateway in 1..=GATEWAYS {
            let host = format!("g{gateway}");
            net.up(&host, "near0", 90 + gateway);
            net.up(&host, "far0", 10 + gateway);
            net.sysctl(&host, &["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]);
        }
        net.up("s1", "far0", 201);
        for (seed, host) in ["c1", "c2", "s1"].into_iter().enumerate() {
            let seed = format!("net.ipv4.fib_multipath_hash_seed={}", 77 + 1000 * seed);
            net.sysctl(
                host,
                &[
                    "net.ipv4.fib_multipath_hash_policy=1",
                    "net.ipv6.fib_multipath_hash_policy=1",
                    &seed,
                    "net.ipv4.conf.all.rp_filter=0",
                    "net.ipv4.tcp_no_metrics_save=1",
                ],
            );
        }
        net
    }

    /// Address number `host` on a side: 10.100.0.x and 10.10.0.x.
    pub(crate) fn address(&self, side: &str, host: usize) -> String {
        match (side, self.ipv6) {
            ("near", false) => format!("10.100.0.{host}"),
            ("near", true) => format!("fd64:100::{host:x}"),
            (_, false) => format!("10.10.0.{host}"),
            (_, true) => format!("fd64:10::{host:x}"),
        }
    }

    /// The network of a side.
    pub(crate) fn network(&self, side: &str) -> &'static str {
        match (side, self.ipv6) {
            ("near", false) => "10.100.0.0/16",
            ("near", true) => "fd64:100::/64",
            (_, false) => "10.10.0.0/24",
            (_, true) => "fd64:10::/64",
        }
    }

    fn up(&self, host: &str, interface: &str, number: usize) {
        let side = interface.trim_end_matches('0');
        let length = self.network(side).split_once('/').unwrap().1;
        let address = self.address(side, number);
        let nodad = if self.ipv6 { " nodad" } else { "" };
        self.ip(
            host,
            &format!("link set lo up\nlink set {interface} up\naddress add {address}/{length} dev {interface}{nodad}\n"),
        );
    }

    /// Runs lines of `ip -batch` on a host.
    pub(crate) fn ip(&self, host: &str, lines: &str) {
        self.run(host, &["ip", "-batch", "-"], lines);
    }

    /// Sets sysctls of a host.
    pub(crate) fn sysctl(&self, host: &str, settings: &[&str]) {
        let mut arguments = vec!["sysctl", "-q", "-w"];
        arguments.extend(settings);
        self.run(host, &arguments, "");
    }

    /// Runs a program on a host; it must succeed.
    pub(crate) fn run(&self, host: &str, command_line: &[&str], input: &str) -> String {
        let mut command = Command::new(command_line[0]);
        command.args(&command_line[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.hosts[host].enter(&mut command);
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{host}: {command_line:?} {input}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A multipath route over gateways (numbers, weights) on a host.
    pub(crate) fn route(&self, host: &str, gateways: &[(usize, u16)]) {
        let (near, far, base) = if host == "s1" { ("far", "near", 10) } else { ("near", "far", 90) };
        let hops: String = gateways
            .iter()
            .map(|(gateway, weight)| {
                let via = self.address(near, base + gateway);
                format!(" nexthop via {via} dev {near}0 weight {weight}")
            })
            .collect();
        self.ip(host, &format!("route replace {}{hops}\n", self.network(far)));
    }

    /// Routes over all gateways with equal weights on every host.
    pub(crate) fn route_all(&self) {
        for host in ["c1", "c2", "s1"] {
            self.route(host, &[(1, 1), (2, 1), (3, 1)]);
        }
    }

    /// The route to verify.
    pub(crate) fn tested_route(&self, return_path: ReturnPath) -> TestedRoute {
        let end = |host: &str, class: &str, side: &str, number: usize| End {
            host: host.to_owned(),
            class: class.to_owned(),
            address: self.address(side, number).parse().unwrap(),
            aliases: Vec::new(),
        };
        let gateway = |number: usize| GatewayEnds {
            host: format!("g{number}"),
            weight: 1,
            client_side: self.address("near", 90 + number).parse().unwrap(),
            server_side: self.address("far", 10 + number).parse().unwrap(),
        };
        TestedRoute {
            between: ["compute".to_owned(), "storage".to_owned()],
            prefixes: ["near", "far"].map(|side| vec![self.network(side).parse().unwrap()]),
            ipv6: self.ipv6,
            clients: vec![end("c1", "compute", "near", 1), end("c2", "compute", "near", 2)],
            servers: vec![end("s1", "storage", "far", 201)],
            gateways: (1..=GATEWAYS).map(gateway).collect(),
            return_path,
            hash_policy: HashPolicy::Layer4,
            mtu_bytes: Some(1500),
            left_out_count: 0,
        }
    }

    /// Verifies it with an agent on each host.
    pub(crate) fn prove(&self, route: &TestedRoute, options: &ProofOptions) -> RouteVerification {
        self.prove_with(route, options, false)
    }

    /// The same where kernels cannot be queried for gateways.
    pub(crate) fn prove_with(
        &self,
        route: &TestedRoute,
        options: &ProofOptions,
        blind: bool,
    ) -> RouteVerification {
        let mut peers: BTreeMap<String, Peer> = BTreeMap::new();
        for host in ["c1", "c2", "g1", "g2", "g3", "s1"] {
            // The agent's threads inherit the network namespace of the creating thread.
            let peer = self.hosts[host].run(|| memory_pair(services(blind)).unwrap());
            peers.insert(host.to_owned(), peer);
        }
        prove("test", &mut peers, std::slice::from_ref(route), options, &AtomicBool::new(false), &mut |_| {})
            .unwrap()
    }
}

/// Flows and path MTU, no rates; dead flows are given up early.
pub(crate) fn quick() -> ProofOptions {
    ProofOptions {
        flow_count: 300,
        even: false,
        timeout: TimeSpan::from_millis(2000),
        rate_duration: TimeSpan(0),
        path_mtu: true,
    }
}

/// Ids and hosts of the findings.
pub(crate) fn found(proof: &RouteVerification) -> Vec<(&str, &str)> {
    proof.findings.iter().map(|finding| (finding.id.as_str(), finding.host.as_str())).collect()
}

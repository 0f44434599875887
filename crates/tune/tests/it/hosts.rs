//! Rules on whole hosts: which file wins, what daemons do, interfaces,
//! interrupts and slots. Each host is a small tree written here.

use std::collections::BTreeMap;

use clearstream_host::{HostRoot, memory::MemoryTree};
use clearstream_lint::MuteList;
use clearstream_schema::{
    host::{HostReport, Interrupt, Nic, NumaNode, PciDevice, PcieLink},
    tune::{Finding, Severity},
};
use clearstream_tune::{HostState, Interface, lint};

fn host(files: &[(&str, &str)]) -> HostState {
    let mut tree = MemoryTree::default();
    tree.file("proc/sys/kernel/osrelease", "6.12.1\n");
    tree.file("proc/sys/net/ipv4/tcp_retries2", "15\n");
    for (path, text) in files {
        tree.file(path, *text);
    }
    HostState::of_host(&HostRoot::memory(tree))
}

fn findings(state: &HostState) -> Vec<Finding> {
    lint(state, None, &MuteList::default()).findings
}

fn ids(state: &HostState) -> Vec<String> {
    findings(state).into_iter().map(|finding| finding.id).collect()
}

#[test]
fn the_file_that_wins_is_named_and_so_are_the_losers() {
    let state = host(&[
        ("proc/sys/net/ipv4/tcp_sack", "1\n"),
        ("usr/lib/sysctl.d/10-a.conf", "net.ipv4.tcp_sack = 1\n"),
        ("etc/sysctl.d/90-b.conf", "# b\nnet.ipv4.tcp_sack = 0\n"),
    ]);
    let found = findings(&state);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].id, "net.ipv4.tcp_sack:provenance:file-differs");
    let place = found[0].place.as_ref().unwrap();
    assert_eq!((place.file.as_str(), place.line), ("/etc/sysctl.d/90-b.conf", 2));
    assert!(
        found[0].message.contains("overruled: /usr/lib/sysctl.d/10-a.conf:1 (1)"),
        "{}",
        found[0].message
    );
}

/// systemd-sysctl does not read sysctl.conf, unless a link in sysctl.d leads there.
#[test]
fn the_two_readers_disagree_on_sysctl_conf() {
    let files = [
        ("proc/sys/net/ipv4/tcp_ecn", "1\n"),
        ("etc/sysctl.d/10-a.conf", "net.ipv4.tcp_ecn = 2\n"),
        ("etc/sysctl.conf", "net.ipv4.tcp_ecn = 1\n"),
    ];
    assert_eq!(ids(&host(&files)), ["net.ipv4.tcp_ecn:provenance:readers-disagree"]);
    let mut tree = MemoryTree::default();
    for (path, text) in files {
        tree.file(path, text);
    }
    tree.link("etc/sysctl.d/99-sysctl.conf", "../sysctl.conf");
    assert_eq!(ids(&HostState::of_host(&HostRoot::memory(tree))), Vec::<String>::new());
}

#[test]
fn tuned_will_set_it_back() {
    let files = [
        ("proc/sys/net/core/busy_read", "0\n"),
        ("etc/tuned/active_profile", "hpc\n"),
        ("usr/lib/tuned/hpc/tuned.conf", "[main]\n[sysctl]\nnet.core.busy_read=50\n"),
    ];
    let state = host(&files);
    assert_eq!(ids(&state), ["net.core.busy_read:provenance:tuned-sets-it"]);
    // A file below /etc is applied over the profile, unless that is switched off.
    let mut more = files.to_vec();
    more.push(("etc/sysctl.d/a.conf", "net.core.busy_read = 0\n"));
    assert_eq!(ids(&host(&more)), Vec::<String>::new());
    more.push(("etc/tuned/tuned-main.conf", "reapply_sysctl = 0\n"));
    assert_eq!(ids(&host(&more)), ["net.core.busy_read:provenance:tuned-sets-it"]);
}

fn device(name: &str) -> Interface {
    Interface {
        name: name.to_owned(),
        is_device: true,
        is_up: true,
        mtu_bytes: Some(1500),
        queue_packets: Some(1000),
        receive_queue_count: 8,
        ..Interface::default()
    }
}

#[test]
fn interfaces_are_checked() {
    let base = host(&[
        ("proc/sys/net/core/default_qdisc", "fq\n"),
        ("proc/sys/net/core/rps_sock_flow_entries", "32768\n"),
        ("proc/sys/net/ipv4/ip_forward", "1\n"),
        ("proc/sys/net/ipv4/tcp_mtu_probing", "0\n"),
    ]);
    let with = |interface: Interface| {
        let mut state = base.clone();
        state.interfaces = vec![interface];
        ids(&state)
    };
    assert_eq!(with(device("eth0")), Vec::<String>::new());
    let long = Interface { queue_packets: Some(10_000), qdisc: Some("fq".into()), ..device("eth0") };
    assert_eq!(with(long), ["link.txqueuelen:contradiction:with-fq"]);
    let plain = Interface { qdisc: Some("pfifo_fast".into()), ..device("eth0") };
    assert_eq!(with(plain), ["net.core.default_qdisc:contradiction:not-in-force"]);
    let half = Interface { flow_entries: Some(0), ..device("eth0") };
    assert_eq!(with(half), ["net.core.rps_sock_flow_entries:contradiction:half-set"]);
    let steered = Interface { steered_queue_count: 8, steering_cores: vec![0, 1, 2, 3], ..device("eth0") };
    assert_eq!(with(steered), ["link.rps_cpus:wasteful:with-queues"]);
    let joined = Interface { offloads: BTreeMap::from([("rx-lro".to_owned(), true)]), ..device("eth0") };
    assert_eq!(with(joined), ["link.lro:contradiction:with-forwarding"]);
    let cut =
        Interface { offloads: BTreeMap::from([("tx-tcp-segmentation".to_owned(), false)]), ..device("eth0") };
    assert_eq!(with(cut), ["link.offloads:unsafe:tx-tcp-segmentation"]);
    let jumbo = Interface { mtu_bytes: Some(9000), ..device("eth0") };
    assert_eq!(with(jumbo), ["net.ipv4.tcp_mtu_probing:path:black-hole"]);
    let datagram = Interface {
        infiniband_mode: Some("datagram".into()),
        mtu_bytes: Some(65520),
        is_device: false,
        ..device("ib0")
    };
    assert_eq!(with(datagram), ["link.ipoib-mode:path:datagram"]);
}

/// Two nodes; the device is at the second one and its interrupts at the first;
/// a Gen3 x16 card in a x4 slot behind a 40 Gb/s port.
#[test]
fn interrupts_and_slots_are_checked() {
    let node = |node: u32, cores: Vec<u32>| NumaNode {
        node,
        cores,
        memory_bytes: 1 << 34,
        free_bytes: 1 << 33,
        distances: vec![10, 20],
    };
    let link = |lane_count| PcieLink { gigatransfers_per_second: 8.0, lane_count };
    let interrupt = |number: u32, core: u32| Interrupt {
        interrupt: number,
        action: format!("eth0-TxRx-{number}"),
        counts: BTreeMap::from([(core, 50_000)]),
        allowed_cores: vec![core],
        effective_cores: vec![core],
        node: Some(1),
        queue: None,
    };
    let report = HostReport {
        nodes: vec![node(0, vec![0, 1]), node(1, vec![2, 3])],
        pci_devices: vec![PciDevice {
            address: "0000:81:00.0".into(),
            vendor: "0x15b3".into(),
            device: "0x1013".into(),
            class: "0x020000".into(),
            driver: None,
            node: Some(1),
            local_cores: vec![2, 3],
            parent: None,
            link: Some(link(4)),
            link_max: Some(link(16)),
            ceiling: clearstream_host::pcie::ceiling(link(4), Some(256)),
            max_read_request_bytes: None,
        }],
        nics: vec![Nic {
            name: "eth0".into(),
            pci_address: Some("0000:81:00.0".into()),
            node: Some(1),
            speed_bps: Some(40_000_000_000),
            interrupts: vec![40, 41],
            ..Nic::default()
        }],
        interrupts: vec![interrupt(40, 0), interrupt(41, 0)],
        ..HostReport::default()
    };
    let mut state = HostState::of_report(&HostRoot::memory(MemoryTree::default()), report);
    let found = findings(&state);
    let seen: Vec<&str> = found.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(
        seen,
        [
            "interrupts:locality:remote-node",
            "pcie:locality:link-below-maximum",
            "pcie:locality:slower-than-link",
            "interrupts:locality:shared-core",
        ]
    );
    assert!(found.iter().take(3).all(|finding| finding.severity == Severity::Warning));
    assert!(
        found[0].message.contains("cores 0,") && found[0].message.contains("cores 2-3"),
        "{}",
        found[0].message
    );
    // In the initial namespace there is no finding.
    let report = state.report.as_mut().unwrap();
    report.interrupts[0].effective_cores = vec![2];
    report.interrupts[1].effective_cores = vec![3];
    report.pci_devices[0].link = Some(link(16));
    report.pci_devices[0].ceiling = clearstream_host::pcie::ceiling(link(16), Some(256));
    assert_eq!(ids(&state), Vec::<String>::new());
}

proptest::proptest! {
    /// Whatever values the known keys have, every rule ends, and no finding is
    /// without an id of three parts and a message.
    #[test]
    fn rules_bear_every_value(
        picks in proptest::collection::vec((0usize..200, proptest::collection::vec(proptest::num::i64::ANY, 0..4)), 1..30),
        rate in 1u64..u64::MAX,
        rtt in 1u64..u64::MAX,
        flow_count in 0u32..5000,
        kernel in 0usize..4,
    ) {
        let known: Vec<&str> = {
            let keys = clearstream_tune::knowledge::Knowledge::embedded().keys();
            let mut names: Vec<&str> = keys.map(|key| key.name.as_str()).collect();
            names.sort_unstable();
            names
        };
        let text: String = picks
            .iter()
            .map(|(at, values)| {
                let values: Vec<String> = values.iter().map(i64::to_string).collect();
                format!("{} = {}\n", known[at % known.len()], values.join(" "))
            })
            .collect();
        let release = [None, Some("2.6.32"), Some("5.14"), Some("6.18")][kernel].map(str::to_owned);
        let assumed = clearstream_tune::Assumed { release, memory_bytes: Some(rate), page_bytes: Some(4096) };
        let state = HostState::of_file("any.conf", &text, assumed);
        let goal = clearstream_schema::tune::PathGoal {
            rate: clearstream_schema::BitRate(rate),
            rtt: clearstream_schema::TimeSpan(rtt),
            flow_count,
        };
        for finding in lint(&state, Some(&goal), &MuteList::default()).findings {
            proptest::prop_assert_eq!(finding.id.split(':').count(), 3);
            proptest::prop_assert!(!finding.message.is_empty());
        }
        for (_, profile) in clearstream_tune::Profile::ALL {
            clearstream_tune::recommend(&state, &goal, profile);
        }
    }
}

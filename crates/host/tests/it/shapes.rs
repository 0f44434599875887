//! Hand-made hosts of every shape, and the same hosts with damaged files.

use crate::tree;
use crate::tree::{Shape, Tree};
use clearstream_host::{counters, inspect};
use clearstream_schema::host::HostReport;
use proptest::prelude::*;

fn missing(report: &HostReport) -> String {
    report.missing.iter().map(|m| format!("{}: {}: {}\n", m.part, m.source, m.reason)).collect()
}

#[test]
fn one_socket_is_whole() {
    let tree = Tree::new(&Shape::default());
    let report = inspect(&tree.root());
    assert_eq!(missing(&report), "");
    assert_eq!((report.packages.len(), report.nodes.len(), report.llc_groups.len()), (1, 1, 1));
    assert_eq!(report.llc_groups[0].cores, [0, 1, 2, 3]);
    assert_eq!((report.llc_groups[0].level, report.llc_groups[0].size_bytes), (3, 32 << 20));
    assert_eq!(report.l2_cache_bytes, Some(1 << 20));
    assert_eq!(report.nodes[0].memory_bytes, 1 << 30);
    assert_eq!(report.kernel.congestion_controls, ["reno", "cubic", "bbr"]);
    assert_eq!(report.kernel.sysctls["net.ipv4.tcp_rmem"], "4096\t131072\t6291456");
    assert_eq!(report.limits.virtual_machine, Some(false));
    assert_eq!(report.limits.locked_memory_bytes, Some(8 << 20));
    assert!(report.processing_units.iter().all(|unit| unit.online && unit.allowed));
}

#[test]
fn threads_of_a_core_are_siblings() {
    let shape = Shape { threads_per_core: 2, packages: 2, ..Shape::default() };
    let report = inspect(&Tree::new(&shape).root());
    assert_eq!(report.processing_units.len(), 16);
    assert_eq!(report.processing_units[1].siblings, [1, 9]);
    assert_eq!(report.processing_units[9].siblings, [1, 9]);
    assert_eq!(report.packages[1].cores, [4, 5, 6, 7, 12, 13, 14, 15]);
}

#[test]
fn nodes_without_memory_and_without_cores_are_kept() {
    let shape = Shape { packages: 2, memory_less: vec![1], memory_only_nodes: 1, ..Shape::default() };
    let report = inspect(&Tree::new(&shape).root());
    assert_eq!(missing(&report), "");
    assert_eq!(report.nodes.len(), 3);
    assert_eq!((report.nodes[1].memory_bytes, report.nodes[1].cores.len()), (0, 4));
    assert_eq!((report.nodes[2].memory_bytes, report.nodes[2].cores.len()), (1 << 30, 0));
    assert_eq!(report.nodes[2].distances, [32, 32, 10]);
}

#[test]
fn offline_units_are_listed_with_their_node_and_nothing_else() {
    let shape = Shape { packages: 2, threads_per_core: 2, offline: vec![5, 13], ..Shape::default() };
    let report = inspect(&Tree::new(&shape).root());
    assert_eq!(missing(&report), "");
    assert_eq!(report.processing_units.len(), 16);
    let unit = &report.processing_units[5];
    assert!(!unit.online && !unit.allowed);
    assert_eq!((unit.package, unit.node, unit.siblings.as_slice()), (None, Some(1), &[5][..]));
    assert_eq!(report.nodes[1].cores, [4, 6, 7, 12, 14, 15]);
    assert!(report.packages.iter().all(|package| !package.cores.contains(&5)));
}

#[test]
fn an_interface_with_a_dot_beyond_64_units() {
    let shape = Shape { packages: 2, nodes_per_package: 2, cores_per_node: 20, ..Shape::default() };
    let tree = Tree::new(&shape);
    tree.nic(&shape, "eth0.7", 2, 80);
    let report = inspect(&tree.root());
    let missing = missing(&report);
    assert!(missing.contains("nic eth0.7 driver state: ethtool.json: the capture contains none for it\n"));
    assert_eq!(missing.lines().filter(|line| !line.contains("payload size")).count(), 1, "{missing}");
    let nic = &report.nics[0];
    assert_eq!((nic.name.as_str(), nic.driver.as_deref()), ("eth0.7", Some("mlx4_core")));
    assert_eq!((nic.speed_bps, nic.mtu_bytes), (Some(40_000_000_000), Some(9000)));
    assert_eq!((nic.receive_queue_count, nic.interrupts.len()), (80, 80));
    assert_eq!(nic.node, Some(2));
    assert_eq!((nic.distances.as_slice(), nic.hops.as_slice()), (&[32, 32, 10, 12][..], &[2, 2, 0, 1][..]));
    assert!(nic.receive_steering.is_empty());
    assert_eq!(nic.transmit_steering[&79], [79]);
    let interrupt = report.interrupts.iter().find(|interrupt| interrupt.interrupt == 179).unwrap();
    assert_eq!((interrupt.allowed_cores.len(), interrupt.effective_cores.as_slice()), (80, &[79][..]));
    assert_eq!(interrupt.counts.iter().collect::<Vec<_>>(), [(&79, &77)]);
}

/// Gen2 x8 in a Gen3 x16 device; no configuration space, so the payload size is assumed, which is stated.
#[test]
fn a_link_below_its_maximum_shows_its_ceiling() {
    let shape = Shape::default();
    let tree = Tree::new(&shape);
    let folder = tree.nic(&shape, "eth0", 0, 1);
    let report = inspect(&tree.root());
    let device = &report.pci_devices[1];
    assert_eq!((device.address.as_str(), device.parent.as_deref()), ("0000:21:00.0", Some("0000:20:00.0")));
    assert_eq!(device.link_max.unwrap().lane_count, 16);
    let ceiling = device.ceiling.as_ref().unwrap();
    assert_eq!((ceiling.raw_bps, ceiling.max_payload_bytes, ceiling.max_payload_known), (32e9, 256, false));
    assert!(
        missing(&report)
            .contains("maximum payload size: /sys/bus/pci/devices/0000:21:00.0/config: not found")
    );

    // PCI Express capability at 0x40, Device Control: MPS 128, MRRS 512.
    let mut config = vec![0; 256];
    (config[0x06], config[0x34], config[0x40], config[0x49]) = (0x10, 0x40, 0x10, 0x20);
    tree.file(&format!("{folder}/config"), &config);
    let report = inspect(&tree.root());
    let device = &report.pci_devices[1];
    assert_eq!(device.max_read_request_bytes, Some(512));
    let ceiling = device.ceiling.as_ref().unwrap();
    assert_eq!((ceiling.max_payload_bytes, ceiling.max_payload_known), (128, true));
    assert!(
        (ceiling.conservative_bps / 1e9 - 23.2).abs() < 0.1
            && (ceiling.optimistic_bps / 1e9 - 26.9).abs() < 0.1
    );

    tree.file(&format!("{folder}/config"), &config[..64]);
    let report = inspect(&tree.root());
    assert!(missing(&report).contains("root reads it"), "{}", missing(&report));
}

#[test]
fn a_device_without_a_node_has_none_and_no_distances() {
    let shape = Shape { packages: 2, ..Shape::default() };
    let tree = Tree::new(&shape);
    tree.nic(&shape, "eth0", -1, 2);
    let report = inspect(&tree.root());
    assert_eq!((report.nics[0].node, report.pci_devices[1].node), (None, None));
    assert!(report.nics[0].distances.is_empty() && report.nics[0].hops.is_empty());
    assert!(report.interrupts.iter().all(|interrupt| interrupt.node.is_none()));
}

/// More than 1024 units: masks of 40 groups. The time of a report is that of the files it reads, so their
/// number is what is bounded here.
#[test]
fn a_thousand_units_and_more() {
    let shape = Shape {
        packages: 4,
        nodes_per_package: 4,
        cores_per_node: 40,
        threads_per_core: 2,
        ..Shape::default()
    };
    let tree = Tree::new(&shape);
    tree.nic(&shape, "eth0", 15, 64);
    tree.file(
        "sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/net/eth0/queues/rx-3/rps_cpus",
        tree::mask(&[0, 31, 1024, 1279], 1280),
    );
    let report = inspect(&tree.root());
    assert_eq!(report.processing_units.len(), 1280);
    assert_eq!((report.nodes.len(), report.llc_groups.len(), report.packages.len()), (16, 16, 4));
    assert_eq!(report.nics[0].receive_steering[&3], [0, 31, 1024, 1279]);
    assert_eq!(report.nics[0].hops[..4], [2, 2, 2, 2]);
    assert_eq!(report.nics[0].hops[12..], [1, 1, 1, 0]);
    let mut bundle = Vec::new();
    clearstream_host::capture::write(&tree.root(), &mut bundle).unwrap();
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bundle.as_slice()));
    let is_file = |entry: &tar::Entry<'_, _>| entry.header().entry_type().is_file() && entry.size() > 0;
    let read_count = tar.entries().unwrap().filter(|entry| is_file(entry.as_ref().unwrap())).count();
    // Three per unit, three per vector, two per queue, and the rest.
    assert!(read_count < 3 * 1280 + 5 * 64 + 300, "{read_count} files");
}

/// Threads of a core share its cache; cores that share one have a fraction of it each, and the core with the
/// least decides.
#[test]
fn second_level_caches_are_counted_per_core() {
    let threads = Tree::new(&Shape { threads_per_core: 2, ..Shape::default() });
    assert_eq!(inspect(&threads.root()).l2_cache_bytes, Some(1 << 20));
    // Cores 0 and 1 with a cache each, 2 and 3 as a cluster of four on 2 MiB.
    let clusters = Tree::new(&Shape::default());
    let cache = "sys/devices/system/cpu/cpu3/cache/index2";
    clusters.file(&format!("{cache}/size"), "2048K\n").file(&format!("{cache}/shared_cpu_list"), "0-3\n");
    assert_eq!(inspect(&clusters.root()).l2_cache_bytes, Some(512 << 10));
}

#[test]
fn quotas_and_containers_of_both_versions() {
    let tree = Tree::new(&Shape::default());
    tree.file("proc/self/cgroup", "0::/kubepods/pod1/ctr\n")
        .file("sys/fs/cgroup/kubepods/cpu.max", "300000 100000\n")
        .file("sys/fs/cgroup/kubepods/pod1/ctr/cpu.max", "max 100000\n")
        .file("sys/fs/cgroup/kubepods/pod1/cpu.max", "150000 100000\n")
        .file("sys/fs/cgroup/kubepods/pod1/memory.max", "1073741824\n");
    let limits = inspect(&tree.root()).limits;
    assert_eq!((limits.cpu_quota_millicores, limits.memory_limit_bytes), (Some(1500), Some(1 << 30)));
    assert_eq!(limits.container.as_deref(), Some("kubernetes"));

    let tree = Tree::new(&Shape::default());
    tree.file("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/docker/b\n0::/\n")
        .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
        .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
        .file("sys/fs/cgroup/cpu,cpuacct/docker/b/cpu.cfs_quota_us", "50000\n")
        .file("sys/fs/cgroup/cpu,cpuacct/docker/b/cpu.cfs_period_us", "100000\n")
        .file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    let limits = inspect(&tree.root()).limits;
    assert_eq!((limits.cpu_quota_millicores, limits.memory_limit_bytes), (Some(500), None));
    assert_eq!(limits.container.as_deref(), Some("docker"));
}

#[test]
fn interfaces_of_another_namespace_are_skipped() {
    let shape = Shape::default();
    let tree = Tree::new(&shape);
    tree.nic(&shape, "eth0", 0, 1);
    tree.file("proc/net/dev", "a\nb\nveth9: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n");
    let report = inspect(&tree.root());
    assert!(report.nics.is_empty());
    let missing = missing(&report);
    assert!(missing.contains("nic veth9: /sys/class/net: not in /sys"), "{missing}");
    assert!(missing.contains("nic eth0: /proc/net/dev: not in this network namespace"), "{missing}");
}

#[test]
fn an_empty_tree_is_all_missing() {
    let root = clearstream_host::HostRoot::memory(Default::default());
    let report = inspect(&root);
    for part in [
        "host name",
        "processing units",
        "numa nodes",
        "interrupts",
        "network interfaces",
        "sysctls",
        "page size",
    ] {
        assert!(report.missing.iter().any(|missing| missing.part == part), "{part}");
    }
    // stat, softirqs, interrupts, softnet_stat, net/dev and the TCP counters.
    assert_eq!(counters::read(&root).missing.len(), 6);
}

#[derive(Debug, Clone)]
enum Damage {
    Remove,
    Cut(usize),
    Replace(Vec<u8>),
    Flip(usize, u8),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Remove),
        (0usize..40).prop_map(Damage::Cut),
        proptest::collection::vec(any::<u8>(), 0..60).prop_map(Damage::Replace),
        "[-0-9a-f,:x \\n]{0,60}".prop_map(|text| Damage::Replace(text.into_bytes())),
        (0usize..200, 1u8..=255).prop_map(|(at, bits)| Damage::Flip(at, bits)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Damage to a few files causes no panic, and what is lost with a file is named.
    #[test]
    fn damaged_hosts_are_still_described(
        damages in proptest::collection::vec((any::<proptest::sample::Index>(), damage()), 1..6)
    ) {
        let shape = Shape { packages: 2, cores_per_node: 2, threads_per_core: 2, ..Shape::default() };
        let tree = Tree::new(&shape);
        let folder = tree.nic(&shape, "eth0.7", 1, 2);
        tree.file(&format!("{folder}/config"), [0x10; 256]);
        let whole = inspect(&tree.root());
        let all = tree.paths();
        for (index, damage) in &damages {
            let path = index.get(&all);
            let mut bytes = tree.bytes(path);
            match damage {
                Damage::Remove => {
                    tree.remove(path);
                    continue;
                }
                Damage::Cut(count) => bytes.truncate(*count),
                Damage::Replace(with) => bytes.clone_from(with),
                Damage::Flip(at, bits) => {
                    if let Some(byte) = bytes.get_mut(*at) {
                        *byte ^= bits;
                    }
                }
            }
            tree.file(path, bytes);
        }
        let report = inspect(&tree.root());
        counters::read(&tree.root());
        // Other damage may leave a file that a host could have.
        let only_removed = damages.iter().all(|(_, damage)| matches!(damage, Damage::Remove));
        let lost = whole.nics.len() > report.nics.len()
            || whole.nodes.len() > report.nodes.len()
            || whole.llc_groups.len() > report.llc_groups.len()
            || whole.packages.len() > report.packages.len();
        let named = report.missing.iter().any(|missing| !whole.missing.contains(missing));
        prop_assert!(!(lost && only_removed) || named, "{:?}", report.missing);
    }
}

/// Each file of a host removed alone: the report names what is missing without it, unless a host may lack
/// that file.
#[test]
fn every_single_missing_file_is_named() {
    const MAY_LACK: &[&str] = &[
        "cgroup",
        "effective_affinity_list",
        "numa_node",
        "operstate",
        "rps_cpus",
        "size",
        "smp_affinity_list",
        "speed",
        "type",
        "xps_cpus",
    ];
    let shape = Shape { packages: 2, cores_per_node: 2, ..Shape::default() };
    let tree = Tree::new(&shape);
    let folder = tree.nic(&shape, "eth0.7", 1, 1);
    tree.file(&format!("{folder}/config"), [0; 256]);
    let whole = inspect(&tree.root());
    for path in tree.paths() {
        let bytes = tree.bytes(&path);
        tree.remove(&path);
        let report = inspect(&tree.root());
        let name = path.rsplit('/').next().unwrap();
        let named = report.missing.iter().any(|missing| !whole.missing.contains(missing));
        let same = report == whole;
        let may_lack = MAY_LACK.contains(&name)
            || name.contains("_link_")
            || path.starts_with("proc/sys/net")
            || path.starts_with("proc/irq");
        assert!(named || same || may_lack, "{path}");
        tree.file(&path, bytes);
    }
}

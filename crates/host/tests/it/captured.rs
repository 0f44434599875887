//! Captured hosts in `fixtures/hosts`, compared with the output of hwloc, numactl, lscpu and ethtool on them
//! (in `extra/` of each bundle) and with the distance matrix of the 48-core server.

use std::{collections::BTreeMap, path::PathBuf};

use clearstream_host::{HostRoot, capture, inspect};
use clearstream_schema::{
    host::{CoalescingValue, HostReport, Nic, QueueDirection},
    indirection::Indirection,
};

struct Host {
    captured: capture::Captured,
    report: HostReport,
}

impl Host {
    fn open(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/hosts")
            .join(format!("{name}.tar.gz"));
        let captured = capture::open(&path).unwrap();
        let report = inspect(&captured);
        Self { captured, report }
    }

    fn tool_output(&self, tool: &str) -> String {
        self.captured.read(&format!("extra/{tool}.txt")).unwrap()
    }

    fn nic(&self, name: &str) -> &Nic {
        self.report.nics.iter().find(|nic| nic.name == name).unwrap()
    }

    fn missing(&self) -> String {
        self.report.missing.iter().map(|m| format!("{} {} {}\n", m.part, m.source, m.reason)).collect()
    }
}

/// Rows of `numactl --hardware` after "node distances:".
fn numactl_distances(text: &str) -> Vec<Vec<u32>> {
    text.lines()
        .skip_while(|line| !line.starts_with("node distances"))
        .filter_map(|line| line.split_once(':'))
        .map(|(_, row)| row.split_whitespace().map(|field| field.parse().unwrap()).collect::<Vec<u32>>())
        .filter(|row| !row.is_empty())
        .collect()
}

/// Counts lines of `lstopo` with this object.
fn lstopo_count(text: &str, object: &str) -> usize {
    text.matches(object).count()
}

fn agrees_with_tools(host: &Host) {
    let report = &host.report;
    let lstopo = host.tool_output("lstopo-no-graphics_of_console");
    assert_eq!(report.packages.len(), lstopo_count(&lstopo, "Package L#"));
    assert_eq!(report.nodes.len(), lstopo_count(&lstopo, "NUMANode L#"));
    assert_eq!(report.llc_groups.len(), lstopo_count(&lstopo, "L3 L#"));
    assert_eq!(report.processing_units.len(), lstopo_count(&lstopo, "PU L#"));
    let cores: std::collections::BTreeSet<_> =
        report.processing_units.iter().map(|unit| (unit.package, unit.siblings.clone())).collect();
    assert_eq!(cores.len(), lstopo_count(&lstopo, " Core L#"));
    let numactl = host.tool_output("numactl_hardware");
    let distances: Vec<Vec<u32>> = report.nodes.iter().map(|node| node.distances.clone()).collect();
    assert_eq!(distances, numactl_distances(&numactl));
    for node in &report.nodes {
        let cpus = numactl
            .lines()
            .find_map(|line| line.strip_prefix(&format!("node {} cpus: ", node.node)))
            .unwrap();
        let cpus: Vec<u32> = cpus.split_whitespace().map(|field| field.parse().unwrap()).collect();
        assert_eq!(node.cores, cpus);
        let size = format!("node {} size: {} MB", node.node, node.memory_bytes >> 20);
        assert!(numactl.contains(&size), "{size}");
    }
    let lscpu = host.tool_output("lscpu");
    assert!(lscpu.contains(report.cpu_model.as_deref().unwrap()));
}

/// Figure 10 of the 40GE report. The captured guest had this matrix with two entries of its last row
/// exchanged: those are not compared.
#[test]
fn the_48_core_server_has_the_published_distances() {
    const FIGURE_10: [[u32; 8]; 8] = [
        [10, 16, 16, 22, 16, 22, 16, 22],
        [16, 10, 16, 22, 22, 16, 22, 16],
        [16, 16, 10, 16, 16, 16, 16, 22],
        [22, 22, 16, 10, 16, 16, 22, 16],
        [16, 22, 16, 16, 10, 16, 16, 16],
        [22, 16, 16, 16, 16, 10, 22, 22],
        [16, 22, 16, 22, 16, 22, 10, 16],
        [22, 16, 22, 16, 16, 22, 16, 10],
    ];
    let host = Host::open("magny-cours-igb");
    for (row, node) in FIGURE_10.iter().zip(&host.report.nodes) {
        for (column, &distance) in row.iter().enumerate() {
            if (node.node, column) != (7, 4) && (node.node, column) != (7, 5) {
                assert_eq!(node.distances[column], distance, "node {} to {column}", node.node);
            }
        }
    }
    assert_eq!(host.report.packages.len(), 4);
    assert!(host.report.packages.iter().all(|package| package.cores.len() == 12));
}

#[test]
fn the_48_core_server_agrees_with_hwloc_and_numactl() {
    let host = Host::open("magny-cours-igb");
    agrees_with_tools(&host);
    assert_eq!(host.report.kernel.page_bytes, 4096);
    assert_eq!(host.report.limits.virtual_machine, Some(true));
    assert_eq!(host.report.llc_groups[1].cores, (6..12).collect::<Vec<_>>());
    assert_eq!(host.report.llc_groups[1].size_bytes, 16 << 20);
}

#[test]
fn the_nehalem_server_agrees_with_hwloc_and_numactl() {
    let host = Host::open("nehalem");
    agrees_with_tools(&host);
    assert_eq!(host.report.nodes[0].distances, [10, 21]);
}

/// eth1 is on node 5 behind a bridge; ethtool reported 8 combined channels.
#[test]
fn the_several_queues_of_igb_are_found_with_their_interrupts() {
    let host = Host::open("magny-cours-igb");
    let nic = host.nic("eth1");
    assert_eq!(nic.driver.as_deref(), Some("igb"));
    assert_eq!(nic.pci_address.as_deref(), Some("0000:31:00.0"));
    assert_eq!(nic.node, Some(5));
    assert_eq!(nic.distances, [22, 16, 16, 16, 16, 10, 22, 16]);
    assert_eq!(nic.hops, [2, 1, 1, 1, 1, 0, 2, 1]);
    assert!(host.tool_output("ethtool_l_eth1").contains("Combined:\t8"));
    assert_eq!((nic.receive_queue_count, nic.transmit_queue_count), (8, 8));
    assert_eq!(nic.interrupts, (81..=88).collect::<Vec<_>>());
    for (queue, number) in (81..=88).enumerate() {
        let interrupt = host.report.interrupts.iter().find(|i| i.interrupt == number).unwrap();
        let served = interrupt.queue.as_ref().unwrap();
        assert_eq!((served.interface.as_str(), served.direction), ("eth1", QueueDirection::Both));
        assert_eq!(served.queue, u32::try_from(queue).unwrap());
        assert_eq!(interrupt.node, Some(5));
        assert_eq!(interrupt.effective_cores.len(), 1, "the vector goes to one core");
        assert!(interrupt.allowed_cores.contains(&interrupt.effective_cores[0]));
    }
    let device = host.report.pci_devices.iter().find(|device| device.address == "0000:31:00.0").unwrap();
    assert_eq!((device.vendor.as_str(), device.device.as_str()), ("0x8086", "0x10c9"));
    assert_eq!(device.parent.as_deref(), Some("0000:30:00.0"));
    assert_eq!(device.local_cores, (30..36).collect::<Vec<_>>());
    let ceiling = device.ceiling.as_ref().unwrap();
    assert_eq!((ceiling.generation, ceiling.lane_count, ceiling.raw_bps), (1, 1, 2e9));
    assert!(ceiling.max_payload_known, "{}", ceiling.arithmetic);
    assert!(host.report.pci_devices.iter().any(|device| device.address == "0000:30:00.0"));
}

/// The virtio interface: queues without a NUMA node.
#[test]
fn virtio_queues_are_found() {
    let host = Host::open("magny-cours-igb");
    let nic = host.nic("eth0");
    assert_eq!(nic.driver.as_deref(), Some("virtio_net"));
    assert_eq!(nic.interrupts, [78, 79]);
    let directions: Vec<_> = host
        .report
        .interrupts
        .iter()
        .filter_map(|interrupt| interrupt.queue.as_ref())
        .filter(|queue| queue.interface == "eth0")
        .map(|queue| queue.direction)
        .collect();
    assert_eq!(directions, [QueueDirection::Receive, QueueDirection::Transmit]);
}

/// Linux 6.1 has no `ETHTOOL_MSG_RSS_GET`: key and table were read by ioctl, with unequal weights (`ethtool
/// -X eth2 weight 3 2 1 1`). `ethtool -x` printed the same.
#[test]
fn the_receive_hash_of_debian_12_matches_ethtool() {
    let host = Host::open("debian-12-virtio-rss");
    assert_eq!(host.report.kernel.release.as_deref(), Some("6.1.0-56-amd64"));
    let rss = host.nic("eth2").rss.as_ref().unwrap();
    let printed = host.tool_output("ethtool_x_eth2");
    // "    8:      0     0     1 ..." are entries, the line after the title is the key.
    let entries: Vec<u32> = printed
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(place, _)| place.parse::<u32>().is_ok())
        .flat_map(|(_, entries)| entries.split_whitespace().map(|entry| entry.parse().unwrap()))
        .collect();
    assert_eq!((rss.indirection.len(), &rss.indirection), (128, &entries));
    assert_eq!(Indirection::of(&entries).to_string(), "0*54,1*37,2*18,3*19");
    let key = printed.lines().skip_while(|line| !line.starts_with("RSS hash key")).nth(1).unwrap();
    assert_eq!(rss.key.as_deref(), Some(key.trim().replace(':', "").as_str()));
    assert!(printed.contains("toeplitz: on") && rss.hash_function.as_deref() == Some("toeplitz"));
    assert!(printed.starts_with("RX flow hash indirection table for eth2 with 4 RX ring(s)"));
    assert_eq!(rss.queue_count, Some(4));
    for kind in ["tcp4", "udp6"] {
        let output = host.tool_output(&format!("ethtool_n_{kind}_eth2"));
        let fields = [("IP SA", 's'), ("IP DA", 'd'), ("src port", 'f'), ("dst port", 'n')];
        let letters: String =
            fields.iter().filter(|(text, _)| output.contains(text)).map(|(_, letter)| letter).collect();
        assert_eq!(rss.fields.get(kind), Some(&letters), "{output}");
    }
}

/// `ethtool -i` and `-c` of a driver with firmware and of virtio.
#[test]
fn driver_and_coalescing_of_debian_12_match_ethtool() {
    let host = Host::open("debian-12-virtio-rss");
    for name in ["eth0", "eth2"] {
        let nic = host.nic(name);
        let found = nic.driver_information.as_ref().unwrap();
        let output = host.tool_output(&format!("ethtool_i_{name}"));
        for (key, value) in [
            ("driver", Some(&found.name)),
            ("version", found.version.as_ref()),
            ("firmware-version", found.firmware_version.as_ref()),
            ("bus-info", found.bus.as_ref()),
        ] {
            let line = format!("{key}: {}", value.map_or("", String::as_str));
            assert!(output.lines().any(|printed| printed == line), "{line}\n{output}");
        }
        let output = host.tool_output(&format!("ethtool_c_{name}"));
        let lines = output.lines().filter_map(|line| line.split_once(": "));
        let printed: BTreeMap<String, CoalescingValue> = lines
            .filter_map(|(key, value)| {
                Some((key.to_owned(), CoalescingValue::Number(value.trim().parse().ok()?)))
            })
            .collect();
        assert_eq!(nic.coalescing, printed, "{name}");
        assert!(!printed.is_empty());
    }
    assert_eq!(
        host.nic("eth0").driver_information.as_ref().unwrap().firmware_version.as_deref(),
        Some("2.1-0")
    );
}

/// These bundles contain neither ethtool state nor `/proc/self`.
#[test]
fn what_a_bundle_lacks_is_named() {
    for name in ["magny-cours-igb", "nehalem"] {
        let host = Host::open(name);
        let missing = host.missing();
        assert!(missing.contains("ethtool netlink not part of this capture"), "{missing}");
        assert!(missing.contains("allowed cores /proc/self/status not found"), "{missing}");
        assert!(missing.contains("kernel release /proc/sys/kernel/osrelease not found"), "{missing}");
        assert!(missing.lines().count() < 10, "{missing}");
    }
}

#[test]
fn counters_of_a_captured_host() {
    let host = Host::open("nehalem");
    let counters = clearstream_host::counters::read(host.captured.root());
    assert_eq!(counters.cores.len(), 8);
    assert!(counters.interfaces.iter().any(|interface| interface.name == "eth1"));
    assert!(counters.cores.iter().any(|core| core.interrupt_count > 0 && core.net_rx_count > 0));
}

#[test]
fn a_directory_opens_like_its_bundle() {
    let host = Host::open("nehalem");
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("proc")).unwrap();
    std::fs::write(folder.path().join("proc/cpuinfo"), "model name: x\n").unwrap();
    let opened = capture::open(folder.path()).unwrap();
    assert_eq!(inspect(&opened).cpu_model.as_deref(), Some("x"));
    assert_ne!(inspect(&HostRoot::directory(folder.path())), host.report);
}

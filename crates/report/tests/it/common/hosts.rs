//! Hosts shaped like the servers of the 40GE papers and like the virtual
//! machines of today, and one flow summary to change as a test needs.

use clearstream_schema::host::{
    HOST_SCHEMA, HostReport, Kernel, LlcGroup, Nic, NumaNode, Package, PciDevice, PcieCeiling, PcieLink,
    ProcessingUnit,
};

/// Figure 10 of the 40GE report: `numactl --hardware` of the 48-core server.
const MAGNY_COURS_DISTANCES: [[u32; 8]; 8] = [
    [10, 16, 16, 22, 16, 22, 16, 22],
    [16, 10, 16, 22, 22, 16, 22, 16],
    [16, 16, 10, 16, 16, 16, 16, 22],
    [22, 22, 16, 10, 16, 16, 22, 16],
    [16, 22, 16, 16, 10, 16, 16, 16],
    [22, 16, 16, 16, 16, 10, 22, 22],
    [16, 22, 16, 22, 16, 22, 10, 16],
    [22, 16, 22, 16, 16, 22, 16, 10],
];

/// A host from the place (package, node) of each core and the node distances.
pub(crate) fn host(
    name: &str,
    model: &str,
    places: &[(u32, u32)],
    distances: &[&[u32]],
    memory: u64,
) -> HostReport {
    let cores = |wanted: &dyn Fn(&(u32, u32)) -> bool| -> Vec<u32> {
        (0..).zip(places).filter(|(_, place)| wanted(place)).map(|(core, _)| core).collect()
    };
    let nodes = (0..).zip(distances).map(|(node, row)| NumaNode {
        node,
        cores: cores(&|place| place.1 == node),
        memory_bytes: memory,
        free_bytes: memory / 2,
        distances: row.to_vec(),
    });
    let mut packages: Vec<u32> = places.iter().map(|place| place.0).collect();
    packages.sort_unstable();
    packages.dedup();
    HostReport {
        schema: HOST_SCHEMA.to_owned(),
        version: 1,
        name: name.to_owned(),
        cpu_model: Some(model.to_owned()),
        llc_groups: (0..)
            .zip(distances)
            .map(|(node, _)| LlcGroup {
                level: 3,
                size_bytes: 6 << 20,
                cores: cores(&|place| place.1 == node),
            })
            .collect(),
        nodes: nodes.collect(),
        packages: packages
            .iter()
            .map(|package| Package { package: *package, cores: cores(&|place| place.0 == *package) })
            .collect(),
        processing_units: (0..)
            .zip(places)
            .map(|(core, (package, node))| ProcessingUnit {
                core,
                online: true,
                package: Some(*package),
                node: Some(*node),
                core_id: Some(core),
                siblings: vec![core],
                allowed: true,
            })
            .collect(),
        kernel: Kernel {
            release: Some("6.12.0".to_owned()),
            congestion_controls: vec!["cubic".to_owned(), "htcp".to_owned()],
            congestion_control: Some("htcp".to_owned()),
            default_qdisc: Some("fq".to_owned()),
            page_bytes: 4096,
            ..Kernel::default()
        },
        ..HostReport::default()
    }
}

/// A ConnectX-2 in a Gen2 x8 slot at a node, with the ceiling of 256-byte payloads.
pub(crate) fn with_nic(mut host: HostReport, node: u32) -> HostReport {
    let row = host.nodes[node as usize].distances.clone();
    let mut ranks = row.clone();
    ranks.sort_unstable();
    ranks.dedup();
    let hops = row.iter().map(|d| ranks.iter().position(|r| r == d).unwrap() as u32).collect();
    host.nics.push(Nic { name: "lo".to_owned(), ..Nic::default() });
    host.nics.push(Nic {
        name: "eth2".to_owned(),
        driver: Some("mlx4_en".to_owned()),
        pci_address: Some("0000:05:00.0".to_owned()),
        node: Some(node),
        distances: row,
        hops,
        operational_state: Some("up".to_owned()),
        speed_bps: Some(40_000_000_000),
        mtu_bytes: Some(9000),
        receive_queue_count: 8,
        transmit_queue_count: 8,
        ..Nic::default()
    });
    let link = PcieLink { gigatransfers_per_second: 5.0, lane_count: 8 };
    host.pci_devices.push(PciDevice {
        address: "0000:05:00.0".to_owned(),
        vendor: "0x15b3".to_owned(),
        device: "0x6764".to_owned(),
        class: "0x020000".to_owned(),
        driver: Some("mlx4_core".to_owned()),
        node: Some(node),
        local_cores: Vec::new(),
        parent: Some("0000:00:03.0".to_owned()),
        link: Some(link),
        link_max: Some(link),
        max_read_request_bytes: Some(512),
        ceiling: Some(PcieCeiling {
            generation: 2,
            lane_count: 8,
            encoding_ratio: 0.8,
            raw_bps: 32e9,
            max_payload_bytes: 256,
            max_payload_known: true,
            optimistic_bps: 29.05e9,
            conservative_bps: 27.3e9,
            arithmetic: "8 lanes x 5 GT/s x 8/10 = 32 Gb/s; 256 B of payload in 282 B on the link".to_owned(),
        }),
    });
    host
}

/// The 8-core server: two packages of one node and four cores.
pub(crate) fn nehalem(name: &str) -> HostReport {
    let places: Vec<(u32, u32)> = (0..8).map(|core| (core / 4, core / 4)).collect();
    let model = "Intel(R) Xeon(R) CPU E5620 @ 2.40GHz";
    with_nic(host(name, model, &places, &[&[10, 21], &[21, 10]], 12 << 30), 1)
}

/// The 48-core server: core i on package i mod 4, two nodes of six cores per package.
pub(crate) fn magny_cours(name: &str) -> HostReport {
    let places: Vec<(u32, u32)> =
        (0..48).map(|core| (core % 4, 2 * (core % 4) + u32::from(core / 4 >= 6))).collect();
    let rows: Vec<&[u32]> = MAGNY_COURS_DISTANCES.iter().map(|row| row.as_slice()).collect();
    with_nic(host(name, "AMD Opteron(tm) Processor 6172", &places, &rows, 16 << 30), 0)
}

/// Two cores, one node, no NIC in a slot.
pub(crate) fn virtual_machine(name: &str) -> HostReport {
    let mut host = host(name, "AMD EPYC Processor", &[(0, 0), (0, 0)], &[&[10]], 24 << 30);
    host.limits.virtual_machine = Some(true);
    host.nics.push(Nic { name: "veth0".to_owned(), driver: Some("veth".to_owned()), ..Nic::default() });
    host
}

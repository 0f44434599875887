//! Captured hosts with a flow's signature on them.

use std::path::Path;

use clearstream_diagnose::{Evidence, explain};
use clearstream_host::{capture, inspect, pcie};
use clearstream_schema::{
    diagnosis::{Cause, Remedy, Role, Verdict},
    host::{HostReport, Nic, PciDevice, PcieLink},
};

use super::{
    made::{Shown, host},
    signatures::found,
};

fn magny_cours() -> HostReport {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/magny-cours-igb.tar.gz");
    inspect(capture::open(&path).unwrap().root())
}

/// The reader two hops from the card of the eight-node host (figure 10 of the
/// 40GE report gives the distances: 10, 16 for one hop, 22 for two).
#[test]
fn a_reader_two_hops_from_its_card() {
    let server = magny_cours();
    let nic = server.nics.iter().find(|nic| nic.node.is_some() && nic.pci_address.is_some()).unwrap().clone();
    let far = server.nodes.iter().zip(&nic.hops).find(|(_, hops)| **hops == 2).unwrap().0;
    let interface: &'static str = Box::leak(nic.name.clone().into_boxed_str());
    let shown = Shown {
        goodput_bps: 600e6,
        min_rtt_ns: 40_000,
        rtt_ns: 90_000,
        reader: (0.97, 0.02, 0.02),
        reader_core: far.cores[0],
        unacked: 2,
        window: 400,
        buffer_fill: 0.1,
        interface,
        ..Shown::default()
    };
    let evidence = Evidence { server, ..shown.evidence() };
    let diagnosis = explain(&evidence);
    let finding = found(&diagnosis);
    let Cause::NumaRemote { role: Role::Receiver, hop_count: 2, nic_node, .. } = finding.cause else {
        panic!("{finding:?}")
    };
    assert_eq!(Some(nic_node), nic.node);
    let Remedy::MoveThread { to_cores, .. } = &finding.remedies[0] else { panic!() };
    let near = &evidence.server.nodes.iter().find(|node| Some(node.node) == nic.node).unwrap().cores;
    assert!(to_cores.iter().take(near.len().min(4)).all(|core| near.contains(core)), "{to_cores:?}");
    // The same thread at home is a matter of its core alone.
    let home = Shown { reader_core: near[1], ..shown };
    let diagnosis = explain(&Evidence { server: magny_cours(), ..home.evidence() });
    assert!(matches!(found(&diagnosis).cause, Cause::Cpu { role: Role::Receiver, .. }));
}

/// A 100 Gb/s card made for sixteen lanes of PCIe 3 in a slot with four.
fn narrow(name: &str) -> HostReport {
    let link = |lane_count| PcieLink { gigatransfers_per_second: 8.0, lane_count };
    let mut host = host(name);
    host.pci_devices.push(PciDevice {
        address: "0000:3b:00.0".into(),
        vendor: "0x15b3".into(),
        device: "0x1017".into(),
        class: "0x020000".into(),
        driver: Some("mlx5_core".into()),
        node: Some(0),
        local_cores: vec![0, 1],
        parent: None,
        link: Some(link(4)),
        link_max: Some(link(16)),
        ceiling: pcie::ceiling(link(4), Some(256)),
        max_read_request_bytes: None,
    });
    host.nics.push(Nic {
        name: "eth0".into(),
        driver: Some("mlx5_core".into()),
        pci_address: Some("0000:3b:00.0".into()),
        node: Some(0),
        speed_bps: Some(100_000_000_000),
        mtu_bytes: Some(9000),
        operational_state: Some("up".into()),
        ..Nic::default()
    });
    host
}

#[test]
fn a_wide_card_in_a_narrow_slot() {
    // 8 GT/s * 4 * 128/130 = 31.5 Gb/s raw; between 26.5 and 28.8 after headers.
    let shown = Shown {
        goodput_bps: 26e9,
        min_rtt_ns: 40_000,
        rtt_ns: 300_000,
        unacked: 90,
        window: 100,
        ..Shown::default()
    };
    let evidence = Evidence { server: narrow("beta"), ..shown.evidence() };
    let diagnosis = explain(&evidence);
    let Cause::Pcie { lane_count: 4, card_lane_count: 16, .. } = found(&diagnosis).cause else {
        panic!("{:?}", diagnosis.primary)
    };
    assert!(found(&diagnosis).fault);
    assert!(diagnosis.stages.iter().any(|stage| stage.limiting));
    // Far below it something else limits, and the slot is still wrong.
    let slow = Shown { goodput_bps: 1e9, window_limited: 0.9, ..Shown::default() };
    let diagnosis = explain(&Evidence { server: narrow("beta"), ..slow.evidence() });
    assert!(matches!(found(&diagnosis).cause, Cause::ReceiverWindow { .. }));
    assert!(matches!(diagnosis.secondary[0].cause, Cause::Pcie { .. }));
}

#[test]
fn the_oldest_record_is_explained_alone() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/v1/clearstream-40ge");
    let reader = clearstream_record::Reader::open(&path).unwrap();
    let evidence = Evidence::from_record(&reader, None).unwrap();
    let diagnosis = explain(&evidence);
    assert!(diagnosis.observed_bps > 0.0);
    match &diagnosis.primary {
        Verdict::Found(finding) => assert!(!finding.evidence.is_empty()),
        Verdict::Unknown { because, .. } => assert!(!because.is_empty()),
    }
    assert!(Evidence::from_record(&reader, Some(u32::MAX)).is_err());
}

//! Captured hosts with a flow's signature on them.

use std::path::Path;

use clearstream_diagnose::{Evidence, explain};
use clearstream_host::{capture, inspect, pcie};
use clearstream_schema::{
    BitRate,
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/clearstream-40ge");
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

/// A record of two hosts, with other hosts or another lab than it has.
fn line_rate_of(change: impl FnOnce(&mut serde_json::Value)) -> Option<BitRate> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/clearstream-40ge");
    let folder = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp").arg("-r").arg(&source).arg(folder.path()).status().unwrap();
    assert!(copied.success());
    let record = folder.path().join("clearstream-40ge");
    let mut run: serde_json::Value =
        serde_json::from_slice(&std::fs::read(record.join("run.json")).unwrap()).unwrap();
    change(&mut run);
    std::fs::write(record.join("run.json"), run.to_string()).unwrap();
    Evidence::from_record(&clearstream_record::Reader::open(&record).unwrap(), None).unwrap().line_rate
}

#[test]
fn a_record_has_the_line_rate_of_its_hosts_or_its_lab() {
    // Its flows went through eth40.
    let card = |speed_bps: u64| {
        serde_json::json!({
            "name": "eth40", "driver": "mlx5_core", "pci_address": "0000:3b:00.0", "hops": [],
            "operational_state": "up", "speed_bps": speed_bps, "mtu_bytes": 9000,
            "receive_queue_count": 1, "transmit_queue_count": 1, "interrupts": [],
        })
    };
    let with = |client: Option<u64>, server: Option<u64>| {
        line_rate_of(|run| {
            run.as_object_mut().unwrap().remove("lab");
            for (host, speed) in [("client", client), ("server", server)] {
                let mut hosts = run["hosts"].as_array_mut().unwrap().iter_mut();
                let found = hosts.find(|found| found["role"] == host).unwrap();
                let nics = found["report"]["nics"].as_array_mut().unwrap();
                nics.retain(|nic| nic["name"] != "eth40");
                nics.extend(speed.map(card));
            }
        })
    };
    assert_eq!(with(Some(40_000_000_000), Some(10_000_000_000)), Some(BitRate(10_000_000_000)));
    assert_eq!(with(Some(40_000_000_000), None), None, "of one host alone nothing follows");

    let link = |rate: &str| {
        let end = |host: &str, address: &str| serde_json::json!({ "host": host, "interface": "eth40", "addresses": [address] });
        serde_json::json!({ "rate": rate, "ends": [end("alpha", "10.0.0.1/24"), end("beta", "10.0.0.2/24")] })
    };
    let linked = |links: &[&str]| {
        line_rate_of(|run| run["lab"]["link"] = links.iter().map(|rate| link(rate)).collect())
    };
    assert_eq!(linked(&["19Gb/s"]), Some(BitRate(19_000_000_000)));
    assert_eq!(linked(&["19Gb/s", "40Gb/s"]), None, "which of them carried the flow is not known");
}

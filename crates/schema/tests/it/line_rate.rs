//! Tests of `line_rate`.

use clearstream_schema::host::Nic;
use clearstream_schema::line_rate::goodput_ratio;

fn card(speed_bps: u64, mtu_bytes: Option<u32>) -> Nic {
    let pci_address = Some("0000:05:00.0".to_owned());
    Nic { pci_address, speed_bps: Some(speed_bps), mtu_bytes, ..Nic::default() }
}

/// 1448 B of payload in 1538 B on the wire; 8948 in 9038; 4044 in 4134.
#[test]
fn payload_shares_of_the_wire() {
    for (mtu, share) in [(1500, 0.9415), (9000, 0.9900), (4096, 0.9782)] {
        assert!((goodput_ratio(mtu) / share - 1.0).abs() < 1e-3, "{mtu}: {}", goodput_ratio(mtu));
    }
    let rate = card(40_000_000_000, Some(9000)).goodput_max_bps().unwrap();
    assert!((rate / 39.60e9 - 1.0).abs() < 1e-3, "{rate}");
    assert_eq!(card(10_000_000_000, None).goodput_max_bps().map(|bps| (bps / 1e8).round()), Some(94.0));
}

#[test]
fn virtual_interfaces_have_no_line_rate() {
    let veth = Nic { driver: Some("veth".to_owned()), ..card(10_000_000_000, None) };
    let without_slot = Nic { pci_address: None, ..card(10_000_000_000, None) };
    for nic in [veth, without_slot, card(0, None)] {
        assert_eq!(nic.line_rate_bps(), None, "{nic:?}");
    }
}

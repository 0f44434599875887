//! Goodput of TCP at the line rate of a network card.

use crate::host::Nic;

/// Drivers of interfaces that are no card: the speed that they report means nothing.
const VIRTUAL: [&str; 6] = ["veth", "tun", "bridge", "dummy", "bonding", "802.1Q VLAN Support"];
/// Ethernet's MTU where none is known.
const MTU_BYTES: u32 = 1500;

impl Nic {
    /// Line rate, b/s; `None` of a virtual interface, and where the link has no speed.
    pub fn line_rate_bps(&self) -> Option<u64> {
        let card = self.driver.as_deref().is_none_or(|driver| !VIRTUAL.contains(&driver));
        self.speed_bps.filter(|speed| card && self.pci_address.is_some() && *speed > 0)
    }

    /// Highest goodput of TCP, b/s: line rate x the payload share of a frame at the interface's MTU.
    pub fn goodput_max_bps(&self) -> Option<f64> {
        Some(self.line_rate_bps()? as f64 * goodput_ratio(self.mtu_bytes.unwrap_or(MTU_BYTES)))
    }
}

/// Goodput share of a line rate: (MTU - 20 - 20 - 12) / (MTU + 38) for IPv4
/// with time stamps over Ethernet (preamble 8, header 14, FCS 4, gap 12).
pub fn goodput_ratio(mtu_bytes: u32) -> f64 {
    let mtu = f64::from(mtu_bytes.max(576));
    (mtu - 52.0) / (mtu + 38.0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

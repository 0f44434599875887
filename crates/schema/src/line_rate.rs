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

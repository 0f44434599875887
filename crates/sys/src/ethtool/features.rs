//! Features of a device by name (linux/ethtool.h, `ETHTOOL_GFEATURES`): the
//! kernel has one list of names for all devices.

use std::io;

use super::{DriverSocket, put, request, u32_at};

const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// `ETH_SS_FEATURES`.
const FEATURE_NAMES: u32 = 4;
/// Octets of the features' structures before the variable part.
const FEATURES_HEADER: usize = 8;
/// `struct ethtool_get_features_block`: available, requested, active, never changed.
const BLOCK: usize = 16;
const ACTIVE: usize = 8;
/// `struct ethtool_set_features_block`: valid, requested.
const SET_BLOCK: usize = 8;
/// Maximum names read: kernels have about 64.
const MOST_NAMES: usize = 1024;

/// A feature of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name: `rx-gro`.
    pub name: String,
    /// Whether it is on.
    pub is_on: bool,
}

impl DriverSocket {
    /// Every feature named by the kernel.
    ///
    /// # Errors
    /// `ENODEV`; `InvalidData` for an implausible list.
    pub fn features(&self, interface: &str) -> io::Result<Vec<Feature>> {
        let names = self.strings(interface, FEATURE_NAMES, MOST_NAMES)?;
        let blocks = names.len().div_ceil(32);
        let mut request = request(GET_FEATURES, FEATURES_HEADER + BLOCK * blocks);
        put(&mut request, 4, u32::try_from(blocks).unwrap_or(u32::MAX));
        self.call(interface, &mut request)?;
        let is_on = |at: usize| {
            let active = u32_at(&request, FEATURES_HEADER + BLOCK * (at / 32) + ACTIVE);
            active & 1 << (at % 32) != 0
        };
        let named = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
        Ok(named.map(|(at, name)| Feature { is_on: is_on(at), name }).collect())
    }

    /// Requests a feature on or off. Unsupported changes are ignored by the device: the caller reads the
    /// state back.
    ///
    /// # Errors
    /// `NotFound` for an unknown name, `EPERM`, `ENODEV`.
    pub fn set_feature(&self, interface: &str, name: &str, on: bool) -> io::Result<()> {
        let names = self.strings(interface, FEATURE_NAMES, MOST_NAMES)?;
        let at = names.iter().position(|known| known == name).ok_or(io::ErrorKind::NotFound)?;
        let blocks = names.len().div_ceil(32);
        let mut request = request(SET_FEATURES, FEATURES_HEADER + SET_BLOCK * blocks);
        put(&mut request, 4, u32::try_from(blocks).unwrap_or(u32::MAX));
        let (place, bit) = (FEATURES_HEADER + SET_BLOCK * (at / 32), 1 << (at % 32));
        put(&mut request, place, bit);
        put(&mut request, place + 4, if on { bit } else { 0 });
        self.call(interface, &mut request)
    }
}
